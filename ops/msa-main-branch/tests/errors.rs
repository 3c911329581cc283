// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every check with its message, and what no refused call touches.

use crate::fixture::{Kind, Sequence, dims, pool};
use cpu_tiles::attention::PackedPages;
use cpu_tiles::weights::ShapeError;
use cpu_tiles::{Format, Level, Precision};
use half::{bf16, f16};
use msa_main_branch::{
    AttentionDims, Blocks, Data, Error, KeysValues, MainBranchConfig, Query, msa_main_branch, msa_main_branch_masked,
    reference,
};
use ndarray::{Array3, Array4};

const OUT: f32 = -77.0;
/// A query is 8 values, a token's keys 4, a block 3 tokens.
const DIMS: AttentionDims = dims(4, 2, 2, 3);

fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

/// The message of a call, which leaves the output as it was.
fn refused(
    dims: AttentionDims,
    query: Query<'_>,
    keys_values: KeysValues<'_>,
    blocks: Blocks<'_>,
    out: usize,
) -> String {
    let mut out = vec![OUT; out];
    let message = message(msa_main_branch(Level::SCALAR, &pool(1), &dims, query, keys_values, blocks, &mut out));
    assert!(out.iter().all(|&value| value == OUT), "{message}: the output was touched");
    message
}

/// The message for keys and values, with 4 queries from position 3 on.
fn refused_keys(keys_values: KeysValues<'_>) -> String {
    refused(DIMS, Query { data: Data::F32(&[1.0; 32]), start: 3 }, keys_values, Blocks::All, 32)
}

/// The message for lists of 4 queries from position 3 on, of 10 tokens: 4 blocks.
fn refused_blocks(blocks: Blocks<'_>) -> String {
    let plain = KeysValues::Plain { keys: Data::F32(&[1.0; 40]), values: Data::F32(&[1.0; 40]) };
    refused(DIMS, Query { data: Data::F32(&[1.0; 32]), start: 3 }, plain, blocks, 32)
}

#[test]
fn dims_that_cannot_be() {
    let zero = |change: fn(&mut AttentionDims)| {
        let mut dims = DIMS;
        change(&mut dims);
        let plain = KeysValues::Plain { keys: Data::F32(&[]), values: Data::F32(&[]) };
        let by_position = refused(dims, Query { data: Data::F32(&[]), start: 0 }, plain, Blocks::All, 0);
        let none = Data::F32(&[]);
        let by_mask = msa_main_branch_masked(Level::SCALAR, &pool(1), &dims, none, none, none, &[], &mut []);
        assert_eq!(message(by_mask), by_position);
        let none = Array3::<f32>::zeros((0, 0, 0));
        let none = none.view();
        let oracle = reference::msa_main_branch(&dims, Precision::F32, none, 0, none, none, Blocks::All);
        assert_eq!(message(oracle), by_position);
        let mask = Array4::zeros((0, 0, 0, 0));
        let oracle = reference::msa_main_branch_masked(&dims, Precision::F32, none, none, none, mask.view());
        assert_eq!(message(oracle), by_position);
        by_position
    };
    assert_eq!(zero(|dims| dims.heads = 0), "`dims.heads` is 0, expected at least 1");
    assert_eq!(zero(|dims| dims.kv_heads = 0), "`dims.kv_heads` is 0, expected at least 1");
    assert_eq!(zero(|dims| dims.head_dim = 0), "`dims.head_dim` is 0, expected at least 1");
    assert_eq!(zero(|dims| dims.block = 0), "`dims.block` is 0, expected at least 1");
    assert_eq!(zero(|dims| dims.heads = 5), "`dims.heads` is 5, expected a multiple of 2, the KV heads");
}

#[test]
fn queries_and_output() {
    let plain = KeysValues::Plain { keys: Data::F32(&[1.0; 40]), values: Data::F32(&[1.0; 40]) };
    let refused = |query: usize, out: usize| {
        let data = vec![1.0; query];
        refused(DIMS, Query { data: Data::F32(&data), start: 0 }, plain, Blocks::All, out)
    };
    assert_eq!(refused(31, 32), "`query` has 31 elements, expected a multiple of 8, the heads times head_dim");
    assert_eq!(refused(32, 31), "`out` has 31 elements, expected those of the shape [4, 4, 2]");
    // Absurd sizes are refused as well, before anything is allocated for them.
    let absurd = AttentionDims { heads: usize::MAX - 1, ..DIMS };
    let one = Query { data: Data::F32(&[1.0; 1]), start: 0 };
    assert_eq!(
        self::refused(absurd, one, plain, Blocks::All, 1),
        format!("`query` has 1 elements, expected a multiple of {}, the heads times head_dim", usize::MAX)
    );
}

#[test]
fn plain_keys_and_values() {
    let refused = |keys: usize, values: usize| {
        let (keys, values) = (vec![1.0; keys], vec![1.0; values]);
        refused_keys(KeysValues::Plain { keys: Data::F32(&keys), values: Data::F32(&values) })
    };
    assert_eq!(refused(39, 39), "`keys` has 39 elements, expected a multiple of 4, the KV heads times head_dim");
    assert_eq!(refused(40, 36), "`values` has 36 elements, expected those of the shape [10, 2, 2]");
    assert_eq!(refused(24, 24), "keys of 6 tokens, expected at least 3 + 4, the positions up to the last query");
    let mixed = KeysValues::Plain { keys: Data::F16(&[f16::ONE; 40]), values: Data::Bf16(&[bf16::ONE; 40]) };
    assert_eq!(refused_keys(mixed), "`values` are BF16, expected F16, the format of the keys");
    let keys = Data::F32(&[1.0; 40]);
    let absurd = Query { data: Data::F32(&[1.0; 32]), start: usize::MAX - 1 };
    assert_eq!(
        self::refused(DIMS, absurd, KeysValues::Plain { keys, values: keys }, Blocks::All, 32),
        format!("keys of 10 tokens, expected at least {} + 4, the positions up to the last query", usize::MAX - 1)
    );
}

#[test]
fn paged_keys_and_values() {
    // Pages are 12 values.
    let refused = |keys: usize, values: usize, table: &[i32], tokens: usize| {
        let (keys, values) = (vec![1.0; keys], vec![1.0; values]);
        let (keys, values) = (Data::F32(&keys), Data::F32(&values));
        refused_keys(KeysValues::Paged { keys, values, block_table: table, tokens })
    };
    assert_eq!(
        refused(50, 50, &[0, 1, 2, 3], 10),
        "`keys` has 50 elements, expected a multiple of 12, the KV heads times block times head_dim"
    );
    assert_eq!(
        refused(48, 36, &[0, 1, 2, 3], 10),
        "`values` has 36 elements, expected those of the shape [4, 2, 3, 2]"
    );
    assert_eq!(
        refused(48, 48, &[0, 1], 6),
        "keys of 6 tokens, expected at least 3 + 4, the positions up to the last query"
    );
    assert_eq!(
        refused(48, 48, &[0, 1, 2], 10),
        "`block_table` has 3 entries, expected at least 4, the blocks of the sequence"
    );
    assert_eq!(refused(48, 48, &[0, 4, 2, 1], 10), "`block_table[1]` is 4, expected a page below 4");
    assert_eq!(refused(48, 48, &[0, 1, 2, -1], 10), "`block_table[3]` is -1, expected a page below 4");
    // Entries behind the last block may hold anything.
    let keys = Data::F32(&[1.0; 48]);
    let paged = KeysValues::Paged { keys, values: keys, block_table: &[3, 0, 2, 7, -9], tokens: 9 };
    let query = Query { data: Data::F32(&[1.0; 32]), start: 3 };
    msa_main_branch(Level::SCALAR, &pool(1), &DIMS, query, paged, Blocks::All, &mut [0.0; 32]).unwrap();
    assert_eq!(
        refused(48, 48, &[0, 1], usize::MAX),
        format!("there are {} blocks, expected at most 2147483647", usize::MAX.div_ceil(3))
    );
}

#[test]
fn packed_keys_and_values() {
    let refused = |[kv_heads, head_dim, block, pages]: [usize; 4], block_table: Option<&[i32]>, tokens: usize| {
        let pages = PackedPages::new(Format::F32, kv_heads, head_dim, block, pages).unwrap();
        refused_keys(KeysValues::Packed { pages: &pages, block_table, tokens })
    };
    assert_eq!(refused([3, 2, 3, 4], None, 10), "the packed cache has 3 KV heads, expected 2, as the dims say");
    assert_eq!(
        refused([2, 4, 3, 4], None, 10),
        "the packed cache has 4 channels of a head, expected 2, as the dims say"
    );
    assert_eq!(
        refused([2, 2, 4, 4], None, 10),
        "the packed cache has 4 tokens of a block, expected 3, as the dims say"
    );
    assert_eq!(
        refused([2, 2, 3, 4], None, 6),
        "keys of 6 tokens, expected at least 3 + 4, the positions up to the last query"
    );
    assert_eq!(
        refused([2, 2, 3, 3], None, 10),
        "the packed cache has 3 pages, expected at least 4, the blocks of the sequence"
    );
    assert_eq!(
        refused([2, 2, 3, 4], Some(&[0, 1, 2]), 10),
        "`block_table` has 3 entries, expected at least 4, the blocks of the sequence"
    );
    assert_eq!(refused([2, 2, 3, 4], Some(&[0, 1, 2, 4]), 10), "`block_table[3]` is 4, expected a page below 4");
}

#[test]
fn gathered_keys_and_values() {
    let refused = |keys: usize, values: usize, ids: &[i32]| {
        let (keys, values) = (vec![1.0; keys], vec![1.0; values]);
        refused_keys(KeysValues::Gathered { keys: Data::F32(&keys), values: Data::F32(&values), ids })
    };
    assert_eq!(refused(24, 36, &[0, 1, 2]), "`keys` has 24 elements, expected those of the shape [3, 3, 2, 2]");
    assert_eq!(refused(36, 24, &[0, 1, 2]), "`values` has 24 elements, expected those of the shape [3, 3, 2, 2]");
    // Seven tokens are three blocks.
    assert_eq!(refused(36, 36, &[2, 3, 0]), "`ids`[1] is 3, expected a block below 3");
    assert_eq!(refused(36, 36, &[2, 0, 2]), "`ids`[2] names block 2 again, expected distinct blocks");
    assert_eq!(refused(36, 36, &[2, -1, 0]), "`ids`[1] is -1 before a block, expected -1 at the end of a list only");
    assert_eq!(refused(36, 36, &[2, 0, -2]), "`ids`[2] is -2, expected a block, or -1 at the end of a list");

    let keys = Data::F32(&[1.0; 36]);
    let gathered = KeysValues::Gathered { keys, values: keys, ids: &[2, 0, -1] };
    let query = Query { data: Data::F32(&[1.0; 32]), start: 3 };
    assert_eq!(
        self::refused(DIMS, query, gathered, Blocks::PerTile { tile: 2, ids: &[0, -1, 2, 1] }, 32),
        "`block_ids`[1, 1] is 1, expected one of the gathered blocks"
    );
}

#[test]
fn block_lists() {
    assert_eq!(refused_blocks(Blocks::Shared(&[0, 4])), "`block_ids`[1] is 4, expected a block below 4");
    assert_eq!(refused_blocks(Blocks::Shared(&[i32::MAX])), "`block_ids`[0] is 2147483647, expected a block below 4");
    assert_eq!(
        refused_blocks(Blocks::Shared(&[0, i32::MIN])),
        "`block_ids`[1] is -2147483648, expected a block, or -1 at the end of a list"
    );
    assert_eq!(
        refused_blocks(Blocks::PerTile { tile: 3, ids: &[0, 1, -1, 2] }),
        "`block_ids`[1, 0] is -1 before a block, expected -1 at the end of a list only"
    );
    assert_eq!(
        refused_blocks(Blocks::PerTileAndHead { tile: 2, ids: &[0, 1, 2, 3, 0, 0, 1, 2] }),
        "`block_ids`[1, 0, 1] names block 0 again, expected distinct blocks"
    );
    let mut ids = [0; 8];
    ids[5] = 9;
    assert_eq!(refused_blocks(Blocks::PerQuery(&ids)), "`block_ids`[2, 1, 0] is 9, expected a block below 4");
    assert_eq!(
        refused_blocks(Blocks::PerQuery(&[0; 12])),
        "`block_ids` has 12 elements, expected a multiple of 8, the number of lists"
    );
    assert_eq!(
        refused_blocks(Blocks::PerTile { tile: 3, ids: &[0; 3] }),
        "`block_ids` has 3 elements, expected a multiple of 2, the number of lists"
    );
    assert_eq!(
        refused_blocks(Blocks::PerTileAndHead { tile: 3, ids: &[0; 6] }),
        "`block_ids` has 6 elements, expected a multiple of 4, the number of lists"
    );
    for blocks in [Blocks::PerTile { tile: 0, ids: &[] }, Blocks::PerTileAndHead { tile: 0, ids: &[] }] {
        assert_eq!(refused_blocks(blocks), "`tile` is 0, expected at least 1");
    }
    // No queries have no lists.
    let plain = KeysValues::Plain { keys: Data::F32(&[]), values: Data::F32(&[]) };
    let none = Query { data: Data::F32(&[]), start: 0 };
    assert_eq!(
        refused(DIMS, none, plain, Blocks::PerQuery(&[-1]), 0),
        "`block_ids` has 1 elements, expected a multiple of 0, the number of lists"
    );
}

#[test]
fn masked_arguments() {
    let refused = |query: usize, keys: usize, values: usize, mask: usize, out: usize| {
        let [query, keys, values] = [query, keys, values].map(|len| vec![1.0; len]);
        let [query, keys, values] = [&query, &keys, &values].map(|data| Data::F32(data));
        let (mask, mut out) = (vec![0.0; mask], vec![OUT; out]);
        let result = msa_main_branch_masked(Level::SCALAR, &pool(1), &DIMS, query, keys, values, &mask, &mut out);
        assert!(out.iter().all(|&value| value == OUT), "the output was touched");
        message(result)
    };
    assert_eq!(
        refused(31, 24, 24, 36, 32),
        "`query` has 31 elements, expected a multiple of 8, the heads times head_dim"
    );
    assert_eq!(refused(32, 24, 24, 36, 31), "`out` has 31 elements, expected those of the shape [4, 4, 2]");
    assert_eq!(
        refused(32, 20, 24, 36, 32),
        "`key_blocks` has 20 elements, expected a multiple of 12, the block times KV heads times head_dim"
    );
    assert_eq!(refused(32, 24, 12, 36, 32), "`value_blocks` has 12 elements, expected those of the shape [2, 3, 2, 2]");
    assert_eq!(refused(32, 24, 24, 35, 32), "`mask` has 35 elements, expected those of the shape [2, 2, 3, 3]");
    let (query, keys, values) = (Data::F32(&[1.0; 32]), Data::F32(&[1.0; 24]), Data::Bf16(&[bf16::ONE; 24]));
    let result =
        msa_main_branch_masked(Level::SCALAR, &pool(1), &DIMS, query, keys, values, &[0.0; 36], &mut [0.0; 32]);
    assert_eq!(message(result), "`values` are BF16, expected F32, the format of the keys");
}

#[test]
fn factory_arguments() {
    let config = MainBranchConfig { hq: 4, hkv: 2, dh: 2, bk: 3, topk: 2, max_n: Some(6) };
    let main_branch = config.build().unwrap();
    let refused = |query: (usize, usize, usize), keys: usize, values: usize, mask: [usize; 4], out: usize| {
        let query = Array3::<f32>::zeros(query);
        let [keys, values] = [keys, values].map(|rows| Array3::<f32>::zeros((rows, 2, 2)));
        let mask = Array4::<f32>::zeros(mask);
        let mut out = Array3::from_elem((out, 4, 2), OUT);
        let (level, pool) = (Level::SCALAR, pool(1));
        let (query, keys, values) = (query.view(), keys.view(), values.view());
        let masked = message(main_branch.run(level, &pool, query, keys, values, mask.view(), out.view_mut()));
        let by_position = main_branch.run_by_position(level, &pool, query, keys, values, &[0], out.view_mut());
        assert!(out.iter().all(|&value| value == OUT), "the output was touched");
        (masked, message(by_position))
    };
    let of_both = |(masked, by_position): (String, String)| {
        assert_eq!(masked, by_position);
        masked
    };
    let mask = [2, 2, 3, 3];
    assert_eq!(of_both(refused((4, 3, 2), 6, 6, mask, 4)), "`query` has shape [4, 3, 2], expected [4, 4, 2]");
    assert_eq!(
        of_both(refused((7, 4, 2), 6, 6, mask, 4)),
        "`query` has 7 rows, expected at most 6, the `max_n` of the configuration"
    );
    assert_eq!(of_both(refused((4, 4, 2), 5, 6, mask, 4)), "`key_blocks` has shape [5, 2, 2], expected [6, 2, 2]");
    assert_eq!(of_both(refused((4, 4, 2), 6, 9, mask, 4)), "`value_blocks` has shape [9, 2, 2], expected [6, 2, 2]");
    assert_eq!(of_both(refused((4, 4, 2), 6, 6, mask, 5)), "`output` has shape [5, 4, 2], expected [4, 4, 2]");
    assert_eq!(
        refused((4, 4, 2), 6, 6, [1, 2, 3, 3], 4),
        (
            "`block_mask` has shape [1, 2, 3, 3], expected [2, 2, 3, 3]".into(),
            "`block_ids` has 1 elements, expected those of the shape [2]".into()
        )
    );
}

#[test]
fn the_reference_checks_too() {
    let call = |query: (usize, usize, usize), keys: (usize, usize, usize), values: (usize, usize, usize)| {
        let [query, keys, values] = [query, keys, values].map(Array3::<f32>::zeros);
        let (query, keys, values) = (query.view(), keys.view(), values.view());
        let blocks = Blocks::Shared(&[9]);
        let by_position = message(reference::msa_main_branch(&DIMS, Precision::F32, query, 3, keys, values, blocks));
        let mask = Array4::zeros((2, 3, 3, 3));
        let masked = reference::msa_main_branch_masked(&DIMS, Precision::F32, query, keys, values, mask.view());
        (by_position, masked.map_or_else(|error| error.to_string(), |_| String::new()))
    };
    let (by_position, masked) = call((4, 4, 3), (9, 2, 2), (9, 2, 2));
    assert_eq!((&by_position[..], &masked[..]), ("`query` has shape [4, 4, 3], expected [4, 4, 2]", &by_position[..]));
    let (by_position, masked) = call((4, 4, 2), (9, 1, 2), (9, 2, 2));
    assert_eq!(by_position, "`keys` has shape [9, 1, 2], expected [9, 2, 2]");
    assert_eq!(masked, "`key_blocks` has shape [9, 1, 2], expected [9, 2, 2]");
    let (by_position, masked) = call((4, 4, 2), (9, 2, 2), (8, 2, 2));
    assert_eq!(by_position, "`values` has shape [8, 2, 2], expected [9, 2, 2]");
    assert_eq!(masked, "`value_blocks` has shape [8, 2, 2], expected [9, 2, 2]");
    let (by_position, masked) = call((4, 4, 2), (9, 2, 2), (9, 2, 2));
    assert_eq!((&by_position[..], &masked[..]), ("`block_ids`[0] is 9, expected a block below 3", ""));
    let (_, masked) = call((8, 4, 2), (9, 2, 2), (9, 2, 2));
    assert_eq!(masked, "`mask` has shape [2, 3, 3, 3], expected [3, 3, 3, 3]");
}

#[test]
fn an_error_of_the_tiles_keeps_its_source() {
    let error = Error::from(ShapeError::Mismatch { what: "columns of the activations", expected: 8, found: 9 });
    assert_eq!(error.to_string(), "the CPU tiles failed: columns of the activations is 9, expected 8");
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "columns of the activations is 9, expected 8");
}

#[test]
fn arguments_describe_themselves() {
    let sequence = Sequence::new(DIMS, Kind::F16, 0, 2, 0, 1);
    assert_eq!(format!("{:?}", sequence.plain()), "Plain(8 F16)");
    assert_eq!(format!("{:?}", sequence.gathered(&[0]).get()), "Gathered(12 F16, [0])");
    assert_eq!(format!("{:?}", sequence.paged().get()), "Paged(36 F16, 2 tokens)");
    assert_eq!(format!("{:?}", sequence.packed(Level::SCALAR, true).get()), "Packed(2 tokens)");
    assert!(Data::F32(&[]).is_empty() && !sequence.q.data().is_empty());
}

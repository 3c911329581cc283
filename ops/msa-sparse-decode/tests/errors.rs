// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every check with its message; a refused call touches nothing.

use crate::fixture::{Ids, Setup, pool};
use cpu_tiles::attention::PackedPages;
use cpu_tiles::{Format, Level, Precision};
use half::bf16;
use msa_sparse_decode::{
    BlockIds, Cache, DecodeBatch, DecodeDims, Error, Queries, Slot, reference, sparse_decode, sparse_decode_f32,
};
use ndarray::{ArrayView3, ArrayView5};

const DIMS: DecodeDims = DecodeDims::new(4, 2, 8, 4);
const OUT: f32 = -77.0;

fn setup() -> Setup {
    Setup::new(DIMS, Precision::Bf16, 2, 3, 1)
}

/// The message of both functions; the output stays as it was.
fn refused(dims: &DecodeDims, batch: &DecodeBatch<'_>, out: usize) -> (Error, String) {
    let mut values = vec![OUT; out];
    let error = sparse_decode_f32(Level::SCALAR, &pool(1), dims, batch, &mut values).unwrap_err();
    assert!(values.iter().all(|&value| value == OUT), "{error}: the output was touched");
    let mut values = vec![bf16::from_f32(OUT); out];
    let again = sparse_decode(Level::SCALAR, &pool(1), dims, batch, &mut values).unwrap_err();
    assert!(values.iter().all(|&value| value == bf16::from_f32(OUT)), "{error}: the output was touched");
    assert_eq!(again.to_string(), error.to_string());
    let message = error.to_string();
    (error, message)
}

/// The message for a setup with some of its parts replaced.
fn message<'a>(change: impl FnOnce(&mut DecodeDims, &mut DecodeBatch<'a>, &mut usize)) -> String {
    let setup: &Setup = Box::leak(Box::new(setup()));
    let (mut dims, mut out) = (setup.dims, setup.q.len());
    let mut batch: DecodeBatch<'a> = DecodeBatch {
        queries: Queries::Bf16(&setup.q),
        cache: setup.plain(),
        block_ids: setup.ids.as_ref(),
        seq_lens: &setup.seq_lens,
    };
    change(&mut dims, &mut batch, &mut out);
    refused(&dims, &batch, out).1
}

#[test]
fn impossible_dims() {
    for (field, dims) in [
        ("heads", DecodeDims { heads: 0, ..DIMS }),
        ("kv_heads", DecodeDims { kv_heads: 0, ..DIMS }),
        ("head_dim", DecodeDims { head_dim: 0, ..DIMS }),
        ("block", DecodeDims { block: 0, ..DIMS }),
    ] {
        assert_eq!(message(|d, _, _| *d = dims), format!("`dims.{field}` is 0, expected at least 1"));
    }
    assert_eq!(message(|dims, _, _| dims.heads = 5), "`dims.heads` is 5, expected a multiple of 2, the KV heads");
    assert_eq!(message(|dims, _, _| dims.scale = Some(f32::NAN)), "`dims.scale` is NaN, expected a finite number");
    for found in [0, 6] {
        let expected = format!("`dims.chunk_keys` is {found}, expected a positive multiple of 4, the keys of a block");
        assert_eq!(message(|dims, _, _| dims.chunk_keys = found), expected);
    }
    assert_eq!(DecodeDims::new(4, 2, 8, 0).chunk_keys, 0);
    assert_eq!(DecodeDims::new(4, 2, 8, 20).chunk_keys, 20);
    assert_eq!(DecodeDims::new(4, 2, 8, 1024).chunk_keys, 1024);
    assert_eq!(DecodeDims::new(4, 2, 8, 64).chunk_keys, 512);
    // Sizes whose products no computer can count.
    let message = message(|dims, _, _| dims.head_dim = usize::MAX / 2);
    assert!(message.starts_with("`queries` has 64 elements, expected a multiple of "), "{message}");
}

#[test]
fn wrong_lengths() {
    let (few, many) = ([bf16::ONE; 63], [bf16::ONE; 400]);
    let wide = [1.0; 65];
    assert_eq!(
        message(|_, batch, _| batch.queries = Queries::Bf16(&few)),
        "`queries` has 63 elements, expected a multiple of 32, the size of a batch entry"
    );
    assert_eq!(
        message(|_, batch, _| batch.queries = Queries::F32(&wide)),
        "`queries` has 65 elements, expected a multiple of 32, the size of a batch entry"
    );
    assert_eq!(message(|_, _, out| *out = 63), "`out` has 63 elements, expected those of the shape [2, 4, 8]");
    assert_eq!(
        message(|_, batch, _| batch.seq_lens = &[1]),
        "`seq_lens` has 1 elements, expected those of the shape [2]"
    );
    assert_eq!(
        message(|_, batch, _| batch.seq_lens = &[12, 13]),
        "`seq_lens[1]` is 13, expected at most 12, the keys of the cache"
    );
    assert_eq!(
        message(|_, batch, _| batch.cache = Cache::Plain { k_blocks: &many[..383], v_blocks: &many[..384] }),
        "`k_blocks` has 383 elements, expected a multiple of 128, the size of one block of each sequence and KV head"
    );
    assert_eq!(
        message(|_, batch, _| batch.cache = Cache::Plain { k_blocks: &many[..384], v_blocks: &many[..383] }),
        "`v_blocks` has 383 elements, expected those of the shape [2, 2, 3, 4, 8]"
    );
    let paged = |k: usize, v: usize, table: &'static [i32]| {
        message(|_, batch, _| {
            batch.cache = Cache::Paged { k_pages: &many[..k], v_pages: &many[..v], block_table: table };
        })
    };
    assert_eq!(paged(100, 64, &[0; 6]), "`k_pages` has 100 elements, expected a multiple of 64, the size of a page");
    assert_eq!(paged(128, 64, &[0; 6]), "`v_pages` has 64 elements, expected those of the shape [2, 2, 4, 8]");
    assert_eq!(
        paged(128, 128, &[0; 5]),
        "`block_table` has 5 elements, expected a multiple of 2, the size of one block of each sequence"
    );
    assert_eq!(
        message(|_, batch, _| batch.block_ids = BlockIds::Shared(&[0, 1, 2])),
        "`block_ids` has 3 elements, expected a multiple of 2, the size of one id for each list"
    );
    assert_eq!(
        message(|_, batch, _| batch.block_ids = BlockIds::PerKvHead(&[0; 6])),
        "`block_ids` has 6 elements, expected a multiple of 4, the size of one id for each list"
    );
    // Without sequences there is nothing to have lists or blocks for.
    let no_sequences = |batch: &mut DecodeBatch<'_>, out: &mut usize| {
        (batch.queries, batch.seq_lens, *out) = (Queries::Bf16(&[]), &[], 0);
    };
    assert_eq!(
        message(|_, batch, out| no_sequences(batch, out)),
        "`k_blocks` has 384 elements, expected those of the shape [0]"
    );
    assert_eq!(
        message(|_, batch, out| {
            no_sequences(batch, out);
            batch.cache = Cache::Plain { k_blocks: &[], v_blocks: &[] };
        }),
        "`block_ids` has 6 elements, expected those of the shape [0]"
    );
}

#[test]
fn bad_ids() {
    let shared = |ids: [i32; 6]| message(|_, batch, _| batch.block_ids = BlockIds::Shared(&ids));
    let per_head = |ids: [i32; 12]| message(|_, batch, _| batch.block_ids = BlockIds::PerKvHead(&ids));
    assert_eq!(
        shared([0, 1, 2, 0, 3, 1]),
        "`block_ids` at batch entry 1, slot 1 is 3, expected a block below 3, or -1 after all of them"
    );
    assert_eq!(
        shared([0, -2, 2, 0, 2, 1]),
        "`block_ids` at batch entry 0, slot 1 is -2, expected a block below 3, or -1 after all of them"
    );
    assert_eq!(
        shared([0, -1, 2, 0, 2, 1]),
        "`block_ids` at batch entry 0, slot 2 is 2 and follows a -1, expected nothing but -1 after the first one"
    );
    assert_eq!(
        shared([0, -1, -3, 0, 2, 1]),
        "`block_ids` at batch entry 0, slot 2 is -3 and follows a -1, expected nothing but -1 after the first one"
    );
    assert_eq!(
        shared([0, 1, 2, 2, 1, 2]),
        "`block_ids` at batch entry 1, slot 2 is 2, as slot 0 is, expected distinct blocks"
    );
    assert_eq!(
        per_head([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, i32::MIN]),
        "`block_ids` at batch entry 1, KV head 1, slot 2 is -2147483648, expected a block below 3, or -1 after all of them"
    );
    assert_eq!(
        per_head([0, 1, 2, 1, 1, -1, 0, 1, 2, 0, 1, 2]),
        "`block_ids` at batch entry 0, KV head 1, slot 1 is 1, as slot 0 is, expected distinct blocks"
    );

    // Beyond the end of the sequence too: the list is wrong whether or not the block would be read.
    let setup = setup().with_ids(Ids::Shared(vec![0, 2, 2, 0, 1, 2])).with_lens(&[1, 1]);
    let batch = DecodeBatch {
        queries: Queries::Bf16(&setup.q),
        cache: setup.plain(),
        block_ids: setup.ids.as_ref(),
        seq_lens: &setup.seq_lens,
    };
    let (error, _) = refused(&DIMS, &batch, setup.q.len());
    let at = Slot { batch: 0, kv_head: None, slot: 2 };
    assert!(matches!(error, Error::DuplicateId { at: found, first: 1, found: 2 } if found == at));
}

#[test]
fn bad_tables_and_packed_caches() {
    let setup = setup();
    let paged = setup.paged();
    let packed = setup.packed(Level::SCALAR, Format::Bf16);
    for found in [-1, 13, i32::MAX] {
        let mut table = paged.table.clone();
        table[4] = found;
        for cache in [
            Cache::Paged { k_pages: &paged.k, v_pages: &paged.v, block_table: &table },
            Cache::Packed { pages: &packed.pages, block_table: Some(&table) },
        ] {
            assert_eq!(
                message(|_, batch, _| batch.cache = cache),
                format!("`block_table` has {found} for block 1 of batch entry 1, expected a page below 13")
            );
        }
    }
    for (what, pages) in [
        ("3 KV heads, expected 2", PackedPages::new(Format::Bf16, 3, 8, 4, 3)),
        ("9 channels of a head, expected 8", PackedPages::new(Format::Bf16, 2, 9, 4, 3)),
        ("5 tokens of a block, expected 4", PackedPages::new(Format::Bf16, 2, 8, 5, 3)),
    ] {
        let pages = pages.unwrap();
        let cache = Cache::Packed { pages: &pages, block_table: None };
        assert_eq!(message(|_, batch, _| batch.cache = cache), format!("the packed cache has {what}, as the dims say"));
    }
    let pages = PackedPages::new(Format::Bf16, 2, 8, 4, 2).unwrap();
    assert_eq!(
        message(|_, batch, _| batch.cache = Cache::Packed { pages: &pages, block_table: None }),
        "`seq_lens[0]` is 12, expected at most 8, the keys of the cache"
    );
    // A cache that breaks its word is an error of its own.
    struct Broken(PackedPages);
    impl cpu_tiles::attention::PackedBlocks for Broken {
        fn kv_heads(&self) -> usize {
            self.0.kv_heads()
        }
        fn head_dim(&self) -> usize {
            self.0.head_dim()
        }
        fn block_tokens(&self) -> usize {
            self.0.block_tokens()
        }
        fn blocks(&self) -> usize {
            3
        }
        fn precision(&self) -> Precision {
            self.0.precision()
        }
        fn keys(&self, head: usize, block: usize) -> Result<cpu_tiles::PackedRef<'_>, cpu_tiles::ShapeError> {
            self.0.keys(head, block)
        }
        fn values(
            &self,
            head: usize,
            block: usize,
            tokens: usize,
        ) -> Result<cpu_tiles::PackedRef<'_>, cpu_tiles::ShapeError> {
            self.0.values(head, block, tokens)
        }
    }
    let broken = Broken(pages);
    assert_eq!(
        message(|_, batch, _| batch.cache = Cache::Packed { pages: &broken, block_table: None }),
        "the CPU tiles failed: page beyond the last is 2, expected 2"
    );
}

#[test]
fn the_oracle_checks_too() {
    let setup = setup();
    let call = |dims: &DecodeDims, q: [usize; 3], k: [usize; 5], v: [usize; 5], ids: &[i32], lens: &[usize]| {
        let (q_values, cached) = (vec![bf16::ONE; q.iter().product()], vec![bf16::ONE; 4096]);
        let of = |shape: [usize; 5]| ArrayView5::from_shape(shape, &cached[..shape.iter().product()]).unwrap();
        let q = ArrayView3::from_shape(q, &q_values).unwrap();
        let ids = BlockIds::Shared(ids);
        reference::sparse_decode(dims, Precision::F32, q, of(k), of(v), ids, lens).unwrap_err().to_string()
    };
    let (q, k) = ([2, 4, 8], [2, 2, 3, 4, 8]);
    let ids = [0, 1, 2, 2, 1, 0];
    assert_eq!(
        call(&DecodeDims { heads: 0, ..DIMS }, q, k, k, &ids, &[1, 1]),
        "`dims.heads` is 0, expected at least 1"
    );
    assert_eq!(call(&DIMS, [2, 3, 8], k, k, &ids, &[1, 1]), "`q` has shape [2, 3, 8], expected [2, 4, 8]");
    assert_eq!(
        call(&DIMS, q, [2, 2, 3, 4, 7], k, &ids, &[1, 1]),
        "`k_blocks` has shape [2, 2, 3, 4, 7], expected [2, 2, 3, 4, 8]"
    );
    assert_eq!(
        call(&DIMS, q, k, [2, 2, 2, 4, 8], &ids, &[1, 1]),
        "`v_blocks` has shape [2, 2, 2, 4, 8], expected [2, 2, 3, 4, 8]"
    );
    assert_eq!(call(&DIMS, q, k, k, &ids, &[1, 13]), "`seq_lens[1]` is 13, expected at most 12, the keys of the cache");
    assert!(call(&DIMS, q, k, k, &[0, 0, 1, 2, 1, 0], &[1, 1]).contains("slot 1 is 0, as slot 0 is"));
    assert_eq!(setup.expected().len(), setup.q.len());
}

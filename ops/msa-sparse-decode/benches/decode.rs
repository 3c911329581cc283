// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sparse and dense decode at the geometry of MiniMax-M3, beside the machine's limits.
//!
//! `cargo bench -p msa-sparse-decode -- --help`
//!
//! Shares of the limits are those of the round: see `op_testkit::bench`.

use cpu_tiles::attention::PackedPages;
use cpu_tiles::mem::Buffer;
use cpu_tiles::probe::{self, Bandwidth};
use cpu_tiles::{Format, Level, Pool, Precision};
use half::bf16;
use msa_sparse_decode::{BlockIds, Cache, DecodeBatch, DecodeDims, Queries, sparse_decode};
use op_testkit::bench::{self, Bench, Case, Failure, Options, Program};
use op_testkit::fill_bf16;
use serde_json::json;
use std::process::ExitCode;
use zerocopy::FromBytes;

const PROGRAM: Program = Program { package: "msa-sparse-decode", rounds: 7, quick: "one sequence", words: &[] };
const SCHEMA: &str = "msa-sparse-decode-bench/1";
const DIMS: DecodeDims = DecodeDims::M3;
/// Blocks of a sequence: 65,536 keys.
const BLOCKS: usize = 512;
const TOP_K: usize = 16;
/// Elements of the keys of a block of one KV head.
const BLOCK: usize = DIMS.block * DIMS.head_dim;
/// Elements of the keys of a sequence.
const SEQUENCE: usize = DIMS.kv_heads * BLOCKS * BLOCK;
/// Many times any last-level cache.
const PROBE_BYTES: usize = 512 << 20;

/// Keys and values of some sequences, in both layouts.
struct Data {
    sequences: usize,
    /// Keys, then values, `[sequences, G, blocks, block, D]` each.
    plain: Buffer,
    packed: PackedPages,
    /// The pages of each sequence.
    tables: Vec<Vec<i32>>,
}

impl Data {
    fn new(level: Level, sequences: usize) -> Result<Self, Failure> {
        // Enough distinct values for the softmax to be an ordinary one; the rest repeats them.
        let values = fill_bf16(1, 1 << 20, 1.0);
        let mut plain = Buffer::zeroed(2 * sequences * SEQUENCE * size_of::<bf16>())?;
        let elements = <[bf16]>::mut_from_bytes(&mut plain).map_err(|error| error.to_string())?;
        for (i, chunk) in elements.chunks_mut(values.len() - 1).enumerate() {
            let turn = i * 977 % values.len();
            let (a, b) = (&values[turn..], &values[..turn]);
            let first = a.len().min(chunk.len());
            chunk[..first].copy_from_slice(&a[..first]);
            let rest = chunk.len() - first;
            chunk[first..].copy_from_slice(&b[..rest]);
        }
        let mut data = Self {
            sequences,
            packed: PackedPages::new(Format::Bf16, DIMS.kv_heads, DIMS.head_dim, DIMS.block, sequences * BLOCKS)?,
            // The pages of a sequence lie apart, as those of a cache in use do.
            tables: (0..sequences)
                .map(|sequence| (0..BLOCKS).map(|block| (block * 181 % BLOCKS * sequences + sequence) as i32).collect())
                .collect(),
            plain,
        };
        let (keys, values) = elements_of(&data.plain).split_at(sequences * SEQUENCE);
        for (sequence, table) in data.tables.iter().enumerate() {
            for (block, &page) in table.iter().enumerate() {
                for head in 0..DIMS.kv_heads {
                    let at = ((sequence * DIMS.kv_heads + head) * BLOCKS + block) * BLOCK;
                    let (k, v) = (&keys[at..at + BLOCK], &values[at..at + BLOCK]);
                    data.packed.write_bf16(level, page as usize, head, 0, DIMS.block, k, v, DIMS.head_dim)?;
                }
            }
        }
        Ok(data)
    }

    fn cache(&self, packed: bool, sequence: usize) -> Cache<'_> {
        if packed {
            return Cache::Packed { pages: &self.packed, block_table: Some(&self.tables[sequence]) };
        }
        let (keys, values) = elements_of(&self.plain).split_at(self.sequences * SEQUENCE);
        let range = sequence * SEQUENCE..(sequence + 1) * SEQUENCE;
        Cache::Plain { k_blocks: &keys[range.clone()], v_blocks: &values[range] }
    }
}

fn elements_of(buffer: &Buffer) -> &[bf16] {
    <[bf16]>::ref_from_bytes(buffer).expect("a buffer is aligned, and was made for whole values")
}

fn main() -> ExitCode {
    bench::main(&PROGRAM, run)
}

/// How the blocks of a call are chosen.
#[derive(Clone, Copy, PartialEq)]
enum Choice {
    /// 16 blocks that no recent call has read.
    Fresh,
    /// The same 16 blocks in every call.
    Same,
    /// All blocks.
    All,
}

fn run(options: &Options) -> Result<(), Failure> {
    let pool = &options.threads.map_or_else(Pool::from_env, Pool::new)?;
    let level = options.level.as_ref().map_or_else(Level::from_env, |name| Level::new(name.parse()?))?;
    let sequences = options.size(if options.quick { 1 } else { 4 }, 1);
    eprintln!("making {sequences} sequences of {BLOCKS} blocks, plain and packed");
    let data = Data::new(level, sequences)?;
    let queries = fill_bf16(2, DIMS.heads * DIMS.head_dim, 1.0);
    let all: Vec<i32> = (0..BLOCKS as i32).collect();
    // Permuted, so that the sixteen blocks of a call are spread over the sequence; distinct from call to call.
    let spread: Vec<i32> = (0..BLOCKS).map(|i| (i * 37 % BLOCKS) as i32).collect();

    let mut cases: Vec<Case<'_>> = Vec::new();
    for (choice, name) in [(Choice::Fresh, "sparse"), (Choice::Same, "sparse-resident"), (Choice::All, "dense")] {
        for packed in [true, false] {
            let (queries, data, all, spread) = (&queries, &data, &all, &spread);
            let listed = if choice == Choice::All { BLOCKS } else { TOP_K };
            let keys = listed * DIMS.block;
            let mut out = vec![bf16::ZERO; queries.len()];
            cases.push(Case::new(
                format!("sparse_decode/{name}/{}/{level}", if packed { "packed" } else { "plain" }),
                format!(
                    "B 1, heads {}/{}, D {}, {listed} of {BLOCKS} blocks of {}",
                    DIMS.heads, DIMS.kv_heads, DIMS.head_dim, DIMS.block
                ),
                2 * DIMS.kv_heads * keys * DIMS.head_dim * size_of::<bf16>(),
                (DIMS.heads * keys * DIMS.head_dim * 4) as f64,
                move |call| {
                    let (sequence, ids) = match choice {
                        Choice::Fresh => {
                            let first = call / sequences % (BLOCKS / TOP_K) * TOP_K;
                            (call % sequences, &spread[first..first + TOP_K])
                        }
                        Choice::Same => (0, &spread[..TOP_K]),
                        Choice::All => (call % sequences, &all[..]),
                    };
                    let batch = DecodeBatch {
                        queries: Queries::Bf16(queries),
                        cache: data.cache(packed, sequence),
                        block_ids: BlockIds::Shared(ids),
                        seq_lens: &[BLOCKS * DIMS.block],
                    };
                    let blind = sparse_decode(level, pool, &DIMS, &batch, &mut out)?;
                    if blind.is_empty() { Ok(()) } else { Err("a KV head saw nothing".into()) }
                },
            ));
        }
    }
    check(level, pool, &data, &queries, &all)?;

    let bandwidth = Bandwidth::new(options.size(PROBE_BYTES, 1 << 20))?;
    let bench = Bench::new(options, level.name(), pool.threads(), || bandwidth.run(pool))
        .with_peak("multiply_add_flop_per_s", |iterations| probe::peak(level, Precision::Bf16, pool, iterations));
    let measured = bench.run(cases)?;
    let settings = json!({
        "heads": DIMS.heads, "kv_heads": DIMS.kv_heads, "head_dim": DIMS.head_dim, "block": DIMS.block,
        "chunk_keys": DIMS.chunk_keys, "sequences": sequences, "blocks": BLOCKS, "top_k": TOP_K,
    });
    bench.publish(&bench.report(SCHEMA, settings, &measured))
}

/// Both layouts give the same bits, or there is nothing to time.
fn check(level: Level, pool: &Pool, data: &Data, queries: &[bf16], ids: &[i32]) -> Result<(), Failure> {
    let output = |packed: bool| -> Result<Vec<bf16>, Failure> {
        let mut out = vec![bf16::ZERO; queries.len()];
        let batch = DecodeBatch {
            queries: Queries::Bf16(queries),
            cache: data.cache(packed, 0),
            block_ids: BlockIds::Shared(ids),
            seq_lens: &[BLOCKS * DIMS.block - 3],
        };
        sparse_decode(level, pool, &DIMS, &batch, &mut out)?;
        Ok(out)
    };
    if output(true)? == output(false)? { Ok(()) } else { Err("packed and plain give other results".into()) }
}

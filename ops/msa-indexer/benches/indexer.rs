// SPDX-License-Identifier: MIT OR Apache-2.0

//! The block selection of MiniMax-M3, beside the machine's limits.
//!
//! `cargo bench -p msa-indexer -- --help`
//!
//! Shares of the limits are those of the round: see `op_testkit::bench`.

use cpu_tiles::probe::{self, Bandwidth};
use cpu_tiles::{Level, PackedWeight, Pool, Precision, WeightRef};
use half::bf16;
use msa_indexer::{IndexerDims, Keys, Values, decode, prefill};
use op_testkit::bench::{self, Bench, Case, Failure, Program};
use op_testkit::fill_bf16;
use serde_json::json;
use std::process::ExitCode;

const PROGRAM: Program = Program { package: "msa-indexer", rounds: 9, quick: "fewer keys", words: &[] };
const SCHEMA: &str = "msa-indexer-bench/1";
const DIMS: IndexerDims = IndexerDims::M3;
/// Keys that fit the last-level cache of a server, and keys that do not.
const SHORT: usize = 65_536;
const LONG: usize = 524_288;
/// Sequences of the long length that take turns, so that none finds its keys in a cache.
const SEQUENCES: usize = 4;
const PROMPT: usize = 8_192;
const QUERIES: usize = 1_024;
/// Many times any last-level cache.
const PROBE_BYTES: usize = 1 << 30;

struct Options {
    pool: Pool,
    level: Level,
}

/// The index keys of one sequence, in every layout.
struct Sequence {
    plain: Vec<bf16>,
    packed: Vec<PackedWeight>,
    /// A table that scatters the blocks.
    scattered: Vec<i32>,
}

impl Sequence {
    fn new(options: &Options, seed: u64, keys: usize) -> Result<Self, Failure> {
        let plain = fill_bf16(seed, keys * DIMS.head_dim, 1.0);
        let blocks = plain.chunks_exact(DIMS.block * DIMS.head_dim);
        let blocks = blocks.map(|block| WeightRef::bf16(DIMS.block, DIMS.head_dim, block));
        let packed = PackedWeight::pack_all(options.level, &options.pool, &blocks.collect::<Result<Vec<_>, _>>()?)?;
        let count = packed.len();
        // Any odd factor permutes a power of two of blocks.
        let scattered = (0..count).map(|block| (block * 1237 % count) as i32).collect();
        Ok(Self { plain, packed, scattered })
    }

    fn layouts(&self) -> [(&'static str, Keys<'_>); 4] {
        let (pages, block_table) = (Values::Bf16(&self.plain), &self.scattered[..]);
        [
            ("packed", Keys::Packed { blocks: &self.packed, block_table: None }),
            ("packed-scattered", Keys::Packed { blocks: &self.packed, block_table: Some(block_table) }),
            ("plain", Keys::Plain(pages)),
            ("paged", Keys::Paged { pages, block_table }),
        ]
    }
}

fn main() -> ExitCode {
    bench::main(&PROGRAM, run)
}

fn decode_case<'a>(options: &'a Options, sequences: &'a [Sequence], layout: usize, query: &'a [bf16]) -> Case<'a> {
    let Options { level, ref pool, .. } = *options;
    let length = sequences[0].plain.len() / DIMS.head_dim;
    let (name, _) = sequences[0].layouts()[layout];
    let mut ids = vec![0; DIMS.ids_shape(1, length).iter().product()];
    Case::new(
        format!("decode/bf16/{name}/{level}"),
        format!("{} heads x {}, {length} keys in blocks of {}", DIMS.heads, DIMS.head_dim, DIMS.block),
        size_of_val(&sequences[0].plain[..]),
        (2 * DIMS.heads * DIMS.head_dim * length) as f64,
        move |call| {
            let (_, keys) = sequences[call % sequences.len()].layouts()[layout];
            Ok(decode(level, pool, &DIMS, Values::Bf16(query), keys, length, &mut ids, None)?)
        },
    )
}

fn prefill_case<'a>(options: &'a Options, sequence: &'a Sequence, layout: usize, queries: &'a [bf16]) -> Case<'a> {
    let Options { level, ref pool, .. } = *options;
    let length = sequence.plain.len() / DIMS.head_dim;
    let count = queries.len() / DIMS.heads / DIMS.head_dim;
    let (start, (name, keys)) = (length - count, sequence.layouts()[layout]);
    let mut ids = vec![0; DIMS.ids_shape(count, length).iter().product()];
    let scores: usize = (start + 1..=length).sum();
    Case::new(
        format!("prefill/bf16/{name}/{level}"),
        format!("{count} queries x {} heads x {}, the last of {length} keys", DIMS.heads, DIMS.head_dim),
        size_of_val(&sequence.plain[..]),
        (2 * DIMS.heads * DIMS.head_dim * scores) as f64,
        move |_| Ok(prefill(level, pool, &DIMS, Values::Bf16(queries), start, keys, length, &mut ids, None)?),
    )
}

fn run(options: &bench::Options) -> Result<(), Failure> {
    let of_machine = &Options {
        pool: options.threads.map_or_else(Pool::from_env, Pool::new)?,
        level: options.level.as_ref().map_or_else(Level::from_env, |name| Level::new(name.parse()?))?,
    };
    let (level, pool) = (of_machine.level, &of_machine.pool);
    let long = options.size(if options.quick { LONG / 4 } else { LONG }, 8_192);
    eprintln!("making index keys, in rows and packed");
    let short = [Sequence::new(of_machine, 1, options.size(SHORT, 4_096))?];
    let long = (0..options.size(SEQUENCES, 1) as u64)
        .map(|i| Sequence::new(of_machine, 2 + i, long))
        .collect::<Result<Vec<_>, _>>()?;
    let prompt = Sequence::new(of_machine, 9, options.size(PROMPT, 4_096))?;
    let query = fill_bf16(10, DIMS.heads * DIMS.head_dim, 1.0);
    let queries = fill_bf16(11, options.size(QUERIES, 32) * DIMS.heads * DIMS.head_dim, 1.0);
    for sequence in short.iter().chain([&prompt]) {
        check(of_machine, sequence, &query)?;
    }

    let mut cases = Vec::new();
    for layout in 0..prompt.layouts().len() {
        cases.push(decode_case(of_machine, &short, layout, &query));
        cases.push(decode_case(of_machine, &long, layout, &query));
        cases.push(prefill_case(of_machine, &prompt, layout, &queries));
    }

    let bandwidth = Bandwidth::new(options.size(PROBE_BYTES, 1 << 20))?;
    let bench = Bench::new(options, level.name(), pool.threads(), || bandwidth.run(pool))
        .with_peak("multiply_add_flop_per_s", |iterations| probe::peak(level, Precision::Bf16, pool, iterations));
    let measured = bench.run(cases)?;
    let settings = json!({
        "heads": DIMS.heads, "head_dim": DIMS.head_dim, "block": DIMS.block, "topk": DIMS.topk, "sequences": SEQUENCES,
    });
    bench.publish(&bench.report(SCHEMA, settings, &measured))
}

/// Both unscattered layouts give the same bits, and so do both scattered ones, or there is nothing to time.
fn check(options: &Options, sequence: &Sequence, query: &[bf16]) -> Result<(), Failure> {
    let length = sequence.plain.len() / DIMS.head_dim;
    let output = |keys: Keys<'_>| -> Result<(Vec<i32>, Vec<u32>), Failure> {
        let mut ids = vec![0; DIMS.ids_shape(1, length).iter().product()];
        let mut scores = vec![0.0; DIMS.scores_shape(1, length).iter().product()];
        let query = Values::Bf16(query);
        decode(options.level, &options.pool, &DIMS, query, keys, length, &mut ids, Some(&mut scores))?;
        Ok((ids, scores.into_iter().map(f32::to_bits).collect()))
    };
    let layouts = sequence.layouts();
    for [(name, keys), (_, expected)] in [[layouts[0], layouts[2]], [layouts[1], layouts[3]]] {
        if output(keys)? != output(expected)? {
            return Err(format!("{name}: another result").into());
        }
    }
    Ok(())
}

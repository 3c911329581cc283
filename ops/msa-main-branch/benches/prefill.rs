// SPDX-License-Identifier: MIT OR Apache-2.0

//! Prefill at the geometry of MiniMax-M3 (64 query heads on 4 KV heads of 128 channels, blocks of 128), beside the
//! machine's limits.
//!
//! `cargo bench -p msa-main-branch -- --help`
//!
//! Shares of the limits are those of the round: see `op_testkit::bench`. FLOP are those of the keys that the rows see,
//! none for what causality hides; packing the keys is part of the time.

use cpu_tiles::probe::{self, Bandwidth};
use cpu_tiles::{Level, Pool, Precision};
use half::bf16;
use msa_main_branch::{AttentionDims, Blocks, Data, KeysValues, Query, msa_main_branch};
use op_testkit::bench::{self, Bench, Case, Failure, Options, Program};
use op_testkit::{fill_bf16, fill_f32};
use serde_json::json;
use std::process::ExitCode;

const PROGRAM: Program =
    Program { package: "msa-main-branch", rounds: 5, quick: "dense prefill of 1024 tokens only", words: &[] };
const SCHEMA: &str = "msa-main-branch-bench/1";
const DIMS: AttentionDims = AttentionDims::M3;
const TOPK: usize = 16;
/// Many times any last-level cache.
const PROBE_BYTES: usize = 512 << 20;

/// Block lists that own their ids.
#[derive(Clone, Copy, PartialEq)]
enum Selection {
    /// All blocks.
    Dense,
    /// Each query and KV head chooses by itself, as if independently of its neighbours: the least that tiles can share.
    PerQuery,
    /// 128 queries and one KV head choose together.
    PerTile,
}

impl Selection {
    fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::PerQuery => "per-query",
            Self::PerTile => "per-tile",
        }
    }

    /// Queries that share a list.
    fn tile(self) -> usize {
        if self == Self::PerTile { DIMS.block } else { 1 }
    }

    /// For each tile and KV head the block of its last query and others before it, at most [`TOPK`]; -1 where there are
    /// fewer.
    fn ids(self, n: usize, start: usize) -> Vec<i32> {
        let mut ids = Vec::new();
        if self == Self::Dense {
            return ids;
        }
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut below = |end: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as usize % end
        };
        for tile in 0..n.div_ceil(self.tile()) {
            let own = (start + n.min((tile + 1) * self.tile()) - 1) / DIMS.block;
            for _ in 0..DIMS.kv_heads {
                let mut list = vec![own as i32];
                while list.len() < TOPK.min(own + 1) {
                    let id = below(own) as i32;
                    if !list.contains(&id) {
                        list.push(id);
                    }
                }
                list.resize(TOPK, -1);
                ids.extend(list);
            }
        }
        ids
    }

    fn blocks(self, ids: &[i32]) -> Blocks<'_> {
        match self {
            Self::Dense => Blocks::All,
            Self::PerQuery => Blocks::PerQuery(ids),
            Self::PerTile => Blocks::PerTileAndHead { tile: DIMS.block, ids },
        }
    }

    /// Pairs of a row and a key that it sees.
    fn pairs(self, n: usize, start: usize, ids: &[i32]) -> usize {
        let group = DIMS.heads / DIMS.kv_heads;
        let of_query = |query: usize| -> usize {
            let position = start + query;
            match self {
                Self::Dense => (position + 1) * DIMS.heads,
                _ => {
                    let lists = &ids[query / self.tile() * DIMS.kv_heads * TOPK..][..DIMS.kv_heads * TOPK];
                    let seen = |&&id: &&i32| id >= 0 && id as usize * DIMS.block <= position;
                    let keys = |&id: &i32| (position + 1 - id as usize * DIMS.block).min(DIMS.block);
                    lists.iter().filter(seen).map(keys).sum::<usize>() * group
                }
            }
        };
        (0..n).map(of_query).sum()
    }
}

/// The arrays of a case, in one number format.
enum Arrays {
    F32([Vec<f32>; 3]),
    Bf16([Vec<bf16>; 3]),
}

impl Arrays {
    fn new(precision: Precision, n: usize, tokens: usize) -> Self {
        let (query, kv) = (n * DIMS.heads * DIMS.head_dim, tokens * DIMS.kv_heads * DIMS.head_dim);
        match precision {
            Precision::F32 => Self::F32([fill_f32(1, query, 6.0), fill_f32(2, kv, 1.7), fill_f32(3, kv, 1.7)]),
            Precision::Bf16 => Self::Bf16([fill_bf16(1, query, 6.0), fill_bf16(2, kv, 1.7), fill_bf16(3, kv, 1.7)]),
        }
    }

    fn data(&self) -> [Data<'_>; 3] {
        match self {
            Self::F32([q, k, v]) => [Data::F32(q), Data::F32(k), Data::F32(v)],
            Self::Bf16([q, k, v]) => [Data::Bf16(q), Data::Bf16(k), Data::Bf16(v)],
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::F32(arrays) => arrays.iter().map(|array| size_of_val(&array[..])).sum(),
            Self::Bf16(arrays) => arrays.iter().map(|array| size_of_val(&array[..])).sum(),
        }
    }
}

/// The case of some queries in one format with one selection of blocks.
fn case<'a>(
    level: Level,
    pool: &'a Pool,
    precision: Precision,
    selection: Selection,
    n: usize,
    start: usize,
) -> Case<'a> {
    let arrays = Arrays::new(precision, n, start + n);
    let ids = selection.ids(n, start);
    let mut out = vec![0.0; n * DIMS.heads * DIMS.head_dim];
    let format = if precision == Precision::F32 { "f32" } else { "bf16" };
    let bytes = arrays.bytes() + size_of_val(&out[..]) + size_of_val(&ids[..]);
    let flop = (selection.pairs(n, start, &ids) * DIMS.head_dim * 4) as f64;
    let call = move |_| {
        let [data, keys, values] = arrays.data();
        let (query, plain) = (Query { data, start }, KeysValues::Plain { keys, values });
        msa_main_branch(level, pool, &DIMS, query, plain, selection.blocks(&ids), &mut out)?;
        Ok(())
    };
    Case::new(
        format!("msa_main_branch/{}/{format}/{level}", selection.name()),
        format!("n {n} from {start}, {}/{} heads, D {}", DIMS.heads, DIMS.kv_heads, DIMS.head_dim),
        bytes,
        flop,
        call,
    )
    .with_peak(if precision == Precision::F32 { 1 } else { 0 })
    .with("queries", n)
}

fn main() -> ExitCode {
    bench::main(&PROGRAM, run)
}

fn run(options: &Options) -> Result<(), Failure> {
    use Precision::{Bf16, F32};
    use Selection::{Dense, PerQuery, PerTile};
    let pool = &options.threads.map_or_else(Pool::from_env, Pool::new)?;
    let level = options.level.as_ref().map_or_else(Level::from_env, |name| Level::new(name.parse()?))?;
    let n = options.size(1024, 256);
    let mut cases = vec![(Bf16, Dense, n, 0), (F32, Dense, n, 0)];
    if options.is_small() {
        cases.extend([(Bf16, PerQuery, n, 8 * n), (Bf16, PerTile, n, 8 * n)]);
    } else if !options.quick {
        cases.extend([
            (Bf16, Dense, 2048, 0),
            (F32, Dense, 2048, 0),
            // Chunks of a long prompt: all of its first 4096 tokens, and 1024 tokens behind 31 times as many.
            (Bf16, PerQuery, 4096, 0),
            (Bf16, PerTile, 4096, 0),
            (Bf16, PerQuery, 1024, 31 * 1024),
            (Bf16, PerTile, 1024, 31 * 1024),
        ]);
    }
    let case = |(precision, selection, n, start)| case(level, pool, precision, selection, n, start);
    let cases = cases.into_iter().map(case).filter(|case| case.is_wanted(options)).collect();

    let bandwidth = Bandwidth::new(options.size(PROBE_BYTES, 1 << 20))?;
    let bench = Bench::new(options, level.name(), pool.threads(), || bandwidth.run(pool))
        .with_peak("bf16_flop_per_s", |iterations| probe::peak(level, Bf16, pool, iterations))
        .with_peak("f32_flop_per_s", |iterations| probe::peak(level, F32, pool, iterations));
    let measured = bench.run(cases)?;
    let settings = json!({
        "heads": DIMS.heads, "kv_heads": DIMS.kv_heads, "head_dim": DIMS.head_dim, "block": DIMS.block, "topk": TOPK,
    });
    bench.publish(&bench.report(SCHEMA, settings, &measured))
}

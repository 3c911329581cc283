// SPDX-License-Identifier: MIT OR Apache-2.0

//! The expert FFN at the geometry of MiniMax-M2.7 or M3, beside the machine's limits.
//!
//! `cargo bench -p grouped-gemm -- --help`
//!
//! Shares of the limits are those of the round: see `op_testkit::bench`.

use cpu_tiles::probe::{self, Bandwidth};
use cpu_tiles::{E8M0, F8E4M3, Format, Level, Overflow, PackedWeight, Pool, Precision, Weight, WeightRef, convert};
use grouped_gemm::{Activation, Expert, MoeDims, Tokens, moe_ffn, moe_ffn_eager};
use half::bf16;
use op_testkit::bench::{self, Bench, Case, Failure, Measured, Program, Word};
use op_testkit::{fill_bf16, fill_f32};
use serde_json::json;
use std::process::ExitCode;

const PROGRAM: Program = Program {
    package: "grouped-gemm",
    rounds: 7,
    quick: "fewer formats and tokens",
    words: &[Word {
        name: "--model",
        value: "M",
        help: "m27 (default: H 3072, I 1536, top 8, SiLU) or m3 (H 6144, I 3072, top 4, SwiGLU-OAI)",
    }],
};
const SCHEMA: &str = "grouped-gemm-bench/1";
const ROUTINGS: usize = 4;
/// Many times any last-level cache.
const PROBE_BYTES: usize = 512 << 20;

/// The sizes of a model. There are twice as many experts as a token chooses: of two routings that choose complements, each
/// touches what the other has not.
#[derive(Clone, Copy)]
struct Geometry {
    top_k: usize,
    dims: MoeDims,
}

const M27: Geometry = Geometry {
    top_k: 8,
    dims: MoeDims { experts: 16, hidden: 3072, intermediate: 1536, activation: Activation::Silu },
};
const M3: Geometry = Geometry {
    top_k: 4,
    dims: MoeDims {
        experts: 8,
        hidden: 6144,
        intermediate: 3072,
        activation: Activation::SwigluOai { alpha: 1.702, limit: 7.0 },
    },
};

struct Options {
    geometry: Geometry,
    pool: Pool,
    level: Level,
}

/// A weight as a checkpoint holds it.
enum Stored {
    Bf16(Vec<bf16>),
    Fp8Block(Vec<F8E4M3>, Vec<f32>),
    Mxfp8(Vec<F8E4M3>, Vec<E8M0>),
}

impl Stored {
    fn new(format: Format, n: usize, k: usize, seed: u64) -> Self {
        match format {
            Format::Fp8Block => {
                let scales = fill_f32(seed, n.div_ceil(128) * k.div_ceil(128), 0.01);
                Self::Fp8Block(codes(seed, n * k), scales.into_iter().map(|x| 0.0003 + x / 100.0).collect())
            }
            Format::Mxfp8 => {
                let exponents = fill_f32(seed, n * k.div_ceil(32), 2.0);
                let scales = exponents.into_iter().map(|x| E8M0::from_bits((122.0 + x) as u8));
                Self::Mxfp8(codes(seed, n * k), scales.collect())
            }
            Format::Bf16 | Format::F32 => Self::Bf16(fill_bf16(seed, n * k, 0.03)),
        }
    }

    fn weight(&self, n: usize, k: usize) -> Result<WeightRef<'_>, cpu_tiles::ShapeError> {
        match self {
            Self::Bf16(values) => WeightRef::bf16(n, k, values),
            Self::Fp8Block(codes, scales) => WeightRef::fp8_block(n, k, codes, scales),
            Self::Mxfp8(codes, scales) => WeightRef::mxfp8(n, k, codes, scales),
        }
    }
}

/// Codes as a quantiser leaves them: normally distributed weights, scaled so that the largest of a block is near 448. One in
/// some thousand is subnormal, which is what the F32 levels' decoders are slow at.
fn codes(seed: u64, n: usize) -> Vec<F8E4M3> {
    // A sum of twelve uniform values of variance one third is normal enough, with variance four.
    let table: Vec<_> = fill_f32(seed, 12 << 16, 1.0)
        .chunks(12)
        .map(|x| F8E4M3::from_f32(x.iter().sum::<f32>() / 2.0 * 110.0, Overflow::Saturate))
        .collect();
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        table[(state >> 32) as usize % table.len()]
    };
    (0..n).map(|_| next()).collect()
}

/// Choices `[N, top-k]`.
struct Routing {
    ids: Vec<u32>,
    weights: Vec<f32>,
}

/// Random routings, each second one the complement of the one before, which all touch the same number of experts.
fn routings(geometry: Geometry, tokens: usize) -> Vec<Routing> {
    let Geometry { top_k, dims: MoeDims { experts, .. } } = geometry;
    let distinct = |ids: &[u32]| (0..experts as u32).filter(|id| ids.contains(id)).count();
    let most = experts.min(top_k * tokens);
    let pairs = (0..).map(|seed| {
        let keys = fill_f32(seed, tokens * experts, 1.0);
        let mut halves = [Vec::new(), Vec::new()];
        for keys in keys.chunks_exact(experts) {
            let mut ids: Vec<u32> = (0..experts as u32).collect();
            ids.sort_by(|&a, &b| keys[a as usize].total_cmp(&keys[b as usize]));
            for (half, ids) in halves.iter_mut().zip(ids.chunks_exact(top_k)) {
                half.extend_from_slice(ids);
            }
        }
        halves
    });
    pairs
        .filter(|halves| halves.iter().all(|ids| distinct(ids) == most))
        .flatten()
        .take(ROUTINGS)
        .map(|ids| Routing { weights: vec![1.0 / top_k as f32; ids.len()], ids })
        .collect()
}

/// How a case holds and runs its experts.
struct Arm<'a> {
    name: &'static str,
    format: Format,
    layout: &'static str,
    experts: Vec<Expert<'a>>,
    /// Bytes of one expert.
    bytes: usize,
}

impl Arm<'_> {
    fn run(&self, options: &Options, x: &[bf16], routing: &Routing, out: &mut [f32]) -> Result<(), Failure> {
        let operator = if self.name == "eager" { moe_ffn_eager } else { moe_ffn };
        let (ids, weights) = (&routing.ids, &routing.weights);
        Ok(operator(
            options.level,
            &options.pool,
            &options.geometry.dims,
            Tokens::Bf16(x),
            &self.experts,
            ids,
            weights,
            out,
        )?)
    }
}

fn expert<'a>(weights: [impl Into<Weight<'a>>; 3]) -> Expert<'a> {
    let [gate, up, down] = weights.map(Into::into);
    Expert { gate, up, down }
}

fn main() -> ExitCode {
    bench::main(&PROGRAM, run)
}

fn run(asked: &bench::Options) -> Result<(), Failure> {
    let mut geometry = match asked.words.get("--model").map(String::as_str) {
        None | Some("m27") => M27,
        Some("m3") => M3,
        Some(other) => return Err(format!("bad `--model` {other}: expected m27 or m3").into()),
    };
    if asked.is_small() {
        geometry.top_k /= 4;
        let MoeDims { experts, hidden, intermediate, .. } = &mut geometry.dims;
        (*experts, *hidden, *intermediate) = (*experts / 4, *hidden / 8, *intermediate / 8);
    }
    let options = &Options {
        geometry,
        pool: asked.threads.map_or_else(Pool::from_env, Pool::new)?,
        level: asked.level.as_ref().map_or_else(Level::from_env, |name| Level::new(name.parse()?))?,
    };
    let (level, pool) = (options.level, &options.pool);
    let Geometry { top_k, dims: MoeDims { experts, hidden, intermediate, .. } } = options.geometry;
    let formats: &[Format] =
        if asked.quick { &[Format::Bf16, Format::Fp8Block] } else { &[Format::Bf16, Format::Fp8Block, Format::Mxfp8] };
    let token_counts: &[usize] = if asked.quick { &[1, 8, 64] } else { &[1, 8, 256, 1024] };

    eprintln!("making weights of {experts} experts in {} formats, in place and packed", formats.len());
    let shapes = [(intermediate, hidden), (intermediate, hidden), (hidden, intermediate)];
    let mut stored = Vec::new();
    for &format in formats {
        let seeds = 1000 * stored.len()..1000 * stored.len() + 3 * experts;
        stored.push(
            seeds
                .zip(shapes.iter().cycle())
                .map(|(seed, &(n, k))| Stored::new(format, n, k, seed as u64))
                .collect::<Vec<_>>(),
        );
    }
    let mut in_place = Vec::new();
    let mut packed = Vec::new();
    for stored in &stored {
        let weights = stored.iter().zip(shapes.iter().cycle()).map(|(stored, &(n, k))| stored.weight(n, k));
        let weights = weights.collect::<Result<Vec<_>, _>>()?;
        packed.push(PackedWeight::pack_all(level, pool, &weights)?);
        in_place.push(weights);
    }

    let mut arms = Vec::new();
    for ((&format, in_place), packed) in formats.iter().zip(&in_place).zip(&packed) {
        let of_packed = || packed.chunks_exact(3).map(|w| expert([&w[0], &w[1], &w[2]])).collect::<Vec<_>>();
        let bytes = packed[..3].iter().map(PackedWeight::bytes).sum();
        arms.push(Arm { name: "fused", format, layout: "packed", experts: of_packed(), bytes });
        arms.push(Arm {
            name: "fused",
            format,
            layout: "in place",
            experts: in_place.chunks_exact(3).map(|w| expert([w[0], w[1], w[2]])).collect(),
            bytes: in_place[..3].iter().map(WeightRef::bytes).sum(),
        });
        if format != Format::Mxfp8 {
            arms.push(Arm { name: "eager", format, layout: "packed", experts: of_packed(), bytes });
        }
    }

    let tokens: Vec<_> =
        token_counts.iter().map(|&n| (fill_bf16(n as u64, n * hidden, 1.0), routings(options.geometry, n))).collect();
    check(options, &arms, &tokens[0])?;

    let mut cases: Vec<Case<'_>> = Vec::new();
    for (&n, (x, routings)) in token_counts.iter().zip(&tokens) {
        for arm in &arms {
            let mut out = vec![0.0; n * hidden];
            let case = Case::new(
                format!("moe_ffn/{}/{}/{}/{level}", arm.name, arm.format, arm.layout.replace(' ', "-")),
                format!("N {n} x top {top_k} of {experts}, H {hidden}, I {intermediate}"),
                arm.bytes * experts.min(top_k * n),
                (n * top_k * 3 * hidden * intermediate * 2) as f64,
                move |call| arm.run(options, x, &routings[call % ROUTINGS], &mut out),
            );
            cases.push(case.with("tokens", n));
        }
    }
    let fp8 = formats.iter().position(|format| *format == Format::Fp8Block).ok_or("no FP8 weights")?;
    let down = in_place[fp8][2];
    let mut out = vec![bf16::ZERO; hidden * intermediate];
    let dequantize = Case::new(
        format!("dequantize_to_bf16/fp8/{level}"),
        format!("[{hidden}, {intermediate}], 1 B read and 2 B written per weight"),
        down.bytes() + size_of_val(&out[..]),
        0.0,
        move |_| Ok(convert::dequantize_to_bf16(level, pool, down, &mut out)?),
    );
    cases.push(dequantize.without_limit().with("tokens", 0));

    let bandwidth = Bandwidth::new(asked.size(PROBE_BYTES, 1 << 20))?;
    let bench = Bench::new(asked, level.name(), pool.threads(), || bandwidth.run(pool))
        .with_peak("multiply_add_flop_per_s", |iterations| probe::peak(level, Precision::Bf16, pool, iterations));
    let measured = bench.run(cases)?;
    let settings = json!({
        "hidden": hidden, "intermediate": intermediate, "experts": experts, "top_k": top_k, "routings": ROUTINGS,
    });
    let mut report = bench.report(SCHEMA, settings, &measured);
    let ratio = fp8_over_bf16(&measured);
    report["fp8_over_bf16_time_at_n8"] = ratio.into();
    bench.publish(&report)?;
    if let Some(ratio) = ratio {
        println!("FP8 over BF16, time at N 8, fused and packed: {ratio:.2}");
    }
    Ok(())
}

/// Both packed and fused, round by round.
fn fp8_over_bf16(measured: &Measured<'_>) -> Option<f64> {
    let of_format = |format: &str| {
        let prefix = format!("moe_ffn/fused/{format}/packed/");
        let is_it = |case: &&Case<'_>| case.fact("tokens") == Some(&8.into()) && case.kernel().starts_with(&prefix);
        measured.cases.iter().find(is_it)
    };
    let (fp8, bf16) = (of_format("fp8")?, of_format("bf16")?);
    let ratio = fp8.over_rounds(|round, ms| ms / bench::median(bf16.rounds()[round].clone()));
    ratio.is_finite().then_some(ratio)
}

/// All arms of a format give the same bits, or there is nothing to time.
fn check(options: &Options, arms: &[Arm<'_>], (x, routings): &(Vec<bf16>, Vec<Routing>)) -> Result<(), Failure> {
    let output = |arm: &Arm<'_>| -> Result<Vec<u32>, Failure> {
        let mut out = vec![0.0; x.len()];
        arm.run(options, x, &routings[0], &mut out)?;
        Ok(out.into_iter().map(f32::to_bits).collect())
    };
    for same_format in arms.chunk_by(|a, b| a.format == b.format) {
        let expected = output(&same_format[0])?;
        for arm in &same_format[1..] {
            if output(arm)? != expected {
                return Err(format!("{} {} {}: another result", arm.name, arm.format, arm.layout).into());
            }
        }
    }
    Ok(())
}

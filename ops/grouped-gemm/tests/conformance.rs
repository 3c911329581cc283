// SPDX-License-Identifier: MIT OR Apache-2.0

//! The problems of this operator, on every backend and SIMD level.

#[cfg(feature = "sim")]
use crate::device::What;
use crate::fixture::{
    Choices, FORMATS, Matrix, Moe, QUANTISED, Rows, Values, combined, cumsum, dims, expected_combined,
    expected_grouped, grouped, pool, tolerance,
};
use crate::golden;
use cpu_tiles::{Format, Isa, Level, Precision};
use grouped_gemm::{Activation, MoeDims};
use op_testkit::compare::{Comparison, Tolerance, assert_same_bits};
use op_testkit::conformance::{self, NotBuilt, Skip, Subject};
use op_testkit::golden::Ops;
use std::cell::OnceCell;

enum Call {
    Grouped(Vec<i32>),
    Combined(Choices),
}

struct Input {
    moe: Moe,
    rows: Rows,
    call: Call,
    expected: Vec<f32>,
}

/// A problem; its input is made when it is asked for.
struct Problem {
    name: String,
    precision: Precision,
    make: Box<dyn Fn() -> Input>,
    input: OnceCell<Input>,
}

impl Problem {
    fn new(name: String, precision: Precision, make: impl Fn() -> Input + 'static) -> Self {
        Self { name, precision, make: Box::new(make), input: OnceCell::new() }
    }

    fn input(&self) -> &Input {
        self.input.get_or_init(&self.make)
    }

    fn golden(name: &str) -> Self {
        let case_name = name.to_owned();
        Self::new(format!("golden_{name}"), Precision::Bf16, move || {
            let ops = Ops::open("grouped_gemm").unwrap();
            let case = ops.case(&case_name).unwrap();
            let dims = golden::dims(&case);
            let values = |tensor| case.tensor(tensor).unwrap().bf16().unwrap();
            let (hidden, intermediate) = (dims.hidden, dims.intermediate);
            let weight = |n, k, values: &[_]| Matrix { n, k, values: Values::Bf16(values.to_vec()) };
            let (gate_up, down) = (values("gate_up_proj"), values("down_proj"));
            let experts = gate_up.chunks_exact(2 * intermediate * hidden).zip(down.chunks_exact(hidden * intermediate));
            let expert = |(gate_up, down): (&[_], &[_])| {
                let (gate, up) = gate_up.split_at(intermediate * hidden);
                [
                    weight(intermediate, hidden, gate),
                    weight(intermediate, hidden, up),
                    weight(hidden, intermediate, down),
                ]
            };
            Input {
                moe: Moe { dims, experts: experts.map(expert).collect() },
                rows: Rows::Bf16(values("x")),
                call: Call::Grouped(case.tensor("expert_cumsum").unwrap().i32().unwrap()),
                expected: case.tensor("out").unwrap().f32().unwrap(),
            }
        })
    }

    fn grouped(name: &str, format: Format, precision: Precision, dims: MoeDims, counts: &[usize]) -> Self {
        let cumsum = cumsum(counts);
        Self::new(format!("{name}_{format}"), precision, move || {
            let moe = Moe::new(dims, format, 100);
            let rows = Rows::new(precision, cumsum[dims.experts] as usize, dims.hidden, 7);
            let expected = expected_grouped(&moe, &rows, &cumsum);
            Input { moe, rows, call: Call::Grouped(cumsum.clone()), expected }
        })
    }

    fn combined(name: &str, format: Format, precision: Precision, dims: MoeDims, tokens: usize, k: usize) -> Self {
        Self::new(format!("{name}_{format}"), precision, move || {
            let moe = Moe::new(dims, format, 200);
            let rows = Rows::new(precision, tokens, dims.hidden, 8);
            let choices = Choices::new(tokens, dims.experts, k, 9);
            let expected = expected_combined(&moe, &rows, &choices);
            Input { moe, rows, call: Call::Combined(choices), expected }
        })
    }
}

impl conformance::Problem for Problem {
    type Output = Vec<f32>;

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self, output: &Vec<f32>, tolerance: Tolerance) -> Result<(), String> {
        let Input { expected, moe, .. } = self.input();
        let shape = [expected.len() / moe.dims.hidden, moe.dims.hidden];
        Comparison::new(output, expected, &shape).check(tolerance)
    }
}

fn problems() -> Vec<Problem> {
    use Activation::Silu;
    use Precision::{Bf16, F32};
    const OAI: Activation = Activation::SWIGLU_OAI;
    let bf16 = Format::Bf16;

    let golden = Ops::open("grouped_gemm").unwrap();
    let mut problems: Vec<_> = golden.case_names().iter().map(|name| Problem::golden(name)).collect();
    problems.extend([
        Problem::grouped("no_rows", bf16, Bf16, dims(4, 256, 128, Silu), &[0, 0, 0, 0]),
        Problem::grouped("ends_empty", bf16, Bf16, dims(4, 64, 64, OAI), &[0, 5, 0, 0]),
        Problem::grouped("one_takes_all", bf16, Bf16, dims(8, 128, 64, Silu), &[0, 0, 37, 0, 0, 0, 0, 0]),
        Problem::grouped("one_expert", bf16, Bf16, dims(1, 96, 160, OAI), &[130]),
        Problem::grouped("one_by_one", bf16, Bf16, dims(1, 1, 1, Silu), &[3]),
        Problem::grouped("sizes_below_a_panel", bf16, Bf16, dims(3, 5, 3, OAI), &[2, 0, 9]),
        Problem::combined("top_1_of_4", bf16, Bf16, dims(4, 64, 32, Silu), 9, 1),
        Problem::combined("top_4_of_4", bf16, Bf16, dims(4, 64, 32, OAI), 9, 4),
        Problem::combined("top_8_of_256", bf16, Bf16, dims(256, 64, 32, Silu), 40, 8),
        Problem::combined("no_tokens", bf16, Bf16, dims(4, 64, 32, Silu), 0, 2),
    ]);
    for format in FORMATS {
        problems.extend([
            Problem::grouped("ragged", format, Bf16, dims(4, 200, 72, OAI), &[1, 0, 3, 14]),
            Problem::combined("top_2_ragged", format, Bf16, dims(5, 200, 72, Silu), 33, 2),
            Problem::combined("exact", format, F32, dims(5, 200, 72, OAI), 33, 3),
        ]);
    }
    for format in QUANTISED {
        problems.extend([
            // Several chunks of inputs and blocks of scales in both products, few rows and many.
            Problem::grouped("deep", format, Bf16, dims(2, 3400, 130, Silu), &[3, 17]),
            Problem::grouped("wide", format, Bf16, dims(2, 130, 1700, Silu), &[17, 3]),
            Problem::grouped("rows_beyond_a_tile", format, Bf16, dims(3, 136, 40, OAI), &[1, 0, 150]),
            Problem::grouped("no_rows", format, Bf16, dims(2, 40, 24, Silu), &[0, 0]),
        ]);
    }
    problems
}

struct Cpu {
    level: Level,
    skips: &'static [Skip],
}

impl Subject<Problem> for Cpu {
    fn tolerance(&self, problem: &Problem) -> Tolerance {
        tolerance(problem.precision)
    }

    fn skips(&self) -> &[Skip] {
        self.skips
    }

    /// In place and packed, which must agree in every bit.
    fn run(&self, problem: &Problem) -> Result<Vec<f32>, String> {
        let Input { moe, rows, call, expected } = problem.input();
        let pool = pool(2);
        let packed = moe.pack(self.level);
        let [in_place, packed] = [moe.row_major(), packed.experts()].map(|experts| match call {
            Call::Grouped(cumsum) => grouped(self.level, &pool, &moe.dims, rows, &experts, cumsum),
            Call::Combined(choices) => combined(self.level, &pool, &moe.dims, rows, &experts, choices),
        });
        let (in_place, packed) = (in_place.map_err(|e| e.to_string())?, packed.map_err(|e| e.to_string())?);
        let shape = [expected.len() / moe.dims.hidden, moe.dims.hidden];
        assert_same_bits("packed and in place", &packed, &in_place, &shape);
        Ok(in_place)
    }
}

fn on_cpu(isa: Isa) {
    let subject = Level::new(isa).map(|level| Cpu { level, skips: &[] }).map_err(|error| NotBuilt(error.to_string()));
    conformance::run("grouped-gemm", "cpu", isa.name(), subject, problems());
}

/// Hundreds of times slower than the instructions they stand for.
fn on_model(isa: Isa) {
    let reason = "too large for a software model of the instructions";
    let skip = |problem| Skip { problem, reason };
    const SKIPPED: [&str; 2] = ["golden_silu_e8h3072i1536", "golden_swigluoai_e2h6144i3072"];
    let level = Level::emulated(isa).expect("the AVX-512 levels have models");
    let skips = Vec::leak(SKIPPED.map(skip).to_vec());
    conformance::run("grouped-gemm", "cpu", level.name(), Ok(Cpu { level, skips }), problems());
}

/// The kernel on the twin of a chip.
#[cfg(feature = "sim")]
struct Twin {
    chip: &'static str,
    layout: grouped_gemm::npu::Layout,
    skips: Vec<Skip>,
}

#[cfg(feature = "sim")]
impl Subject<Problem> for Twin {
    fn tolerance(&self, problem: &Problem) -> Tolerance {
        let tolerance = tolerance(problem.precision);
        // Weights with blocks of scales are rounded to BF16 on the way to the cube core, which the reference does not do;
        // codes times powers of two need no rounding.
        let rounded = self.layout == grouped_gemm::npu::Layout::Fp8Block;
        Tolerance { rel_to_max: if rounded { 0.004 } else { tolerance.rel_to_max }, ..tolerance }
    }

    fn skips(&self) -> &[Skip] {
        &self.skips
    }

    fn run(&self, problem: &Problem) -> Result<Vec<f32>, String> {
        let Input { moe, rows, call, .. } = problem.input();
        let options = grouped_gemm::npu::Options { layout: self.layout, ..Default::default() };
        let what = match call {
            Call::Grouped(cumsum) => What::Grouped(cumsum),
            Call::Combined(choices) => What::Combined(choices),
        };
        crate::device::run(self.chip, moe, rows, what, options)
    }
}

/// Why the kernel with weights in this layout does not do a problem.
#[cfg(feature = "sim")]
fn not_on_device(problem: &Problem, layout: grouped_gemm::npu::Layout) -> Option<&'static str> {
    use grouped_gemm::npu::Layout;
    let format = if problem.name.ends_with("_mxfp8") {
        Format::Mxfp8
    } else if problem.name.ends_with("_fp8") {
        Format::Fp8Block
    } else if problem.name.ends_with("_f32") {
        Format::F32
    } else {
        Format::Bf16
    };
    let expected = match layout {
        Layout::Flat | Layout::Nz => Format::Bf16,
        Layout::Fp8Block => Format::Fp8Block,
        Layout::Mxfp8 => Format::Mxfp8,
    };
    if problem.precision == Precision::F32 {
        Some("rows are BF16 on a device")
    } else if format != expected {
        Some("the layout is for weights of another format")
    } else {
        None
    }
}

#[cfg(feature = "sim")]
fn on_twin(chip: &'static str, level: &str, layout: grouped_gemm::npu::Layout) {
    let problems = problems();
    let skip = |problem: &Problem| {
        Some(Skip { reason: not_on_device(problem, layout)?, problem: String::leak(problem.name.clone()) })
    };
    let skips = problems.iter().filter_map(skip).collect();
    let backend = match chip {
        "Ascend910B3" => "sim:910b",
        ascend_sim::testing::CARD => "npu",
        _ => "sim:950",
    };
    conformance::run("grouped-gemm", backend, level, Ok(Twin { chip, layout, skips }), problems);
}

#[cfg(not(feature = "sim"))]
fn not_built(backend: &str) {
    let reason = NotBuilt("the feature `sim` is off".into());
    conformance::run::<_, Cpu>("grouped-gemm", backend, "-", Err(reason), problems());
}

#[test]
fn cpu_scalar() {
    on_cpu(Isa::Scalar);
}

#[test]
fn cpu_avx2() {
    on_cpu(Isa::Avx2);
}

#[test]
fn cpu_avx512() {
    on_cpu(Isa::Avx512);
}

#[test]
fn cpu_avx512bf16() {
    on_cpu(Isa::Avx512Bf16);
}

#[test]
fn cpu_avx512_model() {
    on_model(Isa::Avx512);
}

#[test]
fn cpu_avx512bf16_model() {
    on_model(Isa::Avx512Bf16);
}

#[cfg(feature = "sim")]
mod sim {
    use super::on_twin;
    use grouped_gemm::npu::Layout;

    #[test]
    fn sim_910b_flat() {
        on_twin("Ascend910B3", "flat", Layout::Flat);
    }

    #[test]
    fn sim_910b_nz() {
        on_twin("Ascend910B3", "nz", Layout::Nz);
    }

    #[test]
    fn sim_910b_fp8() {
        on_twin("Ascend910B3", "fp8", Layout::Fp8Block);
    }

    #[test]
    fn sim_910b_mxfp8() {
        on_twin("Ascend910B3", "mxfp8", Layout::Mxfp8);
    }

    #[test]
    fn sim_950_fp8() {
        on_twin("Ascend950PR_9589", "fp8", Layout::Fp8Block);
    }

    #[test]
    fn sim_950_mxfp8() {
        on_twin("Ascend950PR_9589", "mxfp8", Layout::Mxfp8);
    }

    #[test]
    fn sim_950_flat() {
        on_twin("Ascend950PR_9589", "flat", Layout::Flat);
    }

    #[test]
    fn sim_950_nz() {
        on_twin("Ascend950PR_9589", "nz", Layout::Nz);
    }
}

#[cfg(not(feature = "sim"))]
#[test]
fn sim() {
    not_built("sim:910b");
    not_built("sim:950");
}

/// The card of this machine, where there is one and device code for it.
#[test]
fn npu() {
    #[cfg(feature = "sim")]
    let reason = match ascend_sim::testing::card(grouped_gemm::npu::blobs(), grouped_gemm::npu::origin()) {
        Ok(card) => return on_twin(card, "nz", grouped_gemm::npu::Layout::Nz),
        Err(reason) => reason,
    };
    #[cfg(not(feature = "sim"))]
    let reason = "tests on devices need the feature `sim`".to_owned();
    conformance::run::<_, Cpu>("grouped-gemm", "npu", "-", Err(NotBuilt(reason)), problems());
}

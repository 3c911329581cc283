// SPDX-License-Identifier: MIT OR Apache-2.0

//! Experts in every format from one seed, and the calls under test in short form.

use cpu_tiles::{E8M0, F8E4M3, Format, Isa, Level, Overflow, PackedWeight, Pool, Precision, Weight, WeightRef};
use grouped_gemm::{Activation, Error, Expert, Experts, MoeDims, Tokens, reference};
use half::bf16;
use ndarray::{Array2, Array3, ArrayView1, ArrayView2, ArrayViewMut2};
use op_testkit::compare::Tolerance;
use op_testkit::guard::{Guarded, Sentinel};
use op_testkit::{fill_bf16, fill_f32};

pub(crate) const FORMATS: [Format; 4] = [Format::F32, Format::Bf16, Format::Fp8Block, Format::Mxfp8];
pub(crate) const QUANTISED: [Format; 2] = [Format::Fp8Block, Format::Mxfp8];

/// BF16 mode: that of the golden data. What it has to cover is an intermediate value that rounds to the other of two
/// neighbours, and the rounding of the result.
pub(crate) const BF16_TOLERANCE: Tolerance = Tolerance { abs: 0.0, rel: 0.008, rel_to_max: 0.002 };
/// Exact mode: F32 sums.
pub(crate) const F32_TOLERANCE: Tolerance = Tolerance { abs: 0.0, rel: 0.0, rel_to_max: 5e-6 };

pub(crate) fn tolerance(precision: Precision) -> Tolerance {
    match precision {
        Precision::F32 => F32_TOLERANCE,
        Precision::Bf16 => BF16_TOLERANCE,
    }
}

/// Every level of this machine, and the software models of the AVX-512 ones.
pub(crate) fn levels() -> Vec<Level> {
    let mut levels = Level::available();
    levels.extend(Isa::ALL.into_iter().filter_map(Level::emulated));
    levels
}

pub(crate) fn pool(threads: usize) -> Pool {
    Pool::new(threads).unwrap()
}

pub(crate) fn dims(experts: usize, hidden: usize, intermediate: usize, activation: Activation) -> MoeDims {
    MoeDims { experts, hidden, intermediate, activation }
}

pub(crate) fn cumsum(counts: &[usize]) -> Vec<i32> {
    let running = counts.iter().scan(0, |end, &count| {
        *end += count as i32;
        Some(*end)
    });
    std::iter::once(0).chain(running).collect()
}

/// The values of a weight, as a checkpoint holds them.
#[derive(Clone)]
pub(crate) enum Values {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
    Fp8Block { codes: Vec<F8E4M3>, scales: Vec<f32> },
    Mxfp8 { codes: Vec<F8E4M3>, scales: Vec<E8M0> },
}

/// A weight `[n, k]` that owns its values.
#[derive(Clone)]
pub(crate) struct Matrix {
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) values: Values,
}

impl Matrix {
    /// Values up to about `scale`, with scales that differ from block to block.
    pub(crate) fn new(format: Format, n: usize, k: usize, seed: u64, scale: f32) -> Self {
        let codes =
            || fill_f32(seed, n * k, 448.0).into_iter().map(|x| F8E4M3::from_f32(x, Overflow::Saturate)).collect();
        let values = match format {
            Format::F32 => Values::F32(fill_f32(seed, n * k, scale)),
            Format::Bf16 => Values::Bf16(fill_bf16(seed, n * k, scale)),
            Format::Fp8Block => {
                let blocks = n.div_ceil(128) * k.div_ceil(128);
                let scales = fill_f32(!seed, blocks, 0.5).into_iter().map(|x| scale / 448.0 * (1.0 + x)).collect();
                Values::Fp8Block { codes: codes(), scales }
            }
            Format::Mxfp8 => {
                let middle = E8M0::for_e4m3_amax(scale).to_bits();
                let steps = fill_f32(!seed, n * k.div_ceil(32), 1.5).into_iter();
                let scales = steps.map(|x| E8M0::from_bits(middle.wrapping_add_signed(x.round() as i8))).collect();
                Values::Mxfp8 { codes: codes(), scales }
            }
        };
        Self { n, k, values }
    }

    pub(crate) fn weight(&self) -> WeightRef<'_> {
        match &self.values {
            Values::F32(values) => WeightRef::f32(self.n, self.k, values),
            Values::Bf16(values) => WeightRef::bf16(self.n, self.k, values),
            Values::Fp8Block { codes, scales } => WeightRef::fp8_block(self.n, self.k, codes, scales),
            Values::Mxfp8 { codes, scales } => WeightRef::mxfp8(self.n, self.k, codes, scales),
        }
        .unwrap()
    }

    fn dequantised(&self) -> impl Iterator<Item = f32> {
        let weight = self.weight();
        (0..self.n).flat_map(move |row| (0..self.k).map(move |column| weight.get(row, column)))
    }
}

/// The weights of a mixture of experts: gate, up and down of each.
#[derive(Clone)]
pub(crate) struct Moe {
    pub(crate) dims: MoeDims,
    pub(crate) experts: Vec<[Matrix; 3]>,
}

impl Moe {
    /// Makes one code of gate, up or down of an expert NaN, if it has codes.
    #[cfg(feature = "sim")]
    pub(crate) fn spoil(&mut self, expert: usize, which: usize) {
        if let Values::Fp8Block { codes, .. } | Values::Mxfp8 { codes, .. } = &mut self.experts[expert][which].values {
            let middle = codes.len() / 2;
            codes[middle] = F8E4M3::from_bits(0xff);
        }
    }

    /// Weights that bring ordinary tokens into the curved range of the activation, and beyond the clamp of swigluoai.
    pub(crate) fn new(dims: MoeDims, format: Format, seed: u64) -> Self {
        let spread = if dims.activation == Activation::Silu { 5.0 } else { 15.0 };
        let (hidden, intermediate) = (dims.hidden, dims.intermediate);
        let (inner, outer) = (spread / (hidden as f32).sqrt(), 1.0 / (intermediate as f32).sqrt());
        let matrices = |expert: usize| {
            let seed = seed + 10 * expert as u64;
            [
                Matrix::new(format, intermediate, hidden, seed, inner),
                Matrix::new(format, intermediate, hidden, seed + 1, inner),
                Matrix::new(format, hidden, intermediate, seed + 2, outer),
            ]
        };
        Self { dims, experts: (0..dims.experts).map(matrices).collect() }
    }

    pub(crate) fn row_major(&self) -> Vec<Expert<'_>> {
        self.experts.iter().map(|[gate, up, down]| expert(gate.weight(), up.weight(), down.weight())).collect()
    }

    /// The same weights, rounded to BF16.
    #[cfg(feature = "sim")]
    pub(crate) fn dequantised(&self) -> Self {
        let matrix = |from: &Matrix| {
            let values = Values::Bf16(from.dequantised().map(bf16::from_f32).collect());
            Matrix { n: from.n, k: from.k, values }
        };
        Self { dims: self.dims, experts: self.experts.iter().map(|expert| expert.each_ref().map(matrix)).collect() }
    }

    pub(crate) fn pack(&self, level: Level) -> Packed {
        let weights: Vec<_> = self.experts.iter().flatten().map(Matrix::weight).collect();
        Packed(PackedWeight::pack_all(level, &pool(2), &weights).unwrap())
    }

    /// `[E, 2I, H]`, dequantised.
    pub(crate) fn gate_up_proj(&self) -> Array3<f32> {
        let values = self.experts.iter().flat_map(|[gate, up, _]| gate.dequantised().chain(up.dequantised()));
        let shape = (self.dims.experts, 2 * self.dims.intermediate, self.dims.hidden);
        Array3::from_shape_vec(shape, values.collect()).unwrap()
    }

    /// `[E, H, I]`, dequantised.
    pub(crate) fn down_proj(&self) -> Array3<f32> {
        let values = self.experts.iter().flat_map(|[_, _, down]| down.dequantised());
        let shape = (self.dims.experts, self.dims.hidden, self.dims.intermediate);
        Array3::from_shape_vec(shape, values.collect()).unwrap()
    }
}

/// The packed weights of a [`Moe`].
pub(crate) struct Packed(Vec<PackedWeight>);

impl Packed {
    pub(crate) fn experts(&self) -> Vec<Expert<'_>> {
        self.0.chunks_exact(3).map(|weights| expert(&weights[0], &weights[1], &weights[2])).collect()
    }
}

fn expert<'a, W: Into<Weight<'a>>>(gate: W, up: W, down: W) -> Expert<'a> {
    Expert { gate: gate.into(), up: up.into(), down: down.into() }
}

/// Tokens that own their values.
#[derive(Clone)]
pub(crate) enum Rows {
    Bf16(Vec<bf16>),
    F32(Vec<f32>),
}

impl Rows {
    pub(crate) fn new(precision: Precision, rows: usize, hidden: usize, seed: u64) -> Self {
        match precision {
            Precision::Bf16 => Self::Bf16(fill_bf16(seed, rows * hidden, 1.5)),
            Precision::F32 => Self::F32(fill_f32(seed, rows * hidden, 1.5)),
        }
    }

    pub(crate) fn tokens(&self) -> Tokens<'_> {
        match self {
            Self::Bf16(values) => Tokens::Bf16(values),
            Self::F32(values) => Tokens::F32(values),
        }
    }

    pub(crate) fn precision(&self) -> Precision {
        match self {
            Self::Bf16(_) => Precision::Bf16,
            Self::F32(_) => Precision::F32,
        }
    }

    pub(crate) fn array(&self, hidden: usize) -> Array2<f32> {
        let values: Vec<f32> = match self {
            Self::Bf16(values) => values.iter().map(|value| value.to_f32()).collect(),
            Self::F32(values) => values.clone(),
        };
        Array2::from_shape_vec((values.len() / hidden, hidden), values).unwrap()
    }
}

/// The choices of a router, `[T, k]`.
#[derive(Clone, Debug)]
pub(crate) struct Choices {
    pub(crate) k: usize,
    pub(crate) ids: Vec<u32>,
    pub(crate) weights: Vec<f32>,
}

impl Choices {
    /// Distinct experts for each token, in no order, with positive weights.
    pub(crate) fn new(tokens: usize, experts: usize, k: usize, seed: u64) -> Self {
        let keys = fill_f32(seed, tokens * experts, 1.0);
        let choose = |keys: &[f32]| {
            let mut ids: Vec<u32> = (0..experts as u32).collect();
            ids.sort_by(|&a, &b| keys[a as usize].total_cmp(&keys[b as usize]));
            ids.truncate(k);
            ids
        };
        let weights = fill_f32(!seed, tokens * k, 0.5).into_iter().map(|x| (1.0 + x) / k as f32).collect();
        Self { k, ids: keys.chunks_exact(experts).flat_map(choose).collect(), weights }
    }
}

/// The grouped operator into a guarded output: in BF16 mode the published one, in exact mode its F32 form.
pub(crate) fn grouped(
    level: Level,
    pool: &Pool,
    dims: &MoeDims,
    rows: &Rows,
    experts: &(impl Experts + ?Sized),
    cumsum: &[i32],
) -> Result<Vec<f32>, Error> {
    match rows {
        Rows::F32(_) => grouped_f32(level, pool, dims, rows, experts, cumsum),
        Rows::Bf16(values) => {
            let shape = (values.len() / dims.hidden, dims.hidden);
            let x = ArrayView2::from_shape(shape, values).unwrap();
            let mut out = Guarded::<bf16>::new(shape.0, shape.1);
            let view = ArrayViewMut2::from_shape(shape, out.as_mut_slice()).unwrap();
            grouped_gemm::grouped_gemm(level, pool, dims, x, experts, ArrayView1::from(cumsum), view)?;
            Ok(checked(out).into_iter().map(bf16::to_f32).collect())
        }
    }
}

/// The F32 form of the grouped operator into a guarded output.
pub(crate) fn grouped_f32(
    level: Level,
    pool: &Pool,
    dims: &MoeDims,
    rows: &Rows,
    experts: &(impl Experts + ?Sized),
    cumsum: &[i32],
) -> Result<Vec<f32>, Error> {
    let mut out = Guarded::<f32>::new(rows.array(dims.hidden).nrows(), dims.hidden);
    grouped_gemm::grouped_gemm_f32(level, pool, dims, rows.tokens(), experts, cumsum, out.as_mut_slice())?;
    Ok(checked(out))
}

/// The combining operator into a guarded output.
pub(crate) fn combined(
    level: Level,
    pool: &Pool,
    dims: &MoeDims,
    rows: &Rows,
    experts: &(impl Experts + ?Sized),
    choices: &Choices,
) -> Result<Vec<f32>, Error> {
    let Choices { ids, weights, .. } = choices;
    let mut out = Guarded::<f32>::new(rows.array(dims.hidden).nrows(), dims.hidden);
    grouped_gemm::moe_ffn(level, pool, dims, rows.tokens(), experts, ids, weights, out.as_mut_slice())?;
    Ok(checked(out))
}

/// The unfused form of [`combined`].
pub(crate) fn eager(
    level: Level,
    pool: &Pool,
    dims: &MoeDims,
    rows: &Rows,
    experts: &(impl Experts + ?Sized),
    choices: &Choices,
) -> Result<Vec<f32>, Error> {
    let Choices { ids, weights, .. } = choices;
    let mut out = Guarded::<f32>::new(rows.array(dims.hidden).nrows(), dims.hidden);
    grouped_gemm::moe_ffn_eager(level, pool, dims, rows.tokens(), experts, ids, weights, out.as_mut_slice())?;
    Ok(checked(out))
}

/// The rows of an output of which every element was written, and nothing beside them.
fn checked<T: Sentinel>(out: Guarded<T>) -> Vec<T> {
    out.check().unwrap();
    assert_eq!(out.unwritten(), 0, "elements of the output were not written");
    out.to_vec()
}

/// What [`grouped`] should give, by the reference.
pub(crate) fn expected_grouped(moe: &Moe, rows: &Rows, cumsum: &[i32]) -> Vec<f32> {
    let out = reference::grouped_gemm(
        &moe.dims,
        rows.precision(),
        rows.array(moe.dims.hidden).view(),
        moe.gate_up_proj().view(),
        moe.down_proj().view(),
        ArrayView1::from(cumsum),
    );
    let out = out.unwrap().into_iter();
    match rows {
        Rows::Bf16(_) => out.map(|sum| bf16::from_f32(sum).to_f32()).collect(),
        Rows::F32(_) => out.collect(),
    }
}

/// What [`combined`] should give, by the reference.
pub(crate) fn expected_combined(moe: &Moe, rows: &Rows, choices: &Choices) -> Vec<f32> {
    let x = rows.array(moe.dims.hidden);
    let shape = (x.nrows(), choices.k);
    let out = reference::moe_ffn(
        &moe.dims,
        rows.precision(),
        x.view(),
        moe.gate_up_proj().view(),
        moe.down_proj().view(),
        ArrayView2::from_shape(shape, &choices.ids).unwrap(),
        ArrayView2::from_shape(shape, &choices.weights).unwrap(),
    );
    out.unwrap().into_iter().collect()
}

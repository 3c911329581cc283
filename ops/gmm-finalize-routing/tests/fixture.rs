// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls that own their arguments, and the operator under test in short form.

use cpu_tiles::{E8M0, F8E4M3, F8E5M2, Isa, Level, Overflow, Pool};
use gmm_finalize_routing::{
    Codes, Dims, Dtype, Error, Experts, GroupList, Inputs, PackedWeights, Scale, SharedInput, Weights,
    finalize_routing, reference,
};
use half::bf16;
use ndarray::ArrayView2;
use op_testkit::compare::Tolerance;
use op_testkit::guard::Guarded;
use op_testkit::{fill_bf16, fill_f32};

pub(crate) const DTYPES: [Dtype; 2] = [Dtype::E4M3, Dtype::E5M2];

/// What F32 sums may differ by from the rounded F64 sums of the reference.
pub(crate) const TOLERANCE: Tolerance = Tolerance { abs: 0.0, rel: 0.0, rel_to_max: 5e-6 };

/// Every level of this machine, and the software models of the AVX-512 ones.
pub(crate) fn levels() -> Vec<Level> {
    let mut levels = Level::available();
    levels.extend(Isa::ALL.into_iter().filter_map(Level::emulated));
    levels
}

pub(crate) fn pool(threads: usize) -> Pool {
    Pool::new(threads).unwrap()
}

/// Codes as bytes, in either format.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fp8 {
    E4M3(Vec<F8E4M3>),
    E5M2(Vec<F8E5M2>),
}

impl Fp8 {
    /// Uniform values up to `scale`.
    pub(crate) fn new(dtype: Dtype, seed: u64, n: usize, scale: f32) -> Self {
        let values = fill_f32(seed, n, scale).into_iter();
        match dtype {
            Dtype::E4M3 => Self::E4M3(values.map(|x| F8E4M3::from_f32(x, Overflow::Saturate)).collect()),
            Dtype::E5M2 => Self::E5M2(values.map(|x| F8E5M2::from_f32(x, Overflow::Saturate)).collect()),
        }
    }

    pub(crate) fn of_bits(dtype: Dtype, bits: impl Iterator<Item = u8>) -> Self {
        match dtype {
            Dtype::E4M3 => Self::E4M3(bits.map(F8E4M3::from_bits).collect()),
            Dtype::E5M2 => Self::E5M2(bits.map(F8E5M2::from_bits).collect()),
        }
    }

    pub(crate) fn codes(&self) -> Codes<'_> {
        match self {
            Self::E4M3(codes) => Codes::E4M3(codes),
            Self::E5M2(codes) => Codes::E5M2(codes),
        }
    }

    #[cfg(feature = "sim")]
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::E4M3(codes) => codes.iter().map(|code| code.to_bits()).collect(),
            Self::E5M2(codes) => codes.iter().map(|code| code.to_bits()).collect(),
        }
    }

    pub(crate) fn set(&mut self, at: usize, bits: u8) {
        match self {
            Self::E4M3(codes) => codes[at] = F8E4M3::from_bits(bits),
            Self::E5M2(codes) => codes[at] = F8E5M2::from_bits(bits),
        }
    }

    /// The codes that `which` names, in its order.
    pub(crate) fn pick(&self, which: impl Iterator<Item = usize>) -> Self {
        match self {
            Self::E4M3(codes) => Self::E4M3(which.map(|at| codes[at]).collect()),
            Self::E5M2(codes) => Self::E5M2(which.map(|at| codes[at]).collect()),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shared {
    pub(crate) values: Vec<bf16>,
    pub(crate) offset: usize,
    pub(crate) weight: f32,
}

/// Every argument of a call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) dims: Dims,
    pub(crate) x1: Fp8,
    pub(crate) pertoken_scale: Vec<E8M0>,
    pub(crate) x2: Fp8,
    pub(crate) transpose_x2: bool,
    pub(crate) scale: Vec<E8M0>,
    pub(crate) per_expert: bool,
    pub(crate) group_list_type: i64,
    pub(crate) group_list: Vec<i64>,
    pub(crate) row_index: Vec<i64>,
    pub(crate) logit: Option<Vec<f32>>,
    pub(crate) shared_input: Option<Shared>,
    /// The initial values of the output.
    pub(crate) out: Vec<f32>,
}

/// Scales of the powers from -3 to 3.
pub(crate) fn scales(seed: u64, n: usize) -> Vec<E8M0> {
    fill_f32(seed, n, 3.49).into_iter().map(|x| E8M0::from_bits((127.0 + x.round()) as u8)).collect()
}

impl Call {
    /// A call with everything: logits, a shared input on all rows but the first and the last, initial values. The rows
    /// of the output are taken in turn.
    pub(crate) fn new(dtype: Dtype, dims: Dims, counts: &[usize], batch: usize, seed: u64) -> Self {
        let Dims { experts, k, n } = dims;
        let (rows, packs) = (counts.iter().sum::<usize>(), k.div_ceil(64));
        let largest = if dtype == Dtype::E4M3 { 448.0 } else { 57344.0 };
        let shared_rows = batch.saturating_sub(2);
        Self {
            dims,
            x1: Fp8::new(dtype, seed, rows * k, largest),
            pertoken_scale: scales(seed + 1, rows * packs * 2),
            x2: Fp8::new(dtype, seed + 2, experts * n * k, largest),
            transpose_x2: true,
            scale: scales(seed + 3, n * packs * 2),
            per_expert: false,
            group_list_type: 1,
            group_list: counts.iter().map(|&count| count as i64).collect(),
            row_index: (0..rows).map(|row| (row % batch.max(1)) as i64).collect(),
            logit: Some(fill_f32(seed + 4, rows, 1.0)),
            shared_input: (shared_rows > 0).then(|| Shared {
                values: fill_bf16(seed + 5, shared_rows * n, 1e6),
                offset: 1,
                weight: 0.25,
            }),
            out: fill_f32(seed + 6, batch * n, 1e6),
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.row_index.len()
    }

    pub(crate) fn batch(&self) -> usize {
        self.out.len() / self.dims.n
    }

    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.batch(), self.dims.n]
    }

    pub(crate) fn packs(&self) -> usize {
        self.dims.k.div_ceil(64)
    }

    pub(crate) fn weights(&self) -> Weights<'_> {
        let scale = if self.per_expert { Scale::PerExpert(&self.scale) } else { Scale::Shared(&self.scale) };
        Weights { x2: self.x2.codes(), transpose_x2: self.transpose_x2, scale }
    }

    pub(crate) fn inputs(&self) -> Inputs<'_> {
        Inputs {
            x1: self.x1.codes(),
            pertoken_scale: &self.pertoken_scale,
            group_list: GroupList::new(self.group_list_type, &self.group_list).unwrap(),
            row_index: &self.row_index,
            logit: self.logit.as_deref(),
            shared_input: self.shared_input.as_ref().map(|Shared { values, offset, weight }| SharedInput {
                values,
                offset: *offset,
                weight: *weight,
            }),
        }
    }

    pub(crate) fn pack(&self, level: Level) -> PackedWeights {
        PackedWeights::pack(level, &pool(2), &self.dims, self.weights()).unwrap()
    }

    /// The result with some weights, in a guarded output.
    pub(crate) fn run_with<'a>(
        &self,
        level: Level,
        threads: usize,
        experts: impl Into<Experts<'a>>,
    ) -> Result<(Vec<f32>, usize), Error> {
        let mut out = Guarded::<f32>::new(self.batch(), self.dims.n);
        out.as_mut_slice().copy_from_slice(&self.out);
        let rows = finalize_routing(level, &pool(threads), &self.dims, experts, &self.inputs(), out.as_mut_slice())?;
        out.check().unwrap();
        Ok((out.to_vec(), rows))
    }

    /// The result with weights in place.
    pub(crate) fn run(&self, level: Level) -> Vec<f32> {
        self.run_with(level, 2, self.weights()).unwrap().0
    }

    /// The result with packed weights.
    pub(crate) fn run_packed(&self, level: Level) -> Vec<f32> {
        self.run_with(level, 2, &self.pack(level)).unwrap().0
    }

    /// What the reference makes of it.
    pub(crate) fn expected(&self) -> Vec<f32> {
        let out = ArrayView2::from_shape(self.shape(), &self.out).unwrap();
        reference::finalize_routing(&self.dims, &self.weights(), &self.inputs(), out).unwrap().into_iter().collect()
    }

    /// The same call with the weights in the other layout.
    pub(crate) fn in_other_layout(&self) -> Self {
        let Dims { experts, k, n } = self.dims;
        let packs = self.packs();
        let tensors = if self.per_expert { experts } else { 1 };
        let mut call = self.clone();
        call.transpose_x2 = !self.transpose_x2;
        // Row-major [rows, columns] of the present layout, read column by column.
        let (rows, columns) = if self.transpose_x2 { (n, k) } else { (k, n) };
        call.x2 = self.x2.pick((0..experts * n * k).map(|at| {
            let (expert, at) = (at / (n * k), at % (n * k));
            expert * n * k + at % rows * columns + at / rows
        }));
        let (rows, columns) = if self.transpose_x2 { (n, packs) } else { (packs, n) };
        call.scale = (0..tensors * n * packs * 2)
            .map(|at| {
                let (tensor, at, half) = (at / (n * packs * 2), at / 2 % (n * packs), at % 2);
                self.scale[(tensor * n * packs + at % rows * columns + at / rows) * 2 + half]
            })
            .collect();
        call
    }

    /// The rows of the call that `which` names, in its order, with counts `counts`.
    pub(crate) fn select(&self, which: &[usize], counts: &[usize]) -> Self {
        let (k, scales) = (self.dims.k, self.packs() * 2);
        let of = |width: usize| which.iter().flat_map(move |&row| row * width..(row + 1) * width);
        let mut call = self.clone();
        call.x1 = self.x1.pick(of(k));
        call.pertoken_scale = of(scales).map(|at| self.pertoken_scale[at]).collect();
        call.row_index = which.iter().map(|&row| self.row_index[row]).collect();
        call.logit = self.logit.as_ref().map(|logit| which.iter().map(|&row| logit[row]).collect());
        call.group_list_type = 1;
        call.group_list = counts.iter().map(|&count| count as i64).collect();
        call
    }
}

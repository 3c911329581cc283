// SPDX-License-Identifier: MIT OR Apache-2.0

//! The weights of a model: used in place in the mapped files, or packed into panels.

use super::norm::RmsNorm;
use crate::checkpoint::{FfnTensors, LayerTensors, LinearTensors, MlpTensors, ModelTensors, MoeTensors, Tensor};
use cpu_tiles::{E8M0, F8E4M3, Format, Level, PANEL, PackedWeight, Pool, ShapeError, Weight, WeightRef};
use grouped_gemm::{Expert, Experts};
use half::bf16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Why a tensor of a clean report can be read as what it should be.
const CHECKED: &str = "shapes and dtypes were checked against the configuration";

/// The elements of a tensor: those in the file, or a copy where the file holds them unaligned.
#[derive(Debug)]
pub(crate) enum Elements<T> {
    InFile(Tensor),
    Copied(Vec<T>),
}

impl<T: Clone + FromBytes + IntoBytes + Immutable + KnownLayout> Elements<T> {
    fn new(tensor: Tensor) -> Self {
        if <[T]>::ref_from_bytes(tensor.bytes()).is_ok() {
            return Self::InFile(tensor);
        }
        let mut copy = vec![T::new_zeroed(); tensor.byte_len() / size_of::<T>()];
        copy.as_mut_bytes().copy_from_slice(tensor.bytes());
        Self::Copied(copy)
    }

    pub(crate) fn get(&self) -> &[T] {
        match self {
            Self::InFile(tensor) => <[T]>::ref_from_bytes(tensor.bytes()).expect("aligned when it was loaded"),
            Self::Copied(copy) => copy,
        }
    }
}

/// A row-major weight `[n, k]`.
#[derive(Debug)]
struct RowMajor {
    n: usize,
    k: usize,
    values: Values,
}

#[derive(Debug)]
enum Values {
    F32(Elements<f32>),
    Bf16(Elements<bf16>),
    Fp8Block { codes: Elements<F8E4M3>, scales: Elements<f32> },
    Mxfp8 { codes: Elements<F8E4M3>, scales: Elements<E8M0> },
}

impl RowMajor {
    fn new(tensors: LinearTensors) -> Self {
        let LinearTensors { format, weight, scale, rows, cols } = tensors;
        let scale = || scale.expect("a scaled format has scales");
        let values = match format {
            Format::F32 => Values::F32(Elements::new(weight)),
            Format::Bf16 => Values::Bf16(Elements::new(weight)),
            Format::Fp8Block => Values::Fp8Block { codes: Elements::new(weight), scales: Elements::new(scale()) },
            Format::Mxfp8 => Values::Mxfp8 { codes: Elements::new(weight), scales: Elements::new(scale()) },
        };
        Self { n: rows, k: cols, values }
    }

    fn weight(&self) -> WeightRef<'_> {
        let weight = match &self.values {
            Values::F32(values) => WeightRef::f32(self.n, self.k, values.get()),
            Values::Bf16(values) => WeightRef::bf16(self.n, self.k, values.get()),
            Values::Fp8Block { codes, scales } => WeightRef::fp8_block(self.n, self.k, codes.get(), scales.get()),
            Values::Mxfp8 { codes, scales } => WeightRef::mxfp8(self.n, self.k, codes.get(), scales.get()),
        };
        weight.expect(CHECKED)
    }
}

/// A linear layer `[out, in]`.
#[derive(Debug)]
pub(crate) struct Linear {
    form: Form,
    stored_bytes: usize,
}

#[derive(Debug)]
enum Form {
    InPlace(RowMajor),
    Packed(PackedWeight),
}

impl Linear {
    pub(crate) fn weight(&self) -> Weight<'_> {
        match &self.form {
            Form::InPlace(weight) => weight.weight().into(),
            Form::Packed(weight) => weight.into(),
        }
    }

    /// Bytes of values and scales in the checkpoint.
    pub(crate) fn stored_bytes(&self) -> usize {
        self.stored_bytes
    }
}

/// One expert: `down(act(gate x) * (up x))`.
#[derive(Debug)]
pub(crate) struct ExpertWeights {
    pub(crate) gate: Linear,
    pub(crate) up: Linear,
    pub(crate) down: Linear,
}

/// The experts of a layer.
#[derive(Debug)]
pub(crate) struct LayerExperts(pub(crate) Vec<ExpertWeights>);

impl Experts for LayerExperts {
    fn expert(&self, index: usize) -> Expert<'_> {
        let ExpertWeights { gate, up, down } = &self.0[index];
        Expert { gate: gate.weight(), up: up.weight(), down: down.weight() }
    }
}

/// One decoder layer.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) input_norm: RmsNorm,
    pub(crate) q: Linear,
    pub(crate) k: Linear,
    pub(crate) v: Linear,
    pub(crate) o: Linear,
    pub(crate) q_norm: RmsNorm,
    pub(crate) k_norm: RmsNorm,
    pub(crate) post_norm: RmsNorm,
    pub(crate) router: Linear,
    pub(crate) router_bias: Vec<f32>,
    pub(crate) experts: LayerExperts,
}

/// All weights of a model.
#[derive(Debug)]
pub(crate) struct Weights {
    /// `[vocab, hidden]`, always in place.
    pub(crate) embed: Elements<bf16>,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: RmsNorm,
    pub(crate) lm_head: Linear,
}

/// Turns the tensors of a checkpoint into weights.
pub(crate) struct Loader<'a> {
    pub(crate) level: Level,
    pub(crate) pool: &'a Pool,
    /// Whether to pack; otherwise weights are used in place.
    pub(crate) pack: bool,
    pub(crate) eps: f32,
    /// Told the number of bytes, as stored, of each weight that is ready.
    pub(crate) ready: &'a mut dyn FnMut(usize),
}

impl Loader<'_> {
    pub(crate) fn load(&mut self, tensors: ModelTensors) -> Result<Weights, ShapeError> {
        let ModelTensors { embed, layers, norm, lm_head } = tensors;
        let [lm_head] = self.linears([unscaled(lm_head, Format::Bf16)])?;
        Ok(Weights {
            embed: Elements::new(embed),
            layers: layers.into_iter().map(|layer| self.layer(layer)).collect::<Result<_, _>>()?,
            norm: self.norm(&norm),
            lm_head,
        })
    }

    fn layer(&mut self, tensors: LayerTensors) -> Result<Layer, ShapeError> {
        let LayerTensors { q, k, v, o, ffn, .. } = tensors;
        let FfnTensors::Moe(MoeTensors { router, bias, experts, .. }) = ffn else {
            unreachable!("Model::load refuses dense layers")
        };
        let [q, k, v, o, router] = self.linears([q, k, v, o, unscaled(router, Format::F32)])?;
        Ok(Layer {
            input_norm: self.norm(&tensors.input_norm),
            q,
            k,
            v,
            o,
            q_norm: self.norm(&tensors.q_norm),
            k_norm: self.norm(&tensors.k_norm),
            post_norm: self.norm(&tensors.post_norm),
            router,
            router_bias: bias.as_f32().expect(CHECKED).into_owned(),
            experts: LayerExperts(experts.into_iter().map(|expert| self.expert(expert)).collect::<Result<_, _>>()?),
        })
    }

    fn expert(&mut self, MlpTensors { gate, up, down }: MlpTensors) -> Result<ExpertWeights, ShapeError> {
        let [gate, up, down] = self.linears([gate, up, down])?;
        Ok(ExpertWeights { gate, up, down })
    }

    /// Weights that lie in one buffer when packed.
    fn linears<const N: usize>(&mut self, tensors: [LinearTensors; N]) -> Result<[Linear; N], ShapeError> {
        let row_major = tensors.map(RowMajor::new);
        let stored = row_major.each_ref().map(|weight| weight.weight().bytes());
        let mut packed = if self.pack {
            PackedWeight::pack_all(self.level, self.pool, &row_major.each_ref().map(RowMajor::weight))?.into_iter()
        } else {
            Vec::new().into_iter()
        };
        let mut stored_bytes = stored.into_iter();
        let linears = row_major.map(|weight| Linear {
            form: packed.next().map_or(Form::InPlace(weight), Form::Packed),
            stored_bytes: stored_bytes.next().unwrap_or_default(),
        });
        (self.ready)(stored.iter().sum());
        Ok(linears)
    }

    fn norm(&self, weight: &Tensor) -> RmsNorm {
        let weight = weight.as_bf16().expect(CHECKED);
        RmsNorm::new(weight.iter().map(|x| x.to_f32()).collect(), self.eps)
    }
}

/// A weight that is never quantised.
fn unscaled(weight: Tensor, format: Format) -> LinearTensors {
    let (rows, cols) = (weight.shape()[0], weight.shape()[1]);
    LinearTensors { format, weight, scale: None, rows, cols }
}

/// Bytes of all linear layers: as stored, and packed.
pub(crate) fn linear_bytes(tensors: &ModelTensors) -> (u64, u64) {
    let ModelTensors { layers, lm_head, .. } = tensors;
    let (mut stored, mut packed) = (0, 0);
    let mut add = |tensors: &LinearTensors| {
        let bytes = tensors.byte_len();
        let padded = tensors.rows.next_multiple_of(PANEL) * tensors.cols.next_multiple_of(4);
        stored += bytes as u64;
        packed += (bytes + (padded - tensors.rows * tensors.cols) * tensors.weight.dtype().bits() / 8) as u64;
    };
    add(&unscaled(lm_head.clone(), Format::Bf16));
    for layer in layers {
        [&layer.q, &layer.k, &layer.v, &layer.o].into_iter().for_each(&mut add);
        let mlp = |mlp: &MlpTensors| [&mlp.gate, &mlp.up, &mlp.down].into_iter().for_each(&mut add);
        match &layer.ffn {
            FfnTensors::Dense(dense) => [dense].into_iter().for_each(mlp),
            FfnTensors::Moe(moe) => {
                moe.experts.iter().chain(&moe.shared).for_each(mlp);
                add(&unscaled(moe.router.clone(), Format::F32));
            }
        }
        if let Some(index) = &layer.index {
            [&index.q, &index.k].into_iter().for_each(&mut add);
        }
    }
    (stored, packed)
}

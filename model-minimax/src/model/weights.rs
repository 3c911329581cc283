// SPDX-License-Identifier: MIT OR Apache-2.0

//! The weights of a model: used in place in the mapped files, or packed into panels.

use super::norm::RmsNorm;
use crate::checkpoint::{
    FfnTensors, IndexTensors, LayerTensors, LinearTensors, MlpTensors, ModelTensors, MoeTensors, Tensor,
};
use crate::config::NormKind;
use cpu_tiles::{E8M0, F8E4M3, Format, Level, PANEL, PackedWeight, Pool, ShapeError, Weight, WeightRef};
use grouped_gemm::{Activation, Expert, Experts, MoeDims};
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
        tensor.release();
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

/// The values of a row-major weight, as a checkpoint stores them.
#[cfg(feature = "npu")]
#[derive(Debug, Clone, Copy)]
pub(crate) enum StoredValues<'a> {
    F32(#[expect(dead_code, reason = "there is no kernel for them")] &'a [f32]),
    Bf16(&'a [bf16]),
    Fp8Block { codes: &'a [F8E4M3], scales: &'a [f32] },
    Mxfp8 { codes: &'a [F8E4M3], scales: &'a [E8M0] },
}

#[cfg(feature = "npu")]
impl Values {
    fn stored(&self) -> StoredValues<'_> {
        match self {
            Self::F32(values) => StoredValues::F32(values.get()),
            Self::Bf16(values) => StoredValues::Bf16(values.get()),
            Self::Fp8Block { codes, scales } => StoredValues::Fp8Block { codes: codes.get(), scales: scales.get() },
            Self::Mxfp8 { codes, scales } => StoredValues::Mxfp8 { codes: codes.get(), scales: scales.get() },
        }
    }

    /// Lets the pages of the mapped file go, which are read again if they are needed.
    fn release(&self) {
        fn release<T>(elements: &Elements<T>) {
            if let Elements::InFile(tensor) = elements {
                tensor.release();
            }
        }
        match self {
            Self::F32(values) => release(values),
            Self::Bf16(values) => release(values),
            Self::Fp8Block { codes, scales } => (release(codes), release(scales)).0,
            Self::Mxfp8 { codes, scales } => (release(codes), release(scales)).0,
        }
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

/// An MLP: `down(act(gate x, up x))`.
#[derive(Debug)]
pub(crate) struct Mlp {
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl Mlp {
    fn stored_bytes(&self) -> usize {
        [&self.gate, &self.up, &self.down].into_iter().map(Linear::stored_bytes).sum()
    }
}

/// MLPs of one width: the routed experts of a layer, or one for all tokens.
#[derive(Debug)]
pub(crate) struct Mlps {
    pub(crate) dims: MoeDims,
    mlps: Vec<Mlp>,
}

#[cfg(feature = "npu")]
impl Mlps {
    /// Gate, up and down of one of them, unless they are packed.
    pub(crate) fn stored(&self, index: usize) -> Option<[StoredValues<'_>; 3]> {
        let Mlp { gate, up, down } = self.mlps.get(index)?;
        let [gate, up, down] = [gate, up, down].map(|linear| match &linear.form {
            Form::InPlace(weight) => Some(weight.values.stored()),
            Form::Packed(_) => None,
        });
        Some([gate?, up?, down?])
    }

    /// How their weights are stored.
    pub(crate) fn format(&self) -> Format {
        self.mlps.first().map_or(Format::F32, |mlp| mlp.gate.weight().format())
    }

    /// Lets the pages of their mapped files go: they have been copied elsewhere.
    pub(crate) fn release(&self) {
        for linear in self.mlps.iter().flat_map(|Mlp { gate, up, down }| [gate, up, down]) {
            if let Form::InPlace(weight) = &linear.form {
                weight.values.release();
            }
        }
    }
}

impl Mlps {
    /// Bytes of one of them in the checkpoint.
    pub(crate) fn stored_bytes_of_one(&self) -> usize {
        self.mlps.first().map_or(0, Mlp::stored_bytes)
    }
}

impl Experts for Mlps {
    fn expert(&self, index: usize) -> Expert<'_> {
        let Mlp { gate, up, down } = &self.mlps[index];
        Expert { gate: gate.weight(), up: up.weight(), down: down.weight() }
    }

    fn count(&self) -> Option<usize> {
        Some(self.mlps.len())
    }
}

/// The index heads of a layer with sparse attention.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) q: Linear,
    pub(crate) k: Linear,
    pub(crate) q_norm: RmsNorm,
    pub(crate) k_norm: RmsNorm,
}

/// The feed-forward part of a layer.
#[derive(Debug)]
pub(crate) enum Ffn {
    /// One MLP for all tokens.
    Dense(Mlps),
    /// A mixture of experts.
    Moe(Box<Moe>),
}

/// A mixture of experts.
#[derive(Debug)]
pub(crate) struct Moe {
    pub(crate) router: Linear,
    pub(crate) bias: Vec<f32>,
    pub(crate) experts: Mlps,
    /// The expert of every token.
    pub(crate) shared: Option<Mlps>,
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
    /// Absent where attention is dense, be it because all blocks of keys are asked for.
    pub(crate) index: Option<Index>,
    pub(crate) post_norm: RmsNorm,
    pub(crate) ffn: Ffn,
}

impl Layer {
    /// Bytes of weights that a token reads, `top_k` of the routed experts included.
    pub(crate) fn stored_bytes_of_token(&self, top_k: usize) -> usize {
        let linears = [&self.q, &self.k, &self.v, &self.o].into_iter().map(Linear::stored_bytes).sum::<usize>();
        let norms =
            [&self.input_norm, &self.q_norm, &self.k_norm, &self.post_norm].map(norm_bytes).iter().sum::<usize>();
        let index = self.index.as_ref().map_or(0, |index| {
            index.q.stored_bytes() + index.k.stored_bytes() + norm_bytes(&index.q_norm) + norm_bytes(&index.k_norm)
        });
        let ffn = match &self.ffn {
            Ffn::Dense(mlp) => mlp.stored_bytes_of_one(),
            Ffn::Moe(moe) => {
                moe.router.stored_bytes()
                    + size_of_val(moe.bias.as_slice())
                    + top_k * moe.experts.stored_bytes_of_one()
                    + moe.shared.as_ref().map_or(0, Mlps::stored_bytes_of_one)
            }
        };
        linears + norms + index + ffn
    }
}

/// Bytes of a norm's weight in the checkpoint.
fn norm_bytes(norm: &RmsNorm) -> usize {
    norm.width() * size_of::<bf16>()
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

impl Weights {
    /// Bytes of weights, as stored, that a forward pass of one token reads.
    pub(crate) fn stored_bytes_of_token(&self, top_k: usize) -> usize {
        let layers: usize = self.layers.iter().map(|layer| layer.stored_bytes_of_token(top_k)).sum();
        let embedding = self.norm.width() * size_of::<bf16>();
        layers + embedding + norm_bytes(&self.norm) + self.lm_head.stored_bytes()
    }
}

/// Turns the tensors of a checkpoint into weights.
pub(crate) struct Loader<'a> {
    pub(crate) level: Level,
    pub(crate) pool: &'a Pool,
    /// Whether to pack; otherwise weights are used in place.
    pub(crate) pack: bool,
    /// Whether to pack the routed experts, too.
    pub(crate) pack_experts: bool,
    /// Whether index heads are of use; otherwise they are left out.
    pub(crate) index: bool,
    pub(crate) norm: NormKind,
    pub(crate) eps: f32,
    pub(crate) activation: Activation,
    /// Told the number of bytes, as stored, of each weight that is ready.
    pub(crate) ready: &'a mut dyn FnMut(usize),
}

impl Loader<'_> {
    pub(crate) fn load(&mut self, tensors: ModelTensors) -> Result<Weights, ShapeError> {
        let ModelTensors { embed, layers, norm, lm_head } = tensors;
        // The largest first: while it is packed it is in memory twice.
        let [lm_head] = self.linears([unscaled(lm_head, Format::Bf16)])?;
        Ok(Weights {
            embed: Elements::new(embed),
            layers: layers.into_iter().map(|layer| self.layer(layer)).collect::<Result<_, _>>()?,
            norm: self.norm(&norm),
            lm_head,
        })
    }

    fn layer(&mut self, tensors: LayerTensors) -> Result<Layer, ShapeError> {
        let LayerTensors { input_norm, q, k, v, o, q_norm, k_norm, index, post_norm, ffn } = tensors;
        let [q, k, v, o] = self.linears([q, k, v, o])?;
        Ok(Layer {
            input_norm: self.norm(&input_norm),
            q,
            k,
            v,
            o,
            q_norm: self.norm(&q_norm),
            k_norm: self.norm(&k_norm),
            index: index.filter(|_| self.index).map(|index| self.index(index)).transpose()?,
            post_norm: self.norm(&post_norm),
            ffn: match ffn {
                FfnTensors::Dense(mlp) => Ffn::Dense(self.mlps(vec![mlp])?),
                FfnTensors::Moe(moe) => Ffn::Moe(Box::new(self.moe(moe)?)),
            },
        })
    }

    fn index(&mut self, tensors: IndexTensors) -> Result<Index, ShapeError> {
        let IndexTensors { q, k, q_norm, k_norm } = tensors;
        let [q, k] = self.linears([q, k])?;
        Ok(Index { q, k, q_norm: self.norm(&q_norm), k_norm: self.norm(&k_norm) })
    }

    fn moe(&mut self, tensors: MoeTensors) -> Result<Moe, ShapeError> {
        let MoeTensors { router, bias, experts, shared } = tensors;
        let [router] = self.linears([unscaled(router, Format::F32)])?;
        Ok(Moe {
            router,
            bias: bias.as_f32().expect(CHECKED).into_owned(),
            experts: {
                let pack = self.pack;
                self.pack &= self.pack_experts;
                let experts = self.mlps(experts);
                self.pack = pack;
                experts?
            },
            shared: shared.map(|mlp| self.mlps(vec![mlp])).transpose()?,
        })
    }

    /// MLPs of one size, at least one.
    fn mlps(&mut self, tensors: Vec<MlpTensors>) -> Result<Mlps, ShapeError> {
        let (intermediate, hidden) = tensors.first().map_or((0, 0), |mlp| (mlp.gate.rows, mlp.gate.cols));
        let dims = MoeDims { experts: tensors.len(), hidden, intermediate, activation: self.activation };
        let mlp = |MlpTensors { gate, up, down }| {
            let [gate, up, down] = self.linears([gate, up, down])?;
            Ok::<_, ShapeError>(Mlp { gate, up, down })
        };
        Ok(Mlps { dims, mlps: tensors.into_iter().map(mlp).collect::<Result<_, _>>()? })
    }

    /// Weights that lie in one buffer when packed.
    fn linears<const N: usize>(&mut self, tensors: [LinearTensors; N]) -> Result<[Linear; N], ShapeError> {
        let files = tensors.clone();
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
        if self.pack {
            // There is a copy now, which alone is read from here on.
            files
                .iter()
                .flat_map(|linear| [Some(&linear.weight), linear.scale.as_ref()])
                .flatten()
                .for_each(Tensor::release);
        }
        (self.ready)(stored.iter().sum());
        Ok(linears)
    }

    fn norm(&self, weight: &Tensor) -> RmsNorm {
        let weight = weight.as_bf16().expect(CHECKED);
        let scale = |w: &bf16| match self.norm {
            NormKind::Plain => w.to_f32(),
            NormKind::Gemma => 1.0 + w.to_f32(),
        };
        RmsNorm::new(weight.iter().map(scale).collect(), self.eps)
    }
}

/// A weight that is never quantised.
fn unscaled(weight: Tensor, format: Format) -> LinearTensors {
    let (rows, cols) = (weight.shape()[0], weight.shape()[1]);
    LinearTensors { format, weight, scale: None, rows, cols }
}

/// Bytes of linear layers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LinearBytes {
    /// All, as stored.
    pub(crate) stored: u64,
    /// All but routed experts, packed.
    pub(crate) packed: u64,
    /// Routed experts, packed.
    pub(crate) packed_experts: u64,
}

impl LinearBytes {
    fn add(&mut self, tensors: &LinearTensors, is_expert: bool) {
        let bytes = tensors.byte_len();
        let padded = tensors.rows.next_multiple_of(PANEL) * tensors.cols.next_multiple_of(4);
        let packed = (bytes + (padded - tensors.rows * tensors.cols) * tensors.weight.dtype().bits() / 8) as u64;
        self.stored += bytes as u64;
        *(if is_expert { &mut self.packed_experts } else { &mut self.packed }) += packed;
    }
}

/// Bytes of all linear layers. `index` as in the loader.
pub(crate) fn linear_bytes(tensors: &ModelTensors, index: bool) -> LinearBytes {
    let ModelTensors { layers, lm_head, .. } = tensors;
    let mut bytes = LinearBytes::default();
    bytes.add(&unscaled(lm_head.clone(), Format::Bf16), false);
    for layer in layers {
        let index = layer.index.as_ref().filter(|_| index).map(|index| [&index.q, &index.k]);
        let attention = [&layer.q, &layer.k, &layer.v, &layer.o].into_iter().chain(index.into_iter().flatten());
        attention.for_each(|linear| bytes.add(linear, false));
        let mut mlp = |mlp: &MlpTensors, is_expert| {
            [&mlp.gate, &mlp.up, &mlp.down].into_iter().for_each(|linear| bytes.add(linear, is_expert));
        };
        match &layer.ffn {
            FfnTensors::Dense(dense) => mlp(dense, false),
            FfnTensors::Moe(moe) => {
                moe.experts.iter().for_each(|expert| mlp(expert, true));
                moe.shared.iter().for_each(|shared| mlp(shared, false));
                bytes.add(&unscaled(moe.router.clone(), Format::F32), false);
            }
        }
    }
    bytes
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! The values of a synthetic checkpoint.

use std::borrow::Cow;

use cpu_tiles::{F8E4M3, Overflow};
use half::bf16;
use zerocopy::IntoBytes;

use super::spec::TEXT_TOKENS;
use crate::checkpoint::{Dtype, Role, TensorSpec};
use crate::config::{HiddenAct, ModelConfig, NormKind, Variant};

/// Sixteen random bits select one of these.
const SAMPLES: usize = 1 << 16;
/// The E8M0 code of 1.
const E8M0_BIAS: f32 = 127.0;

/// The distributions that values are drawn from.
pub(super) struct Generator {
    seed: u64,
    /// A stratified sample of the standard normal distribution.
    normal: Vec<f32>,
    /// The same sample as E4M3 codes, its largest magnitude at 448.
    codes: Vec<u8>,
    /// Standard deviation of the values of `codes`.
    code_std: f32,
    /// Mean of the norms as stored.
    norm: f32,
    /// Mean of the router biases.
    router_bias: f32,
    /// Gain of the projections of routed experts.
    expert_gain: f32,
}

impl Generator {
    pub(super) fn new(config: &ModelConfig, seed: u64) -> Self {
        // Box-Muller over a grid of 256 radii and 256 angles.
        let normal: Vec<f32> = (0..SAMPLES)
            .map(|i| {
                let [radius, angle] = [i / 256, i % 256].map(|step| (step as f64 + 0.5) / 256.0);
                ((-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()) as f32
            })
            .collect();
        let max = normal.iter().fold(0.0_f32, |max, z| max.max(z.abs()));
        let codes: Vec<F8E4M3> =
            normal.iter().map(|z| F8E4M3::from_f32(z * F8E4M3::MAX.to_f32() / max, Overflow::Saturate)).collect();
        let square_sum: f64 = codes.iter().map(|code| f64::from(code.to_f32()).powi(2)).sum();
        Self {
            seed,
            normal,
            codes: codes.iter().map(|code| code.to_bits()).collect(),
            code_std: (square_sum / SAMPLES as f64).sqrt() as f32,
            norm: match config.norm {
                NormKind::Plain => 1.0,
                NormKind::Gemma => 0.0,
            },
            router_bias: match config.variant {
                Variant::M27 => 8.0,
                Variant::M3 => 15.0,
            },
            // SiLU and the average over the chosen experts shrink what an expert adds; a gain makes up for that.
            // SwiGLU-OAI with a factor for the routed sum does not need one.
            expert_gain: match config.hidden_act {
                HiddenAct::Silu => 1.5,
                HiddenAct::SwigluOai { .. } => 1.0,
            },
        }
    }

    /// The values of one tensor.
    pub(super) fn stream(&self, tensor: &TensorSpec) -> Stream<'_> {
        // FNV-1a: any hash of the name will do.
        let hash = tensor
            .name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let shape = &tensor.shape;
        let gain = if tensor.name.contains(".experts.") { self.expert_gain } else { 1.0 };
        // Unit inputs give unit outputs, times the gain.
        let linear_std = |cols: usize| gain / (cols as f32).sqrt();
        let (mean, std) = match tensor.role {
            Role::Embedding => (0.0, 1.0),
            Role::Norm => (self.norm, 0.1),
            Role::Linear => (0.0, linear_std(shape[1])),
            Role::Scale { cols, .. } => {
                let scale = linear_std(cols) / self.code_std;
                (scale, 0.1 * scale)
            }
            Role::Router => (0.0, 1.5 / (shape[1] as f32).sqrt()),
            Role::RouterBias => (self.router_bias, 0.15),
            Role::LmHead => (0.0, 2.5 / (shape[1] as f32).sqrt()),
        };
        let zero_from = match tensor.role {
            Role::LmHead => TEXT_TOKENS * shape[1],
            _ => usize::MAX,
        };
        let values = match tensor.dtype {
            Dtype::F8E4M3 => Values::Bytes(Cow::Borrowed(&self.codes)),
            Dtype::U8 => Values::Bytes(Cow::Owned(powers_of_two(mean))),
            Dtype::Bf16 => {
                Values::Bf16(self.normal.iter().map(|z| bf16::from_f32(mean + std * z).to_le_bytes()).collect())
            }
            Dtype::F32 => Values::F32 { normal: &self.normal, mean, std },
            other => unreachable!("no expected tensor has dtype {other}"),
        };
        Stream { seed: mix(self.seed ^ hash), values, zero_from }
    }
}

/// E8M0 codes of the two powers of two around `scale`, as many of each as make its square their mean square.
fn powers_of_two(scale: f32) -> Vec<u8> {
    let exponent = scale.log2().floor();
    let share_of_larger = (4_f32.powf(scale.log2() - exponent) - 1.0) / 3.0;
    let smaller = (exponent + E8M0_BIAS) as u8;
    (0..SAMPLES).map(|i| smaller + u8::from((i as f32) < share_of_larger * SAMPLES as f32)).collect()
}

/// What sixteen random bits stand for.
enum Values<'g> {
    Bytes(Cow<'g, [u8]>),
    Bf16(Vec<[u8; 2]>),
    /// Computed on the fly: the F32 tensors are small and many.
    F32 {
        normal: &'g [f32],
        mean: f32,
        std: f32,
    },
}

pub(super) struct Stream<'g> {
    seed: u64,
    values: Values<'g>,
    /// Elements from this one on are zero.
    zero_from: usize,
}

impl Stream<'_> {
    /// Writes the elements from number `first`, a multiple of four, into `out`.
    pub(super) fn fill(&self, first: usize, out: &mut [u8]) {
        match &self.values {
            Values::Bytes(table) => {
                let table = &table[..SAMPLES];
                self.fill_elements(first, out, |sample| [table[sample]]);
            }
            Values::Bf16(table) => {
                let table = &table[..SAMPLES];
                self.fill_elements(first, out, |sample| table[sample]);
            }
            Values::F32 { normal, mean, std } => {
                self.fill_elements(first, out, |sample| (mean + std * normal[sample]).to_le_bytes());
            }
        }
    }

    /// Each random word serves four elements of `N` bytes.
    fn fill_elements<const N: usize>(&self, first: usize, out: &mut [u8], element: impl Fn(usize) -> [u8; N]) {
        let (elements, _) = out.as_chunks_mut::<N>();
        let random = self.zero_from.saturating_sub(first).min(elements.len());
        let (random, zero) = elements.split_at_mut(random);
        for (i, four) in random.chunks_mut(4).enumerate() {
            let mut word = mix(self.seed.wrapping_add((first / 4 + i) as u64));
            for out in four {
                *out = element(word as usize % SAMPLES);
                word >>= 16;
            }
        }
        zero.as_mut_bytes().fill(0);
    }
}

/// SplitMix64: turns a counter into 64 random bits.
fn mix(counter: u64) -> u64 {
    let z = counter.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

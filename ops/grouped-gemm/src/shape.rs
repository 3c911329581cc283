// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use cpu_tiles::weights::{BLOCK, MX_GROUP};
use cpu_tiles::{E8M0, F8E4M3, Precision, Weight, WeightRef};
use half::bf16;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// The gated activation between the two products, with all of its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `gate / (1 + exp(-gate)) * up`.
    Silu,
    /// `(u + 1) * g * sigmoid(alpha * g)` with `g = min(gate, limit)` and `u = min(max(up, -limit), limit)`: the gate
    /// is clamped from above only.
    SwigluOai {
        /// The factor inside the sigmoid; finite.
        alpha: f32,
        /// The clamp; positive and finite.
        limit: f32,
    },
}

impl Activation {
    /// `swigluoai` with the parameters of MiniMax-M3: alpha 1.702, limit 7.
    pub const SWIGLU_OAI: Self = Self::SwigluOai { alpha: 1.702, limit: 7.0 };

    /// The name: `silu` or `swigluoai`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silu => "silu",
            Self::SwigluOai { .. } => "swigluoai",
        }
    }
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Activation {
    type Err = Error;

    /// The activation of this name, `swigluoai` with the parameters of [`Activation::SWIGLU_OAI`].
    fn from_str(name: &str) -> Result<Self, Error> {
        [Self::Silu, Self::SWIGLU_OAI]
            .into_iter()
            .find(|activation| activation.name() == name)
            .ok_or_else(|| Error::UnknownActivation { name: name.to_owned() })
    }
}

/// What makes a parameter possible, in words and as a test. Shared with the knobs.
pub(crate) type Domain = (&'static str, fn(f32) -> bool);
pub(crate) const ALPHAS: Domain = ("a finite number", f32::is_finite);
pub(crate) const LIMITS: Domain = ("a positive finite number", |limit| limit > 0.0 && limit.is_finite());

/// The sizes of a mixture of experts, and its activation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoeDims {
    /// Number of experts, E.
    pub experts: usize,
    /// Hidden size, H: columns of the tokens and of the result.
    pub hidden: usize,
    /// Intermediate size of one expert, I.
    pub intermediate: usize,
    /// The activation between the two products.
    pub activation: Activation,
}

impl MoeDims {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let sizes = [("experts", self.experts), ("hidden", self.hidden), ("intermediate", self.intermediate)];
        if let Some((field, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(Error::ZeroSize { field });
        }
        if let Activation::SwigluOai { alpha, limit } = self.activation {
            for (name, found, (expected, is_possible)) in [("alpha", alpha, ALPHAS), ("limit", limit, LIMITS)] {
                if !is_possible(found) {
                    return Err(Error::Parameter { name, expected, found });
                }
            }
        }
        Ok(())
    }
}

/// The weights of one expert, each `[out, in]`, in any format and either layout of [`cpu_tiles`].
#[derive(Clone, Copy, Debug)]
pub struct Expert<'a> {
    /// `w1` of the checkpoint, `[I, H]`.
    pub gate: Weight<'a>,
    /// `w3` of the checkpoint, `[I, H]`.
    pub up: Weight<'a>,
    /// `w2` of the checkpoint, `[H, I]`.
    pub down: Weight<'a>,
}

impl<'a> Expert<'a> {
    /// An expert whose gate and up weights are one tensor ([`gate_up_halves`]).
    pub fn from_fused(dims: &MoeDims, gate_up: GateUp<'a>, down: impl Into<Weight<'a>>) -> Result<Self, Error> {
        let (gate, up) = gate_up_halves(dims.intermediate, dims.hidden, gate_up)?;
        Ok(Self { gate: gate.into(), up: up.into(), down: down.into() })
    }

    pub(crate) fn check(&self, expert: usize, dims: &MoeDims) -> Result<(), Error> {
        let (hidden, intermediate) = (dims.hidden, dims.intermediate);
        for (weight, found, expected) in [
            ("gate", &self.gate, [intermediate, hidden]),
            ("up", &self.up, [intermediate, hidden]),
            ("down", &self.down, [hidden, intermediate]),
        ] {
            let found = [found.n(), found.k()];
            if found != expected {
                return Err(Error::Weight { expert, weight, expected, found });
            }
        }
        Ok(())
    }
}

/// The experts of a call. A collection that maps or unpacks weights when they are asked for implements this itself:
/// only experts that have rows are asked for, once per call.
pub trait Experts: Sync {
    /// Expert `index`, which is below the number of experts of the call.
    fn expert(&self, index: usize) -> Expert<'_>;

    /// How many experts there are; `None`, the default, leaves the number unchecked.
    fn count(&self) -> Option<usize> {
        None
    }
}

impl Experts for [Expert<'_>] {
    fn expert(&self, index: usize) -> Expert<'_> {
        self[index]
    }

    fn count(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl Experts for Vec<Expert<'_>> {
    fn expert(&self, index: usize) -> Expert<'_> {
        self[index]
    }

    fn count(&self) -> Option<usize> {
        Some(self.len())
    }
}

/// Tokens `[N, H]`, row-major; their type decides about rounding.
#[derive(Clone, Copy, Debug)]
pub enum Tokens<'a> {
    /// BF16 mode: the activation's result is rounded to BF16, once.
    Bf16(&'a [bf16]),
    /// Exact mode: nothing is rounded beyond F32 arithmetic.
    F32(&'a [f32]),
}

impl Tokens<'_> {
    pub(crate) fn precision(self) -> Precision {
        match self {
            Self::Bf16(_) => Precision::Bf16,
            Self::F32(_) => Precision::F32,
        }
    }

    fn len(self) -> usize {
        match self {
            Self::Bf16(values) => values.len(),
            Self::F32(values) => values.len(),
        }
    }

    /// The number of rows.
    pub(crate) fn rows(self, hidden: usize) -> Result<u32, Error> {
        row_count("tokens", rows_of("tokens", self.len(), "hidden size", hidden)?)
    }
}

/// Row indices are 32 bits wide, signed in `expert_cumsum`.
pub(crate) fn row_count(argument: &'static str, rows: usize) -> Result<u32, Error> {
    i32::try_from(rows).map(i32::cast_unsigned).map_err(|_| Error::TooManyRows { argument, found: rows })
}

/// `found / size`, if it is a whole number.
fn rows_of(argument: &'static str, found: usize, of: &'static str, size: usize) -> Result<usize, Error> {
    if !found.is_multiple_of(size) {
        return Err(Error::Rows { argument, of, expected: size, found });
    }
    Ok(found.checked_div(size).unwrap_or(0))
}

pub(crate) fn check_shape(argument: &'static str, expected: &[usize], found: &[usize]) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Shape { argument, expected: expected.to_vec(), found: found.to_vec() })
}

pub(crate) fn check_len(argument: &'static str, expected: &[usize], found: usize) -> Result<(), Error> {
    match expected.iter().try_fold(1usize, |product, &size| product.checked_mul(size)) {
        Some(length) if length == found => Ok(()),
        _ => Err(Error::Length { argument, expected: expected.to_vec(), found }),
    }
}

/// The gate and up weights of one expert as one row-major tensor `[2I, H]` (`gate_up_proj`): I rows of gate, then I of
/// up.
#[derive(Clone, Copy, Debug)]
pub enum GateUp<'a> {
    /// F32 values.
    F32(&'a [f32]),
    /// BF16 values.
    Bf16(&'a [bf16]),
    /// E4M3 codes with one F32 multiplier per block, `[2I / 128, ceil(H / 128)]`.
    Fp8Block {
        /// The codes.
        codes: &'a [F8E4M3],
        /// The multipliers.
        scales: &'a [f32],
    },
    /// E4M3 codes with one E8M0 scale per 32 values along H, `[2I, ceil(H / 32)]`.
    Mxfp8 {
        /// The codes.
        codes: &'a [F8E4M3],
        /// The scales.
        scales: &'a [E8M0],
    },
}

/// Cuts a fused weight into gate and up, each `[I, H]` and used in place.
///
/// # Errors
/// [`Error::Length`] where values or scales do not have the fused shape; [`Error::SharedBlocks`] for FP8 blocks when I
/// is no multiple of 128, because gate and up would then share a row of blocks.
pub fn gate_up_halves<'a>(
    intermediate: usize,
    hidden: usize,
    gate_up: GateUp<'a>,
) -> Result<(WeightRef<'a>, WeightRef<'a>), Error> {
    fn halves<'a, T>(
        argument: &'static str,
        values: &'a [T],
        rows: usize,
        columns: usize,
    ) -> Result<[&'a [T]; 2], Error> {
        check_len(argument, &[2, rows, columns], values.len())?;
        let (gate, up) = values.split_at(values.len() / 2);
        Ok([gate, up])
    }
    let weight = match gate_up {
        GateUp::F32(values) => {
            halves("gate_up", values, intermediate, hidden)?.map(|half| WeightRef::f32(intermediate, hidden, half))
        }
        GateUp::Bf16(values) => {
            halves("gate_up", values, intermediate, hidden)?.map(|half| WeightRef::bf16(intermediate, hidden, half))
        }
        GateUp::Fp8Block { codes, scales } => {
            if !intermediate.is_multiple_of(BLOCK) {
                return Err(Error::SharedBlocks { intermediate });
            }
            let [gate, up] = halves("gate_up", codes, intermediate, hidden)?;
            let [of_gate, of_up] = halves("gate_up scales", scales, intermediate / BLOCK, hidden.div_ceil(BLOCK))?;
            [(gate, of_gate), (up, of_up)]
                .map(|(codes, scales)| WeightRef::fp8_block(intermediate, hidden, codes, scales))
        }
        GateUp::Mxfp8 { codes, scales } => {
            let [gate, up] = halves("gate_up", codes, intermediate, hidden)?;
            let [of_gate, of_up] = halves("gate_up scales", scales, intermediate, hidden.div_ceil(MX_GROUP))?;
            [(gate, of_gate), (up, of_up)].map(|(codes, scales)| WeightRef::mxfp8(intermediate, hidden, codes, scales))
        }
    };
    let [gate, up] = weight;
    Ok((gate?, up?))
}

/// Rows in the order of the experts they belong to.
#[derive(Debug, Default)]
pub(crate) struct Routing {
    /// The row of the tokens, and of the output, of each assignment.
    pub(crate) rows: Vec<u32>,
    /// The experts that have assignments, ascending, and which.
    pub(crate) experts: Vec<(usize, Range<usize>)>,
    /// The choice that each assignment is, where rows were chosen for.
    choices: Vec<usize>,
}

impl Routing {
    /// Rows that lie in this order already.
    pub(crate) fn sorted(experts: usize, rows: u32, expert_cumsum: &[i32]) -> Result<Self, Error> {
        check_len("expert_cumsum", &[experts.saturating_add(1)], expert_cumsum.len())?;
        if let Some(&found) = expert_cumsum.first().filter(|first| **first != 0) {
            return Err(Error::CumsumStart { found });
        }
        let mut active = Vec::new();
        for (expert, range) in expert_cumsum.windows(2).enumerate() {
            let (begin, end) = (range[0], range[1]);
            if end < begin {
                return Err(Error::CumsumDecreases { expert, begin, end });
            }
            if end > begin {
                // Neither is negative, since the bounds ascend from zero.
                active.push((expert, begin as usize..end as usize));
            }
        }
        if let Some(&found) = expert_cumsum.last().filter(|last| last.cast_unsigned() != rows) {
            return Err(Error::CumsumEnd { expected: rows as usize, found });
        }
        Ok(Self { rows: (0..rows).collect(), experts: active, choices: Vec::new() })
    }

    /// Sorts the choices `[T, k]` by expert, tokens ascending within each; returns the weights in the same order.
    pub(crate) fn by_choice(
        experts: usize,
        tokens: u32,
        topk_ids: &[u32],
        topk_weights: &[f32],
    ) -> Result<(Self, Vec<f32>), Error> {
        let (mut routing, mut weights) = (Self::default(), Vec::new());
        routing.choose(experts, tokens, topk_ids, topk_weights, &mut weights)?;
        Ok((routing, weights))
    }

    /// As [`by_choice`](Self::by_choice), in the memory that is there where it is enough.
    pub(crate) fn choose(
        &mut self,
        experts: usize,
        tokens: u32,
        topk_ids: &[u32],
        topk_weights: &[f32],
        weights: &mut Vec<f32>,
    ) -> Result<(), Error> {
        let k = rows_of("topk_ids", topk_ids.len(), "number of tokens", tokens as usize)?;
        if tokens > 0 && !(1..=experts).contains(&k) {
            return Err(Error::TopK { experts, found: k });
        }
        check_len("topk_weights", &[tokens as usize, k], topk_weights.len())?;
        if let Some(choice) = topk_ids.iter().position(|&id| id as usize >= experts) {
            return Err(Error::ExpertId { token: choice / k, experts, found: topk_ids[choice] });
        }

        let Self { rows, experts: active, choices } = self;
        choices.clear();
        choices.extend(0..topk_ids.len());
        // Within an expert, choices stay in the order of tokens.
        choices.sort_unstable_by_key(|&choice| (topk_ids[choice], choice));
        active.clear();
        for same_expert in choices.chunk_by(|&a, &b| topk_ids[a] == topk_ids[b]) {
            let id = topk_ids[same_expert[0]];
            if let Some(twice) = same_expert.windows(2).find(|pair| pair[0] / k == pair[1] / k) {
                return Err(Error::DuplicateExpert { token: twice[0] / k, id });
            }
            let begin = active.last().map_or(0, |(_, range)| range.end);
            active.push((id as usize, begin..begin + same_expert.len()));
        }
        rows.clear();
        rows.extend(choices.iter().map(|&choice| (choice / k) as u32));
        weights.clear();
        weights.extend(choices.iter().map(|&choice| topk_weights[choice]));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_an_index_cannot_count_are_refused() {
        let most = i32::MAX as usize;
        assert_eq!(row_count("tokens", most).unwrap(), i32::MAX as u32);
        let error = row_count("tokens", most + 1).unwrap_err();
        assert_eq!(error.to_string(), "`tokens` has 2147483648 rows, expected at most 2147483647");
    }
}

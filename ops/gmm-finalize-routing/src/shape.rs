// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use crate::packed::PackedWeights;
use cpu_tiles::weights::MX_GROUP;
use cpu_tiles::{E8M0, F8E4M3, F8E5M2};
use half::bf16;
use std::fmt;
use std::ops::Range;
use zerocopy::IntoBytes;

/// Values along K that lie under one entry of a scale tensor: two groups of 32, each with its own scale.
pub(crate) const PACK: usize = 64;

/// The number format of FP8 codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// `float8_e4m3fn`.
    E4M3,
    /// `float8_e5m2`.
    E5M2,
}

impl Dtype {
    /// The name: `e4m3` or `e5m2`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::E4M3 => "e4m3",
            Self::E5M2 => "e5m2",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// FP8 codes; activations and weights of one call have the same format.
#[derive(Clone, Copy, Debug)]
pub enum Codes<'a> {
    /// `float8_e4m3fn`: no infinity, NaN is `0x7F` and `0xFF`.
    E4M3(&'a [F8E4M3]),
    /// `float8_e5m2`: infinities and NaNs as in IEEE 754.
    E5M2(&'a [F8E5M2]),
}

impl<'a> Codes<'a> {
    /// The number format.
    pub const fn dtype(self) -> Dtype {
        match self {
            Self::E4M3(_) => Dtype::E4M3,
            Self::E5M2(_) => Dtype::E5M2,
        }
    }

    /// The number of codes.
    pub const fn len(self) -> usize {
        match self {
            Self::E4M3(codes) => codes.len(),
            Self::E5M2(codes) => codes.len(),
        }
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Self::E4M3(codes) => codes.as_bytes(),
            Self::E5M2(codes) => codes.as_bytes(),
        }
    }

    /// The value of code `at`.
    pub(crate) fn value(self, at: usize) -> f32 {
        match self {
            Self::E4M3(codes) => codes[at].to_f32(),
            Self::E5M2(codes) => codes[at].to_f32(),
        }
    }
}

/// The sizes of the weights. The number of routed rows M is that of `row_index`, the number of rows of the output that of
/// `out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    /// Number of experts, E.
    pub experts: usize,
    /// Inputs of an expert, K: a multiple of 32.
    pub k: usize,
    /// Outputs of an expert, N.
    pub n: usize,
}

impl Dims {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let sizes = [("experts", self.experts), ("k", self.k), ("n", self.n)];
        if let Some((field, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(Error::ZeroSize { field });
        }
        if !self.k.is_multiple_of(MX_GROUP) {
            return Err(Error::ScaleGroups { k: self.k });
        }
        Ok(())
    }

    /// Scales along K, the unused one not counted.
    pub(crate) fn groups(&self) -> usize {
        self.k / MX_GROUP
    }

    /// Pairs of scales along K, SK.
    pub(crate) fn packs(&self) -> usize {
        self.k.div_ceil(PACK)
    }
}

/// The scales of the weights, E8M0: `[SK, N, 2]`, or `[N, SK, 2]` where the weights are transposed. SK = ceil(K / 64); the
/// scale of input `k` is entry `k / 64` of SK and `k / 32 % 2` of the last axis. With an odd number of groups of 32 the last
/// entry is not used, whatever it is.
#[derive(Clone, Copy, Debug)]
pub enum Scale<'a> {
    /// One tensor for all experts: the published operator.
    Shared(&'a [E8M0]),
    /// One tensor for each expert: a leading axis of length E.
    PerExpert(&'a [E8M0]),
}

/// The weights of all experts as a checkpoint holds them, row-major.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// `[E, K, N]`, or `[E, N, K]` where `transpose_x2` is set.
    pub x2: Codes<'a>,
    /// Whether the inputs of an output are contiguous: the layout `[out, in]` of a linear layer.
    pub transpose_x2: bool,
    /// Their scales.
    pub scale: Scale<'a>,
}

impl Weights<'_> {
    pub(crate) fn check(&self, dims: &Dims) -> Result<(), Error> {
        let &Dims { experts, k, n } = dims;
        let (matrix, scale) =
            if self.transpose_x2 { ([n, k], [n, dims.packs(), 2]) } else { ([k, n], [dims.packs(), n, 2]) };
        check_len("x2", &[experts, matrix[0], matrix[1]], self.x2.len())?;
        match self.scale {
            Scale::Shared(scales) => check_len("scale", &scale, scales.len()),
            Scale::PerExpert(scales) => check_len("scale", &[experts, scale[0], scale[1], scale[2]], scales.len()),
        }
    }

    /// The scale of `output` of an expert for the values `32 * group..` along K.
    pub(crate) fn scale(&self, dims: &Dims, expert: usize, output: usize, group: usize) -> E8M0 {
        let (pack, half) = (group / 2, group % 2);
        let at = if self.transpose_x2 { output * dims.packs() + pack } else { pack * dims.n + output };
        match self.scale {
            Scale::Shared(scales) => scales[at * 2 + half],
            Scale::PerExpert(scales) => scales[(expert * dims.n * dims.packs() + at) * 2 + half],
        }
    }

    /// Where the code of `output` and input `k` of an expert lies.
    pub(crate) fn at(&self, dims: &Dims, expert: usize, output: usize, k: usize) -> usize {
        let at = if self.transpose_x2 { output * dims.k + k } else { k * dims.n + output };
        expert * dims.k * dims.n + at
    }
}

/// The weights of a call: used in place, or packed before.
#[derive(Clone, Copy, Debug)]
pub enum Experts<'a> {
    /// As they are stored.
    InPlace(Weights<'a>),
    /// In panels, for repeated use.
    Packed(&'a PackedWeights),
}

impl<'a> From<Weights<'a>> for Experts<'a> {
    fn from(weights: Weights<'a>) -> Self {
        Self::InPlace(weights)
    }
}

impl<'a> From<&'a PackedWeights> for Experts<'a> {
    fn from(weights: &'a PackedWeights) -> Self {
        Self::Packed(weights)
    }
}

impl Experts<'_> {
    fn check(&self, dims: &Dims) -> Result<(), Error> {
        match self {
            Self::InPlace(weights) => weights.check(dims),
            Self::Packed(weights) => {
                let shape = |dims: &Dims| vec![dims.experts, dims.k, dims.n];
                if weights.dims() != *dims {
                    return Err(Error::Shape { argument: "x2", expected: shape(dims), found: shape(&weights.dims()) });
                }
                Ok(())
            }
        }
    }

    fn dtype(&self) -> Dtype {
        match self {
            Self::InPlace(weights) => weights.x2.dtype(),
            Self::Packed(weights) => weights.dtype(),
        }
    }
}

/// Which rows belong to which expert: each has the rows that follow those of the expert before. An expert may have none.
#[derive(Clone, Copy, Debug)]
pub enum GroupList<'a> {
    /// Type 0: where the rows of each expert end, `[E]`.
    Ends(&'a [i64]),
    /// Type 1: how many rows each expert has, `[E]`.
    Counts(&'a [i64]),
}

impl<'a> GroupList<'a> {
    /// The list of the published `group_list_type`, 0 or 1.
    ///
    /// # Errors
    /// [`Error::GroupListType`] for any other.
    pub fn new(group_list_type: i64, group_list: &'a [i64]) -> Result<Self, Error> {
        match group_list_type {
            0 => Ok(Self::Ends(group_list)),
            1 => Ok(Self::Counts(group_list)),
            found => Err(Error::GroupListType { found }),
        }
    }

    /// The experts that have rows, ascending, and which.
    fn ranges(self, experts: usize, rows: usize) -> Result<Vec<(usize, Range<usize>)>, Error> {
        let (Self::Ends(list) | Self::Counts(list)) = self;
        check_len("group_list", &[experts], list.len())?;
        let mut begin = 0;
        let mut ranges = Vec::new();
        for (expert, &entry) in list.iter().enumerate() {
            let end = match self {
                Self::Ends(_) if entry < begin as i64 => {
                    return Err(Error::GroupDecreases { expert, begin, end: entry });
                }
                Self::Ends(_) => entry,
                Self::Counts(_) if entry < 0 => return Err(Error::GroupCount { expert, found: entry }),
                Self::Counts(_) => entry.saturating_add(begin as i64),
            };
            // Neither bound is negative here.
            match usize::try_from(end) {
                Ok(end) if end <= rows => {
                    if end > begin {
                        ranges.push((expert, begin..end));
                    }
                    begin = end;
                }
                _ => return Err(Error::GroupBeyond { expert, rows, end }),
            }
        }
        Ok(ranges)
    }
}

/// What the output of the experts that every token passes adds.
#[derive(Clone, Copy, Debug)]
pub struct SharedInput<'a> {
    /// `[rows, N]`.
    pub values: &'a [bf16],
    /// The row of the output that the first one is added to.
    pub offset: usize,
    /// What they are multiplied by.
    pub weight: f32,
}

/// The arguments of a call besides the weights. M is the number of entries of `row_index`.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Activations `[M, K]`, the rows of each expert side by side.
    pub x1: Codes<'a>,
    /// Their scales, `[M, SK, 2]`, laid out along K as those of the weights ([`Scale`]).
    pub pertoken_scale: &'a [E8M0],
    /// Which rows belong to which expert. Rows beyond its end are not multiplied, and nothing of them is read.
    pub group_list: GroupList<'a>,
    /// `[M]`: the row of the output that each row is added to.
    pub row_index: &'a [i64],
    /// `[M]`: what the product of each row is multiplied by; nothing where there is none.
    pub logit: Option<&'a [f32]>,
    /// Added after all products.
    pub shared_input: Option<SharedInput<'a>>,
}

/// What the checks of a call find out.
pub(crate) struct Plan {
    /// Rows of the output.
    pub(crate) batch: usize,
    /// The experts that have rows, ascending, and which.
    pub(crate) groups: Vec<(usize, Range<usize>)>,
    /// The row of the output for each row of `x1` that has an expert.
    pub(crate) targets: Vec<u32>,
}

/// Every check of a call.
pub(crate) fn check(dims: &Dims, experts: Experts<'_>, inputs: &Inputs<'_>, out: usize) -> Result<Plan, Error> {
    dims.check()?;
    let rows = row_count(inputs.row_index.len())?;
    check_len("x1", &[rows, dims.k], inputs.x1.len())?;
    check_len("pertoken_scale", &[rows, dims.packs(), 2], inputs.pertoken_scale.len())?;
    if let Some(logit) = inputs.logit {
        check_len("logit", &[rows], logit.len())?;
    }
    experts.check(dims)?;
    if inputs.x1.dtype() != experts.dtype() {
        return Err(Error::Dtypes { x1: inputs.x1.dtype(), x2: experts.dtype() });
    }
    let groups = inputs.group_list.ranges(dims.experts, rows)?;
    let batch = rows_of("out", dims.n, out)?;
    let covered = groups.last().map_or(0, |(_, rows)| rows.end);
    let target = |(row, &found): (usize, &i64)| match u32::try_from(found) {
        Ok(target) if (target as usize) < batch => Ok(target),
        _ => Err(Error::RowIndex { row, batch, found }),
    };
    let targets = inputs.row_index[..covered].iter().enumerate().map(target).collect::<Result<_, _>>()?;
    if let Some(SharedInput { values, offset, .. }) = inputs.shared_input {
        let rows = rows_of("shared_input", dims.n, values.len())?;
        if offset.checked_add(rows).is_none_or(|end| end > batch) {
            return Err(Error::SharedRows { offset, rows, batch });
        }
    }
    Ok(Plan { batch, groups, targets })
}

/// Tiles count rows in 32 bits.
pub(crate) fn row_count(rows: usize) -> Result<usize, Error> {
    i32::try_from(rows).map(|_| rows).map_err(|_| Error::TooManyRows { found: rows })
}

/// `found / n`, if it is a whole number.
pub(crate) fn rows_of(argument: &'static str, n: usize, found: usize) -> Result<usize, Error> {
    if found.is_multiple_of(n) { Ok(found / n) } else { Err(Error::Rows { argument, n, found }) }
}

/// Checks that `argument` has as many elements as `shape` calls for.
pub(crate) fn check_len(argument: &'static str, shape: &[usize], found: usize) -> Result<(), Error> {
    match shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size)) {
        Some(expected) if expected == found => Ok(()),
        _ => Err(Error::Length { argument, expected: shape.to_vec(), found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_an_index_cannot_count_are_refused() {
        let most = i32::MAX as usize;
        assert_eq!(row_count(most).unwrap(), most);
        let error = row_count(most + 1).unwrap_err();
        assert_eq!(error.to_string(), "`row_index` has 2147483648 rows, expected at most 2147483647");
    }
}

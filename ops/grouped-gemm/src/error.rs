// SPDX-License-Identifier: MIT OR Apache-2.0

use cpu_tiles::ShapeError;
use std::fmt;

/// Why a call was refused. Nothing has been written then, unless memory ran out half-way ([`Error::Tiles`]).
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A size of [`MoeDims`](crate::MoeDims) is zero.
    ZeroSize {
        /// The field.
        field: &'static str,
    },
    /// A parameter of the activation is impossible.
    Parameter {
        /// The parameter.
        name: &'static str,
        /// The values it may have.
        expected: &'static str,
        /// The value it has.
        found: f32,
    },
    /// No activation has this name.
    UnknownActivation {
        /// The name that was asked for.
        name: String,
    },
    /// An environment variable has an impossible value.
    Knob {
        /// The variable.
        variable: &'static str,
        /// The values it may have.
        expected: &'static str,
        /// What it holds.
        found: String,
    },
    /// An array has the wrong shape.
    Shape {
        /// The argument.
        argument: &'static str,
        /// The shape it should have.
        expected: Vec<usize>,
        /// The shape it has.
        found: Vec<usize>,
    },
    /// A slice has not as many elements as its shape calls for.
    Length {
        /// The argument.
        argument: &'static str,
        /// The shape it should have.
        expected: Vec<usize>,
        /// The number of elements it has.
        found: usize,
    },
    /// A slice is no whole number of rows.
    Rows {
        /// The argument.
        argument: &'static str,
        /// The size that its number of elements should be a multiple of.
        of: &'static str,
        /// That size.
        expected: usize,
        /// The number of elements it has.
        found: usize,
    },
    /// There are more rows than row indices can count.
    TooManyRows {
        /// The argument.
        argument: &'static str,
        /// The number of rows it has.
        found: usize,
    },
    /// The number of experts differs from that of the dims.
    ExpertCount {
        /// The number of the dims.
        expected: usize,
        /// The number there are.
        found: usize,
    },
    /// A weight of an expert that has rows has the wrong shape.
    Weight {
        /// The expert.
        expert: usize,
        /// The weight: `gate`, `up` or `down`.
        weight: &'static str,
        /// The shape `[out, in]` it should have.
        expected: [usize; 2],
        /// The shape it has.
        found: [usize; 2],
    },
    /// Gate and up rows of a fused FP8 weight share a 128 x 128 block.
    SharedBlocks {
        /// The intermediate size.
        intermediate: usize,
    },
    /// `expert_cumsum` does not begin with zero.
    CumsumStart {
        /// What it begins with.
        found: i32,
    },
    /// `expert_cumsum` decreases.
    CumsumDecreases {
        /// The expert whose range ends before it begins.
        expert: usize,
        /// The begin.
        begin: i32,
        /// The end.
        end: i32,
    },
    /// `expert_cumsum` does not end with the number of rows.
    CumsumEnd {
        /// The number of rows.
        expected: usize,
        /// What it ends with.
        found: i32,
    },
    /// The number of experts per token is not possible.
    TopK {
        /// The number of experts.
        experts: usize,
        /// The experts per token.
        found: usize,
    },
    /// A token is routed to an expert that does not exist.
    ExpertId {
        /// The token.
        token: usize,
        /// The number of experts.
        experts: usize,
        /// The id.
        found: u32,
    },
    /// A token is routed to one expert twice.
    DuplicateExpert {
        /// The token.
        token: usize,
        /// The id.
        id: u32,
    },
    /// There is no kernel for this architecture.
    #[cfg(feature = "npu")]
    Architecture {
        /// The architecture.
        found: String,
    },
    /// A size is more than the kernel can address.
    #[cfg(feature = "npu")]
    DeviceSize {
        /// The field of the dims.
        field: &'static str,
        /// The most it can be.
        most: u32,
        /// What it is.
        found: usize,
    },
    /// The size of a tile is impossible.
    Tile {
        /// The knob.
        knob: &'static str,
        /// What it should be a multiple of.
        of: u32,
        /// What it is.
        found: u32,
    },
    /// Tiles do not fit a memory of a core.
    #[cfg(feature = "npu")]
    Budget {
        /// The knob that decides it.
        knob: &'static str,
        /// The memory.
        memory: &'static str,
        /// Bytes that are needed.
        bytes: u32,
        /// Bytes there are.
        capacity: u32,
    },
    /// FP8 weights have scales of two kinds.
    #[cfg(feature = "npu")]
    MixedScales {
        /// The expert whose scales are of another kind than the first one's.
        expert: usize,
        /// The weight: `gate`, `up` or `down`.
        weight: &'static str,
    },
    /// The weights of a launch are of another kind than its plan is made for, or than this launch takes.
    #[cfg(feature = "npu")]
    WeightKind {
        /// What the plan is made for.
        expected: &'static str,
        /// What they are.
        found: &'static str,
    },
    /// A launch has more rows than its plan is made for.
    #[cfg(feature = "npu")]
    PlanRows {
        /// The most rows of the plan.
        most: usize,
        /// The rows of the launch.
        found: usize,
    },
    /// The device failed or refused.
    #[cfg(feature = "npu")]
    Device(ascend_rt::Error),
    /// The tiles ran out of memory.
    Tiles(ShapeError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroSize { field } => write!(f, "`dims.{field}` is 0, expected at least 1"),
            Self::Parameter { name, expected, found } => {
                write!(f, "`dims.activation`: {name} is {found}, expected {expected}")
            }
            Self::UnknownActivation { name } => {
                write!(f, "activation is `{name}`, expected `silu` or `swigluoai`")
            }
            Self::Knob { variable, expected, found } => {
                write!(f, "environment variable {variable} is `{found}`, expected {expected}")
            }
            Self::Shape { argument, expected, found } => {
                write!(f, "`{argument}` has shape {found:?}, expected {expected:?}")
            }
            Self::Length { argument, expected, found } => {
                write!(f, "`{argument}` has {found} elements, expected those of the shape {expected:?}")
            }
            Self::Rows { argument, of, expected, found } => {
                write!(f, "`{argument}` has {found} elements, expected a multiple of {expected}, the {of}")
            }
            Self::TooManyRows { argument, found } => {
                write!(f, "`{argument}` has {found} rows, expected at most {}", i32::MAX)
            }
            Self::ExpertCount { expected, found } => {
                write!(f, "`experts` has {found} experts, expected {expected}, as `dims.experts` says")
            }
            Self::Weight { expert, weight, expected, found } => {
                write!(f, "`experts[{expert}].{weight}` has shape {found:?}, expected {expected:?}")
            }
            Self::SharedBlocks { intermediate } => {
                write!(
                    f,
                    "`gate_up` is FP8 with 128 x 128 blocks and intermediate size {intermediate}, expected a multiple of 128"
                )
            }
            Self::CumsumStart { found } => write!(f, "`expert_cumsum` begins with {found}, expected 0"),
            Self::CumsumDecreases { expert, begin, end } => {
                write!(f, "`expert_cumsum` gives expert {expert} the rows {begin}..{end}, expected no decrease")
            }
            Self::CumsumEnd { expected, found } => {
                write!(f, "`expert_cumsum` ends with {found}, expected {expected}, the number of tokens")
            }
            Self::TopK { experts, found } => {
                write!(f, "`topk_ids` has {found} experts per token, expected 1 to {experts}")
            }
            Self::ExpertId { token, experts, found } => {
                write!(f, "`topk_ids` routes token {token} to expert {found}, expected less than {experts}")
            }
            Self::DuplicateExpert { token, id } => {
                write!(f, "`topk_ids` routes token {token} to expert {id} more than once, expected distinct experts")
            }
            #[cfg(feature = "npu")]
            Self::Architecture { found } => {
                write!(f, "the device has the architecture {found}, expected dav-2201 or dav-3510")
            }
            #[cfg(feature = "npu")]
            Self::DeviceSize { field, most, found } => {
                write!(f, "`dims.{field}` is {found}, expected at most {most} on a device")
            }
            Self::Tile { knob, of, found } => write!(f, "{knob} is {found}, expected a positive multiple of {of}"),
            #[cfg(feature = "npu")]
            Self::Budget { knob, memory, bytes, capacity } => {
                write!(f, "{knob} is too large: {memory} would take {bytes} bytes, expected at most {capacity}")
            }
            #[cfg(feature = "npu")]
            Self::MixedScales { expert, weight } => {
                write!(
                    f,
                    "`experts[{expert}].{weight}` has scales of another kind, expected those of `experts[0].gate`"
                )
            }
            #[cfg(feature = "npu")]
            Self::WeightKind { expected, found } => write!(f, "`weights` are {found}, expected {expected}"),
            #[cfg(feature = "npu")]
            Self::PlanRows { most, found } => {
                write!(f, "`result` has {found} rows, expected at most {most}, those of the plan")
            }
            #[cfg(feature = "npu")]
            Self::Device(error) => write!(f, "the device failed: {error}"),
            Self::Tiles(error) => write!(f, "the CPU tiles failed: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Tiles(error) => Some(error),
            #[cfg(feature = "npu")]
            Self::Device(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ShapeError> for Error {
    fn from(error: ShapeError) -> Self {
        Self::Tiles(error)
    }
}

#[cfg(feature = "npu")]
impl From<ascend_rt::Error> for Error {
    fn from(error: ascend_rt::Error) -> Self {
        Self::Device(error)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::shape::Dtype;
use cpu_tiles::ShapeError;
use std::fmt;

/// Why a call was refused. Nothing has been written then, unless memory ran out half-way ([`Error::Tiles`]).
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A size of [`Dims`](crate::Dims) is zero.
    ZeroSize {
        /// The field.
        field: &'static str,
    },
    /// K is no multiple of the 32 values that share a scale.
    ScaleGroups {
        /// K.
        k: usize,
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
    /// A slice is no whole number of rows of N.
    Rows {
        /// The argument.
        argument: &'static str,
        /// N.
        n: usize,
        /// The number of elements it has.
        found: usize,
    },
    /// There are more rows than row indices can count.
    TooManyRows {
        /// The number of rows.
        found: usize,
    },
    /// Activations and weights have different number formats.
    Dtypes {
        /// That of `x1`.
        x1: Dtype,
        /// That of `x2`.
        x2: Dtype,
    },
    /// No group list has this type.
    GroupListType {
        /// The type that was asked for.
        found: i64,
    },
    /// A running end of `group_list` is less than the one before.
    GroupDecreases {
        /// The expert whose rows end before they begin.
        expert: usize,
        /// The begin.
        begin: usize,
        /// The end.
        end: i64,
    },
    /// A count of `group_list` is negative.
    GroupCount {
        /// The expert.
        expert: usize,
        /// The count.
        found: i64,
    },
    /// `group_list` reaches beyond the last row.
    GroupBeyond {
        /// The first expert whose rows do.
        expert: usize,
        /// The number of rows there are.
        rows: usize,
        /// Where the expert's rows end.
        end: i64,
    },
    /// An entry of `row_index` is no row of the output.
    RowIndex {
        /// The entry.
        row: usize,
        /// The number of rows of the output.
        batch: usize,
        /// What it holds.
        found: i64,
    },
    /// The rows of `shared_input` do not fit into the output where they should go.
    SharedRows {
        /// The first row of the output.
        offset: usize,
        /// The number of rows of `shared_input`.
        rows: usize,
        /// The number of rows of the output.
        batch: usize,
    },
    /// There is no kernel for the device.
    #[cfg(feature = "npu")]
    Architecture {
        /// The architecture.
        found: String,
    },
    /// A size is more than the kernel can address.
    #[cfg(feature = "npu")]
    DeviceSize {
        /// What has the size.
        field: &'static str,
        /// The most it can be.
        most: u32,
        /// What it is.
        found: usize,
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
    /// The CPU tiles ran out of memory.
    Tiles(ShapeError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroSize { field } => write!(f, "`dims.{field}` is 0, expected at least 1"),
            Self::ScaleGroups { k } => write!(f, "`dims.k` is {k}, expected a multiple of 32"),
            Self::Shape { argument, expected, found } => {
                write!(f, "`{argument}` has shape {found:?}, expected {expected:?}")
            }
            Self::Length { argument, expected, found } => {
                write!(f, "`{argument}` has {found} elements, expected those of the shape {expected:?}")
            }
            Self::Rows { argument, n, found } => {
                write!(f, "`{argument}` has {found} elements, expected a multiple of {n}, which is N")
            }
            Self::TooManyRows { found } => {
                write!(f, "`row_index` has {found} rows, expected at most {}", i32::MAX)
            }
            Self::Dtypes { x1, x2 } => write!(f, "`x2` has the dtype {x2}, expected {x1}, that of `x1`"),
            Self::GroupListType { found } => {
                write!(f, "group list type is {found}, expected 0 (running ends) or 1 (counts)")
            }
            Self::GroupDecreases { expert, begin, end } => {
                write!(f, "`group_list` gives expert {expert} the rows {begin}..{end}, expected no decrease")
            }
            Self::GroupCount { expert, found } => {
                write!(f, "`group_list` gives expert {expert} the count {found}, expected at least 0")
            }
            Self::GroupBeyond { expert, rows, end } => {
                write!(f, "`group_list` gives expert {expert} rows up to {end}, expected at most {rows}, which is M")
            }
            Self::RowIndex { row, batch, found } => {
                write!(f, "`row_index[{row}]` is {found}, expected at least 0 and less than {batch}, the rows of `out`")
            }
            Self::SharedRows { offset, rows, batch } => {
                write!(
                    f,
                    "`shared_input` has {rows} rows at offset {offset}, expected an end by {batch}, the rows of `out`"
                )
            }
            #[cfg(feature = "npu")]
            Self::Architecture { found } => {
                write!(f, "the device has the architecture {found}, expected dav-2201 or dav-3510")
            }
            #[cfg(feature = "npu")]
            Self::DeviceSize { field, most, found } => {
                write!(f, "`{field}` is {found}, expected at most {most} on a device")
            }
            #[cfg(feature = "npu")]
            Self::PlanRows { most, found } => {
                write!(f, "`row_index` has {found} rows, expected at most {most}, those of the plan")
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

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Tiles(error.into())
    }
}

#[cfg(feature = "npu")]
impl From<ascend_rt::Error> for Error {
    fn from(error: ascend_rt::Error) -> Self {
        Self::Device(error)
    }
}

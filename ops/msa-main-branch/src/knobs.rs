// SPDX-License-Identifier: MIT OR Apache-2.0

//! Environment variables of the published operator, typed.
//!
//! They are read by [`MainBranchConfig::build`](crate::MainBranchConfig::build), not at load, and never by the operator
//! itself.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// The number format that the factory's operator casts queries, keys and values to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// No cast.
    F32,
    /// IEEE half precision.
    F16,
    /// BF16.
    Bf16,
}

impl Dtype {
    const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// The name: `fp32`, `fp16` or `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "fp32",
            Self::F16 => "fp16",
            Self::Bf16 => "bf16",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dtype {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or(())
    }
}

/// An environment variable with a value of type `T`.
pub struct Knob<T> {
    /// The name of the variable.
    pub name: &'static str,
    /// What holds where the variable is unset or empty.
    pub default: T,
    /// The values it may have, in words.
    pub expected: &'static str,
    /// What it means.
    pub doc: &'static str,
    is_possible: fn(&T) -> bool,
}

const COUNT: &str = "a positive whole number";

fn is_positive(count: &usize) -> bool {
    *count > 0
}

/// `MSA_MAX_N`.
pub static MAX_N: Knob<usize> = Knob {
    name: "MSA_MAX_N",
    default: 2048,
    expected: COUNT,
    doc: "most queries of a call, a multiple of the block; `max_n` of the configuration wins over it",
    is_possible: is_positive,
};

/// `MSA_NTILE`.
pub static NTILE: Knob<usize> = Knob {
    name: "MSA_NTILE",
    default: 512,
    expected: COUNT,
    doc: "keys of a step of the online softmax on an NPU, a divisor of topk times block; the CPU takes a block per step",
    is_possible: is_positive,
};

/// `MSA_NQ_TILE`.
pub static NQ_TILE: Knob<usize> = Knob {
    name: "MSA_NQ_TILE",
    default: 128,
    expected: COUNT,
    doc: "most queries of a tile; where it is unset the CPU takes as many as its cache holds; without effect on results",
    is_possible: is_positive,
};

/// `MSA_DTYPE`.
pub static DTYPE: Knob<Dtype> = Knob {
    name: "MSA_DTYPE",
    default: Dtype::F32,
    expected: "fp32, fp16 or bf16",
    doc: "number format that queries, keys and values are cast to",
    is_possible: |_| true,
};

/// A knob in words, for a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The name of the variable.
    pub name: &'static str,
    /// What holds where the variable is unset or empty.
    pub default: String,
    /// The values it may have.
    pub expected: &'static str,
    /// What it means.
    pub doc: &'static str,
}

/// All knobs of this crate.
pub fn all() -> [Listing; 4] {
    [MAX_N.listing(), NTILE.listing(), NQ_TILE.listing(), DTYPE.listing()]
}

impl<T: FromStr> Knob<T> {
    /// The value of the variable now; `None` where it is unset or empty.
    ///
    /// # Errors
    /// [`Error::Knob`] where it is no such value or an impossible one.
    pub fn value(&self) -> Result<Option<T>, Error> {
        match std::env::var_os(self.name) {
            Some(text) if !text.is_empty() => self.parse(&text.to_string_lossy()).map(Some),
            _ => Ok(None),
        }
    }

    /// The value that a text means.
    ///
    /// # Errors
    /// [`Error::Knob`] where it is no such value or an impossible one.
    pub fn parse(&self, text: &str) -> Result<T, Error> {
        let value = text.trim().parse().ok().filter(self.is_possible);
        value.ok_or_else(|| self.refuse(text.to_owned(), self.expected.to_owned()))
    }
}

impl<T> Knob<T> {
    pub(crate) fn refuse(&self, found: String, expected: String) -> Error {
        Error::Knob { variable: self.name, expected, found }
    }
}

impl<T: fmt::Display> Knob<T> {
    fn listing(&self) -> Listing {
        let Self { name, default, expected, doc, .. } = self;
        Listing { name, default: default.to_string(), expected, doc }
    }
}

impl<T: fmt::Display> fmt::Debug for Knob<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Knob({}, default {})", self.name, self.default)
    }
}

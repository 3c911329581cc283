// SPDX-License-Identifier: MIT OR Apache-2.0

//! Environment variables of the published operator, typed.
//!
//! They are read when a function here is called, not at load, and never by the operator itself: [`Activation`] and
//! `npu::Tiles` carry its parameters, and [`with_knobs`] and `npu::Tiles::from_env` are what a program calls to let the
//! environment have its say.

use crate::error::Error;
use crate::shape::{ALPHAS, Activation, Domain, LIMITS};
use std::fmt;

/// An environment variable with a number.
pub struct Knob {
    /// The name of the variable.
    pub name: &'static str,
    /// What holds where the variable is unset or empty.
    pub default: f32,
    /// What it means.
    pub doc: &'static str,
    domain: Domain,
}

/// `PYPTO_SWIGLU_ALPHA`.
pub static SWIGLU_ALPHA: Knob = Knob {
    name: "PYPTO_SWIGLU_ALPHA",
    default: 1.702,
    doc: "alpha of the activation swigluoai, the factor inside the sigmoid",
    domain: ALPHAS,
};

/// `PYPTO_SWIGLU_LIMIT`.
pub static SWIGLU_LIMIT: Knob = Knob {
    name: "PYPTO_SWIGLU_LIMIT",
    default: 7.0,
    doc: "limit of the activation swigluoai: clamps the gate from above and up on both sides",
    domain: LIMITS,
};

/// All knobs of this crate, for a listing.
pub static ALL: [&Knob; 2] = [&SWIGLU_ALPHA, &SWIGLU_LIMIT];

impl Knob {
    /// The values it may have, in words.
    pub fn expected(&self) -> &'static str {
        self.domain.0
    }

    /// The value of the variable now; `None` where it is unset or empty.
    ///
    /// # Errors
    /// [`Error::Knob`] where it is not a number or an impossible one.
    pub fn value(&self) -> Result<Option<f32>, Error> {
        match std::env::var_os(self.name) {
            Some(text) if !text.is_empty() => self.parse(&text.to_string_lossy()).map(Some),
            _ => Ok(None),
        }
    }

    /// The value that a text means.
    ///
    /// # Errors
    /// [`Error::Knob`] where it is not a number or an impossible one.
    pub fn parse(&self, text: &str) -> Result<f32, Error> {
        let (expected, is_possible) = self.domain;
        text.trim().parse().ok().filter(|value| is_possible(*value)).ok_or_else(|| Error::Knob {
            variable: self.name,
            expected,
            found: text.to_owned(),
        })
    }
}

/// An environment variable with the size of a tile on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileKnob {
    /// The name of the variable.
    pub name: &'static str,
    /// What holds where the variable is unset or empty.
    pub default: u32,
    /// What a value is a multiple of.
    pub of: u32,
    /// What it means.
    pub doc: &'static str,
}

/// The sizes of tiles. What a chip has room for is checked when a plan is made.
pub static TILES: [TileKnob; 5] = [
    TileKnob {
        name: "PYPTO_MM1_N",
        default: 256,
        of: 64,
        doc: "columns of a tile of the first product, gate and up together",
    },
    TileKnob { name: "PYPTO_MM1_K", default: 128, of: 64, doc: "depth of its stages" },
    TileKnob { name: "PYPTO_MM2_N", default: 256, of: 32, doc: "columns of a tile of the second product" },
    TileKnob { name: "PYPTO_MM2_K", default: 128, of: 64, doc: "depth of its stages" },
    TileKnob {
        name: "PYPTO_VEC_TILE",
        default: 128,
        of: 16,
        doc: "columns of a slice of the activation, of which there are 32 rows",
    },
];

impl TileKnob {
    /// The value of the variable now, its default where it is unset or empty.
    ///
    /// # Errors
    /// [`Error::Knob`] where it is not a whole number, [`Error::Tile`] where it is not a positive multiple.
    pub fn value_or_default(&self) -> Result<u32, Error> {
        match std::env::var_os(self.name) {
            Some(text) if !text.is_empty() => self.parse(&text.to_string_lossy()),
            _ => Ok(self.default),
        }
    }

    /// The value that a text means.
    ///
    /// # Errors
    /// [`Error::Knob`] where it is not a whole number, [`Error::Tile`] where it is not a positive multiple.
    pub fn parse(&self, text: &str) -> Result<u32, Error> {
        let expected = "a whole number";
        let value = text.trim().parse();
        let value = value.map_err(|_| Error::Knob { variable: self.name, expected, found: text.to_owned() })?;
        self.check(value)
    }

    pub(crate) fn check(&self, found: u32) -> Result<u32, Error> {
        if found == 0 || !found.is_multiple_of(self.of) {
            return Err(Error::Tile { knob: self.name, of: self.of, found });
        }
        Ok(found)
    }
}

impl fmt::Debug for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Knob({}, default {})", self.name, self.default)
    }
}

/// The activation with the parameters that the environment sets in place of its own; parameters whose variable is
/// unset, and other activations, stay as they are.
///
/// # Errors
/// [`Error::Knob`], naming the variable.
pub fn with_knobs(activation: Activation) -> Result<Activation, Error> {
    let Activation::SwigluOai { alpha, limit } = activation else { return Ok(activation) };
    Ok(Activation::SwigluOai {
        alpha: SWIGLU_ALPHA.value()?.unwrap_or(alpha),
        limit: SWIGLU_LIMIT.value()?.unwrap_or(limit),
    })
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Environment variables of the published operator, typed.
//!
//! They are read when a function here is called, not at load, and never by the operator itself: [`Activation`] carries
//! its parameters, and [`with_knobs`] is what a program calls to let the environment have its say.

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

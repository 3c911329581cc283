// SPDX-License-Identifier: MIT OR Apache-2.0

//! The environment variable of the published operator, typed.
//!
//! It is read when a function here is called, not at load, and never by the operator itself: [`DecodeDims`] carries the
//! value, and [`with_knobs`] is what a program calls to let the environment have its say.

use crate::error::Error;
use crate::shape::DecodeDims;

/// An environment variable with a number of keys.
#[derive(Debug)]
pub struct Knob {
    /// The name of the variable.
    pub name: &'static str,
    /// What holds where the variable is unset or empty.
    pub default: usize,
    /// What it means.
    pub doc: &'static str,
}

/// `MSA_NTILE`.
pub static NTILE: Knob = Knob {
    name: "MSA_NTILE",
    default: 512,
    doc: "keys of a chunk of the sparse decode, a multiple of the block size; chunks are worked on side by side and merged in order",
};

/// All knobs of this crate, for a listing.
pub static ALL: [&Knob; 1] = [&NTILE];

impl Knob {
    /// The value of the variable now; `None` where it is unset or empty. `block` is the number of keys of a block.
    ///
    /// # Errors
    /// [`Error::Knob`] where it is no positive multiple of `block`.
    pub fn value(&self, block: usize) -> Result<Option<usize>, Error> {
        match std::env::var_os(self.name) {
            Some(text) if !text.is_empty() => self.parse(block, &text.to_string_lossy()).map(Some),
            _ => Ok(None),
        }
    }

    /// The value that a text means.
    ///
    /// # Errors
    /// [`Error::Knob`] where it is no positive multiple of `block`.
    pub fn parse(&self, block: usize, text: &str) -> Result<usize, Error> {
        let value = text.trim().parse().ok().filter(|value: &usize| *value > 0 && value.is_multiple_of(block));
        value.ok_or_else(|| Error::Knob {
            variable: self.name,
            expected: format!("a positive multiple of {block}, the keys of a block"),
            found: text.to_owned(),
        })
    }
}

/// The dims with the chunk size that the environment sets in place of their own; as they are where it sets none.
///
/// # Errors
/// [`Error::Knob`], naming the variable.
pub fn with_knobs(dims: DecodeDims) -> Result<DecodeDims, Error> {
    Ok(DecodeDims { chunk_keys: NTILE.value(dims.block)?.unwrap_or(dims.chunk_keys), ..dims })
}

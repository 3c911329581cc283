// SPDX-License-Identifier: MIT OR Apache-2.0

//! MXFP8 panels in memory of the caller, for operators that store their weights in a layout of their own or share scales.

use crate::formats::{E8M0, F8E4M3};
use crate::level::Level;
use crate::pack::{PanelFacts, has_nan};
use crate::vectorize::{Loops, vectorize};
use crate::weights::{Format, MX_GROUP, PANEL, PackedRef, Scales, ShapeError, check_len};
use zerocopy::IntoBytes;

impl<'a> PackedRef<'a> {
    /// MXFP8 panels: E4M3 codes `[ceil(n / 64)][k][64]` in the order of [`packed_index`](crate::weights::packed_index), and
    /// E8M0 scales `[ceil(n / 64)][ceil(k / 32)][64]`. `k` is a multiple of 4. `facts` are those of each panel
    /// ([`PackedRef::mxfp8_facts`]); those of other panels give wrong results.
    pub fn mxfp8(
        n: usize,
        k: usize,
        codes: &'a [F8E4M3],
        scales: &'a [E8M0],
        facts: &'a [PanelFacts],
    ) -> Result<Self, ShapeError> {
        let panels = n.div_ceil(PANEL);
        check_len("codes", codes.len(), &[panels, k, PANEL])?;
        check_len("scales", scales.len(), &[panels, k.div_ceil(MX_GROUP), PANEL])?;
        check_len("facts", facts.len(), &[panels])?;
        if !k.is_multiple_of(4) {
            return Err(ShapeError::Mismatch { what: "k modulo 4", expected: 0, found: k % 4 });
        }
        Ok(Self {
            n,
            k,
            format: Format::Mxfp8,
            stride: k * PANEL,
            data: codes.as_bytes(),
            scales: Scales::Mx(scales.as_bytes()),
            facts,
        })
    }

    /// What the kernels have to know of an MXFP8 panel with these codes and scales.
    pub fn mxfp8_facts(level: Level, codes: &[F8E4M3], scales: &[E8M0]) -> PanelFacts {
        struct Search<'a>(&'a [u8], &'a [u8]);
        impl Loops for Search<'_> {
            type Output = PanelFacts;
            #[inline(always)]
            fn run(self) -> PanelFacts {
                PanelFacts::new(has_nan(self.0), self.1)
            }
        }
        vectorize(level, Search(codes.as_bytes(), scales.as_bytes()))
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Images on the emulator of `ascend-rt`: loaded as modules, launched on streams and in graphs, with their faults as the
//! errors of a card.

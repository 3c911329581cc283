// SPDX-License-Identifier: MIT OR Apache-2.0

// A launch is a promise about the kernel.

use ascend_rt::{Kernel, Result, Stream, kernel};

kernel! {
    kernel Nothing("nothing") on vector {}
}

fn launch(stream: &Stream, kernel: &Kernel<Nothing>) -> Result<()> {
    kernel.launch(stream, 1, Nothing {})
}

fn main() {}

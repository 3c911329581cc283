// SPDX-License-Identifier: MIT OR Apache-2.0

// A tiling struct with a gap would differ between host and device.

ascend_rt::tiling! {
    struct Gap {
        small: u8,
        large: u64,
    }
}

fn main() {}

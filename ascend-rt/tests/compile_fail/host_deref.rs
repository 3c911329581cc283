// SPDX-License-Identifier: MIT OR Apache-2.0

// Device memory is not read in place.

use ascend_rt::DeviceBuffer;

fn first(buffer: &DeviceBuffer<f32>) -> f32 {
    buffer[0]
}

fn main() {}

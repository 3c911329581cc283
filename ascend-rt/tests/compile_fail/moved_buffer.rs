// SPDX-License-Identifier: MIT OR Apache-2.0

// A buffer that was given away is not there any more.

use ascend_rt::{DeviceBuffer, Result, Stream};

fn use_after_move(stream: &Stream, buffer: DeviceBuffer<u32>) -> Result<Vec<u32>> {
    drop(buffer);
    stream.download(&buffer)
}

fn main() {}

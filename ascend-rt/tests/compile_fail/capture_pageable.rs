// SPDX-License-Identifier: MIT OR Apache-2.0

// A capture copies from pinned memory only.

use ascend_rt::{CaptureMode, DeviceBuffer, Result, Stream};

fn copy(stream: &mut Stream, buffer: &mut DeviceBuffer<u32>) -> Result<()> {
    stream.capture(CaptureMode::default(), |capture| capture.upload_to(&[1, 2, 3], buffer))?;
    Ok(())
}

fn main() {}

// SPDX-License-Identifier: MIT OR Apache-2.0

// Nor can the stream be used beside its capture.

use ascend_rt::{CaptureMode, DeviceBuffer, Queue, Result, Stream};

fn read(stream: &mut Stream, buffer: &mut DeviceBuffer<u32>) -> Result<()> {
    stream.capture(CaptureMode::default(), |capture| {
        capture.fill(&mut *buffer, 0)?;
        stream.download(&*buffer)?;
        Ok(())
    })?;
    Ok(())
}

fn main() {}

// SPDX-License-Identifier: MIT OR Apache-2.0

// A capture ends with its closure, and does not get out of it.

use ascend_rt::{CaptureMode, CapturingStream, Result, Stream};

fn escape(stream: &mut Stream) -> Result<()> {
    let mut out: Option<&CapturingStream<'_>> = None;
    stream.capture(CaptureMode::default(), |capture| {
        out = Some(capture);
        Ok(())
    })?;
    drop(out);
    Ok(())
}

fn main() {}

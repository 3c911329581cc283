// SPDX-License-Identifier: MIT OR Apache-2.0

// A capture cannot be waited for: the work has not run.

use ascend_rt::{CaptureMode, Result, Stream};

fn wait(stream: &mut Stream) -> Result<()> {
    stream.capture(CaptureMode::default(), |capture| capture.synchronize())?;
    Ok(())
}

fn main() {}

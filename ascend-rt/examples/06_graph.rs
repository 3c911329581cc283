// SPDX-License-Identifier: MIT OR Apache-2.0

//! Record work once and replay it often.

use ascend_rt::{CaptureMode, Choice, DeviceBuffer, Queue, Result, Runtime};

/// One step. It takes any queue, so it runs at once on a stream and is recorded in a capture.
fn step(queue: &impl Queue, input: &DeviceBuffer<u32>, output: &mut DeviceBuffer<u32>) -> Result<()> {
    queue.fill(&mut *output, 0)?;
    queue.copy(input, output)
}

pub(crate) fn main() -> Result<()> {
    let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
    let mut stream = context.stream()?;
    let side = context.stream()?;

    let mut token = context.pinned::<u32>(8)?;
    let mut answer = context.pinned::<u32>(8)?;
    let mut graph = {
        let mut input = context.alloc::<u32>(8)?;
        let mut output = context.alloc::<u32>(8)?;
        let mut scratch = context.alloc::<u32>(8)?;
        // Run it once without a capture, so that everything is warm.
        stream.upload_pinned(&token, &mut input)?;
        step(&stream, &input, &mut output)?;
        stream.synchronize()?;

        // A capture has no `synchronize`, no `query` and no copy from ordinary memory: such code does not compile.
        stream.capture(CaptureMode::default(), |capture| {
            capture.upload_pinned(&token, &mut input)?;
            // Work beside the rest. The fork ends when the closure does, so it is always joined.
            capture.fork(&side, |capture| capture.fill(&mut scratch, 7))?;
            step(capture, &input, &mut output)?;
            capture.download_pinned(&output, &mut answer)
        })?
        // The buffers are dropped here. The graph has them.
    };
    println!("{} tasks: {}", graph.nodes(), graph.ops().collect::<Vec<_>>().join(", "));

    for value in 0..100 {
        token.write()?.fill(value);
        let done = graph.replay(&stream)?;
        done.synchronize()?;
        assert_eq!(*answer.read()?, [value; 8]);
    }
    println!("replayed a hundred times");
    Ok(())
}

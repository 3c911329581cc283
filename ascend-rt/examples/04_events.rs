// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events: know when work is done, and how long it took on the device.

use ascend_rt::{Choice, Queue, Result, Runtime};
use std::time::Duration;

pub(crate) fn main() -> Result<()> {
    let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
    let stream = context.stream()?;
    let mut buffer = context.alloc::<u8>(16 << 20)?;

    // Two events with time stamps around the work. Events without them have no time between them to ask for.
    let begin = stream.record_timed()?;
    stream.fill(&mut buffer, 1)?;
    let end = stream.record_timed()?;

    // Work is queued, not done. The host may look, wait for a while, or wait.
    println!("done already: {}", end.query()?);
    match end.synchronize_timeout(Duration::from_secs(60)) {
        Ok(()) => {}
        Err(error) if error.is_timeout() => println!("still running; the work goes on"),
        Err(error) => return Err(error),
    }
    end.synchronize()?;
    // On the emulator this is the virtual time of its cost model, the same in every run.
    println!("filling 16 MiB took {:?}", end.elapsed_since(&begin)?);

    // The host hears of it, too.
    let (send, receive) = std::sync::mpsc::channel();
    stream.fill(&mut buffer, 2)?;
    stream.host_func(move || {
        let _ = send.send("the second fill is done");
    })?;
    stream.synchronize()?;
    println!("{}", receive.recv().unwrap_or("nothing was said"));
    Ok(())
}

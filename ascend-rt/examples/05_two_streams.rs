// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two streams: work that may overlap, and work that may not.

use ascend_rt::host::{Executor, HostConfig};
use ascend_rt::{Choice, Queue, Result, Runtime};

pub(crate) fn main() -> Result<()> {
    // The emulator can run tasks in any order that the program allows. A missing wait would show for some seed.
    for seed in 0..20 {
        let config = HostConfig::new().executor(Executor::Seeded(seed));
        let context = Runtime::open(Choice::Host(config))?.device(0)?.isolated()?;
        let (load, work) = (context.stream()?, context.stream()?);

        let mut host = context.pinned::<u32>(1024)?;
        let mut device = context.alloc::<u32>(1024)?;
        let mut result = context.alloc::<u32>(1024)?;
        for step in 0..4 {
            host.write()?.fill(step);
            // The copy in one stream, the work on it in another. The buffers know who used them last, so `work` waits on
            // the device for the copy, and the next copy waits for the work. The host waits for nothing.
            load.upload_pinned(&host, &mut device)?;
            work.copy(&device, &mut result)?;
        }
        assert_eq!(work.download(&result)?, [3; 1024]);

        // What foreign code queues is not known to any buffer. There, events order.
        let event = load.record()?;
        work.wait(&event)?;
        work.synchronize()?;
    }
    println!("right in every order");
    Ok(())
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! What goes wrong, and how a program hears of it. The emulator makes things fail on purpose.

use ascend_rt::host::{Fault, HostConfig, HostKernel, KernelFault, ReportSlot};
use ascend_rt::kernel::{ArgLayout, CoreKind};
use ascend_rt::raw::Call;
use ascend_rt::{Blob, Choice, Error, ErrorKind, Module, Queue, Result, Runtime};

pub(crate) fn main() -> Result<()> {
    let slot = ReportSlot::new();
    let broken = HostKernel::per_block(ArgLayout::default(), CoreKind::Vector, |_| {
        Err(KernelFault::exception("read beyond the end"))
    });
    let config = HostConfig::new()
        .kernel("example", "broken", broken)
        .fault(Fault::call(Call::aclrtMalloc, 207001).nth(2))
        .report_to(&slot);
    let runtime = Runtime::open(Choice::Host(config))?;
    let context = runtime.device(0)?.isolated()?;
    let stream = context.stream()?;

    // A call that fails is an error of that call, with its code, its name and what to do.
    let mut buffer = context.alloc::<u8>(64)?;
    let error = refused(context.alloc::<u8>(64));
    assert!(error.is_oom());
    println!("{error}");

    // A kernel that fails is queued like any other. The failure is told when the host waits.
    let module = Module::load(&context, &[Blob::emulator("example")])?;
    let kernel = module.kernel_dyn("broken", ArgLayout::default(), CoreKind::Vector)?;
    // SAFETY: the kernel has no arguments, and touches no memory.
    unsafe { kernel.launch(&stream, 1, &[]) }?;
    let error = refused(stream.synchronize());
    assert_eq!(error.kind(), &ErrorKind::Exec);
    // With `#` the library's own message follows.
    println!("{error:#}");

    // From then on the context takes no more work, and says why. Results could only be wrong.
    let error = refused(stream.fill(&mut buffer, 0));
    assert_eq!(error.kind(), &ErrorKind::Poisoned);
    assert_eq!(error.first().map(Error::name), Some(Some("ACL_ERROR_RT_AICORE_EXCEPTION")));

    // Drop it all, and go on with a new context.
    drop((buffer, stream, kernel, module, context));
    let context = runtime.device(0)?.isolated()?;
    let stream = context.stream()?;
    assert_eq!(stream.download(&stream.upload(&[1, 2, 3])?)?, [1, 2, 3]);

    // The machine says what was left behind when it goes. Here that is nothing.
    drop((stream, context, runtime));
    println!("{}", slot.take().map_or_else(String::new, |report| report.to_string()));
    Ok(())
}

/// The error of something that must fail.
fn refused<T>(result: Result<T>) -> Error {
    match result {
        Err(error) => error,
        Ok(_) => unreachable!("it was to fail"),
    }
}

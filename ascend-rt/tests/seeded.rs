// SPDX-License-Identifier: MIT OR Apache-2.0

//! Unlucky orders: a program with a missing wait fails for some seed, a right one for none.

use crate::common::*;
use ascend_rt::Result;
use ascend_rt::host::{Executor, Fault};
use ascend_rt::raw::Call;

/// Two streams hand a buffer to each other. Foreign code does the second half, so that buffers know nothing of it, and the
/// program must wait by itself.
fn program(seed: u64, wait: bool) -> Result<bool> {
    let context = context_of(config().executor(Executor::Seeded(seed))).0;
    let kernels = Kernels::new(&context);
    let (one, two) = (context.stream()?, context.stream()?);
    let mut buffer = one.upload(&[0u32; 16])?;
    let mut copy = two.upload(&[0u32; 16])?;
    let raw = context.runtime().raw().clone();
    for value in 1..4 {
        kernels.set(&one, &mut buffer, value)?;
        if wait {
            let event = one.record()?;
            two.wait(&event)?;
        }
        {
            let _bound = context.bind()?;
            let (to, from) = (copy.address() as usize, buffer.address() as usize);
            // SAFETY: both are buffers of 64 bytes, which live until the streams are synchronised.
            let code = unsafe {
                raw.aclrtMemcpyAsync(
                    std::ptr::with_exposed_provenance_mut(to),
                    64,
                    std::ptr::with_exposed_provenance(from),
                    64,
                    ascend_rt::sys::ACL_MEMCPY_DEVICE_TO_DEVICE,
                    two.handle(),
                )
            };
            assert_eq!(code, 0);
        }
        if wait {
            let event = two.record()?;
            one.wait(&event)?;
        }
    }
    let right = two.download(&copy)? == [3; 16];
    one.synchronize()?;
    // The buffer is written here, too, so that its last use is known.
    copy.slice_mut(..)?;
    Ok(right)
}

#[test]
fn a_missing_wait_is_found_within_a_thousand_seeds() {
    let wrong = (0..1000).filter(|&seed| !program(seed, false).expect("it runs")).count();
    assert!(wrong > 0, "no seed found it");
}

#[test]
fn the_right_program_is_right_for_ten_thousand_seeds() {
    for seed in 0..10_000 {
        assert!(program(seed, true).expect("it runs"), "seed {seed}");
    }
}

#[test]
fn buffers_wait_without_being_told() {
    for seed in 0..1000 {
        let context = context_of(config().executor(Executor::Seeded(seed))).0;
        let kernels = Kernels::new(&context);
        let streams = [0; 3].map(|_| context.stream().expect("stream"));
        let mut buffers = [0; 3].map(|_| context.alloc::<u32>(4).expect("memory"));
        kernels.set(&streams[0], &mut buffers[0], 1).expect("set");
        let (first, rest) = buffers.split_at_mut(1);
        // Two readers, then a writer that must come after both.
        kernels.next(&streams[1], &first[0], &mut rest[0]).expect("next");
        kernels.next(&streams[2], &first[0], &mut rest[1]).expect("next");
        kernels.set(&streams[0], &mut buffers[0], 100).expect("set");
        assert_eq!(streams[0].download(&buffers[1]).expect("download"), [2; 4], "seed {seed}");
        assert_eq!(streams[0].download(&buffers[2]).expect("download"), [2; 4], "seed {seed}");
    }
}

#[test]
fn without_its_waits_the_crate_would_be_found_out() {
    // The same as above on a machine where waiting does nothing: some seed must show it, or the test above proves
    // nothing.
    let found = (0..1000).any(|seed| {
        let fault = Fault::call(Call::aclrtStreamWaitEvent, 0).always();
        let context = context_of(config().executor(Executor::Seeded(seed)).fault(fault)).0;
        let kernels = Kernels::new(&context);
        let streams = [0; 2].map(|_| context.stream().expect("stream"));
        let mut buffers = [0; 2].map(|_| streams[0].upload(&[0u32; 4]).expect("upload"));
        let [one, two] = &mut buffers;
        kernels.set(&streams[0], one, 1).expect("set");
        kernels.next(&streams[1], one, two).expect("next");
        streams[1].download(&buffers[1]).expect("download") != [2; 4]
    });
    assert!(found, "no seed showed that the waits matter");
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Allocation, accounts, copies, what is found wrong.

use crate::support::{ALL_EXECUTORS, Arg, Rig, acl};
use ascend_rt::host::{Chip, CoreKind, Executor, Fill, Host, HostConfig, HostKernel, MemoryUse, ReportSlot};
use ascend_rt::kernel::{ArgKind, ArgLayout};
use ascend_rt::raw::Call;
use ascend_rt::sys::*;
use std::ptr::{null_mut, without_provenance_mut};

fn usage(used: u64, peak: u64, count: u64, total: u64) -> MemoryUse {
    let mut value = MemoryUse::default();
    (value.used, value.peak, value.count, value.total) = (used, peak, count, total);
    value
}

fn try_malloc(rig: &Rig, bytes: usize) -> aclError {
    let mut pointer = null_mut();
    acl!(rig, aclrtMalloc(&mut pointer, bytes, ACL_MEM_MALLOC_NORMAL_ONLY))
}

#[test]
fn sizes_are_refused_rounded_limited_and_counted() {
    let rig = Rig::new(HostConfig::new().capacity(1024));
    rig.refused(try_malloc(&rig, 0), ACL_ERROR_RT_PARAM_INVALID, "0 bytes");
    let mut pointer = null_mut();
    let odd = aclrtMemMallocPolicy(9);
    rig.refused(acl!(rig, aclrtMalloc(&mut pointer, 8, odd)), ACL_ERROR_RT_PARAM_INVALID, "policy");
    rig.refused(acl!(rig, aclrtMalloc(null_mut(), 8, odd)), ACL_ERROR_RT_PARAM_INVALID, "null");
    for bytes in [1025, 1 << 40, usize::MAX, usize::MAX - 31, usize::MAX / 2] {
        rig.refused(try_malloc(&rig, bytes), ACL_ERROR_RT_MEMORY_ALLOCATION, "1024 free");
    }
    assert_eq!(rig.host.memory(0), usage(0, 0, 0, 0));
    let a = rig.malloc(1);
    let b = rig.malloc(33);
    assert_eq!(rig.host.memory(0), usage(64 + 96, 160, 2, 2));
    assert!(a.addr().is_multiple_of(64) && b.addr().is_multiple_of(64) && b.addr() > a.addr());
    let (mut free, mut total) = (0, 0);
    assert_eq!(acl!(rig, aclrtGetMemInfo(ACL_HBM_MEM, &mut free, &mut total)), 0);
    assert_eq!((free, total), (1024 - 160, 1024));
    assert_eq!(acl!(rig, aclrtFree(a)), 0);
    assert_eq!(rig.host.memory(0), usage(96, 160, 1, 2));
    rig.refused(try_malloc(&rig, 1024 - 96), ACL_ERROR_RT_MEMORY_ALLOCATION, "device 0");
    assert_eq!(acl!(rig, aclrtFree(b)), 0);
    assert_eq!(try_malloc(&rig, 1024 - 32), 0);
}

#[test]
fn the_950_takes_no_extra_bytes() {
    let chip = Chip::preset("Ascend950PR_9599").expect("a preset");
    let rig = Rig::new(HostConfig::new().device(chip));
    rig.malloc(33);
    assert_eq!(rig.host.memory(0).used, 64);
}

#[test]
fn bad_frees_are_named() {
    let rig = Rig::lazy();
    let pointer = rig.malloc(100);
    rig.refused(acl!(rig, aclrtFree(null_mut())), ACL_ERROR_RT_PARAM_INVALID, "null");
    let inside = pointer.wrapping_byte_add(32);
    rig.refused(acl!(rig, aclrtFree(inside)), ACL_ERROR_RT_MEMORY_FREE, "inside allocation 1");
    let far = pointer.wrapping_byte_add(1 << 20);
    rig.refused(acl!(rig, aclrtFree(far)), ACL_ERROR_RT_MEMORY_FREE, "not allocated");
    let host = rig.malloc_host(8);
    rig.refused(acl!(rig, aclrtFree(host)), ACL_ERROR_RT_MEMORY_FREE, "no device memory");
    assert_eq!(acl!(rig, aclrtFree(pointer)), 0);
    rig.refused(acl!(rig, aclrtFree(pointer)), ACL_ERROR_RT_MEMORY_FREE, "freed before");
    rig.refused(acl!(rig, aclrtFreeHost(null_mut())), ACL_ERROR_RT_PARAM_INVALID, "null");
    assert_eq!(acl!(rig, aclrtFreeHost(host)), 0);
    rig.refused(acl!(rig, aclrtFreeHost(host)), ACL_ERROR_RT_MEMORY_FREE, "freed before");
    let other = Rig::lazy();
    let foreign = other.malloc(8);
    rig.refused(acl!(rig, aclrtFree(foreign)), ACL_ERROR_RT_MEMORY_FREE, "no device memory of this machine");
}

#[test]
fn pinned_memory_has_its_own_limit_and_real_addresses() {
    let rig = Rig::new(HostConfig::new().capacity(64).pinned_limit(256));
    let a = rig.pinned(&[1.5f32; 32]);
    assert_eq!(a.addr() % 64, 0);
    assert_eq!(rig.peek::<f32>(a, 32), [1.5; 32]);
    let mut pointer = null_mut();
    let code = acl!(rig, aclrtMallocHost(&mut pointer, 200));
    rig.refused(code, ACL_ERROR_RT_MEMORY_ALLOCATION, "pinned");
    rig.refused(acl!(rig, aclrtMallocHost(&mut pointer, 0)), ACL_ERROR_RT_PARAM_INVALID, "0 bytes");
    rig.refused(acl!(rig, aclrtMallocHost(&mut pointer, usize::MAX)), ACL_ERROR_RT_MEMORY_ALLOCATION, "pinned");
    assert_eq!(rig.host.pinned_memory(), usage(128, 128, 1, 1));
    assert_eq!(acl!(rig, aclrtFreeHost(a)), 0);
    rig.malloc_host(256);
}

#[test]
fn fresh_memory_is_a_nan_in_every_float_type_or_zero() {
    let rig = Rig::lazy();
    let pointer = rig.malloc(64);
    assert!(rig.download::<f32>(pointer, 16).iter().all(|x| x.is_nan()));
    let bf16 = rig.download::<u16>(pointer, 32);
    assert!(bf16.iter().all(|bits| f32::from_bits(u32::from(*bits) << 16).is_nan()));
    assert!(bf16.iter().all(|bits| half::f16::from_bits(*bits).is_nan()));
    let rig = Rig::new(HostConfig::new().fill(Fill::Zero));
    let pointer = rig.malloc(64);
    assert_eq!(rig.download::<f32>(pointer, 16), [0.0; 16]);
}

#[test]
fn a_device_address_is_none_that_the_host_could_read() {
    let rig = Rig::lazy();
    let address = rig.malloc(8).addr() as u64;
    // Neither canonical on x86-64 nor below 2^52 on aarch64.
    assert!(address >> 47 != 0 && address >> 47 != 0x1_FFFF && address >> 52 != 0);
}

#[test]
fn blocking_copies_go_every_way_and_stay_in_bounds() {
    let rig = Rig::lazy();
    let a = rig.device(&[1u32, 2, 3, 4]);
    let b = rig.malloc(16);
    let code = acl!(rig, aclrtMemcpy(b, 16, a, 16, ACL_MEMCPY_DEVICE_TO_DEVICE));
    assert_eq!(code, 0);
    assert_eq!(rig.download::<u32>(b, 4), [1, 2, 3, 4]);
    // Overlapping.
    assert_eq!(acl!(rig, aclrtMemcpy(b.wrapping_byte_add(4), 12, b, 12, ACL_MEMCPY_DEFAULT)), 0);
    assert_eq!(rig.download::<u32>(b, 4), [1, 1, 2, 3]);
    let pinned = rig.pinned(&[9u32; 4]);
    assert_eq!(acl!(rig, aclrtMemcpy(b, 16, pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE)), 0);
    assert_eq!(rig.download::<u32>(b, 4), [9, 9, 2, 3]);
    // The kind is reserved: the pointers say where they point.
    assert_eq!(acl!(rig, aclrtMemcpy(pinned, 16, a, 16, ACL_MEMCPY_HOST_TO_HOST)), 0);
    assert_eq!(rig.peek::<u32>(pinned, 4), [1, 2, 3, 4]);
    let mut plain = [0u32; 4];
    assert_eq!(acl!(rig, aclrtMemcpy(plain.as_mut_ptr().cast(), 16, pinned, 16, ACL_MEMCPY_HOST_TO_HOST)), 0);
    assert_eq!(plain, [1, 2, 3, 4]);
    assert_eq!(acl!(rig, aclrtMemcpy(a, 16, a, 16, ACL_MEMCPY_DEFAULT)), 0);
    let kind = ACL_MEMCPY_DEFAULT;
    for (to, room, from, count) in [
        (null_mut(), 16, a, 16),
        (b, 16, null_mut(), 16),
        (b, 16, a, 0),
        (b, 0, a, 0),
        (b, 15, a, 16),
        (b, 17, a, 17),
        (b, usize::MAX, a, usize::MAX),
        (b.wrapping_byte_add(8), 16, a, 16),
        (b, 16, a.wrapping_byte_add(1), 16),
        (b, 16, a.wrapping_byte_sub(1), 16),
        (pinned, 17, a, 17),
        (b, 16, b.wrapping_byte_add(1 << 30), 16),
        (without_provenance_mut(0xC5 << 48), 16, a, 16),
    ] {
        assert_eq!(
            acl!(rig, aclrtMemcpy(to, room, from, count, kind)),
            ACL_ERROR_RT_PARAM_INVALID,
            "{to:?} {from:?} {count}"
        );
    }
    assert_eq!(acl!(rig, aclrtMemcpy(b, 16, a, 16, aclrtMemcpyKind(8))), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(rig.download::<u32>(b, 4), [9, 9, 2, 3], "nothing was written");
}

#[test]
fn fills_write_the_low_byte_and_stay_in_bounds() {
    let rig = Rig::lazy();
    let a = rig.device(&[0u8; 8]);
    assert_eq!(acl!(rig, aclrtMemset(a, 8, 0x1_02, 4)), 0);
    assert_eq!(rig.download::<u8>(a, 8), [2, 2, 2, 2, 0, 0, 0, 0]);
    for (to, room, count) in [(null_mut(), 8, 8), (a, 8, 9), (a, 9, 9), (a, 8, 0), (rig.malloc_host(8), 8, 8)] {
        assert_eq!(acl!(rig, aclrtMemset(to, room, 0, count)), ACL_ERROR_RT_PARAM_INVALID);
    }
    let stream = rig.stream();
    assert_eq!(rig.fill_async(a, -1, 9, stream), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(rig.fill_async(a, -1, 2, stream), 0);
    assert_eq!(rig.download::<u8>(a, 3), [2, 2, 2], "queued");
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(rig.download::<u8>(a, 3), [255, 255, 2]);
}

#[test]
fn a_pinned_copy_is_queued_and_a_pageable_one_waits_for_the_stream() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    let a = rig.device(&[0u32; 4]);
    let pinned = rig.pinned(&[7u32; 4]);
    assert_eq!(rig.copy_async(a, pinned, 16, stream), 0);
    assert_eq!(rig.download::<u32>(a, 4), [0; 4], "not yet: a blocking copy waits for no stream");
    let plain = [3u32; 2];
    assert_eq!(rig.copy_async(a, plain.as_ptr().cast(), 8, stream), 0);
    assert_eq!(rig.download::<u32>(a, 4), [3, 3, 7, 7], "the stream was waited for, then the bytes copied");
    // Back, into memory that is not pinned.
    rig.fill_async(a, 1, 16, stream);
    let mut back = [0u8; 16];
    assert_eq!(rig.copy_async(back.as_mut_ptr().cast(), a, 16, stream), 0);
    assert_eq!(back, [1; 16]);
    let both = rig.copy_async(back.as_mut_ptr().cast(), pinned, 16, stream);
    rig.refused(both, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "host to host");
}

#[test]
fn a_pageable_copy_returns_what_failed_before_it() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    let a = rig.device(&[0u8; 4]);
    rig.launch("trap", 1, stream, &[]);
    let plain = [1u8; 4];
    rig.refused(rig.copy_async(a, plain.as_ptr().cast(), 4, stream), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION, "n > 0");
    assert_eq!(rig.download::<u8>(a, 4), [0; 4]);
}

#[test]
fn pitched_copies_move_rows() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    let from = rig.device(&(0..24u8).collect::<Vec<_>>());
    let to = rig.device(&[0u8; 12]);
    let copy = |to, to_pitch, from, from_pitch, width, height| {
        acl!(rig, aclrtMemcpy2dAsync(to, to_pitch, from, from_pitch, width, height, ACL_MEMCPY_DEFAULT, stream))
    };
    assert_eq!(copy(to, 4, from, 8, 3, 3), 0);
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(rig.download::<u8>(to, 12), [0, 1, 2, 0, 8, 9, 10, 0, 16, 17, 18, 0]);
    for (to_pitch, from_pitch, width, height) in [
        (4, 8, 5, 1),
        (8, 2, 3, 1),
        (4, 8, 0, 3),
        (4, 8, 3, 0),
        (4, 8, 3, 4),
        (usize::MAX, usize::MAX, 3, 3),
        (usize::MAX / 2, 8, 3, usize::MAX),
    ] {
        assert_eq!(copy(to, to_pitch, from, from_pitch, width, height), ACL_ERROR_RT_PARAM_INVALID);
    }
}

#[test]
fn memory_that_is_freed_before_a_task_uses_it_is_a_fault_at_the_next_sync() {
    for executor in [Executor::Lazy, Executor::Threads] {
        let rig = Rig::with(executor);
        let stream = rig.stream();
        let gate = super::streams::Gate::new();
        gate.hold(&rig, stream);
        let (a, b) = (rig.device(&[0u32; 16]), rig.device(&[1u32; 16]));
        assert_eq!(rig.copy_async(a, b, 64, stream), 0);
        assert_eq!(acl!(rig, aclrtFree(b)), 0, "a free waits for nobody");
        gate.open();
        rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_EXCEPTION, "after allocation 2");
        assert_eq!(rig.sync(stream), 0, "returned once");
        let pinned = rig.pinned(&[5u32; 16]);
        gate.hold(&rig, stream);
        assert_eq!(rig.copy_async(a, pinned, 64, stream), 0);
        assert_eq!(acl!(rig, aclrtFreeHost(pinned)), 0);
        gate.open();
        rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_EXCEPTION, "was freed");
        assert_eq!(rig.download::<u32>(a, 16), [0; 16]);
    }
}

#[test]
fn a_free_with_sync_waits_for_the_device() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let stream = rig.stream();
        let (a, b) = (rig.device(&[0u32; 16]), rig.device(&[1u32; 16]));
        assert_eq!(rig.copy_async(a, b, 64, stream), 0);
        assert_eq!(acl!(rig, aclrtFreeWithDevSync(b)), 0);
        assert_eq!(rig.sync(stream), 0);
        assert_eq!(rig.download::<u32>(a, 16), [1; 16]);
    }
}

/// A kernel that writes one byte relative to the start of a buffer, through a pointer.
fn scribble(offset: isize) -> HostKernel {
    let layout = ArgLayout::new([("x", ArgKind::Out)]).expect("small");
    HostKernel::per_launch(layout, CoreKind::Vector, move |launch| {
        let address = launch.args().address(0)?;
        let (start, bytes) = launch.space.translate(address).expect("allocated");
        assert_eq!(bytes, 64);
        // SAFETY: outside the block on purpose, but within the guard zones that the emulator puts around it.
        unsafe { start.as_ptr().offset(offset).write(1) };
        Ok(())
    })
}

#[test]
fn a_kernel_that_writes_outside_through_a_pointer_is_found_at_once() {
    for (offset, found) in [(-1, "offset -1,"), (64, "offset 64,"), (63, "")] {
        let rig = Rig::lazy();
        rig.host.register("t", "scribble", scribble(offset));
        let stream = rig.stream();
        // 60 bytes asked for; the units of the card move 32 at a time, so up to 64 is theirs.
        let a = rig.malloc(60);
        rig.launch("scribble", 1, stream, &[Arg::Pointer(a)]);
        match found {
            "" => assert_eq!(rig.sync(stream), 0),
            found => rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_EXCEPTION, found),
        }
    }
}

#[test]
fn pinned_memory_that_the_program_overran_is_found_when_it_is_freed() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    let pinned = rig.malloc_host(32);
    // SAFETY: outside the block on purpose, but within the guard zone behind it.
    unsafe { pinned.cast::<u8>().add(32).write(0) };
    assert_eq!(acl!(rig, aclrtFreeHost(pinned)), 0);
    rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_EXCEPTION, "offset 32");
    assert_eq!(rig.sync(stream), 0);
}

#[test]
fn leaks_are_reported_with_their_tags_when_the_machine_goes() {
    let slot = ReportSlot::new();
    let rig = Rig::new(HostConfig::new().report_to(&slot));
    let kept = rig.host.tagged("kv cache", || rig.malloc(100));
    let freed = rig.host.tagged("weights", || rig.malloc(8));
    assert_eq!(
        rig.host.memory_by_tag(0),
        [("kv cache".to_owned(), usage(160, 160, 1, 1)), ("weights".to_owned(), usage(64, 64, 1, 1))]
    );
    rig.malloc_host(50);
    rig.stream();
    rig.event();
    rig.load("t");
    assert_eq!(acl!(rig, aclrtFree(freed)), 0);
    assert!(slot.take().is_none(), "the machine lives");
    assert!(!rig.host.report().is_clean());
    drop(rig);
    let report = slot.take().expect("the machine is gone");
    assert_eq!(report.device_memory.len(), 1);
    let (device, leak) = &report.device_memory[0];
    assert_eq!((*device, leak.address, leak.size, leak.serial), (0, kept.addr() as u64, 100, 1));
    assert_eq!(leak.tag.as_deref(), Some("kv cache"));
    assert_eq!((report.pinned_memory.len(), report.pinned_memory[0].size), (1, 50));
    assert_eq!((report.contexts, report.streams, report.events, report.modules), (1, 1, 1, 1));
    let text = report.to_string();
    assert!(text.contains("100 bytes of device 0, allocation 1") && text.contains("(kv cache)"), "{text}");
}

#[test]
fn a_tidy_program_leaves_nothing() {
    let slot = ReportSlot::new();
    let rig = Rig::new(HostConfig::new().report_to(&slot));
    let (stream, event, module) = (rig.stream(), rig.event(), rig.load("t"));
    let (a, b) = (rig.malloc(8), rig.malloc_host(8));
    assert_eq!(rig.copy_async(a, b, 8, stream), 0);
    assert_eq!(rig.record(event, stream), 0);
    rig.begin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
    let graph = rig.end(stream);
    assert_eq!(acl!(rig, aclmdlRIDestroy(graph)), 0);
    assert_eq!(acl!(rig, aclrtDestroyEvent(event)), 0);
    assert_eq!(acl!(rig, aclrtDestroyStream(stream)), 0);
    assert_eq!(acl!(rig, aclrtBinaryUnLoad(module)), 0);
    assert_eq!(acl!(rig, aclrtFree(a)), 0);
    assert_eq!(acl!(rig, aclrtFreeHost(b)), 0);
    assert_eq!(acl!(rig, aclrtResetDevice(0)), 0);
    drop(rig);
    let report = slot.take().expect("the machine is gone");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn what_failed_and_was_never_asked_for_is_in_the_report() {
    let slot = ReportSlot::new();
    let rig = Rig::new(HostConfig::new().executor(Executor::Lazy).report_to(&slot));
    let (a, b) = (rig.stream(), rig.stream());
    rig.launch("trap", 1, a, &[]);
    rig.launch("noop", 1, b, &[]);
    assert_eq!(acl!(rig, aclrtDestroyStream(a)), 0);
    drop(rig);
    let report = slot.take().expect("the machine is gone");
    assert_eq!(report.queued_tasks, 1);
    assert!(report.unseen.len() == 1 && report.unseen[0].contains("n > 0"), "{report}");
}

#[test]
fn host_ranges_can_be_registered_and_are_pinned_then() {
    #[repr(align(4096))]
    struct Pages([u32; 1024]);
    let rig = Rig::lazy();
    let stream = rig.stream();
    let a = rig.device(&[0u32; 4]);
    let mut pages = Box::new(Pages([6; 1024]));
    let start: *mut std::ffi::c_void = pages.0.as_mut_ptr().cast();
    let mut there = null_mut();
    let register =
        |start: *mut std::ffi::c_void, size, kind, there| acl!(rig, aclrtHostRegister(start, size, kind, there));
    assert_eq!(register(start, 4096, ACL_HOST_REGISTER_MAPPED, &mut there), 0);
    let mut attributes = aclrtPtrAttributes {
        location: aclrtMemLocation { id: 9, r#type: aclrtMemLocationType(9) },
        pageSize: 0,
        rsv: [0; 4],
    };
    for (pointer, kind) in [
        (start, ACL_MEM_LOCATION_TYPE_HOST),
        (a, ACL_MEM_LOCATION_TYPE_DEVICE),
        (rig.malloc_host(4), ACL_MEM_LOCATION_TYPE_HOST),
        (std::ptr::from_mut(&mut there).cast(), ACL_MEM_LOCATION_TYPE_UNREGISTERED),
    ] {
        assert_eq!(acl!(rig, aclrtPointerGetAttributes(pointer, &mut attributes)), 0);
        assert_eq!(attributes.location.r#type, kind);
    }
    assert_eq!(rig.copy_async(a, start, 16, stream), 0);
    assert_eq!(rig.download::<u32>(a, 4), [0; 4], "queued, as from pinned memory");
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(rig.download::<u32>(a, 4), [6; 4]);
    let twice = register(start, 4096, ACL_HOST_REGISTER_MAPPED, &mut there);
    assert_eq!(twice, ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    for (start, size, kind) in [
        (start.wrapping_byte_add(64), 64, ACL_HOST_REGISTER_MAPPED),
        (null_mut(), 64, ACL_HOST_REGISTER_MAPPED),
        (start, 0, ACL_HOST_REGISTER_MAPPED),
        (start, u64::MAX, ACL_HOST_REGISTER_MAPPED),
        (start, 4096, aclrtHostRegisterType(1)),
        (a, 4096, ACL_HOST_REGISTER_MAPPED),
    ] {
        assert_eq!(register(start, size, kind, &mut there), ACL_ERROR_RT_PARAM_INVALID);
    }
    assert_eq!(rig.host.report().registered_ranges, 1);
    assert_eq!(acl!(rig, aclrtHostUnregister(start)), 0);
    assert_eq!(acl!(rig, aclrtHostUnregister(start)), ACL_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

#[test]
fn memory_of_another_device_is_refused_without_peer_access() {
    let rig = Rig::new(HostConfig::new().devices(2, Chip::default()).executor(Executor::Lazy));
    let a = rig.device(&[1u32; 4]);
    assert_eq!(acl!(rig, aclrtSetDevice(1)), 0);
    let b = rig.malloc(16);
    let values = [2u32; 4];
    let kind = ACL_MEMCPY_DEFAULT;
    rig.refused(
        acl!(rig, aclrtMemcpy(a, 16, values.as_ptr().cast(), 16, kind)),
        ACL_ERROR_RT_PARAM_INVALID,
        "device 0",
    );
    rig.refused(acl!(rig, aclrtMemcpy(b, 16, a, 16, kind)), ACL_ERROR_RT_PARAM_INVALID, "peer access");
    rig.refused(acl!(rig, aclrtMemset(a, 16, 0, 16)), ACL_ERROR_RT_PARAM_INVALID, "the current one is 1");
    let mut can = 0;
    assert_eq!(acl!(rig, aclrtDeviceCanAccessPeer(&mut can, 1, 0)), 0);
    assert_eq!(can, 1);
    assert_eq!(acl!(rig, aclrtDeviceCanAccessPeer(&mut can, 1, 1)), 0);
    assert_eq!(can, 0);
    assert_eq!(acl!(rig, aclrtDeviceCanAccessPeer(&mut can, 1, 2)), ACL_ERROR_RT_INVALID_DEVICEID);
    assert_eq!(acl!(rig, aclrtDeviceEnablePeerAccess(2, 0)), ACL_ERROR_RT_INVALID_DEVICEID);
    assert_eq!(acl!(rig, aclrtDeviceEnablePeerAccess(1, 0)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(acl!(rig, aclrtDeviceEnablePeerAccess(0, 1)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(acl!(rig, aclrtDeviceEnablePeerAccess(0, 0)), 0);
    assert_eq!(acl!(rig, aclrtMemcpy(b, 16, a, 16, kind)), 0);
    assert_eq!(rig.download::<u32>(b, 4), [1; 4]);
    // A kernel does not reach the other device.
    let stream = rig.stream();
    rig.launch("add", 1, stream, &[Arg::Pointer(a), Arg::U32(4), Arg::F32(1.0)]);
    rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_EXCEPTION, "not allocated");
    assert_eq!((rig.host.memory(0).count, rig.host.memory(1).count), (1, 1));
    assert_eq!(rig.host.memory(7), MemoryUse::default());
}

#[test]
fn calls_are_counted() {
    let rig = Rig::lazy();
    assert_eq!(rig.host.count(Call::aclrtMalloc), 0);
    rig.malloc(8);
    try_malloc(&rig, 0);
    assert_eq!(rig.host.count(Call::aclrtMalloc), 2);
}

#[test]
fn machines_do_not_know_each_other() {
    let (a, b) = (Rig::lazy(), Rig::lazy());
    let (stream_a, stream_b) = (a.stream(), b.stream());
    assert_eq!(b.sync(stream_a), ACL_ERROR_RT_INVALID_HANDLE);
    assert_eq!(a.sync(stream_b), ACL_ERROR_RT_INVALID_HANDLE);
    let x = a.device(&[1u8]);
    let y = b.malloc(1);
    assert_eq!(acl!(b, aclrtMemcpy(y, 1, x, 1, ACL_MEMCPY_DEFAULT)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!((a.host.memory(0).count, b.host.memory(0).count), (1, 1));
    let bare = Host::new(HostConfig::new());
    drop(bare);
    assert_eq!(
        a.message(),
        format!("EH107017: aclrtSynchronizeStream: {stream_b:?} is no live stream of this machine")
    );
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Modules, argument blocks, launches, faults of kernels, barriers.

use crate::support::{ALL_EXECUTORS, Arg, Handle, Rig, acl};
use ascend_rt::host::{self, Chip, CoreKind, Executor, HostConfig, HostKernel, KernelFault, module_image};
use ascend_rt::kernel::{ArgKind, ArgLayout};
use ascend_rt::sys::*;
use std::ffi::CString;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn load(rig: &Rig, image: &[u8]) -> aclError {
    let mut module = null_mut();
    acl!(rig, aclrtBinaryLoadFromData(image.as_ptr().cast(), image.len(), null(), &mut module))
}

#[test]
fn images_are_checked() {
    let rig = Rig::lazy();
    rig.refused(load(&rig, b"\x7fELF....."), ACL_ERROR_RT_PARAM_INVALID, "no module for the emulator");
    rig.refused(load(&rig, &module_image("", None)), ACL_ERROR_RT_PARAM_INVALID, "names no module");
    let not_text = [host::IMAGE_MAGIC, &[0xFF, 0xFE]].concat();
    rig.refused(load(&rig, &not_text), ACL_ERROR_RT_PARAM_INVALID, "UTF-8");
    let other = module_image("gemm", Some("dav-3510"));
    rig.refused(load(&rig, &other), ACL_ERROR_RT_PARAM_INVALID, "module gemm is for dav-3510, device 0 is dav-2201");
    assert_eq!(load(&rig, &module_image("gemm", Some("dav-2201"))), 0);
    assert_eq!(load(&rig, &module_image("nobody registered this", None)), 0);
    let rig = Rig::new(HostConfig::new().device(Chip::preset("Ascend950PR_9599").expect("a preset")));
    assert_eq!(load(&rig, &other), 0);
    let mut options = aclrtBinaryLoadOption {
        r#type: ACL_RT_BINARY_LOAD_OPT_LAZY_LOAD,
        value: aclrtBinaryLoadOptionValue { rsv: [1, 0, 0, 0] },
    };
    let mut module = null_mut();
    let mut with = |option: &mut aclrtBinaryLoadOption| {
        let list = aclrtBinaryLoadOptions { options: option, numOpt: 1 };
        acl!(rig, aclrtBinaryLoadFromData(other.as_ptr().cast(), other.len(), &list, &mut module))
    };
    assert_eq!(with(&mut options), 0);
    options.r#type = aclrtBinaryLoadOptionType(9);
    assert_eq!(with(&mut options), ACL_ERROR_RT_PARAM_INVALID);
}

#[test]
fn modules_load_from_files() {
    let rig = Rig::lazy();
    let folder = std::env::temp_dir().join(format!("ascend-rt-raw-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a writable temporary folder");
    let path = folder.join("t.bin");
    std::fs::write(&path, module_image("t", None)).expect("writable");
    let name = CString::new(path.to_str().expect("UTF-8")).expect("no zero");
    let mut module = null_mut();
    assert_eq!(acl!(rig, aclrtBinaryLoadFromFile(name.as_ptr(), null_mut(), &mut module)), 0);
    rig.kernel_of(module, "noop");
    std::fs::remove_dir_all(&folder).expect("just made");
    let code = acl!(rig, aclrtBinaryLoadFromFile(name.as_ptr(), null_mut(), &mut module));
    rig.refused(code, ACL_ERROR_RT_FILE_OPEN, "t.bin");
}

#[test]
fn kernels_are_found_by_module_and_name() {
    let rig = Rig::lazy();
    let layout = || ArgLayout::new::<&str>([]).expect("empty");
    let fails =
        |text: &'static str| HostKernel::per_launch(layout(), CoreKind::Cube, move |_| Err(KernelFault::trap(text)));
    host::register("process", "k", fails("of the process"));
    let module = rig.load("process");
    let lookup = |name: &std::ffi::CStr| {
        let mut function = null_mut();
        match acl!(rig, aclrtBinaryGetFunction(module, name.as_ptr(), &mut function)) {
            0 => Ok(function),
            code => Err(code),
        }
    };
    assert_eq!(lookup(c"other"), Err(ACL_ERROR_RT_KERNEL_LOOKUP));
    assert!(rig.message().contains("module process has no kernel other"));
    assert_eq!(lookup(c"\xff"), Err(ACL_ERROR_RT_PARAM_INVALID));
    let stream = rig.stream();
    let k = lookup(c"k").expect("registered");
    assert_eq!(lookup(c"k"), Ok(k), "one handle per kernel of a module");
    assert_eq!(rig.try_launch(k, 1, stream, &[]), 0);
    rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION, "of the process");
    // The machine's own goes first, and a second module has the same kernels.
    rig.host.register("process", "k", fails("of the machine"));
    let again = rig.kernel_of(rig.load("process"), "k");
    assert_eq!(rig.try_launch(again, 1, stream, &[]), 0);
    rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION, "of the machine");
    let mut value = 0;
    let mut attribute = |kernel, attribute| {
        let code = acl!(rig, aclrtGetFunctionAttribute(kernel, attribute, &mut value));
        (code, value)
    };
    assert_eq!(attribute(again, ACL_FUNC_ATTR_KERNEL_TYPE), (0, 1));
    assert_eq!(attribute(rig.kernel("noop"), ACL_FUNC_ATTR_KERNEL_TYPE), (0, 2));
    assert_eq!(attribute(rig.kernel("sum"), ACL_FUNC_ATTR_KERNEL_TYPE), (0, 3));
    assert_eq!(attribute(rig.kernel("sum"), ACL_FUNC_ATTR_KERNEL_RATIO), (0, 0x1_0002));
    assert_eq!(attribute(rig.kernel("sum"), ACL_FUNC_ATTR_KERNEL_SCHED_MODE), (0, 1));
    assert_eq!(attribute(again, aclrtFuncAttribute(9)).0, ACL_ERROR_RT_PARAM_INVALID);
}

#[test]
fn arguments_reach_the_kernel_through_their_layout() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let stream = rig.stream();
        let x = rig.device(&(0..100).map(|i| i as f32).collect::<Vec<_>>());
        let y = rig.device(&[-1f32; 100]);
        let tiling: Vec<u8> = [90u32, 16].iter().flat_map(|n| n.to_le_bytes()).collect();
        let args = [Arg::Pointer(x), Arg::F32(2.0), Arg::Pointer(y), Arg::Tiling(&tiling)];
        rig.launch("tiled_scale", 6, stream, &args);
        rig.launch("add", 7, stream, &[Arg::Pointer(y), Arg::U32(100), Arg::F32(0.5)]);
        assert_eq!(rig.sync(stream), 0);
        let expected: Vec<f32> = (0..100).map(|i| if i < 90 { 2.0 * i as f32 + 0.5 } else { -0.5 }).collect();
        assert_eq!(rig.download::<f32>(y, 100), expected, "{executor:?}");
    }
}

#[test]
fn a_raw_block_does_the_same() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    let x = rig.device(&[1f32, 2.0, 3.0]);
    let y = rig.device(&[0f32; 3]);
    let mut block: Vec<u8> = Vec::new();
    block.extend((x.addr() as u64).to_le_bytes());
    block.extend(5f32.to_le_bytes());
    block.extend([0; 4]);
    block.extend((y.addr() as u64).to_le_bytes());
    block.extend([0; 8]);
    block.extend(3u32.to_le_bytes());
    block.extend(3u32.to_le_bytes());
    let mut holders = [aclrtPlaceHolderInfo { addrOffset: 24, dataOffset: 32 }];
    let kernel = rig.kernel("tiled_scale");
    let mut launch = |bytes: usize, holders: &mut [aclrtPlaceHolderInfo]| {
        let (block, count) = (block.as_mut_ptr().cast(), holders.len());
        acl!(
            rig,
            aclrtLaunchKernelWithHostArgs(kernel, 1, stream, null_mut(), block, bytes, holders.as_mut_ptr(), count)
        )
    };
    assert_eq!(launch(40, &mut holders), 0);
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(rig.download::<f32>(y, 3), [5.0, 10.0, 15.0]);
    assert_eq!(launch(24, &mut holders), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(launch(40, &mut []), ACL_ERROR_RT_PARAM_INVALID);
    holders[0].dataOffset = 33;
    rig.refused(launch(40, &mut holders), ACL_ERROR_RT_PARAM_INVALID, "tiling");
}

#[test]
fn a_block_of_another_layout_is_refused_when_it_is_launched() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    let x = rig.malloc(400);
    let kernel = rig.kernel("add");
    for args in [
        &[][..],
        &[Arg::Pointer(x), Arg::U32(1)],
        &[Arg::Pointer(x), Arg::U32(1), Arg::F32(1.0), Arg::U32(1)],
        &[Arg::U32(1), Arg::Pointer(x), Arg::F32(1.0)],
        &[Arg::Pointer(x), Arg::Bytes(&[0; 8]), Arg::F32(1.0)],
        &[Arg::Pointer(x), Arg::U32(1), Arg::Tiling(&[0; 4])],
    ] {
        let code = rig.try_launch(kernel, 1, stream, args);
        rig.refused(code, ACL_ERROR_RT_PARAM_INVALID, "kernel t::add");
    }
    let good = [Arg::Pointer(x), Arg::U32(1), Arg::F32(1.0)];
    for blocks in [0, 65_536, u32::MAX] {
        rig.refused(rig.try_launch(kernel, blocks, stream, &good), ACL_ERROR_RT_PARAM_INVALID, "blocks");
    }
    let args = rig.args(kernel, &good).expect("well formed");
    let code = acl!(rig, aclrtLaunchKernelWithConfig(rig.kernel("log"), 1, stream, null_mut(), args, null_mut()));
    rig.refused(code, ACL_ERROR_RT_PARAM_INVALID, "another kernel");
    let code = acl!(rig, aclrtLaunchKernelWithConfig(kernel, 1, stream, null_mut(), args, x));
    rig.refused(code, ACL_ERROR_RT_PARAM_INVALID, "reserved");
    assert_eq!(rig.sync(stream), 0, "nothing was queued");
}

#[test]
fn argument_blocks_have_limits_and_belong_to_their_thread() {
    let rig = Rig::lazy();
    let kernel = rig.kernel("noop");
    let eight = [0u8; 8];
    let many: Vec<_> = (0..129).map(|_| Arg::Bytes(&eight)).collect();
    assert!(rig.args(kernel, &many[..128]).is_ok());
    assert_eq!(rig.args(kernel, &many), Err(ACL_ERROR_RT_PARAM_INVALID));
    assert!(rig.message().contains("128"));
    let large = vec![0u8; 64 * 1024];
    assert!(rig.args(kernel, &[Arg::Bytes(&large)]).is_ok());
    assert_eq!(rig.args(kernel, &[Arg::Bytes(&large), Arg::U32(1)]), Err(ACL_ERROR_RT_PARAM_INVALID));
    assert!(rig.message().contains("65536"));
    assert_eq!(rig.args(kernel, &[Arg::U32(1), Arg::Tiling(&large)]), Err(ACL_ERROR_RT_PARAM_INVALID));
    // Parameters of an earlier block, and blocks of other threads.
    let (mut args, mut param, mut again) = (null_mut(), null_mut(), null_mut());
    assert_eq!(acl!(rig, aclrtKernelArgsInit(kernel, &mut args)), 0);
    assert_eq!(acl!(rig, aclrtKernelArgsAppendPlaceHolder(args, &mut param)), 0);
    assert_eq!(acl!(rig, aclrtKernelArgsInit(kernel, &mut again)), 0);
    assert_eq!(again, args, "the thread's one block");
    let mut buffer = null_mut();
    let code = acl!(rig, aclrtKernelArgsGetPlaceHolderBuffer(args, param, 8, &mut buffer));
    rig.refused(code, ACL_ERROR_RT_INVALID_HANDLE, "no parameter of this argument block");
    let (args, kernel) = (Handle(args), Handle(kernel));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
            let code = acl!(rig, aclrtKernelArgsFinalize(args.get()));
            rig.refused(code, ACL_ERROR_RT_INVALID_HANDLE, "of this thread");
            rig.args(kernel.get(), &[]).expect("its own");
        });
    });
}

#[test]
fn a_value_can_be_changed_before_the_launch() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    let x = rig.device(&[0f32; 2]);
    let kernel = rig.kernel("add");
    let mut params = [null_mut(); 3];
    let mut args = null_mut();
    assert_eq!(acl!(rig, aclrtKernelArgsInit(kernel, &mut args)), 0);
    let append = |bytes: &[u8], param: &mut aclrtParamHandle| {
        acl!(rig, aclrtKernelArgsAppend(args, bytes.as_ptr().cast_mut().cast(), bytes.len(), param))
    };
    assert_eq!(append(&(x.addr() as u64).to_le_bytes(), &mut params[0]), 0);
    assert_eq!(append(&2u32.to_le_bytes(), &mut params[1]), 0);
    assert_eq!(append(&1f32.to_le_bytes(), &mut params[2]), 0);
    let mut by = 8f32;
    assert_eq!(acl!(rig, aclrtKernelArgsParaUpdate(args, params[2], (&raw mut by).cast(), 4)), 0);
    let wrong = acl!(rig, aclrtKernelArgsParaUpdate(args, params[0], (&raw mut by).cast(), 4));
    assert_eq!(wrong, ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(acl!(rig, aclrtKernelArgsFinalize(args)), 0);
    assert_eq!(acl!(rig, aclrtLaunchKernelWithConfig(kernel, 1, stream, null_mut(), args, null_mut())), 0);
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(rig.download::<f32>(x, 2), [8.0; 2]);
}

#[test]
fn faults_of_kernels_come_at_the_next_sync_with_their_messages() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (stream, x) = (rig.stream(), rig.malloc(4));
        let null: *mut std::ffi::c_void = null_mut();
        let gone = rig.malloc(8);
        assert_eq!(acl!(rig, aclrtFree(gone)), 0);
        for (name, pointer, code, text) in [
            ("beyond", x, ACL_ERROR_RT_AICORE_EXCEPTION, "t::beyond failed: 1 elements of 4 bytes from element 1"),
            ("beyond", null, ACL_ERROR_RT_AICORE_EXCEPTION, "0x0, which is not allocated"),
            ("beyond", gone, ACL_ERROR_RT_AICORE_EXCEPTION, "which is not allocated"),
            ("trap", x, ACL_ERROR_RT_AICORE_TRAP_EXCEPTION, "t::trap failed: assertion n > 0 in block"),
            ("panic", x, ACL_ERROR_RT_AICORE_EXCEPTION, "it panicked: the kernel of this test panics"),
        ] {
            let args: &[Arg<'_>] = if name == "beyond" { &[Arg::Pointer(pointer)] } else { &[] };
            rig.launch(name, 3, stream, args);
            rig.refused(rig.sync(stream), code, text);
            assert_eq!(rig.sync(stream), 0);
        }
    }
}

#[test]
fn a_tiling_struct_is_read_only_for_the_kernel_and_bounded() {
    let layout = || ArgLayout::new([("tiling", ArgKind::Tiling { size: 8 })]).expect("small");
    let address = |launch: &host::LaunchCtx<'_>| u64::from_le_bytes(launch.block[..8].try_into().expect("8 bytes"));
    let config = HostConfig::new()
        .executor(Executor::Lazy)
        .kernel(
            "t",
            "write",
            HostKernel::per_launch(layout(), CoreKind::Cube, move |launch| launch.space.write(address(launch), &[0])),
        )
        .kernel(
            "t",
            "read_beyond",
            HostKernel::per_launch(layout(), CoreKind::Cube, move |launch| {
                assert_eq!(launch.space.extent(address(launch)), Some(8));
                assert_eq!(launch.space.translate(address(launch)).map(|(_, bytes)| bytes), Some(8));
                assert_eq!(launch.args().tiling_bytes(0).as_deref(), Ok(&[7u8; 8][..]));
                launch.space.read(address(launch), &mut [0; 9])
            }),
        );
    let rig = Rig::new(config);
    let stream = rig.stream();
    for (name, text) in [("write", "read-only"), ("read_beyond", "beyond a tiling struct")] {
        rig.launch(name, 1, stream, &[Arg::Tiling(&[7; 8])]);
        rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_EXCEPTION, text);
    }
}

#[test]
fn every_access_is_held_against_its_block_however_often_that_was_used() {
    let layout = ArgLayout::new([("x", ArgKind::InOut)]).expect("small");
    let kernel = HostKernel::per_launch(layout, CoreKind::Cube, |launch| {
        let (space, x) = (launch.space, launch.args().address(0)?);
        for _ in 0..2 {
            assert_eq!(space.extent(x + 30), Some(10));
            space.read(x + 39, &mut [0])?;
            space.write(x + 36, &[1; 4])?;
            space.write(x + 40, &[])?;
            for (at, len) in [(39, 2), (40, 1), (0, 41), (u64::MAX - x, 1), (1 << 30, 1)] {
                let at = x.wrapping_add(at);
                let (mut out, bytes) = (vec![0; len], vec![0; len]);
                assert!(space.read(at, &mut out).is_err() && space.write(at, &bytes).is_err(), "{len} at {at:#x}");
            }
            assert_eq!((space.extent(x + 40), space.extent(x - 1), space.extent(0)), (None, None, None));
            assert!(space.translate(x + 40).is_none());
        }
        Ok(())
    });
    let rig = Rig::new(HostConfig::new().executor(Executor::Lazy).kernel("t", "edges", kernel));
    let stream = rig.stream();
    let x = rig.device(&[0u8; 40]);
    rig.launch("edges", 1, stream, &[Arg::Pointer(x)]);
    assert_eq!(rig.sync(stream), 0, "{}", rig.message());
    assert_eq!(rig.download::<u8>(x, 40)[35..], [0, 1, 1, 1, 1]);
}

#[test]
fn blocks_and_cores_are_told_to_each_call() {
    type Seen = Arc<Mutex<Vec<(u32, host::Core, u32)>>>;
    let seen: Seen = Seen::default();
    let kernel = |kind, seen: &Seen| {
        let seen = seen.clone();
        HostKernel::per_block(ArgLayout::default(), kind, move |core| {
            assert_eq!(core.blocks(), 2);
            seen.lock().expect("no panic").push((core.block, core.core, core.sub_block));
            Ok(())
        })
    };
    use host::Core::{Aic, Aiv};
    for (kind, expected) in [
        (CoreKind::Vector, vec![(0, Aiv, 0), (1, Aiv, 0)]),
        (CoreKind::Cube, vec![(0, Aic, 0), (1, Aic, 0)]),
        (
            CoreKind::Mix { aiv_per_aic: 2 },
            vec![(0, Aic, 0), (0, Aiv, 0), (0, Aiv, 1), (1, Aic, 0), (1, Aiv, 0), (1, Aiv, 1)],
        ),
    ] {
        for executor in ALL_EXECUTORS {
            let rig = Rig::new(HostConfig::new().executor(executor).kernel("t", "see", kernel(kind, &seen)));
            let stream = rig.stream();
            rig.launch("see", 2, stream, &[]);
            assert_eq!(rig.sync(stream), 0);
            let mut seen = std::mem::take(&mut *seen.lock().expect("no panic"));
            if matches!(executor, Executor::Seeded(_)) {
                seen.sort_by_key(|(block, core, sub)| (*block, *core == Aiv, *sub));
            }
            assert_eq!(seen, expected);
        }
    }
}

#[test]
fn the_seeded_executor_shuffles_blocks() {
    let orders: std::collections::BTreeSet<Vec<u32>> = (0..30)
        .map(|seed| {
            let seen: Arc<Mutex<Vec<u32>>> = Arc::default();
            let note = seen.clone();
            let kernel = HostKernel::per_block(ArgLayout::default(), CoreKind::Vector, move |core| {
                note.lock().expect("no panic").push(core.block);
                Ok(())
            });
            let rig = Rig::new(HostConfig::new().executor(Executor::Seeded(seed)).kernel("t", "see", kernel));
            let stream = rig.stream();
            rig.launch("see", 4, stream, &[]);
            assert_eq!(rig.sync(stream), 0);
            let mut order = seen.lock().expect("no panic").clone();
            let shuffled = order.clone();
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3], "each once");
            shuffled
        })
        .collect();
    assert!(orders.len() > 3, "{orders:?}");
}

#[test]
fn cores_can_wait_for_each_other() {
    for executor in [Executor::Threads, Executor::Lazy, Executor::Seeded(5), Executor::Seeded(6)] {
        let rig = Rig::with(executor);
        let stream = rig.stream();
        let blocks = 8u32;
        let seats = blocks as usize * 3;
        let (x, partial, y) = (rig.malloc(4), rig.malloc(seats * 4), rig.malloc(seats * 4));
        for _ in 0..3 {
            rig.launch("sum", blocks, stream, &[Arg::Pointer(x), Arg::Pointer(partial), Arg::Pointer(y)]);
        }
        assert_eq!(rig.sync(stream), 0, "{}", rig.message());
        assert_eq!(rig.download::<u32>(y, seats), vec![(1..=seats as u32).sum::<u32>(); seats], "{executor:?}");
    }
}

#[test]
fn barriers_that_not_all_cores_reach_are_dead_locks() {
    for executor in [Executor::Threads, Executor::Lazy, Executor::Seeded(1)] {
        let rig = Rig::with(executor);
        let stream = rig.stream();
        let (x, partial, y) = (rig.malloc(4), rig.malloc(300 * 4), rig.malloc(300 * 4));
        // 24 cube cores; the twenty-fifth group of a mix kernel finds none.
        rig.launch("sum", 25, stream, &[Arg::Pointer(x), Arg::Pointer(partial), Arg::Pointer(y)]);
        let before = rig.host.now();
        rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_TIMEOUT, "only 24 are on cores");
        assert_eq!(rig.host.now() - before, Duration::from_secs(1091), "the card gives up after its limit");
        rig.launch("half_barrier", 4, stream, &[]);
        rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_TIMEOUT, "2 of its 4 cores wait");
        rig.launch("half_barrier", 1, stream, &[]);
        assert_eq!(rig.sync(stream), 0, "one core is all cores");
        rig.launch("undeclared_barrier", 2, stream, &[]);
        rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_EXCEPTION, "without a barrier");
        rig.launch("undeclared_barrier", 1, stream, &[]);
        assert_eq!(rig.sync(stream), 0);
    }
}

#[test]
fn a_core_that_fails_or_panics_ends_its_team() {
    let kernel = HostKernel::per_block(ArgLayout::default(), CoreKind::Cube, |core| {
        if core.block == 2 {
            panic!("core 2");
        }
        core.sync_all()
    })
    .with_barrier();
    let rig = Rig::new(HostConfig::new().executor(Executor::Lazy).kernel("t", "one_panics", kernel));
    let stream = rig.stream();
    rig.launch("one_panics", 5, stream, &[]);
    rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_EXCEPTION, "it panicked: core 2");
}

#[test]
fn kernels_cost_what_they_say_or_by_their_bytes() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    let x = rig.malloc(1_000_000);
    let start = rig.host.now();
    rig.launch("noop", 1, stream, &[]);
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(rig.host.now() - start, Duration::from_micros(5));
    rig.launch("beyond", 1, stream, &[Arg::Pointer(x)]);
    assert_eq!(rig.sync(stream), ACL_ERROR_RT_AICORE_EXCEPTION);
    assert_eq!(rig.host.now() - start, Duration::from_micros(11));
    rig.launch("slow", 1, stream, &[]);
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(rig.host.now() - start, Duration::from_micros(5_000_011));
}

fn launch_with(rig: &Rig, stream: aclrtStream, id: u32, value: [u32; 4]) -> aclError {
    let kernel = rig.kernel("slow");
    let args = rig.args(kernel, &[]).expect("no arguments");
    let mut attributes =
        [aclrtLaunchKernelAttr { id: aclrtLaunchKernelAttrId(id), value: aclrtLaunchKernelAttrValue { rsv: value } }];
    let mut config = aclrtLaunchKernelCfg { attrs: attributes.as_mut_ptr(), numAttrs: 1 };
    acl!(rig, aclrtLaunchKernelWithConfig(kernel, 1, stream, &mut config, args, null_mut()))
}

#[test]
fn launches_have_limits_of_virtual_time() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    let start = rig.host.now();
    assert_eq!(launch_with(&rig, stream, 7, [6, 0, 0, 0]), 0);
    assert_eq!(rig.sync(stream), 0, "5 s of 6");
    assert_eq!(launch_with(&rig, stream, 7, [4, 0, 0, 0]), 0);
    rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_TIMEOUT, "limit");
    assert_eq!(rig.host.now() - start, Duration::from_secs(9), "it ran for as long as it might");
    assert_eq!(launch_with(&rig, stream, 8, [4_999_999, 0, 0, 0]), 0);
    assert_eq!(rig.sync(stream), ACL_ERROR_RT_AICORE_TIMEOUT);
    assert_eq!(launch_with(&rig, stream, 8, [0, 1, 0, 0]), 0, "the high half");
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(launch_with(&rig, stream, 1, [1, 0, 0, 0]), 0, "a schedule mode");
    assert_eq!(launch_with(&rig, stream, 1, [3, 0, 0, 0]), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(launch_with(&rig, stream, 7, [0; 4]), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(launch_with(&rig, stream, 77, [0; 4]), ACL_ERROR_RT_PARAM_INVALID);
    let mut config = aclrtLaunchKernelCfg { attrs: null_mut(), numAttrs: 1 };
    let kernel = rig.kernel("slow");
    let args = rig.args(kernel, &[]).expect("no arguments");
    let code = acl!(rig, aclrtLaunchKernelWithConfig(kernel, 1, stream, &mut config, args, null_mut()));
    assert_eq!(code, ACL_ERROR_RT_PARAM_INVALID);
    // For the whole machine.
    let mut actual = 0;
    assert_eq!(acl!(rig, aclrtSetOpExecuteTimeOutV2(3_000_001, &mut actual)), 0);
    assert_eq!(actual, 3_001_000, "rounded to a step");
    assert_eq!(rig.sync(stream), ACL_ERROR_RT_AICORE_TIMEOUT, "the one with a schedule mode only");
    assert_eq!(acl!(rig, aclrtSetOpExecuteTimeOutV2(0, &mut actual)), ACL_ERROR_RT_PARAM_INVALID);
}

#[test]
fn an_unloaded_module_leaves_handles_stale_and_queued_launches_faulty() {
    let rig = Rig::lazy();
    let (stream, log) = (rig.stream(), rig.new_log());
    let module = rig.load("t");
    let kernel = rig.kernel_of(module, "log");
    let args = [Arg::Pointer(log), Arg::U32(1)];
    assert_eq!(rig.try_launch(kernel, 1, stream, &args), 0);
    assert_eq!(acl!(rig, aclrtBinaryUnLoad(module)), 0);
    assert_eq!(acl!(rig, aclrtBinaryUnLoad(module)), ACL_ERROR_RT_INVALID_HANDLE);
    assert_eq!(rig.try_launch(kernel, 1, stream, &args), ACL_ERROR_RT_INVALID_HANDLE);
    rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_EXCEPTION, "unloaded before it ran");
    assert_eq!(rig.read_log(log), [0u32; 0]);
}

#[test]
fn a_simulator_can_use_threads_of_its_own_and_pointers() {
    let layout = ArgLayout::new([("x", ArgKind::InOut)]).expect("small");
    let kernel = HostKernel::per_launch(layout, CoreKind::Cube, |launch| {
        let address = launch.args().address(0)?;
        let bytes = launch.space.extent(address).unwrap_or(0);
        std::thread::scope(|scope| {
            for part in 0..4u64 {
                let space = launch.space;
                scope.spawn(move || {
                    for i in (part..bytes as u64).step_by(4) {
                        let mut byte = [0];
                        space.read(address + i, &mut byte).expect("in bounds");
                        space.write(address + i, &[byte[0] + 1]).expect("in bounds");
                    }
                });
            }
        });
        let (start, bytes) = launch.space.translate(address).ok_or_else(|| KernelFault::exception("gone"))?;
        // SAFETY: the other threads have ended, and the pointer is good for so many bytes.
        let all = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) };
        all.iter_mut().for_each(|byte| *byte *= 2);
        Ok(())
    });
    let rig = Rig::new(HostConfig::new().kernel("t", "threads", kernel));
    let stream = rig.stream();
    let x = rig.device(&[3u8; 32]);
    rig.launch("threads", 1, stream, &[Arg::Pointer(x)]);
    assert_eq!(rig.sync(stream), 0, "{}", rig.message());
    assert_eq!(rig.download::<u8>(x, 32), [8; 32]);
}

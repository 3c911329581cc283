// SPDX-License-Identifier: MIT OR Apache-2.0

//! Arguments of launches: layouts, sizes, numbers, blocks.

use crate::common::*;
use ascend_rt::host::{CoreKind, HostKernel};
use ascend_rt::kernel::{Arg, ArgKind, ArgLayout, KernelSig, LayoutError, MAX_BYTES, MAX_PARAMS};
use ascend_rt::{Error, ErrorKind, Launch};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn layouts_place_parameters_in_slots_of_eight() {
    let layout = ArgLayout::new([
        ("a", ArgKind::Scalar { size: 1 }),
        ("b", ArgKind::In),
        ("c", ArgKind::Scalar { size: 12 }),
        ("d", ArgKind::Tiling { size: 20 }),
        ("e", ArgKind::Workspace),
    ])
    .expect("few");
    let offsets: Vec<usize> = layout.params().iter().map(|param| param.offset).collect();
    assert_eq!(offsets, [0, 8, 16, 32, 40]);
    assert_eq!((layout.block_bytes(), layout.side_bytes()), (48, 24));
}

#[test]
fn layouts_have_their_limits() {
    let many = |count: usize| ArgLayout::new((0..count).map(|i| (format!("p{i}"), ArgKind::In)));
    assert!(many(MAX_PARAMS).is_ok());
    let error = many(MAX_PARAMS + 1).expect_err("129 parameters");
    assert_eq!(error, LayoutError::TooManyParams { found: 129 });
    let error = Error::from(error);
    assert_eq!(
        (error.kind(), error.name()),
        (&ErrorKind::Layout(LayoutError::TooManyParams { found: 129 }), Some("ACL_ERROR_RT_PARAM_INVALID"))
    );
    let sized = |size: usize| ArgLayout::new([("t", ArgKind::Tiling { size })]);
    assert!(sized(MAX_BYTES - 8).is_ok());
    assert_eq!(sized(MAX_BYTES - 7), Err(LayoutError::TooLarge { found: MAX_BYTES + 8 }));
    assert!(matches!(sized(usize::MAX), Err(LayoutError::TooLarge { .. })));
    assert!(matches!(
        ArgLayout::new([("s", ArgKind::Scalar { size: usize::MAX }), ("t", ArgKind::Scalar { size: usize::MAX })]),
        Err(LayoutError::TooLarge { .. })
    ));
    assert_eq!(sized(0), Err(LayoutError::Empty { name: "t".to_owned() }));
    assert!(ArgLayout::new::<&str>([]).is_ok(), "no parameters are a layout");
}

#[test]
fn the_most_parameters_that_there_can_be_arrive() {
    let layout = ArgLayout::new((0..MAX_PARAMS).map(|i| (format!("p{i}"), ArgKind::Scalar { size: 8 }))).expect("few");
    let sum = Arc::new(Mutex::new(0u64));
    let seen = Arc::clone(&sum);
    let kernel = HostKernel::per_launch(layout.clone(), CoreKind::Vector, move |ctx| {
        for i in 0..MAX_PARAMS {
            *seen.lock().expect("one at a time") += ctx.args().scalar::<u64>(i)? * (i as u64 + 1);
        }
        Ok(())
    });
    let context = context_of(config().kernel("test", "many", kernel)).0;
    let kernel = module(&context).kernel_dyn("many", layout, CoreKind::Vector).expect("kernel");
    let stream = context.stream().expect("stream");
    let values: Vec<[u8; 8]> = (0..MAX_PARAMS as u64).map(u64::to_ne_bytes).collect();
    let args: Vec<Arg<'_>> = values.iter().map(|value| Arg::Scalar(value)).collect();
    // SAFETY: the kernel touches no memory.
    unsafe { kernel.launch(&stream, 1, &args) }.expect("launch");
    stream.synchronize().expect("sync");
    assert_eq!(*sum.lock().expect("done"), (0..MAX_PARAMS as u64).map(|i| i * (i + 1)).sum::<u64>());
}

#[test]
fn large_tilings_arrive_whole() {
    for size in [1, 7, 8, 9, 1000, MAX_BYTES - 24] {
        let layout = ArgLayout::new([("one", ArgKind::Tiling { size }), ("value", ArgKind::Scalar { size: 4 })])
            .expect("it fits");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let saw = Arc::clone(&seen);
        let kernel = HostKernel::per_launch(layout.clone(), CoreKind::Cube, move |ctx| {
            *saw.lock().expect("one at a time") = ctx.args().tiling_bytes(0)?;
            assert_eq!(ctx.args().scalar::<u32>(1)?, 77);
            Ok(())
        });
        let context = context_of(config().kernel("test", "big", kernel)).0;
        let kernel = module(&context).kernel_dyn("big", layout, CoreKind::Cube).expect("kernel");
        let stream = context.stream().expect("stream");
        let bytes: Vec<u8> = (0..size).map(|i| (i * 31) as u8).collect();
        // SAFETY: the kernel touches no memory.
        unsafe { kernel.launch(&stream, 1, &[Arg::Tiling(&bytes), Arg::Scalar(&77u32.to_ne_bytes())]) }
            .expect("launch");
        drop(bytes.clone());
        stream.synchronize().expect("sync");
        assert_eq!(*seen.lock().expect("done"), bytes, "{size}");
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused_by_name() {
    let context = context();
    let stream = context.stream().expect("stream");
    let layout = Axpy::layout().expect("layout");
    let kernel = module(&context).kernel_dyn("axpy", layout, CoreKind::Vector).expect("kernel");
    let x = stream.upload(&[1.0f32; 8]).expect("upload");
    let mut y = stream.upload(&[1.0f32; 8]).expect("upload");
    let x = x.slice(..).expect("whole").untyped();
    let y = y.slice_mut(..).expect("whole").untyped();
    let (four, eight) = ([0; 4], [0; 8]);
    let right = [Arg::Input(x), Arg::Output(y), Arg::Scalar(&four), Arg::Tiling(&eight)];
    // SAFETY: with no elements in the tiling the kernel touches nothing.
    unsafe { kernel.launch(&stream, 1, &right) }.expect("launch");
    let wrong: [(&[Arg<'_>], &str); 5] = [
        (&right[..3], "4 arguments"),
        (&[right[1], right[1], right[2], right[3]], "input buffer for `x`"),
        (&[right[0], right[0], right[2], right[3]], "input and output buffer for `y`"),
        (&[right[0], right[1], Arg::Scalar(&eight), right[3]], "scalar of 4 bytes for `a`"),
        (&[right[0], right[1], right[2], Arg::Scalar(&eight)], "tiling of 8 bytes for `split`"),
    ];
    for (args, expected) in wrong {
        // SAFETY: the launch is refused.
        let error = unsafe { kernel.launch(&stream, 1, args) }.expect_err("it does not fit");
        assert!(matches!(error.kind(), ErrorKind::Argument { argument: "args", .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.name(), Some("ACL_ERROR_RT_PARAM_INVALID"));
    }
    stream.synchronize().expect("nothing was spoiled");
}

#[test]
fn a_declaration_that_differs_from_the_kernel_is_refused_at_the_launch() {
    let context = context();
    let stream = context.stream().expect("stream");
    // The kernel has four parameters; this layout has two of them swapped, and one less.
    let swapped = ArgLayout::new([
        ("x", ArgKind::In),
        ("y", ArgKind::InOut),
        ("split", ArgKind::Tiling { size: 8 }),
        ("a", ArgKind::Scalar { size: 4 }),
    ])
    .expect("layout");
    let fewer = ArgLayout::new([("x", ArgKind::In), ("y", ArgKind::InOut)]).expect("layout");
    let x = stream.upload(&[1.0f32; 8]).expect("upload");
    let mut y = stream.upload(&[1.0f32; 8]).expect("upload");
    let (x, y) = (x.slice(..).expect("whole").untyped(), y.slice_mut(..).expect("whole").untyped());
    let (four, eight) = ([0; 4], [0; 8]);
    let args = [Arg::Input(x), Arg::Output(y), Arg::Tiling(&eight), Arg::Scalar(&four)];
    for (layout, args) in [(swapped, &args[..]), (fewer, &args[..2])] {
        let kernel = module(&context).kernel_dyn("axpy", layout, CoreKind::Vector).expect("kernel");
        // SAFETY: the emulator checks the block.
        let error = unsafe { kernel.launch(&stream, 1, args) }.expect_err("another layout");
        assert_eq!((error.call(), error.code().0), ("aclrtLaunchKernelWithConfig", 107000), "{error}");
    }
    check_axpy(&stream, &Kernels::new(&context));
}

#[test]
fn numbers_of_blocks_have_their_limits() {
    let context = context();
    let kernels = Kernels::new(&context);
    let stream = context.stream().expect("stream");
    // SAFETY: the kernel touches nothing.
    let launch = |blocks| unsafe { kernels.empty.launch(&stream, blocks, Empty {}) };
    launch(1).expect("launch");
    launch(100).expect("more blocks than cores are queued in waves");
    let error = launch(0).expect_err("no blocks");
    assert!(matches!(error.kind(), ErrorKind::Argument { argument: "blocks", .. }), "{error}");
    // Cores that wait for each other must all be there.
    assert_eq!(kernels.wait.cores(), Some(24));
    let mut out = context.alloc::<u32>(8).expect("memory");
    let mut scratch = context.alloc::<u8>(64).expect("memory");
    // SAFETY: the kernel touches nothing.
    let mut wait = |blocks: u32| unsafe {
        kernels.wait.launch(&stream, blocks, Wait { out: (&mut out).into(), scratch: (&mut scratch).into() })
    };
    wait(24).expect("launch");
    let error = wait(25).expect_err("more blocks than cores");
    assert!(error.to_string().contains("at most 24"), "{error}");
    stream.synchronize().expect("sync");
}

#[test]
fn launches_have_limits_names_and_modes() {
    let context = context();
    let kernels = Kernels::new(&context);
    let stream = context.stream().expect("stream");
    // SAFETY: the kernel touches nothing.
    let launch = |launch: Launch| unsafe { kernels.empty.launch(&stream, launch, Empty {}) };
    launch(Launch::blocks(2).batch().timeout(Duration::from_secs(1)).named("empty")).expect("launch");
    let error = launch(Launch::blocks(2).timeout(Duration::ZERO).named("router")).expect_err("no time at all");
    assert_eq!((error.op(), error.name()), (Some("router"), Some("ACL_ERROR_RT_PARAM_INVALID")));
    launch(Launch::blocks(2).timeout(Duration::MAX)).expect("launch");
    stream.synchronize().expect("sync");
}

#[test]
fn a_launch_over_its_time_is_told() {
    let slow = Empty::on_host(|_| Ok(())).expect("layout").with_cost(|_| Duration::from_secs(3));
    let context = context_of(config().kernel("test", "empty", slow)).0;
    let kernels = Kernels::new(&context);
    let stream = context.stream().expect("stream");
    // SAFETY: the kernel touches nothing.
    unsafe { kernels.empty.launch(&stream, Launch::blocks(1).timeout(Duration::from_secs(5)), Empty {}) }
        .expect("launch");
    stream.synchronize().expect("five seconds are enough");
    // SAFETY: the kernel touches nothing.
    unsafe { kernels.empty.launch(&stream, Launch::blocks(1).timeout(Duration::from_secs(2)), Empty {}) }
        .expect("launch");
    let error = stream.synchronize().expect_err("two are not");
    assert_eq!(error.name(), Some("ACL_ERROR_RT_AICORE_TIMEOUT"));
}

proptest! {
    #[test]
    fn every_layout_that_is_taken_keeps_its_promises(
        kinds in prop::collection::vec(
            prop_oneof![
                Just(ArgKind::In), Just(ArgKind::Out), Just(ArgKind::InOut), Just(ArgKind::Workspace),
                (1usize..3000).prop_map(|size| ArgKind::Scalar { size }),
                (1usize..3000).prop_map(|size| ArgKind::Tiling { size }),
            ],
            0..140,
        ),
    ) {
        let params = kinds.iter().enumerate().map(|(i, &kind)| (format!("p{i}"), kind));
        match ArgLayout::new(params) {
            Ok(layout) => {
                prop_assert!(layout.params().len() <= MAX_PARAMS);
                prop_assert!(layout.block_bytes() + layout.side_bytes() <= MAX_BYTES);
                let mut end = 0;
                for param in layout.params() {
                    prop_assert_eq!(param.offset, end);
                    prop_assert_eq!(param.offset % 8, 0);
                    end += param.kind.slot_bytes();
                }
                prop_assert_eq!(end, layout.block_bytes());
            }
            Err(LayoutError::TooManyParams { found }) => prop_assert!(found > MAX_PARAMS),
            Err(LayoutError::TooLarge { found }) => prop_assert!(found > MAX_BYTES),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}

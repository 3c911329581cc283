// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the safe layer costs, on the emulator, with a kernel that does nothing: launches per second beside the same calls
//! without the layer, what a launch allocates, and a graph of a thousand nodes beside a thousand launches.
//!
//! The emulator's own work is in all numbers; the difference between two of them is the layer. `--json FILE` writes them.

use ascend_rt::host::{HostConfig, HostKernel};
use ascend_rt::kernel::{CoreKind, KernelSig};
use ascend_rt::raw::Raw;
use ascend_rt::{Blob, CaptureMode, Choice, Context, Kernel, Module, Result, Runtime, Stream, kernel, tiling};
use std::cell::Cell;
use std::time::Instant;

tiling! {
    struct Shape {
        m: u32,
        n: u32,
        k: u32,
        tiles: u32,
    }
}

kernel! {
    kernel Empty("empty") on vector {}

    /// The arguments of a small operator.
    kernel Operator("operator") on vector {
        x: in f32,
        w: in f32,
        y: out f32,
        alpha: scalar f32,
        shape: tiling Shape,
    }
}

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts what each thread asks for.
struct Counting;

// SAFETY: every method hands its arguments to the system's allocator, which keeps the contract.
unsafe impl std::alloc::GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract.
        unsafe { std::alloc::System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: std::alloc::Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { std::alloc::System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Row {
    name: &'static str,
    /// Tasks per second.
    rate: f64,
    /// Allocations of this thread per task.
    allocations: f64,
}

/// The best of some runs of `tasks` tasks each. Only submitting is timed: the host waits for the rest in between.
fn measure(name: &'static str, tasks: u32, stream: &Stream, mut submit: impl FnMut() -> Result<()>) -> Result<Row> {
    let (mut rate, mut allocations) = (0.0f64, f64::MAX);
    for _ in 0..20 {
        stream.synchronize()?;
        let before = COUNT.with(Cell::get);
        let begin = Instant::now();
        submit()?;
        let time = begin.elapsed().as_secs_f64();
        allocations = allocations.min((COUNT.with(Cell::get) - before) as f64 / f64::from(tasks));
        rate = rate.max(f64::from(tasks) / time);
    }
    stream.synchronize()?;
    Ok(Row { name, rate, allocations })
}

/// The calls of an empty launch and nothing else.
fn bare(raw: &dyn Raw, stream: &Stream, function: *mut core::ffi::c_void) {
    let mut args = core::ptr::null_mut();
    // SAFETY: the context is bound, function and stream live, and the block is this thread's.
    let code = unsafe {
        raw.aclrtKernelArgsInit(function, &raw mut args)
            | raw.aclrtKernelArgsFinalize(args)
            | raw.aclrtLaunchKernelWithConfig(
                function,
                1,
                stream.handle(),
                core::ptr::null_mut(),
                args,
                core::ptr::null_mut(),
            )
    };
    assert_eq!(code, 0, "a launch without the layer");
}

/// The kernel's handle, for the calls without the layer.
fn function(context: &Context) -> Result<*mut core::ffi::c_void> {
    let runtime = context.runtime();
    let raw = runtime.raw();
    let _bound = context.bind()?;
    let image = ascend_rt::host::module_image("bench", None);
    let (mut module, mut function) = (core::ptr::null_mut(), core::ptr::null_mut());
    // SAFETY: the image has so many bytes, the name ends with zero, and both handles are written.
    let code = unsafe {
        raw.aclrtBinaryLoadFromData(image.as_ptr().cast(), image.len(), core::ptr::null(), &raw mut module)
            | raw.aclrtBinaryGetFunction(module, c"empty".as_ptr(), &raw mut function)
    };
    assert_eq!(code, 0, "the module loads");
    Ok(function)
}

fn main() -> Result<()> {
    const TASKS: u32 = 1000;
    let nothing = |layout| HostKernel::per_launch(layout, CoreKind::Vector, |_| Ok(()));
    let config = HostConfig::new().kernel("bench", Empty::NAME, nothing(Empty::layout()?)).kernel(
        "bench",
        Operator::NAME,
        nothing(Operator::layout()?),
    );
    let context = Runtime::open(Choice::Host(config))?.device(0)?.isolated()?;
    let module = Module::load(&context, &[Blob::emulator("bench")])?;
    let empty: Kernel<Empty> = module.kernel()?;
    let operator: Kernel<Operator<'static>> = module.kernel()?;
    let mut stream = context.stream()?;
    let x = context.alloc::<f32>(1024)?;
    let w = context.alloc::<f32>(1024)?;
    let mut y = context.alloc::<f32>(1024)?;
    let shape = Shape { m: 1, n: 32, k: 32, tiles: 1 };

    // SAFETY: the kernels do nothing.
    let launch_empty = |stream: &Stream| unsafe { empty.launch(stream, 1, Empty {}) };
    let raw = context.runtime().raw().clone();
    let function = function(&context)?;
    let mut rows = Vec::new();
    {
        let _bound = context.bind()?;
        rows.push(measure("empty launch, calls alone", TASKS, &stream, || {
            (0..TASKS).for_each(|_| bare(&*raw, &stream, function));
            Ok(())
        })?);
    }
    rows.push(measure("empty launch", TASKS, &stream, || (0..TASKS).try_for_each(|_| launch_empty(&stream)))?);
    rows.push(measure("launch with 3 buffers, scalar, tiling", TASKS, &stream, || {
        (0..TASKS).try_for_each(|_| {
            let args = Operator { x: (&x).into(), w: (&w).into(), y: (&mut y).into(), alpha: 1.0, shape };
            // SAFETY: the kernels do nothing.
            unsafe { operator.launch(&stream, 1, args) }
        })
    })?);
    let mut graph = stream.capture(CaptureMode::default(), |capture| {
        (0..TASKS).try_for_each(|_| {
            let args = Operator { x: (&x).into(), w: (&w).into(), y: (&mut y).into(), alpha: 1.0, shape };
            // SAFETY: the kernels do nothing.
            unsafe { operator.launch(capture, 1, args) }
        })
    })?;
    rows.push(measure("replay of 1000 such launches, submitting", TASKS, &stream, || {
        graph.replay(&stream).map(|_| ())
    })?);
    let whole = |name, work: &mut dyn FnMut() -> Result<()>| {
        measure(name, TASKS, &stream, || {
            work()?;
            stream.synchronize()
        })
    };
    rows.push(whole("1000 such launches, with the wait", &mut || {
        (0..TASKS).try_for_each(|_| {
            let args = Operator { x: (&x).into(), w: (&w).into(), y: (&mut y).into(), alpha: 1.0, shape };
            // SAFETY: the kernels do nothing.
            unsafe { operator.launch(&stream, 1, args) }
        })
    })?);
    rows.push(whole("replay of 1000 such launches, with the wait", &mut || graph.replay(&stream).map(|_| ()))?);

    println!("{:<45} {:>14} {:>10} {:>12}", "tasks on the emulator", "tasks/s", "ns/task", "allocs/task");
    for row in &rows {
        println!("{:<45} {:>14.0} {:>10.0} {:>12.3}", row.name, row.rate, 1e9 / row.rate, row.allocations);
    }
    let mut arguments = std::env::args().skip_while(|argument| argument != "--json");
    if let (Some(_), Some(path)) = (arguments.next(), arguments.next()) {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                serde_json::json!({
                    "name": row.name, "tasks_per_second": row.rate, "allocations_per_task": row.allocations,
                })
            })
            .collect();
        if let Err(error) = std::fs::write(&path, format!("{:#}\n", serde_json::Value::from(rows))) {
            eprintln!("{path} cannot be written: {error}");
        }
    }
    Ok(())
}

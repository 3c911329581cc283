// SPDX-License-Identifier: MIT OR Apache-2.0

//! What many tests need: a machine, kernels for it, and a program that is the same on both backends.

use ascend_rt::host::{BlockCtx, Chip, Executor, HostConfig, HostKernel, KernelFault, ReportSlot};
use ascend_rt::kernel::KernelSig;
use ascend_rt::{Blob, Choice, Context, Module, Queue, Runtime, Stream, kernel, tiling};

tiling! {
    /// Which part a block has.
    pub struct Split {
        pub n: u32,
        pub per_block: u32,
    }
}

kernel! {
    /// `y = a * x + y`
    pub kernel Axpy("axpy") on vector {
        x: in f32,
        y: inout f32,
        a: scalar f32,
        split: tiling Split,
    }

    /// `out = value`
    pub kernel Set("set") on vector {
        out: out u32,
        value: scalar u32,
        n: scalar u32,
    }

    /// `out = in + 1`
    pub kernel Next("next") on vector {
        input: in u32,
        out: out u32,
        n: scalar u32,
    }

    /// Reads beyond its buffer.
    pub kernel Faulty("faulty") on vector {
        out: out u32,
    }

    /// Traps.
    pub kernel Trap("trap") on vector {
        out: out u32,
    }

    /// Does nothing.
    pub kernel Empty("empty") on vector {}

    /// Cores that wait for each other.
    pub kernel Wait("wait") on mix(2) with barrier {
        out: out u32,
        scratch: workspace,
    }
}

fn axpy(ctx: &BlockCtx<'_>) -> Result<(), KernelFault> {
    let args = ctx.args();
    let (x, y, a) = (args.buffer(0)?, args.buffer(1)?, args.scalar::<f32>(2)?);
    let split: Split = args.tiling(3)?;
    let begin = ctx.block * split.per_block;
    for i in begin..(begin + split.per_block).min(split.n) {
        let i = i as usize;
        y.store(i, &(a * x.load::<f32>(i)? + y.load::<f32>(i)?))?;
    }
    Ok(())
}

fn set(ctx: &BlockCtx<'_>) -> Result<(), KernelFault> {
    let (out, value, n) = (ctx.args().buffer(0)?, ctx.args().scalar::<u32>(1)?, ctx.args().scalar::<u32>(2)?);
    out.write(0, &vec![value; n as usize])
}

fn next(ctx: &BlockCtx<'_>) -> Result<(), KernelFault> {
    let (input, out, n) = (ctx.args().buffer(0)?, ctx.args().buffer(1)?, ctx.args().scalar::<u32>(2)?);
    let mut values = input.read::<u32>(0, n as usize)?;
    for value in &mut values {
        *value = value.wrapping_add(1);
    }
    out.write(0, &values)
}

/// The kernels above, for a machine.
fn kernels() -> Vec<(&'static str, HostKernel)> {
    let layout = "the parameters are few";
    vec![
        (Axpy::NAME, Axpy::on_host(axpy).expect(layout)),
        (Set::NAME, Set::on_host(set).expect(layout)),
        (Next::NAME, Next::on_host(next).expect(layout)),
        (Faulty::NAME, Faulty::on_host(|ctx| ctx.args().buffer(0)?.load::<u32>(1 << 20).map(|_| ())).expect(layout)),
        (Trap::NAME, Trap::on_host(|_| Err(KernelFault::trap("assertion failed"))).expect(layout)),
        (Empty::NAME, Empty::on_host(|_| Ok(())).expect(layout)),
        (Wait::NAME, Wait::on_host(|_| Ok(())).expect(layout)),
    ]
}

/// A machine that has the kernels above in the module `test`.
pub(crate) fn config() -> HostConfig {
    kernels().into_iter().fold(HostConfig::new(), |config, (name, kernel)| config.kernel("test", name, kernel))
}

/// A runtime on it.
pub(crate) fn runtime(config: HostConfig) -> Runtime {
    Runtime::open(Choice::Host(config)).expect("the emulator opens")
}

/// An isolated context on a machine with the kernels, with the slot for what it leaves behind.
pub(crate) fn context_of(config: HostConfig) -> (Context, ReportSlot) {
    let slot = ReportSlot::new();
    let runtime = runtime(config.report_to(&slot));
    (runtime.device(0).expect("device").isolated().expect("context"), slot)
}

/// The same with nothing particular.
pub(crate) fn context() -> Context {
    context_of(config()).0
}

/// The machine must be gone, and have left nothing behind.
#[track_caller]
pub(crate) fn assert_clean(slot: &ReportSlot) {
    let report = slot.take().expect("something still holds the machine");
    assert!(report.is_clean(), "{report}");
}

pub(crate) fn module(context: &Context) -> Module {
    Module::load(context, &[Blob::emulator("test")]).expect("the module loads")
}

/// The kernels of a context.
pub(crate) struct Kernels {
    pub axpy: ascend_rt::Kernel<Axpy<'static>>,
    pub set: ascend_rt::Kernel<Set<'static>>,
    pub next: ascend_rt::Kernel<Next<'static>>,
    pub faulty: ascend_rt::Kernel<Faulty<'static>>,
    pub trap: ascend_rt::Kernel<Trap<'static>>,
    pub empty: ascend_rt::Kernel<Empty>,
    pub wait: ascend_rt::Kernel<Wait<'static>>,
}

impl Kernels {
    pub(crate) fn new(context: &Context) -> Self {
        let module = module(context);
        Self {
            axpy: module.kernel().expect("axpy"),
            set: module.kernel().expect("set"),
            next: module.kernel().expect("next"),
            faulty: module.kernel().expect("faulty"),
            trap: module.kernel().expect("trap"),
            empty: module.kernel().expect("empty"),
            wait: module.kernel().expect("wait"),
        }
    }

    /// `out = value`
    pub(crate) fn set(
        &self,
        queue: &impl Queue,
        out: &mut ascend_rt::DeviceBuffer<u32>,
        value: u32,
    ) -> ascend_rt::Result<()> {
        // SAFETY: the kernel writes the whole buffer and nothing else.
        unsafe { self.set.launch(queue, 1, Set { n: out.len() as u32, out: out.into(), value }) }
    }

    /// `out = input + 1`; the buffers are of one length.
    pub(crate) fn next(
        &self,
        queue: &impl Queue,
        input: &ascend_rt::DeviceBuffer<u32>,
        out: &mut ascend_rt::DeviceBuffer<u32>,
    ) -> ascend_rt::Result<()> {
        // SAFETY: the kernel reads one buffer and writes as much into the other; where that is too short, the emulator
        // finds it.
        unsafe { self.next.launch(queue, 1, Next { n: input.len() as u32, input: input.into(), out: out.into() }) }
    }

    /// Fails on the device with 507015.
    pub(crate) fn fault(&self, queue: &impl Queue, out: &mut ascend_rt::DeviceBuffer<u32>) -> ascend_rt::Result<()> {
        // SAFETY: the emulator checks every access.
        unsafe { self.faulty.launch(queue, 1, Faulty { out: out.into() }) }
    }

    /// Fails on the device with 507016.
    pub(crate) fn trap(&self, queue: &impl Queue, out: &mut ascend_rt::DeviceBuffer<u32>) -> ascend_rt::Result<()> {
        // SAFETY: the kernel touches nothing.
        unsafe { self.trap.launch(queue, 1, Trap { out: out.into() }) }
    }
}

/// The ways in which a machine runs tasks.
pub(crate) fn executors() -> [Executor; 4] {
    [Executor::Threads, Executor::Lazy, Executor::Seeded(1), Executor::Seeded(0xdead_beef)]
}

pub(crate) fn chip(name: &str) -> Chip {
    Chip::preset(name).expect("a known chip")
}

/// Runs a stream's worth of work and checks it: copies, fills and a kernel.
pub(crate) fn check_axpy(stream: &Stream, kernels: &Kernels) {
    let n = 1000usize;
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let dx = stream.upload(&x).expect("upload");
    let mut dy = stream.upload(&vec![1.0f32; n]).expect("upload");
    let args = Axpy { x: (&dx).into(), y: (&mut dy).into(), a: 2.0, split: Split { n: n as u32, per_block: 100 } };
    // SAFETY: both buffers have `n` elements, and ten blocks of a hundred cover them.
    unsafe { kernels.axpy.launch(stream, 10, args) }.expect("launch");
    let y = stream.download(&dy).expect("download");
    assert!(y.iter().enumerate().all(|(i, &y)| y == 2.0 * i as f32 + 1.0));
}

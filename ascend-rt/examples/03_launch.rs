// SPDX-License-Identifier: MIT OR Apache-2.0

//! Declare a kernel, give the emulator a function in its place, and launch it.

use ascend_rt::host::{BlockCtx, HostConfig, KernelFault};
use ascend_rt::kernel::KernelSig;
use ascend_rt::{Arch, Blob, Choice, Launch, Module, Result, Runtime, kernel, tiling};

tiling! {
    /// How the rows are split. The device code has the same struct.
    pub(crate) struct Split {
        pub n: u32,
        pub per_block: u32,
    }
}

kernel! {
    /// `y = a * x + y`, on as many vector cores as there are blocks.
    pub(crate) kernel Axpy("axpy_f32") on vector {
        x: in f32,
        y: inout f32,
        a: scalar f32,
        split: tiling Split,
    }
}

/// What stands for the device code on the emulator. It reads its arguments as the device code does, and every access is
/// checked.
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

pub(crate) fn main() -> Result<()> {
    // On a card, `Choice::Auto` and an ELF file for its architecture in `blobs` are all the difference.
    let config = HostConfig::new().kernel("example", Axpy::NAME, Axpy::on_host(axpy)?);
    let context = Runtime::open(Choice::Host(config))?.device(0)?.isolated()?;
    let stream = context.stream()?;

    // The blob that fits the device is loaded.
    let blobs = [Blob::emulator("example"), Blob::arch(Arch::DAV_2201, b"the ELF file of a build script")];
    let module = Module::load(&context, &blobs)?;
    let axpy = module.kernel::<Axpy>()?;

    let n = 1000;
    let x = stream.upload(&vec![3.0f32; n])?;
    let mut y = stream.upload(&vec![1.0f32; n])?;
    let split = Split { n: n as u32, per_block: 125 };
    let args = Axpy { x: (&x).into(), y: (&mut y).into(), a: 2.0, split };
    // SAFETY: both buffers have `n` elements, and eight blocks of 125 cover them exactly.
    unsafe { axpy.launch(&stream, Launch::blocks(8).named("axpy"), args) }?;
    assert_eq!(stream.download(&y)?, vec![7.0; n]);
    println!("{n} elements on 8 blocks");
    Ok(())
}

// SPDX-License-Identifier: MIT OR Apache-2.0

// What a kernel writes is nothing else that it is given.

use ascend_rt::{DeviceBuffer, Kernel, Result, Stream, kernel};

kernel! {
    kernel Add("add") on vector {
        x: in f32,
        y: out f32,
    }
}

fn in_place(stream: &Stream, kernel: &Kernel<Add<'static>>, buffer: &mut DeviceBuffer<f32>) -> Result<()> {
    unsafe { kernel.launch(stream, 1, Add { x: (&*buffer).into(), y: buffer.into() }) }
}

fn main() {}

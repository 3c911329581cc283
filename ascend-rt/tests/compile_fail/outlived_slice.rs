// SPDX-License-Identifier: MIT OR Apache-2.0

// A part of a buffer does not outlive it.

use ascend_rt::{Context, DeviceSlice, Result};

fn dangling(context: &Context) -> Result<()> {
    let slice: DeviceSlice<'_, u8> = {
        let buffer = context.alloc::<u8>(8)?;
        buffer.slice(..)?
    };
    println!("{slice:?}");
    Ok(())
}

fn main() {}

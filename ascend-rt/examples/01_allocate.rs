// SPDX-License-Identifier: MIT OR Apache-2.0

//! Open a backend, ask a device what it is, and take memory from it.
//!
//! With a card and CANN this runs on the card; everywhere else on the emulator, and says why.

use ascend_rt::{Choice, ErrorKind, Result, Runtime};

pub(crate) fn main() -> Result<()> {
    let runtime = Runtime::open(Choice::Auto)?;
    println!("backend: {}", runtime.backend());
    if let Some(reason) = runtime.why_host() {
        println!("emulated, because {reason}");
    }

    let device = runtime.device(0)?;
    let facts = device.facts();
    println!("{}", facts.soc.as_deref().unwrap_or("a chip without a name"));
    if let (Some(arch), Some(cube), Some(vector)) = (facts.arch, facts.cube_cores, facts.vector_cores) {
        // Every fact says where it comes from.
        println!("{} with {} cube and {} vector cores ({:?})", arch.value, cube.value, vector.value, cube.source);
    }

    // A context of our own. Everything that is made in it keeps it alive.
    let context = device.isolated()?;
    let memory = context.memory()?;
    println!("{} of {} MiB are free", memory.free >> 20, memory.total >> 20);

    // Memory has a type and a length. What it holds is undefined, and the host cannot look into it.
    let buffer = context.alloc::<f32>(1 << 20)?;
    println!("{buffer:?}");
    assert_eq!(context.memory_use().live, 4 << 20);

    // What does not fit is an error that says how much there is.
    match context.alloc::<u8>(memory.total + 1) {
        Err(error) => match error.kind() {
            ErrorKind::OutOfMemory { asked, free, .. } => println!("{asked} bytes do not fit into {free}"),
            _ => return Err(error),
        },
        Ok(_) => unreachable!("no device has more memory than it has"),
    }

    // Dropping frees, when the last task that uses the memory is done.
    drop(buffer);
    assert_eq!(context.memory_use().live, 0);
    Ok(())
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Images on the emulator of `ascend-rt`.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ascend_rt::host::{self, CoreKind, HostKernel, KernelFault, LaunchCtx, LoadedModule};
use ascend_rt::kernel::{ArgKind, ArgLayout};

use crate::Task;
use crate::cost::{Chip, Options, simulate};
use crate::image::{Image, Kernel};
use crate::launch::{Call, Memory, Mode, Role, Run, RunError};
use crate::settings::Settings;
use crate::timeline::{numbered, write_timeline};

/// What holds in place of the environment.
static CONFIGURED: RwLock<Option<Settings>> = RwLock::new(None);

/// Launches in words, while somebody wants them.
pub(crate) static LAUNCHES: Mutex<Option<String>> = Mutex::new(None);

/// Lets every emulator of the process load images of the twin: `Module::load` then takes the blobs that
/// `ascend_build` has made under the feature `sim`.
///
/// Each launch is a run of the image with the [settings](Settings) of that moment. A kernel that breaks a rule is error
/// 507015 at the next synchronisation (507014 if it would never end), with the report in the message. Its predicted
/// time goes to the virtual clock.
///
/// A pointer argument stands for the memory from there to the end of its allocation; one into no allocation is passed
/// on as it is, and using it is a fault. Parameters called `workspace` are scratch memory. Addresses that lie in memory
/// themselves are not translated.
///
/// It may be called many times.
pub fn install() {
    host::register_loader("ascend-sim", load);
}

/// Puts settings in the place of those that the environment has, for all launches from now on; `None` for the
/// environment again.
pub fn configure(settings: Option<Settings>) {
    *CONFIGURED.write().unwrap_or_else(PoisonError::into_inner) = settings;
}

fn load(bytes: &[u8], chip: &host::Chip) -> Option<Result<LoadedModule, String>> {
    Image::recognises(bytes).then(|| module(bytes, chip))
}

fn module(bytes: &[u8], chip: &host::Chip) -> Result<LoadedModule, String> {
    let image = Image::load(bytes).map_err(|error| error.to_string())?;
    if i64::from(image.arch()) != chip.arch {
        return Err(format!(
            "module {} is for dav-{}, and {} is dav-{}",
            image.name(),
            image.arch(),
            chip.name,
            chip.arch
        ));
    }
    let limits = Arc::new(simulated(chip, image.arch())?);
    let mut kernels = Vec::new();
    for (number, kernel) in image.kernels().iter().enumerate() {
        let (image, limits) = (image.clone(), Arc::clone(&limits));
        let run = move |ctx: &LaunchCtx<'_>| run(&image, number, &limits, ctx);
        kernels.push((kernel.name.clone(), HostKernel::timed(layout(kernel)?, cores(kernel.task), run)));
    }
    Ok(LoadedModule { name: image.name().to_owned(), kernels })
}

/// The chip of the emulator as the twin knows it: what the emulator says, with the rates of the chip of that name, or of
/// one of the architecture.
fn simulated(chip: &host::Chip, arch: u32) -> Result<Chip, String> {
    let family = if arch == 3510 { "950" } else { "910b2" };
    let mut found = Chip::preset(&chip.name).or_else(|_| Chip::preset(family)).map_err(|error| error.to_string())?;
    if found.arch.number() != arch {
        return Err(format!("the twin knows no architecture dav-{arch}"));
    }
    found.name.clone_from(&chip.name);
    (found.cube_cores, found.vector_cores) = (chip.cube_cores, chip.vector_cores);
    (found.mhz, found.memory, found.l2) = (chip.mhz, chip.memory, chip.l2);
    Ok(found)
}

/// The parameters as the emulator checks them.
fn layout(kernel: &Kernel) -> Result<ArgLayout, String> {
    let params = kernel.parameters.iter().enumerate().map(|(index, parameter)| {
        let kind = match parameter.is_pointer {
            true => ArgKind::Pointer,
            false => ArgKind::Scalar { size: parameter.bytes as usize },
        };
        (kernel.parameter_name(index), kind)
    });
    ArgLayout::new(params).map_err(|error| format!("kernel {}: {error}", kernel.name))
}

fn cores(task: Task) -> CoreKind {
    match task {
        Task::AivOnly | Task::MixAiv10 => CoreKind::Vector,
        Task::AicOnly | Task::MixAic10 => CoreKind::Cube,
        Task::Mix11 => CoreKind::Mix { aiv_per_aic: 1 },
        Task::Mix12 => CoreKind::Mix { aiv_per_aic: 2 },
    }
}

fn run(image: &Image, number: usize, chip: &Chip, ctx: &LaunchCtx<'_>) -> Result<Option<Duration>, KernelFault> {
    let configured = CONFIGURED.read().unwrap_or_else(PoisonError::into_inner).clone();
    let settings = configured.map_or_else(Settings::from_env, Ok).map_err(|e| KernelFault::exception(e.to_string()))?;
    let kernel = &image.kernels()[number];
    if let Some(text) = LAUNCHES.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        *text += &described(ctx);
    }
    let mut memory = Vec::new();
    let mut args = vec![0; kernel.args_bytes as usize];
    let mut pointers = Vec::new();
    for (index, (parameter, slot)) in kernel.parameters.iter().zip(ctx.layout.params()).enumerate() {
        let from = slot.offset..slot.offset + parameter.bytes as usize;
        let bytes = ctx.block.get(from).ok_or_else(|| KernelFault::exception("the argument block is too short"))?;
        let place = parameter.offset as usize..(parameter.offset + parameter.bytes) as usize;
        args[place.clone()].copy_from_slice(bytes);
        let address = bytes.try_into().map(u64::from_le_bytes).ok().filter(|_| parameter.is_pointer);
        let Some(address) = address else { continue };
        let (Some((start, usable)), Some(extent)) = (ctx.space.translate(address), ctx.space.extent(address)) else {
            continue;
        };
        args[place].copy_from_slice(&(start.as_ptr().expose_provenance() as u64).to_le_bytes());
        let name = kernel.parameter_name(index);
        let role = if name == "workspace" { Role::Workspace } else { Role::Buffer };
        // The extent is the size that was asked for: what a card moves beyond it by luck is out of bounds here.
        let bytes = extent.min(usable);
        pointers.push(Memory { address: start.as_ptr(), bytes, role, name: Some(name), device: address });
    }
    // Arguments in one allocation reach to its end alike: one range holds them all.
    pointers.sort_by_key(|memory| memory.device);
    for range in pointers {
        match memory.last_mut() {
            Some(before) if is_within(&range, before) => {
                // Results must be defined, whatever else the allocation is for.
                if range.role == Role::Buffer {
                    before.role = Role::Buffer;
                }
            }
            _ => memory.push(range),
        }
    }
    let call = Call {
        kernel: number,
        blocks: ctx.blocks,
        mode: settings.mode,
        chip,
        memory: &memory,
        args: &args,
        mutes: &[],
        // The time of a launch does not depend on the order that was tried.
        record: !matches!(settings.mode, Mode::Chaos(_)) || settings.trace.is_some(),
        verbose: settings.verbose,
    };
    // SAFETY: the ranges were translated for this launch, which has the device to itself.
    let result = unsafe { image.run(&call, &mut |text| print!("{text}")) };
    match result {
        Ok(run) => finish(&run, &kernel.name, chip, &settings),
        Err(RunError::Fault(fault)) if fault.rule.hangs() => Err(KernelFault::timeout(fault.to_string())),
        Err(error) => Err(KernelFault::exception(error.to_string())),
    }
}

/// The argument block of a launch as it arrived: where each parameter lies, how much memory its address reaches, and the
/// bytes of scalars and of the tiling, as 32-bit words. Addresses themselves differ from run to run.
fn described(ctx: &LaunchCtx<'_>) -> String {
    let mut text = format!(
        "{} on {}, {} blocks, {:?}, an argument block of {} bytes\n",
        ctx.kernel,
        ctx.soc,
        ctx.blocks,
        ctx.kind,
        ctx.block.len()
    );
    let words = |text: &mut String, bytes: &[u8]| {
        for (line, row) in bytes.chunks(32).enumerate() {
            let row: Vec<String> = row
                .chunks(4)
                .map(|word| word.iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>())
                .collect();
            let _ = writeln!(text, "          {:4}: {}", 32 * line, row.join(" "));
        }
    };
    for param in ctx.layout.params() {
        let _ = write!(text, "    {:4} {:16} ", param.offset, param.name);
        let bytes = ctx.block.get(param.offset..param.offset + param.kind.slot_bytes()).unwrap_or_default();
        let address = bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
        match (param.kind, ctx.space.extent(address)) {
            (ArgKind::Scalar { .. }, _) => {
                text += "by value\n";
                words(&mut text, bytes);
            }
            (_, None) => text += if address == 0 { "null\n" } else { "an address of no memory\n" },
            (_, Some(extent)) => {
                let _ = writeln!(text, "an address of {extent} bytes");
                let mut content = vec![0; extent];
                if param.name == "tiling" && ctx.space.read(address, &mut content).is_ok() {
                    words(&mut text, &content);
                }
            }
        }
    }
    text
}

/// Whether a range lies in another one that ends where it does.
fn is_within(range: &Memory, other: &Memory) -> bool {
    let end = |memory: &Memory| memory.device.checked_add(memory.bytes as u64);
    range.device >= other.device && end(range).is_some() && end(range) <= end(other)
}

/// What a launch that came to its end leaves: its predicted time, and the timeline where one is asked for.
fn finish(run: &Run, kernel: &str, chip: &Chip, settings: &Settings) -> Result<Option<Duration>, KernelFault> {
    if run.program.cores.is_empty() {
        return Ok(None);
    }
    let timeline = match simulate(&run.program, chip, &Options::default()) {
        Ok(timeline) => timeline,
        Err(error) => {
            // The results are right, whatever is thought of the time.
            eprintln!("ascend-sim: no predicted time for kernel `{kernel}`: {error}");
            return Ok(None);
        }
    };
    if let Some(path) = &settings.trace {
        static LAUNCHES: AtomicU64 = AtomicU64::new(0);
        let path = numbered(path, LAUNCHES.fetch_add(1, Ordering::Relaxed));
        write_timeline(&path, &run.program, &timeline)
            .map_err(|error| KernelFault::exception(format!("ASCEND_SIM_TRACE: {}: {error}", path.display())))?;
    }
    let seconds = timeline.microseconds() * 1e-6;
    Ok(Duration::try_from_secs_f64(seconds).ok())
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running kernels of an image.

use core::ffi::{c_char, c_void};
use core::fmt;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi;
use crate::args::{Args, Stage};
use crate::cost::{Chip, CoreProgram, Program, Reserve};
use crate::fault::{Fault, Place, Rule};
use crate::image::{Image, Kernel, text};
use crate::settings::Settings;

/// In which order instructions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Mode {
    /// In program order.
    #[default]
    Fast,
    /// In an order that flags and barriers allow, drawn from the seed; cores interleave at random.
    Chaos(u64),
    /// In program order, without data: only the record is made. What the scalar unit may decide by is there: what it reads
    /// from memory itself, and 32-bit and 64-bit whole numbers that are copied to UB.
    Dry,
}

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Arguments and results: it may not hold undefined bytes at the end.
    Buffer,
    /// Scratch: undefined before the launch, of no interest after it.
    Workspace,
    /// Addresses without memory, for a dry launch only. What the scalar unit reads there is an error.
    Absent,
}

/// Memory that a launch may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Where it lies on the host, which is what the kernel gets.
    pub address: *mut u8,
    /// How much.
    pub bytes: usize,
    /// What for.
    pub role: Role,
    /// Its name in reports.
    pub name: Option<String>,
    /// The address that it has, or would have, on a device: for the record, which the cost model reads.
    pub device: u64,
}

/// Synchronising calls to leave out, to see that they are missed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mute {
    /// The call, as `SetFlag`; any if none.
    pub api: Option<String>,
    /// The end of the file's path; any if none.
    pub file: Option<String>,
    /// The line.
    pub line: u32,
    /// Only the one of this number on each core, counted from one; 0 for all.
    pub nth: u32,
}

/// A place with synchronising calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sync {
    /// The call.
    pub api: String,
    /// The place.
    pub site: Place,
    /// How often it was made, over all cores.
    pub calls: u64,
}

impl Sync {
    /// What leaves all of its calls out.
    #[must_use]
    pub fn mute(&self) -> Mute {
        let (api, file) = (Some(self.api.clone()), Some(self.site.file.clone()));
        Mute { api, file, line: self.site.line, nth: 0 }
    }
}

impl fmt::Display for Sync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.api, self.site)
    }
}

/// The most bytes that any core used of each memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the memories")]
pub struct Used {
    pub ub: u32,
    pub l1: u32,
    pub l0a: u32,
    pub l0b: u32,
    pub l0c: u32,
    pub bt: u32,
    pub fb: u32,
}

/// A launch that came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// How many instructions were executed.
    pub instructions: u64,
    /// The record of all of them; empty if it was not asked for. GM addresses are device addresses: they do not depend
    /// on where the host has put the buffers, so that two runs of one launch give equal records.
    pub program: Program,
    /// Where cores synchronise.
    pub syncs: Vec<Sync>,
    /// What was used of the on-chip memories.
    pub used: Used,
}

/// Why a launch has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError {
    /// The image has no kernel of the name.
    NoKernel {
        /// The name.
        name: String,
        /// The names that it has.
        found: Vec<String>,
    },
    /// The image is for another architecture.
    Arch {
        /// That of the image.
        image: u32,
        /// The chip that was chosen.
        chip: String,
        /// Its architecture.
        arch: u32,
    },
    /// No blocks.
    NoBlocks,
    /// The arguments do not fit the kernel's parameters.
    Arguments {
        /// Which, and how.
        what: String,
    },
    /// The image answered with something impossible.
    Damaged {
        /// With what.
        what: String,
    },
    /// The kernel broke a rule.
    Fault(Box<Fault>),
}

impl RunError {
    /// The fault of the kernel, if it is one.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Fault(fault) => Some(fault),
            _ => None,
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKernel { name, found } => {
                write!(f, "the image has no kernel `{name}`: it has {}", found.join(", "))
            }
            Self::Arch { image, chip, arch } => {
                write!(f, "the image is for dav-{image}, and {chip} is dav-{arch}")
            }
            Self::NoBlocks => f.write_str("0 blocks, expected at least 1"),
            Self::Arguments { what } => f.write_str(what),
            Self::Damaged { what } => write!(f, "the image is damaged: {what}"),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

/// One launch in full detail.
#[derive(Debug)]
pub struct Call<'a> {
    /// The number of the kernel in the image.
    pub kernel: usize,
    /// How many blocks.
    pub blocks: u32,
    /// In which order.
    pub mode: Mode,
    /// On what.
    pub chip: &'a Chip,
    /// What it may touch.
    pub memory: &'a [Memory],
    /// The argument block, with host addresses.
    pub args: &'a [u8],
    /// What to leave out.
    pub mutes: &'a [Mute],
    /// Whether to keep the record.
    pub record: bool,
    /// Whether every instruction is printed.
    pub verbose: bool,
}

/// Takes what a kernel prints.
pub(crate) type Print<'a> = dyn FnMut(&str) + 'a;

struct Printer<'a> {
    print: &'a mut Print<'a>,
}

/// # Safety
///
/// `user` is the [`Printer`] of a launch that runs on this thread, and `start` leads to so many bytes.
unsafe extern "C" fn forward(user: *mut c_void, start: *const c_char, bytes: usize) {
    if user.is_null() || start.is_null() || bytes == 0 {
        return;
    }
    // SAFETY: by the contract of this function.
    let text = unsafe { core::slice::from_raw_parts(start.cast::<u8>(), bytes) };
    // SAFETY: as above; the launch holds no other reference to it.
    let printer = unsafe { &mut *user.cast::<Printer<'_>>() };
    // A panic must not unwind into the image.
    let _ = catch_unwind(AssertUnwindSafe(|| (printer.print)(&String::from_utf8_lossy(text))));
}

/// What belongs to the image until it is given back.
struct Answer<'a> {
    image: &'a abi::Image,
    result: *const abi::Outcome,
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        // SAFETY: the result came from this image and is given back once.
        unsafe { (self.image.free_result)(self.result) };
    }
}

/// A text without what ends a C string.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// A list of a result.
///
/// # Safety
///
/// The pointer is null or leads to so many elements that live as long as `'a`.
unsafe fn list<'a, T>(start: *const T, count: usize, what: &str) -> Result<&'a [T], RunError> {
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes <= isize::MAX as usize);
    match count {
        0 => Ok(&[]),
        _ if start.is_null() || !start.is_aligned() || !fits => {
            Err(RunError::Damaged { what: format!("its list of {what} begins at {:#x}", start.addr()) })
        }
        // SAFETY: by the contract of this function, and not longer than a slice can be.
        _ => Ok(unsafe { core::slice::from_raw_parts(start, count) }),
    }
}

impl Image {
    /// Runs a kernel. What it prints goes to `print`.
    ///
    /// # Errors
    ///
    /// The call does not fit the image, or the kernel broke a rule.
    ///
    /// # Safety
    ///
    /// All of `memory` but what is [absent](Role::Absent) may be read and written until this returns, and nobody else does. A kernel that writes past its
    /// tensors is stopped, but one that makes pointers of its own out of its arguments is a program like any other.
    pub unsafe fn run(&self, call: &Call<'_>, print: &mut Print<'_>) -> Result<Run, RunError> {
        let Some(kernel) = self.kernels().get(call.kernel) else {
            let found = self.kernels().iter().map(|kernel| kernel.name.clone()).collect();
            return Err(RunError::NoKernel { name: format!("number {}", call.kernel), found });
        };
        let arch = call.chip.arch.number();
        if arch != self.arch() {
            let chip = call.chip.name.clone();
            return Err(RunError::Arch { image: self.arch(), chip, arch });
        }
        if call.blocks == 0 {
            return Err(RunError::NoBlocks);
        }
        if let Some(memory) = call.memory.iter().find(|memory| memory.role == Role::Absent)
            && call.mode != Mode::Dry
        {
            let name = memory.name.as_deref().unwrap_or("an argument");
            let what = format!("`{name}` is addresses without memory, expected memory in mode {}", call.mode);
            return Err(RunError::Arguments { what });
        }
        if call.args.len() != kernel.args_bytes as usize {
            let (expected, found) = (kernel.args_bytes, call.args.len());
            let what = format!("the argument block of `{}` has {expected} bytes, found {found}", kernel.name);
            return Err(RunError::Arguments { what });
        }
        // All that pointers of the launch lead to lives until the end of this function.
        let chip_name = c_string(&call.chip.name);
        let mix = kernel.task.cores() == ascend_build::Cores::Mix;
        let memories = call.chip.memories(Reserve { mix, ..Reserve::default() });
        let chip = abi::Chip {
            name: chip_name.as_ptr(),
            arch,
            cube_cores: call.chip.cube_cores,
            vector_cores: call.chip.vector_cores,
            ub: memories.ub,
            l1: memories.l1,
            l0a: memories.l0a,
            l0b: memories.l0b,
            l0c: memories.l0c,
            bt: memories.bt,
            fb: memories.fb,
            l0a_mx: memories.l0a_mx,
            l0b_mx: memories.l0b_mx,
        };
        let names: Vec<Option<CString>> =
            call.memory.iter().map(|memory| memory.name.as_deref().map(c_string)).collect();
        let pointer = |name: &Option<CString>| name.as_ref().map_or(core::ptr::null(), |name| name.as_ptr());
        let memory: Vec<abi::Memory> = call
            .memory
            .iter()
            .zip(&names)
            .map(|(memory, name)| abi::Memory {
                // Exposed: the image makes a pointer of the number.
                address: memory.address.expose_provenance() as u64,
                bytes: memory.bytes as u64,
                role: match memory.role {
                    Role::Buffer => 0,
                    Role::Workspace => 1,
                    Role::Absent => 2,
                },
                name: pointer(name),
            })
            .collect();
        let mute_names: Vec<_> = call
            .mutes
            .iter()
            .map(|mute| (mute.api.as_deref().map(c_string), mute.file.as_deref().map(c_string)))
            .collect();
        let mutes: Vec<abi::Mute> = call
            .mutes
            .iter()
            .zip(&mute_names)
            .map(|(mute, (api, file))| abi::Mute {
                api: pointer(api),
                file: pointer(file),
                line: mute.line,
                nth: mute.nth,
            })
            .collect();
        let (mode, seed) = match call.mode {
            Mode::Fast => (0, 0),
            Mode::Chaos(seed) => (1, seed),
            Mode::Dry => (2, 0),
        };
        // The image may read a parameter of eight bytes at once.
        let mut args = vec![0u64; call.args.len().div_ceil(8).max(1)];
        for (word, bytes) in args.iter_mut().zip(call.args.chunks(8)) {
            let mut all = [0; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(all);
        }
        let mut printer = Printer { print: &mut *print };
        let launch = abi::Launch {
            abi: abi::ABI,
            kernel: call.kernel as u32,
            blocks: call.blocks,
            mode,
            seed,
            record: u32::from(call.record),
            verbose: u32::from(call.verbose),
            chip: &raw const chip,
            memory: memory.as_ptr(),
            memories: memory.len(),
            args: args.as_ptr().cast(),
            args_bytes: call.args.len(),
            mutes: mutes.as_ptr(),
            mute_count: mutes.len(),
            print: Some(forward),
            user: (&raw mut printer).cast(),
        };
        // SAFETY: the launch is of the image's version, its pointers are good for the call, and the memory is the
        // kernel's by the contract of this function. A launch runs on the thread that asks for it.
        let result = unsafe { (self.inner.table.run)(&raw const launch) };
        if result.is_null() {
            return Err(RunError::Damaged { what: "a launch without a result".to_owned() });
        }
        let answer = Answer { image: &self.inner.table, result };
        // SAFETY: not null, and the image's until `answer` is dropped.
        let outcome = unsafe { &*answer.result };
        // SAFETY: null or good as long as the result.
        if let Some(error) = unsafe { outcome.error.as_ref() } {
            // SAFETY: its pointers are null or good as long as the result.
            return Err(RunError::Fault(Box::new(unsafe { fault(error, &kernel.name, call) })));
        }
        // SAFETY: as above.
        unsafe { read(outcome, call.memory) }
    }

    /// Begins the description of a launch.
    ///
    /// # Errors
    ///
    /// There is no such kernel.
    pub fn launch<'a>(&self, kernel: &str) -> Result<Launch<'a>, RunError> {
        let Some((number, _)) = self.kernel(kernel) else {
            let found = self.kernels().iter().map(|kernel| kernel.name.clone()).collect();
            return Err(RunError::NoKernel { name: kernel.to_owned(), found });
        };
        let chip = if self.arch() == 3510 { "Ascend950PR" } else { "Ascend910B2" };
        Ok(Launch {
            image: self.clone(),
            kernel: number,
            blocks: 1,
            mode: Mode::Fast,
            chip: Chip::preset(chip).map_err(|unknown| RunError::Arguments { what: unknown.to_string() })?,
            args: Args::new(),
            mutes: Vec::new(),
            record: true,
            verbose: false,
            print: None,
        })
    }
}

/// What stopped a launch.
///
/// # Safety
///
/// The pointers of the error are null or lead to characters that end with zero.
unsafe fn fault(error: &abi::Error, kernel: &str, call: &Call<'_>) -> Fault {
    // What cannot be read is left out: the rest of the report is worth more than a complaint about it.
    let read = |start: *const c_char| {
        // SAFETY: by the contract of this function.
        unsafe { text(start, "a text of a report") }.ok().flatten().filter(|text| !text.is_empty())
    };
    Fault {
        rule: Rule::of_name(&read(error.rule_name).unwrap_or_else(|| format!("rule-{}", error.rule))),
        message: read(error.message).unwrap_or_else(|| "no message".to_owned()),
        kernel: kernel.to_owned(),
        chip: call.chip.name.clone(),
        mode: call.mode,
        blocks: call.blocks,
        api: read(error.api),
        tensor: read(error.tensor),
        core: read(error.core).unwrap_or_default(),
        pipe: read(error.pipe).unwrap_or_default(),
        // SAFETY: by the contract of this function.
        site: unsafe { Place::of(error.site) },
        other_api: read(error.other_api),
        // SAFETY: as above.
        other_site: unsafe { Place::of(error.other_site) },
    }
}

/// Copies a result out.
///
/// # Safety
///
/// The pointers of the result are null or good.
unsafe fn read(outcome: &abi::Outcome, memory: &[Memory]) -> Result<Run, RunError> {
    let place = |site: abi::Site| {
        // SAFETY: by the contract of this function.
        unsafe { Place::of(site) }.unwrap_or_else(|| Place { file: String::new(), line: 0 })
    };
    let name = |start: *const c_char| {
        // SAFETY: as above.
        unsafe { text(start, "a name") }.ok().flatten().unwrap_or_default()
    };
    // SAFETY: as above, for each of the lists.
    let (cores, names, sites, syncs) = unsafe {
        (
            list(outcome.cores, outcome.core_count, "cores")?,
            list(outcome.api_names, outcome.api_count, "names")?,
            list(outcome.sites, outcome.site_count, "sites")?,
            list(outcome.syncs, outcome.sync_count, "synchronising calls")?,
        )
    };
    // Host addresses of buffers, in ascending order, to find that of an access.
    let mut ranges: Vec<(u64, u64, u64)> =
        memory.iter().map(|memory| (memory.address.addr() as u64, memory.bytes as u64, memory.device)).collect();
    ranges.sort_unstable();
    let device = |address: u64| {
        let next = ranges.partition_point(|(start, ..)| *start <= address);
        let (start, bytes, device) = *ranges.get(next.checked_sub(1)?)?;
        (address - start < bytes).then(|| device + (address - start))
    };
    let mut program = Program {
        cores: Vec::with_capacity(cores.len()),
        names: names.iter().map(|&start| name(start)).collect(),
        sites: sites.iter().map(|&site| place(site)).map(|place| (place.file, place.line)).collect(),
    };
    for core in cores {
        // SAFETY: as above.
        let mut records = unsafe { list(core.records, core.count, "records") }?.to_vec();
        for record in &mut records {
            let known = (record.api as usize) < names.len() && (record.site as usize) < sites.len();
            if !known {
                let what = format!("a record with the name {} and the site {}", record.api, record.site);
                return Err(RunError::Damaged { what });
            }
            if record.gm_bytes > 0 {
                record.gm_address = device(record.gm_address).unwrap_or(record.gm_address);
            }
        }
        let (block, sub_block) = (core.block, core.sub_block);
        program.cores.push(CoreProgram { cube: core.is_cube != 0, block, sub_block, records });
    }
    Ok(Run {
        instructions: outcome.instructions,
        program,
        syncs: syncs
            .iter()
            .map(|sync| Sync { api: name(sync.api), site: place(sync.site), calls: sync.calls })
            .collect(),
        used: Used {
            ub: outcome.ub_used,
            l1: outcome.l1_used,
            l0a: outcome.l0a_used,
            l0b: outcome.l0b_used,
            l0c: outcome.l0c_used,
            bt: outcome.bt_used,
            fb: outcome.fb_used,
        },
    })
}

/// A launch, being described. [`Image::launch`] begins it, [`run`](Self::run) runs it, as often as one likes.
pub struct Launch<'a> {
    image: Image,
    kernel: usize,
    blocks: u32,
    mode: Mode,
    chip: Chip,
    args: Args<'a>,
    mutes: Vec<Mute>,
    record: bool,
    verbose: bool,
    print: Option<Box<Print<'a>>>,
}

impl fmt::Debug for Launch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("image", &self.image)
            .field("kernel", &self.kernel)
            .field("blocks", &self.blocks)
            .field("mode", &self.mode)
            .field("chip", &self.chip.name)
            .field("args", &self.args)
            .field("mutes", &self.mutes)
            .finish_non_exhaustive()
    }
}

impl<'a> Launch<'a> {
    /// How many blocks; 1 without it.
    #[must_use]
    pub fn blocks(mut self, blocks: u32) -> Self {
        self.blocks = blocks;
        self
    }

    /// In which order; program order without it.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// On what; without it, a middle bin of the image's architecture.
    #[must_use]
    pub fn chip(mut self, chip: Chip) -> Self {
        self.chip = chip;
        self
    }

    /// With which arguments.
    #[must_use]
    pub fn args(mut self, args: Args<'a>) -> Self {
        self.args = args;
        self
    }

    /// Leaves synchronising calls out.
    #[must_use]
    pub fn mute(mut self, mute: Mute) -> Self {
        self.mutes.push(mute);
        self
    }

    /// Whether to keep the record of all instructions, 80 bytes each; it is kept without it.
    #[must_use]
    pub fn record(mut self, on: bool) -> Self {
        self.record = on;
        self
    }

    /// Whether to print every instruction.
    #[must_use]
    pub fn verbose(mut self, on: bool) -> Self {
        self.verbose = on;
        self
    }

    /// Takes mode and verbosity from settings, as those of the environment.
    #[must_use]
    pub fn settings(mut self, settings: &Settings) -> Self {
        (self.mode, self.verbose) = (settings.mode, settings.verbose);
        self
    }

    /// Takes what the kernel prints; standard output without it.
    #[must_use]
    pub fn print_to(mut self, print: impl FnMut(&str) + 'a) -> Self {
        self.print = Some(Box::new(print));
        self
    }

    /// The kernel it is of.
    #[must_use]
    pub fn kernel(&self) -> &Kernel {
        &self.image.kernels()[self.kernel]
    }

    /// The image it is of.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The chip it runs on.
    #[must_use]
    pub fn chosen_chip(&self) -> &Chip {
        &self.chip
    }

    /// Runs it, and writes the buffers back if it came to its end.
    ///
    /// # Errors
    ///
    /// The arguments do not fit the kernel, or the kernel broke a rule.
    pub fn run(&mut self) -> Result<Run, RunError> {
        let mode = self.mode;
        let (run, stage) = self.run_staged(mode, &[])?;
        if mode != Mode::Dry {
            self.args.write_back(&stage);
        }
        Ok(run)
    }

    /// Runs it on fresh copies of the buffers, in this order and with more calls left out.
    pub(crate) fn run_staged(&mut self, mode: Mode, more: &[Mute]) -> Result<(Run, Stage), RunError> {
        let kernel = &self.image.kernels()[self.kernel];
        let stage = self.args.stage(kernel)?;
        let mutes = [&self.mutes, more].concat();
        let call = Call {
            kernel: self.kernel,
            blocks: self.blocks,
            mode,
            chip: &self.chip,
            memory: &stage.memory,
            args: &stage.block,
            mutes: &mutes,
            record: self.record,
            verbose: self.verbose,
        };
        let mut to_output = |text: &str| print!("{text}");
        let print: &mut Print<'_> = match &mut self.print {
            Some(print) => print.as_mut(),
            None => &mut to_output,
        };
        // SAFETY: the memory is that of the stage, which nobody else knows.
        let run = unsafe { self.image.run(&call, print) }?;
        Ok((run, stage))
    }
}

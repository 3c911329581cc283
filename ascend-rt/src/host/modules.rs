// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls about modules, kernels, argument blocks and launches.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use super::args::{ArgsBuilder, copy_raw};
use super::chip::Chip;
use super::fail::{Answer, Fail};
use super::kernel::{CoreKind, HostKernel, IMAGE_MAGIC};
use super::machine::{Machine, usage};
use super::slab::{Key, Kind};
use super::state::{Function, Launch, Module, Op, State};
use super::thread;
use crate::sys::*;

/// Kernels by the names of module and kernel.
pub(super) type Kernels = HashMap<(Arc<str>, Arc<str>), HostKernel>;

/// The kernels of the process.
static PROCESS: LazyLock<RwLock<Kernels>> = LazyLock::new(RwLock::default);

fn insert(kernels: &RwLock<Kernels>, module: &str, kernel: &str, what: HostKernel) {
    kernels.write().unwrap_or_else(PoisonError::into_inner).insert((module.into(), kernel.into()), what);
}

fn find(kernels: &RwLock<Kernels>, key: &(Arc<str>, Arc<str>)) -> Option<HostKernel> {
    kernels.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
}

/// Registers a kernel for every emulator of the process, in place of one of the same names.
pub fn register(module: &str, kernel: &str, what: HostKernel) {
    insert(&PROCESS, module, kernel, what);
}

/// What a [`Loader`] makes of an image.
#[derive(Clone, Debug)]
pub struct LoadedModule {
    /// The name of the module, for messages and planned faults.
    pub name: String,
    /// Its kernels by name. No other kernel is found in the module.
    pub kernels: Vec<(String, HostKernel)>,
}

/// Makes a module of an image that is not one of [`module_image`](super::module_image), for a device of this chip: none
/// if the bytes are nothing that it knows, an error in words if they are and do not load.
pub type Loader = fn(&[u8], &Chip) -> Option<Result<LoadedModule, String>>;

/// The loaders of the process.
static LOADERS: RwLock<Vec<(&'static str, Loader)>> = RwLock::new(Vec::new());

/// Registers a loader of module images for every emulator of the process, in place of one of the same name.
///
/// It is asked when bytes are loaded that do not begin with [`IMAGE_MAGIC`]; of several, the first one that knows the
/// bytes decides. What it answers with an error is 107000.
pub fn register_loader(name: &'static str, loader: Loader) {
    let mut loaders = LOADERS.write().unwrap_or_else(PoisonError::into_inner);
    loaders.retain(|(known, _)| *known != name);
    loaders.push((name, loader));
}

/// Asks the loaders. A loader may register another one, so none is called under the lock.
fn ask_loaders(image: &[u8], chip: &Chip) -> Answer<LoadedModule> {
    let loaders = LOADERS.read().unwrap_or_else(PoisonError::into_inner).clone();
    match loaders.iter().find_map(|(_, loader)| loader(image, chip)) {
        Some(Ok(module)) => Ok(module),
        Some(Err(text)) => usage(text),
        None if image.starts_with(b"\x7fELF") && loaders.is_empty() => usage(
            "the image is no module for the emulator but an ELF file, and this process has no loader for one \
             (`ascend_sim::install` brings one for images of its own)",
        ),
        None => usage("the image is no module for the emulator"),
    }
}

/// Blocks of a launch that AscendCL takes at most.
const MAX_BLOCKS: u32 = 65_535;

/// What a launch asks for beside its arguments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaunchAttributes {
    /// Nanoseconds of virtual time.
    limit: Option<u64>,
}

impl LaunchAttributes {
    /// Reads the properties of a launch.
    pub(super) fn new(attributes: &[aclrtLaunchKernelAttr]) -> Answer<LaunchAttributes> {
        let mut found = LaunchAttributes::default();
        for attribute in attributes {
            let limit = match attribute.id {
                ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE => {
                    // SAFETY: the id names the arm, which the caller has filled.
                    let mode = unsafe { attribute.value.schemMode };
                    if mode > 2 {
                        return usage(format!("schedule mode {mode}, expected 0, 1 or 2"));
                    }
                    continue;
                }
                ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT => {
                    // SAFETY: as above.
                    u64::from(unsafe { attribute.value.timeout }).saturating_mul(1_000_000_000)
                }
                ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US => {
                    // SAFETY: as above.
                    let limit = unsafe { attribute.value.timeoutUs };
                    (u64::from(limit.timeoutHigh) << 32 | u64::from(limit.timeoutLow)).saturating_mul(1000)
                }
                id if (1..=9).contains(&id.0) => continue,
                id => return usage(format!("launch attribute {id:?} is not known here")),
            };
            if limit == 0 || found.limit.is_some() {
                return usage("a time limit of 0, or two of them");
            }
            found.limit = Some(limit);
        }
        Ok(found)
    }
}

/// Where the arguments of a launch come from.
pub(super) enum Arguments<'a> {
    /// The block that this thread has built.
    Built(aclrtArgsHandle),
    /// A raw block with its place holders: offset of the address, offset of the data.
    Raw(&'a [u8], &'a [aclrtPlaceHolderInfo]),
}

impl Machine {
    pub(super) fn register_kernel(&self, module: &str, kernel: &str, what: HostKernel) {
        insert(&self.kernels, module, kernel, what);
    }

    pub(super) fn load(&self, image: &[u8]) -> Answer<Key> {
        let mut s = self.state();
        let mut context = self.current(&s)?;
        let device = self.current_device(&s)?;
        let no_handle = || Fail::new(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no module handle is left");
        let Some(rest) = image.strip_prefix(IMAGE_MAGIC) else {
            // Loading takes time and may run code of the image: not under the lock.
            drop(s);
            let loaded = ask_loaders(image, &self.devices[device as usize].chip)?;
            s = self.state();
            context = self.current(&s)?;
            let kernels = loaded.kernels.into_iter().map(|(name, kernel)| (name.into(), kernel)).collect();
            let module = Module { context, name: loaded.name.into(), own: Some(kernels), functions: Vec::new() };
            return s.modules.insert(module).ok_or_else(no_handle);
        };
        let Ok(text) = core::str::from_utf8(rest) else { return usage("the name in the image is no UTF-8") };
        let (name, arch) = text.split_once('\0').map_or((text, None), |(name, arch)| (name, Some(arch)));
        if name.is_empty() {
            return usage("the image names no module");
        }
        let here = &self.devices[device as usize].arch;
        if let Some(arch) = arch.filter(|arch| arch != here) {
            return usage(format!("module {name} is for {arch}, device {device} is {here}"));
        }
        let module = Module { context, name: name.into(), own: None, functions: Vec::new() };
        s.modules.insert(module).ok_or_else(no_handle)
    }

    pub(super) fn load_file(&self, path: &str) -> Answer<Key> {
        let image = std::fs::read(path)
            .map_err(|error| Fail::new(ACL_ERROR_RT_FILE_OPEN, format!("{path} cannot be read: {error}")))?;
        self.load(&image)
    }

    /// A module of the current context.
    fn module(&self, s: &State, module: aclrtBinHandle) -> Answer<Key> {
        let current = self.current_or_lost(s)?;
        let key = Key::of(module);
        match s.modules.get(key) {
            Some(found) if found.context == current => Ok(key),
            Some(_) => Err(Fail::new(ACL_ERROR_RT_INVALID_HANDLE, "the module was loaded in another context")),
            None => {
                Err(Fail::new(ACL_ERROR_RT_INVALID_HANDLE, format!("{module:?} is no live module of this machine")))
            }
        }
    }

    pub(super) fn unload(&self, module: aclrtBinHandle) -> Answer {
        let mut s = self.state();
        let key = self.module(&s, module)?;
        Self::remove_module(&mut s, key);
        Ok(())
    }

    pub(super) fn remove_module(s: &mut State, module: Key) {
        let Some(found) = s.modules.remove(module) else { return };
        for function in found.functions {
            if let Some(function) = s.functions.remove(function) {
                function.unloaded.store(true, Ordering::Release);
            }
        }
    }

    pub(super) fn get_function(&self, module: aclrtBinHandle, name: &str) -> Answer<Key> {
        let mut s = self.state();
        self.current(&s)?;
        let key = self.module(&s, module)?;
        let Some(found) = s.modules.get(key) else { return Ok(Key::NULL) };
        let known = found.functions.iter().find(|key| s.functions.get(**key).is_some_and(|f| *f.name == *name));
        if let Some(known) = known {
            return Ok(*known);
        }
        let module_name = found.name.clone();
        let names: (Arc<str>, Arc<str>) = (module_name.clone(), name.into());
        let kernel = match &found.own {
            Some(own) => {
                own.iter().find(|(known, _)| **known == *name).map(|(_, kernel)| kernel.clone()).ok_or_else(|| {
                    let names: Vec<&str> = own.iter().map(|(known, _)| &**known).collect();
                    let text = format!("module {module_name} has no kernel {name}: it has {}", names.join(", "));
                    Fail::new(ACL_ERROR_RT_KERNEL_LOOKUP, text)
                })?
            }
            None => find(&self.kernels, &names).or_else(|| find(&PROCESS, &names)).ok_or_else(|| {
                Fail::new(
                    ACL_ERROR_RT_KERNEL_LOOKUP,
                    format!("module {module_name} has no kernel {name}: none is registered with the emulator"),
                )
            })?,
        };
        let function =
            Function { context: found.context, module_name, name: names.1, kernel, unloaded: AtomicBool::new(false) };
        let none_left = || Fail::new(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no kernel handle is left");
        let function = s.functions.insert(Arc::new(function)).ok_or_else(none_left)?;
        if let Some(module) = s.modules.get_mut(key) {
            module.functions.push(function);
        }
        Ok(function)
    }

    /// A kernel of the current context.
    fn function(&self, s: &State, function: aclrtFuncHandle) -> Answer<Arc<Function>> {
        let current = self.current(s)?;
        match s.functions.get(Key::of(function)) {
            Some(found) if found.context == current => Ok(found.clone()),
            Some(_) => Err(Fail::new(ACL_ERROR_RT_INVALID_HANDLE, "the kernel was loaded in another context")),
            None => {
                Err(Fail::new(ACL_ERROR_RT_INVALID_HANDLE, format!("{function:?} is no live kernel of this machine")))
            }
        }
    }

    pub(super) fn function_attribute(&self, function: aclrtFuncHandle, attribute: aclrtFuncAttribute) -> Answer<i64> {
        let kernel = &self.function(&self.state(), function)?.kernel;
        let value = match (attribute, kernel.kind) {
            (ACL_FUNC_ATTR_KERNEL_TYPE, CoreKind::Cube) => 1,
            (ACL_FUNC_ATTR_KERNEL_TYPE, CoreKind::Vector) => 2,
            (ACL_FUNC_ATTR_KERNEL_TYPE, CoreKind::Mix { .. }) => 3,
            // The low half counts vector cores, the high half cube cores.
            (ACL_FUNC_ATTR_KERNEL_RATIO, CoreKind::Cube) => 1 << 16,
            (ACL_FUNC_ATTR_KERNEL_RATIO, CoreKind::Vector) => 1,
            (ACL_FUNC_ATTR_KERNEL_RATIO, CoreKind::Mix { aiv_per_aic }) => 1 << 16 | i64::from(aiv_per_aic),
            (ACL_FUNC_ATTR_KERNEL_SCHED_MODE, _) => i64::from(kernel.barrier),
            (other, _) => return usage(format!("attribute {other:?} is not known here")),
        };
        Ok(value)
    }

    /// The handle of this thread's argument block.
    fn args_key(&self) -> Key {
        Key::new(Kind::Args, self.identity.number, 1, (thread::number() & 0xF_FFFF) as u32)
    }

    /// Works on this thread's argument block.
    fn with_args<T>(&self, args: aclrtArgsHandle, f: impl FnOnce(&mut ArgsBuilder) -> Answer<T>) -> Answer<T> {
        if Key::of(args) != self.args_key() {
            return Err(Fail::new(
                ACL_ERROR_RT_INVALID_HANDLE,
                format!("{args:?} is not the argument block of this thread"),
            ));
        }
        thread::with(&self.identity, |state| match &mut state.args {
            Some(args) => f(args),
            None => Err(Fail::new(ACL_ERROR_RT_INVALID_HANDLE, "the thread has begun no argument block")),
        })
    }

    fn param_key(&self, round: u32, index: u32) -> Key {
        Key::new(Kind::Param, self.identity.number, round, index)
    }

    /// The index of a parameter of this block.
    fn param(&self, args: &ArgsBuilder, param: aclrtParamHandle) -> Answer<usize> {
        let key = Key::of(param);
        if key != self.param_key(args.round, key.place() as u32) {
            return Err(Fail::new(
                ACL_ERROR_RT_INVALID_HANDLE,
                format!("{param:?} is no parameter of this argument block"),
            ));
        }
        Ok(key.place())
    }

    pub(super) fn args_begin(&self, function: aclrtFuncHandle) -> Answer<Key> {
        self.function(&self.state(), function)?;
        let key = Key::of(function);
        thread::with(&self.identity, |state| {
            if state.args.is_none() {
                state.args = Some(ArgsBuilder::new()?);
            }
            if let Some(args) = &mut state.args {
                args.begin(key);
            }
            Ok(())
        })?;
        Ok(self.args_key())
    }

    pub(super) fn args_append(&self, args: aclrtArgsHandle, value: &[u8]) -> Answer<Key> {
        self.with_args(args, |args| args.append(value).map(|index| self.param_key(args.round, index)))
    }

    pub(super) fn args_holder(&self, args: aclrtArgsHandle) -> Answer<Key> {
        self.with_args(args, |args| args.append_holder().map(|index| self.param_key(args.round, index)))
    }

    pub(super) fn args_buffer(&self, args: aclrtArgsHandle, param: aclrtParamHandle, size: usize) -> Answer<*mut u8> {
        self.with_args(args, |args| {
            let index = self.param(args, param)?;
            args.holder_buffer(index, size)
        })
    }

    pub(super) fn args_update(&self, args: aclrtArgsHandle, param: aclrtParamHandle, value: &[u8]) -> Answer {
        self.with_args(args, |args| {
            let index = self.param(args, param)?;
            args.update(index, value)
        })
    }

    pub(super) fn args_finish(&self, args: aclrtArgsHandle) -> Answer {
        self.with_args(args, ArgsBuilder::finish)
    }

    pub(super) fn launch(
        self: &Arc<Self>,
        function: aclrtFuncHandle,
        blocks: u32,
        stream: aclrtStream,
        attributes: LaunchAttributes,
        arguments: Arguments<'_>,
    ) -> Answer {
        self.submit(stream, |s| {
            let key = Key::of(function);
            let function = self.function(s, function)?;
            if blocks == 0 || blocks > MAX_BLOCKS {
                return usage(format!("{blocks} blocks, expected 1 to {MAX_BLOCKS}"));
            }
            let device = self.current_device(s)?;
            let side_address = self.devices[device as usize].side_address;
            let mut payload = s.payload();
            let layout = &function.kernel.layout;
            let copied = match arguments {
                Arguments::Built(args) => self.with_args(args, |args| {
                    if args.function != key {
                        return usage("the argument block was begun for another kernel");
                    }
                    args.copy_out(layout, side_address, &mut payload)
                }),
                Arguments::Raw(bytes, holders) => copy_raw(layout, bytes, holders, side_address, &mut payload),
            };
            if let Err(fail) = copied {
                s.spare.push(payload);
                let text = format!("kernel {}::{}: {}", function.module_name, function.name, fail.text);
                return Err(Fail::new(fail.code, text));
            }
            Ok(Op::Kernel(Launch { function, blocks, payload, limit: attributes.limit }))
        })
    }
}

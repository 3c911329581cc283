// SPDX-License-Identifier: MIT OR Apache-2.0

//! Launches.
//!
//! An argument block is built and launched in one go, in one thread: the library has one block per thread. On the way
//! nothing of ours is allocated.

use super::{ArgKind, ArgLayout, MAX_PARAMS, ModuleInner};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::host::{BlockCtx, CoreKind, HostKernel, KernelFault};
use crate::lane::Access;
use crate::mem::RawSlice;
use crate::queue::{Queue, Submission, Use};
use crate::raw::{Call, Raw};
use crate::sys::*;
use core::ffi::c_void;
use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;
use std::borrow::Cow;
use std::sync::Arc;

/// The declaration of a kernel, made by [`kernel!`](crate::kernel!).
pub trait KernelSig: 'static {
    /// The arguments of a launch.
    type Args<'a>: KernelArgs;
    /// The name in the module.
    const NAME: &'static str;
    /// The cores it runs on.
    const CORES: CoreKind;
    /// Whether its cores wait for each other.
    const BARRIER: bool;
    /// The parameters.
    const PARAMS: &'static [(&'static str, ArgKind)];

    /// The parameters with their places.
    ///
    /// # Errors
    ///
    /// They are too many or too large.
    fn layout() -> Result<ArgLayout> {
        Ok(ArgLayout::new(Self::PARAMS.iter().copied())?)
    }

    /// What stands for the kernel on the emulator: a function that is called for each core of each block.
    ///
    /// # Errors
    ///
    /// The parameters are too many or too large.
    fn on_host(run: impl Fn(&BlockCtx<'_>) -> Result<(), KernelFault> + Send + Sync + 'static) -> Result<HostKernel> {
        let kernel = HostKernel::per_block(Self::layout()?, Self::CORES, run);
        Ok(if Self::BARRIER { kernel.with_barrier() } else { kernel })
    }
}

/// The arguments of a launch, in the order of the parameters.
///
/// Arguments are looked at several times, and must be the same each time: a buffer that is not shown at the last look is
/// not kept for the kernel. [`Kernel::launch`] is `unsafe` for implementations by hand, too.
pub trait KernelArgs {
    /// Shows every argument, in order.
    ///
    /// # Errors
    ///
    /// What the visitor says.
    fn visit(&self, visitor: &mut dyn ArgVisitor) -> Result<()>;
}

/// Looks at the arguments of a launch.
pub trait ArgVisitor {
    /// A buffer that the kernel reads.
    ///
    /// # Errors
    ///
    /// It cannot be used here.
    fn input(&mut self, slice: RawSlice<'_>) -> Result<()>;

    /// A buffer that the kernel writes, or reads and writes.
    ///
    /// # Errors
    ///
    /// It cannot be used here.
    fn output(&mut self, slice: RawSlice<'_>) -> Result<()>;

    /// A value.
    ///
    /// # Errors
    ///
    /// It does not fit.
    fn scalar(&mut self, bytes: &[u8]) -> Result<()>;

    /// A tiling struct.
    ///
    /// # Errors
    ///
    /// It does not fit.
    fn tiling(&mut self, bytes: &[u8]) -> Result<()>;
}

/// The declaration of a kernel that is known only at run time: its arguments are a list of [`Arg`].
#[derive(Debug)]
pub struct Dynamic;

/// One argument of a [`Dynamic`] kernel.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A buffer that the kernel reads.
    Input(RawSlice<'a>),
    /// A buffer that the kernel writes, or reads and writes, or uses as scratch.
    Output(RawSlice<'a>),
    /// A value.
    Scalar(&'a [u8]),
    /// A tiling struct.
    Tiling(&'a [u8]),
}

impl Arg<'_> {
    fn fits(&self, kind: ArgKind) -> bool {
        match (self, kind) {
            (Self::Input(_), ArgKind::In) => true,
            (Self::Output(_), ArgKind::Out | ArgKind::InOut | ArgKind::Workspace | ArgKind::Pointer) => true,
            (Self::Scalar(bytes), ArgKind::Scalar { size }) | (Self::Tiling(bytes), ArgKind::Tiling { size }) => {
                bytes.len() == size
            }
            _ => false,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Input(slice) => format!("an input buffer, {slice:?}"),
            Self::Output(slice) => format!("an output buffer, {slice:?}"),
            Self::Scalar(bytes) => format!("a scalar of {} bytes", bytes.len()),
            Self::Tiling(bytes) => format!("a tiling of {} bytes", bytes.len()),
        }
    }
}

impl KernelArgs for [Arg<'_>] {
    fn visit(&self, visitor: &mut dyn ArgVisitor) -> Result<()> {
        for arg in self {
            match *arg {
                Arg::Input(slice) => visitor.input(slice)?,
                Arg::Output(slice) => visitor.output(slice)?,
                Arg::Scalar(bytes) => visitor.scalar(bytes)?,
                Arg::Tiling(bytes) => visitor.tiling(bytes)?,
            }
        }
        Ok(())
    }
}

/// How a kernel is launched. A number of blocks alone is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    blocks: u32,
    timeout: Option<Duration>,
    batch: bool,
    name: Option<&'static str>,
}

impl Launch {
    /// So many blocks; what a block is, says [`CoreKind`].
    #[must_use]
    pub const fn blocks(blocks: u32) -> Self {
        Self { blocks, timeout: None, batch: false, name: None }
    }

    /// Stops the kernel after this time; needs [`Feature::LaunchTimeout`](crate::Feature::LaunchTimeout).
    #[must_use]
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Waits until all its cores are free at once: what a kernel whose cores wait for each other needs beside other
    /// streams. Kernels declared with a barrier have it anyway.
    #[must_use]
    pub const fn batch(mut self) -> Self {
        self.batch = true;
        self
    }

    /// A name for errors, graphs and profiles.
    #[must_use]
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }
}

impl From<u32> for Launch {
    fn from(blocks: u32) -> Self {
        Self::blocks(blocks)
    }
}

struct KernelInner {
    module: Arc<ModuleInner>,
    function: Handle,
    name: Cow<'static, str>,
    layout: ArgLayout,
    cores: CoreKind,
    barrier: bool,
}

/// A kernel of a loaded module. It may be cloned; it keeps its module.
pub struct Kernel<S> {
    inner: Arc<KernelInner>,
    signature: PhantomData<fn(S)>,
}

impl<S> Clone for Kernel<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), signature: PhantomData }
    }
}

impl<S> fmt::Debug for Kernel<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("name", &self.inner.name)
            .field("cores", &self.inner.cores)
            .field("barrier", &self.inner.barrier)
            .finish_non_exhaustive()
    }
}

impl<S> Kernel<S> {
    pub(super) fn new(
        module: Arc<ModuleInner>,
        function: Handle,
        name: Cow<'static, str>,
        layout: ArgLayout,
        cores: CoreKind,
        barrier: bool,
    ) -> Self {
        let inner = KernelInner { module, function, name, layout, cores, barrier };
        Self { inner: Arc::new(inner), signature: PhantomData }
    }

    /// Its name in the module.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its parameters.
    #[must_use]
    pub fn layout(&self) -> &ArgLayout {
        &self.inner.layout
    }

    /// The most blocks that run at once, where the device tells how many cores it has.
    #[must_use]
    pub fn cores(&self) -> Option<u32> {
        self.inner.core_count()
    }
}

impl<S: KernelSig> Kernel<S> {
    /// Queues a launch. It returns when the launch is queued; an argument is free again when its own last task is done,
    /// which its buffer looks after.
    ///
    /// # Safety
    ///
    /// The kernel must be right for these arguments: with these sizes, values and number of blocks it stays within the
    /// buffers that it is given. Nothing here can know that; the crate of an operator checks shapes and then promises it.
    /// Arguments that are not made by [`kernel!`](crate::kernel!) show the same to each visitor.
    ///
    /// # Errors
    ///
    /// No blocks, or more than cores for a kernel whose cores wait for each other; an argument of another context; the
    /// context is poisoned; or the call was refused.
    pub unsafe fn launch<'a>(&self, queue: &impl Queue, launch: impl Into<Launch>, args: S::Args<'a>) -> Result<()> {
        self.inner.launch(queue.submission(), launch.into(), &args)
    }
}

impl Kernel<Dynamic> {
    /// Queues a launch with arguments that are checked against the layout.
    ///
    /// # Safety
    ///
    /// As for a [declared](Kernel::launch) kernel. Besides, no part of a buffer may be an output and at the same time
    /// another argument, unless the kernel is made for it.
    ///
    /// # Errors
    ///
    /// An argument does not fit its parameter, or as for a declared kernel.
    pub unsafe fn launch(&self, queue: &impl Queue, launch: impl Into<Launch>, args: &[Arg<'_>]) -> Result<()> {
        let params = self.inner.layout.params();
        if params.len() != args.len() {
            let expected = format!("{} arguments", params.len());
            return Err(Error::argument("Kernel::launch", "args", expected, args.len().to_string()));
        }
        for (param, arg) in params.iter().zip(args) {
            if !arg.fits(param.kind) {
                let expected = format!("a {} for `{}`", param.kind, param.name);
                return Err(Error::argument("Kernel::launch", "args", expected, arg.name()));
            }
        }
        self.inner.launch(queue.submission(), launch.into(), args)
    }
}

impl KernelInner {
    fn core_count(&self) -> Option<u32> {
        let facts = self.module.context().facts();
        let fact = match self.cores {
            CoreKind::Vector => facts.vector_cores,
            CoreKind::Cube | CoreKind::Mix { .. } => facts.cube_cores,
        };
        fact.map(|fact| fact.value)
    }

    fn launch<A: KernelArgs + ?Sized>(&self, submission: Submission<'_>, launch: Launch, args: &A) -> Result<()> {
        let call = Call::aclrtLaunchKernelWithConfig;
        let op = launch.name;
        let result = self.launch_inner(submission, launch, args, call);
        // Only an error says where; a good launch pays nothing for it.
        result.map_err(|error| submission.locate(error.with_op(op)))
    }

    fn launch_inner<A: KernelArgs + ?Sized>(
        &self,
        submission: Submission<'_>,
        launch: Launch,
        args: &A,
        call: Call,
    ) -> Result<()> {
        if launch.blocks == 0 {
            return Err(Error::argument("Kernel::launch", "blocks", "at least 1", "0"));
        }
        if self.barrier
            && let Some(cores) = self.core_count()
            && launch.blocks > cores
        {
            return Err(Error::argument(
                "Kernel::launch",
                "blocks",
                format!(
                    "at most {cores}, the cores of the device, since the cores of `{}` wait for each other",
                    self.name
                ),
                launch.blocks.to_string(),
            ));
        }
        let mut attributes = [aclrtLaunchKernelAttr {
            id: ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE,
            value: aclrtLaunchKernelAttrValue { rsv: [0; 4] },
        }; 2];
        let mut config = self.configure(submission.raw(), launch, &mut attributes)?;

        let _bound = submission.begin(call)?;
        submission.prepare(call, Use::Module(&self.module))?;
        args.visit(&mut Prepare { submission, call })?;
        let handle = self.build(submission, args)?;
        // SAFETY: the function lives with its module, the stream with the submission; the block was just built in this
        // thread; the configuration lives until the call returns. The caller promised that the kernel is right for its
        // arguments, and they stay until it is done.
        let code = unsafe {
            submission.raw().aclrtLaunchKernelWithConfig(
                self.function.get(),
                launch.blocks,
                submission.stream.handle.get(),
                if config.numAttrs == 0 { core::ptr::null_mut() } else { &raw mut config },
                handle,
                core::ptr::null_mut(),
            )
        };
        submission.stream.context.inner().check(call, code)?;

        let ticket = submission.ticket();
        submission.commit(Use::Module(&self.module), ticket);
        let committed = args.visit(&mut Commit { submission, ticket });
        if let Some(capture) = submission.capture {
            capture.count_launch(launch.name.map_or_else(|| self.name.clone(), Cow::Borrowed));
        }
        committed
    }

    /// The properties of a launch; `attributes` holds them.
    fn configure(
        &self,
        raw: &dyn Raw,
        launch: Launch,
        attributes: &mut [aclrtLaunchKernelAttr; 2],
    ) -> Result<aclrtLaunchKernelCfg> {
        let mut count = 0;
        if launch.batch || self.barrier {
            attributes[count].id = ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE;
            attributes[count].value.schemMode = 1;
            count += 1;
        }
        if let Some(limit) = launch.timeout {
            // The attribute came with this function.
            if !raw.has(Call::aclrtLaunchKernelWithHostArgs) {
                let detail = "a time limit per launch came with CANN 8.5";
                return Err(Error::as_code(Call::aclrtLaunchKernelWithConfig, ACL_ERROR_API_NOT_SUPPORT, detail));
            }
            let us = limit.as_micros();
            if us == 0 {
                return Err(Error::argument("Kernel::launch", "timeout", "at least 1 us", format!("{limit:?}")));
            }
            let us = u64::try_from(us).unwrap_or(u64::MAX);
            attributes[count].id = ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US;
            attributes[count].value.timeoutUs =
                aclrtTimeoutUs { timeoutLow: us as u32, timeoutHigh: (us >> 32) as u32 };
            count += 1;
        }
        Ok(aclrtLaunchKernelCfg { attrs: attributes.as_mut_ptr(), numAttrs: count })
    }

    /// Builds the argument block of this thread.
    fn build<A: KernelArgs + ?Sized>(&self, submission: Submission<'_>, args: &A) -> Result<aclrtArgsHandle> {
        let raw = submission.raw();
        let context = submission.stream.context.inner();
        let mut handle = core::ptr::null_mut();
        // SAFETY: the function lives; `handle` is written.
        let code = unsafe { raw.aclrtKernelArgsInit(self.function.get(), &raw mut handle) };
        context.check(Call::aclrtKernelArgsInit, code)?;

        let mut holders = [core::ptr::null_mut(); MAX_PARAMS];
        let mut append = Append { submission, handle, holders: &mut holders, count: 0, holder_count: 0 };
        args.visit(&mut append)?;
        let appended = append.count;
        if appended != self.layout.params().len() {
            let expected = format!("{} arguments", self.layout.params().len());
            return Err(Error::argument("Kernel::launch", "args", expected, appended.to_string()));
        }
        if append.holder_count > 0 {
            let count = append.holder_count;
            args.visit(&mut FillIn { submission, handle, holders: &holders[..count], next: 0 })?;
        }
        // SAFETY: the block was begun in this thread, and everything is appended.
        let code = unsafe { raw.aclrtKernelArgsFinalize(handle) };
        context.check(Call::aclrtKernelArgsFinalize, code)?;
        Ok(handle)
    }
}

/// First look: what a buffer must come after.
struct Prepare<'a> {
    submission: Submission<'a>,
    call: Call,
}

impl ArgVisitor for Prepare<'_> {
    fn input(&mut self, slice: RawSlice<'_>) -> Result<()> {
        self.submission.prepare(self.call, Use::Device(slice.storage, Access::Read))
    }

    fn output(&mut self, slice: RawSlice<'_>) -> Result<()> {
        self.submission.prepare(self.call, Use::Device(slice.storage, Access::Write))
    }

    fn scalar(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn tiling(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// Second look: the slots.
struct Append<'a> {
    submission: Submission<'a>,
    handle: aclrtArgsHandle,
    holders: &'a mut [aclrtParamHandle; MAX_PARAMS],
    count: usize,
    holder_count: usize,
}

impl Append<'_> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.count += 1;
        let mut parameter = core::ptr::null_mut();
        // SAFETY: the library only reads and copies the bytes, whatever its type says; `parameter` is written.
        let code = unsafe {
            self.submission.raw().aclrtKernelArgsAppend(
                self.handle,
                bytes.as_ptr().cast_mut().cast::<c_void>(),
                bytes.len(),
                &raw mut parameter,
            )
        };
        self.submission.stream.context.inner().check(Call::aclrtKernelArgsAppend, code)
    }
}

impl ArgVisitor for Append<'_> {
    fn input(&mut self, slice: RawSlice<'_>) -> Result<()> {
        self.append(&slice.address().to_ne_bytes())
    }

    fn output(&mut self, slice: RawSlice<'_>) -> Result<()> {
        self.append(&slice.address().to_ne_bytes())
    }

    fn scalar(&mut self, bytes: &[u8]) -> Result<()> {
        self.append(bytes)
    }

    fn tiling(&mut self, _bytes: &[u8]) -> Result<()> {
        self.count += 1;
        let mut parameter = core::ptr::null_mut();
        // SAFETY: the block was begun in this thread; `parameter` is written.
        let code = unsafe { self.submission.raw().aclrtKernelArgsAppendPlaceHolder(self.handle, &raw mut parameter) };
        self.submission.stream.context.inner().check(Call::aclrtKernelArgsAppendPlaceHolder, code)?;
        let Some(holder) = self.holders.get_mut(self.holder_count) else {
            let expected = format!("at most {MAX_PARAMS} parameters");
            return Err(Error::argument("Kernel::launch", "args", expected, "more"));
        };
        *holder = parameter;
        self.holder_count += 1;
        Ok(())
    }
}

/// Third look: the data beside the slots, for which there is room only when all slots are there.
struct FillIn<'a> {
    submission: Submission<'a>,
    handle: aclrtArgsHandle,
    holders: &'a [aclrtParamHandle],
    next: usize,
}

impl ArgVisitor for FillIn<'_> {
    fn input(&mut self, _slice: RawSlice<'_>) -> Result<()> {
        Ok(())
    }

    fn output(&mut self, _slice: RawSlice<'_>) -> Result<()> {
        Ok(())
    }

    fn scalar(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn tiling(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(&holder) = self.holders.get(self.next) else {
            let expected = format!("{} tiling structs, as at the first look", self.holders.len());
            return Err(Error::argument("Kernel::launch", "args", expected, "more"));
        };
        let mut room = core::ptr::null_mut();
        // SAFETY: the place holder is of this block; `room` is written.
        let code = unsafe {
            self.submission.raw().aclrtKernelArgsGetPlaceHolderBuffer(self.handle, holder, bytes.len(), &raw mut room)
        };
        self.submission.stream.context.inner().check(Call::aclrtKernelArgsGetPlaceHolderBuffer, code)?;
        self.next += 1;
        // SAFETY: the library gave room for so many bytes, which nobody else knows.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), room.cast::<u8>(), bytes.len()) };
        Ok(())
    }
}

/// Last look: who used what.
struct Commit<'a> {
    submission: Submission<'a>,
    ticket: u64,
}

impl ArgVisitor for Commit<'_> {
    fn input(&mut self, slice: RawSlice<'_>) -> Result<()> {
        self.submission.commit(Use::Device(slice.storage, Access::Read), self.ticket);
        Ok(())
    }

    fn output(&mut self, slice: RawSlice<'_>) -> Result<()> {
        self.submission.commit(Use::Device(slice.storage, Access::Write), self.ticket);
        Ok(())
    }

    fn scalar(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn tiling(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }
}

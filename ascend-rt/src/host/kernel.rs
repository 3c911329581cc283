// SPDX-License-Identifier: MIT OR Apache-2.0

//! What stands for a kernel on the emulator: a function on the host, registered by the names of module and kernel.
//!
//! # The image of a module
//!
//! On a card a module is an ELF file. For the emulator it is a few bytes with no code in them, made by
//! [`module_image`]: [`IMAGE_MAGIC`], then the module's name in UTF-8, then optionally a zero byte and the name of the
//! one architecture that it is for, as `dav-2201`. `aclrtBinaryLoadFromData` (and `..FromFile`) reads it:
//!
//! * bytes that do not begin with the magic, a name that is empty or no UTF-8: 107000, unless a
//!   [loader](super::register_loader) knows them;
//! * an architecture that is not that of the device: 107000;
//! * otherwise a handle, whether or not a kernel of that module is registered. `aclrtBinaryGetFunction` looks the kernel
//!   up by (module, kernel) at that moment, first among the kernels of the configuration, then among those registered
//!   for the whole process; one that is not there is 507027.
//!
//! So loading goes through the same calls on both backends, and an operator can embed its image like its ELF files.

use super::team::Seat;
use crate::kernel::{ArgKind, ArgLayout};
use crate::sys::{
    ACL_ERROR_RT_AICORE_EXCEPTION, ACL_ERROR_RT_AICORE_TIMEOUT, ACL_ERROR_RT_AICORE_TRAP_EXCEPTION, aclError,
};
use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// The first bytes of a module image for the emulator.
pub const IMAGE_MAGIC: &[u8] = b"ascend-host-module\0";

/// The image of a module: what `Module::load` takes for the emulator.
///
/// With an architecture, it loads only on a device of that architecture.
#[must_use]
pub fn module_image(module: &str, arch: Option<&str>) -> Vec<u8> {
    let mut image = [IMAGE_MAGIC, module.as_bytes()].concat();
    if let Some(arch) = arch {
        image.push(0);
        image.extend_from_slice(arch.as_bytes());
    }
    image
}

/// Which cores a kernel runs on, and so what its number of blocks counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CoreKind {
    /// Vector cores; a block is one of them.
    Vector,
    /// Cube cores; a block is one of them.
    Cube,
    /// Groups of one cube core and some vector cores; a block is one group.
    Mix {
        /// Vector cores per cube core: 1 or 2.
        aiv_per_aic: u8,
    },
}

/// One core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// A cube core.
    Aic,
    /// A vector core.
    Aiv,
}

/// A kernel for the emulator.
#[derive(Clone)]
pub struct HostKernel {
    /// The parameters. A launch whose block is built otherwise is refused with 107000.
    pub layout: ArgLayout,
    /// The cores it runs on.
    pub kind: CoreKind,
    /// What it does.
    pub run: HostRun,
    /// Whether its cores wait for each other. Then all blocks must be on cores at once: more blocks than cores is a
    /// dead-lock, 507014 at the next synchronisation.
    pub barrier: bool,
    /// The time a launch takes on the virtual clock; without it, the emulator's default by the bytes of its buffers.
    pub cost: Option<HostCost>,
}

/// The virtual time of a launch.
pub type HostCost = Arc<dyn Fn(&LaunchCtx<'_>) -> Duration + Send + Sync>;

/// What a kernel does for one core of one block.
pub type BlockFn = dyn Fn(&BlockCtx<'_>) -> Result<(), KernelFault> + Send + Sync;

/// What a kernel does for a whole launch.
pub type LaunchFn = dyn Fn(&LaunchCtx<'_>) -> Result<(), KernelFault> + Send + Sync;

/// What a kernel does for a whole launch, with the time that the launch takes on the virtual clock as the answer, or none
/// for the emulator's default.
pub type TimedFn = dyn Fn(&LaunchCtx<'_>) -> Result<Option<Duration>, KernelFault> + Send + Sync;

/// What a kernel does on the emulator.
///
/// All forms run on a thread of the emulator. A panic is caught and becomes 507015.
#[derive(Clone)]
pub enum HostRun {
    /// Called once for each core of each block: a mix kernel once as [`Core::Aic`] and `aiv_per_aic` times as
    /// [`Core::Aiv`].
    Block(Arc<BlockFn>),
    /// Called once for the whole launch: for a simulator that runs all cores itself.
    Launch(Arc<LaunchFn>),
    /// As [`Launch`](Self::Launch), for one that also finds out how long the launch takes, which goes before any other cost.
    Timed(Arc<TimedFn>),
}

impl HostKernel {
    /// A kernel whose function is called for each core of each block.
    pub fn per_block(
        layout: ArgLayout,
        kind: CoreKind,
        run: impl Fn(&BlockCtx<'_>) -> Result<(), KernelFault> + Send + Sync + 'static,
    ) -> Self {
        Self { layout, kind, run: HostRun::Block(Arc::new(run)), barrier: false, cost: None }
    }

    /// A kernel whose function is called once per launch.
    pub fn per_launch(
        layout: ArgLayout,
        kind: CoreKind,
        run: impl Fn(&LaunchCtx<'_>) -> Result<(), KernelFault> + Send + Sync + 'static,
    ) -> Self {
        Self { layout, kind, run: HostRun::Launch(Arc::new(run)), barrier: false, cost: None }
    }

    /// A kernel whose function is called once per launch and tells how long the launch takes.
    pub fn timed(
        layout: ArgLayout,
        kind: CoreKind,
        run: impl Fn(&LaunchCtx<'_>) -> Result<Option<Duration>, KernelFault> + Send + Sync + 'static,
    ) -> Self {
        Self { layout, kind, run: HostRun::Timed(Arc::new(run)), barrier: false, cost: None }
    }

    /// Says that the cores wait for each other.
    #[must_use]
    pub fn with_barrier(mut self) -> Self {
        self.barrier = true;
        self
    }

    /// Says what a launch costs on the virtual clock.
    #[must_use]
    pub fn with_cost(mut self, cost: impl Fn(&LaunchCtx<'_>) -> Duration + Send + Sync + 'static) -> Self {
        self.cost = Some(Arc::new(cost));
        self
    }
}

impl fmt::Debug for HostRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Block(_) => "per block",
            Self::Launch(_) => "per launch",
            Self::Timed(_) => "per launch, timed",
        })
    }
}

impl fmt::Debug for HostKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostKernel")
            .field("layout", &self.layout)
            .field("kind", &self.kind)
            .field("run", &self.run)
            .field("barrier", &self.barrier)
            .finish_non_exhaustive()
    }
}

/// Why a kernel stopped: what a card would raise as an exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFault {
    /// The code that the next synchronisation returns.
    pub code: aclError,
    /// What happened, for the message.
    pub message: String,
}

impl KernelFault {
    /// An access out of range, or another exception: 507015.
    #[must_use]
    pub fn exception(message: impl Into<String>) -> Self {
        Self { code: ACL_ERROR_RT_AICORE_EXCEPTION, message: message.into() }
    }

    /// A trap or a failed assertion of the kernel: 507016.
    #[must_use]
    pub fn trap(message: impl Into<String>) -> Self {
        Self { code: ACL_ERROR_RT_AICORE_TRAP_EXCEPTION, message: message.into() }
    }

    /// A kernel that does not end, as with a barrier that is never reached by all: 507014.
    #[must_use]
    pub fn timeout(message: impl Into<String>) -> Self {
        Self { code: ACL_ERROR_RT_AICORE_TIMEOUT, message: message.into() }
    }
}

impl fmt::Display for KernelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for KernelFault {}

/// Device memory as a kernel sees it: device addresses, each in one allocation or in none.
///
/// The emulator implements it. Reads and writes copy and are checked against the bounds of the allocation; they may
/// come from several threads at once, and the implementation keeps them from being data races of the host program.
pub trait DeviceSpace: Send + Sync {
    /// Bytes from an address to the end of its allocation; none when it lies in no live allocation.
    fn extent(&self, address: u64) -> Option<usize>;

    /// Copies bytes from the device.
    ///
    /// # Errors
    ///
    /// The range is not in one live allocation.
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), KernelFault>;

    /// Copies bytes to the device.
    ///
    /// # Errors
    ///
    /// The range is not in one live allocation.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), KernelFault>;

    /// Where the bytes of an address lie on the host, and how many there are from there to the end of the allocation:
    /// for code that works on pointers. Unlike [`extent`](Self::extent), the end is rounded up to 32 bytes, as the
    /// units of a card move 32 at a time; what is written beyond is found after the launch.
    ///
    /// The pointer is good for the time of the launch. What is read and written through it is outside the emulator's
    /// protection against races: the caller keeps to accesses that do not race, or to atomic ones.
    fn translate(&self, address: u64) -> Option<(NonNull<u8>, usize)>;
}

/// A launch that is being executed.
#[derive(Clone, Copy)]
pub struct LaunchCtx<'a> {
    /// The name of the module.
    pub module: &'a str,
    /// The name of the kernel.
    pub kernel: &'a str,
    /// The architecture of the device, as `dav-2201`.
    pub arch: &'a str,
    /// The name of the chip.
    pub soc: &'a str,
    /// The cores it runs on.
    pub kind: CoreKind,
    /// How many blocks there are.
    pub blocks: u32,
    /// The parameters.
    pub layout: &'a ArgLayout,
    /// The argument block: [`ArgLayout::block_bytes`] bytes. The slot of a tiling struct holds the device address of
    /// its bytes, which is readable for the time of the launch.
    pub block: &'a [u8],
    /// Device memory.
    pub space: &'a dyn DeviceSpace,
}

impl fmt::Debug for LaunchCtx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchCtx")
            .field("module", &self.module)
            .field("kernel", &self.kernel)
            .field("kind", &self.kind)
            .field("blocks", &self.blocks)
            .finish_non_exhaustive()
    }
}

impl<'a> LaunchCtx<'a> {
    /// The arguments.
    #[must_use]
    pub fn args(&self) -> Args<'a> {
        Args { layout: self.layout, block: self.block, space: self.space }
    }
}

/// One core of one block of a launch.
#[derive(Clone, Copy, Debug)]
pub struct BlockCtx<'a> {
    /// The launch.
    pub launch: &'a LaunchCtx<'a>,
    /// The block.
    pub block: u32,
    /// The core.
    pub core: Core,
    /// Which vector core of its group; 0 for the cube core.
    pub sub_block: u32,
    seat: Seat<'a>,
}

impl<'a> BlockCtx<'a> {
    /// The core of that number in its block, where the cube core comes first.
    pub(super) fn new(launch: &'a LaunchCtx<'a>, block: u32, number: u32, seat: Seat<'a>) -> Self {
        let (core, sub_block) = match (launch.kind, number) {
            (CoreKind::Vector, _) => (Core::Aiv, 0),
            (CoreKind::Cube, _) | (CoreKind::Mix { .. }, 0) => (Core::Aic, 0),
            (CoreKind::Mix { .. }, _) => (Core::Aiv, number - 1),
        };
        Self { launch, block, core, sub_block, seat }
    }

    /// Waits until every core of the launch has come here. The kernel must be registered
    /// [with a barrier](HostKernel::with_barrier); its cores then are threads, of which one runs at a time.
    ///
    /// # Errors
    ///
    /// A core ended, or failed, without coming here; or the kernel was registered without a barrier.
    pub fn sync_all(&self) -> Result<(), KernelFault> {
        self.seat.sync_all()
    }

    /// The arguments.
    #[must_use]
    pub fn args(&self) -> Args<'a> {
        self.launch.args()
    }

    /// How many blocks there are.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.launch.blocks
    }
}

/// The arguments of a launch, read through the layout. Parameters are counted from zero in the order of the layout.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    layout: &'a ArgLayout,
    block: &'a [u8],
    space: &'a dyn DeviceSpace,
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Args").field("layout", self.layout).finish_non_exhaustive()
    }
}

impl<'a> Args<'a> {
    fn slot(
        &self,
        index: usize,
        what: fmt::Arguments<'_>,
        fits: impl Fn(ArgKind) -> bool,
    ) -> Result<&'a [u8], KernelFault> {
        let params = self.layout.params();
        let param = params.get(index).ok_or_else(|| {
            KernelFault::exception(format!("the kernel reads parameter {index} and has {}", params.len()))
        })?;
        if !fits(param.kind) {
            return Err(KernelFault::exception(format!(
                "the kernel reads parameter {index} `{}` as {what}, and it is {}",
                param.name, param.kind
            )));
        }
        let size = match param.kind {
            ArgKind::Scalar { size } => size,
            other => other.slot_bytes(),
        };
        self.block.get(param.offset..param.offset + size).ok_or_else(|| {
            KernelFault::exception(format!("the argument block ends before parameter {index} `{}`", param.name))
        })
    }

    /// The device address of a buffer or workspace.
    ///
    /// # Errors
    ///
    /// The parameter is no buffer.
    pub fn address(&self, index: usize) -> Result<u64, KernelFault> {
        let slot = self.slot(index, format_args!("a buffer"), ArgKind::is_buffer)?;
        u64::read_from_bytes(slot).map_err(|_| KernelFault::exception("a slot has not 8 bytes"))
    }

    /// The memory from the address of a buffer or workspace to the end of its allocation.
    ///
    /// # Errors
    ///
    /// The parameter is no buffer, or the address lies in no live allocation.
    pub fn buffer(&self, index: usize) -> Result<DeviceView<'a>, KernelFault> {
        let address = self.address(index)?;
        let bytes = self.space.extent(address).ok_or_else(|| {
            KernelFault::exception(format!("parameter {index} is the address {address:#x}, which is not allocated"))
        })?;
        Ok(DeviceView { address, bytes, space: self.space })
    }

    /// A scalar.
    ///
    /// # Errors
    ///
    /// The parameter is no scalar, or one of another size.
    pub fn scalar<T: FromBytes>(&self, index: usize) -> Result<T, KernelFault> {
        let size = size_of::<T>();
        let what = format_args!("a scalar of {size} bytes");
        let slot = self.slot(index, what, |kind| kind == ArgKind::Scalar { size })?;
        T::read_from_bytes(slot).map_err(|_| KernelFault::exception("a scalar has another size"))
    }

    /// A tiling struct.
    ///
    /// # Errors
    ///
    /// The parameter is no tiling struct, or one of another size.
    pub fn tiling<T: FromBytes + IntoBytes>(&self, index: usize) -> Result<T, KernelFault> {
        let size = size_of::<T>();
        let what = format_args!("a tiling struct of {size} bytes");
        let slot = self.slot(index, what, |kind| kind == ArgKind::Tiling { size })?;
        let address = u64::read_from_bytes(slot).map_err(|_| KernelFault::exception("a slot has not 8 bytes"))?;
        let mut value = T::new_zeroed();
        self.space.read(address, value.as_mut_bytes())?;
        Ok(value)
    }

    /// The bytes of a tiling struct.
    ///
    /// # Errors
    ///
    /// The parameter is no tiling struct.
    pub fn tiling_bytes(&self, index: usize) -> Result<Vec<u8>, KernelFault> {
        let slot = self.slot(index, format_args!("a tiling struct"), |kind| matches!(kind, ArgKind::Tiling { .. }))?;
        let address = u64::read_from_bytes(slot).map_err(|_| KernelFault::exception("a slot has not 8 bytes"))?;
        let ArgKind::Tiling { size } = self.layout.params()[index].kind else {
            return Err(KernelFault::exception("a tiling struct is none"));
        };
        let mut bytes = vec![0; size];
        self.space.read(address, &mut bytes)?;
        Ok(bytes)
    }
}

/// A range of device memory with its bounds.
#[derive(Clone, Copy)]
pub struct DeviceView<'a> {
    address: u64,
    bytes: usize,
    space: &'a dyn DeviceSpace,
}

impl fmt::Debug for DeviceView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceView({:#x}, {} bytes)", self.address, self.bytes)
    }
}

impl DeviceView<'_> {
    /// The device address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The bytes from there to the end.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn at<T>(&self, first: usize, count: usize) -> Result<u64, KernelFault> {
        first
            .checked_add(count)
            .and_then(|end| end.checked_mul(size_of::<T>()))
            .filter(|&end| end <= self.bytes)
            .map(|_| self.address + (first * size_of::<T>()) as u64)
            .ok_or_else(|| {
                KernelFault::exception(format!(
                    "{count} elements of {} bytes from element {first} on are out of the {} bytes at {:#x}",
                    size_of::<T>(),
                    self.bytes,
                    self.address
                ))
            })
    }

    /// Copies elements from the device; `first` counts elements.
    ///
    /// # Errors
    ///
    /// The range is out of bounds.
    pub fn read_into<T: FromBytes + IntoBytes>(&self, first: usize, out: &mut [T]) -> Result<(), KernelFault> {
        let address = self.at::<T>(first, out.len())?;
        self.space.read(address, out.as_mut_bytes())
    }

    /// The elements of a range; `first` counts elements.
    ///
    /// # Errors
    ///
    /// The range is out of bounds.
    pub fn read<T: FromBytes + IntoBytes>(&self, first: usize, count: usize) -> Result<Vec<T>, KernelFault> {
        let address = self.at::<T>(first, count)?;
        let mut out = <[T]>::new_box_zeroed_with_elems(count)
            .map_err(|_| KernelFault::exception("no host memory for the elements"))?
            .into_vec();
        self.space.read(address, out.as_mut_bytes())?;
        Ok(out)
    }

    /// One element.
    ///
    /// # Errors
    ///
    /// It is out of bounds.
    pub fn load<T: FromBytes + IntoBytes>(&self, index: usize) -> Result<T, KernelFault> {
        let address = self.at::<T>(index, 1)?;
        let mut value = T::new_zeroed();
        self.space.read(address, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Copies elements to the device; `first` counts elements.
    ///
    /// # Errors
    ///
    /// The range is out of bounds.
    pub fn write<T: IntoBytes + Immutable>(&self, first: usize, elements: &[T]) -> Result<(), KernelFault> {
        let address = self.at::<T>(first, elements.len())?;
        self.space.write(address, elements.as_bytes())
    }

    /// Writes one element.
    ///
    /// # Errors
    ///
    /// It is out of bounds.
    pub fn store<T: IntoBytes + Immutable>(&self, index: usize, value: &T) -> Result<(), KernelFault> {
        let address = self.at::<T>(index, 1)?;
        self.space.write(address, value.as_bytes())
    }
}

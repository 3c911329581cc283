// SPDX-License-Identifier: MIT OR Apache-2.0

//! Arguments of a launch that the program makes itself, without `ascend-rt`.

use core::fmt;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::image::Kernel;
use crate::launch::{Memory, Role, RunError};

/// What a buffer can hold: plain data.
pub trait Element: FromBytes + IntoBytes + Immutable {}

impl<T: FromBytes + IntoBytes + Immutable> Element for T {}

/// Where device addresses of launches without a device begin.
const FIRST_ADDRESS: u64 = 1 << 40;

/// What a parameter of a dry launch that is not given reaches to.
const ABSENT: usize = 64 << 30;

/// What an absent buffer's address for the kernel is beyond its device address: where this machine maps nothing.
const NOWHERE: u64 = 1 << 44;

/// As `aclrtMalloc` aligns, and the granularity at which HBM is fast.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(512))]
struct Line([u8; 512]);

enum Arg<'a> {
    Input(&'a [u8]),
    Buffer(&'a mut [u8]),
    Workspace(usize),
    Absent(usize),
    Null,
    Value(Vec<u8>),
}

impl Arg<'_> {
    fn describe(&self) -> String {
        match self {
            Self::Input(bytes) => format!("an input of {} bytes", bytes.len()),
            Self::Buffer(bytes) => format!("a buffer of {} bytes", bytes.len()),
            Self::Workspace(bytes) => format!("a workspace of {bytes} bytes"),
            Self::Absent(bytes) => format!("addresses of {bytes} bytes"),
            Self::Null => "a null pointer".to_owned(),
            Self::Value(bytes) => format!("a value of {} bytes", bytes.len()),
        }
    }
}

/// Arguments in the order of the kernel's parameters.
///
/// The kernel works on copies, each at a multiple of 512 bytes as device memory is; buffers are written back when the
/// launch has succeeded.
///
/// ```
/// let (x, mut y) = ([1.0f32; 8], [0.0f32; 8]);
/// let args = ascend_sim::Args::new().input(&x).buffer(&mut y).value(8u32);
/// assert_eq!(args.len(), 3);
/// ```
#[derive(Default)]
pub struct Args<'a> {
    args: Vec<Arg<'a>>,
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.args.iter().map(Arg::describe)).finish()
    }
}

impl<'a> Args<'a> {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer that the kernel reads: what it writes there is lost. A tiling struct, too.
    #[must_use]
    pub fn input<T: Element>(mut self, elements: &'a [T]) -> Self {
        self.args.push(Arg::Input(elements.as_bytes()));
        self
    }

    /// A buffer that the kernel writes, and may read.
    #[must_use]
    pub fn buffer<T: Element>(mut self, elements: &'a mut [T]) -> Self {
        self.args.push(Arg::Buffer(elements.as_mut_bytes()));
        self
    }

    /// Scratch memory: undefined before the launch, of no interest after it.
    #[must_use]
    pub fn workspace(mut self, bytes: usize) -> Self {
        self.args.push(Arg::Workspace(bytes));
        self
    }

    /// Addresses without memory: a dry launch copies nothing, so only what the scalar unit reads must be there.
    #[must_use]
    pub fn absent(mut self, bytes: usize) -> Self {
        self.args.push(Arg::Absent(bytes));
        self
    }

    /// For a dry launch: buffers by the name of their parameter; every other pointer is [addresses](Self::absent) of
    /// 64 GiB.
    ///
    /// # Errors
    ///
    /// The kernel has no parameter of a name, or one by value.
    pub fn dry(kernel: &Kernel, given: &[(&str, &'a [u8])]) -> Result<Self, RunError> {
        let names: Vec<String> = (0..kernel.parameters.len()).map(|index| kernel.parameter_name(index)).collect();
        if let Some((name, _)) = given.iter().find(|(name, _)| names.iter().all(|known| known != name)) {
            let what = format!("kernel `{}` has no parameter `{name}`: it has {}", kernel.name, names.join(", "));
            return Err(RunError::Arguments { what });
        }
        Ok(names.iter().fold(Self::new(), |args, name| match given.iter().find(|(given, _)| given == name) {
            Some((_, bytes)) => args.input(bytes),
            None => args.absent(ABSENT),
        }))
    }

    /// A null pointer, for a parameter that the kernel does not need.
    #[must_use]
    pub fn null(mut self) -> Self {
        self.args.push(Arg::Null);
        self
    }

    /// A parameter by value.
    #[must_use]
    pub fn value<T: IntoBytes + Immutable>(mut self, value: T) -> Self {
        self.args.push(Arg::Value(value.as_bytes().to_vec()));
        self
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.args.is_empty()
    }

    /// The bytes of the buffers as they are now.
    pub(crate) fn stage(&self, kernel: &Kernel) -> Result<Stage, RunError> {
        if self.args.len() != kernel.parameters.len() {
            return Err(RunError::Arguments {
                what: format!(
                    "kernel `{}` has {} parameters, found {}",
                    kernel.name,
                    kernel.parameters.len(),
                    self.args.len()
                ),
            });
        }
        let mut stage = Stage { storage: Vec::new(), memory: Vec::new(), block: vec![0; kernel.args_bytes as usize] };
        let mut device = FIRST_ADDRESS;
        for (index, (arg, parameter)) in self.args.iter().zip(&kernel.parameters).enumerate() {
            let refuse = || {
                let bytes = parameter.bytes;
                let wanted = if parameter.is_pointer { "a pointer".to_owned() } else { format!("{bytes} bytes") };
                let (name, found) = (kernel.parameter_name(index), arg.describe());
                let what = format!("parameter {index} `{name}` of `{}` is {wanted}, found {found}", kernel.name);
                RunError::Arguments { what }
            };
            let slot = &mut stage.block[parameter.offset as usize..][..parameter.bytes as usize];
            if let (Arg::Absent(bytes), true) = (arg, parameter.is_pointer) {
                let address = core::ptr::without_provenance_mut((NOWHERE + device) as usize);
                slot.copy_from_slice(&(NOWHERE + device).to_le_bytes());
                let name = Some(kernel.parameter_name(index));
                stage.memory.push(Memory { address, bytes: *bytes, role: Role::Absent, name, device });
                device += (*bytes as u64).next_multiple_of(size_of::<Line>() as u64);
                continue;
            }
            let (bytes, content, role) = match arg {
                Arg::Value(value) if !parameter.is_pointer && value.len() == slot.len() => {
                    slot.copy_from_slice(value);
                    continue;
                }
                Arg::Null if parameter.is_pointer => continue,
                Arg::Input(content) if parameter.is_pointer => (content.len(), *content, Role::Buffer),
                Arg::Buffer(content) if parameter.is_pointer => (content.len(), &**content, Role::Buffer),
                Arg::Workspace(bytes) if parameter.is_pointer => (*bytes, &[][..], Role::Workspace),
                _ => return Err(refuse()),
            };
            let lines = bytes.div_ceil(size_of::<Line>()).max(1);
            let mut storage = <[Line]>::new_box_zeroed_with_elems(lines)
                .map_err(|_| RunError::Arguments { what: format!("no host memory for {}", arg.describe()) })?;
            storage.as_mut_bytes()[..content.len()].copy_from_slice(content);
            let address = storage.as_mut_ptr().cast::<u8>();
            slot.copy_from_slice(&(address.addr() as u64).to_le_bytes());
            let name = Some(kernel.parameter_name(index));
            stage.memory.push(Memory { address, bytes, role, name, device });
            stage.storage.push((index, storage));
            device += (lines * size_of::<Line>()) as u64;
        }
        Ok(stage)
    }

    /// Copies what the kernel has written.
    pub(crate) fn write_back(&mut self, stage: &Stage) {
        for (index, storage) in &stage.storage {
            if let Arg::Buffer(content) = &mut self.args[*index] {
                content.copy_from_slice(&storage.as_bytes()[..content.len()]);
            }
        }
    }
}

/// Copies of the buffers for one launch.
pub(crate) struct Stage {
    storage: Vec<(usize, Box<[Line]>)>,
    pub(crate) memory: Vec<Memory>,
    pub(crate) block: Vec<u8>,
}

impl Stage {
    /// Whether the buffers hold the same as those of another stage of the same arguments.
    pub(crate) fn same_results(&self, other: &Self) -> bool {
        let results = |stage: &Self| {
            let buffers = stage.storage.iter().zip(&stage.memory).filter(|(_, memory)| memory.role == Role::Buffer);
            buffers.map(|((_, storage), memory)| storage.as_bytes()[..memory.bytes].to_vec()).collect::<Vec<_>>()
        };
        results(self) == results(other)
    }
}

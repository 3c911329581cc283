// SPDX-License-Identifier: MIT OR Apache-2.0

//! A device: its facts, and the contexts on it.

use crate::context::Context;
use crate::error::Result;
use crate::host::Chip;
use crate::raw::Call;
use crate::runtime::Runtime;
use crate::sys::*;
use core::ffi::CStr;
use core::fmt;

/// An architecture: which device code runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arch(u32);

impl Arch {
    /// A2 and A3: Ascend910B1 to B4, Ascend910_93xx.
    pub const DAV_2201: Self = Self(2201);
    /// Ascend950PR and Ascend950DT.
    pub const DAV_3510: Self = Self(3510);
    /// Ascend310P.
    pub const DAV_2002: Self = Self(2002);
    /// Ascend310B.
    pub const DAV_3002: Self = Self(3002);
    /// The first Ascend910, also under the bare name Ascend910B.
    pub const DAV_1001: Self = Self(1001);

    /// The architecture of this number, as the device tells it.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The architecture of this name, as the compiler spells it: `dav-2201`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        name.strip_prefix("dav-")?.parse().ok().map(Self)
    }

    /// The architecture of a chip by its name, for libraries that do not tell.
    ///
    /// ```
    /// use ascend_rt::Arch;
    ///
    /// assert_eq!(Arch::of_soc("Ascend910B3"), Some(Arch::DAV_2201));
    /// assert_eq!(Arch::of_soc("Ascend910B"), Some(Arch::DAV_1001)); // the old chip, not an A2
    /// assert_eq!(Arch::of_soc("Ascend950PR_9599"), Some(Arch::DAV_3510));
    /// ```
    #[must_use]
    pub fn of_soc(soc: &str) -> Option<Self> {
        let rest = soc.strip_prefix("Ascend")?;
        if let Some(bin) = rest.strip_prefix("910B") {
            return Some(if bin.starts_with(|c: char| ('1'..='4').contains(&c)) {
                Self::DAV_2201
            } else {
                Self::DAV_1001
            });
        }
        [
            ("910_93", Self::DAV_2201),
            ("910_95", Self::DAV_3510),
            ("950", Self::DAV_3510),
            ("310P", Self::DAV_2002),
            ("310B", Self::DAV_3002),
            ("910", Self::DAV_1001),
        ]
        .into_iter()
        .find(|(prefix, _)| rest.starts_with(prefix))
        .map(|(_, arch)| arch)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dav-{}", self.0)
    }
}

impl fmt::Debug for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a fact comes from. A limit of the process may make the first smaller than the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The device said so.
    Device,
    /// The device said so, through the older call.
    Capability,
    /// The memory call said so.
    MemoryInfo,
    /// The table of chips, by the chip's name.
    ChipTable,
    /// The chip's name alone.
    SocName,
}

/// A fact with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fact<T> {
    /// The fact.
    pub value: T,
    /// Where it comes from.
    pub source: Source,
}

impl<T> Fact<T> {
    fn new(value: T, source: Source) -> Self {
        Self { value, source }
    }
}

/// The facts of a device. What nobody tells is `None`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Facts {
    /// The name of the chip. The library tells that of device 0 for all.
    pub soc: Option<String>,
    /// The architecture.
    pub arch: Option<Fact<Arch>>,
    /// Cube cores, which is also the number of groups for mixed kernels.
    pub cube_cores: Option<Fact<u32>>,
    /// Vector cores.
    pub vector_cores: Option<Fact<u32>>,
    /// Bytes of device memory.
    pub memory: Option<Fact<u64>>,
    /// Bytes of the unified buffer of a vector core.
    pub ub: Option<Fact<u64>>,
    /// Bytes of the second-level cache.
    pub l2: Option<Fact<u64>>,
}

/// A device of a [`Runtime`].
#[derive(Clone)]
pub struct Device {
    runtime: Runtime,
    index: u32,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({} on {})", self.index, self.runtime.backend())
    }
}

impl Device {
    pub(crate) fn new(runtime: Runtime, index: u32) -> Self {
        Self { runtime, index }
    }

    /// Its number among the devices that this process may use.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its runtime.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The context that all of the process shares, other libraries included. It stays as it is found: failures do not
    /// stop its streams unless a stream asks for it.
    ///
    /// All callers get the same context, until the last of them drops it.
    ///
    /// # Errors
    ///
    /// The device cannot be used.
    pub fn primary(&self) -> Result<Context> {
        Context::primary(&self.runtime, self.index)
    }

    /// A context of our own: its streams stop at the first failure, and nothing else in the process uses it.
    ///
    /// # Errors
    ///
    /// The device cannot be used.
    pub fn isolated(&self) -> Result<Context> {
        Context::isolated(&self.runtime, self.index)
    }

    /// Whether this device reaches the memory of another one.
    ///
    /// # Errors
    ///
    /// The call failed or is not there.
    pub fn can_access_peer(&self, peer: &Self) -> Result<bool> {
        let mut can = 0;
        let (this, other) = (signed(self.index), signed(peer.index));
        // SAFETY: `can` is written.
        let code = unsafe { self.runtime.raw().aclrtDeviceCanAccessPeer(&raw mut can, this, other) };
        self.runtime.inner().check(Call::aclrtDeviceCanAccessPeer, code)?;
        Ok(can != 0)
    }

    /// The name of the chip.
    #[must_use]
    pub fn soc(&self) -> Option<String> {
        // SAFETY: the function has no argument.
        let name = unsafe { self.runtime.raw().aclrtGetSocName() };
        // SAFETY: it is not null, so it is a string that lives as long as the library.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// All facts, each from the best source that this version has. What one source does not tell is left to the next.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let soc = self.soc();
        let chip = soc.as_deref().and_then(|name| Chip::preset(name).ok());
        let table = |value: fn(&Chip) -> u64| chip.as_ref().map(|chip| Fact::new(value(chip), Source::ChipTable));

        let arch = self
            .attribute(ACL_DEV_ATTR_NPU_ARCH)
            .and_then(|number| u32::try_from(number).ok())
            .map(|number| Fact::new(Arch(number), Source::Device))
            .or_else(|| soc.as_deref().and_then(Arch::of_soc).map(|arch| Fact::new(arch, Source::SocName)));
        let cube = self
            .count(&[ACL_DEV_ATTR_CUBE_CORE_NUM, ACL_DEV_ATTR_AICORE_CORE_NUM], ACL_DEVICE_INFO_AI_CORE_NUM)
            .or_else(|| table(|chip| u64::from(chip.cube_cores)));
        let vector = self
            .count(&[ACL_DEV_ATTR_VECTOR_CORE_NUM], ACL_DEVICE_INFO_VECTOR_CORE_NUM)
            .or_else(|| table(|chip| u64::from(chip.vector_cores)));
        let l2 = self.count(&[ACL_DEV_ATTR_L2_CACHE_SIZE], ACL_DEVICE_INFO_L2_SIZE).or_else(|| table(|chip| chip.l2));
        let ub = self
            .attribute(ACL_DEV_ATTR_UBUF_PER_VECTOR_CORE)
            .map(|bytes| Fact::new(bytes, Source::Device))
            .or_else(|| table(|chip| chip.ub));
        let memory = self
            .attribute(ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE)
            .map(|bytes| Fact::new(bytes, Source::Device))
            .or_else(|| {
                // This call needs a context, which nobody else may have made in this thread.
                let memory = self.primary().and_then(|context| context.memory()).ok()?;
                Some(Fact::new(memory.total as u64, Source::MemoryInfo))
            })
            .or_else(|| table(|chip| chip.memory));

        let cores = |fact: Fact<u64>| u32::try_from(fact.value).ok().map(|value| Fact::new(value, fact.source));
        Facts { soc, arch, cube_cores: cube.and_then(cores), vector_cores: vector.and_then(cores), memory, ub, l2 }
    }

    fn attribute(&self, attribute: aclrtDevAttr) -> Option<u64> {
        let mut value = 0;
        // SAFETY: `value` is written.
        let code = unsafe { self.runtime.raw().aclrtGetDeviceInfo(self.index, attribute, &raw mut value) };
        self.told(code, value)
    }

    fn count(&self, attributes: &[aclrtDevAttr], older: aclDeviceInfo) -> Option<Fact<u64>> {
        let newer = attributes.iter().find_map(|&attribute| self.attribute(attribute));
        if let Some(value) = newer {
            return Some(Fact::new(value, Source::Device));
        }
        let mut value = 0;
        // SAFETY: `value` is written.
        let code = unsafe { self.runtime.raw().aclGetDeviceCapability(self.index, older, &raw mut value) };
        self.told(code, value).map(|value| Fact::new(value, Source::Capability))
    }

    /// A value, unless the call failed; then its message is taken away, for nobody asked for it.
    fn told(&self, code: aclError, value: i64) -> Option<u64> {
        if code != ACL_SUCCESS {
            let _ = self.runtime.inner().message();
            return None;
        }
        u64::try_from(value).ok().filter(|&value| value > 0)
    }
}

/// The number of a device as the calls that take a signed one want it. Numbers come from the count of devices.
pub(crate) fn signed(index: u32) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_chip_gives_its_architecture() {
        for (soc, arch) in [
            ("Ascend910B1", Some(Arch::DAV_2201)),
            ("Ascend910B4-1", Some(Arch::DAV_2201)),
            ("Ascend910B", Some(Arch::DAV_1001)),
            ("Ascend910A", Some(Arch::DAV_1001)),
            ("Ascend910_9392", Some(Arch::DAV_2201)),
            ("Ascend910_9589", Some(Arch::DAV_3510)),
            ("Ascend950DT_9591", Some(Arch::DAV_3510)),
            ("Ascend310P3", Some(Arch::DAV_2002)),
            ("Ascend310B1", Some(Arch::DAV_3002)),
            ("Kirin9000", None),
            ("", None),
        ] {
            assert_eq!(Arch::of_soc(soc), arch, "{soc}");
        }
    }

    #[test]
    fn every_chip_of_the_table_has_the_architecture_of_its_name() {
        for name in Chip::names() {
            let chip = Chip::preset(name).expect(name);
            assert_eq!(Arch::of_soc(name).map(|arch| i64::from(arch.number())), Some(chip.arch), "{name}");
        }
    }

    #[test]
    fn names_of_architectures_round_trip() {
        assert_eq!(Arch::from_name("dav-2201"), Some(Arch::DAV_2201));
        assert_eq!(Arch::DAV_3510.to_string(), "dav-3510");
        for wrong in ["", "2201", "dav-", "dav-c220", "DAV-2201"] {
            assert_eq!(Arch::from_name(wrong), None, "{wrong}");
        }
    }
}

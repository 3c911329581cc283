// SPDX-License-Identifier: MIT OR Apache-2.0

//! The emulator: a [`Raw`] without a card.
//!
//! Each [`Host`] is a world of its own: devices, handles, and for every thread its own current context, last error,
//! recent message, argument handle and capture mode. Two emulators in one process know nothing of each other.

mod chip;
mod kernel;

use crate::raw::{Call, Raw};
use std::sync::Arc;

pub use chip::{Chip, UnknownChip};
pub use kernel::{
    Args, BlockCtx, BlockFn, Core, CoreKind, DeviceSpace, DeviceView, HostCost, HostKernel, HostRun, IMAGE_MAGIC,
    KernelFault, LaunchCtx, LaunchFn, module_image,
};

/// What an emulator is like.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HostConfig {}

/// An emulator.
#[derive(Debug)]
pub struct Host {}

impl Host {
    /// Makes one.
    #[must_use]
    pub fn new(config: HostConfig) -> Arc<Self> {
        let _ = config;
        Arc::new(Self {})
    }

    /// Registers a kernel with this emulator, also after modules were loaded.
    pub fn register(&self, module: &str, kernel: &str, what: HostKernel) {
        let _ = (module, kernel, what);
    }
}

impl Raw for Host {
    fn has(&self, _call: Call) -> bool {
        false
    }
}

/// Registers a kernel for every emulator of the process.
pub fn register(module: &str, kernel: &str, what: HostKernel) {
    let _ = (module, kernel, what);
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a backend hands out: opaque, and free to go to any thread.

use core::ffi::c_void;

/// A handle of a backend: a context, stream, event, module, function, graph or device address.
///
/// It is kept as a number: nothing on this side looks behind it, and a number may be sent and shared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Handle(usize);

impl Handle {
    pub(crate) fn new(pointer: *mut c_void) -> Self {
        Self(pointer.expose_provenance())
    }

    pub(crate) fn get(self) -> *mut c_void {
        core::ptr::with_exposed_provenance_mut(self.0)
    }

    pub(crate) fn address(self) -> usize {
        self.0
    }

    pub(crate) fn offset(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

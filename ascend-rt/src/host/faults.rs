// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is planned to fail.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

use super::sync::lock;
use crate::raw::Call;
use crate::sys::{ACL_ERROR_RT_AICORE_EXCEPTION, aclError};

/// Something that fails on purpose.
///
/// Each counts from the moment it is added; the first occurrence is number 1. It happens once, unless
/// [`times`](Fault::times) or [`always`](Fault::always) says otherwise.
///
/// ```
/// use ascend_rt::host::{Fault, HostConfig};
/// use ascend_rt::raw::Call;
///
/// let config = HostConfig::new()
///     .fault(Fault::call(Call::aclrtMalloc, 207001).nth(3))
///     .fault(Fault::kernel("gemm", "gemm_bf16", 507015).always());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    what: What,
    code: aclError,
    nth: u64,
    times: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Call(Call),
    Kernel(String, String),
    Replay,
    SyncTimeout,
    DeviceLost(u32),
}

impl Fault {
    fn new(what: What, code: aclError) -> Self {
        Self { what, code, nth: 1, times: 1 }
    }

    /// A call returns a code and does nothing else.
    #[must_use]
    pub fn call(call: Call, code: aclError) -> Self {
        Self::new(What::Call(call), code)
    }

    /// A launch of a kernel fails on the device: the code comes at the next synchronisation.
    #[must_use]
    pub fn kernel(module: &str, kernel: &str, code: aclError) -> Self {
        Self::new(What::Kernel(module.to_owned(), kernel.to_owned()), code)
    }

    /// A replay of a graph fails on the device: 507011 at the next synchronisation, with 507015 as the cause.
    #[must_use]
    pub fn replay() -> Self {
        Self::new(What::Replay, ACL_ERROR_RT_AICORE_EXCEPTION)
    }

    /// A call that waits for a stream, a device or an event times out, whether or not it has a limit: 507046, or 507047
    /// for an event. The work goes on.
    #[must_use]
    pub fn sync_timeout() -> Self {
        Self::new(What::SyncTimeout, 0)
    }

    /// A device is lost when it should run a task: 507010 from then on, for everything on it.
    #[must_use]
    pub fn device_lost(device: u32) -> Self {
        Self::new(What::DeviceLost(device), 0)
    }

    /// At which occurrence it begins; 0 means the first too.
    #[must_use]
    pub fn nth(mut self, nth: u64) -> Self {
        self.nth = nth.max(1);
        self
    }

    /// How often it happens.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// It happens at every occurrence from the nth on.
    #[must_use]
    pub fn always(self) -> Self {
        self.times(u64::MAX)
    }
}

struct Armed {
    fault: Fault,
    seen: u64,
}

/// The plan in force.
pub(super) struct Faults {
    any: AtomicBool,
    armed: Mutex<Vec<Armed>>,
}

impl Faults {
    pub(super) fn new(faults: &[Fault]) -> Faults {
        let armed: Vec<_> = faults.iter().map(|fault| Armed { fault: fault.clone(), seen: 0 }).collect();
        Faults { any: AtomicBool::new(!armed.is_empty()), armed: Mutex::new(armed) }
    }

    pub(super) fn add(&self, fault: Fault) {
        lock(&self.armed).push(Armed { fault, seen: 0 });
        self.any.store(true, Ordering::Release);
    }

    fn next(&self, matches: impl Fn(&What) -> bool) -> Option<aclError> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut hit = None;
        for armed in lock(&self.armed).iter_mut().filter(|armed| matches(&armed.fault.what)) {
            armed.seen = armed.seen.saturating_add(1);
            let since = armed.seen.checked_sub(armed.fault.nth);
            if since.is_some_and(|since| since < armed.fault.times) && hit.is_none() {
                hit = Some(armed.fault.code);
            }
        }
        hit
    }

    pub(super) fn call(&self, call: Call) -> Option<aclError> {
        self.next(|what| *what == What::Call(call))
    }

    pub(super) fn kernel(&self, module: &str, kernel: &str) -> Option<aclError> {
        self.next(|what| matches!(what, What::Kernel(m, k) if m == module && k == kernel))
    }

    pub(super) fn replay(&self) -> Option<aclError> {
        self.next(|what| *what == What::Replay)
    }

    pub(super) fn sync_timeout(&self) -> bool {
        self.next(|what| *what == What::SyncTimeout).is_some()
    }

    pub(super) fn device_lost(&self, device: u32) -> bool {
        self.next(|what| *what == What::DeviceLost(device)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occurrences_are_counted_by_kind() {
        let faults = Faults::new(&[
            Fault::call(Call::aclrtMalloc, 207001).nth(2),
            Fault::kernel("m", "k", 507016).nth(1).times(2),
        ]);
        assert_eq!(faults.call(Call::aclrtFree), None);
        assert_eq!(faults.call(Call::aclrtMalloc), None);
        assert_eq!(faults.call(Call::aclrtMalloc), Some(207001));
        assert_eq!(faults.call(Call::aclrtMalloc), None);
        assert_eq!(faults.kernel("m", "other"), None);
        assert_eq!(faults.kernel("m", "k"), Some(507016));
        assert_eq!(faults.kernel("m", "k"), Some(507016));
        assert_eq!(faults.kernel("m", "k"), None);
        assert!(!faults.sync_timeout() && faults.replay().is_none() && !faults.device_lost(0));
    }

    #[test]
    fn a_fault_added_later_counts_from_then_on() {
        let faults = Faults::new(&[]);
        assert_eq!(faults.replay(), None);
        faults.add(Fault::replay().nth(0).always());
        assert_eq!(faults.replay(), Some(507015));
        assert_eq!(faults.replay(), Some(507015));
        faults.add(Fault::device_lost(1));
        assert!(!faults.device_lost(0) && faults.device_lost(1) && !faults.device_lost(1));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a machine left behind.

use core::fmt;
use std::sync::{Arc, Mutex};

use super::memory::Leak;
use super::sync::lock;

/// What was still alive, or had gone wrong unnoticed, when the report was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostReport {
    /// Device memory that was not freed, with its device.
    pub device_memory: Vec<(u32, Leak)>,
    /// Pinned memory that was not freed.
    pub pinned_memory: Vec<Leak>,
    /// Ranges of host memory that were not unregistered.
    pub registered_ranges: usize,
    /// Contexts, primary ones too.
    pub contexts: usize,
    /// Streams that were made by a call, without default streams.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Modules.
    pub modules: usize,
    /// Graphs, and captures that never ended.
    pub graphs: usize,
    /// Tasks that were still queued.
    pub queued_tasks: usize,
    /// Failures on a device that no call returned, and guard zones that were written.
    pub unseen: Vec<String>,
}

impl HostReport {
    /// Whether nothing was left.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for HostReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_clean() {
            return f.write_str("nothing left behind");
        }
        f.write_str("left behind:")?;
        let leak = |f: &mut fmt::Formatter<'_>, place: fmt::Arguments<'_>, leak: &Leak| {
            write!(f, "\n  {} bytes of {place}, allocation {} at {:#x}", leak.size, leak.serial, leak.address)?;
            match &leak.tag {
                Some(tag) => write!(f, " ({tag})"),
                None => Ok(()),
            }
        };
        for (device, block) in &self.device_memory {
            leak(f, format_args!("device {device}"), block)?;
        }
        for block in &self.pinned_memory {
            leak(f, format_args!("pinned memory"), block)?;
        }
        for (count, what) in [
            (self.registered_ranges, "registered ranges"),
            (self.contexts, "contexts"),
            (self.streams, "streams"),
            (self.events, "events"),
            (self.modules, "modules"),
            (self.graphs, "graphs"),
            (self.queued_tasks, "queued tasks"),
        ] {
            if count > 0 {
                write!(f, "\n  {count} {what}")?;
            }
        }
        for text in &self.unseen {
            write!(f, "\n  unseen: {text}")?;
        }
        Ok(())
    }
}

/// Where the report of a machine goes when the machine does: the last handle to it is dropped before anybody could ask.
///
/// ```
/// use ascend_rt::host::{Host, HostConfig, ReportSlot};
///
/// let slot = ReportSlot::new();
/// drop(Host::new(HostConfig::new().report_to(&slot)));
/// assert!(slot.take().is_some_and(|report| report.is_clean()));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ReportSlot(Arc<Mutex<Option<HostReport>>>);

impl ReportSlot {
    /// An empty slot.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The report, once; none as long as the machine lives.
    #[must_use]
    pub fn take(&self) -> Option<HostReport> {
        lock(&self.0).take()
    }

    pub(super) fn put(&self, report: HostReport) {
        *lock(&self.0) = Some(report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_is_left() {
        assert_eq!(HostReport::default().to_string(), "nothing left behind");
        let leak = Leak { address: 0x40, size: 100, serial: 3, tag: Some("kv".to_owned()) };
        let report = HostReport {
            device_memory: vec![(1, leak.clone())],
            pinned_memory: vec![Leak { tag: None, ..leak }],
            streams: 2,
            unseen: vec!["guard".to_owned()],
            ..HostReport::default()
        };
        assert_eq!(
            report.to_string(),
            "left behind:\n  100 bytes of device 1, allocation 3 at 0x40 (kv)\n  \
             100 bytes of pinned memory, allocation 3 at 0x40\n  2 streams\n  unseen: guard"
        );
    }
}

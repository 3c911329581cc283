// SPDX-License-Identifier: MIT OR Apache-2.0

//! What of a model lies in the memory of a device.

use std::fmt;

/// One part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryItem {
    /// What it is.
    pub what: String,
    /// Its bytes.
    pub bytes: u64,
}

/// What of a model lies in the memory of a device, and how much of that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The device, and its chip where the runtime says it.
    pub device: String,
    /// What lies there from the load on.
    pub items: Vec<MemoryItem>,
    /// What is copied there when it is needed, in the memory of the items.
    pub streamed: Option<MemoryItem>,
    /// Bytes of the device that nobody has taken before.
    pub free: Option<u64>,
    /// Bytes of the device.
    pub total: Option<u64>,
}

impl MemoryPlan {
    /// Bytes of all items.
    pub fn bytes(&self) -> u64 {
        self.items.iter().map(|item| item.bytes).sum()
    }

    /// Whether they fit, as far as the device tells how much it has.
    pub fn fits(&self) -> bool {
        [self.free, self.total].into_iter().flatten().all(|there| self.bytes() <= there)
    }
}

/// Bytes in the largest unit of which there is at least one.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut unit = 0;
        let mut value = self.0 as f64;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            (value, unit) = (value / 1024.0, unit + 1);
        }
        f.pad(&if unit == 0 { format!("{} B", self.0) } else { format!("{value:.1} {}", UNITS[unit]) })
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory of {}:", self.device)?;
        for MemoryItem { what, bytes } in &self.items {
            write!(f, "\n  {:>10}  {what}", Bytes(*bytes))?;
        }
        write!(f, "\n  {:>10}  in all", Bytes(self.bytes()))?;
        if let Some(total) = self.total {
            write!(f, ", of {}", Bytes(total))?;
        }
        if let Some(free) = self.free {
            write!(f, ", of which {} are free", Bytes(free))?;
        }
        if let Some(MemoryItem { what, bytes }) = &self.streamed {
            write!(f, "\n  {:>10}  {what}", Bytes(*bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_adds_up_and_says_whether_it_fits() {
        let item = |what: &str, bytes| MemoryItem { what: what.to_owned(), bytes };
        let mut plan = MemoryPlan {
            device: "sim:910b3".to_owned(),
            items: vec![item("weights", 3 << 30), item("cache", 1 << 20)],
            streamed: Some(item("streamed", 7)),
            free: Some((3 << 30) + (1 << 20)),
            total: Some(4 << 30),
        };
        assert!(plan.fits());
        assert_eq!(
            plan.to_string(),
            "memory of sim:910b3:\n     3.0 GiB  weights\n     1.0 MiB  cache\n     3.0 GiB  in all, of 4.0 GiB, of \
             which 3.0 GiB are free\n         7 B  streamed"
        );
        plan.free = Some(3 << 30);
        assert!(!plan.fits());
        (plan.free, plan.total) = (None, None);
        assert!(plan.fits());
    }
}

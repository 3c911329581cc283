// SPDX-License-Identifier: MIT OR Apache-2.0

//! A shared resource as a fluid: the transfers that are active share its rate equally, but none gets more than its own
//! limit, and what one cannot take the others get.
//!
//! Transfers with the same limit always have the same rate, so a class of them needs one counter of bytes served and a
//! heap of the counts at which its members end. A start or an end costs the number of classes, not of transfers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A non-negative time or count; its bits order as its value does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u64);

impl Key {
    pub(super) fn new(value: f64) -> Self {
        Self(value.max(0.0).to_bits())
    }

    pub(super) fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

#[derive(Clone, Debug)]
struct Class {
    limit: f64,
    rate: f64,
    served: f64,
    ends: BinaryHeap<Reverse<(Key, u32)>>,
}

/// A resource of a fixed total rate.
#[derive(Clone, Debug)]
pub struct Fluid {
    capacity: f64,
    /// Ascending limits.
    classes: Vec<Class>,
    at: f64,
    next: f64,
}

impl Fluid {
    /// A resource that moves `capacity` bytes a cycle.
    pub fn new(capacity: f64) -> Self {
        Self { capacity, classes: Vec::new(), at: 0.0, next: f64::INFINITY }
    }

    /// When the next transfer ends, if no other starts before.
    pub fn next(&self) -> f64 {
        self.next
    }

    fn advance(&mut self, now: f64) {
        let passed = (now - self.at).max(0.0);
        for class in &mut self.classes {
            class.served += class.rate * passed;
        }
        self.at = self.at.max(now);
    }

    fn share(&mut self) {
        let mut left = self.capacity;
        let mut members: usize = self.classes.iter().map(|c| c.ends.len()).sum();
        self.next = f64::INFINITY;
        for class in &mut self.classes {
            let n = class.ends.len();
            if n == 0 {
                class.rate = 0.0;
                continue;
            }
            class.rate = class.limit.min(left / members as f64);
            left -= class.rate * n as f64;
            members -= n;
            if let Some(Reverse((end, _))) = class.ends.peek() {
                self.next = self.next.min(self.at + (end.value() - class.served).max(0.0) / class.rate);
            }
        }
    }

    /// Starts transfer `id` of `bytes` bytes that takes at most `limit` bytes a cycle.
    pub fn start(&mut self, now: f64, id: u32, bytes: f64, limit: f64) {
        self.advance(now);
        let found = self.classes.binary_search_by(|c| c.limit.total_cmp(&limit));
        let at = match found {
            Ok(at) => at,
            Err(at) => {
                let class = Class { limit, rate: 0.0, served: 0.0, ends: BinaryHeap::new() };
                self.classes.insert(at, class);
                at
            }
        };
        let class = &mut self.classes[at];
        if class.ends.is_empty() {
            class.served = 0.0;
        }
        class.ends.push(Reverse((Key::new(class.served + bytes), id)));
        self.share();
    }

    /// Takes out what has ended at `now`, which must not be after [`Fluid::next`].
    pub fn finish(&mut self, now: f64, ended: &mut Vec<u32>) {
        self.advance(now);
        let due = now >= self.next;
        for class in &mut self.classes {
            while let Some(Reverse((end, id))) = class.ends.peek() {
                // The counter and the time were rounded separately.
                let slack = 1e-9 * (1.0 + end.value()) + class.rate * 1e-9 * (1.0 + now);
                if end.value() > class.served + slack {
                    break;
                }
                ended.push(*id);
                class.ends.pop();
            }
        }
        if due && ended.is_empty() {
            // Rounding left the due transfer a hair short.
            let first = self.classes.iter_mut().filter(|c| !c.ends.is_empty()).min_by(|a, b| {
                let rest = |c: &Class| {
                    c.ends.peek().map_or(f64::INFINITY, |Reverse((end, _))| (end.value() - c.served) / c.rate)
                };
                rest(a).total_cmp(&rest(b))
            });
            if let Some(Reverse((_, id))) = first.and_then(|c| c.ends.pop()) {
                ended.push(id);
            }
        }
        if self.classes.len() > 32 {
            self.classes.retain(|c| !c.ends.is_empty());
        }
        self.share();
    }
}

/// A limit on a grid of half a percent, so that nearly equal transfers share a class.
pub(super) fn grid(limit: f64) -> f64 {
    let steps = (limit.max(1e-3).ln() * 200.0).round();
    (steps / 200.0).exp()
}

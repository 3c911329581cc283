// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Whether no bar is shown: stderr is no terminal, or `NO_COLOR` or `CI` is set.
pub(crate) fn hides_bars() -> bool {
    let plain = ["NO_COLOR", "CI"].iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    plain || !std::io::stderr().is_terminal()
}

/// A bar of bytes.
pub(crate) fn bar(label: &str) -> ProgressBar {
    let target = if hides_bars() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(None, target).with_style(style).with_message(label.to_owned())
}

/// A bar of bytes on stderr; nothing when stderr is no terminal, or `NO_COLOR` or `CI` is set.
pub(crate) struct Bytes(ProgressBar);

impl Bytes {
    /// `label` says what the bytes are for.
    pub(crate) fn new(label: &'static str) -> Self {
        Self(bar(label))
    }

    /// `done` of `total` bytes.
    pub(crate) fn set(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

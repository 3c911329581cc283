// SPDX-License-Identifier: MIT OR Apache-2.0

//! What tests of an operator on an emulated device have in common. As tests do, these functions panic where something is
//! not as it must be.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ascend_rt::host::{Chip, Executor, HostConfig};
use ascend_rt::kernel::Target;
use ascend_rt::{Arch, Blob, Choice, Context, DeviceBuffer, DeviceRepr, DeviceSlice, DeviceSliceMut, Runtime, Stream};

use crate::image::Image;
use crate::launch::Mode;
use crate::rt::{LAUNCHES, configure, install};
use crate::settings::Settings;

/// An order of instructions for all launches of the process while it lives. Tests take turns: the order is that of the
/// process. Timelines that the environment asks for are written.
#[derive(Debug)]
pub struct Order(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Order {
    /// Waits for its turn.
    ///
    /// # Panics
    ///
    /// A variable of the environment that [`Settings`] reads has a value that means nothing.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = Settings::from_env().unwrap_or_else(|error| panic!("{error}"));
        configure(Some(Settings { mode, ..settings }));
        Self(turn)
    }
}

/// Orders of instructions beside that of the program: as many as `SIM_SEEDS` says, `default` without it.
///
/// # Panics
///
/// `SIM_SEEDS` is no whole number.
pub fn seeds(default: u64) -> impl Iterator<Item = Mode> {
    let expect = |text: String| text.parse().unwrap_or_else(|_| panic!("SIM_SEEDS={text:?}: expected a whole number"));
    (0..std::env::var("SIM_SEEDS").map_or(default, expect)).map(Mode::Chaos)
}

/// Program order, then those of [`seeds`].
///
/// # Panics
///
/// Those of [`seeds`].
pub fn orders(default: u64) -> impl Iterator<Item = Mode> {
    core::iter::once(Mode::Fast).chain(seeds(default))
}

/// What [`context`] takes for the card of this machine.
pub const CARD: &str = "card";

/// [`CARD`] where this machine has a card that one of the blobs is for. A suite that takes the name of a chip then runs on
/// it; orders of instructions are those of the card.
///
/// # Errors
///
/// Why there is none: the library or the card is missing, or `origin` made no code for it.
pub fn card(blobs: &[Blob], origin: &str) -> Result<&'static str, String> {
    let device = Runtime::open(Choice::Acl).and_then(|runtime| runtime.device(0));
    let context = device.and_then(|device| device.isolated()).map_err(|error| error.to_string())?;
    let arch = context.facts().arch.map(|fact| fact.value);
    if blobs.iter().any(|blob| arch.is_some_and(|arch| blob.target == Target::Arch(arch))) {
        return Ok(CARD);
    }
    let arch = arch.map_or("unknown".to_owned(), |arch| arch.to_string());
    Err(format!("there is a card, {arch}, and no code for it: {origin}"))
}

/// The architecture of a chip, or of the [`CARD`].
///
/// # Panics
///
/// There is no such chip, or no card.
#[must_use]
pub fn arch(chip: &str) -> Arch {
    let fact = context(chip).facts().arch.map(|fact| fact.value);
    fact.unwrap_or_else(|| panic!("{chip}: its architecture is not known"))
}

/// A context on an emulated chip that takes images of the twin, or on the [`CARD`]. Tasks of an emulated chip run when they
/// are waited for, in the thread that waits.
///
/// # Panics
///
/// There is no such chip, or no card.
#[must_use]
pub fn context(chip: &str) -> Context {
    if chip == CARD {
        let device = Runtime::open(Choice::Acl).and_then(|runtime| runtime.device(0));
        return device.and_then(|device| device.isolated()).unwrap_or_else(|error| panic!("{chip}: {error}"));
    }
    install();
    let preset = Chip::preset(chip).unwrap_or_else(|error| panic!("{chip}: {error:?}"));
    let config = HostConfig::new().devices(1, preset).executor(Executor::Lazy);
    let device = Runtime::open(Choice::Host(config)).and_then(|runtime| runtime.device(0));
    device.and_then(|device| device.isolated()).unwrap_or_else(|error| panic!("{chip}: {error}"))
}

/// The image of an operator for an architecture.
///
/// # Panics
///
/// There is none, for the reason that `origin` gives, or it cannot be opened.
#[must_use]
pub fn image(blobs: &[Blob], arch: Arch, origin: &str) -> Image {
    crate::predict::image_of(blobs, arch, origin).unwrap_or_else(|error| panic!("{arch}: {error}"))
}

/// The argument blocks of the launches that `launch` makes, in words, as they arrive at the emulator: the kernel, where each
/// parameter lies, how much memory its address reaches, the words of its tiling. An [`Order`] must be held meanwhile.
pub fn argument_blocks(_order: &Order, launch: impl FnOnce()) -> String {
    let launches = || LAUNCHES.lock().unwrap_or_else(PoisonError::into_inner);
    *launches() = Some(String::new());
    launch();
    launches().take().unwrap_or_default()
}

/// Compares a text with a file that is kept with the source, byte by byte. With `SNAPSHOTS=renew` the file is written
/// instead.
///
/// # Panics
///
/// They differ, or the file cannot be read or written.
pub fn snapshot(path: impl AsRef<Path>, found: &str) {
    let path = path.as_ref();
    if std::env::var_os("SNAPSHOTS").is_some_and(|value| value == "renew") {
        return std::fs::write(path, found).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let kept = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if let Some(line) = kept.lines().zip(found.lines()).position(|(kept, found)| kept != found) {
        let text = |text: &str| text.lines().nth(line).unwrap_or_default().to_owned();
        let number = line + 1;
        panic!("{}:{number}: kept `{}`, found `{}`", path.display(), text(&kept), text(found));
    }
    let (kept, found) = (kept.lines().count(), found.lines().count());
    assert_eq!(kept, found, "{}: lines kept and found; SNAPSHOTS=renew writes the file", path.display());
}

/// The values on the device, with one more at the end: there are no buffers of nothing.
///
/// # Errors
///
/// Those of the device.
pub fn upload<T: DeviceRepr + Default>(stream: &Stream, values: &[T]) -> Result<DeviceBuffer<T>, ascend_rt::Error> {
    stream.upload(&[values, &[T::default()]].concat())
}

/// What was [uploaded](upload): all but the one at the end.
///
/// # Errors
///
/// Those of the device.
pub fn all<T: DeviceRepr>(buffer: &DeviceBuffer<T>) -> Result<DeviceSlice<'_, T>, ascend_rt::Error> {
    buffer.slice(..buffer.len() - 1)
}

/// As [`all`], to be written.
///
/// # Errors
///
/// Those of the device.
pub fn all_mut<T: DeviceRepr>(buffer: &mut DeviceBuffer<T>) -> Result<DeviceSliceMut<'_, T>, ascend_rt::Error> {
    let len = buffer.len() - 1;
    buffer.slice_mut(..len)
}

/// The values of [`all`].
///
/// # Errors
///
/// Those of the device.
pub fn download<T: DeviceRepr>(stream: &Stream, buffer: &DeviceBuffer<T>) -> Result<Vec<T>, ascend_rt::Error> {
    let mut values = stream.download(buffer)?;
    values.pop();
    Ok(values)
}

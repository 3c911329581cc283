// SPDX-License-Identifier: MIT OR Apache-2.0

//! What stopped a kernel, and the report about it.

use core::fmt;
use std::path::Path;

use crate::abi;
use crate::image::text;
use crate::launch::Mode;

macro_rules! rules {
    ($($name:ident $text:literal $what:literal)+) => {
        /// A rule that a kernel can break.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = concat!("`", $text, "`: ", $what, ".")] $name,)+
            /// One that this version does not know by name.
            Other(String),
        }

        impl Rule {
            /// Those with a name of their own.
            pub const KNOWN: &[Self] = &[$(Self::$name,)+];

            /// The name in reports.
            #[must_use]
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$name => $text,)+
                    Self::Other(name) => name,
                }
            }

            /// What it means, in words; empty for an [`Other`](Self::Other).
            #[must_use]
            pub fn meaning(&self) -> &'static str {
                match self {
                    $(Self::$name => $what,)+
                    Self::Other(_) => "",
                }
            }

            /// The rule of a name.
            #[must_use]
            pub fn of_name(name: &str) -> Self {
                match name {
                    $($text => Self::$name,)+
                    _ => Self::Other(name.to_owned()),
                }
            }
        }
    };
}

rules! {
    Capacity "capacity" "buffers are larger than the memory they lie in"
    Alignment "alignment" "an address or length is not a multiple of what the memory or unit needs"
    Bounds "bounds" "an access leaves its buffer, its memory or the arguments of the launch"
    Range "range" "a parameter is outside of the values that its field can hold or the unit takes"
    Type "type" "the chip does not have this operation for this element type"
    Overlap "overlap" "source and destination overlap without being the same"
    ReadBeforeWrite "read-before-write" "an instruction reads on-chip memory that nothing was written to"
    Undefined "undefined" "bytes without a defined value are used as data"
    HazardRaw "hazard-raw" "a read is not ordered after the write of what it reads"
    HazardWar "hazard-war" "a write is not ordered after a read of what it overwrites"
    HazardWaw "hazard-waw" "a write is not ordered after an earlier write of the same place"
    FlagDoubleSet "flag-double-set" "an event is set again though the wait for it need not have happened"
    FlagUnmatched "flag-unmatched" "an event is still set when the kernel ends"
    FlagId "flag-id" "an event id is outside of its range, or used by hand and by a queue"
    CrossFlag "cross-flag" "a cross-core flag overflows, is left set, or is used where it does not work"
    Deadlock "deadlock" "no core can go on"
    Queue "queue" "a queue or buffer is used against its protocol"
    StateLeft "state-left" "a mask, a mode or an atomic operation is still set when the kernel ends"
    StaleCache "stale-cache" "the scalar unit reads a line of its data cache that was overwritten in memory"
    DirtyCache "dirty-cache" "the scalar unit wrote to memory and never cleaned its data cache"
    Blocks "blocks" "more blocks are launched than the chip has cores, and they wait for each other"
    WrongCore "wrong-core" "a cube call on a vector core, a vector call on a cube core, or a memory that is elsewhere"
    Gemv "gemv" "m = 1 makes the cube unit read its left operand as a plain vector"
    Quant "quant" "the conversion that was asked for does not fit the types"
    Assert "assert" "an assertion of the kernel failed"
    Usage "usage" "a call is made in a way that its contract excludes"
    Launch "launch" "the launch does not fit the kernel"
}

impl Rule {
    /// Whether the kernel would never end.
    #[must_use]
    pub fn hangs(&self) -> bool {
        matches!(self, Self::Deadlock | Self::Blocks)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A place in the source of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The file, relative to the crate that compiled it.
    pub file: String,
    /// The line, counted from one.
    pub line: u32,
}

impl Place {
    /// None where the image says nothing.
    ///
    /// # Safety
    ///
    /// The file is null or leads to characters that end with zero.
    pub(crate) unsafe fn of(site: abi::Site) -> Option<Self> {
        // SAFETY: by the contract of this function.
        let file = unsafe { text(site.file, "a file") }.ok().flatten()?;
        Some(Self { file, line: site.line })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A kernel broke a rule and was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The rule.
    pub rule: Rule,
    /// What happened, in one sentence or more.
    pub message: String,
    /// The kernel.
    pub kernel: String,
    /// The chip.
    pub chip: String,
    /// The order that it happened in.
    pub mode: Mode,
    /// How many blocks there were.
    pub blocks: u32,
    /// The call that broke it.
    pub api: Option<String>,
    /// The operand.
    pub tensor: Option<String>,
    /// The core, as `AIV 3`.
    pub core: String,
    /// The pipe, as `MTE2`.
    pub pipe: String,
    /// Where the call is.
    pub site: Option<Place>,
    /// The other call of a hazard.
    pub other_api: Option<String>,
    /// Where that is.
    pub other_site: Option<Place>,
}

impl Fault {
    /// The report, with the lines of the source as far as they are found below `root`: what [`Display`](fmt::Display)
    /// writes, and the lines.
    #[must_use]
    pub fn report(&self, root: &Path) -> String {
        let mut text = String::new();
        // Writing to a text does not fail.
        let _ = self.write(&mut text, &|place| {
            let source = std::fs::read(root.join(&place.file)).ok()?;
            let source = String::from_utf8_lossy(&source).into_owned();
            let line = source.lines().nth((place.line as usize).checked_sub(1)?)?;
            (!line.trim().is_empty()).then(|| line.trim().to_owned())
        });
        text
    }

    fn write(&self, f: &mut dyn fmt::Write, line_at: &dyn Fn(&Place) -> Option<String>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.rule, self.message)?;
        let places = [&self.site, &self.other_site];
        let widest = places.into_iter().flatten().map(|place| place.line).max().unwrap_or(0);
        let pad = " ".repeat(widest.to_string().len());
        let mut place = |arrow: &str, place: &Option<Place>, note: String| {
            match place {
                Some(place) => write!(f, "\n{pad}{arrow} {place}")?,
                None if note.is_empty() => return Ok(()),
                None => write!(f, "\n{pad}{arrow} no place in the source")?,
            }
            if let Some((place, line)) = place.as_ref().and_then(|place| Some((place, line_at(place)?))) {
                write!(f, "\n{pad} |\n{:>width$} |     {line}", place.line, width = pad.len())?;
            }
            if note.is_empty() { Ok(()) } else { write!(f, "\n{pad} | {note}") }
        };
        let mut who = self.api.clone().unwrap_or_default();
        let mut also = |word: &str, text: &str| {
            if !text.is_empty() {
                who += if who.is_empty() { "" } else { " " };
                who += word;
                who += text;
            }
        };
        also("on pipe ", &self.pipe);
        also("of core ", &self.core);
        if let Some(tensor) = &self.tensor {
            also("at operand `", &format!("{tensor}`"));
        }
        place("-->", &self.site, who)?;
        place(":::", &self.other_site, self.other_api.clone().unwrap_or_default())?;
        write!(
            f,
            "\n{pad} = kernel `{}`, {} blocks on {}, {}",
            self.kernel,
            self.blocks,
            self.chip,
            match self.mode {
                Mode::Fast => "in program order".to_owned(),
                Mode::Dry => "dry".to_owned(),
                Mode::Chaos(seed) => format!("in the order of seed {seed} (ASCEND_SIM=chaos:{seed})"),
            }
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &|_| None)
    }
}

impl std::error::Error for Fault {}

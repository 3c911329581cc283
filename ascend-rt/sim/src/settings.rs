// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the environment says about runs.

use core::fmt;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::launch::Mode;

/// How kernels run where the program does not say it.
///
/// | variable | value | meaning |
/// | --- | --- | --- |
/// | `ASCEND_SIM` | `fast` (default) | in program order |
/// | | `chaos:SEED` | in an order that flags and barriers allow, drawn from the seed, a whole number |
/// | | `dry` | the record only: no data is moved and little is checked |
/// | `ASCEND_SIM_TRACE` | a path | the timeline of a launch goes there: HTML if it ends with `.html`, else JSON for Chrome's trace viewer and Perfetto |
/// | `COLLECT_SWIMLANE` | `1` | the same as `swimlane-PROCESS.json` in the folder `ascend-sim` of the folder for temporary files; `ASCEND_SIM_TRACE` wins |
/// | | a folder | the same there; `0` (default): no timeline |
/// | `ASCEND_SIM_VERBOSE` | `1`, or `0` (default) | every instruction is printed |
///
/// An empty variable counts as unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// In which order instructions run.
    pub mode: Mode,
    /// Where the timeline goes.
    pub trace: Option<PathBuf>,
    /// Whether every instruction is printed.
    pub verbose: bool,
}

/// A variable has a value that means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// The variable.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What it may be.
    pub expected: &'static str,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:?}: expected {}", self.name, self.value, self.expected)
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// Reads the environment of the process.
    ///
    /// # Errors
    ///
    /// A variable has a value that means nothing.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// As [`from_env`](Self::from_env), with the variables as a function.
    ///
    /// # Errors
    ///
    /// A variable has a value that means nothing.
    pub fn from_variables(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingsError> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let words = |name| get(name).map(|value| value.to_string_lossy().into_owned());
        let mode = match words("ASCEND_SIM") {
            None => Mode::Fast,
            Some(value) => {
                value.parse().map_err(|BadMode { expected }| SettingsError { name: "ASCEND_SIM", value, expected })?
            }
        };
        let verbose = match words("ASCEND_SIM_VERBOSE").as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(value) => {
                let (name, expected) = ("ASCEND_SIM_VERBOSE", "0 or 1");
                return Err(SettingsError { name, value: value.to_owned(), expected });
            }
        };
        let swimlane = format!("swimlane-{}.json", std::process::id());
        let trace = match (get("ASCEND_SIM_TRACE"), words("COLLECT_SWIMLANE").as_deref()) {
            (Some(path), _) => Some(path.into()),
            (None, None | Some("0")) => None,
            (None, Some("1")) => Some(std::env::temp_dir().join("ascend-sim").join(swimlane)),
            (None, Some(folder)) => Some(PathBuf::from(folder).join(swimlane)),
        };
        Ok(Self { mode, trace, verbose })
    }
}

/// A word names no mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMode {
    /// What it may be.
    pub expected: &'static str,
}

impl fmt::Display for BadMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.expected)
    }
}

impl std::error::Error for BadMode {}

impl core::str::FromStr for Mode {
    type Err = BadMode;

    fn from_str(word: &str) -> Result<Self, BadMode> {
        match word {
            "fast" => Ok(Self::Fast),
            "dry" => Ok(Self::Dry),
            _ => word
                .strip_prefix("chaos:")
                .and_then(|seed| seed.parse().ok())
                .map(Self::Chaos)
                .ok_or(BadMode { expected: "fast, dry, or chaos:SEED with a whole number, as in chaos:7" }),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fast => f.write_str("fast"),
            Self::Chaos(seed) => write!(f, "chaos:{seed}"),
            Self::Dry => f.write_str("dry"),
        }
    }
}

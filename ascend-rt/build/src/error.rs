// SPDX-License-Identifier: MIT OR Apache-2.0

//! What stops a build.

use std::fmt;
use std::path::PathBuf;

use crate::arch::Arch;
use crate::command::Invocation;
use crate::elf::ElfError;

/// Why a build script fails.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A variable has a value that means nothing.
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: String,
    },
    /// Cargo did not set a variable: this is no build script.
    NotABuildScript {
        /// The variable.
        name: &'static str,
    },
    /// The build script says something impossible about its kernel.
    Recipe {
        /// The kernel.
        kernel: String,
        /// What is wrong.
        what: String,
    },
    /// `ASCEND_RT_BUILD=require`, and no toolkit counts.
    NoToolkit {
        /// Where it was looked for, and what was wrong there.
        why: String,
    },
    /// The toolkit cannot make code for an architecture that was asked for.
    Unsupported {
        /// The architecture.
        arch: Arch,
        /// Why not.
        why: String,
    },
    /// A program that is needed is not there.
    NoProgram {
        /// Its name.
        name: &'static str,
        /// What it is needed for.
        why: String,
    },
    /// The feature `sim` is on, and nobody says where the twin is.
    NoTwin {
        /// The variable that is not set.
        name: &'static str,
    },
    /// There is no C++ compiler.
    NoCompiler,
    /// A program does not start.
    Start {
        /// The command.
        command: Box<Invocation>,
        /// What the system says.
        error: std::io::Error,
    },
    /// A program did not end within its time.
    Slow {
        /// The command.
        command: Box<Invocation>,
        /// The limit in seconds.
        seconds: u64,
    },
    /// A program failed.
    Failed {
        /// The command.
        command: Box<Invocation>,
        /// How it ended.
        status: String,
        /// All that it wrote.
        output: String,
    },
    /// What was linked is not what a device loads.
    Elf {
        /// The file.
        path: PathBuf,
        /// The command that made it.
        command: Box<Invocation>,
        /// What is wrong.
        error: ElfError,
    },
    /// A file cannot be read or written.
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable { name, value, expected } => write!(f, "{name}={value:?}: {expected}"),
            Self::NotABuildScript { name } => write!(f, "{name} is not set: this runs in a build script only"),
            Self::Recipe { kernel, what } => write!(f, "kernel `{kernel}`: {what}"),
            Self::NoToolkit { why } => write!(f, "ASCEND_RT_BUILD=require, but no CANN toolkit was found: {why}"),
            Self::Unsupported { arch, why } => write!(f, "no code for {arch}: {why}"),
            Self::NoProgram { name, why } => write!(f, "`{name}` is not on PATH: {why}"),
            Self::NoTwin { name } => write!(
                f,
                "the feature `sim` is on, and {name} is not set: it needs `ascend-sim` among the [dependencies], \
                 optional and turned on by the feature"
            ),
            Self::NoCompiler => f.write_str(
                "no C++ compiler: CXX is not set, and none of c++, g++, clang++ is on PATH. Kernels for the twin need \
                 g++ 11 or clang 14, or later (packages `g++` or `clang`)",
            ),
            Self::Start { command, error } => write!(f, "cannot start: {error}\n  command: {command}"),
            Self::Slow { command, seconds } => write!(f, "not done after {seconds} s\n  command: {command}"),
            Self::Failed { command, status, output } => {
                write!(f, "{status}\n  command: {command}\n{}", output.trim_end())
            }
            Self::Elf { path, command, error } => {
                write!(f, "{}: {error}\n  command: {command}", path.display())
            }
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start { error, .. } | Self::File { error, .. } => Some(error),
            Self::Elf { error, .. } => Some(error),
            _ => None,
        }
    }
}

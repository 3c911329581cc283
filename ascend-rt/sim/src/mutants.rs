// SPDX-License-Identifier: MIT OR Apache-2.0

//! Mutants: a launch with one synchronisation left out, which must be noticed.

use core::fmt;

use crate::fault::Fault;
use crate::launch::{Launch, Mode, Mute, RunError, Sync};

/// What came of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was stopped.
    Found {
        /// In this order.
        mode: Mode,
        /// With this report.
        fault: Box<Fault>,
    },
    /// It came to its end in every order that was tried.
    Survived {
        /// Whether its results once differed from those of the whole kernel.
        wrong_results: bool,
    },
}

/// A launch without the synchronising calls of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The place.
    pub sync: Sync,
    /// What was left out.
    pub mute: Mute,
    /// What came of it.
    pub verdict: Verdict,
}

impl Mutant {
    /// Whether it was stopped.
    #[must_use]
    pub fn is_found(&self) -> bool {
        matches!(self.verdict, Verdict::Found { .. })
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "without {} ({} calls): ", self.sync, self.sync.calls)?;
        match &self.verdict {
            Verdict::Found { mode, fault } => write!(f, "{mode}: {fault}"),
            Verdict::Survived { wrong_results: false } => f.write_str("NOT FOUND"),
            Verdict::Survived { wrong_results: true } => f.write_str("NOT FOUND, and its results are wrong"),
        }
    }
}

/// Runs a launch once as it is, then for each place where it synchronises without the calls of that place: in program
/// order, and where that finds nothing under the seeds 0 to `seeds`. Buffers of the caller do not change.
///
/// # Errors
///
/// The launch as it is does not come to its end, or a mutant fails other than by a fault of the kernel.
pub fn mutants(launch: &mut Launch<'_>, seeds: u64) -> Result<Vec<Mutant>, RunError> {
    let (clean, results) = launch.run_staged(Mode::Fast, &[])?;
    let mut all = Vec::with_capacity(clean.syncs.len());
    for sync in clean.syncs {
        let mute = sync.mute();
        let mut verdict = Verdict::Survived { wrong_results: false };
        for mode in core::iter::once(Mode::Fast).chain((0..seeds).map(Mode::Chaos)) {
            match launch.run_staged(mode, core::slice::from_ref(&mute)) {
                Ok((_, stage)) => {
                    if let Verdict::Survived { wrong_results } = &mut verdict {
                        *wrong_results |= !stage.same_results(&results);
                    }
                }
                Err(RunError::Fault(fault)) => {
                    verdict = Verdict::Found { mode, fault };
                    break;
                }
                Err(other) => return Err(other),
            }
        }
        all.push(Mutant { sync, mute, verdict });
    }
    Ok(all)
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where CANN is, and which way its version compiles kernels.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::Invocation;
use crate::env::{Env, is_program};

/// How long `bisheng --version` may take. A toolkit on a slow network file system is slow once.
const VERSION_LIMIT: Duration = Duration::from_secs(60);

/// A folder that may be a toolkit, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The folder.
    pub root: PathBuf,
    /// The variable that names it, or `default`.
    pub origin: &'static str,
}

/// A version of CANN, as far as it decides something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// 8 of 8.1.RC1.
    pub major: u32,
    /// 1 of 8.1.RC1.
    pub minor: u32,
    /// As it is written.
    pub text: String,
}

impl Version {
    /// Reads the leading two numbers of `8.1.RC1`, `8.5.0` or `9.2.0-beta.1`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_matches('"');
        let mut parts = text.split('.');
        let number = |part: &str| part[..part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len())].parse().ok();
        let (major, minor) = (number(parts.next()?)?, number(parts.next()?)?);
        Some(Self { major, minor, text: text.to_owned() })
    }

    fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// How a toolkit makes a file that a device loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// From 8.5 on: the compiler by architecture, then the device linker.
    Bisheng {
        /// `ld.lld` beside the compiler.
        linker: PathBuf,
    },
    /// 8.1 to 8.3: the toolkit's own build files, which also make the wrapper around each kernel.
    CMake {
        /// `ascendc.cmake`.
        script: PathBuf,
    },
}

/// A toolkit that counts: its compiler runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolkit {
    /// Its folder.
    pub root: PathBuf,
    /// Its compiler.
    pub bisheng: PathBuf,
    /// What the compiler says of itself, its first line.
    pub compiler: String,
    /// Its version, if a file tells.
    pub version: Option<Version>,
    /// How it compiles.
    pub way: Way,
}

impl fmt::Display for Toolkit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "CANN {version}"),
            None => f.write_str("CANN of unknown version"),
        }
    }
}

/// Why a folder is no toolkit that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It is not there.
    NotThere,
    /// It has no compiler.
    NoBisheng,
    /// Its compiler does not run.
    DoesNotRun {
        /// The first line of why.
        why: String,
    },
    /// Its version is older than 8.1.
    TooOld {
        /// The version.
        version: Version,
    },
    /// What its version needs for kernels is not in it.
    Incomplete {
        /// What is not there.
        missing: &'static str,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotThere => f.write_str("not there"),
            Self::NoBisheng => f.write_str("no bisheng in it (is this the toolkit, and for this host?)"),
            Self::DoesNotRun { why } => write!(f, "its bisheng does not run: {why}"),
            Self::TooOld { version } => write!(f, "CANN {version} is older than 8.1"),
            Self::Incomplete { missing } => write!(f, "no {missing} in it: the installation is not complete"),
        }
    }
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The first toolkit that counts.
    pub toolkit: Option<Toolkit>,
    /// What was looked at before it.
    pub rejected: Vec<(Candidate, Reason)>,
}

impl Found {
    /// Why there is no toolkit, in one line. Default places that are not there are only counted.
    #[must_use]
    pub fn why_none(&self) -> String {
        let telling =
            |(candidate, reason): &&(Candidate, Reason)| candidate.origin != "default" || *reason != Reason::NotThere;
        let mut parts: Vec<String> = self
            .rejected
            .iter()
            .filter(telling)
            .map(|(candidate, reason)| {
                let origin =
                    if candidate.origin == "default" { String::new() } else { format!("{}=", candidate.origin) };
                format!("{origin}{}: {reason}", candidate.root.display())
            })
            .collect();
        if !self.rejected.iter().any(|(candidate, _)| candidate.origin != "default") {
            parts.insert(0, "ASCEND_HOME_PATH and ASCEND_TOOLKIT_HOME are not set".to_owned());
        }
        let silent = self.rejected.len() - self.rejected.iter().filter(telling).count();
        if silent > 0 {
            parts.push(format!("nothing in {silent} default places"));
        }
        parts.join("; ")
    }
}

/// Where to look, in this order: the two variables, then the default places of 9.x, then those of 8.x.
#[must_use]
pub fn candidates(env: &Env) -> Vec<Candidate> {
    let mut list: Vec<Candidate> = Vec::new();
    let mut add = |root: PathBuf, origin| {
        if !list.iter().any(|other| other.root == root) {
            list.push(Candidate { root, origin });
        }
    };
    for name in ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"] {
        if let Some(root) = env.path(name) {
            add(root.to_owned(), name);
        }
    }
    let home = env.path("HOME").map(|home| home.join("Ascend"));
    for below in ["cann", "ascend-toolkit/latest"] {
        add(env.place("/usr/local/Ascend").join(below), "default");
        if let Some(home) = &home {
            add(home.join(below), "default");
        }
    }
    list
}

/// Where the compiler may lie below a root, for a host of this architecture (`x86_64`, `aarch64`).
#[must_use]
pub fn bisheng_places(root: &Path, host: &str) -> Vec<PathBuf> {
    let folders = [
        format!("{host}-linux/ccec_compiler/bin"),
        "compiler/ccec_compiler/bin".to_owned(),
        "tools/ccec_compiler/bin".to_owned(),
        "bin".to_owned(),
    ];
    folders.iter().map(|folder| root.join(folder).join("bisheng")).collect()
}

/// The version that the files of a root tell.
#[must_use]
pub fn version(root: &Path, host: &str) -> Option<Version> {
    let info = |path: PathBuf| {
        let text = std::fs::read_to_string(path).ok()?;
        // `version` is that of the release; `Version` counts components.
        text.lines().find_map(|line| Version::parse(line.trim().strip_prefix("version=")?))
    };
    info(root.join(format!("{host}-linux/ascend_toolkit_install.info")))
        .or_else(|| info(root.join("ascend_toolkit_install.info")))
        .or_else(|| info(root.join("version.info")))
        // 8.x links `latest` to a folder that is called like the version.
        .or_else(|| Version::parse(std::fs::canonicalize(root).ok()?.file_name()?.to_str()?))
        .or_else(|| {
            let name = std::fs::canonicalize(root).ok()?.file_name()?.to_str()?.to_owned();
            Version::parse(name.strip_prefix("cann-")?)
        })
}

/// Whether a root counts, and as what.
///
/// # Errors
///
/// Why it does not.
pub fn inspect(root: &Path, host: &str) -> Result<Toolkit, Reason> {
    if !root.is_dir() {
        return Err(Reason::NotThere);
    }
    let bisheng = bisheng_places(root, host).into_iter().find(|path| is_program(path)).ok_or(Reason::NoBisheng)?;
    let says = Invocation::new(&bisheng).arg("--version").run_within(Some(VERSION_LIMIT)).map_err(|error| {
        let text = error.to_string();
        let output = text.lines().nth(2).map_or(String::new(), |line| format!(": {}", line.trim()));
        Reason::DoesNotRun { why: format!("{}{output}", text.lines().next().unwrap_or_default()) }
    })?;
    let compiler = says.stdout.lines().chain(says.stderr.lines()).next().unwrap_or_default().trim().to_owned();
    let version = version(root, host);
    if let Some(version) = version.as_ref().filter(|version| !version.at_least(8, 1)) {
        return Err(Reason::TooOld { version: version.clone() });
    }

    let first = |paths: Vec<PathBuf>| paths.into_iter().find(|path| path.exists());
    let linkers: Vec<PathBuf> = std::iter::once(bisheng.clone()).chain(bisheng_places(root, host)).collect();
    let linker = first(linkers.into_iter().map(|compiler| compiler.with_file_name("ld.lld")).collect());
    let script = first(
        [format!("{host}-linux/tikcpp"), "compiler/tikcpp".to_owned(), "tools/tikcpp".to_owned()]
            .iter()
            .map(|folder| root.join(folder).join("ascendc_kernel_cmake/ascendc.cmake"))
            .collect(),
    );
    let by_architecture = match &version {
        Some(version) => version.at_least(8, 5),
        // The headers of the newer compiler lie in a folder of their own.
        None => root.join(format!("{host}-linux/asc")).is_dir() || root.join("asc").is_dir() || script.is_none(),
    };
    let way = if by_architecture {
        Way::Bisheng { linker: linker.ok_or(Reason::Incomplete { missing: "ld.lld" })? }
    } else {
        Way::CMake { script: script.ok_or(Reason::Incomplete { missing: "ascendc_kernel_cmake/ascendc.cmake" })? }
    };
    Ok(Toolkit { root: root.to_owned(), bisheng, compiler, version, way })
}

/// Looks at the candidates until one counts.
#[must_use]
pub fn find(env: &Env, host: &str) -> Found {
    let mut found = Found::default();
    for candidate in candidates(env) {
        match inspect(&candidate.root, host) {
            Ok(toolkit) => {
                found.toolkit = Some(toolkit);
                break;
            }
            Err(reason) => found.rejected.push((candidate, reason)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let parse = |text| Version::parse(text).map(|version| (version.major, version.minor));
        for (text, expected) in [
            ("8.1.RC1", Some((8, 1))),
            ("8.5.0", Some((8, 5))),
            ("\"9.2.0-beta.1\"", Some((9, 2))),
            (" 8.2.RC1.alpha003\r", Some((8, 2))),
            ("8.5", Some((8, 5))),
            ("latest", None),
            ("9", None),
            ("", None),
            ("RC.1", None),
            ("99999999999.1", None),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_order_of_places() {
        let env = Env::of([
            ("ASCEND_HOME_PATH", "/a"),
            ("ASCEND_TOOLKIT_HOME", "/a"),
            ("HOME", "/h"),
            ("ASCEND_RT_SYSROOT", "/s"),
        ]);
        let list: Vec<_> =
            candidates(&env).into_iter().map(|at| format!("{} {}", at.origin, at.root.display())).collect();
        assert_eq!(
            list,
            [
                "ASCEND_HOME_PATH /a",
                "default /s/usr/local/Ascend/cann",
                "default /h/Ascend/cann",
                "default /s/usr/local/Ascend/ascend-toolkit/latest",
                "default /h/Ascend/ascend-toolkit/latest",
            ]
        );
        assert_eq!(candidates(&Env::default()).len(), 2);
    }

    #[test]
    fn both_generations_of_compiler_places() {
        let places = bisheng_places(Path::new("/c"), "aarch64");
        assert_eq!(
            places,
            [
                "/c/aarch64-linux/ccec_compiler/bin/bisheng",
                "/c/compiler/ccec_compiler/bin/bisheng",
                "/c/tools/ccec_compiler/bin/bisheng",
                "/c/bin/bisheng",
            ]
            .map(PathBuf::from)
        );
    }

    #[test]
    fn one_line_says_why() {
        let at = |root: &str, origin| Candidate { root: PathBuf::from(root), origin };
        let none = Found { toolkit: None, rejected: vec![(at("/u", "default"), Reason::NotThere)] };
        assert_eq!(
            none.why_none(),
            "ASCEND_HOME_PATH and ASCEND_TOOLKIT_HOME are not set; nothing in 1 default places"
        );
        let wrong = Found {
            toolkit: None,
            rejected: vec![
                (at("/x", "ASCEND_HOME_PATH"), Reason::NotThere),
                (at("/u", "default"), Reason::DoesNotRun { why: "exit status: 1".to_owned() }),
            ],
        };
        assert_eq!(wrong.why_none(), "ASCEND_HOME_PATH=/x: not there; /u: its bisheng does not run: exit status: 1");
    }
}

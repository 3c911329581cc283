// SPDX-License-Identifier: MIT OR Apache-2.0

//! The environment as a value, so that tests need not change that of the process.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Variables. An empty one counts as unset.
#[derive(Clone, Debug, Default)]
pub struct Env {
    variables: BTreeMap<OsString, OsString>,
}

impl Env {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self { variables: std::env::vars_os().collect() }
    }

    /// These and no others.
    #[must_use]
    pub fn of<N: Into<OsString>, V: Into<OsString>>(variables: impl IntoIterator<Item = (N, V)>) -> Self {
        Self { variables: variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }

    /// One value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// One value as a path.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.get(name).map(Path::new)
    }

    /// A fixed place of the system, below `ASCEND_RT_SYSROOT` where that is set.
    #[must_use]
    pub fn place(&self, absolute: &str) -> PathBuf {
        match self.path("ASCEND_RT_SYSROOT") {
            Some(root) => root.join(absolute.trim_start_matches('/')),
            None => PathBuf::from(absolute),
        }
    }

    /// The program of this name that `PATH` leads to.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let folders = self.get("PATH")?;
        std::env::split_paths(folders).map(|folder| folder.join(name)).find(|path| is_program(path))
    }
}

/// Whether it is a file that may be run.
#[must_use]
pub fn is_program(path: &Path) -> bool {
    let Ok(meta) = std::fs::metadata(path) else { return false };
    #[cfg(unix)]
    let runs = std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let runs = true;
    meta.is_file() && runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_is_unset() {
        let env = Env::of([("A", "x"), ("B", "")]);
        assert_eq!(env.get("A"), Some(OsStr::new("x")));
        assert_eq!((env.get("B"), env.get("C")), (None, None));
    }

    #[test]
    fn fixed_places_can_be_moved() {
        assert_eq!(Env::default().place("/usr/local"), Path::new("/usr/local"));
        assert_eq!(Env::of([("ASCEND_RT_SYSROOT", "/s")]).place("/usr/local"), Path::new("/s/usr/local"));
    }

    #[test]
    fn no_path_no_program() {
        assert_eq!(Env::default().program("sh"), None);
        assert_eq!(Env::of([("PATH", "/nowhere")]).program("sh"), None);
    }
}

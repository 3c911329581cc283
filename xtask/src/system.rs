// SPDX-License-Identifier: MIT OR Apache-2.0

//! The machine: its variables, its files, its programs. A value, so that tests can make one of their own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What is looked at instead of the whole machine: its variables decide where.
#[derive(Debug, Default)]
pub(crate) struct System {
    variables: BTreeMap<OsString, OsString>,
}

/// What a program came to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ran {
    pub(crate) success: bool,
    /// Standard output, then standard error.
    pub(crate) text: String,
}

impl Ran {
    /// The first line that says something.
    pub(crate) fn first_line(&self) -> &str {
        self.text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it says nothing")
    }
}

impl System {
    pub(crate) fn of_process() -> Self {
        Self { variables: std::env::vars_os().collect() }
    }

    #[cfg(test)]
    pub(crate) fn of<V: Into<OsString>>(variables: impl IntoIterator<Item = (&'static str, V)>) -> Self {
        Self { variables: variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }

    /// A variable as text. An empty one counts as unset.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let value = self.variables.get(std::ffi::OsStr::new(name))?.to_string_lossy().into_owned();
        (!value.is_empty()).then_some(value)
    }

    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from)
    }

    /// A variable that lists paths.
    pub(crate) fn paths(&self, name: &str) -> Vec<PathBuf> {
        let value = self.variable(name).unwrap_or_default();
        std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect()
    }

    /// A fixed place of the system, below `ASCEND_RT_SYSROOT` where that is set.
    pub(crate) fn place(&self, absolute: &str) -> PathBuf {
        match self.path("ASCEND_RT_SYSROOT") {
            Some(root) => root.join(absolute.trim_start_matches('/')),
            None => PathBuf::from(absolute),
        }
    }

    /// The program of this name that `PATH` leads to.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        self.paths("PATH").into_iter().map(|folder| folder.join(name)).find(|path| is_program(path))
    }

    /// Where CANN may be, in the order in which it is looked for: the place, and the variable that names it.
    pub(crate) fn cann(&self) -> Vec<(PathBuf, Option<&'static str>)> {
        let mut list: Vec<(PathBuf, Option<&'static str>)> = Vec::new();
        let mut add = |root: PathBuf, variable| {
            if !list.iter().any(|(other, _)| *other == root) {
                list.push((root, variable));
            }
        };
        for name in ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"] {
            if let Some(root) = self.path(name) {
                add(root, Some(name));
            }
        }
        for below in ["cann", "ascend-toolkit/latest"] {
            add(self.place("/usr/local/Ascend").join(below), None);
            if let Some(home) = self.path("HOME") {
                add(home.join("Ascend").join(below), None);
            }
        }
        list
    }

    /// The folder of headers of a root of CANN.
    pub(crate) fn headers(root: &Path) -> Option<PathBuf> {
        let of_host = format!("{}-linux/include", std::env::consts::ARCH);
        [root.join("include"), root.join(of_host)].into_iter().find(|folder| folder.join("acl/acl.h").is_file())
    }

    /// Runs a program with this standard input, for as long as `limit` at most.
    ///
    /// # Errors
    ///
    /// It does not start, or does not end in time; as text for people.
    pub(crate) fn run(&self, program: &Path, args: &[&str], input: &str, limit: Duration) -> Result<Ran, String> {
        let text = |error: std::io::Error| error.to_string();
        let mut child = Command::new(program)
            .args(args)
            .env_clear()
            .envs(&self.variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(text)?;
        if let Some(mut pipe) = child.stdin.take() {
            // A program that reads nothing closes the pipe, which is no failure.
            let _ = pipe.write_all(input.as_bytes());
        }
        let readers = [reader(child.stdout.take()), reader(child.stderr.take())];
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(text)? {
                break status;
            }
            if begin.elapsed() >= limit {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("not done after {} s", limit.as_secs_f32()));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let read = readers.into_iter().flatten().filter_map(|reader| reader.join().ok()).flatten().collect::<Vec<u8>>();
        Ok(Ran { success: status.success(), text: String::from_utf8_lossy(&read).into_owned() })
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> Option<std::thread::JoinHandle<Vec<u8>>> {
    pipe.map(|mut pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // What came before a broken pipe is still worth showing.
            let _ = pipe.read_to_end(&mut bytes);
            bytes
        })
    })
}

pub(crate) fn is_program(path: &Path) -> bool {
    let Ok(meta) = std::fs::metadata(path) else { return false };
    #[cfg(unix)]
    let runs = std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let runs = true;
    meta.is_file() && runs
}

/// Folders of the test's own, deleted at its end.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    pub(crate) struct Folder(PathBuf);

    impl Folder {
        pub(crate) fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let name = format!("xtask-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        pub(crate) fn path(&self) -> &Path {
            &self.0
        }

        pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
            let path = self.0.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, content).unwrap();
            path
        }

        #[cfg(unix)]
        pub(crate) fn program(&self, name: &str, script: &str) -> PathBuf {
            // Copied by another process: a file that this one has open for writing, or a child of a test beside this
            // one inherits, cannot be run.
            let text = self.file(&format!("{name}.txt"), format!("#!/bin/sh\n{script}\n"));
            let path = self.0.join(name);
            assert!(Command::new("cp").args([&text, &path]).status().unwrap().success());
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_places() {
        let system = System::of([("HOME", "/h"), ("EMPTY", ""), ("LIST", "/a::/b"), ("ASCEND_RT_SYSROOT", "/s")]);
        assert_eq!(system.variable("EMPTY"), None);
        assert_eq!(system.paths("LIST"), ["/a", "/b"].map(PathBuf::from));
        assert_eq!(system.paths("EMPTY"), [""; 0].map(PathBuf::from));
        assert_eq!(system.place("/dev"), Path::new("/s/dev"));
        let roots: Vec<_> = system.cann().into_iter().map(|(root, _)| root).collect();
        assert_eq!(
            roots,
            [
                "/s/usr/local/Ascend/cann",
                "/h/Ascend/cann",
                "/s/usr/local/Ascend/ascend-toolkit/latest",
                "/h/Ascend/ascend-toolkit/latest"
            ]
            .map(PathBuf::from)
        );
    }

    #[cfg(unix)]
    #[test]
    fn programs() {
        let folder = testing::Folder::new();
        folder.program("says", "cat; echo \"$V\" >&2; exit 3");
        folder.program("hangs", "exec sleep 60");
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let system = System::of([("PATH", path.as_str()), ("V", "value")]);
        let says = system.program("says").unwrap();
        let ran = system.run(&says, &[], "in\n", Duration::from_secs(10)).unwrap();
        assert_eq!(ran, Ran { success: false, text: "in\nvalue\n".to_owned() });
        assert_eq!(ran.first_line(), "in");
        let hangs = system.program("hangs").unwrap();
        let error = system.run(&hangs, &[], "", Duration::from_millis(50)).unwrap_err();
        assert!(error.starts_with("not done after"), "{error}");
        assert!(system.run(Path::new("/nowhere/x"), &[], "", Duration::from_secs(1)).is_err());
        assert_eq!(system.program("not-there"), None);
    }
}

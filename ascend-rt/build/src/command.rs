// SPDX-License-Identifier: MIT OR Apache-2.0

//! Commands as values: shown as typed in a shell, and run, from the same value.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::Error;

/// A program with its arguments, its folder, and the variables that are set for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables set on top of those of this process.
    pub env: Vec<(&'static str, OsString)>,
    /// The folder it runs in.
    pub dir: Option<PathBuf>,
}

/// What a program that succeeded wrote.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Invocation {
    /// A program without arguments.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: Vec::new(), env: Vec::new(), dir: None }
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// One argument of two parts: `-I` and a path.
    #[must_use]
    pub fn joined(self, flag: &str, value: impl AsRef<OsStr>) -> Self {
        let mut arg = OsString::from(flag);
        arg.push(value);
        self.arg(arg)
    }

    /// A variable for the program.
    #[must_use]
    pub fn env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name, value.as_ref().to_owned()));
        self
    }

    /// The folder it runs in.
    #[must_use]
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.dir = Some(dir.as_ref().to_owned());
        self
    }

    /// Runs it to its end.
    ///
    /// # Errors
    ///
    /// It does not start, or it fails.
    pub fn run(&self) -> Result<Output, Error> {
        self.run_within(None)
    }

    /// Runs it to its end, or for `limit` at most.
    ///
    /// # Errors
    ///
    /// It does not start, does not end in time, or fails.
    pub fn run_within(&self, limit: Option<Duration>) -> Result<Output, Error> {
        let start = |error| Error::Start { command: Box::new(self.clone()), error };
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(start)?;
        // Each pipe has its reader, or a program that fills one would wait for ever.
        let stdout = reader(child.stdout.take());
        let stderr = reader(child.stderr.take());
        let begin = Instant::now();
        let status = match limit {
            None => child.wait().map_err(start)?,
            Some(limit) => loop {
                if let Some(status) = child.try_wait().map_err(start)? {
                    break status;
                }
                if begin.elapsed() >= limit {
                    // The readers are left to end by themselves: a child of the child may hold the pipes.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(Error::Slow { command: Box::new(self.clone()), seconds: limit.as_secs() });
                }
                std::thread::sleep(Duration::from_millis(2));
            },
        };
        let output = Output { stdout: collected(stdout), stderr: collected(stderr) };
        if status.success() {
            return Ok(output);
        }
        let mut text = output.stderr;
        if !output.stdout.trim().is_empty() {
            text = format!("{}\n{text}", output.stdout.trim_end());
        }
        Err(Error::Failed { command: Box::new(self.clone()), status: status.to_string(), output: text })
    }
}

type Reader = std::thread::JoinHandle<Vec<u8>>;

fn reader(pipe: Option<impl Read + Send + 'static>) -> Option<Reader> {
    pipe.map(|mut pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // What came before a broken pipe is still worth showing.
            let _ = pipe.read_to_end(&mut bytes);
            bytes
        })
    })
}

fn collected(reader: Option<Reader>) -> String {
    let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&quoted(self.program.as_os_str()))?;
        for arg in &self.args {
            write!(f, " {}", quoted(arg))?;
        }
        Ok(())
    }
}

/// A word as a POSIX shell takes it.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "_-./=+,:@%~".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_typed_in_a_shell() {
        let command = Invocation::new("/opt/my cann/bisheng")
            .args(["-c", "a'b.cpp", ""])
            .joined("-I", "/x y")
            .joined("-D", "N=1")
            .env("ASCEND_HOME_PATH", "/opt/my cann");
        assert_eq!(
            command.to_string(),
            r"ASCEND_HOME_PATH='/opt/my cann' '/opt/my cann/bisheng' -c 'a'\''b.cpp' '' '-I/x y' -DN=1"
        );
    }

    #[test]
    fn a_program_that_is_not_there() {
        let error = Invocation::new("/nowhere/bisheng").arg("-c").run().unwrap_err();
        assert!(error.to_string().contains("command: /nowhere/bisheng -c"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn output_failure_and_the_time_limit() {
        let sh = |script: &str| Invocation::new("sh").args(["-c", script]);
        let output = sh("echo out; echo err >&2; echo $V; pwd").env("V", "value").dir("/").run().unwrap();
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\nvalue\n/\n", "err\n"));

        let message = sh("echo said; echo why >&2; exit 3").run().unwrap_err().to_string();
        for part in ["exit status: 3", "command: sh -c", "said\nwhy"] {
            assert!(message.contains(part), "{message}");
        }

        let error = sh("exec sleep 60").run_within(Some(Duration::from_millis(50))).unwrap_err();
        assert!(matches!(error, Error::Slow { .. }), "{error}");
        // More than a pipe holds, on both of them.
        let output = sh("yes | head -c 300000; yes | head -c 300000 >&2").run().unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 300_000));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! The declarations of `ascend-rt` against genuine headers.
//!
//! They are written by hand, because the headers' licence does not let their content come in here. So nothing is
//! generated: what is checked is that names, arguments, values and layouts are those of the headers that lie on this
//! machine. `xtask/tools/acl_ffi_check.py` reads both sides as text and lets a C compiler say the layouts; the test of
//! `ascend-rt-check` lets rustc compare types, by way of bindgen.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::cargo::Call;
use crate::system::System;

const TOOL: &str = "xtask/tools/acl_ffi_check.py";
const DECLARATIONS: &str = "ascend-rt/src/sys.rs";

/// What a check needs and does not find. Its text says what to do.
#[derive(Debug, PartialEq)]
pub(crate) struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot check: {}", self.0)
    }
}

impl std::error::Error for Missing {}

/// What will run.
#[derive(Debug)]
pub(crate) struct Plan {
    python: PathBuf,
    /// For the layouts; without one, the tool works them out.
    compiler: Option<PathBuf>,
    headers: Vec<PathBuf>,
    identity: bool,
}

impl Plan {
    pub(crate) fn new(system: &System, identity: bool) -> Result<Self, Missing> {
        let headers = headers(system)?;
        let python =
            system.program("python3").ok_or_else(|| Missing(format!("no `python3` on PATH, and {TOOL} is Python")))?;
        let compiler = ["cc", "gcc", "clang"].into_iter().find_map(|name| system.program(name));
        Ok(Self { python, compiler, headers, identity })
    }

    fn arguments(&self, headers: &Path) -> Vec<String> {
        let mut args = vec![TOOL.to_owned(), "--strict".to_owned()];
        args.extend(["--include".to_owned(), headers.display().to_string()]);
        if let Some(compiler) = &self.compiler {
            args.extend(["--cc".to_owned(), compiler.display().to_string()]);
        }
        args.push(DECLARATIONS.to_owned());
        args
    }

    fn identity_test(headers: &Path) -> Call {
        Call::new("test --package ascend-rt-check --features check-ffi").env("ACL_INCLUDE", headers.to_string_lossy())
    }

    pub(crate) fn describe(&self) {
        for headers in &self.headers {
            println!("  {} {}", self.python.display(), self.arguments(headers).join(" "));
            if self.identity {
                println!("  {}", Self::identity_test(headers));
            }
        }
    }

    /// Whether everything agrees. Differences are printed.
    pub(crate) fn run(&self) -> anyhow::Result<bool> {
        if self.compiler.is_none() {
            println!("note: no C compiler on PATH; the layouts of the headers are worked out, not compiled");
        }
        let mut agrees = true;
        for headers in &self.headers {
            println!("bindgen: {DECLARATIONS} against {}", headers.display());
            let mut command = Command::new(&self.python);
            let status = command.args(self.arguments(headers)).status();
            let status = status.with_context(|| format!("cannot start {}", self.python.display()))?;
            agrees &= status.success();
            if self.identity {
                agrees &= Self::identity_test(headers).succeeds()?;
            }
        }
        println!("bindgen: {}", if agrees { "the declarations agree" } else { "the declarations DIFFER" });
        if !self.identity {
            println!(
                "bindgen: `cargo xtask bindgen --check --identity` also lets rustc compare the types (needs libclang)"
            );
        }
        Ok(agrees)
    }
}

/// Folders of genuine headers: those of `ACL_INCLUDE`, else those of each CANN.
fn headers(system: &System) -> Result<Vec<PathBuf>, Missing> {
    let named = system.paths("ACL_INCLUDE");
    for folder in &named {
        if !folder.join("acl/acl.h").is_file() {
            let what = format!("ACL_INCLUDE names {}, which has no acl/acl.h", folder.display());
            return Err(Missing(what));
        }
    }
    let found = if named.is_empty() {
        system.cann().iter().filter_map(|(root, _)| System::headers(root)).collect()
    } else {
        named
    };
    if found.is_empty() {
        let what = "no genuine headers: ACL_INCLUDE is not set, and no CANN was found with include/acl/acl.h.\n\
                    Install CANN and source its set_env.sh, or let ACL_INCLUDE name a folder that has acl/acl.h (several, \
                    separated by colons, are checked one after the other). The runtime's public repository has the headers \
                    below include/external.";
        return Err(Missing(what.to_owned()));
    }
    Ok(found)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::system::testing::Folder;

    fn plan(variables: &[(&'static str, String)]) -> Result<Plan, Missing> {
        Plan::new(&System::of(variables.iter().cloned()), false)
    }

    #[test]
    fn what_is_missing_is_said() {
        let folder = Folder::new();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let nowhere = ("ASCEND_RT_SYSROOT", at("nowhere"));
        let text = plan(std::slice::from_ref(&nowhere)).unwrap_err().to_string();
        assert!(text.starts_with("cannot check: no genuine headers: ACL_INCLUDE is not set"), "{text}");
        let text = plan(&[nowhere.clone(), ("ACL_INCLUDE", at("x"))]).unwrap_err().to_string();
        assert!(text.contains("which has no acl/acl.h"), "{text}");
        folder.file("x/acl/acl.h", "");
        let text = plan(&[nowhere, ("ACL_INCLUDE", at("x"))]).unwrap_err().to_string();
        assert!(text.contains("no `python3` on PATH"), "{text}");
    }

    #[test]
    fn named_headers_else_those_of_each_cann() {
        let folder = Folder::new();
        let at = |name: &str| folder.path().join(name).display().to_string();
        folder.program("bin/python3", "");
        folder.program("bin/cc", "");
        for headers in ["a/acl/acl.h", "b/acl/acl.h", "cann/include/acl/acl.h"] {
            folder.file(headers, "");
        }
        let base = [("PATH", at("bin")), ("ASCEND_RT_SYSROOT", at("nowhere")), ("ASCEND_HOME_PATH", at("cann"))];
        let of_cann = plan(&base).unwrap();
        assert_eq!(of_cann.headers, [folder.path().join("cann/include")]);
        let command = of_cann.arguments(&of_cann.headers[0]).join(" ");
        let expected = format!(
            "xtask/tools/acl_ffi_check.py --strict --include {} --cc {} ascend-rt/src/sys.rs",
            at("cann/include"),
            at("bin/cc")
        );
        assert_eq!(command, expected);

        let named = [base.as_slice(), &[("ACL_INCLUDE", format!("{}:{}", at("a"), at("b")))]].concat();
        assert_eq!(plan(&named).unwrap().headers, ["a", "b"].map(|name| folder.path().join(name)));
    }

    #[test]
    fn the_identity_test_sees_one_set_of_headers() {
        let call = Plan::identity_test(Path::new("/h")).to_string();
        assert_eq!(call, r#"ACL_INCLUDE="/h" cargo test --package ascend-rt-check --features check-ffi"#);
    }
}

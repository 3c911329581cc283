// SPDX-License-Identifier: MIT OR Apache-2.0

//! The declarations against the genuine headers that `ACL_INCLUDE` names, by the checker that reads both as text.

use std::process::Command;

use crate::report::{Status, has, paths, report};

#[test]
fn the_declarations_agree_with_genuine_headers() {
    let named = std::env::var_os("ACL_INCLUDE").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
    if folders.is_empty() {
        return report("ffi:headers", &Status::NotBuilt("ACL_INCLUDE is not set"));
    }
    if !has("python3") {
        return report("ffi:headers", &Status::NotBuilt("no python3"));
    }
    let (tool, declarations) = paths();
    for folder in folders {
        let output =
            Command::new("python3").arg(&tool).args(["--strict", "--include"]).arg(&folder).arg(&declarations).output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}:\n{text}{}", folder.display(), String::from_utf8_lossy(&output.stderr));
    }
    report("ffi:headers", &Status::Ok);
}

#[test]
fn the_identity_check_is_listed() {
    if cfg!(not(feature = "check-ffi")) {
        report("ffi:rustc", &Status::NotBuilt("the feature check-ffi is off"));
    }
}

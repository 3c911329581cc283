// SPDX-License-Identifier: MIT OR Apache-2.0

//! Whether the checker finds mistakes. They are planted in a copy of the declarations, and looked for with a few headers
//! of our own.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::report::{Status, has, paths, report};

/// What is right, what is wrong, and what the checker says then.
const MISTAKES: [(&str, &str, &str); 10] = [
    (
        "fn aclFinalize() -> aclError",
        "fn aclFinalize(flags: i32) -> aclError",
        "aclFinalize: 1 arguments, header has 0",
    ),
    (
        "fn aclrtSetDevice(device: i32)",
        "fn aclrtSetDevice(device: i64)",
        "aclrtSetDevice: argument 1 is i64, header has i32",
    ),
    (
        "fn aclGetRecentErrMsg() -> *const c_char",
        "fn aclGetRecentErrMsg() -> aclError",
        "aclGetRecentErrMsg: returns i32, header has ptr",
    ),
    (
        "kind: aclrtMemcpyKind, stream: aclrtStream)",
        "stream: aclrtStream, kind: aclrtMemcpyKind)",
        "aclrtMemcpyAsync: argument 5 is ptr, header has u32",
    ),
    (
        "fn aclrtMalloc(pointer: *mut *mut c_void",
        "fn aclrtMalloc(pointer: *mut c_void",
        "aclrtMalloc: argument 1 is ptr, header has ptr2",
    ),
    (
        "fn aclrtSynchronizeStreamWithTimeout(stream: aclrtStream, timeout: i32)",
        "fn aclrtSynchronizeStreamWithTimeout(stream: aclrtStream, timeout: u32)",
        "aclrtSynchronizeStreamWithTimeout: argument 2 is u32, header has i32",
    ),
    ("fn aclrtEventElapsedTime(", "fn aclrtEventElapsdTime(", "aclrtEventElapsdTime: not in the headers"),
    (
        "ACL_ERROR_RT_STREAM_CAPTURED: aclError = 107027",
        "ACL_ERROR_RT_STREAM_CAPTURED: aclError = 107028",
        "ACL_ERROR_RT_STREAM_CAPTURED = 107028, header has 107027",
    ),
    (
        "pub patchVersion: [c_char; 64]",
        "pub patchVersion: [c_char; 32]",
        "aclCANNPackageVersion: size 480, header has 512",
    ),
    (
        "pub addrOffset: u32,\n    /// Offset of the data.\n    pub dataOffset: u32,",
        "pub dataOffset: u32,\n    /// Offset of the address.\n    pub addrOffset: u32,",
        "aclrtPlaceHolderInfo: dataOffset at 0, header has 4",
    ),
];

/// A copy of the declarations that goes away.
struct Copy(PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The differences between this text and our headers. What these do not have is no difference, except for names that the
/// text has and the declarations have not.
fn differences(tool: &Path, name: &str, text: &str, declarations: &str) -> Vec<String> {
    let copy = Copy(std::env::temp_dir().join(format!("ascend-rt-check-{}-{name}.rs", std::process::id())));
    std::fs::write(&copy.0, text).unwrap();
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/headers");
    let output =
        Command::new("python3").arg(tool).args(["--strict", "--include"]).arg(headers).arg(&copy.0).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("functions, "), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let place = copy.0.display().to_string();
    let message =
        |line: &str| line.strip_prefix(&place).and_then(|rest| rest.split_once(": ")).map(|(_, text)| text.to_owned());
    text.lines()
        .filter_map(message)
        .filter(|text| match text.strip_suffix(": not in the headers") {
            Some(item) => item.split(' ').next_back().is_some_and(|name| !declarations.contains(name)),
            None => !text.starts_with("note: "),
        })
        .collect()
}

#[test]
fn planted_mistakes_are_found() {
    let (tool, path) = paths();
    let declarations = std::fs::read_to_string(path).unwrap();
    for (right, _, _) in MISTAKES {
        assert!(declarations.contains(right), "the declarations have no {right:?}");
    }
    if !has("python3") {
        return report("ffi:planted", &Status::NotBuilt("no python3"));
    }
    assert_eq!(differences(&tool, "right", &declarations, &declarations), [""; 0], "the declarations as they are");
    let plant = |text: &str, (right, wrong, _): &(&str, &str, &str)| {
        // Of two functions with the same arguments it is the asynchronous copy that is meant.
        let from = if right.starts_with("kind") { text.find("fn aclrtMemcpyAsync").unwrap() } else { 0 };
        format!("{}{}", &text[..from], text[from..].replacen(right, wrong, 1))
    };
    let all = MISTAKES.iter().fold(declarations.clone(), |text, mistake| plant(&text, mistake));
    let found = differences(&tool, "all", &all, &declarations);
    for (_, wrong, message) in MISTAKES {
        assert_eq!(found.iter().filter(|text| text.contains(message)).count(), 1, "{wrong:?} in {found:#?}");
    }
    assert_eq!(found.len(), MISTAKES.len(), "{found:#?}");
    report("ffi:planted", &Status::Ok);
}

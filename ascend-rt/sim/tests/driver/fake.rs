// SPDX-License-Identifier: MIT OR Apache-2.0

//! Images that are C programs, and folders that go away.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use ascend_sim::Image;

/// A folder of the test's own, deleted at its end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ascend-sim-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(std::fs::canonicalize(path).unwrap())
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
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the system's compiler.
pub(crate) fn compiler(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The fake with these macros, as a file.
pub(crate) fn file(folder: &Folder, macros: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/driver/fake.c");
    let path = folder.path().join(format!("fake{}.so", macros.len()));
    let include = format!("-I{}", ascend_sim::include_dir().display());
    let mut args = vec!["-std=c11", "-O1", "-Wall", "-Wextra", "-Wno-unused-function", "-shared", "-fPIC", &include];
    args.extend(macros);
    args.extend(["-fvisibility=hidden", "-o", path.to_str().unwrap(), source.to_str().unwrap()]);
    compiler("cc", &args);
    path
}

/// The bytes of the fake with these macros.
pub(crate) fn bytes(macros: &[&str]) -> Vec<u8> {
    let folder = Folder::new();
    std::fs::read(file(&folder, macros)).unwrap()
}

/// The fake, with names for its module and parameters.
pub(crate) fn image() -> Image {
    Image::load(&bytes(&[NAMED])).unwrap()
}

/// What the build recipe would have found.
pub(crate) const NAMED: &str = r#"-DFAKE_MODULE="adder\nadd x y z n scale\ntiled x workspace tiling""#;

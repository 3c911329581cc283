// SPDX-License-Identifier: MIT OR Apache-2.0

//! What must not compile, and what the compiler says then: the first lines of the sources in `refused/` tell.

use std::path::Path;

use ascend_build::Arch;
use ascend_sim::{compile, kernel_of};

use crate::run::ARCHS;

fn line<'a>(text: &'a str, what: &str) -> &'a str {
    let start = format!("// {what}: ");
    text.lines().find_map(|line| line.strip_prefix(&start)).unwrap()
}

#[test]
fn what_is_not_there_is_named() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(root.join("tests/kernels/refused")).unwrap() {
        let source = entry.unwrap().path();
        let text = std::fs::read_to_string(&source).unwrap();
        let (chips, says) = (line(&text, "chips"), line(&text, "says"));
        let recipe = kernel_of(&source, root, None, None).unwrap();
        for arch in ARCHS {
            let refused = chips.split_whitespace().any(|chip| arch.number().to_string() == chip);
            match compile(&recipe, arch) {
                Ok(_) => assert!(!refused, "{} compiles for {arch}", source.display()),
                Err(error) => {
                    let error = error.to_string();
                    assert!(refused, "{} for {arch}: {error}", source.display());
                    assert!(error.contains(says), "{} for {arch}: expected `{says}`:\n{error}", source.display());
                }
            }
        }
        count += 1;
    }
    assert_eq!(count, 11);
    assert_eq!(ARCHS, [Arch::Dav2201, Arch::Dav3510]);
}

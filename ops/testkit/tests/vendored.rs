// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::path::Path;

/// All files below `folder` by relative path.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let relative = path.strip_prefix(folder).expect("below the folder").to_string_lossy().into_owned();
                files.insert(relative, std::fs::read(&path).expect("a readable file"));
            }
        }
    }
    files
}

/// A program as it was before the licence line, the only change that vendoring makes.
fn without_licence(program: &[u8]) -> String {
    let text = str::from_utf8(program).expect("programs are UTF-8");
    let line = "# SPDX-License-Identifier: MIT OR Apache-2.0\n";
    match text.strip_prefix(line) {
        Some(rest) => rest.trim_start().into(),
        None => text.replacen(&format!("\n{line}"), "\n", 1),
    }
}

fn differences(ours: &BTreeMap<String, Vec<u8>>, theirs: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, bytes) in ours {
        match theirs.get(name) {
            None => found.push(format!("{name}: only in the vendored copy")),
            Some(other) if name.ends_with(".py") && without_licence(bytes) == without_licence(other) => {}
            Some(other) if bytes == other => {}
            Some(_) => found.push(format!("{name}: contents differ")),
        }
    }
    found.extend(theirs.keys().filter(|name| !ours.contains_key(*name)).map(|name| format!("{name}: not vendored")));
    found
}

#[test]
fn the_vendored_copy_agrees_with_the_shared_one() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let vendored = files(&crate_folder.join("golden"));
    assert!(vendored.contains_key("README.md"), "the golden folder is vendored");
    let shared = crate_folder.join("../../../shared/golden");
    if !shared.is_dir() {
        println!("golden: nothing to compare: no shared folder beside the repository");
        return;
    }
    let found = differences(&vendored, &files(&shared));
    assert!(found.is_empty(), "the golden folders differ:\n{}", found.join("\n"));
    println!("golden: all {} files equal in both copies, licence lines of the programs aside", vendored.len());
}

#[test]
fn differences_between_copies_are_found() {
    let copy = |entries: &[(&str, &str)]| -> BTreeMap<String, Vec<u8>> {
        entries.iter().map(|(name, text)| (name.to_string(), text.as_bytes().to_vec())).collect()
    };
    let licence = "# SPDX-License-Identifier: MIT OR Apache-2.0\n";
    let ours = copy(&[
        ("a.json", "{}"),
        ("b.py", &format!("#!python\n{licence}x\n")),
        ("c.py", &format!("{licence}\nx\n")),
        ("d.py", &format!("{licence}\ny\n")),
        ("e.md", "e"),
    ]);
    let theirs = copy(&[("a.json", "[]"), ("b.py", "#!python\nx\n"), ("c.py", "x\n"), ("d.py", "x\n"), ("f.md", "f")]);
    let expected =
        ["a.json: contents differ", "d.py: contents differ", "e.md: only in the vendored copy", "f.md: not vendored"];
    assert_eq!(differences(&ours, &theirs), expected);
}

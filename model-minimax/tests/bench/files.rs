// SPDX-License-Identifier: MIT OR Apache-2.0

use model_minimax::bench::ReportFile;

use crate::scratch::Scratch;

fn names(dir: &Scratch) -> Vec<String> {
    let entries = std::fs::read_dir(dir.path()).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_old_report_stays_until_the_new_one_is_whole() {
    let dir = Scratch::new();
    let path = dir.write("report.json", "old");
    let file = ReportFile::reserve(&path).unwrap();
    assert_eq!(file.path(), path);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    file.write("new\n").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
    assert_eq!(names(&dir), ["report.json"]);
}

#[test]
fn a_report_that_is_never_written_leaves_nothing() {
    let dir = Scratch::new();
    drop(ReportFile::reserve(&dir.path().join("report.json")).unwrap());
    assert_eq!(names(&dir), [""; 0]);
}

#[test]
fn places_that_cannot_be_written_are_errors_that_name_them() {
    let dir = Scratch::new();
    let file = dir.write("file", "");
    for path in [dir.path().join("no/such/folder/r.json"), file.join("r.json"), dir.path().to_owned(), "/".into()] {
        let error = ReportFile::reserve(&path).unwrap_err();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
    assert_eq!(names(&dir), ["file"]);
}

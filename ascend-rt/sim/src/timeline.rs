// SPDX-License-Identifier: MIT OR Apache-2.0

//! Timelines as files.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crate::cost::{Program, Timeline, write_chrome_trace, write_html};

/// Writes a timeline to a file: as a page if its name ends with `.html`, else for Chrome's trace viewer and Perfetto.
///
/// # Errors
///
/// The file cannot be written.
pub fn write_timeline(path: &Path, program: &Program, timeline: &Timeline) -> io::Result<()> {
    if path.extension().is_some_and(|extension| extension == "html") {
        return write_page(path, program, timeline);
    }
    let mut file = create(path)?;
    write_chrome_trace(&mut file, program, timeline)?;
    file.flush()
}

/// Writes a timeline to a file as a page that needs nothing else.
///
/// # Errors
///
/// The file cannot be written.
pub fn write_page(path: &Path, program: &Program, timeline: &Timeline) -> io::Result<()> {
    let mut file = create(path)?;
    write_html(&mut file, program, timeline)?;
    file.flush()
}

/// A file in a folder that need not be there.
fn create(path: &Path) -> io::Result<BufWriter<File>> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    Ok(BufWriter::new(File::create(path)?))
}

/// The path for the timeline of a launch: the first one's is that of the settings, later ones' have a number.
#[cfg_attr(not(feature = "rt"), allow(dead_code, reason = "launches of the emulator are counted"))]
pub(crate) fn numbered(path: &Path, launch: u64) -> PathBuf {
    if launch == 0 {
        return path.to_owned();
    }
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{}", launch + 1));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_launches_have_a_number() {
        for (path, launch, expected) in [
            ("a/t.json", 0, "a/t.json"),
            ("a/t.json", 1, "a/t-2.json"),
            ("t.html", 9, "t-10.html"),
            ("a.b/t", 1, "a.b/t-2"),
        ] {
            assert_eq!(numbered(Path::new(path), launch), Path::new(expected));
        }
    }
}

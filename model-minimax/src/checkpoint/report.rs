// SPDX-License-Identifier: MIT OR Apache-2.0

//! The outcome of comparing a checkpoint with the table of expected tensors, and its words.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::safetensors::HeaderError;
use super::tensor::Dtype;

/// Entries of one kind that are printed; the rest is counted.
const LISTED: usize = 8;

/// A file of the checkpoint that cannot be used. Its tensors are not looked at.
#[derive(Debug)]
pub struct FileProblem {
    /// The file, relative to the folder.
    pub file: String,
    /// What is wrong with it.
    pub kind: FileProblemKind,
}

/// What is wrong with a file.
#[derive(Debug)]
pub enum FileProblemKind {
    /// The index names it, the folder does not have it.
    Absent {
        /// Tensors that the index places in it.
        tensors: usize,
    },
    /// It breaks the format or ends too early.
    Broken(HeaderError),
    /// It lacks tensors that the index places in it.
    LacksTensors(Vec<String>),
    /// It holds a tensor that another file holds too, and the index names neither.
    Duplicate {
        /// The tensor.
        tensor: String,
    },
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.file)?;
        match &self.kind {
            FileProblemKind::Absent { tensors } => {
                write!(f, "is not in the folder; the index places {tensors} tensors in it")
            }
            FileProblemKind::Broken(error) => error.fmt(f),
            FileProblemKind::LacksTensors(names) => {
                write!(f, "lacks {} of the tensors that the index places in it, the first is {}", names.len(), names[0])
            }
            FileProblemKind::Duplicate { tensor } => {
                write!(f, "holds {tensor} a second time, and the index does not say which one counts")
            }
        }
    }
}

/// A tensor of the checkpoint that the model has no place for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unexpected {
    /// Its name.
    pub name: String,
    /// The expected name most like it, with `N` for a number that is out of range; looked up for the first few only.
    pub nearest: Option<String>,
}

/// A tensor with another shape than the configuration asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrongShape {
    /// Its name.
    pub name: String,
    /// The shape by the configuration.
    pub expected: Vec<usize>,
    /// The shape in the file.
    pub found: Vec<usize>,
}

/// A tensor with another element type than its role and the configuration ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrongDtype {
    /// Its name.
    pub name: String,
    /// The element type asked for.
    pub expected: Dtype,
    /// The element type in the file.
    pub found: Dtype,
    /// Why this type is asked for.
    pub why: &'static str,
}

/// A grid of block scales that does not fit its weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScaleGrid {
    /// Name of the scale.
    pub name: String,
    /// Shape of the weight.
    pub weight: [usize; 2],
    /// Rows and columns of the blocks with one scale each.
    pub block: [usize; 2],
    /// The grid by the configuration; the last block of a row or column may be cut.
    pub expected: Vec<usize>,
    /// The grid in the file.
    pub found: Vec<usize>,
}

/// Tensors that are left out on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// What their names have in common.
    pub pattern: String,
    /// How many they are.
    pub count: usize,
    /// Why they are not needed.
    pub why: &'static str,
}

/// What a checkpoint holds, compared with what its configuration asks for. [`Display`](fmt::Display) gives one line
/// when all is well, and below it a paragraph for each kind of problem.
#[derive(Debug, Default)]
pub struct LoadReport {
    /// Tensors that the model needs.
    pub expected: usize,
    /// Those of them that a usable file holds under their name.
    pub found: usize,
    /// Their size as stored.
    pub bytes: u64,
    /// Files that cannot be used.
    pub files: Arc<Vec<FileProblem>>,
    /// Bytes that the index counts and no file on disk has.
    pub absent_bytes: Option<u64>,
    /// Tensors that the model needs and that lie in those files.
    pub in_unusable_files: usize,
    /// Tensors that the model needs and nothing holds.
    pub missing: Vec<String>,
    /// FP8 weights whose scale nothing holds.
    pub missing_scale: Vec<String>,
    /// Tensors that nothing explains.
    pub unexpected: Vec<Unexpected>,
    /// Tensors left out on purpose.
    pub skipped: Vec<Skipped>,
    /// Shapes that contradict the configuration.
    pub wrong_shape: Vec<WrongShape>,
    /// Element types that contradict the configuration.
    pub wrong_dtype: Vec<WrongDtype>,
    /// Scales that do not fit their weight.
    pub scale_grid: Vec<ScaleGrid>,
    /// Safetensors files of the folder that do not belong to the checkpoint; they do no harm.
    pub ignored_files: Vec<String>,
}

impl LoadReport {
    /// Whether the model can be built: everything is there, fits, and is explained.
    pub fn is_clean(&self) -> bool {
        self.found == self.expected
            && self.files.is_empty()
            && self.missing_scale.is_empty()
            && self.unexpected.is_empty()
            && self.wrong_shape.is_empty()
            && self.wrong_dtype.is_empty()
            && self.scale_grid.is_empty()
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (expected, found) = (self.expected, self.found);
        write!(f, "{found}/{expected} text tensors, {} missing, ", expected - found)?;
        let skipped: usize = self.skipped.iter().map(|skip| skip.count).sum();
        write!(f, "{} unexpected, {skipped} skipped", self.unexpected.len())?;
        for (i, skip) in self.skipped.iter().enumerate() {
            let separator = if i == 0 { " (" } else { "; " };
            write!(f, "{separator}{} {}: {}", skip.count, skip.pattern, skip.why)?;
        }
        if skipped > 0 {
            f.write_str(")")?;
        }
        if !self.ignored_files.is_empty() {
            write!(f, "\nnot part of the checkpoint: {}", self.ignored_files.join(", "))?;
        }

        paragraph(f, "unusable files", &self.files, |f, file| file.fmt(f))?;
        if let Some(bytes) = self.absent_bytes {
            write!(f, "\n  by the index, about {bytes} bytes are not on disk")?;
        }
        if self.in_unusable_files > 0 {
            write!(f, "\n  {} of the missing tensors lie in these files", self.in_unusable_files)?;
        }
        paragraph(f, "missing", &self.missing, |f, name| f.write_str(name))?;
        paragraph(f, "FP8 weights without a scale", &self.missing_scale, |f, weight| {
            write!(f, "{weight} (its scale would be {})", super::layout::scale_name(weight))
        })?;
        paragraph(f, "unexpected", &self.unexpected, |f, tensor| {
            f.write_str(&tensor.name)?;
            match &tensor.nearest {
                Some(nearest) => write!(f, " (nearest expected name: {nearest})"),
                None => Ok(()),
            }
        })?;
        paragraph(f, "shapes that contradict config.json", &self.wrong_shape, |f, tensor| {
            write!(f, "{}: expected {:?}, found {:?}", tensor.name, tensor.expected, tensor.found)
        })?;
        paragraph(f, "dtypes that do not fit", &self.wrong_dtype, |f, tensor| {
            write!(f, "{}: expected {} ({}), found {}", tensor.name, tensor.expected, tensor.why, tensor.found)
        })?;
        paragraph(f, "scale grids that do not fit", &self.scale_grid, |f, scale| {
            let ScaleGrid { name, weight, block: [rows, cols], expected, found } = scale;
            write!(
                f,
                "{name}: expected {expected:?} for a weight of {weight:?} in blocks of {rows} x {cols}, found {found:?}"
            )
        })
    }
}

/// A heading with the first entries below it; nothing if there are none.
fn paragraph<T>(
    f: &mut fmt::Formatter<'_>,
    heading: &str,
    entries: &[T],
    line: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    if entries.is_empty() {
        return Ok(());
    }
    write!(f, "\n{heading}:")?;
    for entry in entries.iter().take(LISTED) {
        f.write_str("\n  ")?;
        line(f, entry)?;
    }
    match entries.len().saturating_sub(LISTED) {
        0 => Ok(()),
        more => write!(f, "\n  and {more} more"),
    }
}

/// Fills in the nearest expected name of the entries that are printed.
pub(super) fn find_nearest<'a>(unexpected: &mut [Unexpected], expected: impl Iterator<Item = &'a str>) {
    if unexpected.is_empty() {
        return;
    }
    // A model has about twenty names up to the numbers in them, so the search is short for any number of tensors.
    let mut names = BTreeSet::new();
    let mut patterns = BTreeSet::new();
    for name in expected {
        names.insert(name);
        patterns.insert(split_numbers(name).0);
    }
    for tensor in unexpected.iter_mut().take(LISTED) {
        let (pattern, numbers) = split_numbers(&tensor.name);
        let candidates = patterns.iter().map(|candidate| (edit_distance(&pattern, candidate), candidate));
        tensor.nearest = candidates.min().filter(|(distance, _)| *distance <= pattern.len() / 3).map(|(_, nearest)| {
            let filled =
                numbers.iter().fold(nearest.clone(), |name, number| name.replacen(".N.", &format!(".{number}."), 1));
            if names.contains(filled.as_str()) { filled } else { nearest.clone() }
        });
    }
}

/// The name with `N` in place of its numeric components, and these.
fn split_numbers(name: &str) -> (String, Vec<&str>) {
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let pattern: Vec<&str> = name.split('.').map(|part| if is_number(&part) { "N" } else { part }).collect();
    (pattern.join("."), name.split('.').filter(is_number).collect())
}

/// Insertions, deletions and replacements between two names.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

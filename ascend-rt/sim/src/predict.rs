// SPDX-License-Identifier: MIT OR Apache-2.0

//! Predicted times and memory budgets of an operator's kernels: the program that its example `predict` is.
//!
//! [`main`] reads the command line and calls the example with a [`Report`], which the example hands one launch after the
//! other. Nothing here runs on a card; every time is a predicted time.
//!
//! | option | meaning |
//! | --- | --- |
//! | words | only launches whose operator, variant or shape has each of them |
//! | `--chip NAME` | a chip of [`Chip::preset`]; 910b3 without it |
//! | `--budget` | what the kernels take of the memories of a core, in place of times |
//! | `--json` | one JSON object a launch, one on each line |
//! | `--html FOLDER` | a page with the timeline of each launch |
//! | `--trace FOLDER` | the timelines for Chrome's trace viewer and Perfetto |
//!
//! The bound of a launch is its own time (5 us), and the larger of its bytes at 1.6 TB/s and its products at the rate of
//! all cube cores.

use core::fmt::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use ascend_rt::kernel::Target;
use ascend_rt::{Arch, Blob};

use crate::cost::{Chip, Options, PIPES, Reserve, Timeline, simulate};
use crate::image::Image;
use crate::launch::Launch;
use crate::timeline::{write_page, write_timeline};

/// Whatever stops an example.
pub type Error = Box<dyn std::error::Error>;

/// Bytes a second of HBM that a bound counts with.
const HBM: f64 = 1.6e12;

/// What a launch cannot do without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Bytes of inputs and results, each counted once.
    pub bytes: f64,
    /// Multiplications with an addition each.
    pub products: f64,
    /// How many of them a cube core does a cycle in the format of the inputs.
    pub rate: f64,
}

impl Work {
    /// Microseconds of the bound, and what it is: HBM or the cube.
    #[must_use]
    pub fn bound(&self, chip: &Chip) -> (f64, &'static str) {
        let memory = self.bytes / HBM * 1e6;
        let cube = self.products / (self.rate * f64::from(chip.cube_cores) * f64::from(chip.mhz));
        let (time, name) = if memory >= cube { (memory, "HBM") } else { (cube, "cube") };
        (time + chip.rates.launch * 1e6, name)
    }
}

/// The image of an operator for an architecture; `origin` says why there is none.
pub(crate) fn image_of(blobs: &[Blob], arch: Arch, origin: &str) -> Result<Image, Error> {
    let blob = blobs.iter().find(|blob| blob.target == Target::Twin(arch));
    let blob = blob.ok_or_else(|| format!("no image for {arch}: {origin}"))?;
    Ok(Image::load(&blob.bytes)?)
}

/// What the command line asks for.
#[derive(Debug)]
struct Request {
    chip: Chip,
    words: Vec<String>,
    budget: bool,
    json: bool,
    html: Option<PathBuf>,
    trace: Option<PathBuf>,
}

impl Request {
    fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, Error> {
        let mut request = Self {
            chip: Chip::preset("910b3")?,
            words: Vec::new(),
            budget: false,
            json: false,
            html: None,
            trace: None,
        };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` lacks its value"));
            match word.as_str() {
                "--chip" => request.chip = Chip::preset(&value()?)?,
                "--html" => request.html = Some(value()?.into()),
                "--trace" => request.trace = Some(value()?.into()),
                "--budget" => request.budget = true,
                "--json" => request.json = true,
                option if option.starts_with('-') => {
                    let known = "--chip NAME, --budget, --json, --html FOLDER, --trace FOLDER";
                    return Err(format!("no option `{option}`; there are {known}").into());
                }
                _ => request.words.push(word.to_lowercase()),
            }
        }
        Ok(request)
    }
}

/// A launch that was predicted.
#[derive(Debug)]
struct Line<'a> {
    op: &'a str,
    variant: &'a str,
    shape: &'a str,
    chip: &'a Chip,
    blocks: u32,
}

/// What the launches of an example go to.
#[derive(Debug)]
pub struct Report {
    op: String,
    request: Request,
    /// Launches and refusals so far.
    lines: usize,
    /// Whether something does not fit.
    refused: bool,
}

impl Report {
    /// The chip.
    #[must_use]
    pub fn chip(&self) -> &Chip {
        &self.request.chip
    }

    /// Its architecture.
    #[must_use]
    pub fn arch(&self) -> Arch {
        Arch::from_number(self.request.chip.arch.number())
    }

    /// The image of an operator for it.
    ///
    /// # Errors
    ///
    /// There is none, for the reason that `origin` gives, or it cannot be opened.
    pub fn image(&self, blobs: &[Blob], origin: &str) -> Result<Image, Error> {
        image_of(blobs, self.arch(), origin)
    }

    /// Whether budgets are asked for: then small shapes do, since no size of a call changes what a kernel takes.
    #[must_use]
    pub fn is_budget(&self) -> bool {
        self.request.budget
    }

    /// Whether a launch is asked for, so that nothing is made for others.
    #[must_use]
    pub fn wants(&self, variant: &str, shape: &str) -> bool {
        let text = format!("{} {variant} {shape}", self.op).to_lowercase();
        self.request.words.iter().all(|word| text.contains(word.as_str()))
    }

    /// Runs a launch and reports it. Its chip and mode are those of the caller.
    ///
    /// # Errors
    ///
    /// The kernel broke a rule, the cost model cannot follow it, or a file cannot be written.
    pub fn launch(
        &mut self,
        variant: &str,
        shape: &str,
        work: &Work,
        launch: Launch<'_>,
        blocks: u32,
    ) -> Result<(), Error> {
        let launch = launch.blocks(blocks).record(!self.request.budget);
        let mut launch = launch.chip(self.request.chip.clone());
        let run = launch.run()?;
        self.lines += 1;
        let line = Line { op: &self.op, variant, shape, chip: &self.request.chip, blocks };
        if self.request.budget {
            let mix = launch.kernel().task.cores() == ascend_build::Cores::Mix;
            let of = self.request.chip.memories(Reserve { mix, ..Reserve::default() });
            let used = run.used;
            let memories = [
                ("UB", used.ub, of.ub),
                ("L1", used.l1, of.l1),
                ("L0A", used.l0a, of.l0a),
                ("L0B", used.l0b, of.l0b),
                ("L0C", used.l0c, of.l0c),
                ("BT", used.bt, of.bt),
                ("FB", used.fb, of.fb),
            ];
            println!("{}", budget(&line, &memories, self.request.json));
            return Ok(());
        }
        let timeline = simulate(&run.program, &self.request.chip, &Options::default().with_launch(true))?;
        println!("{}", prediction(&line, work, &timeline, self.request.json));
        for (folder, extension) in [(&self.request.html, "html"), (&self.request.trace, "json")] {
            let Some(folder) = folder else { continue };
            std::fs::create_dir_all(folder)?;
            let path = folder.join(format!("{}.{extension}", file_name(&line)));
            let write = if extension == "html" { write_page } else { write_timeline };
            write(&path, &run.program, &timeline).map_err(|error| format!("{}: {error}", path.display()))?;
            if !self.request.json {
                println!("  {}", path.display());
            }
        }
        Ok(())
    }

    /// Reports that a variant does not fit a core, or is not there. With budgets it is what was asked for, and the program
    /// fails at its end; else it is passed over.
    pub fn refuse(&mut self, variant: &str, reason: &dyn fmt::Display) {
        self.lines += 1;
        self.refused |= self.request.budget;
        let (op, chip) = (&self.op, &self.request.chip.name);
        if self.request.json {
            let [op, variant, chip] = [op, variant, chip].map(quoted);
            println!(r#"{{"op":{op},"variant":{variant},"chip":{chip},"refused":{}}}"#, quoted(&reason.to_string()));
        } else {
            println!("{op}, {variant}, on {chip}: refused: {reason}");
        }
    }
}

/// Runs an example with what the command line says. Exit codes: 0 done, 1 something failed or does not fit, 2 wrong command
/// line.
pub fn main(op: &str, example: impl FnOnce(&mut Report) -> Result<(), Error>) -> ExitCode {
    let request = match Request::parse(std::env::args().skip(1)) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("{op}: {error}");
            return ExitCode::from(2);
        }
    };
    let mut report = Report { op: op.to_owned(), request, lines: 0, refused: false };
    if let Err(error) = example(&mut report) {
        eprintln!("{op}: {error}");
        return ExitCode::FAILURE;
    }
    if report.lines == 0 {
        eprintln!("{op}: no launch has all of the words {:?}", report.request.words);
    }
    ExitCode::from(u8::from(report.refused))
}

/// Shares of its own time that each pipe of a kind of cores is busy, on average over the cores; the idle ones left out.
fn busy(timeline: &Timeline, cube: bool) -> Vec<(&'static str, f64)> {
    let whole = timeline.mean_cycles(cube);
    let share = |pipe: usize| if whole > 0.0 { timeline.mean_busy(cube, pipe) / whole } else { 0.0 };
    PIPES.iter().enumerate().map(|(pipe, name)| (*name, share(pipe))).filter(|(_, share)| *share > 0.0).collect()
}

/// The busiest pipe: that it belongs to a cube core, its name, and its share.
fn binds(timeline: &Timeline) -> (bool, &'static str, f64) {
    let pipes =
        [true, false].into_iter().flat_map(|cube| busy(timeline, cube).into_iter().map(move |(n, s)| (cube, n, s)));
    pipes.max_by(|a, b| a.2.total_cmp(&b.2)).unwrap_or((true, "S", 0.0))
}

fn prediction(line: &Line<'_>, work: &Work, timeline: &Timeline, json: bool) -> String {
    let Line { op, variant, shape, chip, blocks } = line;
    let predicted = timeline.microseconds();
    let (bound, name) = work.bound(chip);
    let (cube, pipe, share) = binds(timeline);
    let cores = if cube { "cube" } else { "vector" };
    if !json {
        return format!(
            "{op}, {variant}, {shape}, on {}: predicted {predicted:.1} us, bound {bound:.1} us ({name}), {:.0} % of it; binds: \
             {pipe} of the {cores} cores, busy {:.0} %",
            chip.name,
            100.0 * bound / predicted,
            100.0 * share
        );
    }
    let [op, variant, shape, chip] = [op, variant, shape, &chip.name[..]].map(quoted);
    let mut text = format!(
        r#"{{"op":{op},"variant":{variant},"shape":{shape},"chip":{chip},"blocks":{blocks},"kind":"predicted","predicted_us":{predicted:.3},"bound_us":{bound:.3},"bound":"{name}","share_of_bound":{:.4},"binds":"{pipe} of the {cores} cores","bytes":{},"products":{}"#,
        bound / predicted,
        work.bytes,
        work.products
    );
    for (cube, key) in [(true, "busy_cube"), (false, "busy_vector")] {
        let shares: Vec<_> =
            busy(timeline, cube).iter().map(|(name, share)| format!(r#""{name}":{share:.4}"#)).collect();
        let _ = write!(text, r#","{key}":{{{}}}"#, shares.join(","));
    }
    text + "}"
}

fn budget(line: &Line<'_>, memories: &[(&str, u32, u32)], json: bool) -> String {
    let Line { op, variant, chip, .. } = line;
    if !json {
        let used: Vec<_> = memories.iter().filter(|(_, used, _)| *used > 0).collect();
        let used: Vec<_> = used.iter().map(|(name, used, of)| format!("{name} {used} of {of}")).collect();
        return format!("{op}, {variant}, on {}: {}", chip.name, used.join(", "));
    }
    let [op, variant, chip] = [op, variant, &chip.name[..]].map(quoted);
    let memories: Vec<_> = memories.iter().map(|(name, used, of)| format!(r#""{name}":[{used},{of}]"#)).collect();
    format!(r#"{{"op":{op},"variant":{variant},"chip":{chip},"memories":{{{}}}}}"#, memories.join(","))
}

/// A name for the files of a launch.
fn file_name(line: &Line<'_>) -> String {
    let text = format!("{}-{}-{}-{}", line.op, line.variant, line.shape, line.chip.name).to_lowercase();
    let words: Vec<&str> = text.split(|c: char| !(c.is_ascii_alphanumeric())).filter(|word| !word.is_empty()).collect();
    words.join("-")
}

/// A text in JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Record;
    use crate::cost::{CoreProgram, Program};

    fn request(line: &str) -> Result<Request, Error> {
        Request::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_command_line() {
        let found = request("M3 --chip 950pr --html pages nz --json").unwrap();
        assert_eq!((&found.chip.name[..], &found.words[..]), ("Ascend950PR", &["m3".to_owned(), "nz".to_owned()][..]));
        assert!(found.json && !found.budget && found.html == Some("pages".into()) && found.trace.is_none());
        assert_eq!(request("").unwrap().chip.name, "Ascend910B3");
        assert_eq!(request("--html").unwrap_err().to_string(), "`--html` lacks its value");
        assert!(request("--bugdet").unwrap_err().to_string().starts_with("no option `--bugdet`; there are --chip"));
        assert!(request("--chip 910x").is_err());
        let report = Report { op: "gemm".into(), request: request("nz m3").unwrap(), lines: 0, refused: false };
        assert!(report.wants("BF16 nz", "M3, 8 rows") && !report.wants("BF16 flat", "M3, 8 rows"));
    }

    #[test]
    fn the_bound_is_the_larger_one_and_the_launch() {
        let chip = Chip::preset("910b3").unwrap();
        let of = |bytes, products| Work { bytes, products, rate: 4096.0 }.bound(&chip);
        let (time, name) = of(1.6e9, 0.0);
        assert!((time - 1005.0).abs() < 1e-9 && name == "HBM", "{time} {name}");
        // 20 cores at 1800 MHz.
        let (time, name) = of(1.6e6, 4096.0 * 20.0 * 1800.0 * 100.0);
        assert!((time - 105.0).abs() < 1e-9 && name == "cube", "{time} {name}");
    }

    #[test]
    fn lines_say_that_they_are_predicted() {
        let chip = Chip::preset("910b3").unwrap();
        let exp = Record { kind: 0, pipe: 1, api: 0, a: [64, 4, 4096, 0], ..Record::default() };
        let core = CoreProgram { cube: false, block: 0, sub_block: 0, records: vec![exp; 10] };
        let program = Program { cores: vec![core], names: vec!["Exp".into()], sites: vec![("k.cpp".into(), 7)] };
        let timeline = simulate(&program, &chip, &Options::default()).unwrap();
        let line = Line { op: "op", variant: "a \"b\"", shape: "M3, 8 rows", chip: &chip, blocks: 1 };
        let work = Work { bytes: 0.0, products: 0.0, rate: 1.0 };
        let text = prediction(&line, &work, &timeline, false);
        assert!(text.contains("predicted") && text.contains("binds: V of the vector cores"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&prediction(&line, &work, &timeline, true)).unwrap();
        assert_eq!((&json["variant"], &json["kind"]), (&"a \"b\"".into(), &"predicted".into()));
        assert!(json["busy_vector"]["V"].as_f64().unwrap() > 0.5 && json["busy_cube"].as_object().unwrap().is_empty());
        let json: serde_json::Value = serde_json::from_str(&budget(&line, &[("UB", 3, 4)], true)).unwrap();
        assert_eq!(json["memories"]["UB"], serde_json::json!([3, 4]));
        assert_eq!(file_name(&line), "op-a-b-m3-8-rows-ascend910b3");
    }
}

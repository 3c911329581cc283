// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use clap::Args;
use clap::builder::FalseyValueParser;
use indicatif::{MultiProgress, ProgressBar};
use model_minimax::download::{DEFAULT_ENDPOINT, DownloadOptions, Downloaded, Progress, Source, download};

use super::progress::{bar, hides_bars};
use super::shell::quoted;

#[derive(Args)]
pub(crate) struct DownloadArgs {
    /// Repository, such as MiniMaxAI/MiniMax-M2.7
    #[arg(long, value_name = "OWNER/NAME")]
    model_id: String,

    /// The folder for its files; one that is partly there is completed
    #[arg(long, value_name = "DIR")]
    output_dir: PathBuf,

    /// Branch, tag or commit
    #[arg(long, value_name = "REVISION", default_value = "main")]
    revision: String,

    /// Token for the hub [default: the file of HF_TOKEN_PATH, or `token` in HF_HOME or ~/.cache/huggingface]
    #[arg(
        long,
        env = "HF_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true,
        default_value = "",
        hide_default_value = true
    )]
    token: String,

    /// Only files that match a pattern (repeatable); * stands for anything, ? for one character
    #[arg(long, value_name = "PATTERN")]
    allow_pattern: Vec<String>,

    /// No file that matches this (repeatable)
    #[arg(long, value_name = "PATTERN")]
    ignore_pattern: Vec<String>,

    /// Address of the hub or of a mirror of it
    #[arg(long, env = "HF_ENDPOINT", value_name = "URL", default_value = "", hide_default_value = true)]
    endpoint: String,

    /// File of the certificates to trust instead of the built-in roots, in PEM
    #[arg(long, env = "SSL_CERT_FILE", value_name = "FILE", default_value = "", hide_default_value = true)]
    certificates: OsString,

    /// Files fetched at a time
    #[arg(long, value_name = "N", default_value = "4")]
    parallel: NonZeroUsize,

    /// Attempts in a row without a byte before a file is given up
    #[arg(long, value_name = "N", default_value = "5")]
    retries: u32,

    /// Ask nobody: say whether the folder is whole
    #[arg(long, env = "HF_HUB_OFFLINE", value_parser = FalseyValueParser::new())]
    offline: bool,

    /// Compute the sums of files that are in place again
    #[arg(long)]
    verify: bool,
}

/// The token is a secret.
impl std::fmt::Debug for DownloadArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DownloadArgs").field("model_id", &self.model_id).finish_non_exhaustive()
    }
}

/// The token of the file that other programs keep it in.
fn kept_token() -> Option<String> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || variable("HF_HOME").or_else(|| Some(variable("HOME")?.join(".cache/huggingface")));
    let path = variable("HF_TOKEN_PATH").or_else(|| Some(home()?.join("token")))?;
    let token = std::fs::read_to_string(path).ok()?;
    Some(token.trim().to_owned()).filter(|token| !token.is_empty())
}

pub(crate) fn run(args: &DownloadArgs) -> anyhow::Result<()> {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let source = Source {
        endpoint: given(&args.endpoint).unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned()),
        model_id: args.model_id.clone(),
        revision: args.revision.clone(),
        token: given(&args.token).or_else(kept_token),
        certificates: (!args.certificates.is_empty()).then(|| PathBuf::from(&args.certificates)),
    };
    let options = DownloadOptions {
        allow: args.allow_pattern.clone(),
        ignore: args.ignore_pattern.clone(),
        parallel: args.parallel,
        retries: args.retries,
        offline: args.offline,
        verify: args.verify,
        ..DownloadOptions::default()
    };
    if !args.offline {
        eprintln!("{} at {} of {}", args.model_id, args.revision, source.endpoint);
    }
    let bars = Bars::new();
    let result = download(&source, &args.output_dir, &options, |event| bars.show(event));
    bars.clear();
    let Downloaded { commit, files, bytes, fetched } = result?;
    let place = std::path::absolute(&args.output_dir).unwrap_or_else(|_| args.output_dir.clone());
    eprintln!("commit {commit}: {files} files, {bytes} bytes in place, {fetched} fetched now");
    writeln!(std::io::stdout(), "export MODEL_PATH={}", quoted(&place.to_string_lossy())).context("stdout")
}

/// A bar for each file under way and one for all.
struct Bars {
    all: MultiProgress,
    state: Mutex<Shown>,
}

struct Shown {
    total: ProgressBar,
    files: BTreeMap<usize, (ProgressBar, u64)>,
    /// Bytes of files in place.
    present: u64,
}

impl Bars {
    fn new() -> Self {
        let all = MultiProgress::new();
        if hides_bars() {
            all.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        let total = all.add(bar("total"));
        Self { all, state: Mutex::new(Shown { total, files: BTreeMap::new(), present: 0 }) }
    }

    fn show(&self, event: Progress) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = &mut *state;
        match event {
            Progress::Plan { files, bytes, present } => {
                let line = format!("{files} files, {bytes} bytes, {} of them to fetch", bytes - present);
                self.line(&line);
                shown.total.set_length(bytes);
                shown.total.set_position(present);
                shown.present = present;
            }
            Progress::File { number, path, done, size } => {
                let (bar, bytes) = shown.files.entry(number).or_insert_with(|| {
                    // So that its rate is that of this run.
                    let added = bar(&path).with_position(done);
                    (self.all.insert_before(&shown.total, added), done)
                });
                bar.set_length(size);
                bar.set_position(done);
                *bytes = done;
                let under_way: u64 = shown.files.values().map(|(_, bytes)| bytes).sum();
                shown.total.set_position(shown.present + under_way);
            }
            Progress::Finished { number } => {
                if let Some((bar, bytes)) = shown.files.remove(&number) {
                    bar.finish_and_clear();
                    shown.present += bytes;
                }
            }
            Progress::Waiting { path, why, wait } => {
                self.line(&format!("{path}: {why}; again in {:.1} s", wait.as_secs_f32()));
            }
        }
    }

    /// Above the bars, or to stderr where there are none.
    fn line(&self, line: &str) {
        if self.all.is_hidden() || self.all.println(line).is_err() {
            eprintln!("{line}");
        }
    }

    fn clear(&self) {
        // A terminal that cannot be written to has no bars to clear.
        let _ = self.all.clear();
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use cpu_tiles::probe::Bandwidth;
use model_minimax::bench::{
    Arm, ArmError, BenchDecoder, Machine, Plan, Report, ReportFile, Setup, peak_memory_bytes, run as measure, table,
};
use model_minimax::checkpoint::synthetic::SyntheticSpec;
use model_minimax::config::{FfnKind, Variant};
use model_minimax::generate::check_request;
use model_minimax::knobs;

use super::args::{DEFAULT_PROMPT, ModelArgs, OrDefault, name};
use super::session::{Session, load_name};
use super::text::Text;

pub(super) const NEW_TOKENS: u32 = 32;
pub(super) const WARMUP: u32 = 1;
pub(super) const ITERS: u32 = 3;
/// Read once per iteration: far beyond any cache, yet some ten milliseconds.
const PROBE_BYTES: usize = 256 << 20;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    /// Prompt, without chat template [default: a sentence about routing]
    #[arg(long, env = "PROMPT", value_name = "TEXT", default_value = "", hide_default_value = true)]
    prompt: String,

    /// Older name of --prompt; wins if both are given
    #[arg(long, value_name = "TEXT", default_value = "", hide = true)]
    prompt_text: String,

    /// Token ids instead of text; wins over --prompt
    #[arg(long, value_name = "ID,ID,...", value_delimiter = ',')]
    prompt_ids: Option<Vec<u32>>,

    /// Tokens per generation [default: 32]
    #[arg(long, env = "NEW_TOKENS", value_name = "N", default_value = "", hide_default_value = true)]
    pub(super) max_new_tokens: OrDefault<NonZeroU32>,

    /// Unmeasured generations per arm [default: 1]
    #[arg(long, env = "WARMUP", value_name = "N", default_value = "", hide_default_value = true)]
    pub(super) warmup: OrDefault<u32>,

    /// Measured iterations per arm [default: 3]
    #[arg(long, env = "ITERS", value_name = "N", default_value = "", hide_default_value = true)]
    pub(super) iters: OrDefault<NonZeroU32>,

    /// Go on to the limit, past end-of-text tokens
    #[arg(long)]
    ignore_eos: bool,

    /// Arms to measure, separated by commas: eager, fused (published name: pypto), vecgraph, fusedgraph (pyptograph)
    /// [default: all; with --static-routing the graph arms]
    #[arg(long, env = "ARMS", value_name = "ARM,ARM", default_value = "", hide_default_value = true)]
    arms: Arms,

    /// Measure only the fused arm
    #[arg(long = "use_pypto", aliases = ["use-pypto", "fused"], hide = true)]
    use_pypto: bool,

    /// Older way to name the only arm; wins over --use_pypto
    #[arg(long, value_name = "ARM", hide = true)]
    moe_impl: Option<Arm>,

    /// Measure only the graph arm: vecgraph, or fusedgraph with --use_pypto
    #[arg(long, hide = true)]
    graph: bool,

    /// Run the graph arms as they were published: a window of tokens without a cache, each going to the first experts
    #[arg(long)]
    pub(super) static_routing: bool,

    /// Tokens of the window of --static-routing [default: 32]
    #[arg(long, env = "WINDOW", value_name = "N", default_value = "", hide_default_value = true)]
    pub(super) graph_window: OrDefault<NonZeroU32>,

    /// Accepted and ignored, as in the published benchmark
    #[arg(long, hide = true)]
    seq: Option<String>,

    /// Accepted and ignored, as in the published benchmark
    #[arg(long, hide = true)]
    route: Option<String>,

    /// Accepted and ignored, as in the published benchmark
    #[arg(long, hide = true)]
    active: Option<String>,

    /// Write the report here: one object, or a list if there are several arms
    #[arg(long, value_name = "FILE")]
    pub(super) report_file: Option<PathBuf>,

    /// Write bench_latest_<arm>.json here [default: the current folder, unless --report-file is given]
    #[arg(long, env = "REPORT_DIR", value_name = "DIR", default_value = "", hide_default_value = true)]
    pub(super) report_dir: String,
}

/// The list given to `--arms`; nothing means the default.
#[derive(Debug, Clone)]
struct Arms(Vec<Arm>);

impl std::str::FromStr for Arms {
    type Err = ArmError;

    fn from_str(text: &str) -> Result<Self, ArmError> {
        let mut arms = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let arm = part.parse()?;
            if !arms.contains(&arm) {
                arms.push(arm);
            }
        }
        Ok(Self(arms))
    }
}

impl BenchArgs {
    /// The arms to measure.
    fn arms(&self) -> anyhow::Result<Vec<Arm>> {
        let only = match self.moe_impl {
            None if self.use_pypto => Some(Arm::Fused),
            None if self.graph => Some(Arm::Eager),
            arm => arm,
        };
        let arms = match only {
            Some(arm) if self.graph => vec![arm.as_graph()],
            Some(arm) => vec![arm],
            None => self.arms.0.clone(),
        };
        let possible = Arm::ALL.into_iter().filter(|arm| arm.is_graph() || !self.static_routing);
        match arms.iter().find(|arm| !possible.clone().any(|possible| possible == **arm)) {
            Some(arm) => bail!("--static-routing is for the graph arms, vecgraph and fusedgraph; found arm {arm}"),
            None if arms.is_empty() => Ok(possible.collect()),
            None => Ok(arms),
        }
    }

    fn prompt(&self) -> &str {
        [self.prompt_text.as_str(), &self.prompt].into_iter().find(|text| !text.is_empty()).unwrap_or(DEFAULT_PROMPT)
    }
}

/// Where the reports go: every file is reserved before anything is measured.
struct Reports {
    all: Option<ReportFile>,
    /// Folder of the files per arm, unless there is only the file for all.
    dir: Option<PathBuf>,
    per_arm: Vec<(Arm, ReportFile)>,
}

impl Reports {
    fn reserve(args: &BenchArgs, arms: &[Arm]) -> anyhow::Result<Self> {
        let all = args.report_file.as_deref().map(ReportFile::reserve).transpose()?;
        let dir = match args.report_dir.as_str() {
            "" if all.is_some() => None,
            "" => Some(PathBuf::from(".")),
            dir => Some(PathBuf::from(dir)),
        };
        let mut per_arm = Vec::new();
        if let Some(dir) = &dir {
            for &arm in arms {
                per_arm.push((arm, ReportFile::reserve(&latest(dir, arm))?));
            }
        }
        Ok(Self { all, dir, per_arm })
    }

    /// Removes the files per arm of earlier runs: an arm that does not run, or a benchmark that fails, must not leave an
    /// older result as the latest.
    fn remove_older(&self) -> anyhow::Result<()> {
        for path in self.dir.iter().flat_map(|dir| Arm::ALL.map(|arm| latest(dir, arm))) {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("{} cannot be removed", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write(self, reports: &[Report]) -> anyhow::Result<()> {
        let save = |file: ReportFile, reports: &[Report]| {
            let path = file.path().to_owned();
            file.write(&Report::json(reports)?)?;
            eprintln!("report saved: {}", path.display());
            anyhow::Ok(())
        };
        if let Some(file) = self.all {
            save(file, reports)?;
        }
        for (arm, file) in self.per_arm {
            if let Some(report) = reports.iter().find(|report| report.mode == arm) {
                save(file, std::slice::from_ref(report))?;
            }
        }
        Ok(())
    }
}

pub(super) fn latest(dir: &Path, arm: Arm) -> PathBuf {
    dir.join(format!("bench_latest_{arm}.json"))
}

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    let arms = args.arms()?;
    let knobs = knobs::in_force()?;
    if args.seq.is_some() || args.route.is_some() || args.active.is_some() {
        eprintln!("note: --seq, --route and --active have no effect");
    }
    if args.static_routing {
        return super::windows::run(args, arms);
    }
    args.model.device.require_available()?;
    let reports = Reports::reserve(args, &arms)?;
    let variant = args.model.variant.0.unwrap_or(Variant::M27);
    let session = Session::open(&args.model, Some(SyntheticSpec::slice(variant)))?;
    let config = session.config();

    let text = match Text::open(session.dir()) {
        Ok(text) => Some(text),
        Err(error) if args.prompt_ids.is_none() => return Err(error),
        // Only its end-of-text token would be used.
        Err(_) => None,
    };
    let prompt = match (&args.prompt_ids, &text) {
        (None, Some(text)) => text.encode(args.prompt())?,
        (ids, _) => ids.clone().unwrap_or_default(),
    };
    let plan = Plan {
        arms,
        warmup: args.warmup.0.unwrap_or(WARMUP) as usize,
        iters: args.iters.0.map_or(ITERS, NonZeroU32::get) as usize,
        max_new_tokens: args.max_new_tokens.0.map_or(NEW_TOKENS, NonZeroU32::get) as usize,
        stop: session.stop_ids(text.as_ref())?,
        ignore_eos: args.ignore_eos,
    };
    check_request(&prompt, plan.max_new_tokens, config.vocab_size, config.max_position_embeddings)?;

    let names: Vec<&str> = plan.arms.iter().map(|arm| arm.name()).collect();
    let rule = "=".repeat(70);
    eprintln!("{rule}\n  {}  E2E generation  {}\n{rule}", config.variant, names.join(" / ").to_uppercase());
    let (mut model, load_time) = session.load(&args.model)?;
    eprintln!(
        "prompt {} tokens, {} new tokens, {} warm-up, {} iterations per arm, interleaved",
        prompt.len(),
        plan.max_new_tokens,
        plan.warmup,
        plan.iters
    );
    let bandwidth = Bandwidth::new(PROBE_BYTES).context("no memory for the bandwidth probe")?;
    reports.remove_older()?;
    let measured = measure(&mut model, &prompt, &plan, || bandwidth.run(session.pool()), |line| eprintln!("{line}"))?;

    let layers = &config.layers[..config.num_hidden_layers];
    let has_sparse = layers.iter().any(|layer| layer.msa().is_some());
    let setup = Setup {
        model: config.variant.to_string(),
        device: args.model.device.to_string(),
        layers: config.num_hidden_layers,
        moe_layers: layers.iter().filter(|layer| layer.ffn == FfnKind::Moe).count(),
        warmup: plan.warmup,
        model_load_s: load_time.as_secs_f64(),
        prompt_len: prompt.len(),
        max_new_tokens: plan.max_new_tokens,
        peak_memory_bytes: peak_memory_bytes(),
        model_path: session.dir().to_owned(),
        synthetic: session.synthetic().map(ToString::to_string),
        dtype: name(args.model.dtype),
        load: load_name(&model),
        attention: has_sparse.then(|| args.model.attention.name().to_owned()),
        indexer: args.model.attention.indexer_name().filter(|_| has_sparse).map(str::to_owned),
        prefill_chunk: args.model.attention.prefill_chunk().get(),
        // Of a step in the middle of the generation.
        decode_bytes_per_step: model.decode_bytes(prompt.len() + plan.max_new_tokens / 2),
        knobs,
        machine: Machine::detect(session.level().name(), session.pool().threads()),
    };
    let all = Report::all(&setup, &measured);
    for report in &all {
        eprintln!("{}", summary(report));
    }
    reports.write(&all)?;
    std::io::stdout().write_all(table(&all).as_bytes()).context("the table cannot be written to stdout")
}

/// The closing lines of one arm in the published layout.
fn summary(report: &Report) -> String {
    format!(
        "--- {} Summary (avg of {}) ---\n  prefill : {:.1} ± {:.1} tok/s ({:.3} s to first token)\n  decode  : {:.1} ± {:.1} tok/s, \
         {:.1} GB/s read\n  e2e     : {:.1} ± {:.1} tok/s\n  peak mem: {:.0} MB",
        report.mode.name().to_uppercase(),
        report.iters,
        report.prefill_tps_mean,
        report.prefill_tps_std,
        report.prefill_time_s.mean,
        report.decode_tps_mean,
        report.decode_tps_std,
        report.decode_gb_per_s,
        report.e2e_tps_mean,
        report.e2e_tps_std,
        report.peak_mem_mb,
    )
}

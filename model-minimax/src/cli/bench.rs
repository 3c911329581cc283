// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use cpu_tiles::Precision;
use cpu_tiles::probe::{self, Bandwidth};
use model_minimax::bench::activity::{Activity, Observed};
use model_minimax::bench::{
    Arm, ArmError, BenchDecoder, Machine, Measured, Plan, Report, ReportFile, Setup, peak_memory_bytes, run as measure,
    table,
};
use model_minimax::checkpoint::synthetic::SyntheticSpec;
use model_minimax::config::{FfnKind, Variant};
use model_minimax::generate::{GenerateOptions, check_request, generate};
use model_minimax::knobs;
use model_minimax::model::device::Device;
use model_minimax::model::{AttentionMode, Model};
use model_minimax::plan::{decode_work, prefill_work};
use model_minimax::sampling::SamplingOptions;

use super::args::{DEFAULT_PROMPT, Dtype, ModelArgs, OrDefault, name};
use super::processes;
use super::reports::BenchCommand;
use super::session::{Session, load_name};
use super::text::Text;

pub(super) const NEW_TOKENS: u32 = 32;
pub(super) const WARMUP: u32 = 1;
pub(super) const ITERS: u32 = 3;
/// Read once per iteration: far beyond any cache, yet some ten milliseconds.
const PROBE_BYTES: usize = 256 << 20;

/// Time of a reading of the multiply units, at least.
const PEAK_TIME: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: Option<BenchCommand>,

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

    /// Measure all arms in this process; without it each of several arms has a process of its own
    #[arg(long)]
    in_process: bool,

    /// Order of the iterations of several arms: sequential, one arm after the other; interleaved, A B A B; random, interleaved
    /// and shuffled [default: sequential; interleaved with --in-process]
    #[arg(long, value_enum)]
    order: Option<Order>,

    /// Seed of the random order
    #[arg(long, value_name = "N", default_value = "0")]
    order_seed: u64,

    /// Put loads of experts and choices of blocks into the report, from one more generation, which is not timed; implied by
    /// --report-file
    #[arg(long)]
    activity: bool,

    /// The arm that this process measures for the one that started it
    #[arg(long, value_name = "ARM", hide = true)]
    only_arm: Option<Arm>,
}

/// Order of the iterations of several arms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// One arm after the other
    Sequential,
    /// One iteration of each arm, then the next
    Interleaved,
    /// As interleaved, the arms of each round in random order
    Random,
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

    fn wants_activity(&self) -> bool {
        self.activity || self.report_file.is_some()
    }

    fn order(&self) -> Order {
        self.order.unwrap_or(if self.in_process { Order::Interleaved } else { Order::Sequential })
    }

    fn prompt(&self) -> &str {
        [self.prompt_text.as_str(), &self.prompt].into_iter().find(|text| !text.is_empty()).unwrap_or(DEFAULT_PROMPT)
    }
}

/// Where the reports go: every file is reserved before anything is measured.
pub(super) struct Reports {
    all: Option<ReportFile>,
    /// Folder of the files per arm, unless there is only the file for all.
    dir: Option<PathBuf>,
    per_arm: Vec<(Arm, ReportFile)>,
}

impl Reports {
    pub(super) fn reserve(args: &BenchArgs, arms: &[Arm]) -> anyhow::Result<Self> {
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

    /// Writes reports of either kind, whose arm and JSON the functions give.
    pub(super) fn write<R>(
        self,
        reports: &[R],
        arm_of: impl Fn(&R) -> Arm,
        json: impl Fn(&[R]) -> Result<String, serde_json::Error>,
    ) -> anyhow::Result<()> {
        let save = |file: ReportFile, reports: &[R]| {
            let path = file.path().to_owned();
            file.write(&json(reports)?)?;
            eprintln!("report saved: {}", path.display());
            anyhow::Ok(())
        };
        if let Some(file) = self.all {
            save(file, reports)?;
        }
        for (arm, file) in self.per_arm {
            if let Some(report) = reports.iter().find(|report| arm_of(report) == arm) {
                save(file, std::slice::from_ref(report))?;
            }
        }
        Ok(())
    }
}

fn latest(dir: &Path, arm: Arm) -> PathBuf {
    dir.join(format!("bench_latest_{arm}.json"))
}

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    if let Some(command) = &args.command {
        return command.run();
    }
    let arms = args.arms()?;
    let knobs = knobs::in_force()?;
    if let Some(arm) = args.only_arm {
        let (session, plan, prompt) = prepare(args, vec![arm])?;
        let gate = processes::Gate;
        let wanted = args.wants_activity() && arms.first() == Some(&arm);
        let here = Here { args, session: &session, prompt: &prompt, knobs, own_process: true, activity: wanted };
        return gate.report(&here.measure(&plan, args.order(), || gate.pass())?);
    }
    if args.seq.is_some() || args.route.is_some() || args.active.is_some() {
        eprintln!("note: --seq, --route and --active have no effect");
    }
    if args.static_routing {
        return super::windows::run(args, arms);
    }
    Device::require_built(&args.model.device)?;
    let reports = Reports::reserve(args, &arms)?;
    let (session, plan, prompt) = prepare(args, arms)?;
    let names: Vec<&str> = plan.arms.iter().map(|arm| arm.name()).collect();
    let rule = "=".repeat(70);
    eprintln!("{rule}\n  {}  E2E generation  {}\n{rule}", session.config().variant, names.join(" / ").to_uppercase());
    let own_process = plan.arms.len() > 1 && !args.in_process;
    eprintln!(
        "prompt {} tokens, {} new tokens, {} warm-up, {} iterations per arm, {}, {}",
        prompt.len(),
        plan.max_new_tokens,
        plan.warmup,
        plan.iters,
        name(args.order()),
        if own_process { "a process for each arm" } else { "in one process" },
    );
    reports.remove_older()?;
    let all = if own_process {
        drop(session);
        processes::measure(&plan.arms, plan.iters, args.order(), args.order_seed)?
    } else {
        let own_process = plan.arms.len() == 1;
        let activity = args.wants_activity();
        let here = Here { args, session: &session, prompt: &prompt, knobs, own_process, activity };
        here.measure(&plan, args.order(), || ())?
    };
    for report in &all {
        eprintln!("{}", summary(report));
    }
    reports.write(&all, |report| report.mode, Report::json)?;
    std::io::stdout().write_all(table(&all).as_bytes()).context("the table cannot be written to stdout")
}

/// Everything that can fail before weights are loaded: the checkpoint's headers, the prompt, the request.
fn prepare(args: &BenchArgs, arms: Vec<Arm>) -> anyhow::Result<(Session, Plan, Vec<u32>)> {
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
    Ok((session, plan, prompt))
}

/// A benchmark in this process.
struct Here<'a> {
    args: &'a BenchArgs,
    session: &'a Session,
    prompt: &'a [u32],
    knobs: std::collections::BTreeMap<String, String>,
    own_process: bool,
    activity: bool,
}

impl Here<'_> {
    /// Loads the model and measures the arms of the plan; `before` is called before each round of iterations.
    fn measure(&self, plan: &Plan, order: Order, before: impl Fn()) -> anyhow::Result<Vec<Report>> {
        let Self { args, session, prompt, .. } = *self;
        let config = session.config();
        let graphs = plan.arms.iter().any(|arm| arm.is_graph());
        let (mut model, load_time) = session.load_for(&args.model, graphs)?;
        let bandwidth = Bandwidth::new(PROBE_BYTES).context("no memory for the bandwidth probe")?;
        let precision = match args.model.dtype {
            Dtype::F32 => Precision::F32,
            Dtype::Bf16 => Precision::Bf16,
        };
        let peak_flop_per_s = self.peak(precision);
        let measured = {
            let mut measure = |plan: &Plan| {
                let read = || {
                    before();
                    bandwidth.run(session.pool())
                };
                measure(&mut model, prompt, plan, read, |line| eprintln!("{line}"))
            };
            match order {
                Order::Sequential => {
                    let mut all = Measured { runs: Vec::new(), read_bytes_per_s: Vec::new() };
                    for &arm in &plan.arms {
                        let one = measure(&Plan { arms: vec![arm], ..plan.clone() })?;
                        all.runs.extend(one.runs);
                        all.read_bytes_per_s.extend(one.read_bytes_per_s);
                    }
                    all
                }
                Order::Interleaved => measure(plan)?,
                Order::Random => {
                    let mut arms = plan.arms.clone();
                    processes::shuffle(&mut arms, &mut args.order_seed.clone());
                    measure(&Plan { arms, ..plan.clone() })?
                }
            }
        };

        let layers = &config.layers[..config.num_hidden_layers];
        let has_sparse = layers.iter().any(|layer| layer.msa().is_some());
        let sparse = args.model.attention.mode() != AttentionMode::Dense;
        let chunk = args.model.attention.prefill_chunk();
        // Of a step in the middle of the generation.
        let middle = prompt.len() + plan.max_new_tokens / 2;
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
            prefill_chunk: chunk.get(),
            decode_bytes_per_step: model.decode_bytes(middle),
            decode_flop_per_step: decode_work(config, precision, sparse, middle).flop,
            prefill_work: prefill_work(config, precision, sparse, prompt.len(), chunk),
            peak_flop_per_s,
            own_process: self.own_process,
            order: name(order),
            knobs: self.knobs.clone(),
            machine: Machine::detect(session.level().name(), session.pool().threads()),
        };
        let mut reports = Report::all(&setup, &measured);
        if self.activity
            && let Some(first) = reports.first_mut()
        {
            first.activity = Some(self.activity(&mut model, plan, first.mode)?);
        }
        Ok(reports)
    }

    /// What the multiply units do at the precision of the activations: the middle of three readings.
    fn peak(&self, precision: Precision) -> f64 {
        let (level, pool) = (self.session.level(), self.session.pool());
        let mut iterations = 1 << 12;
        let mut readings = Vec::new();
        while readings.len() < 3 {
            let start = Instant::now();
            let reading = probe::peak(level, precision, pool, iterations);
            match start.elapsed() < PEAK_TIME {
                true => iterations *= 2,
                false => readings.push(reading),
            }
        }
        readings.sort_by(f64::total_cmp);
        readings[1]
    }

    /// One more generation, listened to.
    fn activity(&self, model: &mut Model, plan: &Plan, arm: Arm) -> anyhow::Result<Activity> {
        eprintln!("listening to one more generation, which is not timed");
        model.set_arm(arm);
        let mut observed = Observed::new(model, self.prompt.len() + plan.max_new_tokens);
        let options = GenerateOptions {
            max_new_tokens: plan.max_new_tokens,
            stop: plan.stop.clone(),
            ignore_eos: plan.ignore_eos,
            sampling: SamplingOptions::default(),
        };
        generate(&mut observed, self.prompt, &options, |_| ControlFlow::Continue(()))?;
        Ok(observed.finish())
    }
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

// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Parser};
use cpu_tiles::{Isa, Level};
use model_minimax::bench::{Arm, BenchDecoder};
use model_minimax::explain::Coded;
use model_minimax::generate::GenerateError;
use model_minimax::model::Model;
use model_minimax::model::verify::{
    BF16_TOLERANCE, Compared, EXACT, F32_TOLERANCE, Record, VerifyOptions, replay, verify,
};

use super::args::{DEFAULT_PROMPT, Dtype, ModelArgs, name};
use super::session::Session;
use super::shell::words;
use super::text::Text;

/// One side of a comparison.
#[derive(Debug, Args)]
struct SideArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// SIMD level: scalar, avx2, avx512 or avx512bf16 [default: CPU_TILES_LEVEL, else the best of the CPU]
    #[arg(long, value_name = "LEVEL")]
    level: Option<Isa>,

    /// How experts are run: fused or eager
    #[arg(long, value_name = "ARM", default_value = "fused")]
    arm: Arm,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    side: SideArgs,

    /// Options of the second side where it differs from the first: any of the above, as one text, such as
    /// "--level scalar" or "--model-path DIR --dtype bf16"
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "", hide_default_value = true)]
    other: String,

    /// Checkpoint folder of the second side
    #[arg(long, value_name = "DIR")]
    other_model_path: Option<OsString>,

    /// What both sides read, without chat template
    #[arg(long, default_value = DEFAULT_PROMPT, conflicts_with = "prompt_ids")]
    prompt: String,

    /// Token ids instead of text
    #[arg(long, value_name = "ID,ID,...", value_delimiter = ',')]
    prompt_ids: Option<Vec<u32>>,

    /// Largest difference that passes, relative to the larger of a value and the root mean square of its tensor [default: 0
    /// if the sides differ only in what must not change a result; 0.05 if one is rounded to BF16; else 0.0001]
    #[arg(long, value_name = "X", value_parser = tolerance, allow_negative_numbers = true)]
    tolerance: Option<f32>,

    /// Compare no weights: by default those of two checkpoints are, stage by stage
    #[arg(long)]
    no_weights: bool,

    /// Where the stage that differs is recorded, for `replay`
    #[arg(long, value_name = "FILE", default_value = "verify-bundle.safetensors")]
    bundle: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// A bundle that `verify` has written
    bundle: PathBuf,

    /// Checkpoint folder of the first side [default: that of the bundle]
    #[arg(long, value_name = "DIR")]
    model_path: Option<OsString>,

    /// Checkpoint folder of the second side [default: that of the bundle]
    #[arg(long, value_name = "DIR")]
    other_model_path: Option<OsString>,

    /// Largest difference that passes [default: that of the bundle]
    #[arg(long, value_name = "X", value_parser = tolerance, allow_negative_numbers = true)]
    tolerance: Option<f32>,
}

fn tolerance(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(x) if x.is_finite() && x >= 0.0 => Ok(x),
        _ => Err(format!("expected a number of at least 0, found {text:?}")),
    }
}

/// The options of a side alone; a later one overrides an earlier one.
#[derive(Debug, Parser)]
#[command(name = "side", args_override_self = true, disable_help_flag = true)]
struct SideOptions {
    #[command(flatten)]
    side: SideArgs,
}

impl SideArgs {
    /// The options that make this side, as [`SideArgs::parse`] takes them.
    fn options(&self, level: Level) -> Vec<OsString> {
        let mut options = self.model.options();
        options.push(format!("--level={}", level.name()).into());
        options.push(format!("--arm={}", self.arm).into());
        options
    }

    fn parse(options: &[OsString]) -> anyhow::Result<Self> {
        let options = [OsString::from("side")].into_iter().chain(options.iter().cloned());
        Ok(SideOptions::try_parse_from(options).map_err(|error| anyhow::anyhow!("{}", error.render()))?.side)
    }

    fn level(&self) -> anyhow::Result<Level> {
        Ok(match self.level {
            Some(isa) => Level::new(isa)?,
            None => Level::from_env()?,
        })
    }

    /// The session, and the model in it.
    fn load(&self, name: char) -> anyhow::Result<(Session, Model)> {
        let side = || format!("side {name}");
        let mut session = Session::open(&self.model, None).with_context(side)?;
        session.set_level(self.level()?);
        eprint!("side {name}: ");
        let (mut model, _) = session.load(&self.model).with_context(side)?;
        model.set_arm(self.arm);
        Ok((session, model))
    }

    /// What results depend on: not threads, nor where weights are held, nor which checkpoint it is.
    fn arithmetic(&self) -> anyhow::Result<String> {
        let Self { model, arm, .. } = self;
        let reduce = model.attention.indexer_name();
        Ok(format!(
            "{} {} {:?} {reduce:?} {} {arm}",
            model.device,
            name(model.dtype),
            model.attention.name(),
            self.level()?
        ))
    }
}

pub(crate) fn run(args: &VerifyArgs) -> anyhow::Result<()> {
    let first = &args.side;
    let mut options = first.options(first.level()?);
    options.extend(
        words(&args.other)
            .map_err(|_| {
                Coded::new("E0008", format!("--other has a quotation mark without its partner: {}", args.other))
            })?
            .into_iter()
            .map(OsString::from),
    );
    if let Some(path) = &args.other_model_path {
        options.extend(["--model-path".into(), path.clone()]);
    }
    let other = SideArgs::parse(&options).context("--other")?;
    let tolerance = match args.tolerance {
        Some(tolerance) => tolerance,
        None if first.arithmetic()? == other.arithmetic()? => EXACT,
        None if [first, &other].iter().any(|side| side.model.dtype == Dtype::Bf16) => BF16_TOLERANCE,
        None => F32_TOLERANCE,
    };

    let (session, mut a) = first.load('a')?;
    let prompt = match &args.prompt_ids {
        Some(ids) => ids.clone(),
        None if args.prompt.is_empty() => return Err(GenerateError::EmptyPrompt.into()),
        None => Text::open(session.dir())?.encode(&args.prompt)?,
    };
    let (other_session, mut b) = other.load('b')?;
    let two_checkpoints = session.dir() != other_session.dir() && !args.no_weights;
    let options = VerifyOptions {
        tolerance,
        checkpoints: two_checkpoints.then(|| [session.checkpoint(), other_session.checkpoint()]),
    };
    let mut out = std::io::stdout().lock();
    let mut written = writeln!(out, "{} tokens, tolerance {tolerance}", prompt.len());
    let mut tensors = 0;
    let difference = verify(&mut a, &mut b, &prompt, options, |compared| {
        tensors += 1;
        if written.is_ok() {
            written = writeln!(out, "{}", line(&compared));
        }
    })?;
    let Some(difference) = difference else {
        written.and_then(|()| writeln!(out, "no difference in {tensors} tensors")).context("stdout")?;
        return Ok(());
    };
    written.and_then(|()| writeln!(out, "{difference}")).context("the report cannot be written to stdout")?;
    let texts = |side: &SideArgs| -> anyhow::Result<Vec<String>> {
        let mut options = side.options(side.level()?);
        // The bundle may be replayed in another folder.
        if let Some(path) = side.model.model_path() {
            let mut option = OsString::from("--model-path=");
            option.push(std::path::absolute(path)?);
            options.push(option);
        }
        options
            .into_iter()
            .map(|option| option.into_string().map_err(|_| anyhow::anyhow!("a path is not UTF-8")))
            .collect()
    };
    difference.record.write(&args.bundle, &[texts(first)?, texts(&other)?], tolerance)?;
    let bundle = args.bundle.display();
    let message = format!(
        "the two sides differ at {}; recorded in {bundle} (model-minimax replay {bundle})",
        difference.record.stage
    );
    Err(Coded::new("E0703", message).into())
}

fn line(compared: &Compared) -> String {
    let Compared { stage, tensor, values, worst, near_ties } = compared;
    let ties = if *near_ties > 0 { format!("  {near_ties} tokens with near ties left out") } else { String::new() };
    format!("{stage:<22} {tensor:<16} {values:>9} values  {worst:>9.2e}  ok{ties}")
}

pub(crate) fn run_replay(args: &ReplayArgs) -> anyhow::Result<()> {
    let (record, sides, recorded) = Record::read(Path::new(&args.bundle))?;
    let tolerance = args.tolerance.unwrap_or(recorded);
    let side = |options: &[String], path: &Option<OsString>| -> anyhow::Result<SideArgs> {
        let mut options: Vec<_> = options.iter().map(OsString::from).collect();
        // Layers behind the recorded one are not needed.
        options.extend(record.stage.layer().map(|layer| format!("--max-layers={}", layer + 1).into()));
        options.extend(path.iter().flat_map(|path| ["--model-path".into(), path.clone()]));
        SideArgs::parse(&options).with_context(|| args.bundle.display().to_string())
    };
    let (_, mut a) = side(&sides[0], &args.model_path)?.load('a')?;
    let (_, mut b) = side(&sides[1], &args.other_model_path)?.load('b')?;
    let replayed = replay(&record, &mut a, &mut b, tolerance)?;
    let as_recorded = |same| if same { "as recorded, bit for bit" } else { "not as recorded" };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}, tolerance {tolerance}", record.stage)?;
    writeln!(out, "side a: {}", as_recorded(replayed.a_as_recorded))?;
    writeln!(out, "side b: {}", as_recorded(replayed.b_as_recorded))?;
    match &replayed.difference {
        Some(difference) => {
            writeln!(out, "{difference}")?;
            Err(Coded::new("E0703", format!("the two sides still differ at {}", record.stage)).into())
        }
        None => Ok(writeln!(out, "no difference")?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_survives_the_way_through_its_options() {
        let options = [
            "--model-path=a b",
            "--dtype=f32",
            "--max-layers=3",
            "--attention=dense",
            "--load=mmap",
            "--threads=2",
            "--arm=eager",
        ];
        let side = SideArgs::parse(&options.map(OsString::from)).unwrap();
        let again = SideArgs::parse(&side.options(Level::best())).unwrap();
        assert_eq!(again.options(Level::best()), side.options(Level::best()));
        assert_eq!((again.arm, again.model.dtype, again.level), (Arm::Eager, Dtype::F32, Some(Level::best().isa())));
        assert_eq!(again.model.model_path(), Some(PathBuf::from("a b")));
        // A later option overrides.
        let mut options = side.options(Level::best());
        options.push("--dtype=bf16".into());
        assert_eq!(SideArgs::parse(&options).unwrap().model.dtype, Dtype::Bf16);
    }
}

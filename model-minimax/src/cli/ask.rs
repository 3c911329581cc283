// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use model_minimax::bench::{Arm, BenchDecoder};
use model_minimax::generate::{GenerateError, GenerateOptions, Generation, Stop, check_request, generate};
use model_minimax::sampling::Sampler;

use super::args::{DEFAULT_PROMPT, ModelArgs, SamplingArgs};
use super::session::Session;
use super::text::{Text, ThinkingMode};

#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// What to ask
    #[arg(long, default_value = DEFAULT_PROMPT, conflicts_with_all = ["prompt_file", "prompt_ids"])]
    prompt: String,

    /// Read the prompt from a file; `-` is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_ids")]
    prompt_file: Option<PathBuf>,

    /// Token ids instead of text, without template
    #[arg(long, value_name = "ID,ID,...", value_delimiter = ',', conflicts_with_all = ["raw", "system"])]
    prompt_ids: Option<Vec<u32>>,

    /// System message for the chat template
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    system: Option<String>,

    /// Whether the model thinks before it answers, where its chat template offers the choice (MiniMax-M3): enabled, disabled
    /// or adaptive [default: the template's]
    #[arg(long, value_name = "MODE", conflicts_with_all = ["raw", "prompt_ids"])]
    thinking: Option<ThinkingMode>,

    /// Send the prompt as it is, without chat template
    #[arg(long)]
    raw: bool,

    /// Print token ids, separated by commas, instead of text
    #[arg(long)]
    print_ids: bool,

    /// Upper limit of generated tokens
    #[arg(long, value_name = "N", default_value = "128", value_parser = clap::value_parser!(u32).range(1..))]
    max_new_tokens: u32,

    /// Go on to the limit, past end-of-text tokens
    #[arg(long)]
    ignore_eos: bool,

    /// Run all experts of a layer as one grouped GEMM (the default)
    #[arg(long, aliases = ["use_pypto", "use-pypto"], conflicts_with = "eager")]
    fused: bool,

    /// Run expert by expert
    #[arg(long)]
    eager: bool,

    /// Capture the decode step once and replay it for each token
    #[arg(long)]
    graph: bool,

    #[command(flatten)]
    sampling: SamplingArgs,
}

impl AskArgs {
    /// The prompt as text; `None` when ids are given.
    fn prompt_text(&self) -> anyhow::Result<Option<String>> {
        let text = match (&self.prompt_ids, &self.prompt_file) {
            (Some(_), _) => return Ok(None),
            (None, Some(path)) if path.as_os_str() == "-" => {
                io::read_to_string(io::stdin()).context("the prompt cannot be read from stdin")?
            }
            (None, Some(path)) => std::fs::read_to_string(path)
                .with_context(|| format!("the prompt cannot be read from {}", path.display()))?,
            (None, None) => self.prompt.clone(),
        };
        // A template would hide the emptiness behind its own tokens.
        if text.is_empty() { Err(GenerateError::EmptyPrompt.into()) } else { Ok(Some(text)) }
    }
}

pub(crate) fn run(args: &AskArgs) -> anyhow::Result<()> {
    let prompt_text = args.prompt_text()?;
    let sampling = args.sampling.options();
    // Only for its checks: wrong options should not wait for a model to load.
    Sampler::new(sampling)?;
    let session = Session::open(&args.model, None)?;

    let needs_text = prompt_text.is_some() || !args.print_ids;
    let text = match Text::open(session.dir()) {
        Ok(text) => Some(text),
        Err(error) if needs_text => return Err(error),
        // Only its end-of-text token would be used.
        Err(_) => None,
    };
    let prompt = match (&prompt_text, &text) {
        (Some(prompt), Some(text)) if args.raw => text.encode(prompt)?,
        (Some(prompt), Some(text)) => text.encode_chat(args.system.as_deref(), prompt, args.thinking)?,
        _ => args.prompt_ids.clone().unwrap_or_default(),
    };
    let options = GenerateOptions {
        max_new_tokens: args.max_new_tokens as usize,
        stop: session.stop_ids(text.as_ref())?,
        ignore_eos: args.ignore_eos,
        sampling,
    };
    let config = session.config();
    check_request(&prompt, options.max_new_tokens, config.vocab_size, config.max_position_embeddings)?;

    let (mut model, _) = session.load_for(&args.model, args.graph)?;
    let arm = if args.eager { Arm::Eager } else { Arm::Fused };
    model.set_arm(if args.graph { arm.as_graph() } else { arm });
    eprintln!("prompt: {} tokens", prompt.len());
    let stream = text.as_ref().filter(|_| !args.print_ids);
    let generation = answer(&mut model, &prompt, &options, stream)?;
    eprintln!("{}", summary(prompt.len(), &generation));
    Ok(())
}

/// Generates and writes each token to stdout as soon as it is known: as text, or as ids without `text`.
fn answer<D: BenchDecoder>(
    model: &mut D,
    prompt: &[u32],
    options: &GenerateOptions,
    text: Option<&Text>,
) -> anyhow::Result<Generation> {
    let mut out = io::stdout().lock();
    let mut stream = text.map(Text::stream);
    let mut first = true;
    let mut written = Ok(());
    let generation = generate(model, prompt, options, |id| {
        let piece = match &mut stream {
            Some(stream) => stream.push(id),
            None if first => id.to_string(),
            None => format!(",{id}"),
        };
        first = false;
        written = out.write_all(piece.as_bytes()).and_then(|()| out.flush());
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let rest = stream.map(|stream| stream.finish()).unwrap_or_default();
    match written.and_then(|()| writeln!(out, "{rest}")) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(generation),
        Err(error) => Err(error).context("the answer cannot be written to stdout"),
        Ok(()) => Ok(generation),
    }
}

fn summary(prompt_len: usize, generation: &Generation) -> String {
    let prefill = generation.timings.prefill.as_secs_f64();
    let decode = generation.timings.total.as_secs_f64() - prefill;
    let rate = |tokens: usize, seconds: f64| tokens as f64 / seconds.max(1e-9);
    let stop = match generation.stop {
        Stop::Eos(id) => format!("stop token {id}"),
        Stop::Length => "limit reached".to_owned(),
        Stop::Caller => "reader gone".to_owned(),
    };
    let new = generation.ids.len();
    format!(
        "prefill {prefill:.3} s ({:.1} tok/s), {new} new tokens, decode {decode:.3} s ({:.1} tok/s), {stop}",
        rate(prompt_len, prefill),
        rate(new - 1, decode),
    )
}

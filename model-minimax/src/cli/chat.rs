// SPDX-License-Identifier: MIT OR Apache-2.0

//! A conversation on the terminal.

use std::io::{self, BufRead, IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use anyhow::Context;
use clap::Args;
use model_minimax::bench::{Arm, BenchDecoder};
use model_minimax::generate::{GenerateOptions, Stop};
use model_minimax::model::Model;
use model_minimax::sampling::Sampler;
use model_minimax::text::{ChatSession, ChatTemplate, Part, Reply, TextTokenizer, ThinkingMode};

use super::args::{ModelArgs, SamplingArgs};
use super::session::Session;
use super::text::Text;

const HELP: &str = "/reset          forget the conversation\n\
                    /system TEXT    set the system message and begin again; without TEXT the template's own\n\
                    /thinking MODE  enabled, disabled or adaptive, where the template has a choice\n\
                    /help           this\n\
                    /exit           end, as does the end of the input\n\
                    A line that ends with \\ goes on in the next. Ctrl-C stops an answer.";

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// System message [default: the template's]
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,

    /// Whether the model thinks before it answers, where its chat template offers the choice (MiniMax-M3): enabled, disabled
    /// or adaptive [default: the template's]
    #[arg(long, value_name = "MODE")]
    thinking: Option<ThinkingMode>,

    /// Do not show what the model thinks
    #[arg(long)]
    hide_thoughts: bool,

    /// Upper limit of the tokens of an answer, its thought included
    #[arg(long, value_name = "N", default_value = "2048", value_parser = clap::value_parser!(u32).range(1..))]
    max_new_tokens: u32,

    /// Run expert by expert instead of all experts as one grouped GEMM
    #[arg(long)]
    eager: bool,

    #[command(flatten)]
    sampling: SamplingArgs,
}

/// What Ctrl-C does: ends the program while it waits for a line, else stops the answer.
struct Interrupt {
    waiting: Arc<AtomicBool>,
    pressed: Arc<AtomicBool>,
}

impl Interrupt {
    fn new() -> io::Result<Self> {
        let [waiting, pressed] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        // In this order: the end comes before anything is noted.
        signal_hook::flag::register_conditional_shutdown(signal_hook::consts::SIGINT, 130, Arc::clone(&waiting))?;
        signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&pressed))?;
        Ok(Self { waiting, pressed })
    }

    /// The next line of the input without its end; those that end with a backslash are joined. `None` at its end.
    fn read(&self, input: &mut impl BufRead) -> io::Result<Option<String>> {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            self.waiting.store(true, Ordering::Relaxed);
            let read = input.read_line(&mut line);
            self.waiting.store(false, Ordering::Relaxed);
            if read? == 0 {
                return Ok((!text.is_empty()).then_some(text));
            }
            let line = line.trim_end_matches(['\n', '\r']);
            match line.strip_suffix('\\') {
                Some(begun) => text.extend([begun, "\n"]),
                None => {
                    text.push_str(line);
                    return Ok(Some(text));
                }
            }
        }
    }
}

pub(crate) fn run(args: &ChatArgs) -> anyhow::Result<()> {
    let sampling = args.sampling.options();
    // Only for its checks: wrong options should not wait for a model to load.
    Sampler::new(sampling)?;
    let session = Session::open(&args.model, None)?;
    let tokenizer = TextTokenizer::from_dir(session.dir())?;
    let template = ChatTemplate::from_dir(session.dir(), SystemTime::now)?;
    let options = GenerateOptions {
        max_new_tokens: args.max_new_tokens as usize,
        stop: session.stop_ids(Some(&Text::open(session.dir())?))?,
        ignore_eos: false,
        sampling,
    };
    let mut chat = ChatSession::new(&tokenizer, &template, options);
    chat.system = args.system.clone();
    chat.thinking = args.thinking;
    let (mut model, _) = session.load(&args.model)?;
    model.set_arm(if args.eager { Arm::Eager } else { Arm::Fused });

    let interrupt = Interrupt::new().context("Ctrl-C cannot be watched")?;
    let mut input = io::stdin().lock();
    let prompts = io::stdin().is_terminal();
    if prompts {
        eprintln!("/help shows the commands");
    }
    loop {
        if prompts {
            eprint!("\n> ");
        }
        let Some(line) = interrupt.read(&mut input).context("the input cannot be read")? else { break };
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        match word {
            "" if rest.trim().is_empty() => {}
            "/exit" | "/quit" => break,
            "/help" => eprintln!("{HELP}"),
            "/reset" => {
                chat.reset();
                eprintln!("the conversation is forgotten");
            }
            "/system" => {
                let text = rest.trim();
                chat.system = (!text.is_empty()).then(|| text.to_owned());
                chat.reset();
                eprintln!("the system message is set, the conversation begins again");
            }
            "/thinking" => match rest.trim().parse() {
                Ok(mode) => chat.thinking = Some(mode),
                Err(error) => eprintln!("error: {error}"),
            },
            _ if word.starts_with('/') => eprintln!("unknown command {word}\n{HELP}"),
            _ => answer(&mut chat, &mut model, &line, args.hide_thoughts, &interrupt)?,
        }
    }
    Ok(())
}

/// Asks, and writes the answer to stdout and the thought to stderr, dimmed on a terminal. What cannot be answered, such as a
/// conversation that has become too long, is said and not the end.
fn answer(
    chat: &mut ChatSession<'_>,
    model: &mut Model,
    line: &str,
    hide_thoughts: bool,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    interrupt.pressed.store(false, Ordering::Relaxed);
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) || !io::stderr().is_terminal();
    let [dim, normal] = if plain { ["", ""] } else { ["\x1b[2m", "\x1b[0m"] };
    let mut out = io::stdout().lock();
    let mut written = Ok(());
    let mut thinking = false;
    let reply = chat.say(model, line, |part, piece| {
        match part {
            Part::Thought if !hide_thoughts && !piece.is_empty() => {
                if !thinking {
                    eprint!("{dim}");
                }
                thinking = true;
                eprint!("{piece}");
            }
            Part::Answer if !piece.is_empty() => {
                if thinking {
                    eprint!("{normal}\n\n");
                    thinking = false;
                }
                written = out.write_all(piece.as_bytes()).and_then(|()| out.flush());
            }
            _ => {}
        }
        let stop = written.is_err() || interrupt.pressed.load(Ordering::Relaxed);
        if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if thinking {
        eprintln!("{normal}");
    }
    match written.and_then(|()| writeln!(out)) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        result => result.context("the answer cannot be written to stdout")?,
    }
    match reply {
        Ok(reply) => eprintln!("{}", summary(&reply)),
        Err(error) => eprintln!("error: {error}"),
    }
    Ok(())
}

fn summary(reply: &Reply) -> String {
    let Reply { prompt, cached, generation, .. } = reply;
    let stop = match generation.stop {
        Stop::Eos(_) => "",
        Stop::Length => ", limit reached",
        Stop::Caller => ", stopped",
    };
    let seconds = generation.timings.total.as_secs_f64();
    format!("[{prompt} prompt tokens, {cached} of them cached; {} new in {seconds:.1} s{stop}]", generation.ids.len())
}

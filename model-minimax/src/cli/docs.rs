// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is made of the command line's own description: completions, manual pages, the reference.

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Arg, Args, Command};
use clap_complete::Shell;
use model_minimax::explain::{Coded, EXPLANATIONS, explanation};

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Page of this command [default: that of the program]
    #[arg(conflicts_with = "output_dir")]
    command: Option<String>,

    /// Write all pages into this folder
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> anyhow::Result<()> {
    let name = command.get_name().to_owned();
    // Into memory first: the generator does not take a reader that has gone.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    std::io::stdout().write_all(&script).context("stdout")
}

pub(crate) fn man(args: &ManArgs, mut command: Command) -> anyhow::Result<()> {
    command.build();
    if let Some(dir) = &args.output_dir {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        return clap_mangen::generate_to(command, dir).with_context(|| dir.display().to_string());
    }
    let page = match &args.command {
        None => command,
        Some(name) => {
            let found = command.find_subcommand(name).cloned();
            found.with_context(|| format!("there is no command {name:?}; --help lists them"))?
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    std::io::stdout().write_all(&text).context("stdout")
}

/// The page on a code of an error, or the list of all codes.
pub(crate) fn explain(code: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if code == "list" {
        for page in EXPLANATIONS {
            writeln!(out, "{}  {}", page.code, page.title)?;
        }
        return Ok(());
    }
    let Some(page) = explanation(code) else {
        let message = format!("there is no code {code:?}; --explain list shows all");
        return Err(Coded::new("E0007", message).into());
    };
    writeln!(out, "{}: {}\n\n{}", page.code, page.title, wrapped(page.text, 90)).context("stdout")
}

/// Lines of at most `width` characters, where words allow.
fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        if column > 0 && column + 1 + word.len() > width {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.len();
    }
    out
}

pub(crate) fn print_reference(command: Command) -> anyhow::Result<()> {
    std::io::stdout().write_all(reference(command).as_bytes()).context("stdout")
}

/// Every command with its options, in Markdown.
fn reference(mut command: Command) -> String {
    command.build();
    let mut out = String::from(
        "<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->\n\n# Reference of the command line\n\n\
         Made by `cargo run -p model-minimax -- reference > model-minimax/REFERENCE.md` from the program's own description; a \
         test keeps it\nso. The README says what the options mean together, `list-knobs` what the variables hold now.\n",
    );
    section(&mut out, &command, "");
    out.push_str(
        "\n## Codes of errors\n\n`--explain CODE` shows the page on one.\n\n| code | meaning |\n| --- | --- |\n",
    );
    for page in EXPLANATIONS {
        let _ = writeln!(out, "| {} | {} |", page.code, page.title);
    }
    out
}

/// The commands below `command`, which is called by the words of `path`.
fn section(out: &mut String, command: &Command, path: &str) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        let path = format!("{path}{}", sub.get_name());
        // Writing into a String cannot fail.
        let _ = write!(out, "\n## `{path}`\n\n{}\n", text_of(sub.get_about()));
        let is_own = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help" && arg.get_id() != "version";
        let arguments: Vec<&Arg> = sub.get_arguments().filter(is_own).collect();
        if !arguments.is_empty() {
            out.push_str("\n| option | variable | default | meaning |\n| --- | --- | --- | --- |\n");
        }
        for arg in arguments {
            let _ = writeln!(out, "{}", row(arg));
        }
        section(out, sub, &format!("{path} "));
    }
}

fn text_of(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

fn row(arg: &Arg) -> String {
    let takes_value = arg.get_action().takes_values();
    let values: Vec<String> =
        arg.get_value_names().unwrap_or_default().iter().map(|name| name.as_str().to_owned()).collect();
    let possible: Vec<String> = (arg.get_possible_values().iter())
        .filter(|value| takes_value && !value.is_hide_set())
        .map(|value| value.get_name().to_owned())
        .collect();
    let value = if possible.is_empty() { values.join(" ") } else { possible.join("|") };
    let option = match arg.get_long() {
        Some(long) if takes_value => format!("--{long} {value}"),
        Some(long) => format!("--{long}"),
        None => values.join(" "),
    };
    let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let defaults: Vec<_> = if takes_value && !arg.is_hide_default_value_set() {
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect()
    } else {
        Vec::new()
    };
    let default = if defaults.is_empty() { String::new() } else { format!("`{}`", defaults.join(",")) };
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    format!("| `{}` | {variable} | {} | {} |", cell(&option), cell(&default), cell(&text_of(arg.get_help())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_has_commands_of_commands_and_leaves_out_what_is_hidden() {
        let option = |name: &'static str| Arg::new(name).long(name).value_name("N").help("A | b");
        let inner = Command::new("inner").about("Does less.").arg(option("deep").default_value("1"));
        let outer = Command::new("outer").about("Does.").arg(option("wide").hide(true)).subcommand(inner);
        let page = reference(Command::new("x").subcommand(outer).subcommand(Command::new("secret").hide(true)));
        assert!(page.contains("## `outer`\n\nDoes.\n\n## `outer inner`\n\nDoes less.\n"), "{page}");
        assert!(page.contains("| `--deep N` |  | `1` | A \\| b |") && page.contains("| E0001 | "), "{page}");
        assert!(!page.contains("wide") && !page.contains("secret"));
    }

    #[test]
    fn text_is_wrapped_at_words() {
        assert_eq!(wrapped("a bb ccc dddd", 6), "a bb\nccc\ndddd");
        assert_eq!(wrapped("a long-word-indeed b", 6), "a\nlong-word-indeed\nb");
    }
}

/// The pages describe the features of a default build.
#[cfg(all(test, feature = "text", feature = "download"))]
mod pages {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_reference_is_up_to_date() {
        let page = include_str!("../../REFERENCE.md");
        let made = reference(Cli::command());
        let difference = page.lines().zip(made.lines()).find(|(page, made)| page != made);
        assert!(
            page == made,
            "make it anew: cargo run -p model-minimax -- reference > model-minimax/REFERENCE.md; it differs at {difference:?}"
        );
    }

    /// Command lines of the program in a text: what follows its name, or the way cargo runs it.
    fn command_lines(text: &str) -> Vec<Vec<String>> {
        let starts = ["cargo run -p model-minimax -- ", "model-minimax "];
        let mut lines = Vec::new();
        for line in text.lines() {
            let line = line.trim_start_matches("$ ");
            let Some(rest) = starts.iter().find_map(|start| line.strip_prefix(start)) else { continue };
            let rest = rest.split(" #").next().unwrap_or_default();
            let rest = rest.split(" > ").next().unwrap_or_default();
            lines.push(crate::cli::shell::words(rest).unwrap_or_default());
        }
        lines
    }

    #[test]
    fn the_command_lines_of_the_readmes_are_right() {
        let texts = [
            include_str!("../../README.md"),
            include_str!("../../../README.md"),
            include_str!("../../../README.zh-CN.md"),
        ];
        let mut commands = std::collections::BTreeSet::new();
        for text in texts {
            let lines = command_lines(text);
            assert!(lines.len() >= 3, "{lines:?}");
            for line in lines {
                let parsed = Cli::command().try_get_matches_from(["model-minimax".to_owned()].iter().chain(&line));
                assert!(
                    parsed.is_ok(),
                    "{line:?}: {}",
                    parsed.err().map(|error| error.to_string()).unwrap_or_default()
                );
                commands.extend(line.first().cloned());
            }
        }
        for name in [
            "ask",
            "bench",
            "chat",
            "completions",
            "download",
            "list-knobs",
            "man",
            "parity",
            "prepare",
            "replay",
            "synth",
            "verify",
        ] {
            assert!(commands.contains(name), "no README has an example of {name}");
        }
    }
}

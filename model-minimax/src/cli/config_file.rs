// SPDX-License-Identifier: MIT OR Apache-2.0

//! Defaults of options from a file: they stand below the command line and the variables.

use std::path::{Path, PathBuf};

use clap::Command;
use model_minimax::explain::Coded;
use toml::{Table, Value};

fn error(path: &Path, what: impl std::fmt::Display) -> Coded {
    Coded::new("E0003", format!("{}: {what}", path.display()))
}

/// The file to read: that of `MODEL_MINIMAX_CONFIG`, which must exist, else `config.toml` in the user's folder if there is one.
fn place() -> Option<(PathBuf, bool)> {
    if let Some(path) = std::env::var_os("MODEL_MINIMAX_CONFIG") {
        return (!path.is_empty()).then(|| (path.into(), true));
    }
    let absolute = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some((config.join("model-minimax/config.toml"), false))
}

/// `command` with the defaults of the configuration file, if there is one.
pub(crate) fn with_defaults(command: Command) -> Result<Command, Coded> {
    let Some((path, must_exist)) = place() else { return Ok(command) };
    match std::fs::read_to_string(&path) {
        Ok(text) => apply(command, &path, &text),
        Err(_) if !must_exist => Ok(command),
        Err(reason) => Err(error(&path, reason)),
    }
}

/// `option = value` holds for every command that has the option, in a table `[command]` for that one, which wins.
fn apply(mut command: Command, path: &Path, text: &str) -> Result<Command, Coded> {
    let table: Table = text.parse().map_err(|reason| error(path, reason))?;
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let (tables, options): (Vec<_>, Vec<_>) = table.into_iter().partition(|(_, value)| value.is_table());
    for (option, value) in &options {
        let text = text_of(path, option, value)?;
        let having: Vec<&String> = names.iter().filter(|name| has_option(&command, name, option)).collect();
        if having.is_empty() {
            return Err(error(path, format_args!("no command has the option `{option}`")));
        }
        for name in having.into_iter().cloned().collect::<Vec<_>>() {
            command = with_default(command, &name, option, &text);
        }
    }
    for (name, value) in &tables {
        if !names.contains(name) {
            return Err(error(path, format_args!("there is no command `{name}`")));
        }
        for (option, value) in value.as_table().into_iter().flatten() {
            if !has_option(&command, name, option) {
                return Err(error(path, format_args!("{name} has no option `{option}`")));
            }
            command = with_default(command, name, option, &text_of(path, option, value)?);
        }
    }
    Ok(command)
}

fn has_option(command: &Command, name: &str, option: &str) -> bool {
    let sub = command.find_subcommand(name);
    sub.is_some_and(|sub| sub.get_arguments().any(|arg| arg.get_long() == Some(option) && arg.get_id() != "help"))
}

fn with_default(command: Command, name: &str, option: &str, text: &str) -> Command {
    command.mut_subcommand(name, |sub| {
        let id = sub.get_arguments().find(|arg| arg.get_long() == Some(option)).map(|arg| arg.get_id().clone());
        match id {
            // An option that must be given is given now.
            Some(id) => sub.mut_arg(id, |arg| arg.required(false).default_value(text.to_owned())),
            None => sub,
        }
    })
}

/// A value as the command line takes it.
fn text_of(path: &Path, option: &str, value: &Value) -> Result<String, Coded> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(yes) => Ok(yes.to_string()),
        Value::Array(values) => {
            let texts: Result<Vec<_>, _> = values.iter().map(|value| text_of(path, option, value)).collect();
            Ok(texts?.join(","))
        }
        Value::Datetime(_) | Value::Table(_) => {
            Err(error(path, format_args!("`{option}` should be a text, a number, true or false, or a list of them")))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;
    use crate::cli::Cli;

    fn parse(text: &str, line: &[&str]) -> String {
        let command = apply(Cli::command(), Path::new("config.toml"), text).unwrap();
        let matches = command.try_get_matches_from([&["model-minimax"], line].concat()).unwrap();
        format!("{:?}", Cli::from_arg_matches(&matches).unwrap())
    }

    #[test]
    fn defaults_stand_below_the_command_line() {
        let text = "model-path = \"models/m3\"\nthreads = 3\nignore-eos = true\n[ask]\ntemperature = 0.5\nthreads = 2\n\
                    [synth]\noutput-dir = \"m\"\n";
        let ask = parse(text, &["ask"]);
        for word in ["models/m3", "temperature: Some(0.5)", "threads: Some(2)", "ignore_eos: true"] {
            assert!(ask.contains(word), "{word} is not in {ask}");
        }
        let bench = parse(text, &["bench", "--threads", "7"]);
        assert!(bench.contains("threads: Some(7)") && bench.contains("models/m3"), "{bench}");
        // What conflicts on the command line does not conflict with a default, and what is required is there.
        let ids = parse("[ask]\nprompt = \"x\"", &["ask", "--prompt-ids", "1,2"]);
        assert!(ids.contains("prompt_ids: Some([1, 2])"), "{ids}");
        assert!(parse(text, &["synth"]).contains("output_dir: \"m\""));
        assert!(parse("prompt-ids = [1, 2]", &["ask"]).contains("prompt_ids: Some([1, 2])"));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, what) in [
            ("model-path = ", "config.toml: "),
            ("colour = \"red\"", "no command has the option `colour`"),
            ("[sing]\nloud = true", "there is no command `sing`"),
            ("[ask]\niters = 3", "ask has no option `iters`"),
            ("threads = 1979-05-27", "`threads` should be a text, a number"),
            ("help = true", "no command has the option `help`"),
        ] {
            let error = apply(Cli::command(), Path::new("config.toml"), text).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}

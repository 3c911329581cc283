// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value, escape_formatter};
use serde::Deserialize;

use super::clock::{Clock, strftime};
use super::json::{float_repr, tojson};

const NAME: &str = "chat_template";

/// Why a chat could not be turned into a prompt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The checkpoint has no chat template.
    #[error(
        "no chat template: {} has neither chat_template.jinja nor a chat_template in tokenizer_config.json \
         (--raw sends the prompt as it is)",
        dir.display()
    )]
    Missing {
        /// The folder searched.
        dir: PathBuf,
    },
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's message.
        source: std::io::Error,
    },
    /// `tokenizer_config.json` is malformed.
    #[error("{}: {source}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The parser's message.
        source: serde_json::Error,
    },
    /// The template does not parse.
    #[error("chat template, line {line}: {reason}")]
    Syntax {
        /// Line of the template, from 1; 0 if unknown.
        line: usize,
        /// What the parser says.
        reason: String,
    },
    /// The template refused the messages through `raise_exception`.
    #[error("chat template: {0}")]
    Refused(String),
    /// The template failed while rendering.
    #[error("chat template, line {line}: {reason}")]
    Render {
        /// Line of the template, from 1; 0 if unknown.
        line: usize,
        /// What went wrong.
        reason: String,
    },
    /// A way of thinking that nothing is known about.
    #[error("unknown thinking mode \"{found}\"; known are \"enabled\", \"disabled\" and \"adaptive\"")]
    UnknownThinkingMode {
        /// The name.
        found: String,
    },
    /// A thinking mode was asked for, and the template has only one way.
    #[error("the chat template knows no thinking modes (it never reads `{THINKING_MODE}`), asked for was \"{mode}\"")]
    NoThinkingModes {
        /// The mode asked for.
        mode: ThinkingMode,
    },
    /// Messages or tools are not valid JSON.
    #[error("{what} are not valid JSON: {source}")]
    Json {
        /// Which argument.
        what: &'static str,
        /// The parser's message.
        source: serde_json::Error,
    },
}

/// The template variable that a [`ThinkingMode`] sets.
const THINKING_MODE: &str = "thinking_mode";

/// Whether the model thinks before it answers, where its template offers the choice, as that of MiniMax-M3 does.
/// Without one, that template takes `adaptive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingMode {
    /// Always: the prompt ends inside the thought.
    Enabled,
    /// Never: the prompt ends after an empty thought.
    Disabled,
    /// As the model decides.
    Adaptive,
}

impl ThinkingMode {
    /// The name that templates use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
            Self::Adaptive => "adaptive",
        }
    }
}

impl fmt::Display for ThinkingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ThinkingMode {
    type Err = TemplateError;

    fn from_str(name: &str) -> Result<Self, TemplateError> {
        [Self::Enabled, Self::Disabled, Self::Adaptive]
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| TemplateError::UnknownThinkingMode { found: name.to_owned() })
    }
}

/// What a template is rendered with. Key order of the JSON is kept, as templates print it.
#[derive(Debug, Clone)]
pub struct Chat {
    messages: Value,
    tools: Value,
    add_generation_prompt: bool,
    thinking: Option<ThinkingMode>,
    extra: BTreeMap<String, Value>,
}

impl Chat {
    /// One optional system message, one user message, and the opening of the answer.
    #[must_use]
    pub fn single(system: Option<&str>, user: &str) -> Self {
        let message = |role: &str, content: &str| Value::from_pairs([("role", role), ("content", content)]);
        let messages = system.map(|text| message("system", text)).into_iter().chain([message("user", user)]);
        Self {
            messages: messages.collect(),
            tools: Value::from(()),
            add_generation_prompt: true,
            thinking: None,
            extra: BTreeMap::new(),
        }
    }

    /// A list of messages as JSON: objects with `role` and `content`, in the layout of chat APIs.
    ///
    /// # Errors
    /// [`TemplateError::Json`].
    pub fn from_json(messages: &str) -> Result<Self, TemplateError> {
        let mut chat = Self::single(None, "");
        chat.messages = parse("messages", messages)?;
        Ok(chat)
    }

    /// Adds tool descriptions: a JSON list, or `null` for none.
    ///
    /// # Errors
    /// [`TemplateError::Json`].
    pub fn with_tools(mut self, tools: &str) -> Result<Self, TemplateError> {
        self.tools = parse("tools", tools)?;
        Ok(self)
    }

    /// Whether the prompt ends with the opening of an assistant turn (it does by default).
    #[must_use]
    pub fn with_generation_prompt(mut self, yes: bool) -> Self {
        self.add_generation_prompt = yes;
        self
    }

    /// Chooses whether the model thinks. Rendering fails if the template does not offer the choice.
    #[must_use]
    pub fn with_thinking(mut self, mode: ThinkingMode) -> Self {
        self.thinking = Some(mode);
        self
    }

    /// Sets a variable of the template to a JSON value, whether the template reads it or not.
    ///
    /// # Errors
    /// [`TemplateError::Json`].
    pub fn with_variable(mut self, name: &str, value: &str) -> Result<Self, TemplateError> {
        self.extra.insert(name.to_owned(), parse("template variables", value)?);
        Ok(self)
    }
}

fn read_optional(path: &Path) -> Result<Option<String>, TemplateError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TemplateError::Read { path: path.to_owned(), source }),
    }
}

fn parse(what: &'static str, json: &str) -> Result<Value, TemplateError> {
    // Straight into the engine's value: a `serde_json::Value` would sort the keys.
    serde_json::from_str(json).map_err(|source| TemplateError::Json { what, source })
}

/// A chat template in Jinja, rendered as transformers does: `trim_blocks`, `lstrip_blocks`, Python's methods of
/// strings and mappings, undefined variables empty.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    special: BTreeMap<String, Value>,
}

impl ChatTemplate {
    /// The template of a checkpoint folder: the file `chat_template.jinja` byte for byte, else `chat_template` of
    /// `tokenizer_config.json` (of several, the one named `default`).
    ///
    /// # Errors
    /// [`TemplateError`] when there is none, or it does not parse.
    pub fn from_dir(dir: &Path, clock: Clock) -> Result<Self, TemplateError> {
        let path = dir.join("tokenizer_config.json");
        let config: TokenizerConfig = match read_optional(&path)? {
            Some(json) => serde_json::from_str(&json).map_err(|source| TemplateError::Config { path, source })?,
            None => TokenizerConfig::default(),
        };
        let source = match read_optional(&dir.join("chat_template.jinja"))? {
            Some(source) => Some(source),
            None => config.chat_template.and_then(|field| match field {
                TemplateField::One(source) => Some(source),
                TemplateField::Named(all) => all.into_iter().find(|t| t.name == "default").map(|t| t.template),
            }),
        };
        let source = source.ok_or_else(|| TemplateError::Missing { dir: dir.to_owned() })?;
        let mut template = Self::from_source(&source, clock)?;
        let special = [
            ("bos_token", config.bos_token),
            ("eos_token", config.eos_token),
            ("pad_token", config.pad_token),
            ("unk_token", config.unk_token),
        ];
        for (name, token) in special {
            if let Some(token) = token {
                template.special.insert(name.to_owned(), Value::from(token.content()));
            }
        }
        Ok(template)
    }

    /// A template from its text.
    ///
    /// # Errors
    /// [`TemplateError::Syntax`].
    pub fn from_source(source: &str, clock: Clock) -> Result<Self, TemplateError> {
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(syntax_error)?;
        env.set_syntax(syntax);
        env.set_undefined_behavior(UndefinedBehavior::Chainable);
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.set_formatter(|out, state, value| {
            if value.kind() == ValueKind::Number && !value.is_integer() {
                let number = f64::try_from(value.clone())?;
                if number.is_finite() {
                    return out.write_str(&float_repr(number)).map_err(Error::from);
                }
            }
            escape_formatter(out, state, value)
        });
        // As in Python, where `None` is not; the engine's own test takes it for an empty sequence.
        env.add_test("iterable", |value: Value| !value.is_none() && value.try_iter().is_ok());
        env.add_filter("tojson", tojson);
        env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Refusal(message)))
        });
        env.add_function("strftime_now", move |format: String| {
            strftime(clock(), &format).map_err(|e| Error::new(ErrorKind::InvalidOperation, e.to_string()))
        });
        env.add_template_owned(NAME, without_generation_tags(source)).map_err(syntax_error)?;
        Ok(Self { env, special: BTreeMap::new() })
    }

    /// The prompt for `chat`.
    ///
    /// # Errors
    /// [`TemplateError::Refused`] when the template calls `raise_exception`, [`TemplateError::NoThinkingModes`] when
    /// `chat` chooses one of which the template knows nothing, [`TemplateError::Render`] when it fails otherwise.
    pub fn render(&self, chat: &Chat) -> Result<String, TemplateError> {
        let mut context = self.special.clone();
        context.insert("messages".to_owned(), chat.messages.clone());
        context.insert("tools".to_owned(), chat.tools.clone());
        context.insert("add_generation_prompt".to_owned(), Value::from(chat.add_generation_prompt));
        context.extend(chat.extra.clone());
        let template = self.env.get_template(NAME).map_err(render_error)?;
        if let Some(mode) = chat.thinking {
            if !template.undeclared_variables(false).contains(THINKING_MODE) {
                return Err(TemplateError::NoThinkingModes { mode });
            }
            context.insert(THINKING_MODE.to_owned(), Value::from(mode.name()));
        }
        template.render(Value::from_pairs(context)).map_err(render_error)
    }
}

/// A token in `tokenizer_config.json`: its text, or a record with the text in it.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum ConfigToken {
    Text(String),
    Record { content: String },
}

impl ConfigToken {
    fn content(self) -> String {
        match self {
            Self::Text(content) | Self::Record { content } => content,
        }
    }
}

/// The part of `tokenizer_config.json` that is used here.
#[derive(Debug, Default, Deserialize)]
struct TokenizerConfig {
    bos_token: Option<ConfigToken>,
    eos_token: Option<ConfigToken>,
    pad_token: Option<ConfigToken>,
    unk_token: Option<ConfigToken>,
    chat_template: Option<TemplateField>,
}

/// `chat_template`: one template, or several with names.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TemplateField {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Debug, Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

/// The message given to `raise_exception`, carried through the engine's error chain.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

fn syntax_error(error: Error) -> TemplateError {
    TemplateError::Syntax { line: error.line().unwrap_or(0), reason: reason(&error) }
}

fn render_error(error: Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(Refusal(message)) = inner.downcast_ref() {
            return TemplateError::Refused(message.clone());
        }
        cause = inner.source();
    }
    TemplateError::Render { line: error.line().unwrap_or(0), reason: reason(&error) }
}

/// The engine's message without its own "(in template:line)".
fn reason(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

/// Replaces `{% generation %}` and `{% endgeneration %}` (they mark the answer for training and print nothing) by a
/// tag pair that the engine knows and that prints nothing either. Whitespace control marks stay where they are;
/// comments, strings and raw blocks are left alone.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let end = match tag.as_bytes().get(1) {
            Some(b'#') => tag.find("#}").map_or(tag.len(), |i| i + 2),
            Some(b'{') => end_of_tag(tag, "}}"),
            Some(b'%') => end_of_tag(tag, "%}"),
            _ => 1,
        };
        let (tag, after) = tag.split_at(end);
        rest = after;
        let body = tag.strip_prefix("{%").and_then(|t| t.strip_suffix("%}")).unwrap_or_default();
        match body.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+') {
            "generation" => out.push_str(&tag.replace("generation", "with")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endwith")),
            "raw" => {
                let (block, after) = rest.split_at(rest.find("endraw").unwrap_or(rest.len()));
                out.push_str(tag);
                out.push_str(block);
                rest = after;
            }
            _ => out.push_str(tag),
        }
    }
    out.push_str(rest);
    out
}

/// Length of the tag at the start of `tag`, closing delimiter included; delimiters inside string literals do not
/// close it.
fn end_of_tag(tag: &str, close: &str) -> usize {
    let mut quote = None;
    let mut escaped = false;
    for (i, c) in tag.char_indices().skip(2) {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(q) if c == q => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quote = Some(c),
            None if tag[i..].starts_with(close) => return i + close.len(),
            None => {}
        }
    }
    tag.len()
}

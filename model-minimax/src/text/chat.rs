// SPDX-License-Identifier: MIT OR Apache-2.0

//! A conversation: its turns, what of it the model has cached, and thoughts apart from answers.

use std::ops::ControlFlow;

use serde_json::json;

use super::{Chat, ChatTemplate, TemplateError, TextTokenizer, ThinkingMode, TokenizerError};
use crate::generate::{Decoder, GenerateError, GenerateOptions, Generation, generate_from};

/// The marks around a thought, those of M2.7 and of M3.
const MARKS: [[&str; 2]; 2] = [["<think>", "</think>"], ["<mm:think>", "</mm:think>"]];

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Of a thought.
    Thought,
    /// Of the answer.
    Answer,
}

/// Takes text piece by piece and tells thoughts from answers. Marks are left out, and the line breaks around them.
#[derive(Debug, Clone)]
pub struct Splitter {
    part: Part,
    /// What may be the beginning of a mark.
    held: String,
    /// Whether the part has no text yet: line breaks at its beginning are left out.
    fresh: bool,
}

impl Splitter {
    /// For the text that follows `prompt`, which may end inside a thought.
    #[must_use]
    pub fn after(prompt: &str) -> Self {
        let end = prompt.trim_end();
        let inside = MARKS.iter().any(|[open, _]| end.ends_with(open));
        Self { part: if inside { Part::Thought } else { Part::Answer }, held: String::new(), fresh: true }
    }

    /// Hands on what is certain of the text so far and of `piece`.
    pub fn push(&mut self, piece: &str, mut each: impl FnMut(Part, &str)) {
        self.held.push_str(piece);
        loop {
            let found = (MARKS.iter().flatten()).filter_map(|mark| Some((self.held.find(mark)?, *mark))).min();
            let Some((at, mark)) = found else { break };
            let rest = self.held.split_off(at + mark.len());
            self.held.truncate(at);
            let text = std::mem::replace(&mut self.held, rest);
            self.show(text.trim_end_matches('\n'), &mut each);
            let closes = MARKS.iter().any(|[_, close]| *close == mark);
            self.part = if closes { Part::Answer } else { Part::Thought };
            self.fresh = true;
        }
        // A mark may have begun, and line breaks before a mark do not count.
        let is_open = |tail: &str| {
            let tail = tail.trim_start_matches('\n');
            MARKS.iter().flatten().any(|mark| mark.starts_with(tail))
        };
        let starts = self.held.char_indices().map(|(at, _)| at);
        let certain = starts.into_iter().find(|&at| is_open(&self.held[at..])).unwrap_or(self.held.len());
        let rest = self.held.split_off(certain);
        let text = std::mem::replace(&mut self.held, rest);
        self.show(&text, &mut each);
    }

    /// Hands on the rest.
    pub fn finish(mut self, mut each: impl FnMut(Part, &str)) {
        let text = std::mem::take(&mut self.held);
        self.show(&text, &mut each);
    }

    fn show(&mut self, text: &str, each: &mut impl FnMut(Part, &str)) {
        let text = if self.fresh { text.trim_start_matches('\n') } else { text };
        if !text.is_empty() {
            self.fresh = false;
            each(self.part, text);
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The conversation cannot be made a prompt.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The prompt cannot be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The model failed, or the conversation has become too long.
    #[error(transparent)]
    Generate(#[from] GenerateError),
}

/// A question and what was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// What the user said.
    pub user: String,
    /// What the model thought before it answered; empty if it did not.
    pub thought: String,
    /// What it answered.
    pub answer: String,
}

/// An answer with its figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The turn that was added to the conversation.
    pub turn: Turn,
    /// Tokens of the whole prompt.
    pub prompt: usize,
    /// Those of them that the model had in its cache.
    pub cached: usize,
    /// What was generated.
    pub generation: Generation,
}

/// A conversation with a model.
#[derive(Debug)]
pub struct ChatSession<'a> {
    tokenizer: &'a TextTokenizer,
    template: &'a ChatTemplate,
    /// How answers are generated. Fewer tokens are, where the model has no more positions.
    pub options: GenerateOptions,
    /// The system message; without one the template's own.
    pub system: Option<String>,
    /// Whether the model thinks; without a mode the template's own.
    pub thinking: Option<ThinkingMode>,
    turns: Vec<Turn>,
    /// The tokens that the decoder has in its sequence.
    cached: Vec<u32>,
}

impl<'a> ChatSession<'a> {
    /// A conversation of no turns.
    #[must_use]
    pub fn new(tokenizer: &'a TextTokenizer, template: &'a ChatTemplate, options: GenerateOptions) -> Self {
        Self { tokenizer, template, options, system: None, thinking: None, turns: Vec::new(), cached: Vec::new() }
    }

    /// The turns so far.
    #[must_use]
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Forgets the turns. The system message stays, and so does what is cached of it.
    pub fn reset(&mut self) {
        self.turns.clear();
    }

    /// Adds a question, and the answer as it comes; `on_text` sees it piece by piece and may stop it. A stopped answer stays in
    /// the conversation as far as it went. Always called with one decoder, which nobody else uses meanwhile.
    ///
    /// # Errors
    /// [`ChatError`]; the conversation is then what it was before.
    pub fn say<D: Decoder>(
        &mut self,
        decoder: &mut D,
        user: &str,
        mut on_text: impl FnMut(Part, &str) -> ControlFlow<()>,
    ) -> Result<Reply, ChatError> {
        let text = self.template.render(&self.chat(user)?)?;
        let prompt = self.tokenizer.encode(&text)?;
        let cached = prompt.iter().zip(&self.cached).take_while(|(new, old)| new == old).count();
        // Undefined if the model fails.
        self.cached.clear();
        let mut options = self.options.clone();
        options.max_new_tokens =
            options.max_new_tokens.min(decoder.max_positions().saturating_sub(prompt.len())).max(1);

        let mut turn = Turn { user: user.to_owned(), thought: String::new(), answer: String::new() };
        let mut stream = self.tokenizer.stream(true);
        let mut splitter = Splitter::after(&text);
        let mut flow = ControlFlow::Continue(());
        let mut show = |part: Part, piece: &str| {
            match part {
                Part::Thought => turn.thought.push_str(piece),
                Part::Answer => turn.answer.push_str(piece),
            }
            if flow.is_continue() {
                flow = on_text(part, piece);
            }
            flow
        };
        let generation = generate_from(decoder, &prompt, cached, &options, |id| {
            // Asked with nothing, too: a reader may want to stop between two characters.
            let mut flow = show(Part::Answer, "");
            splitter.push(&stream.push(id), |part, piece| flow = show(part, piece));
            flow
        })?;
        splitter.push(&stream.finish(), |part, piece| {
            let _ = show(part, piece);
        });
        splitter.finish(|part, piece| {
            let _ = show(part, piece);
        });
        let prompt_len = prompt.len();
        self.cached = prompt;
        // The last one was chosen and not yet read.
        self.cached.extend_from_slice(&generation.ids[..generation.ids.len() - 1]);
        self.turns.push(turn.clone());
        Ok(Reply { turn, prompt: prompt_len, cached: cached.min(prompt_len - 1), generation })
    }

    /// The conversation with one more question.
    fn chat(&self, user: &str) -> Result<Chat, TemplateError> {
        let mut messages: Vec<_> =
            self.system.iter().map(|system| json!({ "role": "system", "content": system })).collect();
        for Turn { user, thought, answer } in &self.turns {
            messages.push(json!({ "role": "user", "content": user }));
            messages.push(json!({ "role": "assistant", "content": answer, "reasoning_content": thought }));
        }
        messages.push(json!({ "role": "user", "content": user }));
        let chat = Chat::from_json(&json!(messages).to_string())?;
        Ok(match self.thinking {
            Some(mode) => chat.with_thinking(mode),
            None => chat,
        })
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Text in, text out: the checkpoint's tokenizer, its chat template, and streaming decode.
//!
//! Nothing here adds a token on its own: the MiniMax templates write the start-of-document token
//! themselves, and a raw prompt is encoded as it stands.

mod chat;
mod clock;
mod json;
mod template;
mod tokenizer;

pub use chat::{ChatError, ChatSession, Part, Reply, Splitter, Turn};
pub use clock::{Clock, StrftimeError, strftime};
pub use template::{Chat, ChatTemplate, TemplateError, ThinkingMode};
pub use tokenizer::{TextStream, TextTokenizer, TokenizerError};

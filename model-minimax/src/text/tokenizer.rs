// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};

use tokenizers::{DecoderWrapper, Tokenizer};

/// Why a tokenizer could not be loaded or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The folder has no `tokenizer.json`.
    #[error("no tokenizer: {} does not exist (token ids can still be given with --prompt-ids)", path.display())]
    Missing {
        /// The file that was looked for.
        path: PathBuf,
    },
    /// `tokenizer.json` exists and cannot be read as a tokenizer.
    #[error("{} is not a usable tokenizer: {reason}", path.display())]
    Load {
        /// The file read.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The tokenizer is not byte-level, so single tokens have no byte sequence of their own.
    #[error("{}: expected a byte-level decoder, found {found}", path.display())]
    NotByteLevel {
        /// The file read.
        path: PathBuf,
        /// The decoder it asks for.
        found: String,
    },
    /// Splitting the text into tokens failed.
    #[error("the text of {bytes} bytes could not be encoded: {reason}")]
    Encode {
        /// Length of the text.
        bytes: usize,
        /// The tokenizer's message.
        reason: String,
    },
}

/// The byte-level BPE tokenizer of a checkpoint (`tokenizer.json`).
#[derive(Debug)]
pub struct TextTokenizer {
    inner: Tokenizer,
}

impl TextTokenizer {
    /// Reads `tokenizer.json` of a checkpoint folder.
    ///
    /// # Errors
    /// [`TokenizerError`] when the file is absent, unreadable, or not byte-level.
    pub fn from_dir(dir: &Path) -> Result<Self, TokenizerError> {
        let path = dir.join("tokenizer.json");
        if !path.exists() {
            return Err(TokenizerError::Missing { path });
        }
        let inner = Tokenizer::from_file(&path)
            .map_err(|e| TokenizerError::Load { path: path.clone(), reason: e.to_string() })?;
        if !matches!(inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
            let found = match inner.get_decoder() {
                None => "none".to_owned(),
                Some(decoder) => format!("{decoder:?}"),
            };
            return Err(TokenizerError::NotByteLevel { path, found });
        }
        Ok(Self { inner })
    }

    /// Token ids of `text`. Added tokens inside the text become their ids; none is put around it.
    ///
    /// # Errors
    /// [`TokenizerError::Encode`] when the split regex gives up.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self
            .inner
            .encode_fast(text, false)
            .map_err(|e| TokenizerError::Encode { bytes: text.len(), reason: e.to_string() })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Text of `ids`; invalid UTF-8 becomes U+FFFD, ids without a token are left out.
    #[must_use]
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut stream = self.stream(skip_special);
        let mut text = String::new();
        for &id in ids {
            text.push_str(&stream.push(id));
        }
        text.push_str(&stream.finish());
        text
    }

    /// A decoder that takes ids one by one.
    #[must_use]
    pub fn stream(&self, skip_special: bool) -> TextStream<'_> {
        TextStream { tokenizer: self, skip_special, pending: Vec::new() }
    }

    /// Id of one token, added tokens included.
    #[must_use]
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Number of tokens, added tokens included. The model's vocabulary may be larger (padding rows).
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Appends the bytes that token `id` stands for.
    fn push_bytes(&self, id: u32, skip_special: bool, bytes: &mut Vec<u8>) {
        let Some(token) = self.inner.id_to_token(id) else { return };
        if skip_special && self.inner.get_added_vocabulary().is_special_token(&token) {
            return;
        }
        // Added tokens are plain text: one that cannot be read as byte-level symbols is taken verbatim.
        let start = bytes.len();
        for symbol in token.chars() {
            match byte_of_symbol(symbol) {
                Some(byte) => bytes.push(byte),
                None => {
                    bytes.truncate(start);
                    bytes.extend_from_slice(token.as_bytes());
                    return;
                }
            }
        }
    }
}

/// The byte behind one symbol of the byte-level alphabet of GPT-2: printable Latin-1 characters stand for
/// themselves, the other 68 bytes are numbered from U+0100 in ascending order.
fn byte_of_symbol(symbol: char) -> Option<u8> {
    match u32::from(symbol) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// Decodes ids one by one into text, never splitting a code point.
///
/// The concatenation of all pieces, [`finish`](Self::finish) included, is
/// [`TextTokenizer::decode`] of all ids.
#[derive(Debug)]
pub struct TextStream<'a> {
    tokenizer: &'a TextTokenizer,
    skip_special: bool,
    /// An incomplete but so far valid UTF-8 sequence: at most three bytes between calls.
    pending: Vec<u8>,
}

impl TextStream<'_> {
    /// The text that became complete with `id`; empty while a code point is still open.
    pub fn push(&mut self, id: u32) -> String {
        self.tokenizer.push_bytes(id, self.skip_special, &mut self.pending);
        // An open code point is at most three bytes at the end; a lead byte always begins a new sequence, so what comes
        // before it decodes the same with and without it.
        let len = self.pending.len();
        let open = (1..=len.min(3)).find(|tail| {
            std::str::from_utf8(&self.pending[len - tail..])
                .is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
        });
        let complete: Vec<u8> = self.pending.drain(..len - open.unwrap_or(0)).collect();
        String::from_utf8_lossy(&complete).into_owned()
    }

    /// What is left at the end: U+FFFD for a code point that was never completed, else nothing.
    #[must_use]
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

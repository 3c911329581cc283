// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tokenizer and template of a checkpoint; without the feature `text` a type that cannot be made.

#[cfg(feature = "text")]
pub(crate) use with_text::{Text, ThinkingMode};

#[cfg(feature = "text")]
mod with_text {
    use std::path::{Path, PathBuf};
    use std::time::SystemTime;

    use model_minimax::config::tokenizer_eos_token;
    pub(crate) use model_minimax::text::ThinkingMode;
    use model_minimax::text::{Chat, ChatTemplate, TextStream, TextTokenizer};

    pub(crate) struct Text {
        dir: PathBuf,
        tokenizer: TextTokenizer,
    }

    impl Text {
        pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
            Ok(Self { dir: dir.to_owned(), tokenizer: TextTokenizer::from_dir(dir)? })
        }

        pub(crate) fn encode(&self, text: &str) -> anyhow::Result<Vec<u32>> {
            Ok(self.tokenizer.encode(text)?)
        }

        pub(crate) fn encode_chat(
            &self,
            system: Option<&str>,
            user: &str,
            thinking: Option<ThinkingMode>,
        ) -> anyhow::Result<Vec<u32>> {
            let template = ChatTemplate::from_dir(&self.dir, SystemTime::now)?;
            let chat = Chat::single(system, user);
            let chat = match thinking {
                Some(mode) => chat.with_thinking(mode),
                None => chat,
            };
            self.encode(&template.render(&chat)?)
        }

        pub(crate) fn eos(&self) -> anyhow::Result<Option<u32>> {
            Ok(tokenizer_eos_token(&self.dir)?.and_then(|token| self.tokenizer.token_to_id(&token)))
        }

        pub(crate) fn stream(&self) -> TextStream<'_> {
            self.tokenizer.stream(true)
        }
    }
}

#[cfg(not(feature = "text"))]
pub(crate) use without_text::{Text, ThinkingMode};

#[cfg(not(feature = "text"))]
mod without_text {
    use std::path::Path;
    use std::str::FromStr;

    pub(crate) enum Text {}

    #[derive(Debug, Clone, Copy)]
    pub(crate) enum ThinkingMode {}

    impl FromStr for ThinkingMode {
        type Err = &'static str;

        fn from_str(_name: &str) -> Result<Self, Self::Err> {
            Err("this build has no chat template (feature `text`)")
        }
    }

    impl Text {
        pub(crate) fn open(_dir: &Path) -> anyhow::Result<Self> {
            anyhow::bail!("this build has no tokenizer (feature `text`): give --prompt-ids and --print-ids")
        }

        pub(crate) fn encode(&self, _text: &str) -> anyhow::Result<Vec<u32>> {
            match *self {}
        }

        pub(crate) fn encode_chat(
            &self,
            _system: Option<&str>,
            _user: &str,
            _thinking: Option<ThinkingMode>,
        ) -> anyhow::Result<Vec<u32>> {
            match *self {}
        }

        pub(crate) fn eos(&self) -> anyhow::Result<Option<u32>> {
            match *self {}
        }

        pub(crate) fn stream(&self) -> Stream {
            match *self {}
        }
    }

    pub(crate) enum Stream {}

    impl Stream {
        pub(crate) fn push(&mut self, _id: u32) -> String {
            match *self {}
        }

        pub(crate) fn finish(self) -> String {
            match self {}
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Conversations: thoughts apart from answers, and what is cached between turns.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

use cpu_tiles::{Level, Pool, Precision};
use model_minimax::checkpoint::Checkpoint;
use model_minimax::config::ModelConfig;
use model_minimax::generate::{Decoder, GenerateError, GenerateOptions, Stop, generate, generate_from};
use model_minimax::model::{LoadMode, LoadOptions, Model};
use model_minimax::text::{ChatError, ChatSession, ChatTemplate, Part, Splitter, TextTokenizer};
use op_testkit::golden;

use crate::fake::Fake;

/// Thought and answer of `text` after `prompt`, in pieces of `size` characters.
fn split(prompt: &str, text: &str, size: usize) -> [String; 2] {
    let mut parts = [String::new(), String::new()];
    let mut splitter = Splitter::after(prompt);
    let mut put = |part: Part, piece: &str| parts[usize::from(part == Part::Answer)].push_str(piece);
    let characters: Vec<char> = text.chars().collect();
    for piece in characters.chunks(size) {
        splitter.push(&piece.iter().collect::<String>(), &mut put);
    }
    splitter.finish(&mut put);
    parts
}

#[test]
fn thoughts_are_told_from_answers_however_the_text_is_cut() {
    let cases = [
        // M2.7 begins inside the thought; the marks come alone.
        ("]~b]ai\n<think>\n", "I see.\n</think>\n\nHello", ["I see.", "Hello"]),
        ("]~b]ai\n<mm:think>", "I see.</mm:think>Hello\n\nyou", ["I see.", "Hello\n\nyou"]),
        ("]~b]ai\n", "<mm:think>hm</mm:think>yes", ["hm", "yes"]),
        ("]~b]ai\n</mm:think>", "no thought", ["", "no thought"]),
        ("", "a < b and <b> \u{5929}\n", ["", "a < b and <b> \u{5929}\n"]),
        ("<think>", "never\nclosed </thi", ["never\nclosed </thi", ""]),
        ("", "one<think>two</think>three", ["two", "onethree"]),
    ];
    for (prompt, text, parts) in cases {
        for size in 1..=text.len() {
            assert_eq!(split(prompt, text, size), parts, "{text:?} in pieces of {size}");
        }
    }
}

#[test]
fn a_generation_goes_on_from_what_is_kept() {
    // A decoder that keeps nothing computes everything.
    let mut fake = Fake::new(50, 100);
    let options = GenerateOptions { max_new_tokens: 3, ..GenerateOptions::default() };
    let run = |fake: &mut Fake, cached| {
        generate_from(fake, &[1, 2, 3, 4], cached, &options, |_| ControlFlow::Continue(())).unwrap().ids
    };
    assert_eq!(run(&mut fake, 4), [5, 6, 7]);
    assert_eq!(fake.passes, [vec![1, 2, 3, 4], vec![5], vec![6]]);
    // One that keeps gets the rest, at least one token.
    let mut keeping = Keeping { inner: Fake::new(50, 100), kept: Vec::new() };
    let ids = generate_from(&mut keeping, &[1, 2, 3, 4], 2, &options, |_| ControlFlow::Continue(())).unwrap().ids;
    assert_eq!((ids, keeping.inner.passes[0].clone()), (vec![5, 6, 7], vec![3, 4]));
    generate_from(&mut keeping, &[1, 2, 3, 4], 9, &options, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(keeping.kept, [2, 3]);
    assert_eq!(keeping.inner.passes[3], [4]);
    // From the start nothing is kept.
    generate(&mut keeping, &[1, 2], &options, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((keeping.inner.resets, keeping.kept.len()), (1, 2));
}

struct Keeping {
    inner: Fake,
    kept: Vec<usize>,
}

impl Decoder for Keeping {
    type Error = crate::fake::GaveUp;

    fn vocab_size(&self) -> usize {
        self.inner.vocab_size()
    }

    fn max_positions(&self) -> usize {
        self.inner.max_positions()
    }

    fn reset(&mut self) {
        self.inner.reset();
    }

    fn keep(&mut self, len: usize) -> usize {
        self.kept.push(len);
        len
    }

    fn forward(&mut self, ids: &[u32]) -> Result<&[f32], Self::Error> {
        self.inner.forward(ids)
    }
}

#[test]
fn the_cache_between_turns_changes_nothing_but_the_work() {
    for name in ["m27-tiny-bf16", "m3-tiny-bf16"] {
        let dir = golden::dir().join("models").join(name);
        let tokenizer = TextTokenizer::from_dir(&dir).unwrap();
        let template = ChatTemplate::from_dir(&dir, SystemTime::now).unwrap();
        let pool = Arc::new(Pool::new(1).unwrap());
        let load = LoadOptions {
            precision: Precision::F32,
            load_mode: LoadMode::Mmap,
            ..LoadOptions::new(Level::best(), pool)
        };
        let config = ModelConfig::load(&dir).unwrap();
        let mut model = Model::load(&Checkpoint::open(&dir).unwrap(), &config, &load, |_, _| ()).unwrap();
        let options = GenerateOptions { max_new_tokens: 12, ..GenerateOptions::default() };

        let mut chat = ChatSession::new(&tokenizer, &template, options.clone());
        chat.system = Some("Count the tokens.".to_owned());
        let mut shown = [String::new(), String::new()];
        let first = chat
            .say(&mut model, "How fast is it?", |part, piece| {
                shown[usize::from(part == Part::Answer)].push_str(piece);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!((first.cached, first.generation.ids.len(), first.generation.stop), (0, 12, Stop::Length), "{name}");
        assert_eq!(shown, [first.turn.thought.clone(), first.turn.answer.clone()]);
        let second = chat.say(&mut model, "And the experts?", |_, _| ControlFlow::Continue(())).unwrap();
        // At least the first prompt up to its last turn is there.
        assert!(second.cached > first.prompt / 2 && second.cached < second.prompt, "{name}: {second:?}");
        assert_eq!(chat.turns().len(), 2);

        // The same, everything computed anew.
        model.reset();
        let mut anew = ChatSession::new(&tokenizer, &template, options.clone());
        anew.system = chat.system.clone();
        let mut last = None;
        for user in ["How fast is it?", "And the experts?"] {
            let mut forgetful = Forgetful(&mut model);
            last = Some(anew.say(&mut forgetful, user, |_, _| ControlFlow::Continue(())).unwrap());
        }
        assert_eq!(last.unwrap().generation.ids, second.generation.ids, "{name}");

        // A stopped answer stays as far as it went, and the conversation goes on.
        let mut pieces = 0;
        let stopped = chat
            .say(&mut model, "Again.", |_, piece| {
                pieces += usize::from(!piece.is_empty());
                if pieces == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        assert!(stopped.generation.stop == Stop::Caller && stopped.generation.ids.len() < 12);
        assert_eq!(chat.turns().len(), 3);
        // A question that has no room changes nothing.
        let error = chat.say(&mut model, &"long ".repeat(3000), |_, _| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(error, ChatError::Generate(GenerateError::TooLong { .. })), "{error}");
        assert_eq!(chat.turns().len(), 3);
        chat.reset();
        let again = chat.say(&mut model, "How fast is it?", |_, _| ControlFlow::Continue(())).unwrap();
        assert_eq!(again.generation.ids, first.generation.ids);
    }
}

/// A decoder that keeps nothing.
struct Forgetful<'a>(&'a mut Model);

impl Decoder for Forgetful<'_> {
    type Error = <Model as Decoder>::Error;

    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    fn max_positions(&self) -> usize {
        self.0.max_positions()
    }

    fn reset(&mut self) {
        self.0.reset();
    }

    fn forward(&mut self, ids: &[u32]) -> Result<&[f32], Self::Error> {
        self.0.forward(ids)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every tokenizer and chat case of the golden folder, byte for byte.

use std::time::SystemTime;

use model_minimax::text::{Chat, ChatTemplate, TemplateError, TextTokenizer};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Cases {
    texts: Vec<TextCase>,
    chats: Vec<ChatCase>,
    chat_errors: Vec<ChatError>,
}

#[derive(Deserialize)]
struct TextCase {
    text: String,
    ids: Vec<u32>,
    decoded: String,
    decoded_skip_special: String,
}

#[derive(Deserialize)]
struct ChatCase {
    name: String,
    messages: Box<RawValue>,
    tools: Box<RawValue>,
    kwargs: std::collections::BTreeMap<String, Box<RawValue>>,
    add_generation_prompt: bool,
    rendered: String,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct ChatError {
    name: String,
    messages: Box<RawValue>,
    message_contains: String,
}

fn check(model: &str, texts: usize, chats: usize) {
    let dir = op_testkit::golden::dir().join("models").join(model);
    let json = std::fs::read_to_string(dir.join("tokenizer_cases.json")).unwrap();
    let cases: Cases = serde_json::from_str(&json).unwrap();
    assert_eq!((cases.texts.len(), cases.chats.len(), cases.chat_errors.len()), (texts, chats, 1));
    let tokenizer = TextTokenizer::from_dir(&dir).unwrap();
    let template = ChatTemplate::from_dir(&dir, SystemTime::now).unwrap();

    for case in &cases.texts {
        assert_eq!(tokenizer.encode(&case.text).unwrap(), case.ids, "ids of {:?}", case.text);
        assert_eq!(tokenizer.decode(&case.ids, false), case.decoded, "{:?} with special tokens", case.text);
        assert_eq!(tokenizer.decode(&case.ids, true), case.decoded_skip_special, "{:?} without", case.text);
    }
    for case in &cases.chats {
        let mut chat = Chat::from_json(case.messages.get())
            .and_then(|chat| chat.with_tools(case.tools.get()))
            .unwrap()
            .with_generation_prompt(case.add_generation_prompt);
        for (name, value) in &case.kwargs {
            chat = chat.with_variable(name, value.get()).unwrap();
        }
        let rendered = template.render(&chat).unwrap();
        assert_eq!(rendered, case.rendered, "chat {}", case.name);
        assert_eq!(tokenizer.encode(&rendered).unwrap(), case.ids, "ids of chat {}", case.name);
    }
    for case in &cases.chat_errors {
        let chat = Chat::from_json(case.messages.get()).unwrap();
        match template.render(&chat) {
            Err(TemplateError::Refused(message)) => {
                assert!(message.contains(&case.message_contains), "{}: {message}", case.name);
            }
            other => panic!("{}: expected a refusal, found {other:?}", case.name),
        }
    }
}

#[test]
fn m27_cases_are_byte_exact() {
    check("m27-tiny-bf16", 17, 6);
}

#[test]
fn m3_cases_are_byte_exact() {
    check("m3-tiny-bf16", 19, 8);
}

#[test]
fn the_eos_token_of_the_configuration_is_in_the_tokenizer() {
    for model in ["m27-tiny-bf16", "m27-tiny-fp8", "m3-tiny-bf16", "m3-tiny-mxfp8"] {
        let dir = op_testkit::golden::dir().join("models").join(model);
        let tokenizer = TextTokenizer::from_dir(&dir).unwrap();
        let eos = model_minimax::config::tokenizer_eos_token(&dir).unwrap();
        assert_eq!(eos.and_then(|token| tokenizer.token_to_id(&token)), Some(532), "{model}");
        assert_eq!(tokenizer.vocab_size(), 576, "{model}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::LazyLock;

use model_minimax::text::{TextTokenizer, TokenizerError};
use proptest::prelude::*;

use crate::scratch::Scratch;

/// Our own wrapper and, as the oracle of decoding, the library's tokenizer from the same file.
static TOKENIZERS: LazyLock<(TextTokenizer, tokenizers::Tokenizer)> = LazyLock::new(|| {
    let dir = op_testkit::golden::dir().join("models/m3-tiny-bf16");
    (TextTokenizer::from_dir(&dir).unwrap(), tokenizers::Tokenizer::from_file(dir.join("tokenizer.json")).unwrap())
});

/// Feeds ids one by one; checks that no piece depends on later ids.
fn streamed(ids: &[u32], skip_special: bool) -> String {
    let mut stream = TOKENIZERS.0.stream(skip_special);
    let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
    text.push_str(&stream.finish());
    text
}

proptest! {
    /// Any ids, hence mostly broken UTF-8, ids beyond the vocabulary included.
    #[test]
    fn streaming_any_ids_equals_the_library_s_decode(
        ids in prop::collection::vec(0u32..600, 0..40),
        skip_special: bool,
    ) {
        let whole = TOKENIZERS.1.decode(&ids, skip_special).unwrap();
        prop_assert_eq!(streamed(&ids, skip_special), whole.clone());
        prop_assert_eq!(TOKENIZERS.0.decode(&ids, skip_special), whole);
    }

    #[test]
    fn text_survives_encode_and_streamed_decode(text in "\\PC{0,40}") {
        let ids = TOKENIZERS.0.encode(&text).unwrap();
        prop_assert_eq!(streamed(&ids, false), text);
    }
}

#[test]
fn every_byte_has_a_token_and_decodes_to_itself() {
    let (ours, library) = &*TOKENIZERS;
    // The 256 tokens of the alphabet, alone: each is one byte, so 128 of them are ASCII and the others broken UTF-8.
    let single: Vec<u32> =
        (0..512).filter(|&id| library.id_to_token(id).is_some_and(|t| t.chars().count() == 1)).collect();
    assert_eq!(single.len(), 256);
    let decoded: Vec<String> = single.iter().map(|&id| ours.decode(&[id], false)).collect();
    for (&id, text) in single.iter().zip(&decoded) {
        assert_eq!(*text, library.decode(&[id], false).unwrap(), "token {id}");
    }
    let mut ascii: Vec<&String> = decoded.iter().filter(|text| text.is_ascii()).collect();
    ascii.sort();
    ascii.dedup();
    assert_eq!(ascii.len(), 128);
}

#[test]
fn code_points_are_never_split() {
    let text = "a🦀b🚀é今";
    let ids = TOKENIZERS.0.encode(text).unwrap();
    // The tiny vocabulary has no emoji, so four tokens make one.
    assert!(ids.len() > text.chars().count());
    let mut stream = TOKENIZERS.0.stream(false);
    let pieces: Vec<String> = ids.iter().map(|&id| stream.push(id)).collect();
    assert!(pieces.iter().all(|piece| !piece.contains('\u{fffd}')), "{pieces:?}");
    assert_eq!(pieces.iter().filter(|piece| piece.contains('🦀')).count(), 1, "{pieces:?}");
    assert_eq!(pieces.concat(), text);
    assert_eq!(stream.finish(), "");
}

#[test]
fn a_code_point_left_open_becomes_one_replacement_character_at_the_end() {
    let ids = TOKENIZERS.0.encode("ok 🦀").unwrap();
    let mut stream = TOKENIZERS.0.stream(false);
    let text: String = ids[..ids.len() - 1].iter().map(|&id| stream.push(id)).collect();
    assert_eq!(text, "ok ");
    assert_eq!(stream.finish(), "\u{fffd}");
}

#[test]
fn special_tokens_are_left_out_and_thinking_marks_stay() {
    let (ours, _) = &*TOKENIZERS;
    let ids = [546, 562, 198, 532];
    assert_eq!(streamed(&ids, true), "<think>\n");
    assert_eq!(streamed(&ids, false), "]~!b[<think>\n[e~[");
    assert_eq!(ours.token_to_id("<think>"), Some(562));
}

#[test]
fn missing_and_broken_files_are_named() {
    let dir = Scratch::new();
    let missing = TextTokenizer::from_dir(dir.path()).unwrap_err();
    assert!(matches!(&missing, TokenizerError::Missing { path } if path.ends_with("tokenizer.json")), "{missing:?}");

    dir.write("tokenizer.json", "{ not json");
    let broken = TextTokenizer::from_dir(dir.path()).unwrap_err();
    assert!(matches!(&broken, TokenizerError::Load { .. }), "{broken:?}");

    let golden = op_testkit::golden::dir().join("models/m27-tiny-bf16/tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(golden).unwrap()).unwrap();
    json["decoder"] = serde_json::json!({ "type": "Fuse" });
    dir.write("tokenizer.json", &json.to_string());
    let other = TextTokenizer::from_dir(dir.path()).unwrap_err();
    assert!(matches!(&other, TokenizerError::NotByteLevel { found, .. } if found.contains("Fuse")), "{other:?}");

    json["decoder"] = serde_json::Value::Null;
    dir.write("tokenizer.json", &json.to_string());
    let none = TextTokenizer::from_dir(dir.path()).unwrap_err();
    assert!(matches!(&none, TokenizerError::NotByteLevel { found, .. } if found == "none"), "{none:?}");
}

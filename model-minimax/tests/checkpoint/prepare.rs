// SPDX-License-Identifier: MIT OR Apache-2.0

//! Corrected configurations: what is corrected, where it is written, and that nothing else is touched.

use std::fs;
use std::path::Path;

use model_minimax::checkpoint::Checkpoint;
use model_minimax::config::ModelConfig;
use model_minimax::prepare::{PrepareError, corrections, in_place, overlay, restore};
use serde_json::{Value, json};

use crate::model::verify::copy_folder;
use crate::scratch::Scratch;

/// A copy of a golden checkpoint with fields of its configuration changed.
fn checkpoint(model: &str, dir: &Path, change: impl FnOnce(&mut Value)) {
    copy_folder(&op_testkit::golden::dir().join("models").join(model), dir);
    let mut config = read(dir);
    change(&mut config);
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
}

fn read(dir: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(dir.join("config.json")).unwrap()).unwrap()
}

/// As the published M2.7: prediction heads and code that are not there, no end token.
fn as_published(config: &mut Value) {
    config["use_mtp"] = json!(true);
    config["num_mtp_modules"] = json!(3);
    config["mtp_transformer_layers"] = json!(1);
    config["auto_map"] = json!({ "AutoConfig": "configuration_minimax_m2.MiniMaxM2Config" });
    config.as_object_mut().unwrap().remove("eos_token_id");
}

#[test]
fn promises_that_the_weights_do_not_keep_are_corrected() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("m27");
    checkpoint("m27-tiny-fp8", &dir, as_published);
    let prepared = corrections(&dir).unwrap();
    let lines: Vec<_> = prepared.corrections.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "use_mtp: false instead of true (the checkpoint has no tensors of prediction heads)",
            "num_mtp_modules: removed (the checkpoint has no tensors of prediction heads)",
            "mtp_transformer_layers: removed (the checkpoint has no tensors of prediction heads)",
            "auto_map: removed (the code that it names is not in the folder)",
            "eos_token_id: 532 added (from generation_config.json: without it a class default takes its place)",
        ]
    );
    // Code that is there stays named.
    fs::write(dir.join("configuration_minimax_m2.py"), "").unwrap();
    assert_eq!(corrections(&dir).unwrap().corrections.len(), 4);
    // M3 keeps them in its text configuration.
    let dir = scratch.path().join("m3");
    checkpoint("m3-tiny-bf16", &dir, |config| config["text_config"]["num_nextn_predict_layers"] = json!(1));
    let fields: Vec<_> = corrections(&dir).unwrap().corrections.into_iter().map(|c| c.field).collect();
    assert!(fields.contains(&"text_config.num_nextn_predict_layers".to_owned()), "{fields:?}");
}

#[cfg(unix)]
#[test]
fn an_overlay_links_to_the_originals() {
    let scratch = Scratch::new();
    let [dir, to] = ["m27", "new/overlay"].map(|name| scratch.path().join(name));
    checkpoint("m27-tiny-fp8", &dir, as_published);
    let before = fs::read_to_string(dir.join("config.json")).unwrap();
    let prepared = overlay(&dir, &to, false).unwrap();
    assert_eq!((prepared.dir.as_path(), prepared.corrections.len()), (to.as_path(), 5));
    assert_eq!(fs::read_to_string(dir.join("config.json")).unwrap(), before);
    let config = read(&to);
    assert_eq!(
        (&config["use_mtp"], &config["eos_token_id"], config.get("auto_map")),
        (&json!(false), &json!(532), None)
    );
    for entry in fs::read_dir(&to).unwrap().map(Result::unwrap) {
        let linked = entry.file_type().unwrap().is_symlink();
        let own = ["config.json", "overlay.json"].contains(&entry.file_name().to_str().unwrap());
        assert_ne!(linked, own, "{:?}", entry.file_name());
    }
    // It is a checkpoint, and right.
    let config = ModelConfig::load(&to).unwrap();
    assert!(Checkpoint::open(&to).unwrap().check(&config).is_clean());
    assert_eq!(corrections(&to).unwrap().corrections, []);

    let refused = |force, what: &str| {
        let error = overlay(&dir, &to, force).unwrap_err();
        assert!(matches!(error, PrepareError::Occupied { .. }) && error.to_string().contains(what), "{error}");
    };
    refused(false, "an overlay, which --force replaces");
    overlay(&dir, &to, true).unwrap();
    fs::write(to.join("notes"), "mine").unwrap();
    refused(true, "neither empty nor an overlay");
    assert!(to.join("notes").exists());
    let error = overlay(&dir, &dir.join("overlay"), false).unwrap_err();
    assert!(matches!(error, PrepareError::Nested { .. }), "{error}");
    let error = overlay(&dir, &dir, true).unwrap_err();
    assert!(matches!(error, PrepareError::Nested { .. }) && dir.join("config.json").exists(), "{error}");
}

#[test]
fn the_original_is_kept_once_and_comes_back() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("m27");
    checkpoint("m27-tiny-bf16", &dir, as_published);
    let original = fs::read(dir.join("config.json")).unwrap();
    assert!(matches!(restore(&dir), Err(PrepareError::NoBackup { .. })));
    assert_eq!(in_place(&dir).unwrap().corrections.len(), 5);
    assert_eq!(fs::read(dir.join("config.json.orig")).unwrap(), original);
    let corrected = fs::read(dir.join("config.json")).unwrap();
    // Nothing to do any more; and what is kept stays the first one, whatever is corrected later.
    assert_eq!(in_place(&dir).unwrap().corrections, []);
    assert_eq!(fs::read(dir.join("config.json")).unwrap(), corrected);
    let mut config = read(&dir);
    config["use_mtp"] = json!(true);
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    assert_eq!(in_place(&dir).unwrap().corrections.len(), 1);
    assert_eq!(fs::read(dir.join("config.json.orig")).unwrap(), original);
    restore(&dir).unwrap();
    assert_eq!(fs::read(dir.join("config.json")).unwrap(), original);
    assert!(!dir.join("config.json.orig").exists());
}

#[test]
fn a_checkpoint_that_is_not_whole_is_not_prepared() {
    let scratch = Scratch::new();
    let [dir, to] = ["m27", "overlay"].map(|name| scratch.path().join(name));
    checkpoint("m27-tiny-fp8", &dir, as_published);
    fs::remove_file(dir.join("model-00001-of-00002.safetensors")).unwrap();
    let error = overlay(&dir, &to, false).unwrap_err();
    assert!(
        matches!(error, PrepareError::Checkpoint(_)) && error.to_string().contains("model-00001-of-00002"),
        "{error}"
    );
    assert!(!to.exists());
    assert!(in_place(&dir).is_err() && !dir.join("config.json.orig").exists());
    assert!(corrections(&scratch.path().join("absent")).is_err());
}

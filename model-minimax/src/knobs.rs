// SPDX-License-Identifier: MIT OR Apache-2.0

//! The environment variables that this program and its kernels read: each with a type, a default and a meaning.
//!
//! A variable that is unset or empty means its default. A value of the wrong type is an error where it is used, and
//! already when the knobs are listed.

use std::collections::BTreeMap;
use std::fmt;

/// What a knob holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A whole number of at least this.
    Count(u64),
    /// A finite number above zero.
    Positive,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl Kind {
    fn accepts(self, value: &str) -> bool {
        match self {
            Self::Text => true,
            Self::Count(least) => value.parse::<u64>().is_ok_and(|n| n >= least),
            Self::Positive => value.parse::<f64>().is_ok_and(|x| x.is_finite() && x > 0.0),
            Self::OneOf(words) => words.contains(&value),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("text"),
            Self::Count(least) => write!(f, "whole number >= {least}"),
            Self::Positive => f.write_str("number > 0"),
            Self::OneOf(words) => f.write_str(&words.join(" | ")),
        }
    }
}

/// One environment variable.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What holds when it is unset, in words.
    pub default: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// The option that overrides it, if there is one.
    pub flag: Option<&'static str>,
    /// Whether its value is nobody's business: it is shown as three dots.
    pub secret: bool,
}

/// A knob set to something impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} should be {expected}, found {found:?}")]
pub struct KnobError {
    /// The variable.
    pub name: &'static str,
    /// What it should hold.
    pub expected: String,
    /// What it holds.
    pub found: String,
}

impl Knob {
    /// Its value, read now; `None` when it is unset or empty.
    ///
    /// # Errors
    /// [`KnobError`] when it holds something that its kind does not allow.
    pub fn value(&self) -> Result<Option<String>, KnobError> {
        self.check(std::env::var_os(self.name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn check(&self, value: Option<String>) -> Result<Option<String>, KnobError> {
        match value.filter(|value| !value.is_empty()) {
            Some(found) if !self.kind.accepts(&found) => {
                Err(KnobError { name: self.name, expected: self.kind.to_string(), found })
            }
            value => Ok(value.map(|value| if self.secret { "...".to_owned() } else { value })),
        }
    }
}

/// The values of all knobs that are set.
///
/// # Errors
/// [`KnobError`] of the first one that is set to something impossible.
pub fn in_force() -> Result<BTreeMap<String, String>, KnobError> {
    let mut set = BTreeMap::new();
    for knob in KNOBS {
        if let Some(value) = knob.value()? {
            set.insert(knob.name.to_owned(), value);
        }
    }
    Ok(set)
}

const fn knob(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    flag: Option<&'static str>,
    doc: &'static str,
) -> Knob {
    Knob { name, kind, default, doc, flag, secret: false }
}

const fn secret(name: &'static str, default: &'static str, flag: Option<&'static str>, doc: &'static str) -> Knob {
    Knob { name, kind: Kind::Text, default, doc, flag, secret: true }
}

/// Every knob, those of the kernels first.
pub const KNOBS: &[Knob] = &[
    knob(
        "CPU_TILES_LEVEL",
        Kind::OneOf(&["scalar", "avx2", "avx512", "avx512bf16"]),
        "best of this CPU",
        None,
        "SIMD level of the CPU kernels; a level that the CPU lacks is an error",
    ),
    knob("RAYON_NUM_THREADS", Kind::Count(1), "physical cores", Some("--threads"), "threads of the CPU kernels"),
    knob(
        "PYPTO_SWIGLU_ALPHA",
        Kind::Positive,
        "1.702",
        None,
        "alpha of the swigluoai activation (MiniMax-M3; MiniMax-M2.7 uses silu and does not read it)",
    ),
    knob(
        "PYPTO_SWIGLU_LIMIT",
        Kind::Positive,
        "7.0",
        None,
        "clamp of the swigluoai activation (MiniMax-M3; MiniMax-M2.7 uses silu and does not read it)",
    ),
    knob(
        "MSA_NTILE",
        Kind::Count(1),
        "512",
        None,
        "keys of a chunk of the sparse attention operators; their published interfaces read it, the model does not",
    ),
    knob(
        "MSA_NQ_TILE",
        Kind::Count(1),
        "as the cache holds",
        None,
        "most queries of a tile of the main branch operator; its published interface reads it, the model does not",
    ),
    knob(
        "MSA_MAX_N",
        Kind::Count(1),
        "2048",
        None,
        "most queries of a call of the main branch operator; its published interface reads it, the model does not",
    ),
    knob(
        "MSA_DTYPE",
        Kind::OneOf(&["fp32", "fp16", "bf16"]),
        "fp32",
        None,
        "number format of the main branch operator; its published interface reads it, the model does not",
    ),
    knob("MODEL_PATH", Kind::Text, "none", Some("--model-path"), "checkpoint folder"),
    knob(
        "VARIANT",
        Kind::OneOf(&["m27", "m3"]),
        "as config.json says",
        Some("--variant"),
        "variant that the checkpoint must be",
    ),
    knob(
        "DEVICE",
        Kind::Text,
        "cpu",
        Some("--device"),
        "device of routed experts and sparse attention: cpu, npu:N (or just N), sim:SOC",
    ),
    knob("TILE_FWK_DEVICE_ID", Kind::Count(0), "0", Some("--device"), "number of the NPU that --device npu means"),
    knob("LAYERS", Kind::Count(1), "all", Some("--max-layers"), "number of layers to run, from the first"),
    knob(
        "ATTENTION",
        Kind::OneOf(&["msa", "dense"]),
        "msa",
        Some("--attention"),
        "what layers with sparse attention attend to: the blocks of keys that their index heads choose, or all keys",
    ),
    knob(
        "INDEXER",
        Kind::OneOf(&["per-kv-head", "shared"]),
        "per-kv-head",
        Some("--indexer"),
        "whose choice of blocks it is: each index head's for its KV head, or one of all index heads together",
    ),
    knob(
        "PREFILL_CHUNK",
        Kind::Count(1),
        "2048",
        Some("--prefill-chunk"),
        "prompt tokens that go through the layers together",
    ),
    knob("NEW_TOKENS", Kind::Count(1), "32", Some("--max-new-tokens"), "bench: tokens per generation"),
    knob("WARMUP", Kind::Count(0), "1", Some("--warmup"), "bench: unmeasured generations per arm"),
    knob("ITERS", Kind::Count(1), "3", Some("--iters"), "bench: measured iterations per arm"),
    knob("PROMPT", Kind::Text, "a sentence about routing", Some("--prompt"), "bench: prompt"),
    knob("ARMS", Kind::Text, "all four", Some("--arms"), "bench: arms to measure, separated by commas"),
    knob("WINDOW", Kind::Count(1), "32", Some("--graph-window"), "bench --static-routing: tokens of the window"),
    knob(
        "REPORT_DIR",
        Kind::Text,
        "the current folder",
        Some("--report-dir"),
        "bench: folder of bench_latest_<arm>.json",
    ),
    knob("GOLDEN_DIR", Kind::Text, "none", Some("--golden"), "parity: folder of golden data"),
    knob(
        "HF_ENDPOINT",
        Kind::Text,
        "https://huggingface.co",
        Some("--endpoint"),
        "download: address of the hub or of a mirror of it",
    ),
    secret("HF_TOKEN", "none", Some("--token"), "download: token for the hub"),
    knob(
        "HF_TOKEN_PATH",
        Kind::Text,
        "token in HF_HOME",
        None,
        "download: file with the token, if there is no HF_TOKEN",
    ),
    knob("HF_HOME", Kind::Text, "~/.cache/huggingface", None, "download: folder whose file `token` holds the token"),
    knob(
        "HF_HUB_OFFLINE",
        Kind::Text,
        "unset",
        Some("--offline"),
        "download: 1 asks nobody and says whether the folder is whole",
    ),
    knob(
        "SSL_CERT_FILE",
        Kind::Text,
        "built-in roots",
        Some("--certificates"),
        "download: file of the certificates to trust, in PEM",
    ),
    knob(
        "MODEL_MINIMAX_CONFIG",
        Kind::Text,
        "model-minimax/config.toml in XDG_CONFIG_HOME",
        None,
        "file with defaults of options, in TOML; set to nothing: none is read",
    ),
    knob("XDG_CONFIG_HOME", Kind::Text, "~/.config", None, "where model-minimax/config.toml is looked for"),
    knob("XDG_CACHE_HOME", Kind::Text, "~/.cache", None, "where model-minimax/ with the synthetic checkpoints is kept"),
    knob("NO_COLOR", Kind::Text, "unset", None, "any value: no progress bar (as does CI)"),
    knob("CI", Kind::Text, "unset", None, "any value: no progress bar (as does NO_COLOR)"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_accept_what_they_say() {
        let cases = [
            (Kind::Count(1), "1", true),
            (Kind::Count(1), "0", false),
            (Kind::Count(0), "0", true),
            (Kind::Count(0), "-1", false),
            (Kind::Count(1), "4 ", false),
            (Kind::Positive, "1.702", true),
            (Kind::Positive, "1e-3", true),
            (Kind::Positive, "0", false),
            (Kind::Positive, "inf", false),
            (Kind::Positive, "NaN", false),
            (Kind::OneOf(&["a", "b"]), "b", true),
            (Kind::OneOf(&["a", "b"]), "B", false),
            (Kind::Text, "anything", true),
        ];
        for (kind, value, accepted) in cases {
            assert_eq!(kind.accepts(value), accepted, "{kind} {value}");
        }
    }

    #[test]
    fn unset_and_empty_mean_the_default_and_nonsense_is_an_error() {
        let alpha = KNOBS.iter().find(|knob| knob.name == "PYPTO_SWIGLU_ALPHA").unwrap();
        assert_eq!(alpha.check(None), Ok(None));
        assert_eq!(alpha.check(Some(String::new())), Ok(None));
        assert_eq!(alpha.check(Some("2".into())), Ok(Some("2".into())));
        let error = alpha.check(Some("two".into())).unwrap_err();
        assert_eq!(error.to_string(), "PYPTO_SWIGLU_ALPHA should be number > 0, found \"two\"");
    }

    #[test]
    fn the_knobs_of_the_operators_are_listed() {
        let of_experts = grouped_gemm::knobs::ALL.map(|knob| knob.name);
        let of_main_branch = msa_main_branch::knobs::all().map(|knob| knob.name);
        for name in of_experts.into_iter().chain(of_main_branch) {
            assert!(KNOBS.iter().any(|knob| knob.name == name), "{name}");
        }
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<&str> = KNOBS.iter().map(|knob| knob.name).collect();
        assert_eq!(names.len(), KNOBS.len());
    }
}

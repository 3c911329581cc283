// SPDX-License-Identifier: MIT OR Apache-2.0

//! Codes of errors, and a page on each: what was read, what was expected, what helps.
//!
//! The first two digits of a code say where an error comes from: 00 the command line, 01 configurations, 02 checkpoints,
//! 03 synthetic and prepared ones, 04 tokenizer and template, 05 model and kernels, 06 generation and benchmarks,
//! 07 comparisons, 08 downloads.

use std::error::Error;

use crate::bench::{BenchError, ReportError};
use crate::checkpoint::synthetic::{SpecError, SyntheticError};
use crate::checkpoint::{CheckpointError, HeaderError, ReadAsError};
use crate::config::ConfigError;
use crate::generate::GenerateError;
use crate::knobs::KnobError;
use crate::model::ModelError;
use crate::model::parity::ParityError;
use crate::model::verify::VerifyError;
use crate::prepare::PrepareError;
use crate::sampling::SamplingError;

/// A page on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// `E` and four digits.
    pub code: &'static str,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// What was read, what was expected, what helps.
    pub text: &'static str,
}

/// The page on a code, which may be written in lower case.
#[must_use]
pub fn explanation(code: &str) -> Option<&'static Explanation> {
    EXPLANATIONS.iter().find(|explanation| explanation.code.eq_ignore_ascii_case(code))
}

/// An error that has a message and a code, and nothing that a program would look into.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Coded {
    code: &'static str,
    message: String,
}

impl Coded {
    /// An error of this code.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The code of an error: that of the first in its chain of causes that has one. Every error type of this library has.
#[must_use]
pub fn code_of(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(code) = code(error) {
            return Some(code);
        }
        cause = error.source();
    }
    None
}

fn code(error: &(dyn Error + 'static)) -> Option<&'static str> {
    macro_rules! of {
        ($($kind:ty => $code:expr),* $(,)?) => {
            $(if let Some(error) = error.downcast_ref::<$kind>() {
                let code: fn(&$kind) -> &'static str = $code;
                return Some(code(error));
            })*
        };
    }
    of! {
        Coded => |error| error.code,
        KnobError => |_| "E0004",
        ConfigError => config,
        CheckpointError => checkpoint,
        HeaderError => |_| "E0208",
        ReadAsError => |_| "E0209",
        SpecError => |_| "E0301",
        SyntheticError => synthetic,
        PrepareError => prepare,
        ModelError => model,
        GenerateError => generate,
        SamplingError => sampling,
        BenchError => |error| match error {
            BenchError::Nothing { .. } => "E0606",
            BenchError::Generate { source, .. } => generate(source),
        },
        ReportError => |_| "E0607",
        ParityError => parity,
        VerifyError => verify,
        cpu_tiles::LevelError => |_| "E0005",
        cpu_tiles::ThreadsError => |_| "E0006",
        cpu_tiles::ShapeError => |_| "E0502",
        grouped_gemm::Error => |_| "E0505",
        msa_indexer::Error => |_| "E0506",
        msa_sparse_decode::Error => |_| "E0506",
        msa_main_branch::Error => |_| "E0506",
    }
    #[cfg(feature = "text")]
    of! {
        crate::text::TokenizerError => tokenizer,
        crate::text::TemplateError => template,
        crate::text::ChatError => |error| match error {
            crate::text::ChatError::Template(error) => template(error),
            crate::text::ChatError::Tokenizer(error) => tokenizer(error),
            crate::text::ChatError::Generate(error) => generate(error),
        },
    }
    #[cfg(feature = "download")]
    of! { crate::download::DownloadError => download }
    None
}

fn config(error: &ConfigError) -> &'static str {
    match error {
        ConfigError::Read { .. } => "E0101",
        ConfigError::Json { .. } => "E0102",
        ConfigError::MissingField { .. } => "E0103",
        ConfigError::WrongType { .. } | ConfigError::OutOfRange { .. } => "E0104",
        ConfigError::Contradiction { .. } => "E0105",
        ConfigError::UnsupportedValue { .. } => "E0106",
        ConfigError::UnknownModelType { .. } | ConfigError::UnknownVariant { .. } => "E0107",
        ConfigError::MaxLayers { .. } => "E0108",
    }
}

fn checkpoint(error: &CheckpointError) -> &'static str {
    match error {
        CheckpointError::NoFolder { .. } => "E0201",
        CheckpointError::List { .. } => "E0202",
        CheckpointError::NoWeights { .. } => "E0203",
        CheckpointError::NoIndex { .. } => "E0204",
        CheckpointError::Index { .. } => "E0205",
        CheckpointError::Unusable(report) if !report.files.is_empty() => "E0206",
        CheckpointError::Unusable(_) => "E0207",
    }
}

fn synthetic(error: &SyntheticError) -> &'static str {
    match error {
        SyntheticError::NoCacheDir => "E0302",
        SyntheticError::DiskSpace { .. } => "E0303",
        SyntheticError::Occupied { .. } => "E0304",
        SyntheticError::Io { .. } => "E0305",
        SyntheticError::Config(error) => config(error),
    }
}

fn prepare(error: &PrepareError) -> &'static str {
    match error {
        PrepareError::Config(error) => config(error),
        PrepareError::Checkpoint(error) => checkpoint(error),
        PrepareError::Occupied { .. } | PrepareError::Nested { .. } => "E0304",
        PrepareError::NoBackup { .. } => "E0306",
        PrepareError::Io { .. } => "E0305",
    }
}

fn model(error: &ModelError) -> &'static str {
    match error {
        ModelError::Checkpoint(error) => checkpoint(error),
        ModelError::NoTokens => "E0601",
        ModelError::OutsideVocab { .. } => "E0602",
        ModelError::TooLong { .. } => "E0603",
        ModelError::Tiles(_) => "E0502",
        ModelError::Experts(_) => "E0505",
        ModelError::Indexer(_) | ModelError::SparseDecode(_) | ModelError::MainBranch(_) => "E0506",
        // Whatever else a device or the cache may say.
        _ => "E0501",
    }
}

fn generate(error: &GenerateError) -> &'static str {
    match error {
        GenerateError::EmptyPrompt | GenerateError::NoNewTokens => "E0601",
        GenerateError::OutsideVocab { .. } => "E0602",
        GenerateError::TooLong { .. } => "E0603",
        GenerateError::Sampling(error) => sampling(error),
        GenerateError::Forward { source, .. } => source.downcast_ref::<ModelError>().map_or("E0501", model),
    }
}

fn sampling(error: &SamplingError) -> &'static str {
    match error {
        SamplingError::Temperature { .. } | SamplingError::TopP { .. } => "E0604",
        SamplingError::Nan { .. } | SamplingError::Empty => "E0605",
    }
}

fn parity(error: &ParityError) -> &'static str {
    match error {
        ParityError::List { .. } | ParityError::Nothing { .. } => "E0701",
        ParityError::Expected { .. } => "E0702",
        ParityError::Config(error) => config(error),
        ParityError::Checkpoint(error) => checkpoint(error),
        ParityError::Model(error) => model(error),
        ParityError::Sampling(error) => sampling(error),
    }
}

fn verify(error: &VerifyError) -> &'static str {
    match error {
        VerifyError::DifferentModels { .. } => "E0704",
        VerifyError::Model { source, .. } => model(source),
        VerifyError::Bundle { .. } | VerifyError::BundleOfOther { .. } => "E0705",
        VerifyError::Write { .. } => "E0706",
    }
}

#[cfg(feature = "text")]
fn tokenizer(error: &crate::text::TokenizerError) -> &'static str {
    use crate::text::TokenizerError;
    match error {
        TokenizerError::Missing { .. } => "E0401",
        TokenizerError::Load { .. } | TokenizerError::NotByteLevel { .. } => "E0402",
        TokenizerError::Encode { .. } => "E0403",
    }
}

#[cfg(feature = "text")]
fn template(error: &crate::text::TemplateError) -> &'static str {
    use crate::text::TemplateError;
    match error {
        TemplateError::Missing { .. } => "E0404",
        TemplateError::Read { .. } | TemplateError::Config { .. } | TemplateError::Syntax { .. } => "E0405",
        TemplateError::Refused(_) | TemplateError::Render { .. } | TemplateError::Json { .. } => "E0406",
        TemplateError::UnknownThinkingMode { .. } | TemplateError::NoThinkingModes { .. } => "E0407",
    }
}

#[cfg(feature = "download")]
fn download(error: &crate::download::DownloadError) -> &'static str {
    use crate::download::DownloadError;
    match error {
        DownloadError::BadModelId { .. } | DownloadError::BadEndpoint { .. } => "E0801",
        DownloadError::Certificates { .. } | DownloadError::NoTls(_) => "E0802",
        DownloadError::Unauthorized { .. } => "E0803",
        DownloadError::NotFound { .. } => "E0804",
        DownloadError::TooManyRequests { .. } => "E0805",
        DownloadError::Status { .. } | DownloadError::Network { .. } => "E0806",
        DownloadError::Listing { .. } => "E0807",
        DownloadError::NothingMatches { .. } => "E0808",
        DownloadError::Length { .. } | DownloadError::Checksum { .. } => "E0809",
        DownloadError::DiskSpace { .. } => "E0810",
        DownloadError::Busy { .. } => "E0811",
        DownloadError::Incomplete { .. } => "E0812",
        DownloadError::Io { .. } => "E0305",
    }
}

const fn page(code: &'static str, title: &'static str, text: &'static str) -> Explanation {
    Explanation { code, title, text }
}

/// Every page, by code.
pub const EXPLANATIONS: &[Explanation] = &[
    page(
        "E0001",
        "no checkpoint was named",
        "A command that runs a model needs a folder with config.json and safetensors files. --model-path names it, or the \
         variable MODEL_PATH. `download` fetches a published one, `synth` writes one with random weights, and --synthetic tiny \
         makes one on the way.",
    ),
    page(
        "E0002",
        "another variant was asked for than the checkpoint is of",
        "--variant, or the variable VARIANT, says m27 or m3, and config.json describes the other. Name the right folder, or \
         leave the variant out: it is read from config.json.",
    ),
    page(
        "E0003",
        "the configuration file cannot be used",
        "The file of MODEL_MINIMAX_CONFIG, else config.toml in model-minimax below XDG_CONFIG_HOME or ~/.config, holds \
         defaults of options: `option = value` for every command that has the option, or below `[command]` for one. The message \
         names the line or the key. An empty MODEL_MINIMAX_CONFIG means no file.",
    ),
    page(
        "E0004",
        "an environment variable holds something impossible",
        "The message names the variable, what it should hold and what it holds. `list-knobs` shows all variables with type, \
         default and value. One that is set to nothing means its default.",
    ),
    page(
        "E0005",
        "the SIMD level is unknown, or this CPU lacks it",
        "CPU_TILES_LEVEL, or --level, names a level: scalar, avx2, avx512 or avx512bf16. The message lists the instructions \
         that are missing. Without a level the best one of the CPU is taken.",
    ),
    page(
        "E0006",
        "the threads cannot be had",
        "--threads, or RAYON_NUM_THREADS, should be a number of at least 1, and the system must grant as many threads. Without \
         it there is one for each physical core. Results do not depend on it.",
    ),
    page("E0007", "there is no such code", "--explain list shows all codes of errors."),
    page(
        "E0008",
        "the options of --other cannot be taken apart",
        "They are words separated by blanks; a word in double quotes may hold blanks, and each quotation mark needs its partner.",
    ),
    page(
        "E0101",
        "config.json cannot be read",
        "The folder has no config.json, or it may not be read. It comes with the weights; a download that was cut may lack it: \
         run `download` again, it fetches only what is missing.",
    ),
    page(
        "E0102",
        "config.json is no JSON object",
        "The message has the line and column. A page of an error, saved under that name, is a common cause: fetch the file again.",
    ),
    page(
        "E0103",
        "config.json lacks a field that has no safe default",
        "A guess would give wrong text without a word. The message names the field and its other spellings. Compare with the \
         published configuration.",
    ),
    page(
        "E0104",
        "a field of config.json has a value of another kind, or out of range",
        "The message names the field, what it should hold and what it holds.",
    ),
    page(
        "E0105",
        "fields of config.json contradict each other",
        "Such as a list of layers that is not as long as there are layers, or heads that do not divide. One of the fields is \
         wrong; nothing says which.",
    ),
    page(
        "E0106",
        "config.json asks for something that is not implemented",
        "The message names the field, its value and what is supported. It is refused, as ignoring it would change the results.",
    ),
    page(
        "E0107",
        "the model is unknown",
        "Supported are MiniMax-M2.7 (`model_type` minimax_m2, short name m27) and MiniMax-M3 (minimax_m3_vl, m3).",
    ),
    page(
        "E0108",
        "more layers were asked for than there are",
        "--max-layers, or LAYERS, should be between 1 and the layers of the checkpoint. LAYERS set to nothing means all.",
    ),
    page(
        "E0201",
        "there is no such checkpoint folder",
        "The message shows what the nearest folder holds. A name of a repository on a hub is no folder: `download` fetches one.",
    ),
    page(
        "E0202",
        "the checkpoint folder cannot be listed",
        "The system's reason follows: most often missing permission.",
    ),
    page(
        "E0203",
        "the folder has no weights",
        "Looked for were model.safetensors.index.json, model.safetensors, and a single *.safetensors file. The message shows \
         what is there. Files in other formats (GGUF, PyTorch) are not read.",
    ),
    page(
        "E0204",
        "there are several weight files and no index",
        "model.safetensors.index.json says which files belong together. Fetch it: \
         `download --allow-pattern model.safetensors.index.json`.",
    ),
    page(
        "E0205",
        "the index cannot be used",
        "model.safetensors.index.json should be a JSON object whose `weight_map` gives the file of each tensor, all below the \
         folder.",
    ),
    page(
        "E0206",
        "files of the checkpoint are absent, cut or damaged",
        "The report names each file and the bytes that are missing. Run `download` again: it goes on where it was, and with \
         --verify it computes the sums of the files that are there.",
    ),
    page(
        "E0207",
        "the tensors are not those that config.json describes",
        "The report lists missing and unexpected tensors with the nearest expected name, shapes, dtypes and grids of scales that \
         do not fit. A configuration of another checkpoint, or one that was saved anew by another program, is a common cause. \
         Nothing is loaded: absent or unscaled weights would give wrong text without a word.",
    ),
    page(
        "E0208",
        "a safetensors file is damaged",
        "The header is checked before a weight is read: its length, its JSON, and that the ranges of the tensors fill the file. \
         A pointer of Git LFS in the place of the weights is named as such.",
    ),
    page(
        "E0209",
        "a tensor was read as another type",
        "A fault of the calling program: a tensor has the type that its header says.",
    ),
    page(
        "E0301",
        "the synthetic checkpoint cannot be of this kind",
        "A spec is a preset (tiny, slice, full, m3-tiny, m3-slice, m3-full), then keys with values, separated by commas: \
         m3-slice,layers=2,experts=64. The message names the key and the values that it may have.",
    ),
    page(
        "E0302",
        "there is no place for synthetic checkpoints",
        "They are kept below XDG_CACHE_HOME, else below ~/.cache. Set one of XDG_CACHE_HOME and HOME to an absolute path, or \
         write one into a folder of your choice with `synth`.",
    ),
    page(
        "E0303",
        "the disk has no room for the synthetic checkpoint",
        "Fewer layers, experts or a smaller vocabulary make it smaller. What earlier runs have kept lies in \
         $XDG_CACHE_HOME/model-minimax or ~/.cache/model-minimax and may be removed.",
    ),
    page(
        "E0304",
        "the place of the new folder is taken",
        "Only an empty folder is written to. --force replaces what this program has written itself, a synthetic checkpoint or \
         an overlay, and nothing else. An overlay must not lie in the checkpoint that it links to.",
    ),
    page(
        "E0305",
        "a file or folder cannot be read or written",
        "The message names it, with the system's reason: permission, a full disk, a path that is no folder.",
    ),
    page(
        "E0306",
        "there is nothing to restore",
        "`prepare --in-place` keeps the original as config.json.orig; the folder has none.",
    ),
    page(
        "E0401",
        "the checkpoint has no tokenizer",
        "tokenizer.json is looked for in the checkpoint's folder. Without it, --prompt-ids and --print-ids work with token ids.",
    ),
    page(
        "E0402",
        "tokenizer.json cannot be used",
        "It should be a byte-level BPE tokenizer in the format of the tokenizers library. The message says what it is instead.",
    ),
    page(
        "E0403",
        "the text could not be encoded",
        "The regular expression of the tokenizer gave up on this text. Cut it, or report it with the text.",
    ),
    page(
        "E0404",
        "the checkpoint has no chat template",
        "Looked for were chat_template.jinja and `chat_template` of tokenizer_config.json. --raw sends the prompt as it is.",
    ),
    page("E0405", "the chat template cannot be used", "It cannot be read or does not parse; the message has the line."),
    page(
        "E0406",
        "the chat template refuses the messages, or fails on them",
        "A template may refuse roles in a wrong order with a message of its own; otherwise the line of the template follows.",
    ),
    page(
        "E0407",
        "there is no such thinking mode",
        "Known are enabled, disabled and adaptive, and only a template that reads `thinking_mode`, as that of MiniMax-M3, has \
         the choice.",
    ),
    page(
        "E0501",
        "the model failed",
        "The message says in what: the cache of keys and values, or a device. With a model that fits the memory and a sequence \
         that fits the model this should not happen; report it with the message.",
    ),
    page(
        "E0502",
        "shapes do not fit, or memory ran out",
        "A buffer could not be had: use --load mmap, a shorter prompt or a smaller --prefill-chunk.",
    ),
    page(
        "E0505",
        "the experts could not be run",
        "The operator grouped-gemm refused its arguments; it names the argument, the expected and the found shape. \
         PYPTO_SWIGLU_ALPHA and PYPTO_SWIGLU_LIMIT change its activation.",
    ),
    page(
        "E0506",
        "sparse attention could not be run",
        "One of the operators msa-indexer, msa-sparse-decode and msa-main-branch refused its arguments; it names the argument, \
         the expected and the found. --attention dense does without them.",
    ),
    page(
        "E0601",
        "there is nothing to do",
        "The prompt has no token, or no new tokens were asked for. Both should be at least 1.",
    ),
    page(
        "E0602",
        "a token id is outside the vocabulary",
        "Ids are below vocab_size of config.json. A tokenizer of another checkpoint is a common cause.",
    ),
    page(
        "E0603",
        "the sequence would be too long",
        "Prompt and new tokens together must not exceed max_position_embeddings of config.json. Shorten the prompt, ask for \
         fewer tokens, or in a conversation begin again with /reset.",
    ),
    page(
        "E0604",
        "a sampling option is impossible",
        "--temperature is finite and at least 0, --top-p above 0 and at most 1. --temperature 0 is greedy.",
    ),
    page(
        "E0605",
        "there is no token to choose",
        "A logit is not a number. Weights with NaN, or a damaged checkpoint, do that; `verify` finds the layer.",
    ),
    page("E0606", "nothing is measured", "--iters and --arms should be at least 1."),
    page(
        "E0607",
        "the report cannot be written",
        "Its place is tried before anything is measured. The folder must exist and be writable; --report-dir and --report-file \
         name another.",
    ),
    page(
        "E0701",
        "there is no golden data",
        "--golden, or GOLDEN_DIR, names the folder of a model with expected.safetensors, a folder of such folders, or one with a \
         folder `models`. In the repository it is ops/testkit/golden.",
    ),
    page(
        "E0702",
        "the expected results cannot be used",
        "expected.safetensors lacks a tensor or has one of another type; the message names it.",
    ),
    page(
        "E0703",
        "the two sides, or the model and its golden data, differ",
        "Not an error of the program: the report on stdout says where. `replay` runs a stage that `verify` has recorded again.",
    ),
    page(
        "E0704",
        "the two sides are different models",
        "Both must have the same variant and sizes; --max-layers holds for both.",
    ),
    page(
        "E0705",
        "the bundle cannot be used",
        "It should be a file that `verify` has written, of a model with the same sizes and at least as many layers.",
    ),
    page("E0706", "the bundle cannot be written", "--bundle names another place."),
    page(
        "E0801",
        "the address of the download is wrong",
        "--model-id is owner/name; --endpoint begins with https:// or http://.",
    ),
    page(
        "E0802",
        "there is no TLS",
        "The file of --certificates or SSL_CERT_FILE should hold certificates in PEM. The built-in cryptography needs a \
         processor with AES, AVX2, ADX and BMI2, or an Arm one with AES and SHA2 instructions; the message names what is missing.",
    ),
    page(
        "E0803",
        "the hub refuses",
        "Without a token: the repository is private, has terms to be accepted, or does not exist. Give a token by --token, \
         HF_TOKEN, or the file of HF_TOKEN_PATH. With one: its owner has no access; accept the terms on the repository's page.",
    ),
    page(
        "E0804",
        "there is no such repository, revision or file",
        "Compare --model-id and --revision with the repository's page.",
    ),
    page(
        "E0805",
        "too many requests",
        "The hub asks for a pause, which was kept, in vain. Try later, with a token, or with a smaller --parallel.",
    ),
    page(
        "E0806",
        "the connection failed",
        "What has arrived is kept: run the same command again. HTTPS_PROXY and HF_ENDPOINT name a proxy and a mirror; --retries \
         raises the number of attempts.",
    ),
    page(
        "E0807",
        "the list of files cannot be used",
        "The endpoint should answer as the hub does, with lengths and sums; a mirror with another interface does not.",
    ),
    page(
        "E0808",
        "no file passes the patterns",
        "The message shows files of the repository. `*` stands for anything, `/` included.",
    ),
    page(
        "E0809",
        "a file does not have the length or sum that the hub says",
        "It never reaches its place in the folder. A proxy that changes content, or a mirror that is behind, does that: try \
         another endpoint.",
    ),
    page(
        "E0810",
        "the disk has no room for the download",
        "The message has the bytes that are needed. --output-dir names another place; patterns choose files.",
    ),
    page("E0811", "another download into this folder goes on", "Wait for it; the lock goes with the process."),
    page(
        "E0812",
        "offline, and the folder is not whole",
        "With --offline or HF_HUB_OFFLINE nobody is asked. Leave it out to fetch what is missing.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_in_order_and_say_something() {
        for pair in EXPLANATIONS.windows(2) {
            assert!(pair[0].code < pair[1].code, "{} {}", pair[0].code, pair[1].code);
        }
        for page in EXPLANATIONS {
            let digits = page.code.strip_prefix('E').unwrap_or_default();
            assert!(digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit()), "{}", page.code);
            assert!(page.title.len() > 10 && page.text.len() > 20 && !page.text.contains("  "), "{}", page.code);
        }
        assert_eq!(explanation("e0201").map(|page| page.code), Some("E0201"));
        assert_eq!(explanation("E9999"), None);
    }

    #[test]
    fn every_code_that_is_given_has_its_page() {
        // The codes in this file outside of the pages themselves.
        let source = include_str!("explain.rs");
        let (given, _) = source.split_once("/// Every page, by code.").unwrap_or_default();
        let codes: Vec<&str> = given.split('"').filter(|word| word.len() == 5 && word.starts_with("E0")).collect();
        assert!(codes.len() > 60, "{}", codes.len());
        for code in codes {
            assert!(explanation(code).is_some(), "{code}");
        }
    }

    #[test]
    fn causes_are_looked_into() {
        let inner = ConfigError::MaxLayers { requested: 9, available: 2 };
        assert_eq!(code_of(&inner), Some("E0108"));
        assert_eq!(code_of(&ParityError::Config(inner)), Some("E0108"));
        let forward = ModelError::TooLong { found: 9, max: 8 };
        let error = GenerateError::Forward { position: 0, source: Box::new(forward) };
        assert_eq!(code_of(&error), Some("E0603"));
        assert_eq!(code_of(&std::io::Error::other("x")), None);
        assert_eq!(code_of(&Coded::new("E0001", "x")), Some("E0001"));
    }
}

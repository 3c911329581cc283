// SPDX-License-Identifier: MIT OR Apache-2.0

//! The configuration of a checkpoint: `config.json` and the stop ids of the files around it.
//!
//! Both spellings are read: the published one (`rope_theta`, `rotary_dim`, `attn_type_list`) and the one that
//! transformers 5 writes when it saves a model again (`rope_parameters`, `layer_types`, `dtype`). A value that this
//! crate does not implement is an error, never a silent default; so is a field that the arithmetic depends on and
//! that is absent.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde_json::{Map, Value};

/// Accepted widths, vocabularies and context lengths.
const SIZE: RangeInclusive<usize> = 1..=1 << 24;
/// Accepted counts of layers, heads and experts.
const COUNT: RangeInclusive<usize> = 1..=1024;

/// Rows and columns of the blocks that share one F32 scale in an FP8 checkpoint.
pub const FP8_BLOCK: [usize; 2] = [128, 128];

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not JSON, or not a JSON object.
    #[error("{} is not a JSON object: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where parsing stopped.
        source: serde_json::Error,
    },
    /// A field that has no safe default is absent.
    #[error("{} has no field {field}", path.display())]
    MissingField {
        /// The file.
        path: PathBuf,
        /// The field, with its other spellings.
        field: String,
    },
    /// A field holds another kind of value.
    #[error("{}: `{field}` should be {expected}, found {found}", path.display())]
    WrongType {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What the field should hold.
        expected: &'static str,
        /// The value as JSON.
        found: String,
    },
    /// A size is zero or implausibly large.
    #[error("{}: `{field}` should be between {} and {}, found {found}", path.display(), range.start(), range.end())]
    OutOfRange {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// The accepted values.
        range: RangeInclusive<usize>,
        /// The value.
        found: u64,
    },
    /// Two fields cannot both be right.
    #[error("{}: {what}", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// The fields with their values.
        what: String,
    },
    /// A field asks for something that this crate does not implement.
    #[error("{}: `{field}` is {found}, supported is {supported}", path.display())]
    UnsupportedValue {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// The value as JSON.
        found: String,
        /// What would be accepted.
        supported: &'static str,
    },
    /// `model_type` names another family of models.
    #[error("{}: `model_type` is {found}, known are \"minimax_m2\" (MiniMax-M2.7) and \"minimax_m3_vl\" (MiniMax-M3)", path.display())]
    UnknownModelType {
        /// The file.
        path: PathBuf,
        /// The value as JSON.
        found: String,
    },
    /// The checkpoint is of a known variant that cannot be run yet.
    #[error("{} describes {variant}, which this version does not support yet; it runs {}", path.display(), Variant::M27)]
    UnsupportedVariant {
        /// The file.
        path: PathBuf,
        /// The variant.
        variant: Variant,
    },
    /// A variant name that nothing is known about.
    #[error("unknown variant \"{found}\"; known are \"m27\" ({}) and \"m3\" ({})", Variant::M27, Variant::M3)]
    UnknownVariant {
        /// The name.
        found: String,
    },
    /// More or fewer layers asked for than the checkpoint has.
    #[error("max layers should be between 1 and {available} (the layers of the checkpoint), found {requested}")]
    MaxLayers {
        /// The layers asked for.
        requested: usize,
        /// The layers of the checkpoint.
        available: usize,
    },
}

/// A variant of the model family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// MiniMax-M2.7; short name `m27`.
    M27,
    /// MiniMax-M3; short name `m3`.
    M3,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::M27 => "MiniMax-M2.7",
            Self::M3 => "MiniMax-M3",
        })
    }
}

impl FromStr for Variant {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        match name {
            "m27" => Ok(Self::M27),
            "m3" => Ok(Self::M3),
            _ => Err(ConfigError::UnknownVariant { found: name.to_owned() }),
        }
    }
}

/// Activation of the expert MLP.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HiddenAct {
    /// `silu(w1 x) * (w3 x)`.
    Silu,
}

/// What one RMS norm of the query and key projections spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkNorm {
    /// All heads together: one weight per projected channel.
    PerLayer,
}

/// How the linear weights of the checkpoint are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightFormat {
    /// BF16 throughout.
    Bf16,
    /// E4M3 codes with one F32 multiplier per block of [`FP8_BLOCK`].
    Fp8Block {
        /// Modules that stay BF16 (`modules_to_not_convert`): whole dotted names or a run of their components.
        not_converted: Vec<String>,
    },
}

impl WeightFormat {
    /// Whether the linear layer `module` (its name without `.weight`) is stored as FP8 blocks.
    pub fn is_fp8(&self, module: &str) -> bool {
        match self {
            Self::Bf16 => false,
            Self::Fp8Block { not_converted } => {
                let module = format!(".{module}.");
                !not_converted.iter().any(|skip| module.contains(&format!(".{skip}.")))
            }
        }
    }
}

/// Geometry and arithmetic of a model; the field names are those of `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The file it was read from.
    pub path: PathBuf,
    /// The variant.
    pub variant: Variant,
    /// Width H of the residual stream.
    pub hidden_size: usize,
    /// Layers to run; see [`ModelConfig::with_max_layers`].
    pub num_hidden_layers: usize,
    /// Layers in the checkpoint.
    pub checkpoint_layers: usize,
    /// Layers that hold multi-token prediction heads, numbered from `checkpoint_layers`. Never run; often declared
    /// without being shipped.
    pub mtp_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; divides `num_attention_heads`.
    pub num_key_value_heads: usize,
    /// Channels per head.
    pub head_dim: usize,
    /// Channels of each head that are rotated, from the first; even.
    pub rotary_dim: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Span of the query and key norms.
    pub qk_norm: QkNorm,
    /// Epsilon of every RMS norm.
    pub rms_norm_eps: f32,
    /// Width I of one expert.
    pub intermediate_size: usize,
    /// Experts E per layer.
    pub num_local_experts: usize,
    /// Experts that each token is sent to.
    pub num_experts_per_tok: usize,
    /// Activation of the experts.
    pub hidden_act: HiddenAct,
    /// Rows of the embedding and of the output head.
    pub vocab_size: usize,
    /// Longest sequence, prompt and generated tokens together.
    pub max_position_embeddings: usize,
    /// Storage of the linear weights.
    pub weight_format: WeightFormat,
    /// `eos_token_id` as written: none, one or several ids.
    pub eos_token_ids: Vec<i64>,
}

impl ModelConfig {
    /// Reads `config.json` in the folder `dir`.
    ///
    /// # Errors
    /// Every variant of [`ConfigError`] except `MaxLayers` and `UnknownVariant`.
    pub fn load(dir: &Path) -> Result<Self, ConfigError> {
        let path = dir.join("config.json");
        Self::from_json(&read(&path)?, &path)
    }

    /// Parses the text of a `config.json`; `path` names it in errors.
    ///
    /// # Errors
    /// As [`ModelConfig::load`], without `Read`.
    pub fn from_json(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let fields = Fields::parse(text, path)?;
        match fields.variant()? {
            Variant::M27 => fields.m27(),
            variant => Err(ConfigError::UnsupportedVariant { path: path.to_owned(), variant }),
        }
    }

    /// The same model cut to its first `layers` layers.
    ///
    /// # Errors
    /// [`ConfigError::MaxLayers`] unless `1 <= layers <= checkpoint_layers`.
    pub fn with_max_layers(mut self, layers: usize) -> Result<Self, ConfigError> {
        if !(1..=self.checkpoint_layers).contains(&layers) {
            return Err(ConfigError::MaxLayers { requested: layers, available: self.checkpoint_layers });
        }
        self.num_hidden_layers = layers;
        Ok(self)
    }

    /// Rows of the query projection: `num_attention_heads * head_dim`.
    pub fn q_size(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }

    /// Rows of the key and of the value projection: `num_key_value_heads * head_dim`.
    pub fn kv_size(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

/// The fields of one JSON object, with the file that errors name.
struct Fields<'a> {
    path: &'a Path,
    /// Where the object lies in the file: empty, or a field name and a dot.
    prefix: String,
    map: Map<String, Value>,
}

impl<'a> Fields<'a> {
    fn parse(text: &str, path: &'a Path) -> Result<Self, ConfigError> {
        match serde_json::from_str(text) {
            Ok(map) => Ok(Self { path, prefix: String::new(), map }),
            Err(source) => Err(ConfigError::Json { path: path.to_owned(), source }),
        }
    }

    fn path(&self) -> PathBuf {
        self.path.to_owned()
    }

    /// The field, unless it is absent or null.
    fn get(&self, field: &str) -> Option<&Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    fn full_name(&self, field: &str) -> String {
        format!("{}{field}", self.prefix)
    }

    fn missing(&self, field: &str) -> ConfigError {
        ConfigError::MissingField { path: self.path(), field: self.full_name(field) }
    }

    fn wrong_type(&self, field: &str, expected: &'static str, found: &Value) -> ConfigError {
        ConfigError::WrongType { path: self.path(), field: self.full_name(field), expected, found: found.to_string() }
    }

    fn contradiction(&self, what: String) -> ConfigError {
        ConfigError::Contradiction { path: self.path(), what }
    }

    /// Fails unless the field is absent or holds what `accept` accepts.
    fn only(&self, field: &str, supported: &'static str, accept: impl Fn(&Value) -> bool) -> Result<(), ConfigError> {
        match self.get(field) {
            Some(value) if !accept(value) => Err(ConfigError::UnsupportedValue {
                path: self.path(),
                field: self.full_name(field),
                found: value.to_string(),
                supported,
            }),
            _ => Ok(()),
        }
    }

    /// Fails unless the field is absent or has `layers` entries that `accept` accepts.
    fn only_per_layer(
        &self,
        field: &str,
        layers: usize,
        supported: &'static str,
        accept: impl Fn(&Value) -> bool,
    ) -> Result<(), ConfigError> {
        let Some(value) = self.get(field) else { return Ok(()) };
        let list = value.as_array().ok_or_else(|| self.wrong_type(field, "a list with one entry per layer", value))?;
        if list.len() != layers {
            let entries = list.len();
            return Err(self.contradiction(format!("`{field}` has {entries} entries, `num_hidden_layers` is {layers}")));
        }
        self.only(field, supported, |_| list.iter().all(&accept))
    }

    fn optional_size(&self, field: &str, range: RangeInclusive<usize>) -> Result<Option<usize>, ConfigError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let found = value.as_u64().ok_or_else(|| self.wrong_type(field, "a whole number", value))?;
        match usize::try_from(found) {
            Ok(size) if range.contains(&size) => Ok(Some(size)),
            _ => Err(ConfigError::OutOfRange { path: self.path(), field: self.full_name(field), range, found }),
        }
    }

    fn size(&self, field: &str, range: RangeInclusive<usize>) -> Result<usize, ConfigError> {
        self.optional_size(field, range)?.ok_or_else(|| self.missing(field))
    }

    fn positive(&self, field: &str) -> Result<Option<f64>, ConfigError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if number > 0.0 => Ok(Some(number)),
            _ => Err(self.wrong_type(field, "a number above zero", value)),
        }
    }

    /// A nested object; absent and null are empty.
    fn object(&self, field: &str) -> Result<Self, ConfigError> {
        let map = match self.get(field) {
            None => Map::new(),
            Some(Value::Object(map)) => map.clone(),
            Some(value) => return Err(self.wrong_type(field, "an object", value)),
        };
        Ok(Self { path: self.path, prefix: format!("{}.", self.full_name(field)), map })
    }

    /// None, one or several token ids, as `eos_token_id` holds them.
    fn token_ids(&self, field: &str) -> Result<Vec<i64>, ConfigError> {
        let Some(value) = self.get(field) else { return Ok(Vec::new()) };
        let ids = match value {
            Value::Array(list) => list.iter().map(Value::as_i64).collect(),
            one => one.as_i64().map(|id| vec![id]),
        };
        ids.ok_or_else(|| self.wrong_type(field, "a token id or a list of token ids", value))
    }

    fn variant(&self) -> Result<Variant, ConfigError> {
        let value = self.get("model_type").ok_or_else(|| self.missing("model_type"))?;
        match value.as_str() {
            Some("minimax_m2") => Ok(Variant::M27),
            Some(name) if name.starts_with("minimax_m3") => Ok(Variant::M3),
            _ => Err(ConfigError::UnknownModelType { path: self.path(), found: value.to_string() }),
        }
    }

    fn m27(&self) -> Result<ModelConfig, ConfigError> {
        let layers = self.size("num_hidden_layers", COUNT)?;
        let num_attention_heads = self.size("num_attention_heads", COUNT)?;
        let num_key_value_heads = self.size("num_key_value_heads", COUNT)?;
        let head_dim = self.size("head_dim", SIZE)?;
        let num_local_experts = self.size("num_local_experts", COUNT)?;
        let num_experts_per_tok = self.size("num_experts_per_tok", COUNT)?;
        if num_attention_heads % num_key_value_heads != 0 {
            return Err(self.contradiction(format!(
                "`num_attention_heads` {num_attention_heads} is not a multiple of `num_key_value_heads` {num_key_value_heads}"
            )));
        }
        if num_experts_per_tok > num_local_experts {
            return Err(self.contradiction(format!(
                "`num_experts_per_tok` {num_experts_per_tok} exceeds `num_local_experts` {num_local_experts}"
            )));
        }
        self.only_per_layer("attn_type_list", layers, "1 (full attention) for every layer", |v| v == 1)?;
        self.only_per_layer("layer_types", layers, "\"full_attention\" for every layer", |v| v == "full_attention")?;
        self.only("use_qk_norm", "true", |v| v == true)?;
        self.only("qk_norm_type", "\"per_layer\"", |v| v == "per_layer")?;
        self.only("hidden_act", "\"silu\"", |v| v == "silu")?;
        self.only("scoring_func", "\"sigmoid\"", |v| v == "sigmoid")?;
        self.only("use_routing_bias", "true", |v| v == true)?;
        self.only("shared_intermediate_size", "0 (no shared expert)", |v| v == 0)?;
        self.only("tie_word_embeddings", "false", |v| v == false)?;
        self.only("attention_bias", "false", |v| v == false)?;
        self.only("sliding_window", "null", |_| false)?;
        for field in ["dtype", "torch_dtype"] {
            self.only(field, "\"bfloat16\"", |v| v == "bfloat16")?;
        }
        let (rope_theta, rotary_dim) = self.rope(head_dim)?;

        Ok(ModelConfig {
            path: self.path(),
            variant: Variant::M27,
            hidden_size: self.size("hidden_size", SIZE)?,
            num_hidden_layers: layers,
            checkpoint_layers: layers,
            mtp_layers: self.mtp_layers()?,
            num_attention_heads,
            num_key_value_heads,
            head_dim,
            rotary_dim,
            rope_theta,
            qk_norm: QkNorm::PerLayer,
            rms_norm_eps: self.positive("rms_norm_eps")?.ok_or_else(|| self.missing("rms_norm_eps"))? as f32,
            intermediate_size: self.size("intermediate_size", SIZE)?,
            num_local_experts,
            num_experts_per_tok,
            hidden_act: HiddenAct::Silu,
            vocab_size: self.size("vocab_size", SIZE)?,
            max_position_embeddings: self.size("max_position_embeddings", SIZE)?,
            weight_format: self.weight_format()?,
            eos_token_ids: self.token_ids("eos_token_id")?,
        })
    }

    fn mtp_layers(&self) -> Result<usize, ConfigError> {
        if self.get("use_mtp").is_none_or(|v| v == false) {
            return Ok(0);
        }
        let modules = self.optional_size("num_mtp_modules", 0..=*COUNT.end())?.unwrap_or(1);
        Ok(modules * self.optional_size("mtp_transformer_layers", COUNT)?.unwrap_or(1))
    }

    /// Base of the frequencies and the number of rotated channels.
    fn rope(&self, head_dim: usize) -> Result<(f64, usize), ConfigError> {
        let nested = self.object("rope_parameters")?;
        for rope in [&nested, &self.object("rope_scaling")?] {
            for field in ["rope_type", "type"] {
                rope.only(field, "\"default\"", |v| v == "default")?;
            }
        }
        let theta = match self.positive("rope_theta")? {
            None => nested.positive("rope_theta")?,
            published => published,
        };
        let theta = theta.ok_or_else(|| self.missing("rope_theta (or rope_parameters.rope_theta)"))?;

        let factor = match self.positive("partial_rotary_factor")? {
            None => nested.positive("partial_rotary_factor")?,
            published => published,
        };
        let by_factor = factor.map(|factor| factor * head_dim as f64);
        let rotary_dim = match (self.optional_size("rotary_dim", SIZE)?, by_factor) {
            (None, None) => {
                return Err(
                    self.missing("rotary_dim (or partial_rotary_factor, or rope_parameters.partial_rotary_factor)")
                );
            }
            (Some(dim), Some(by_factor)) if dim as f64 != by_factor => {
                return Err(self.contradiction(format!(
                    "`rotary_dim` is {dim}, `partial_rotary_factor` times `head_dim` is {by_factor}"
                )));
            }
            (Some(dim), _) => dim as f64,
            (None, Some(by_factor)) => by_factor,
        };
        if rotary_dim > head_dim as f64 || rotary_dim % 2.0 != 0.0 {
            return Err(self.contradiction(format!(
                "the rotated channels should be an even number up to `head_dim` {head_dim}, found {rotary_dim}"
            )));
        }
        Ok((theta, rotary_dim as usize))
    }

    fn weight_format(&self) -> Result<WeightFormat, ConfigError> {
        if self.get("quantization_config").is_none() {
            return Ok(WeightFormat::Bf16);
        }
        let quant = self.object("quantization_config")?;
        quant.get("quant_method").ok_or_else(|| quant.missing("quant_method"))?;
        quant.only("quant_method", "\"fp8\"", |v| v == "fp8")?;
        quant.only("fmt", "\"float8_e4m3fn\"", |v| v == "float8_e4m3fn" || v == "e4m3")?;
        quant.only("activation_scheme", "\"dynamic\"", |v| v == "dynamic")?;
        quant.get("weight_block_size").ok_or_else(|| quant.missing("weight_block_size"))?;
        quant.only("weight_block_size", "[128,128]", |v| *v == Value::from(FP8_BLOCK.to_vec()))?;
        let list = quant.get("modules_to_not_convert").cloned().unwrap_or_else(|| Value::Array(Vec::new()));
        let not_converted = list.as_array().and_then(|names| {
            names.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>()
        });
        match not_converted {
            Some(not_converted) => Ok(WeightFormat::Fp8Block { not_converted }),
            None => Err(quant.wrong_type("modules_to_not_convert", "a list of module names", &list)),
        }
    }
}

/// A file that can name end-of-sequence tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EosSource {
    /// `generation_config.json`.
    GenerationConfig,
    /// `config.json`.
    Config,
    /// The `eos_token` of `tokenizer_config.json`.
    Tokenizer,
}

impl fmt::Display for EosSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GenerationConfig => "generation_config.json",
            Self::Config => "config.json",
            Self::Tokenizer => "tokenizer_config.json",
        })
    }
}

/// The tokens that end a generation: the union of all sources.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StopIds {
    /// Each id with the files that name it.
    pub ids: BTreeMap<u32, Vec<EosSource>>,
    /// Ids outside the vocabulary, which can never be generated. Worth a warning: the files do not fit together.
    pub outside_vocab: Vec<(i64, EosSource)>,
}

impl StopIds {
    /// Collects the ids of `generation_config.json` in `dir` (optional), of `config`, and `tokenizer_eos`: the id that
    /// the tokenizer gives to [`tokenizer_eos_token`]. No id anywhere is allowed; a generation then runs to its limit.
    ///
    /// # Errors
    /// `Read`, `Json` or `WrongType` for a `generation_config.json` that is there but unusable.
    pub fn collect(dir: &Path, config: &ModelConfig, tokenizer_eos: Option<u32>) -> Result<Self, ConfigError> {
        let generation = optional_fields(&dir.join("generation_config.json"), |f| f.token_ids("eos_token_id"))?;
        let tokenizer: Vec<i64> = tokenizer_eos.map(i64::from).into_iter().collect();
        let mut stops = Self::default();
        for (source, ids) in [
            (EosSource::GenerationConfig, &generation.unwrap_or_default()),
            (EosSource::Config, &config.eos_token_ids),
            (EosSource::Tokenizer, &tokenizer),
        ] {
            for &id in ids {
                match u32::try_from(id) {
                    Ok(token) if (token as usize) < config.vocab_size => {
                        let sources = stops.ids.entry(token).or_default();
                        if !sources.contains(&source) {
                            sources.push(source);
                        }
                    }
                    _ => stops.outside_vocab.push((id, source)),
                }
            }
        }
        Ok(stops)
    }

    /// Whether `id` ends a generation.
    pub fn contains(&self, id: u32) -> bool {
        self.ids.contains_key(&id)
    }
}

/// The `eos_token` of `tokenizer_config.json` in `dir`, written as a string or as an object with `content`.
/// `None` if there is no such file or field.
///
/// # Errors
/// `Read`, `Json` or `WrongType` for a file that is there but unusable.
pub fn tokenizer_eos_token(dir: &Path) -> Result<Option<String>, ConfigError> {
    let token = optional_fields(&dir.join("tokenizer_config.json"), |fields| {
        let Some(value) = fields.get("eos_token") else { return Ok(None) };
        let text = value.as_str().or_else(|| value.get("content")?.as_str());
        match text {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(fields.wrong_type("eos_token", "a string or an object with `content`", value)),
        }
    })?;
    Ok(token.flatten())
}

/// What `read_fields` finds in the JSON object at `path`; `None` if the file does not exist.
fn optional_fields<T>(
    path: &Path,
    read_fields: impl FnOnce(&Fields<'_>) -> Result<T, ConfigError>,
) -> Result<Option<T>, ConfigError> {
    match read(path) {
        Err(ConfigError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(text) => read_fields(&Fields::parse(&text, path)?).map(Some),
    }
}

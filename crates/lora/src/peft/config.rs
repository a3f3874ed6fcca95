//! Parsing of PEFT's configuration, `adapter_config.json`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    marker::PhantomData,
};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::Value;

use super::{
    error::PeftError,
    limits::{LAYERS_MAX, NAMES_MAX, PATTERNS_MAX, RANK_MAX},
    pattern::{Pattern, PatternKey},
    target::{LayerSelector, ModuleSelector, TargetModules},
};

/// The fields of `adapter_config.json` that decide the output.
///
/// Unknown fields that are `null`, `false` or empty are ignored. All others are refused, because they
/// may change the output.
#[derive(Clone, Debug)]
pub struct Config {
    base_model: Option<String>,
    rank: usize,
    alpha: f64,
    rslora: bool,
    dora: bool,
    ranks: Vec<(PatternKey, usize)>,
    alphas: Vec<(PatternKey, f64)>,
    pub(super) target: TargetModules,
}

// Fields that do not affect the output: they control the training or describe the file's origin. The
// settings of the four initialisers have no effect without `init_lora_weights`, which is checked.
// `fan_in_fan_out` is the memory layout of the base model's weight, which `BaseWeights` defines.
const WITHOUT_EFFECT: [&str; 15] = [
    "auto_mapping",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "fan_in_fan_out",
    "inference_mode",
    "loftq_config",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "velora_config",
];

// The greatest alpha. Scales in use are below a thousand, and products with them must be finite in
// 32-bit floats.
const ALPHA_MAX: f64 = 1e6;

// Initialisations of A and B that do not change the base model's weights.
const HARMLESS_STARTS: [&str; 6] = ["gaussian", "eva", "orthogonal", "mica", "true", "false"];

// Tasks whose model returns hidden states or tokens and has no head of its own.
const TASKS: [&str; 2] = ["CAUSAL_LM", "FEATURE_EXTRACTION"];

impl Config {
    /// Parses the bytes of `adapter_config.json`.
    ///
    /// # Errors
    /// If they are not JSON of that shape, or if a field has a value that is not supported.
    pub fn parse(bytes: &[u8]) -> Result<Config, PeftError> {
        let file: ConfigFile = serde_json::from_slice(bytes)
            .map_err(|error| PeftError::Json { reason: error.to_string() })?;
        file.refuse_unsupported_fields()?;
        let target = file.target_modules()?;
        Ok(Config {
            rank: check_rank("r", file.r.unwrap_or(8))?,
            alpha: check_alpha("lora_alpha", file.lora_alpha.unwrap_or(8.0))?,
            rslora: file.use_rslora.unwrap_or(false),
            dora: file.use_dora.unwrap_or(false),
            ranks: parse_patterns("rank_pattern", file.rank_pattern, check_rank)?,
            alphas: parse_patterns("alpha_pattern", file.alpha_pattern, check_alpha)?,
            base_model: file.base_model_name_or_path,
            target,
        })
    }

    /// The base model that the adapter was trained on.
    pub fn base_model(&self) -> Option<&str> {
        self.base_model.as_deref()
    }

    /// `r`: the rank of modules without a pattern.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// `lora_alpha` of modules without a pattern.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// `use_rslora`: whether the scale is alpha over the rank's square root.
    pub fn is_rslora(&self) -> bool {
        self.rslora
    }

    /// `use_dora`: whether the adapter has a magnitude for each output.
    pub fn is_dora(&self) -> bool {
        self.dora
    }

    /// The rank of the module at `path`, a path within the base model.
    ///
    /// # Errors
    /// If matching a pattern takes too many steps.
    pub fn module_rank(&self, path: &str) -> Result<usize, PeftError> {
        Ok(first_matching_value(&self.ranks, path)?.unwrap_or(self.rank))
    }

    /// Returns whether the adapter changes the module at `path`.
    ///
    /// # Errors
    /// If matching a pattern takes too many steps.
    pub fn targets_module(&self, path: &str) -> Result<bool, PeftError> {
        self.target.selects(path)
    }

    /// The scale of the module at `path`.
    ///
    /// # Errors
    /// If matching a pattern takes too many steps.
    pub fn module_scale(&self, path: &str) -> Result<f64, PeftError> {
        let alpha = first_matching_value(&self.alphas, path)?.unwrap_or(self.alpha);
        let rank = self.module_rank(path)? as f64;
        Ok(if self.rslora { alpha / rank.sqrt() } else { alpha / rank })
    }
}

fn first_matching_value<T: Copy>(
    patterns: &[(PatternKey, T)],
    path: &str,
) -> Result<Option<T>, PeftError> {
    for (key, value) in patterns {
        if key.matches(path)? {
            return Ok(Some(*value));
        }
    }
    Ok(None)
}

/// The fields of the file. `null` is the same as an absent field; the defaults are PEFT's.
#[derive(Deserialize)]
struct ConfigFile {
    peft_type: Option<String>,
    task_type: Option<String>,
    base_model_name_or_path: Option<String>,
    r: Option<u64>,
    lora_alpha: Option<f64>,
    use_rslora: Option<bool>,
    use_dora: Option<bool>,
    lora_bias: Option<bool>,
    bias: Option<String>,
    rank_pattern: Option<OrderedMap<u64>>,
    alpha_pattern: Option<OrderedMap<f64>>,
    target_modules: Option<OneOrMany<String>>,
    exclude_modules: Option<OneOrMany<String>>,
    layers_to_transform: Option<OneOrMany<i64>>,
    layers_pattern: Option<OneOrMany<String>>,
    modules_to_save: Option<Value>,
    init_lora_weights: Option<Value>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    Single(T),
    Many(Vec<T>),
}

/// A JSON object whose order matters: the first pattern that matches decides.
struct OrderedMap<T>(Vec<(String, T)>);

impl ConfigFile {
    fn refuse_unsupported_fields(&self) -> Result<(), PeftError> {
        let refuse = |field: &str, wanted, got: String| {
            let got = got.chars().take(200).collect();
            Err(PeftError::Field { field: field.into(), wanted, got })
        };
        match self.peft_type.as_deref() {
            Some("LORA") => {}
            Some(other) => return refuse("peft_type", "LORA", other.into()),
            None => return refuse("peft_type", "LORA", "nothing".into()),
        }
        if let Some(task) = self.task_type.as_deref()
            && !TASKS.contains(&task)
        {
            return refuse("task_type", "CAUSAL_LM or FEATURE_EXTRACTION", task.into());
        }
        if let Some(bias) = self.bias.as_deref().filter(|bias| *bias != "none") {
            return refuse("bias", "none", bias.into());
        }
        if self.lora_bias == Some(true) {
            return refuse("lora_bias", "false", "true".into());
        }
        if let Some(modules) = self.modules_to_save.as_ref().filter(|value| !is_unset(value)) {
            return refuse("modules_to_save", "null or an empty list", modules.to_string());
        }
        match &self.init_lora_weights {
            None | Some(Value::Null | Value::Bool(_)) => {}
            Some(Value::String(name))
                if HARMLESS_STARTS.contains(&name.to_lowercase().as_str()) => {}
            Some(other) => {
                let wanted = "an initialisation that does not change the base model's weights";
                return refuse("init_lora_weights", wanted, other.to_string());
            }
        }
        let unknown = self
            .rest
            .iter()
            .find(|(field, value)| !WITHOUT_EFFECT.contains(&field.as_str()) && !is_unset(value));
        match unknown {
            Some((field, value)) => {
                refuse(field, "an absent, null, false or empty field", value.to_string())
            }
            None => Ok(()),
        }
    }

    fn target_modules(&self) -> Result<TargetModules, PeftError> {
        let Some(chosen) = &self.target_modules else {
            return Err(field_error("target_modules", "names, a pattern or all-linear", "nothing"));
        };
        let is_pattern = matches!(chosen, OneOrMany::Single(_));
        let chosen = match chosen {
            OneOrMany::Single(text) if text.eq_ignore_ascii_case("all-linear") => {
                ModuleSelector::All
            }
            chosen => parse_names("target_modules", chosen)?,
        };
        // PEFT treats an empty string or list as absent.
        let excluded = match &self.exclude_modules {
            None => None,
            Some(OneOrMany::Single(text)) if text.is_empty() => None,
            Some(excluded) => Some(parse_names("exclude_modules", excluded)?),
        };
        if is_pattern && self.layers_to_transform.is_some() {
            let wanted = "a list of names, because layers_to_transform is set";
            return Err(field_error("target_modules", wanted, "a pattern"));
        }
        Ok(TargetModules { chosen, excluded, layers: self.layer_selector()? })
    }

    fn layer_selector(&self) -> Result<Option<LayerSelector>, PeftError> {
        let patterns: Vec<&str> = match &self.layers_pattern {
            None => Vec::new(),
            Some(OneOrMany::Single(text)) => {
                Some(text.as_str()).filter(|text| !text.is_empty()).into_iter().collect()
            }
            Some(OneOrMany::Many(list)) => list.iter().map(String::as_str).collect(),
        };
        let Some(indices) = &self.layers_to_transform else {
            return match patterns.first() {
                Some(got) => {
                    Err(field_error("layers_pattern", "layers_to_transform to be set too", got))
                }
                None => Ok(None),
            };
        };
        let indices: &[i64] = match indices {
            OneOrMany::Single(index) => std::slice::from_ref(index),
            OneOrMany::Many(list) if list.is_empty() => return Ok(None),
            OneOrMany::Many(list) => list,
        };
        check_limit("layers_pattern", PATTERNS_MAX, patterns.len())?;
        let index = |index: &i64| match u32::try_from(*index) {
            Ok(index) if index < LAYERS_MAX => Ok(index),
            _ => {
                Err(field_error("layers_to_transform", "layers from 0 to 1023", &index.to_string()))
            }
        };
        let indices = indices.iter().map(index).collect::<Result<BTreeSet<u32>, _>>()?;
        let compiled = patterns.iter().map(|pattern| {
            Pattern::compile("layers_pattern", pattern, &LayerSelector::layer_pattern(pattern))
        });
        let patterns = match patterns.is_empty() {
            true => vec![Pattern::compile("layers_pattern", "", LayerSelector::ANY)?],
            false => compiled.collect::<Result<_, _>>()?,
        };
        Ok(Some(LayerSelector { indices, patterns }))
    }
}

fn parse_names(
    field: &'static str,
    names: &OneOrMany<String>,
) -> Result<ModuleSelector, PeftError> {
    match names {
        OneOrMany::Single(pattern) => {
            Pattern::compile_full_match(field, pattern).map(ModuleSelector::Pattern)
        }
        OneOrMany::Many(list) => {
            check_limit(field, NAMES_MAX, list.len())?;
            Ok(ModuleSelector::List(list.iter().cloned().collect()))
        }
    }
}

fn parse_patterns<T, U>(
    field: &'static str,
    map: Option<OrderedMap<T>>,
    check: fn(&'static str, T) -> Result<U, PeftError>,
) -> Result<Vec<(PatternKey, U)>, PeftError> {
    let entries = map.map_or_else(Vec::new, |map| map.0);
    check_limit(field, PATTERNS_MAX, entries.len())?;
    let entry =
        |(key, value): (String, T)| Ok((PatternKey::new(field, &key)?, check(field, value)?));
    entries.into_iter().map(entry).collect()
}

fn check_rank(name: &'static str, rank: u64) -> Result<usize, PeftError> {
    match usize::try_from(rank) {
        Ok(rank) if (1..=RANK_MAX).contains(&rank) => Ok(rank),
        _ => Err(field_error(name, "a rank from 1 to 4096", &rank.to_string())),
    }
}

fn check_alpha(name: &'static str, value: f64) -> Result<f64, PeftError> {
    match value.abs() <= ALPHA_MAX {
        true => Ok(value),
        false => Err(field_error(name, "a number of at most a million", &value.to_string())),
    }
}

fn check_limit(what: &str, limit: usize, got: usize) -> Result<(), PeftError> {
    match got <= limit {
        true => Ok(()),
        false => {
            let what = format!("entries of {what}");
            Err(PeftError::Limit { what, limit: limit as u64, got: got as u64 })
        }
    }
}

fn field_error(field: &str, wanted: &'static str, got: &str) -> PeftError {
    PeftError::Field { field: field.into(), wanted, got: got.into() }
}

fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OrderedMapVisitor(PhantomData))
    }
}

struct OrderedMapVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OrderedMapVisitor<T> {
    type Value = OrderedMap<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a map of patterns")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedMap<T>, A::Error> {
        let mut entries: Vec<(String, T)> = Vec::new();
        let mut seen = BTreeSet::new();
        while let Some((key, value)) = map.next_entry::<String, T>()? {
            if !seen.insert(key.clone()) {
                return Err(serde::de::Error::custom(format_args!("pattern {key:?} twice")));
            }
            entries.push((key, value));
        }
        Ok(OrderedMap(entries))
    }
}

use std::{collections::HashSet, path::Path};

use crate::{error::EngineError, request::Prompt};
use serde::Deserialize;
use serde_json::Value;
use tokenizers::Tokenizer;

use super::{
    chat_template::{CHATML, ChatTemplate},
    error::TextError,
    manifest::read_limited,
};

/// Text in, tokens out.
pub struct Text {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    end_of_text: HashSet<u32>,
}

/// The largest tokenizers have a quarter of a million entries in some 30 MiB.
const TOKENIZER_BYTES_MAX: u64 = 128 << 20;
const SMALL_BYTES_MAX: u64 = 4 << 20;

impl Text {
    /// Reads tokenizer, chat template and end-of-text tokens of the model in this folder.
    ///
    /// # Errors
    /// Whatever is wrong with a file, see [`TextError`].
    pub fn load(dir: &Path) -> Result<Self, TextError> {
        let path = dir.join("tokenizer.json");
        let tokenizer = Tokenizer::from_bytes(read_limited(&path, TOKENIZER_BYTES_MAX)?)
            .map_err(|error| TextError::malformed(&path, error))?;
        let mut end_of_text = HashSet::new();
        for name in ["config.json", "generation_config.json"] {
            let ends: Ends = read_json(&dir.join(name))?;
            end_of_text.extend(ends.eos_token_id.map_or(Vec::new(), Ids::into_vec));
        }
        Ok(Self { tokenizer, template: template(dir)?, end_of_text })
    }

    /// The tokenizer itself.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Ids from here on are no token.
    pub fn vocabulary(&self) -> usize {
        let added = self.tokenizer.get_added_tokens_decoder();
        let past_added = added.keys().max().map_or(0, |id| *id as usize + 1);
        self.tokenizer.get_vocab_size(false).max(past_added)
    }

    /// Whether the model ends its answer with this token.
    pub fn ends(&self, id: u32) -> bool {
        self.end_of_text.contains(&id)
    }

    /// Every token that is not text, the end of it included.
    pub fn special(&self) -> HashSet<u32> {
        let added = self.tokenizer.get_added_tokens_decoder();
        let special = added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id);
        special.chain(self.end_of_text.iter().copied()).collect()
    }

    /// The tokens with which the model ends its answer.
    pub fn end_of_text(&self) -> &HashSet<u32> {
        &self.end_of_text
    }

    /// The tokens of a prompt; at least one.
    ///
    /// # Errors
    /// [`EngineError::Prompt`] where it cannot be rendered or has no token.
    pub fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, EngineError> {
        let failed = |reason: String| EngineError::Prompt { reason };
        let encoding = match prompt {
            // A template writes the special tokens itself.
            Prompt::Chat(messages) => self.tokenizer.encode(self.template.render(messages)?, false),
            Prompt::Text(text) => self.tokenizer.encode(text.as_str(), true),
        };
        let ids = encoding.map_err(|error| failed(error.to_string()))?.get_ids().to_vec();
        match ids.is_empty() {
            true => Err(failed("it has no token".into())),
            false => Ok(ids),
        }
    }
}

/// What `config.json` and `generation_config.json` say alike.
#[derive(Default, Deserialize)]
struct Ends {
    eos_token_id: Option<Ids>,
}

/// One token id, or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Many(Vec<u32>),
}

impl Ids {
    fn into_vec(self) -> Vec<u32> {
        match self {
            Ids::One(id) => vec![id],
            Ids::Many(ids) => ids,
        }
    }
}

#[derive(Default, Deserialize)]
struct TokenizerConfig {
    chat_template: Option<Value>,
    bos_token: Option<Value>,
    eos_token: Option<Value>,
}

fn template(dir: &Path) -> Result<ChatTemplate, TextError> {
    let path = dir.join("tokenizer_config.json");
    let config: TokenizerConfig = read_json(&path)?;
    let own = dir.join("chat_template.jinja");
    let source = match own.exists() {
        true => {
            let bytes = read_limited(&own, SMALL_BYTES_MAX)?;
            String::from_utf8(bytes).map_err(|error| TextError::malformed(&own, error))?
        }
        false => named_template(config.chat_template).unwrap_or_else(|| CHATML.into()),
    };
    ChatTemplate::new(&source, word(config.bos_token), word(config.eos_token))
        .map_err(|error| TextError::malformed(&path, format!("chat template: {error}")))
}

/// A template, or the one called `default` in a list of them.
fn named_template(value: Option<Value>) -> Option<String> {
    match value? {
        Value::String(source) => Some(source),
        Value::Array(list) => {
            let default = list.iter().find(|item| item["name"] == "default")?;
            default["template"].as_str().map(str::to_owned)
        }
        _ => None,
    }
}

/// A special token, given as text or as an object.
fn word(value: Option<Value>) -> String {
    match value {
        Some(Value::String(text)) => text,
        Some(object) => object["content"].as_str().unwrap_or_default().to_owned(),
        None => String::new(),
    }
}

/// Reads a small JSON file; one that is not there is empty.
fn read_json<T: Default + serde::de::DeserializeOwned>(path: &Path) -> Result<T, TextError> {
    if !path.exists() {
        return Ok(T::default());
    }
    let bytes = read_limited(path, SMALL_BYTES_MAX)?;
    serde_json::from_slice(&bytes).map_err(|error| TextError::malformed(path, error))
}

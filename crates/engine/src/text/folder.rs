//! Tokenizer, chat template and end-of-text tokens of a model's folder.

use std::{collections::HashSet, path::Path};

use crate::{error::EngineError, request::Prompt};
use serde::Deserialize;
use serde_json::Value;
use tokenizers::Tokenizer;

use super::{
    chat_template::{CHATML, ChatTemplate},
    error::FolderError,
    manifest::read_file_limited,
};

/// The tokenizer, chat template and end-of-text tokens of a model, which convert prompts to token
/// numbers.
pub struct ModelText {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    end_of_text: HashSet<u32>,
}

/// The longest `tokenizer.json`, in bytes. The largest have a quarter of a million entries in some
/// 30 MiB.
const TOKENIZER_BYTES_MAX: u64 = 128 << 20;
const SMALL_BYTES_MAX: u64 = 4 << 20;

impl ModelText {
    /// Reads tokenizer, chat template and end-of-text tokens of the model in this folder.
    ///
    /// # Errors
    /// [`FolderError`] for the first file that is missing, too long or malformed.
    pub fn load(dir: &Path) -> Result<Self, FolderError> {
        let path = dir.join("tokenizer.json");
        let tokenizer = Tokenizer::from_bytes(read_file_limited(&path, TOKENIZER_BYTES_MAX)?)
            .map_err(|error| FolderError::malformed_file(&path, error))?;
        let mut end_of_text = HashSet::new();
        for name in ["config.json", "generation_config.json"] {
            let ends: EndOfTextConfig = read_json(&dir.join(name))?;
            end_of_text.extend(ends.eos_token_id.map_or(Vec::new(), TokenIds::into_vec));
        }
        Ok(Self { tokenizer, template: load_chat_template(dir)?, end_of_text })
    }

    /// The tokenizer of the model.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The size of the vocabulary. All token numbers are below it.
    pub fn vocabulary_size(&self) -> usize {
        let added = self.tokenizer.get_added_tokens_decoder();
        let past_added = added.keys().max().map_or(0, |id| *id as usize + 1);
        self.tokenizer.get_vocab_size(false).max(past_added)
    }

    /// Whether the model ends its answer with this token.
    pub fn is_end_of_text(&self, id: u32) -> bool {
        self.end_of_text.contains(&id)
    }

    /// The special tokens, including the end-of-text tokens.
    pub fn special_tokens(&self) -> HashSet<u32> {
        let added = self.tokenizer.get_added_tokens_decoder();
        let special = added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id);
        special.chain(self.end_of_text.iter().copied()).collect()
    }

    /// The tokens with which the model ends its answer.
    pub fn end_of_text_tokens(&self) -> &HashSet<u32> {
        &self.end_of_text
    }

    /// Tokenises a prompt; returns at least one token.
    ///
    /// # Errors
    /// [`EngineError::Prompt`] if the prompt cannot be rendered or has no token.
    pub fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, EngineError> {
        let failed = |reason: String| EngineError::Prompt { reason };
        let encoding = match prompt {
            // A template adds the special tokens itself.
            Prompt::Chat(messages) => self.tokenizer.encode(self.template.render(messages)?, false),
            Prompt::Text(text) => self.tokenizer.encode(text.as_str(), true),
        };
        let ids = encoding.map_err(|error| failed(error.to_string()))?.get_ids().to_vec();
        if ids.is_empty() {
            return Err(failed("it has no tokens".into()));
        }
        Ok(ids)
    }
}

/// The field that `config.json` and `generation_config.json` share.
#[derive(Default, Deserialize)]
struct EndOfTextConfig {
    eos_token_id: Option<TokenIds>,
}

/// A single token number, or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum TokenIds {
    Single(u32),
    Several(Vec<u32>),
}

impl TokenIds {
    fn into_vec(self) -> Vec<u32> {
        match self {
            TokenIds::Single(id) => vec![id],
            TokenIds::Several(ids) => ids,
        }
    }
}

#[derive(Default, Deserialize)]
struct TokenizerConfig {
    chat_template: Option<Value>,
    bos_token: Option<Value>,
    eos_token: Option<Value>,
}

fn load_chat_template(dir: &Path) -> Result<ChatTemplate, FolderError> {
    let path = dir.join("tokenizer_config.json");
    let config: TokenizerConfig = read_json(&path)?;
    let own = dir.join("chat_template.jinja");
    let source = if own.exists() {
        let bytes = read_file_limited(&own, SMALL_BYTES_MAX)?;
        String::from_utf8(bytes).map_err(|error| FolderError::malformed_file(&own, error))?
    } else {
        extract_chat_template(config.chat_template).unwrap_or_else(|| CHATML.into())
    };
    ChatTemplate::new(
        &source,
        special_token_text(config.bos_token),
        special_token_text(config.eos_token),
    )
    .map_err(|error| FolderError::malformed_file(&path, format!("chat template: {error}")))
}

/// Extracts the chat template from a value: a string, or the entry named `default` of a list.
fn extract_chat_template(value: Option<Value>) -> Option<String> {
    match value? {
        Value::String(source) => Some(source),
        Value::Array(list) => {
            let default = list.iter().find(|item| item["name"] == "default")?;
            default["template"].as_str().map(str::to_owned)
        }
        _ => None,
    }
}

/// Extracts the text of a special token from a string or an object.
fn special_token_text(value: Option<Value>) -> String {
    match value {
        Some(Value::String(text)) => text,
        Some(object) => object["content"].as_str().unwrap_or_default().to_owned(),
        None => String::new(),
    }
}

/// Names a model after its folder: the last component of the folder's absolute path.
pub fn model_name_from_folder(dir: &Path) -> String {
    let absolute = dir.canonicalize().unwrap_or_else(|_| dir.into());
    absolute.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned())
}

/// Reads a small JSON file; a missing file counts as the default.
fn read_json<T: Default + serde::de::DeserializeOwned>(path: &Path) -> Result<T, FolderError> {
    if !path.exists() {
        return Ok(T::default());
    }
    let bytes = read_file_limited(path, SMALL_BYTES_MAX)?;
    serde_json::from_slice(&bytes).map_err(|error| FolderError::malformed_file(path, error))
}

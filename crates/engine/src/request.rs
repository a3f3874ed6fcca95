//! A request for a completion: prompt, sampling and limits.

use crate::error::EngineError;

/// A request for a completion.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Name of the model.
    pub model: String,
    /// The text or conversation to complete.
    pub prompt: Prompt,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// The longest completion in tokens; with `None` the engine decides.
    pub max_tokens: Option<u32>,
    /// The longest prompt that the caller accepts, in tokens.
    pub prompt_tokens_max: u32,
    /// Stop strings: the completion ends before the first of them.
    pub stop: Vec<String>,
    /// Whether to generate `max_tokens` tokens even if the model ends its answer earlier.
    pub ignore_eos: bool,
}

impl Request {
    /// A request with greedy sampling and without limits.
    pub fn new(model: impl Into<String>, prompt: Prompt) -> Self {
        Self {
            model: model.into(),
            prompt,
            sampling: Sampling::default(),
            max_tokens: None,
            prompt_tokens_max: u32::MAX,
            stop: Vec::new(),
            ignore_eos: false,
        }
    }

    /// The number of tokens that remain for the completion in a context of `context_tokens` after a
    /// prompt of `got` tokens.
    ///
    /// # Errors
    /// [`EngineError::PromptTooLong`] if the prompt exceeds the request's limit or leaves no room
    /// for a token.
    pub fn remaining_completion_tokens(
        &self,
        got: u32,
        context_tokens: u32,
    ) -> Result<u32, EngineError> {
        let limit = self.prompt_tokens_max.min(context_tokens.saturating_sub(1));
        if got > limit {
            return Err(EngineError::PromptTooLong { got, limit });
        }
        Ok(context_tokens - got)
    }
}

/// The text or conversation that a request completes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// A conversation, rendered by the model's chat template.
    Chat(Vec<Message>),
    /// A text, completed as it is.
    Text(String),
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The role of the author.
    pub role: Role,
    /// The text of the message.
    pub content: String,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The model (`assistant`).
    Assistant,
    /// The application's own instructions (`system`; `developer` is read as this).
    System,
    /// The person (`user`).
    User,
}

impl Role {
    /// The word that chat templates use.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Assistant => "assistant",
            Role::System => "system",
            Role::User => "user",
        }
    }

    /// The role with this name; `None` if it is unknown.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "assistant" => Role::Assistant,
            "developer" | "system" => Role::System,
            "user" => Role::User,
            _ => return None,
        })
    }
}

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The temperature: 0 takes the likeliest token; a larger value divides the logits.
    pub temperature: f32,
    /// Tokens are chosen from the smallest set of likeliest tokens whose probabilities reach this
    /// sum, in (0, 1].
    pub top_p: f32,
    /// The random seed: the same seed, request and machine produce the same tokens.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_p: 1.0, seed: 0 }
    }
}

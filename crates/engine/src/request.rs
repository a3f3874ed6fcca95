//! A request for a completion: prompt, sampling and limits.

use crate::error::EngineError;

/// What to complete, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Name of the model.
    pub model: String,
    /// What to complete.
    pub prompt: Prompt,
    /// How a token is chosen.
    pub sampling: Sampling,
    /// Longest completion in tokens; `None` leaves it to the engine.
    pub max_tokens: Option<u32>,
    /// Longest prompt that the caller admits, in tokens.
    pub prompt_tokens_max: u32,
    /// The completion ends before the first of these.
    pub stop: Vec<String>,
    /// Go on to `max_tokens` whatever the model says. Random weights stop early otherwise.
    pub ignore_eos: bool,
}

impl Request {
    /// A greedy request without limits of its own.
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

    /// Tokens that a context of `context_tokens` has left for the completion after a prompt of `got` tokens.
    ///
    /// # Errors
    /// [`EngineError::PromptTooLong`] where the prompt exceeds the request's limit or leaves no room for a token.
    pub fn room_after(&self, got: u32, context_tokens: u32) -> Result<u32, EngineError> {
        let limit = self.prompt_tokens_max.min(context_tokens.saturating_sub(1));
        if got > limit {
            return Err(EngineError::PromptTooLong { got, limit });
        }
        Ok(context_tokens - got)
    }
}

/// What is to be completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// A conversation, rendered by the model's chat template.
    Chat(Vec<Message>),
    /// Text as it stands.
    Text(String),
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

/// Who speaks in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The model.
    Assistant,
    /// The application's own instructions (`developer` is read as this).
    System,
    /// The person.
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

    /// The role with this name.
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
    /// 0 takes the likeliest token; the logits are divided by anything above.
    pub temperature: f32,
    /// Choose among the likeliest tokens whose probabilities first reach this sum, in (0, 1].
    pub top_p: f32,
    /// The same seed, request and machine give the same tokens.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_p: 1.0, seed: 0 }
    }
}

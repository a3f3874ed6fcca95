//! The generative operations that telemetry distinguishes.

use http::Method;

/// A generative operation, by the names of OpenTelemetry's `gen_ai.operation.name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A chat, in any of OpenAI's or Anthropic's forms.
    Chat,
    /// A completion of a text.
    TextCompletion,
    /// Embeddings of texts.
    Embeddings,
}

impl Operation {
    /// The number of operations.
    pub(crate) const COUNT: usize = 3;

    /// The operation of a request; `None` for requests that run no model, and for operations that
    /// have no name in the conventions. `path` is normalised.
    pub(crate) fn from_request(method: &Method, path: &str) -> Option<Self> {
        if method != Method::POST {
            return None;
        }
        match path {
            "/v1/chat/completions" | "/v1/messages" | "/v1/responses" => Some(Self::Chat),
            "/v1/completions" => Some(Self::TextCompletion),
            "/v1/embeddings" => Some(Self::Embeddings),
            _ => None,
        }
    }

    /// The value of `gen_ai.operation.name`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::TextCompletion => "text_completion",
            Self::Embeddings => "embeddings",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_that_run_a_model_are_operations() {
        for (method, path, wanted) in [
            (Method::POST, "/v1/chat/completions", Some("chat")),
            (Method::POST, "/v1/messages", Some("chat")),
            (Method::POST, "/v1/completions", Some("text_completion")),
            (Method::POST, "/v1/embeddings", Some("embeddings")),
            (Method::GET, "/v1/chat/completions", None),
            (Method::POST, "/v1/messages/count_tokens", None),
            (Method::GET, "/v1/models", None),
        ] {
            let operation = Operation::from_request(&method, path);
            assert_eq!(operation.map(Operation::name), wanted, "{method} {path}");
        }
    }
}

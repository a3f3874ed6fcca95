//! The fields of a query, as report 003 defines them.

use confide_engine::{Message, Prompt, Request, Role, Sampling};
use confide_serve::{ApiError, JsonFields};
use serde_json::Value;

use super::route_state::RouteState;
use crate::error::no_adapter_error;

/// A query to `chat/compare` or `chat/stream`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChatQuery {
    pub(super) text: String,
    pub(super) max_tokens: u32,
    pub(super) sampling: Sampling,
    /// The adapter that answers; the active one if `None`.
    pub(super) adapter: Option<String>,
    /// Whether the adapter answers, or else the base model.
    pub(super) adapted: bool,
    pub(super) session_id: Option<String>,
    /// The fields of the query that the server does not support; the answer lists them.
    pub(super) ignored: Vec<&'static str>,
}

/// The default of `max_tokens`. The report's measurement uses 16.
const MAX_TOKENS_DEFAULT: i64 = 64;
const MAX_TOKENS_MAX: i64 = 8192;

impl ChatQuery {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        let mut fields = JsonFields::parse(bytes)?;
        let text = fields.take_text("query")?;
        let text = text.ok_or_else(|| ApiError::Missing { param: "query".into() })?;
        let max_tokens = fields.take_integer("max_tokens", 1..=MAX_TOKENS_MAX)?;
        let sampling = Sampling {
            temperature: fields.take_number("temperature", 0.0..=2.0)?.unwrap_or(0.0) as f32,
            top_p: fields.take_number("top_p", 0.0..=1.0)?.unwrap_or(1.0) as f32,
            seed: fields.take_integer("seed", i64::MIN..=i64::MAX)?.unwrap_or(0).cast_unsigned(),
        };
        let mut ignored = Vec::new();
        // 0 means no limit, and at temperature 0 the number of candidates does not change the choice.
        if fields.take_integer("top_k", 0..=i64::from(i32::MAX))?.is_some_and(|k| k > 1)
            && sampling.temperature > 0.0
        {
            ignored.push("top_k");
        }
        let adapter = match fields.take_text("adapter")? {
            Some(name) => Some(name),
            None => fields.take_text("expert_name")?,
        };
        let adapted = fields.take("use_he").is_none_or(|value| value != Value::Bool(false));
        let session_id = fields.take_text("session_id")?;
        fields.finish(&["type"])?;
        let max_tokens = max_tokens.unwrap_or(MAX_TOKENS_DEFAULT).unsigned_abs();
        let max_tokens = u32::try_from(max_tokens).unwrap_or(u32::MAX);
        Ok(Self { text, max_tokens, sampling, adapter, adapted, session_id, ignored })
    }

    /// Converts the query to a request to `model`.
    pub(super) fn to_request(&self, model: &str, state: &RouteState) -> Request {
        let said = Message { role: Role::User, content: self.text.clone() };
        Request {
            sampling: self.sampling,
            max_tokens: Some(self.max_tokens),
            prompt_tokens_max: state.server.limits().prompt_tokens,
            ..Request::new(model, Prompt::Chat(vec![said]))
        }
    }

    /// The name of the adapter that answers: the one in the query, or the active one.
    ///
    /// # Errors
    /// If the named adapter is not loaded, or if none is named and none is active.
    pub(super) fn adapter_name(&self, state: &RouteState) -> Result<String, ApiError> {
        match &self.adapter {
            Some(name) => Ok(state.server.find_model(name)?.name),
            None => {
                let active = state.server.adapters().active().ok_or_else(no_adapter_error)?;
                Ok(active.name.clone())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_report_003_are_read_and_what_cannot_be_done_is_named() {
        let query = ChatQuery::parse(
            br#"{"query":"a","max_tokens":16,"temperature":0.7,"top_p":0.9,"top_k":50,
                "use_he":true,"session_id":"s","expert_name":"banking"}"#,
        )
        .expect("a query");
        assert_eq!((query.max_tokens, query.ignored), (16, vec!["top_k"]));
        assert_eq!(query.adapter.as_deref(), Some("banking"));
        let plain =
            ChatQuery::parse(br#"{"query":"a","use_he":false,"top_k":50}"#).expect("a query");
        assert!(!plain.adapted && plain.ignored.is_empty());
        for bad in [&br"{}"[..], br#"{"query":"a","max_tokens":0}"#, br#"{"query":1}"#, b"x"] {
            assert!(ChatQuery::parse(bad).is_err());
        }
    }
}

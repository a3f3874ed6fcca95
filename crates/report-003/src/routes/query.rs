//! The fields of a query, as report 003 defines them.

use confide_engine::{Message, Prompt, Request, Role, Sampling};
use confide_serve::{ApiError, Fields};
use serde_json::Value;

use super::layer::Layer;
use crate::error::no_adapter;

/// A query to `chat/compare` or `chat/stream`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Query {
    pub(super) text: String,
    pub(super) max_tokens: u32,
    pub(super) sampling: Sampling,
    /// The adapter that answers; the active one where none is named.
    pub(super) adapter: Option<String>,
    /// Whether the adapter answers; if not, the base model does.
    pub(super) adapted: bool,
    pub(super) session_id: Option<String>,
    /// The fields of the query that cannot be honoured, which the answer lists.
    pub(super) ignored: Vec<&'static str>,
}

/// The default of `max_tokens`. The report's measurement takes 16.
const MAX_TOKENS_DEFAULT: i64 = 64;
const MAX_TOKENS_MAX: i64 = 8192;

impl Query {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(bytes)?;
        let text = fields.text("query")?;
        let text = text.ok_or_else(|| ApiError::Missing { param: "query".into() })?;
        let max_tokens = fields.integer("max_tokens", 1..=MAX_TOKENS_MAX)?;
        let sampling = Sampling {
            temperature: fields.number("temperature", 0.0..=2.0)?.unwrap_or(0.0) as f32,
            top_p: fields.number("top_p", 0.0..=1.0)?.unwrap_or(1.0) as f32,
            seed: fields.integer("seed", i64::MIN..=i64::MAX)?.unwrap_or(0).cast_unsigned(),
        };
        let mut ignored = Vec::new();
        // 0 asks for nothing; at temperature 0 no number of candidates changes the choice.
        if fields.integer("top_k", 0..=i64::from(i32::MAX))?.is_some_and(|k| k > 1)
            && sampling.temperature > 0.0
        {
            ignored.push("top_k");
        }
        let adapter = match fields.text("adapter")? {
            Some(name) => Some(name),
            None => fields.text("expert_name")?,
        };
        let adapted = fields.take("use_he").is_none_or(|value| value != Value::Bool(false));
        let session_id = fields.text("session_id")?;
        fields.finish(&["type"])?;
        let max_tokens = max_tokens.unwrap_or(MAX_TOKENS_DEFAULT).unsigned_abs();
        let max_tokens = u32::try_from(max_tokens).unwrap_or(u32::MAX);
        Ok(Self { text, max_tokens, sampling, adapter, adapted, session_id, ignored })
    }

    /// The query as a request to `model`.
    pub(super) fn request(&self, model: &str, layer: &Layer) -> Request {
        let said = Message { role: Role::User, content: self.text.clone() };
        Request {
            sampling: self.sampling,
            max_tokens: Some(self.max_tokens),
            prompt_tokens_max: layer.server.limits().prompt_tokens,
            ..Request::new(model, Prompt::Chat(vec![said]))
        }
    }

    /// The name of the adapter that answers, if one is asked for.
    ///
    /// # Errors
    /// An error if none is loaded, and where the one that is named is not.
    pub(super) fn adapter_name(&self, layer: &Layer) -> Result<String, ApiError> {
        match &self.adapter {
            Some(name) => Ok(layer.server.model(name)?.name),
            None => {
                let active = layer.server.adapters().active().ok_or_else(no_adapter)?;
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
        let query = Query::parse(
            br#"{"query":"a","max_tokens":16,"temperature":0.7,"top_p":0.9,"top_k":50,
                "use_he":true,"session_id":"s","expert_name":"banking"}"#,
        )
        .expect("a query");
        assert_eq!((query.max_tokens, query.ignored), (16, vec!["top_k"]));
        assert_eq!(query.adapter.as_deref(), Some("banking"));
        let plain = Query::parse(br#"{"query":"a","use_he":false,"top_k":50}"#).expect("a query");
        assert!(!plain.adapted && plain.ignored.is_empty());
        for bad in [&br"{}"[..], br#"{"query":"a","max_tokens":0}"#, br#"{"query":1}"#, b"x"] {
            assert!(Query::parse(bad).is_err());
        }
    }
}

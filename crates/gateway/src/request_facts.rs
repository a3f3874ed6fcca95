//! What a request asks for, as far as its receipt names it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The largest number of bytes of a model's name or of a value in a receipt.
const TEXT_BYTES_MAX: usize = 256;

/// What a request asks for, as far as a receipt names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFacts {
    pub(crate) model: Option<String>,
    /// The JSON texts of the sampling parameters, by their names.
    pub(crate) sampling: BTreeMap<&'static str, String>,
}

/// The members of a request's body that a receipt names.
#[derive(Deserialize)]
struct RequestMembers {
    model: Option<Value>,
    temperature: Option<Value>,
    top_p: Option<Value>,
    top_k: Option<Value>,
    max_tokens: Option<Value>,
    max_completion_tokens: Option<Value>,
    max_output_tokens: Option<Value>,
    seed: Option<Value>,
    presence_penalty: Option<Value>,
    frequency_penalty: Option<Value>,
}

impl RequestFacts {
    /// Reads a JSON body; `None` if it is none, or has a member of interest twice.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let members: RequestMembers = serde_json::from_slice(body).ok()?;
        let model = match members.model {
            Some(Value::String(model)) if model.len() <= TEXT_BYTES_MAX => Some(model),
            _ => None,
        };
        let sampling = [
            ("temperature", members.temperature),
            ("top_p", members.top_p),
            ("top_k", members.top_k),
            ("max_tokens", members.max_tokens),
            ("max_completion_tokens", members.max_completion_tokens),
            ("max_output_tokens", members.max_output_tokens),
            ("seed", members.seed),
            ("presence_penalty", members.presence_penalty),
            ("frequency_penalty", members.frequency_penalty),
        ];
        let scalar = |value: Value| match value {
            Value::Array(_) | Value::Object(_) => None,
            scalar => Some(scalar.to_string()).filter(|text| text.len() <= TEXT_BYTES_MAX),
        };
        let sampling = sampling
            .into_iter()
            .filter_map(|(name, value)| Some((name, scalar(value?)?)))
            .collect();
        Some(Self { model, sampling })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_parameters_are_kept_as_texts() {
        let body = br#"{"model":"m","messages":[{"content":"secret"}],"temperature":0.70,"seed":7,
                        "top_p":null,"stop":["x"],"max_tokens":{"a":1},"top_k":"many"}"#;
        let facts = RequestFacts::read(body).unwrap();
        assert_eq!(facts.model.as_deref(), Some("m"));
        let wanted = [("seed", "7"), ("temperature", "0.7"), ("top_k", "\"many\"")];
        let wanted: BTreeMap<_, _> =
            wanted.into_iter().map(|(name, text)| (name, text.to_owned())).collect();
        assert_eq!(facts.sampling, wanted, "nothing of the text, and no structure");
    }

    #[test]
    fn what_is_ambiguous_or_no_object_is_not_described() {
        for body in [r#"{"model":"a","model":"b"}"#, r#"{"seed":1,"seed":2}"#, "[1]", "x", ""] {
            assert_eq!(RequestFacts::read(body.as_bytes()), None, "{body}");
        }
        let long = format!("{{\"model\":\"{}\"}}", "m".repeat(257));
        assert_eq!(RequestFacts::read(long.as_bytes()).unwrap().model, None);
        assert_eq!(RequestFacts::read(br#"{"model":7}"#).unwrap(), RequestFacts::default());
    }
}

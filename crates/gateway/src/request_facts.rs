//! What a request asks for, as far as its receipt names it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The largest number of bytes of a model's name or of a value in a receipt.
const TEXT_BYTES_MAX: usize = 256;

/// What a request asks for, as far as a receipt names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFacts {
    pub(crate) model: Option<String>,
    /// The JSON texts of the sampling parameters, by their names.
    pub(crate) sampling: BTreeMap<&'static str, String>,
}

/// The members of a request's body that a receipt names, as they are written there.
#[derive(Deserialize)]
struct RequestMembers<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    temperature: Option<&'a RawValue>,
    top_p: Option<&'a RawValue>,
    top_k: Option<&'a RawValue>,
    max_tokens: Option<&'a RawValue>,
    max_completion_tokens: Option<&'a RawValue>,
    max_output_tokens: Option<&'a RawValue>,
    seed: Option<&'a RawValue>,
    presence_penalty: Option<&'a RawValue>,
    frequency_penalty: Option<&'a RawValue>,
}

impl RequestFacts {
    /// Reads a JSON body; `None` if it is none, or has a member of interest twice.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let members: RequestMembers<'_> = serde_json::from_slice(body).ok()?;
        let model = members.model.and_then(|model| serde_json::from_str(model.get()).ok());
        let model = model.filter(|model: &String| model.len() <= TEXT_BYTES_MAX);
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
        let scalar = |value: &RawValue| {
            let text = value.get();
            let is_kept = !text.starts_with(['{', '[', 'n']) && text.len() <= TEXT_BYTES_MAX;
            is_kept.then(|| text.to_owned())
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
        let body = br#"{"model":"m","messages":[{"content":"secret"}],"temperature":0.70,
                        "seed":18446744073709551617,"presence_penalty":1e400,"logit_bias":1e999,
                        "top_p":null,"stop":["x"],"max_tokens":{"a":1},"top_k":"many"}"#;
        let facts = RequestFacts::read(body).unwrap();
        assert_eq!(facts.model.as_deref(), Some("m"));
        let wanted = [
            ("presence_penalty", "1e400"),
            ("seed", "18446744073709551617"),
            ("temperature", "0.70"),
            ("top_k", "\"many\""),
        ];
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

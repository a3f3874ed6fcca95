//! What a request asks for, as far as its receipt names it.

use std::collections::BTreeMap;

use confide_transcript::DirectionCommitment;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::{model_field::is_model_name, openable_receipt::OpenableRequest};

/// The largest number of bytes of a number in a receipt.
const NUMBER_BYTES_MAX: usize = 32;

/// A body as a receipt describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DescribedBody {
    pub(crate) sha256: [u8; 32],
    /// The facts of the request, if the body is readable JSON.
    pub(crate) facts: Option<RequestFacts>,
    /// The commitment to the body, if the client wants to show parts of it.
    pub(crate) commitment: Option<DirectionCommitment>,
}

impl DescribedBody {
    /// Hashes a body, reads it if it `is_json`, and commits to it if the client wants that.
    pub(crate) fn of_body(body: &[u8], is_json: bool, openable: Option<&OpenableRequest>) -> Self {
        let facts = if is_json { RequestFacts::read(body) } else { None };
        let commitment = openable.and_then(|wanted| wanted.commit_to(body));
        Self { sha256: Sha256::digest(body).into(), facts, commitment }
    }
}

/// What a request asks for, as far as a receipt names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFacts {
    pub(crate) model: Option<String>,
    /// The JSON texts of the sampling parameters that are numbers, by their names.
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
    /// Reads a JSON body; `None` if it is no JSON object, or has a member of interest twice.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let members: RequestMembers<'_> = serde_json::from_slice(body).ok()?;
        let model = members.model.and_then(|model| serde_json::from_str(model.get()).ok());
        let model = model.filter(|model: &String| is_model_name(model));
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
        let number = |value: &RawValue| {
            let text = value.get();
            let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
            (is_number && text.len() <= NUMBER_BYTES_MAX).then(|| text.to_owned())
        };
        let sampling = sampling
            .into_iter()
            .filter_map(|(name, value)| Some((name, number(value?)?)))
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

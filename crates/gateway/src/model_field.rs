//! The top-level `model` of a JSON request body.
//!
//! Servers read JSON in different ways. The gateway and the server have to agree on the model, so a
//! body that another reader could take for a request to another model is refused.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The largest number of bytes of a model's name. Hugging Face allows 96 for an owner and 96 for a
/// name.
pub const MODEL_BYTES_MAX: usize = 256;

/// The reason why a body names no model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelFieldError {
    /// The body is not one JSON object in UTF-8, or is nested more than 127 levels deep.
    #[error("request body: wanted one JSON object in UTF-8 with a `model`, got something else")]
    NotAnObject,
    /// There is no key `model` at the top level.
    #[error("request names no model: wanted a JSON body with a `model`")]
    Missing,
    /// Another key of the top level is `model` too, possibly in capital letters, which servers
    /// written in Go read as the same.
    #[error("request body: wanted one key `model`, got several, or one with capital letters")]
    Ambiguous,
    /// The value is not a string.
    #[error("request body: wanted a string as `model`, got another type")]
    NotAString,
    /// The name is empty or longer than [`MODEL_BYTES_MAX`].
    #[error("request body: wanted a `model` of 1 to 256 bytes, got another length")]
    Length,
}

/// Whether the configuration may name a model so.
pub(crate) fn is_model_name(text: &str) -> bool {
    (1..=MODEL_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Parses a JSON object and returns its `model`.
///
/// # Errors
/// [`ModelFieldError`] unless the whole body is one JSON object with one `model`, a string of 1 to
/// [`MODEL_BYTES_MAX`] bytes.
pub fn parse_model_field(body: &[u8]) -> Result<String, ModelFieldError> {
    let text = std::str::from_utf8(body).map_err(|_| ModelFieldError::NotAnObject)?;
    let mut json = serde_json::Deserializer::from_str(text);
    let field = json.deserialize_map(ModelVisitor).and_then(|field| json.end().map(|()| field));
    match field.map_err(|_| ModelFieldError::NotAnObject)?? {
        FieldValue::Text(name) => Ok(name),
        FieldValue::UnusableText => Err(ModelFieldError::Length),
        FieldValue::NoText => Err(ModelFieldError::NotAString),
    }
}

/// Reads the top-level object.
struct ModelVisitor;

impl<'de> Visitor<'de> for ModelVisitor {
    type Value = Result<FieldValue, ModelFieldError>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut model = Err(ModelFieldError::Missing);
        while let Some(key) = map.next_key_seed(KeySeed)? {
            let value = map.next_value_seed(ValueSeed { keeps_text: key == FieldKey::Model })?;
            model = match (key, model) {
                (FieldKey::Foreign, model) => model,
                (FieldKey::Model, Err(ModelFieldError::Missing)) => Ok(value),
                (FieldKey::Model | FieldKey::ModelInCapitals, _) => Err(ModelFieldError::Ambiguous),
            };
        }
        Ok(model)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldKey {
    Model,
    /// `model` with capital letters.
    ModelInCapitals,
    Foreign,
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = FieldKey;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FieldKey, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = FieldKey;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<FieldKey, E> {
        Ok(match key {
            "model" => FieldKey::Model,
            _ if key.eq_ignore_ascii_case("model") => FieldKey::ModelInCapitals,
            _ => FieldKey::Foreign,
        })
    }
}

enum FieldValue {
    /// A string of 1 to [`MODEL_BYTES_MAX`] bytes.
    Text(String),
    /// An empty string, or a longer one.
    UnusableText,
    /// A value of another type, or one that is not kept.
    NoText,
}

/// Reads a value of any type, and keeps it if it is a string and wanted.
///
/// serde's `IgnoredAny` has no limit on the depth and would remember every open bracket.
#[derive(Clone, Copy)]
struct ValueSeed {
    keeps_text: bool,
}

/// Reads a value and drops it.
const IGNORED: ValueSeed = ValueSeed { keeps_text: false };

impl<'de> DeserializeSeed<'de> for ValueSeed {
    type Value = FieldValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FieldValue, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed {
    type Value = FieldValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, _value: bool) -> Result<FieldValue, E> {
        Ok(FieldValue::NoText)
    }

    fn visit_i64<E: Error>(self, _value: i64) -> Result<FieldValue, E> {
        Ok(FieldValue::NoText)
    }

    fn visit_u64<E: Error>(self, _value: u64) -> Result<FieldValue, E> {
        Ok(FieldValue::NoText)
    }

    fn visit_f64<E: Error>(self, _value: f64) -> Result<FieldValue, E> {
        Ok(FieldValue::NoText)
    }

    fn visit_unit<E: Error>(self) -> Result<FieldValue, E> {
        Ok(FieldValue::NoText)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<FieldValue, E> {
        Ok(match text.len() {
            _ if !self.keeps_text => FieldValue::NoText,
            1..=MODEL_BYTES_MAX => FieldValue::Text(text.to_owned()),
            _ => FieldValue::UnusableText,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<FieldValue, A::Error> {
        while items.next_element_seed(IGNORED)?.is_some() {}
        Ok(FieldValue::NoText)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FieldValue, A::Error> {
        while map.next_key_seed(IGNORED)?.is_some() {
            map.next_value_seed(IGNORED)?;
        }
        Ok(FieldValue::NoText)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found_wherever_it_stands_and_however_it_is_escaped() {
        for body in [
            r#"{"model":"m"}"#,
            r#" { "messages":[{"model":"other"}], "stream":true, "model" : "m", "n":-1.5e3 } "#,
            r#"{"mod\u0065l":"\u006d"}"#,
            r#"{"a":{"model":"x","model":"y"},"model":"m","b":null,"models":["z"]}"#,
        ] {
            assert_eq!(parse_model_field(body.as_bytes()).as_deref(), Ok("m"), "{body}");
        }
        let longest = "m".repeat(MODEL_BYTES_MAX);
        let body = format!(r#"{{"model":"{longest}"}}"#);
        assert_eq!(parse_model_field(body.as_bytes()), Ok(longest));
    }

    #[test]
    fn a_body_that_two_servers_could_read_in_two_ways_names_no_model() {
        let long = format!(r#"{{"model":"{}"}}"#, "m".repeat(MODEL_BYTES_MAX + 1));
        for (body, wanted) in [
            (r#"{"model":"m","model":"m"}"#, ModelFieldError::Ambiguous),
            (r#"{"model":"m","mod\u0065l":"other"}"#, ModelFieldError::Ambiguous),
            (r#"{"model":"m","Model":"other"}"#, ModelFieldError::Ambiguous),
            (r#"{"MODEL":"other"}"#, ModelFieldError::Ambiguous),
            (r#"{"Model":"other","model":"m"}"#, ModelFieldError::Ambiguous),
            (r#"{"model":1,"model":"m"}"#, ModelFieldError::Ambiguous),
            (r#"{"model":null}"#, ModelFieldError::NotAString),
            (r#"{"model":["m"]}"#, ModelFieldError::NotAString),
            (r#"{"model":""}"#, ModelFieldError::Length),
            (&long, ModelFieldError::Length),
            (r#"{"model\u0000":"m"}"#, ModelFieldError::Missing),
            ("{}", ModelFieldError::Missing),
            ("", ModelFieldError::NotAnObject),
            ("\u{feff}{\"model\":\"m\"}", ModelFieldError::NotAnObject),
            (r#""model""#, ModelFieldError::NotAnObject),
            (r#"[{"model":"m"}]"#, ModelFieldError::NotAnObject),
            (r#"{"model":"m"}{"model":"n"}"#, ModelFieldError::NotAnObject),
            (r#"{"model":"m"} x"#, ModelFieldError::NotAnObject),
            (r#"{"model":"m""#, ModelFieldError::NotAnObject),
            (r#"{"model":"m",}"#, ModelFieldError::NotAnObject),
            (r#"{"model":"\ud800"}"#, ModelFieldError::NotAnObject),
            (r#"{'model':'m'}"#, ModelFieldError::NotAnObject),
            (r#"{"a":NaN,"model":"m"}"#, ModelFieldError::NotAnObject),
        ] {
            assert_eq!(parse_model_field(body.as_bytes()), Err(wanted), "{body}");
        }
        // The depth has a limit, because every open bracket takes memory.
        let nested = |depth: usize| {
            let body = format!(r#"{{"a":{}{},"model":"m"}}"#, "[".repeat(depth), "]".repeat(depth));
            parse_model_field(body.as_bytes())
        };
        assert_eq!(nested(126), Ok("m".into()));
        assert_eq!(nested(127), Err(ModelFieldError::NotAnObject));
        // An overlong quotation mark, which a lenient decoder takes for the end of a string.
        let overlong = b"{\"a\":\"\xc0\xa2,\\\"model\\\":1\",\"model\":\"m\"}";
        assert_eq!(parse_model_field(overlong), Err(ModelFieldError::NotAnObject));
    }
}

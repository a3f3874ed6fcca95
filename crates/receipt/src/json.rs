//! JSON that has one canonical form (RFC 8785): integers only, and no member twice.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};

/// The largest magnitude of a number, which every reader of JSON represents exactly.
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// A value of the documents that are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number of at most 2^53 - 1 in magnitude.
    Integer(i64),
    /// A text.
    Text(String),
    /// A list.
    Array(Vec<Json>),
    /// Members, each name once.
    Object(BTreeMap<String, Json>),
}

/// The reason why bytes are not such a document.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The document is longer than the limit.
    #[error("{got} bytes, wanted at most {wanted}")]
    TooLong {
        /// The limit in bytes.
        wanted: usize,
        /// The length that came.
        got: usize,
    },
    /// The bytes are no JSON, or JSON with a fraction, an exponent or a member twice.
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
}

impl Json {
    /// Reads a document of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// [`JsonError::TooLong`], and [`JsonError::Malformed`] for anything else that has no canonical
    /// form here.
    pub fn parse(bytes: &[u8], bytes_max: usize) -> Result<Self, JsonError> {
        if bytes.len() > bytes_max {
            return Err(JsonError::TooLong { wanted: bytes_max, got: bytes.len() });
        }
        Ok(serde_json::from_slice(bytes)?)
    }

    /// An object of these members; of two with the same name the last one counts.
    pub fn object<N: Into<String>>(members: impl IntoIterator<Item = (N, Json)>) -> Self {
        Self::Object(members.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    /// The canonical form (RFC 8785 section 3.2).
    pub fn to_canonical(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    /// The members, if this is an object.
    pub fn as_object(&self) -> Option<&BTreeMap<String, Json>> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// A member, if this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.as_object()?.get(name)
    }

    /// A text member, if this is an object that has it.
    pub fn get_text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Integer(number) => out.push_str(&number.to_string()),
            Self::Text(text) => write_text(text, out),
            Self::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                let mut sorted: Vec<_> = members.iter().collect();
                // The standard orders names by UTF-16, which differs from UTF-8 beyond the BMP.
                sorted.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
                out.push('{');
                for (index, (name, value)) in sorted.into_iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_text(name, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u16> for Json {
    fn from(number: u16) -> Self {
        Self::Integer(number.into())
    }
}

/// Writes a text as RFC 8785 section 3.2.2.2 says: only what must be escaped is.
fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            control if control < ' ' => {
                out.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON with whole numbers, each member once")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Json, E> {
        match number.unsigned_abs() <= INTEGER_MAX {
            true => Ok(Json::Integer(number)),
            false => Err(E::custom("a number beyond 2^53 - 1")),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Json, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::from(text))
    }

    fn visit_string<E>(self, text: String) -> Result<Json, E> {
        Ok(Json::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut read = Vec::new();
        while let Some(item) = items.next_element()? {
            read.push(item);
        }
        Ok(Json::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut read = BTreeMap::new();
        while let Some((name, value)) = members.next_entry::<String, Json>()? {
            if read.insert(name, value).is_some() {
                return Err(A::Error::custom("a member twice"));
            }
        }
        Ok(Json::Object(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        Json::parse(text.as_bytes(), 4096).unwrap().to_canonical()
    }

    #[test]
    fn a_document_has_one_canonical_form() {
        for (text, wanted) in [
            (r#" { "b" : [ 1 , -2 , 0 ] , "a" : null } "#, r#"{"a":null,"b":[1,-2,0]}"#),
            (
                r#"{"\u0061":"\u20ac\u000f\n\u0022\u005c\/"}"#,
                "{\"a\":\"\u{20ac}\\u000f\\n\\\"\\\\/\"}",
            ),
            (r#"[true,false,{}, [] ,""]"#, r#"[true,false,{},[],""]"#),
            ("9007199254740991", "9007199254740991"),
        ] {
            assert_eq!(canonical(text), wanted);
        }
    }

    /// RFC 8785 section 3.2.3, with the order that its UTF-16 code units give.
    #[test]
    fn members_are_ordered_by_utf_16() {
        let text = r#"{"\u20ac":5,"\r":1,"\ufb33":7,"1":2,"\ud83d\ude00":6,"\u0080":3,"\u00f6":4}"#;
        let values: String =
            canonical(text).split(':').skip(1).filter_map(|part| part.chars().next()).collect();
        assert_eq!(values, "1234567");
    }

    #[test]
    fn what_has_more_than_one_meaning_is_refused() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":{"b":1,"\u0062":2}}"#,
            "1.0",
            "1e3",
            "-0",
            "0.1",
            "9007199254740992",
            "-9007199254740992",
            "18446744073709551616",
            "1 2",
            "\"\u{1}\"",
            r#""\ud800""#,
            "",
            "{",
            "NaN",
        ] {
            assert!(Json::parse(text.as_bytes(), 4096).is_err(), "{text}");
        }
        assert!(matches!(Json::parse(b"[1,2]", 4), Err(JsonError::TooLong { wanted: 4, got: 5 })));
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(Json::parse(deep.as_bytes(), 4096).is_err());
    }
}

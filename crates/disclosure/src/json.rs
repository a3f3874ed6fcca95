//! A strict JSON parser, which refuses every text that two parsers could interpret differently.
//!
//! It is stricter than RFC 8259: UTF-8 only, no duplicate members in an object (names are compared
//! after unescaping), no lone surrogates, limits on depth, size and numbers. Numbers keep every
//! digit.

use crate::number::{Number, NumberError};

/// The deepest nesting of arrays and objects.
pub const JSON_DEPTH_MAX: usize = 64;

/// The greatest number of values in one text, including containers: each becomes a field.
pub const JSON_VALUES_MAX: usize = 16_384;

/// A JSON value. Numbers are in their canonical form.
#[derive(Clone, PartialEq, Eq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number in its canonical form.
    Number(String),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object: its members in the order of the text, with unique names.
    Object(Vec<(String, Json)>),
}

/// Omits the value: values are secrets until they are opened.
impl std::fmt::Debug for Json {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Json(..)")
    }
}

/// The reason why a text is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON, or not UTF-8.
    #[error("invalid JSON at byte {place}")]
    Grammar {
        /// The byte at which parsing stopped.
        place: usize,
    },
    /// An object has two members of the same name.
    #[error("JSON object that ends at byte {place} has two members of the same name")]
    Duplicate {
        /// The byte at which the object ends.
        place: usize,
    },
    /// Arrays and objects are nested too deeply.
    #[error("JSON is nested deeper than {limit} levels at byte {place}")]
    Depth {
        /// The greatest depth, [`JSON_DEPTH_MAX`].
        limit: usize,
        /// The byte at which parsing stopped.
        place: usize,
    },
    /// The text has too many values.
    #[error("JSON has more than {limit} values")]
    Values {
        /// The greatest number of values, [`JSON_VALUES_MAX`].
        limit: usize,
    },
    /// A number has too many characters or too large an exponent.
    #[error("JSON number at byte {place} is beyond the limits")]
    Number {
        /// The byte at which parsing stopped.
        place: usize,
    },
}

impl Json {
    /// Parses a complete JSON text.
    ///
    /// # Errors
    ///
    /// [`JsonError::Grammar`] if the bytes are not one JSON text in UTF-8; [`JsonError::Duplicate`]
    /// if an object has two members of one name; [`JsonError::Depth`], [`JsonError::Values`] and
    /// [`JsonError::Number`] beyond the limits.
    pub fn parse(bytes: &[u8]) -> Result<Self, JsonError> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| JsonError::Grammar { place: error.valid_up_to() })?;
        let mut reader = JsonReader { text, place: 0, values: 0 };
        reader.skip_whitespace();
        let value = reader.parse_value(0)?;
        reader.skip_whitespace();
        if reader.place == text.len() { Ok(value) } else { Err(reader.grammar_error()) }
    }

    /// The value of the member with this name, if this is an object and has one.
    pub fn member(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => {
                members.iter().find(|(known, _)| known == name).map(|(_, value)| value)
            }
            _ => None,
        }
    }
}

struct JsonReader<'a> {
    text: &'a str,
    place: usize,
    values: usize,
}

impl JsonReader<'_> {
    fn parse_value(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.values += 1;
        if self.values > JSON_VALUES_MAX {
            return Err(JsonError::Values { limit: JSON_VALUES_MAX });
        }
        match self.peek() {
            Some(b'{' | b'[') if depth == JSON_DEPTH_MAX => {
                Err(JsonError::Depth { limit: JSON_DEPTH_MAX, place: self.place })
            }
            Some(b'{') => self.parse_object(depth),
            Some(b'[') => self.parse_array(depth),
            Some(b'"') => self.parse_string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.parse_number(),
            _ => {
                let words = [
                    ("null", Json::Null),
                    ("true", Json::Bool(true)),
                    ("false", Json::Bool(false)),
                ];
                let rest = &self.text[self.place..];
                let found = words.into_iter().find(|(word, _)| rest.starts_with(word));
                let (word, value) = found.ok_or_else(|| self.grammar_error())?;
                self.place += word.len();
                Ok(value)
            }
        }
    }

    fn parse_object(&mut self, depth: usize) -> Result<Json, JsonError> {
        let mut members: Vec<(String, Json)> = Vec::new();
        self.place += 1;
        self.skip_whitespace();
        while self.peek() != Some(b'}') {
            if !members.is_empty() {
                self.expect(b',')?;
                self.skip_whitespace();
            }
            if self.peek() != Some(b'"') {
                return Err(self.grammar_error());
            }
            let name = self.parse_string()?;
            self.skip_whitespace();
            self.expect(b':')?;
            self.skip_whitespace();
            members.push((name, self.parse_value(depth + 1)?));
            self.skip_whitespace();
        }
        self.place += 1;
        let mut names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).any(|pair| pair[0] == pair[1]) {
            true => Err(JsonError::Duplicate { place: self.place }),
            false => Ok(Json::Object(members)),
        }
    }

    fn parse_array(&mut self, depth: usize) -> Result<Json, JsonError> {
        let mut elements = Vec::new();
        self.place += 1;
        self.skip_whitespace();
        while self.peek() != Some(b']') {
            if !elements.is_empty() {
                self.expect(b',')?;
                self.skip_whitespace();
            }
            elements.push(self.parse_value(depth + 1)?);
            self.skip_whitespace();
        }
        self.place += 1;
        Ok(Json::Array(elements))
    }

    fn parse_number(&mut self) -> Result<Json, JsonError> {
        let rest = &self.text.as_bytes()[self.place..];
        let of_number = |byte: &&u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let length = rest.iter().take_while(of_number).count();
        let number = Number::parse(&rest[..length]).map_err(|error| match error {
            NumberError::Grammar => self.grammar_error(),
            NumberError::Limit => JsonError::Number { place: self.place },
        })?;
        self.place += length;
        Ok(Json::Number(number.canonical_form()))
    }

    fn parse_string(&mut self) -> Result<String, JsonError> {
        let mut string = String::new();
        self.place += 1;
        loop {
            let rest = &self.text[self.place..];
            let plain = rest
                .bytes()
                .take_while(|byte| *byte >= 0x20 && *byte != b'"' && *byte != b'\\')
                .count();
            string.push_str(&rest[..plain]);
            self.place += plain;
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => string.push(self.parse_escape()?),
                _ => return Err(self.grammar_error()),
            }
        }
        self.place += 1;
        Ok(string)
    }

    fn parse_escape(&mut self) -> Result<char, JsonError> {
        let code = self.text.as_bytes().get(self.place + 1).copied();
        let character = match code {
            Some(plain @ (b'"' | b'\\' | b'/')) => char::from(plain),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.parse_unicode_escape(),
            _ => return Err(self.grammar_error()),
        };
        self.place += 2;
        Ok(character)
    }

    fn parse_unicode_escape(&mut self) -> Result<char, JsonError> {
        let first = self.parse_code_unit().ok_or_else(|| self.grammar_error())?;
        self.place += 6;
        let point = match first {
            0xd800..=0xdbff => {
                let second = self.parse_code_unit().filter(|unit| (0xdc00..=0xdfff).contains(unit));
                let second = second.ok_or_else(|| self.grammar_error())?;
                self.place += 6;
                0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            unit => unit,
        };
        char::from_u32(point).ok_or_else(|| self.grammar_error())
    }

    /// The code unit of an escape such as `\u0041` at the current position.
    fn parse_code_unit(&self) -> Option<u32> {
        let text = self.text.as_bytes().get(self.place..self.place + 6)?;
        let digits = text.strip_prefix(b"\\u")?;
        let digit = |value: u32, digit: &u8| Some(value << 4 | char::from(*digit).to_digit(16)?);
        digits.iter().try_fold(0, digit)
    }

    fn skip_whitespace(&mut self) {
        let rest = &self.text.as_bytes()[self.place..];
        let blank = |byte: &&u8| matches!(**byte, b' ' | b'\t' | b'\n' | b'\r');
        self.place += rest.iter().take_while(blank).count();
    }

    fn expect(&mut self, wanted: u8) -> Result<(), JsonError> {
        if self.peek() == Some(wanted) {
            self.place += 1
        } else {
            return Err(self.grammar_error());
        }
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.place).copied()
    }

    fn grammar_error(&self) -> JsonError {
        JsonError::Grammar { place: self.place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_serde_json_reads_is_read_alike() {
        for text in [
            "null",
            " true ",
            "[]",
            "{}",
            "[1, 2.5, -300, \"x\"]",
            "\"\\u00e9\\ud83d\\ude00\\n\\/\"",
            "{\"a\": {\"b\": [null, {\"c\": \"\"}]}, \"\": 0}",
            "\t[ [ ] , { } ]\r\n",
            "\"é\u{7f}\"",
        ] {
            let wanted: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(as_serde(&Json::parse(text.as_bytes()).unwrap()), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in [
            "",
            " ",
            "nul",
            "True",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\"}",
            "{\"a\":1,}",
            "{a:1}",
            "{'a':1}",
            "\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\udc00\"",
            "\"\n\"",
            "\"\0\"",
            "1 2",
            "[1]x",
            "01",
            "1.",
            "/**/1",
            "\u{feff}1",
            "[",
            "{",
            "{\"a\":",
            "NaN",
            "\"\\u+123\"",
        ] {
            let refused = Json::parse(text.as_bytes());
            assert!(matches!(refused, Err(JsonError::Grammar { .. })), "{text}");
        }
        assert!(matches!(Json::parse(b"\"\xff\""), Err(JsonError::Grammar { place: 1 })));
        assert!(matches!(Json::parse(b"\"\xed\xa0\x80\""), Err(JsonError::Grammar { .. })));
    }

    #[test]
    fn a_member_twice_is_refused_at_any_depth_however_it_is_written() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"b":2,"\u0061":3}"#,
            r#"[{"x":{"a/b":1,"a\/b":2}}]"#,
            r#"{"é":1,"\u00e9":2}"#,
            r#"{"😀":1,"\ud83d\uDE00":2}"#,
            r#"{"":1,"":2}"#,
        ] {
            let refused = Json::parse(text.as_bytes());
            assert!(matches!(refused, Err(JsonError::Duplicate { .. })), "{text}");
        }
        // Different names: composed and decomposed, and capitals.
        Json::parse("{\"é\":1,\"e\u{301}\":2,\"a\":3,\"A\":4}".as_bytes()).unwrap();
    }

    #[test]
    fn depth_values_and_numbers_have_limits() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        Json::parse(nested(JSON_DEPTH_MAX).as_bytes()).unwrap();
        let deep = Json::parse(nested(JSON_DEPTH_MAX + 1).as_bytes());
        assert!(matches!(deep, Err(JsonError::Depth { .. })));
        let many = format!("[{}0]", "0,".repeat(JSON_VALUES_MAX));
        assert_eq!(Json::parse(many.as_bytes()), Err(JsonError::Values { limit: JSON_VALUES_MAX }));
        assert!(matches!(Json::parse(b"[1e10000]"), Err(JsonError::Number { place: 1 })));
        Json::parse("[".repeat(1 << 20).as_bytes()).unwrap_err();
    }

    fn as_serde(json: &Json) -> serde_json::Value {
        match json {
            Json::Null => serde_json::Value::Null,
            Json::Bool(value) => (*value).into(),
            Json::Number(text) => serde_json::from_str::<serde_json::Value>(text)
                .map(|value| match value.as_f64() {
                    Some(float) if text.contains('.') => float.into(),
                    _ => value,
                })
                .unwrap(),
            Json::String(text) => text.as_str().into(),
            Json::Array(elements) => elements.iter().map(as_serde).collect(),
            Json::Object(members) => {
                members.iter().map(|(name, value)| (name.clone(), as_serde(value))).collect()
            }
        }
    }
}

//! How Intel's signed JSON spells bytes and dates.

use core::{
    fmt,
    marker::PhantomData,
    str::{self, FromStr},
};

use serde::{Deserialize, Deserializer, de};

use crate::{hexadecimal, parse_error::ParseError};

/// Reads a whole document, with nothing after it.
pub(crate) fn parse_document<'a, T: Deserialize<'a>>(
    subject: &'static str,
    text: &'a [u8],
) -> Result<T, ParseError> {
    // serde would read a list as well, by the order of the fields.
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err(ParseError::Text { subject, wanted: "a JSON object" });
    }
    // Checking the whole text for UTF-8 once takes a tenth of the time of checking each string.
    let read = match str::from_utf8(text) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(text),
    };
    read.map_err(|error| ParseError::json(subject, &error))
}

/// Reads exactly `N` bytes in hexadecimal.
pub(crate) fn read_hex_array<'de, D: Deserializer<'de>, const N: usize>(
    deserializer: D,
) -> Result<[u8; N], D::Error> {
    read_text_with(deserializer, |text| {
        let mut bytes = [0; N];
        match hexadecimal::decode(text.as_bytes(), &mut bytes) {
            true => Ok(bytes),
            false => Err("wanted hexadecimal of the field's length"),
        }
    })
}

/// Reads a time such as `2026-01-27T09:01:45Z` as Unix seconds.
pub(crate) fn read_date<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    read_text_with(deserializer, |text| {
        let date = der::DateTime::from_str(text);
        let seconds = date.map(|date| date.unix_duration().as_secs());
        seconds.map_err(|_| "wanted a date as 2026-01-27T09:01:45Z")
    })
}

/// Reads any type that implements [`FromStr`], and reports its own error.
pub(crate) fn deserialize_from_str<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: fmt::Display,
{
    read_text_with(deserializer, T::from_str)
}

/// Reads text without keeping it; the error is that of `read`.
pub(crate) fn read_text_with<'de, D: Deserializer<'de>, T, X: fmt::Display>(
    deserializer: D,
    read: impl FnOnce(&str) -> Result<T, X>,
) -> Result<T, D::Error> {
    struct TextVisitor<F, T, X>(F, PhantomData<(T, X)>);
    impl<T, X: fmt::Display, F: FnOnce(&str) -> Result<T, X>> de::Visitor<'_> for TextVisitor<F, T, X> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("text")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            (self.0)(text).map_err(E::custom)
        }
    }
    deserializer.deserialize_str(TextVisitor(read, PhantomData))
}

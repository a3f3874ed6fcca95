//! Selectors of the parts that a holder shows, and predicates that it proves.

use confide_transcript::Direction;
use std::ops::Range;

use crate::{
    comparison::Comparison,
    number::{amount_of_micros, parse_amount},
    rfc3339::parse_rfc3339_micros,
};

/// A part of a session that the holder shows, as given to `--show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// A field, with all fields below it if it is an array or an object.
    Field(String),
    /// A half-open range of bytes of a direction.
    Bytes(Direction, Range<u64>),
    /// The true length of a direction.
    Length(Direction),
}

/// A predicate that the holder proves about a hidden value, as given to `--prove`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// A field's number or date compares with a constant.
    Compare {
        /// The path of the field.
        path: String,
        /// The comparison operator and the public constant.
        comparison: Comparison,
    },
    /// The bytes of a direction contain a text, in one chunk or across two.
    BytesContain {
        /// The direction of the bytes: sent to the server, or received from it.
        direction: Direction,
        /// The text that is contained: 1 to 64 bytes of UTF-8.
        text: String,
    },
    /// A field's text contains a text.
    FieldContains {
        /// The path of the field.
        path: String,
        /// The text that is contained: 1 to 64 bytes of UTF-8.
        text: String,
    },
    /// SHA-256 of a field's text is a digest.
    FieldSha256 {
        /// The path of the field.
        path: String,
        /// SHA-256 of the value of the field.
        sha256: [u8; 32],
    },
    /// Two fields have the same number or date.
    Equal {
        /// The path of the field in this session.
        path: String,
        /// The path of the other field.
        other: String,
        /// Whether the other field is in the other session.
        in_other_session: bool,
    },
}

/// The reason why a text is neither a selector nor a predicate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A text is not the name of a field, a range or a length.
    #[error("{text:?} is not a name: wanted request or response, a dot and one of {wanted}")]
    Name {
        /// The text that was read.
        text: String,
        /// The names that are allowed after the dot.
        wanted: &'static str,
    },
    /// A predicate has no operator.
    #[error("{text:?} is not a predicate: wanted NAME and one of <=, >=, ==, between, contains")]
    Operator {
        /// The text that was read.
        text: String,
    },
    /// A constant is neither a number nor a date, or is beyond the range of commitments.
    #[error(
        "{text:?} is not a constant: wanted a date, or a number below 4.6e12 with up to 6 decimals"
    )]
    Constant {
        /// The text that was read.
        text: String,
    },
    /// A digest is not 64 hexadecimal digits.
    #[error("{text:?} is not a SHA-256 digest: wanted 64 hexadecimal digits")]
    Digest {
        /// The text that was read.
        text: String,
    },
    /// A text is not a JSON string.
    #[error("{text:?} is not a text: wanted a JSON string")]
    Text {
        /// The text that was read.
        text: String,
    },
}

const WANTED: &str = "/POINTER, header:NAME, status, method, target, bytes:FIRST-END, length";

impl Selector {
    /// Parses `response./choices/0/message/content`, `request.header:accept`,
    /// `response.bytes:100-200` or `response.length`.
    ///
    /// # Errors
    ///
    /// [`NameError::Name`] if the text has none of these forms, or a range is empty or reversed.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let wrong = || name_error(text);
        let (direction, part) = split_direction(text).ok_or_else(wrong)?;
        match part.strip_prefix("bytes:") {
            Some(range) => {
                let (start, end) = range.split_once('-').ok_or_else(wrong)?;
                let (start, end) =
                    (parse_offset(start).ok_or_else(wrong)?, parse_offset(end).ok_or_else(wrong)?);
                if start < end { Ok(Selector::Bytes(direction, start..end)) } else { Err(wrong()) }
            }
            None if part == "length" => Ok(Selector::Length(direction)),
            None if is_field_name(part) => Ok(Selector::Field(text.into())),
            None => Err(wrong()),
        }
    }
}

impl Predicate {
    /// Parses `response./usage/total_tokens <= 4096`, `response./at between DATE and DATE`,
    /// `response.bytes contains "…"`, `response./text contains "…"`,
    /// `sha256(response./text) == HEX` or `response./n == other.request./n`.
    ///
    /// # Errors
    ///
    /// [`NameError::Name`] if the left side is not a name; [`NameError::Operator`] if there is no
    /// operator; [`NameError::Constant`], [`NameError::Digest`] and [`NameError::Text`] if the
    /// right side is not valid for the operator.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if let Some(rest) = text.trim_start().strip_prefix("sha256(") {
            return parse_sha256_predicate(text, rest);
        }
        let operators = [" <= ", " >= ", " == ", " between ", " contains "];
        let found = operators
            .into_iter()
            .filter_map(|operator| text.find(operator).map(|place| (place, operator)))
            .min();
        let (place, operator) = found.ok_or_else(|| NameError::Operator { text: text.into() })?;
        let (name, constant) = (text[..place].trim(), text[place + operator.len()..].trim());
        let (direction, part) = split_direction(name).ok_or_else(|| name_error(name))?;
        if operator == " contains " && part == "bytes" {
            return Ok(Predicate::BytesContain { direction, text: parse_quoted(constant)? });
        }
        let path = check_field_name(name)?;
        let comparison = match operator {
            " contains " => {
                return Ok(Predicate::FieldContains { path, text: parse_quoted(constant)? });
            }
            " <= " => Comparison::AtMost(parse_constant(constant)?),
            " >= " => Comparison::AtLeast(parse_constant(constant)?),
            " == " => match parse_equality_operand(constant) {
                Some((other, in_other_session)) => {
                    return Ok(Predicate::Equal { path, other, in_other_session });
                }
                None => Comparison::Exactly(parse_constant(constant)?),
            },
            _ => parse_between(constant)?,
        };
        Ok(Predicate::Compare { path, comparison })
    }
}

/// Parses a predicate about a digest; `rest` is `text` without the leading `sha256(`.
fn parse_sha256_predicate(text: &str, rest: &str) -> Result<Predicate, NameError> {
    // The last `) == `, because a member's name may contain one too.
    let found = rest.rsplit_once(") == ");
    let (name, digits) = found.ok_or_else(|| NameError::Operator { text: text.into() })?;
    let digits = digits.trim();
    let sha256 = parse_digest(digits).ok_or_else(|| NameError::Digest { text: digits.into() })?;
    Ok(Predicate::FieldSha256 { path: check_field_name(name.trim())?, sha256 })
}

/// Parses the path of a field, and whether it belongs to the other session.
fn parse_equality_operand(text: &str) -> Option<(String, bool)> {
    let (name, in_other_session) = match text.strip_prefix("other.") {
        Some(name) => (name, true),
        None => (text, false),
    };
    check_field_name(name).ok().map(|name| (name, in_other_session))
}

fn parse_between(constant: &str) -> Result<Comparison, NameError> {
    let wrong = || NameError::Constant { text: constant.into() };
    let (low, high) = constant.split_once(" and ").ok_or_else(wrong)?;
    let (low, high) = (parse_constant(low.trim())?, parse_constant(high.trim())?);
    if low <= high { Ok(Comparison::Between(low, high)) } else { Err(wrong()) }
}

fn name_error(text: &str) -> NameError {
    NameError::Name { text: text.into(), wanted: WANTED }
}

fn check_field_name(name: &str) -> Result<String, NameError> {
    match split_direction(name) {
        Some((_, part)) if is_field_name(part) => Ok(name.into()),
        _ => Err(name_error(name)),
    }
}

/// Parses 64 hexadecimal digits.
fn parse_digest(digits: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    hex::decode_to_slice(digits, &mut digest).ok()?;
    Some(digest)
}

fn split_direction(text: &str) -> Option<(Direction, &str)> {
    let (direction, part) = text.split_once('.')?;
    match direction {
        "request" => Some((Direction::Request, part)),
        "response" => Some((Direction::Response, part)),
        _ => None,
    }
}

fn is_field_name(part: &str) -> bool {
    let header = part.strip_prefix("header:").is_some_and(|name| !name.is_empty());
    part.is_empty()
        || part.starts_with('/')
        || header
        || matches!(part, "status" | "method" | "target")
}

fn parse_offset(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

fn parse_constant(text: &str) -> Result<u64, NameError> {
    let date = || parse_rfc3339_micros(text.as_bytes()).and_then(amount_of_micros);
    parse_amount(text.as_bytes())
        .or_else(date)
        .ok_or_else(|| NameError::Constant { text: text.into() })
}

fn parse_quoted(text: &str) -> Result<String, NameError> {
    match crate::json::Json::parse(text.as_bytes()) {
        Ok(crate::json::Json::String(text)) if !text.is_empty() => Ok(text),
        _ => Err(NameError::Text { text: text.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{amount::AmountDisplay, number::AMOUNT_ZERO};

    #[test]
    fn names_are_read_strictly() {
        let field = |text: &str| Ok(Selector::Field(text.into()));
        for text in [
            "response./choices/0/message/content",
            "request.header:authorization",
            "response.status",
            "response.",
            "response./a b.c",
        ] {
            assert_eq!(Selector::parse(text), field(text));
        }
        let bytes = Selector::Bytes(Direction::Response, 100..200);
        assert_eq!(Selector::parse("response.bytes:100-200"), Ok(bytes));
        assert_eq!(Selector::parse("request.length"), Ok(Selector::Length(Direction::Request)));
        for wrong in [
            "",
            "response",
            "answer./a",
            "response.a",
            "response.bytes:",
            "response.bytes:2-2",
            "response.bytes:+1-2",
            "response.bytes:1-",
            "response.header:",
            "Response./a",
            "response.bytes:1-99999999999999999999",
        ] {
            assert!(Selector::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn predicates_are_read_strictly() {
        let compare =
            |path: &str, comparison| Ok(Predicate::Compare { path: path.into(), comparison });
        let million = |value: u64| AMOUNT_ZERO + value * 1_000_000;
        let tokens = "response./usage/total_tokens";
        for (text, comparison) in [
            ("<= 4096", Comparison::AtMost(million(4096))),
            (">= 1e2", Comparison::AtLeast(million(100))),
            ("== -1.5", Comparison::Exactly(AMOUNT_ZERO - 1_500_000)),
            ("between 1 and 2", Comparison::Between(million(1), million(2))),
            (
                "between 1970-01-01T00:00:01Z and 1970-01-01T00:00:02Z",
                Comparison::Between(million(1), million(2)),
            ),
        ] {
            assert_eq!(Predicate::parse(&format!("{tokens} {text}")), compare(tokens, comparison));
        }
        let contains = Predicate::parse(r#"response.bytes contains "a <= \"b\"""#);
        let (direction, text) = (Direction::Response, "a <= \"b\"".to_string());
        assert_eq!(contains, Ok(Predicate::BytesContain { direction, text }));
        let contains = Predicate::parse(r#"response./a contains "b""#);
        let (path, text) = ("response./a".to_string(), "b".to_string());
        assert_eq!(contains, Ok(Predicate::FieldContains { path, text }));
        for wrong in [
            "response./a",
            "response./a < 1",
            "response./a <= x",
            "response./a <= 1e99",
            "response./a between 2 and 1",
            "response./a between 1",
            "response.bytes contains b",
            "response./a contains \"\"",
            "response.length contains \"a\"",
            "response./a == other.",
            "response./a == other.response.a",
            "response./a == other.other.response./a",
            "other.response./a == response./a",
            "response./a <= response./b",
            "sha256(response./a) == ff",
            "sha256(response.bytes) == 0000000000000000000000000000000000000000000000000000000000000000",
            "sha256(response./a) <= 0000000000000000000000000000000000000000000000000000000000000000",
            "sha256(response./a) == +000000000000000000000000000000000000000000000000000000000000000",
            "sha256(response./a == 0000000000000000000000000000000000000000000000000000000000000000",
            "response.bytes <= 1",
            "a <= 1",
            "response.length <= 4",
        ] {
            assert!(Predicate::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn digests_and_other_names_are_read_strictly() {
        let digits = "00ff".repeat(16);
        let sha256 = std::array::from_fn(|place| if place % 2 == 0 { 0 } else { 0xff });
        // A member's name may look like an operator.
        for path in ["response./a", "response./a) == b", "request.header:accept", "response."] {
            for digits in [&digits, &digits.to_uppercase()] {
                let wanted = Predicate::FieldSha256 { path: path.into(), sha256 };
                assert_eq!(Predicate::parse(&format!("sha256({path}) == {digits}")), Ok(wanted));
            }
        }
        for (text, other, in_other_session) in [
            ("response./a == response./b", "response./b", false),
            ("response./a == other.request./b", "request./b", true),
            ("response./a ==  other.response.status ", "response.status", true),
        ] {
            let (path, other) = ("response./a".to_string(), other.to_string());
            assert_eq!(
                Predicate::parse(text),
                Ok(Predicate::Equal { path, other, in_other_session }),
                "{text}"
            );
        }
    }

    #[test]
    fn amounts_are_shown_as_they_were_written() {
        for (text, wanted) in [("4096", "4096"), ("-1.5", "-1.5"), ("0", "0"), ("1e-6", "0.000001")]
        {
            assert_eq!(AmountDisplay::Number(parse_constant(text).unwrap()).to_string(), wanted);
        }
        for date in ["2026-11-22T10:00:00Z", "1969-12-31T23:59:59.500000Z", "2000-02-29T00:00:00Z"]
        {
            assert_eq!(AmountDisplay::Date(parse_constant(date).unwrap()).to_string(), date);
        }
    }
}

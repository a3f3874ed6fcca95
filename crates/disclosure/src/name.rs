//! Names of the parts that a holder shows and of the predicates that it proves.

use std::ops::Range;

use crate::{
    comparison::Comparison,
    moment::micros_of_rfc3339,
    number::{amount_of_micros, amount_of_number},
    transcript::Direction,
};

/// A part of a session that the holder shows, as `--show` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// A field, with all fields below it if it is an array or an object.
    Field(String),
    /// A range of bytes of a direction, without its end.
    Bytes(Direction, Range<u64>),
    /// The true length of a direction.
    Length(Direction),
}

/// A predicate that the holder proves of a hidden value, as `--prove` names it.
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
        /// The text that is looked for: 1 to 64 bytes of UTF-8.
        text: String,
    },
    /// A field's text contains a text.
    FieldContains {
        /// The path of the field.
        path: String,
        /// The text that is looked for: 1 to 64 bytes of UTF-8.
        text: String,
    },
    /// SHA-256 of a field's text is a digest.
    FieldSha256 {
        /// The path of the field.
        path: String,
        /// SHA-256 of the value of the field.
        sha256: [u8; 32],
    },
    /// Two fields hold one number, or one date.
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
    #[error("{text:?} names nothing: wanted request or response, a dot and one of {wanted}")]
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
    #[error("{text:?}: wanted a number below 4.6e12 with six decimals, or a date")]
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
    /// A text is not in quotation marks as JSON writes them.
    #[error("{text:?} is not a text: wanted a JSON string")]
    Text {
        /// The text that was read.
        text: String,
    },
}

const WANTED: &str = "/POINTER, header:NAME, status, method, target, bytes:FIRST-END, length";

impl Selector {
    /// `response./choices/0/message/content`, `request.header:accept`, `response.bytes:100-200`,
    /// `response.length`.
    ///
    /// # Errors
    ///
    /// [`NameError::Name`] if the text is not of these forms, or a range is empty or reversed.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let wrong = || name_error(text);
        let (direction, part) = split(text).ok_or_else(wrong)?;
        match part.strip_prefix("bytes:") {
            Some(range) => {
                let (start, end) = range.split_once('-').ok_or_else(wrong)?;
                let (start, end) =
                    (parse_place(start).ok_or_else(wrong)?, parse_place(end).ok_or_else(wrong)?);
                if start < end { Ok(Selector::Bytes(direction, start..end)) } else { Err(wrong()) }
            }
            None if part == "length" => Ok(Selector::Length(direction)),
            None if is_field(part) => Ok(Selector::Field(text.into())),
            None => Err(wrong()),
        }
    }
}

impl Predicate {
    /// `response./usage/total_tokens <= 4096`, `response./at between DATE and DATE`,
    /// `response.bytes contains "…"`, `response./text contains "…"`,
    /// `sha256(response./text) == HEX`, `response./n == other.request./n`.
    ///
    /// # Errors
    ///
    /// [`NameError::Name`] if the left side names nothing; [`NameError::Operator`] without an
    /// operator; [`NameError::Constant`], [`NameError::Digest`] and [`NameError::Text`] if the
    /// right side is not of the kind that the operator compares with.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if let Some(rest) = text.trim_start().strip_prefix("sha256(") {
            return sha256_predicate(text, rest);
        }
        let operators = [" <= ", " >= ", " == ", " between ", " contains "];
        let found = operators
            .into_iter()
            .filter_map(|operator| text.find(operator).map(|place| (place, operator)))
            .min();
        let (place, operator) = found.ok_or_else(|| NameError::Operator { text: text.into() })?;
        let (name, constant) = (text[..place].trim(), text[place + operator.len()..].trim());
        let (direction, part) = split(name).ok_or_else(|| name_error(name))?;
        if operator == " contains " && part == "bytes" {
            return Ok(Predicate::BytesContain { direction, text: parse_quoted(constant)? });
        }
        let path = field_name(name)?;
        let comparison = match operator {
            " contains " => {
                return Ok(Predicate::FieldContains { path, text: parse_quoted(constant)? });
            }
            " <= " => Comparison::AtMost(parse_amount(constant)?),
            " >= " => Comparison::AtLeast(parse_amount(constant)?),
            " == " => match equal_name(constant) {
                Some((other, in_other_session)) => {
                    return Ok(Predicate::Equal { path, other, in_other_session });
                }
                None => Comparison::Exactly(parse_amount(constant)?),
            },
            _ => parse_between(constant)?,
        };
        Ok(Predicate::Compare { path, comparison })
    }
}

/// Parses a predicate about a digest; `rest` is `text` without the `sha256(` that begins it.
fn sha256_predicate(text: &str, rest: &str) -> Result<Predicate, NameError> {
    // The last `) == `, since a member's name may hold one too.
    let found = rest.rsplit_once(") == ");
    let (name, digits) = found.ok_or_else(|| NameError::Operator { text: text.into() })?;
    let digits = digits.trim();
    let sha256 = digest(digits).ok_or_else(|| NameError::Digest { text: digits.into() })?;
    Ok(Predicate::FieldSha256 { path: field_name(name.trim())?, sha256 })
}

/// The path of a field, and whether it is one of the other session.
fn equal_name(text: &str) -> Option<(String, bool)> {
    let (name, in_other_session) = match text.strip_prefix("other.") {
        Some(name) => (name, true),
        None => (text, false),
    };
    field_name(name).ok().map(|name| (name, in_other_session))
}

fn parse_between(constant: &str) -> Result<Comparison, NameError> {
    let wrong = || NameError::Constant { text: constant.into() };
    let (low, high) = constant.split_once(" and ").ok_or_else(wrong)?;
    let (low, high) = (parse_amount(low.trim())?, parse_amount(high.trim())?);
    if low <= high { Ok(Comparison::Between(low, high)) } else { Err(wrong()) }
}

fn name_error(text: &str) -> NameError {
    NameError::Name { text: text.into(), wanted: WANTED }
}

fn field_name(name: &str) -> Result<String, NameError> {
    match split(name) {
        Some((_, part)) if is_field(part) => Ok(name.into()),
        _ => Err(name_error(name)),
    }
}

/// Reads 64 hexadecimal digits.
fn digest(digits: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    hex::decode_to_slice(digits, &mut digest).ok()?;
    Some(digest)
}

fn split(text: &str) -> Option<(Direction, &str)> {
    let (direction, part) = text.split_once('.')?;
    match direction {
        "request" => Some((Direction::Request, part)),
        "response" => Some((Direction::Response, part)),
        _ => None,
    }
}

fn is_field(part: &str) -> bool {
    let header = part.strip_prefix("header:").is_some_and(|name| !name.is_empty());
    part.is_empty()
        || part.starts_with('/')
        || header
        || matches!(part, "status" | "method" | "target")
}

fn parse_place(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

fn parse_amount(text: &str) -> Result<u64, NameError> {
    let date = || micros_of_rfc3339(text.as_bytes()).and_then(amount_of_micros);
    amount_of_number(text.as_bytes())
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
    use crate::{amount::Amount, number::AMOUNT_ZERO};

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
            assert_eq!(Amount::Number(parse_amount(text).unwrap()).to_string(), wanted);
        }
        for date in ["2026-11-22T10:00:00Z", "1969-12-31T23:59:59.500000Z", "2000-02-29T00:00:00Z"]
        {
            assert_eq!(Amount::Date(parse_amount(date).unwrap()).to_string(), date);
        }
    }
}

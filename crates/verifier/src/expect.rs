//! The reference values that a policy has for one field.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::{fmt, marker::PhantomData, str::FromStr};

use confide_evidence::tcb_info::TcbStatus;
use serde::{Deserialize, Deserializer, de};

/// The longest list of alternatives in a policy.
const ALTERNATIVES_MAX: usize = 256;
/// The spelling of [`Expect::DangerousAny`] in a policy.
pub const DANGEROUS_ANY: &str = "dangerous-any";

/// The reference values of one field.
///
/// In TOML a string, a list of strings, or `"dangerous-any"`. Leaving a field unchecked is thus
/// always written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect<T> {
    /// This value and no other.
    Exactly(T),
    /// One of these values; none of them when the list is empty.
    AnyOf(Vec<T>),
    /// Any value: the field is not evaluated.
    DangerousAny,
}

impl<T: PartialEq> Expect<T> {
    /// Whether `value` is accepted.
    pub fn accepts(&self, value: &T) -> bool {
        match self {
            Expect::Exactly(wanted) => wanted == value,
            Expect::AnyOf(wanted) => wanted.contains(value),
            Expect::DangerousAny => true,
        }
    }

    /// Whether any value at all is compared.
    pub fn is_evaluated(&self) -> bool {
        !matches!(self, Expect::DangerousAny)
    }
}

impl<const N: usize> Expect<[u8; N]> {
    /// Zeros and nothing else: the default of a field that a policy may leave out.
    pub(crate) fn zero() -> Self {
        Self::Exactly([0; N])
    }
}

impl<T: ReferenceValue> fmt::Display for Expect<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expect::Exactly(wanted) => f.write_str(&wanted.to_text()),
            Expect::AnyOf(wanted) if wanted.is_empty() => f.write_str("none"),
            Expect::AnyOf(wanted) => {
                for (at, value) in wanted.iter().enumerate() {
                    let separator = if at == 0 { "" } else { " or " };
                    write!(f, "{separator}{}", value.to_text())?;
                }
                Ok(())
            }
            Expect::DangerousAny => f.write_str(DANGEROUS_ANY),
        }
    }
}

/// A value that a policy can name.
pub trait ReferenceValue: Sized {
    /// A description of the accepted text, for errors.
    fn expected_form() -> String;
    /// Reads the policy's spelling.
    fn from_text(text: &str) -> Option<Self>;
    /// Spells the value as a policy does.
    fn to_text(&self) -> String;
}

impl<const N: usize> ReferenceValue for [u8; N] {
    fn expected_form() -> String {
        format!("{N} bytes in hexadecimal")
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut bytes = [0; N];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(bytes)
    }

    fn to_text(&self) -> String {
        hex::encode(self)
    }
}

impl ReferenceValue for TcbStatus {
    fn expected_form() -> String {
        "a TCB status such as UpToDate".to_string()
    }

    fn from_text(text: &str) -> Option<Self> {
        TcbStatus::from_str(text).ok()
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

/// Advisory identifiers such as `INTEL-SA-00615`.
impl ReferenceValue for String {
    fn expected_form() -> String {
        "an advisory such as INTEL-SA-00615".to_string()
    }

    fn from_text(text: &str) -> Option<Self> {
        text.starts_with("INTEL-").then(|| text.to_string())
    }

    fn to_text(&self) -> String {
        self.clone()
    }
}

/// Decimal numbers.
impl ReferenceValue for u16 {
    fn expected_form() -> String {
        "a number from 0 to 65535".to_string()
    }

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

impl<'de, T: ReferenceValue> Deserialize<'de> for Expect<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExpectVisitor(PhantomData))
    }
}

struct ExpectVisitor<T>(PhantomData<T>);

impl<'de, T: ReferenceValue> de::Visitor<'de> for ExpectVisitor<T> {
    type Value = Expect<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, a list of such, or \"{DANGEROUS_ANY}\"", T::expected_form())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Expect<T>, E> {
        if text == DANGEROUS_ANY {
            return Ok(Expect::DangerousAny);
        }
        parse_value(text).map(Expect::Exactly)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Expect<T>, E> {
        parse_value(&number.to_string()).map(Expect::Exactly)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Expect<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(text) = list.next_element::<String>()? {
            if values.len() == ALTERNATIVES_MAX {
                return Err(de::Error::custom(format!("more than {ALTERNATIVES_MAX} values")));
            }
            values.push(parse_value(&text)?);
        }
        Ok(Expect::AnyOf(values))
    }
}

fn parse_value<T: ReferenceValue, E: de::Error>(text: &str) -> Result<T, E> {
    T::from_text(text)
        .ok_or_else(|| E::custom(format!("wanted {}, got `{text}`", T::expected_form())))
}

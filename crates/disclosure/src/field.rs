//! Fields: the values that the notary parsed, each with a path, a kind and a canonical form.

use confide_transcript::{SALT_BYTES, Writer};
use sha2::{Digest, Sha256};

use crate::{
    number::{amount_of_micros, parse_amount},
    rfc3339::parse_rfc3339_micros,
};

/// The greatest length of a path in bytes, including the direction.
pub(crate) const PATH_BYTES_MAX: usize = 1024;

/// The greatest length of a canonical value, in bytes.
pub(crate) const VALUE_BYTES_MAX: usize = 16 << 20;

const FIELD_TAG: u8 = 0x02;
const VALUE_TAG: u8 = 0x03;

/// The kind of a field's value. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldKind {
    /// JSON's `null`; the value is empty.
    Null = 1,
    /// `true` or `false`.
    Bool = 2,
    /// A number in its canonical form ([`crate::Number::canonical_form`]).
    Number = 3,
    /// The UTF-8 of a string, escapes resolved.
    String = 4,
    /// The number of elements of an array, in decimal digits.
    Array = 5,
    /// The names of an object's members, sorted by their bytes, each after its length (four bytes,
    /// big-endian).
    Object = 6,
    /// A header field's value that is not UTF-8.
    Octets = 7,
}

impl FieldKind {
    /// The name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            FieldKind::Null => "null",
            FieldKind::Bool => "bool",
            FieldKind::Number => "number",
            FieldKind::String => "string",
            FieldKind::Array => "array",
            FieldKind::Object => "object",
            FieldKind::Octets => "octets",
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        use FieldKind::*;
        [Null, Bool, Number, String, Array, Object, Octets]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// A field of either direction.
#[derive(Clone, PartialEq, Eq)]
pub struct Field {
    /// `response./usage/total_tokens`, `request.header:accept`, `response.status`: the direction,
    /// a dot, and a JSON Pointer (RFC 6901) or the name of a part of the head.
    pub path: String,
    /// The kind of the value.
    pub kind: FieldKind,
    /// The canonical value; see the variants of [`FieldKind`].
    pub value: Vec<u8>,
}

impl Field {
    /// The committed integer of this field: for a number its millionths, for an RFC 3339 string the
    /// millionths of a second since 1970, plus 2^63. `None` for everything else.
    pub fn amount(&self) -> Option<u64> {
        match self.kind {
            FieldKind::Number => parse_amount(&self.value),
            FieldKind::String => parse_rfc3339_micros(&self.value).and_then(amount_of_micros),
            _ => None,
        }
    }
}

/// Omits the value: values are secrets until they are opened.
impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Field")
            .field("path", &self.path)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// SHA-256(0x03 ‖ salt ‖ value), which hides the value until its salt is shown.
pub(crate) fn value_digest(salt: &[u8; SALT_BYTES], value: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update([VALUE_TAG]).chain_update(salt).chain_update(value).finalize().into()
}

/// The leaf of a field: SHA-256(0x02 ‖ kind ‖ length of path ‖ path ‖ value digest ‖ 0, or 1 ‖
/// commitment).
pub(crate) fn field_leaf(
    path: &str,
    kind: FieldKind,
    value_digest: &[u8; 32],
    commitment: Option<&[u8; 32]>,
) -> [u8; 32] {
    let mut writer = Writer::starting_with(&[FIELD_TAG, kind as u8]);
    writer.u16_prefixed(path.as_bytes()).raw(value_digest);
    match commitment {
        None => writer.u8(0),
        Some(commitment) => writer.u8(1).raw(commitment),
    };
    Sha256::digest(writer.finish()).into()
}

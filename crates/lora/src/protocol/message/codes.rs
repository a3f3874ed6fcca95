//! The codes of enumerations on the wire: their places in a list.

use crate::{
    protocol::{error::ProtocolError, fields::Fields, scheme::Scheme},
    terms::Protect,
};

pub(super) const SCHEMES: [Scheme; 2] = [Scheme::Masked, Scheme::Direct];

pub(super) const PROTECTS: [Protect; 2] = [Protect::A, Protect::Ba];

/// The code of a word: its place in the list, from `first`.
pub(super) fn code<T: PartialEq>(words: &[T], word: &T, first: u8) -> u8 {
    words.iter().position(|known| known == word).map_or(u8::MAX, |index| index as u8 + first)
}

pub(super) fn word<T: Copy>(
    fields: &mut Fields<'_>,
    field: &'static str,
    words: &[T],
    first: u8,
) -> Result<T, ProtocolError> {
    let code = fields.u8(field)?;
    let index = code.checked_sub(first).map(usize::from);
    let word = index.and_then(|index| words.get(index)).copied();
    word.ok_or_else(|| fields.field_error(field, "a known code"))
}

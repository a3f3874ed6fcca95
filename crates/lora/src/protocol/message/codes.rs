//! The codes of enumerations in messages: their positions in a list.

use crate::protocol::{error::ProtocolError, fields::FieldReader, scheme::Scheme};

pub(super) const SCHEMES: [Scheme; 2] = [Scheme::Masked, Scheme::Direct];

/// The code of a value: its position in the list, counted from `first`.
pub(super) fn encode_enum<T: PartialEq>(words: &[T], word: &T, first: u8) -> u8 {
    words.iter().position(|known| known == word).map_or(u8::MAX, |index| index as u8 + first)
}

pub(super) fn take_enum<T: Copy>(
    fields: &mut FieldReader<'_>,
    field: &'static str,
    words: &[T],
    first: u8,
) -> Result<T, ProtocolError> {
    let code = fields.take_u8(field)?;
    let index = code.checked_sub(first).map(usize::from);
    let word = index.and_then(|index| words.get(index)).copied();
    word.ok_or_else(|| fields.field_error(field, "a known code"))
}

//! What frames hold.

mod open;
mod session;
mod terms;
mod work;

pub use open::{Attach, Attached, Hello};
pub use session::{GroupTerms, Welcome};
pub use terms::{decode_terms, encode_terms};
pub use work::{Apply, Block, Credit, Direct, DirectAnswer, Goodbye, Prepare, Prepared, Products};

use super::{Scheme, error::ProtocolError, fields::Fields};
use crate::site::Input;
use crate::terms::Protect;

const INPUTS: [Input; 5] = [
    Input::Attention,
    Input::AttentionOutput,
    Input::FeedForward,
    Input::FeedForwardInner,
    Input::FinalHidden,
];

const SCHEMES: [Scheme; 2] = [Scheme::Masked, Scheme::Direct];

const PROTECTS: [Protect; 2] = [Protect::A, Protect::Ba];

/// The code of a word: its place in the list, from `first`.
fn code<T: PartialEq>(words: &[T], word: &T, first: u8) -> u8 {
    words.iter().position(|known| known == word).map_or(u8::MAX, |index| index as u8 + first)
}

fn word<T: Copy>(
    fields: &mut Fields<'_>,
    field: &'static str,
    words: &[T],
    first: u8,
) -> Result<T, ProtocolError> {
    let code = fields.u8(field)?;
    let index = code.checked_sub(first).map(usize::from);
    let word = index.and_then(|index| words.get(index)).copied();
    word.ok_or_else(|| fields.wrong(field, "a known code"))
}

#[cfg(test)]
mod tests;

//! The messages that frames carry.

mod codes;
mod open;
mod session;
mod terms;
mod work;

pub use open::{Attach, AttachAnswer, Hello};
pub use session::{GroupTerms, Welcome};
pub use terms::{decode_terms, encode_terms};
pub use work::{
    BlockCredit, CiphertextAnswer, CiphertextBlock, CiphertextRequest, Goodbye, MaskedAnswer,
    MaskedRequest, PrepareRequest, PreparedRows,
};

#[cfg(test)]
mod tests;

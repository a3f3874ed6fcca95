//! The messages that frames carry.

mod codes;
mod open;
mod session;
mod terms;
mod work;

pub use open::{Attach, Attached, Hello};
pub use session::{GroupTerms, Welcome};
pub use terms::{decode_terms, encode_terms};
pub use work::{Apply, Block, Credit, Direct, DirectAnswer, Goodbye, Prepare, Prepared, Products};

#[cfg(test)]
mod tests;

//! CKKS with slots: approximate numbers, many to a ciphertext (Cheon, Kim, Kim and Song, 2017).
//!
//! **For comparison, not for protection.** Report 003 evaluates an adapter under CKKS; this module
//! rebuilds its parameters (60/40/40 bits of data, a 60-bit special prime, scale 2^40) so that its
//! figures can be compared with those of the schemes that do protect. Two things to know before
//! using it for anything else:
//!
//! - **Decryptions must not be shared.** What [`SecretKey::decrypt`] gives holds the encryption's
//!   noise, and noise of known messages gives the key (IND-CPA-D: Li and Micciancio, 2021). Shared
//!   results need flooding, or the exact decoding of `confide-rlwe`.
//! - **A product hides the message, not the weights.** An answer c·p divided by the c that was sent
//!   gives p without any key; there is no re-randomisation here.
//!
//! # From slots to slots
//!
//! [`Ckks::encode`] turns N/2 reals into a [`Message`] of N integers. [`SecretKey::encrypt`] makes
//! a [`Ciphertext`] of it, [`Ckks::plaintext`] a factor in NTT form. [`Ciphertext::product`],
//! [`Ciphertext::add_assign`], [`Ciphertext::rescale`] and [`Ciphertext::rotate`] compute;
//! [`SecretKey::decrypt`] and [`Ckks::decode`] lead back. Primes, their order and the order of the
//! slots are SEAL's, so that both can be compared value by value (`tests/python/test_seal.py`).
//!
//! # What a step of report 003 costs
//!
//! 1536 -> 32 at N = 16384: one encryption, 7 products, 7 decryptions, the weights encoded before.
//! Transforms of one limb: 3 to encrypt (message and error together), 21 to decrypt; 8 of them
//! modulo a 60-bit prime, 16 modulo a 40-bit one. Products: 2·3·7·N with the weights and 3·8·N with
//! the key, 1.1 million, a third of them at 60 bits. Embeddings: one to encode, 4 to decode, as two
//! real vectors share one complex transform.
//!
//! Predicted for one core with AVX-512, from its parts measured alone (60 bits: 66 us for a
//! transform, 1.8 ns for a product; 40 bits, `vpmadd52`: 16 us, 0.25 ns; 45 us for an embedding,
//! 25 us to recombine, 0.15 ms to sample): 0.78 + 0.66 + 0.18 + 0.22 + 0.18 + 0.15 = 2.2 ms. The
//! floor is memory: 2.8 MB of weights read, 5.5 MB of products written and read, 2.8 MB of phases:
//! below 1 ms. Fresh pages for those would cost more than the arithmetic, hence the `_into` functions.
//! Without AVX-512, at 165 us for any transform and 2 ns for any product, it is 8 ms. SEAL's own
//! figures stand in `bench/suites/adapters.toml`'s page, measured in the same run.

mod cipher;
mod context;
mod crt;
mod decode;
mod embedding;
mod error;
mod message;
mod parameters;
mod rotation;
mod switch;
mod wire;

pub use cipher::{Ciphertext, Decrypted, Plaintext, SecretKey};
pub use context::Ckks;
pub use error::CkksError;
pub use message::Message;
pub use parameters::Parameters;
pub use rotation::GaloisKey;

#[cfg(test)]
mod tests;

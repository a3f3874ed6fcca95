//! CKKS with slots: many approximate numbers in one ciphertext (Cheon, Kim, Kim and Song, 2017).
//!
//! **For comparison, not for protection.** Report 003 evaluates an adapter under CKKS; this module
//! rebuilds its parameters (60/40/40 bits of data, a 60-bit special prime, scale 2^40) so that its
//! figures can be compared with those of the schemes that do protect. Before using it for anything
//! else, note:
//!
//! - **Decryptions must not be shared.** The result of [`SecretKey::decrypt`] contains the noise of
//!   the encryption, and the noise of known messages reveals the key (IND-CPA-D: Li and Micciancio,
//!   2021). Shared results need flooding, or the exact decoding of `confide-rlwe`.
//! - **A product hides the message, not the weights.** An answer c·p divided by the c that was sent
//!   is p, without any key; there is no re-randomisation here.
//!
//! # From slots to slots
//!
//! [`CkksContext::encode`] turns N/2 reals into an [`EncodedMessage`] of N integers. [`SecretKey::encrypt`]
//! turns it into a [`Ciphertext`], [`CkksContext::to_plaintext`] into a factor in NTT form.
//! [`Ciphertext::product`], [`Ciphertext::add_assign`], [`Ciphertext::rescale`] and
//! [`Ciphertext::rotate`] compute. [`SecretKey::decrypt`] and [`CkksContext::decode`] return the slots. The
//! primes, their order and the order of the slots are SEAL's, so that both can be compared value by
//! value (`tests/python/test_seal.py`).
//!
//! # What a step of report 003 costs
//!
//! 1536 -> 32 at N = 16384 takes one encryption, 7 products and 7 decryptions; the weights are
//! encoded beforehand. Transforms of one limb: 3 to encrypt (message and error together) and 21 to
//! decrypt, of which 8 are modulo a 60-bit prime and 16 modulo a 40-bit one. Products: 2·3·7·N with
//! the weights and 3·8·N with the key, 1.1 million, a third of them at 60 bits. Embeddings: one to
//! encode and 4 to decode, because two real vectors share one complex transform.
//!
//! The prediction for one core with AVX-512 comes from separate measurements of the parts (60 bits:
//! 66 us for a transform, 1.8 ns for a product; 40 bits, `vpmadd52`: 16 us, 0.25 ns; 45 us for an
//! embedding, 25 us to recombine, 0.15 ms to sample): 0.78 + 0.66 + 0.18 + 0.22 + 0.18 + 0.15 =
//! 2.2 ms. The floor is memory traffic of less than 1 ms: 2.8 MB of weights read, 5.5 MB of products
//! written and read, 2.8 MB of phases. Fresh pages for these would cost more than the arithmetic,
//! hence the `_into` functions. Without AVX-512, at 165 us for any transform and 2 ns for any
//! product, the prediction is 8 ms. SEAL's figures, measured in the same run, are on the page of
//! `bench/suites/adapters.toml`.

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

pub use cipher::{Ciphertext, DecryptedMessage, Plaintext, SecretKey};
pub use context::CkksContext;
pub use error::CkksError;
pub use message::EncodedMessage;
pub use parameters::Parameters;
pub use rotation::GaloisKey;

#[cfg(test)]
mod tests;

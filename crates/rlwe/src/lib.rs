//! Encryption over Z_q\[X\]/(X^N + 1), with which one party computes on data that it cannot read.
//!
//! The crate does no I/O except reading the operating system's randomness. Nothing in it is
//! specific to adapters or models.
//!
//! The layers from below: [`Modulus`] and [`NttTable`], [`Ring`] with its [`Poly`] and [`NttPoly`],
//! the generator [`Rng`], the named [`ParameterSet`]s. Exact encryption of integers mod 2^k (BFV)
//! builds on them: [`SecretKey`], [`PublicKey`], products with [`Plaintext`] polynomials and, over
//! thousands of ciphertexts, with the scalars of a matrix ([`ScalarProducts`]).
//!
//! Other schemes over the same rings can use the pointwise products of a [`Limb`] and
//! [`run_vectorised`], as report 003's CKKS in `confide-report-003` does.

#![deny(missing_docs)]

mod ciphertext;
mod context;
mod encrypt;
mod error;
mod keys;
mod modulus;
mod ntt;
mod params;
mod poly;
mod products;
mod ring;
mod rng;
mod sampler;
mod simd;
mod switch;
mod wire;

pub use ciphertext::{Ciphertext, Plaintext, SeededCiphertext};
pub use context::Context;
pub use encrypt::Encryptor;
pub use error::RlweError;
pub use keys::{PublicKey, SecretKey};
pub use modulus::{Modulus, ShoupFactor, ntt_primes_below};
pub use ntt::{NttPath, NttTable};
pub use params::{ParameterSet, quantum_security_bits};
pub use poly::{NttPoly, Poly};
pub use products::{ScalarMatrix, ScalarProducts};
pub use ring::{Limb, Ring};
pub use rng::{Rng, Seed};
pub use simd::run_vectorised;
pub use switch::SmallCiphertext;

/// Compiles and runs the example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

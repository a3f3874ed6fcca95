//! Encryption over Z_q\[X\]/(X^N + 1): what a party computes on without reading it.
//!
//! Ground floor: no I/O beside the operating system's randomness, no word of adapters or models.
//!
//! From below: [`Modulus`] and [`NttTable`], [`Ring`] with its [`Poly`] and [`NttPoly`], the
//! generator [`Rng`], the named [`ParameterSet`]s.

mod error;
mod modulus;
mod ntt;
mod params;
mod poly;
mod ring;
mod rng;
mod sampler;

pub use error::RlweError;
pub use modulus::{Modulus, Shoup, is_prime, ntt_primes_below};
pub use ntt::{NttTable, Path};
pub use params::{ParameterSet, quantum_security_bits};
pub use poly::{NttPoly, Poly};
pub use ring::{Limb, Ring};
pub use rng::{Rng, Seed};

//! Errors of this crate.

/// The reason why an operation of this crate was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RlweError {
    /// A number cannot be a modulus.
    #[error("modulus: wanted an odd prime below 2^61, got {got}")]
    NotAModulus {
        /// The number that was given.
        got: u64,
    },
    /// A degree and a modulus have no negacyclic transform.
    #[error(
        "ring: wanted a power of two N from 16 to 65536 and a modulus that is 1 mod 2N, got N = \
         {n}, modulus {modulus}"
    )]
    NoTransform {
        /// The degree N.
        n: usize,
        /// The modulus that does not fit.
        modulus: u64,
    },
    /// The moduli of a ring are none, too many, or not all different.
    #[error("ring: wanted 1 to {limit} different moduli, got {got}")]
    InvalidModuli {
        /// The greatest number of limbs.
        limit: usize,
        /// The number of moduli that were given.
        got: usize,
    },
    /// A transform path does not support this machine or this modulus.
    #[error("transform path {path}: not supported on this machine or for this modulus")]
    UnsupportedPath {
        /// The name of the path.
        path: &'static str,
    },
    /// No parameter set has this name.
    #[error("parameter set: wanted one of {known}, got {got:?}")]
    UnknownSet {
        /// The name that was given.
        got: String,
        /// The names of all sets.
        known: String,
    },
    /// A set below 128 bits was requested without `dangerous_from_name`.
    #[error("parameter set {name}: wanted 128 bits of security, got {got}")]
    Insecure {
        /// The name of the set.
        name: &'static str,
        /// The level by the HomomorphicEncryption.org tables, quantum row; 0 below 128 bits.
        got: u32,
    },
    /// A set has no flooding, so its answers would reveal the matrix.
    #[error("parameter set {name}: its answers are not flooded, so they reveal the matrix")]
    NotFlooded {
        /// The name of the set.
        name: &'static str,
    },
    /// A number of plaintext bits leaves no room for the noise of even one product.
    #[error("parameter set {name}: wanted plaintext bits from 2 to {limit}, got {got}")]
    PlaintextBits {
        /// The name of the set.
        name: &'static str,
        /// The greatest number of bits that leaves room for noise.
        limit: u32,
        /// The number of bits that was requested.
        got: u32,
    },
    /// A vector has the wrong length.
    #[error("{what}: wanted length {wanted}, got {got}")]
    Length {
        /// The name of the vector.
        what: &'static str,
        /// The length that is required.
        wanted: usize,
        /// The length that was given.
        got: usize,
    },
    /// A count or a position exceeds its limit.
    #[error("{what}: wanted at most {limit}, got {got}")]
    Limit {
        /// The quantity that is limited.
        what: &'static str,
        /// The greatest value that is allowed.
        limit: usize,
        /// The value that was given.
        got: usize,
    },
    /// The weights could exceed the noise budget of the set.
    #[error("weights: wanted a sum of magnitudes of at most {limit}, got {got}")]
    WeightsTooLarge {
        /// The greatest sum of magnitudes.
        limit: u64,
        /// The sum of magnitudes that was given.
        got: u64,
    },
    /// Bytes are not the encoding that this crate writes.
    #[error("{what}: {reason}")]
    Wire {
        /// The type that was decoded.
        what: &'static str,
        /// The reason why the bytes are refused.
        reason: &'static str,
    },
    /// The operating system's random generator failed.
    #[error("randomness: the operating system's generator failed: {reason}")]
    NoRandomness {
        /// The error of the operating system.
        reason: String,
    },
}

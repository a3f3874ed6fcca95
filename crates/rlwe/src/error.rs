//! Why an operation of this package is refused.

/// Why a part of this crate refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RlweError {
    /// A number that cannot be a modulus here.
    #[error("modulus: wanted an odd prime below 2^61, got {got}")]
    NotAModulus {
        /// The number.
        got: u64,
    },
    /// A ring that has no negacyclic transform.
    #[error(
        "ring: wanted N a power of two from 16 to 65536 and a modulus of 1 mod 2N, \
         got N = {n}, modulus {modulus}"
    )]
    NoTransform {
        /// Degree.
        n: usize,
        /// Modulus.
        modulus: u64,
    },
    /// No limb, too many of them, or one twice.
    #[error("ring: wanted 1 to {limit} different moduli, got {got}")]
    Limbs {
        /// Greatest count.
        limit: usize,
        /// Count given.
        got: usize,
    },
    /// A fast path that this machine or this modulus does not have.
    #[error("transform: this machine has no {path} path for this modulus")]
    NoPath {
        /// Its name.
        path: &'static str,
    },
    /// A name that is no parameter set.
    #[error("parameter set: wanted one of {known}, got {got:?}")]
    UnknownSet {
        /// The name given.
        got: String,
        /// All names.
        known: String,
    },
    /// A set below 128 bits, asked for without saying so.
    #[error("parameter set {name}: wanted 128 bits of security, got {got}")]
    Insecure {
        /// Name of the set.
        name: &'static str,
        /// Level by the HomomorphicEncryption.org tables, quantum row; 0 below the table.
        got: u32,
    },
    /// A set whose answers give the matrix away, asked for without saying so.
    #[error("parameter set {name}: its answers are not flooded, so they give the matrix away")]
    NotFlooded {
        /// Name of the set.
        name: &'static str,
    },
    /// No room for the noise of even one product.
    #[error("parameter set {name}: wanted plaintext bits from 2 to {limit}, got {got}")]
    PlaintextBits {
        /// Name of the set.
        name: &'static str,
        /// Greatest count of bits that leaves room for noise.
        limit: u32,
        /// Count asked for.
        got: u32,
    },
    /// A vector of another length.
    #[error("{what}: wanted length {wanted}, got {got}")]
    Length {
        /// What has it.
        what: &'static str,
        /// Length wanted.
        wanted: usize,
        /// Length given.
        got: usize,
    },
    /// A count or position beyond its limit.
    #[error("{what}: wanted at most {limit}, got {got}")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// Greatest value.
        limit: usize,
        /// Value given.
        got: usize,
    },
    /// Weights whose product could pass the noise budget of the set.
    #[error("weights: wanted a sum of magnitudes of at most {limit}, got {got}")]
    Weights {
        /// Greatest sum of magnitudes.
        limit: u64,
        /// Sum given.
        got: u64,
    },
    /// Bytes that are not the one form that this crate writes.
    #[error("{what}: {reason}")]
    Wire {
        /// Type that was read.
        what: &'static str,
        /// What is wrong.
        reason: &'static str,
    },
    /// The operating system gave no randomness.
    #[error("randomness: the operating system gave none: {reason}")]
    NoRandomness {
        /// What it said.
        reason: String,
    },
}

//! The parameter sets of report 003.

use std::fmt;

use super::error::CkksError;
use confide_rlwe::{ntt_primes_below, quantum_security_bits};

/// The number of limbs of a fresh ciphertext.
pub(super) const LIMBS: usize = 3;

const FIRST_BITS: u32 = 60;
const DATA_BITS: u32 = 40;
const SPECIAL_BITS: u32 = 60;
const SCALE_BITS: i32 = 40;

/// A degree with the moduli of report 003: 60/40/40 bits for data, 60 for key switching, scale
/// 2^40.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    name: &'static str,
    /// The number of the set in the wire format.
    pub(super) id: u8,
    n: usize,
}

const NAMED: [Parameters; 3] = [
    Parameters { name: "ckks-8192-tensafe", id: 1, n: 8192 },
    Parameters { name: "ckks-16384-tensafe", id: 2, n: 16384 },
    Parameters { name: "ckks-32768-tensafe", id: 3, n: 32768 },
];

impl Parameters {
    /// The names of all sets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|set| set.name)
    }

    /// Returns the set with a name. All have at least 128 bits of security.
    ///
    /// # Errors
    /// If no set has the name.
    pub fn from_name(name: &str) -> Result<Parameters, CkksError> {
        let found = NAMED.iter().find(|set| set.name == name).cloned();
        found.ok_or_else(|| CkksError::UnknownSet {
            got: name.into(),
            known: Parameters::names().collect::<Vec<_>>().join(", "),
        })
    }

    /// The same moduli at any degree, for tests: below 8192 there is no security.
    pub fn dangerous_of_degree(n: usize) -> Parameters {
        Parameters { name: "ckks-toy", id: 0, n }
    }

    /// The name of the set.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The degree N, twice the number of slots.
    pub fn n(&self) -> usize {
        self.n
    }

    /// The factor that slots are multiplied by, 2^40.
    pub fn scale(&self) -> f64 {
        2f64.powi(SCALE_BITS)
    }

    /// The data primes in their order, and the special prime, as SEAL chooses them: the greatest
    /// of each width that are 1 mod 2N, of which the greatest is the special prime.
    pub fn primes(&self) -> (Vec<u64>, u64) {
        let large = ntt_primes_below(FIRST_BITS, self.n, 2);
        let mut data = ntt_primes_below(DATA_BITS, self.n, LIMBS - 1);
        data.push(large[1]);
        data.reverse();
        (data, large[0])
    }

    /// log2 of the product of all primes, on which the security depends.
    pub fn modulus_bits(&self) -> u32 {
        FIRST_BITS + (LIMBS as u32 - 1) * DATA_BITS + SPECIAL_BITS
    }

    /// The security level by the HomomorphicEncryption.org tables, quantum row; 0 below 128.
    pub fn security_bits(&self) -> u32 {
        quantum_security_bits(self.n, self.modulus_bits())
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, n, bits) = (self.name, self.n, self.modulus_bits());
        write!(out, "{name}: N = {n}, log q = {bits}, scale 2^{SCALE_BITS}, ")?;
        match self.security_bits() {
            0 => write!(out, "below 128 bits")?,
            level => write!(out, "{level} bits")?,
        }
        write!(out, " (HomomorphicEncryption.org tables, quantum row), for comparison only")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_sets_have_128_bits_and_say_so() {
        for name in Parameters::names() {
            let set = Parameters::from_name(name).unwrap();
            assert!(set.security_bits() >= 128, "{set}");
            assert!(set.to_string().contains("quantum row"));
        }
        assert!(matches!(Parameters::from_name("x"), Err(CkksError::UnknownSet { .. })));
        assert_eq!(Parameters::dangerous_of_degree(1024).security_bits(), 0);
    }

    #[test]
    fn primes_are_those_of_seal() {
        // CoeffModulus::Create(16384, {60, 40, 40, 60}) of SEAL in tenseal 0.3.18.
        let (data, special) = Parameters::from_name("ckks-16384-tensafe").unwrap().primes();
        assert_eq!(data, [1_152_921_504_606_683_137, 1_099_508_121_601, 1_099_510_054_913]);
        assert_eq!(special, 1_152_921_504_606_748_673);
    }
}

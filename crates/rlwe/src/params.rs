//! The named parameter sets, their noise and their security.

use std::fmt;

use crate::{error::RlweError, modulus::ntt_primes_below, sampler::ERROR_BOUND};

/// The greatest `row_l1_max` that a set claims: far beyond what matrices of 16-bit integers reach.
const L1_LIMIT: u128 = 1 << 40;
/// The level below which only a `dangerous_` function returns a set.
const SECURITY_BITS_MIN: u32 = 128;

/// A named choice of ring, moduli and room for messages and noise.
///
/// The noise budget is a worst case, not an estimate. With B = 21.5·row_l1_max (errors of at most 21 and
/// half a unit of encoding under every weight), flooding F = 2^flood_bits·B, and
/// Z = 21·(2N + 1) + 1 for the encryption of zero under the public key and one encoded message
/// (F = Z = 0 in sets that are not flooded),
/// decryption is exact as long as F + B + Z, divided by all primes but the first, and the
/// (N + 1)/2 that each switch down adds, stay below p0 / 2^(k + 1). `row_l1_max` is the greatest
/// value for which this holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterSet {
    definition: &'static SetDefinition,
    primes: Vec<u64>,
    plaintext_bits: u32,
    row_l1_max: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct SetDefinition {
    name: &'static str,
    /// The number of the set in the wire format. A number is never used again for another set.
    id: u8,
    n: usize,
    prime_bits: u32,
    limbs: usize,
    plaintext_bits: u32,
    flood_bits: u32,
}

/// The parameter sets. Primes are the greatest below 2^prime_bits that are 1 mod 2N, greatest
/// first.
const DEFINITIONS: &[SetDefinition] = &[
    SetDefinition {
        name: "rlwe-4096-q100-flood40",
        id: 1,
        n: 4096,
        prime_bits: 50,
        limbs: 2,
        plaintext_bits: 33,
        flood_bits: 40,
    },
    SetDefinition {
        name: "rlwe-8192-q200-flood40",
        id: 2,
        n: 8192,
        prime_bits: 50,
        limbs: 4,
        plaintext_bits: 35,
        flood_bits: 40,
    },
    SetDefinition {
        name: "rlwe-2048-q50",
        id: 3,
        n: 2048,
        prime_bits: 50,
        limbs: 1,
        plaintext_bits: 27,
        flood_bits: 0,
    },
    SetDefinition {
        name: "rlwe-1024-q25",
        id: 4,
        n: 1024,
        prime_bits: 25,
        limbs: 1,
        plaintext_bits: 12,
        flood_bits: 0,
    },
    // A set for tests of the code above the ring: it has no security at all.
    SetDefinition {
        name: "toy-256-q100-flood40",
        id: 5,
        n: 256,
        prime_bits: 50,
        limbs: 2,
        plaintext_bits: 33,
        flood_bits: 40,
    },
];

impl ParameterSet {
    /// The names of all sets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        DEFINITIONS.iter().map(|definition| definition.name)
    }

    /// Returns the set with a name. It has at least 128 bits of security and floods its answers.
    ///
    /// # Errors
    /// If no set has the name, or if the set protects less: see
    /// [`ParameterSet::dangerous_from_name`].
    pub fn from_name(name: &str) -> Result<ParameterSet, RlweError> {
        let set = ParameterSet::dangerous_from_name(name)?;
        let (name, got) = (set.name(), set.security_bits());
        if got < SECURITY_BITS_MIN {
            return Err(RlweError::Insecure { name, got });
        }
        if set.flood_bits() == 0 {
            return Err(RlweError::NotFlooded { name });
        }
        Ok(set)
    }

    /// Returns the set with a name, even if it has less than 128 bits of security or no flooding.
    /// Answers without flooding reveal the matrix to the holder of the secret key.
    ///
    /// # Errors
    /// If no set has the name.
    pub fn dangerous_from_name(name: &str) -> Result<ParameterSet, RlweError> {
        let found = DEFINITIONS.iter().find(|definition| definition.name == name);
        let definition = found.ok_or_else(|| RlweError::UnknownSet {
            got: name.into(),
            known: ParameterSet::names().collect::<Vec<_>>().join(", "),
        })?;
        let primes = ntt_primes_below(definition.prime_bits, definition.n, definition.limbs);
        let plaintext_bits = definition.plaintext_bits;
        let set = ParameterSet { definition, primes, plaintext_bits, row_l1_max: 0 };
        set.with_plaintext_bits(plaintext_bits)
    }

    /// Changes the number of bits of a message: each bit less doubles `row_l1_max`.
    ///
    /// # Errors
    /// If `bits` leaves no room for noise.
    pub fn with_plaintext_bits(mut self, bits: u32) -> Result<ParameterSet, RlweError> {
        self.plaintext_bits = bits;
        self.row_l1_max = self.greatest_row_l1();
        if bits < 2 || self.row_l1_max == 0 {
            let fits = |&bits: &u32| {
                let set = ParameterSet { plaintext_bits: bits, ..self.clone() };
                set.greatest_row_l1() > 0
            };
            let limit = (2..64).take_while(fits).last().unwrap_or(0);
            return Err(RlweError::PlaintextBits { name: self.name(), limit, got: bits });
        }
        Ok(self)
    }

    /// The name of the set.
    pub fn name(&self) -> &'static str {
        self.definition.name
    }

    /// The number of the set in the wire format.
    pub fn id(&self) -> u8 {
        self.definition.id
    }

    /// The degree N, which is the number of messages of a ciphertext.
    pub fn n(&self) -> usize {
        self.definition.n
    }

    /// The primes; answers are switched down to the first.
    pub fn primes(&self) -> &[u64] {
        &self.primes
    }

    /// The number of bits of a message, k: messages are integers mod 2^k.
    pub fn plaintext_bits(&self) -> u32 {
        self.plaintext_bits
    }

    /// The width of flooding: it is uniform in ±2^flood_bits times the bound of the products'
    /// noise; 0 means no flooding.
    pub fn flood_bits(&self) -> u32 {
        self.definition.flood_bits
    }

    /// The greatest sum of magnitudes of the weights that enter one answer.
    pub fn row_l1_max(&self) -> u64 {
        self.row_l1_max
    }

    /// The security level by the HomomorphicEncryption.org tables, quantum row; 0 below 128.
    pub fn security_bits(&self) -> u32 {
        quantum_security_bits(self.n(), self.modulus_bits())
    }

    /// log2 of the product q of all primes, rounded up.
    pub fn modulus_bits(&self) -> u32 {
        self.primes.iter().map(|&p| (p as f64).log2()).sum::<f64>().ceil() as u32
    }

    /// B, the greatest noise of products whose weights keep to `row_l1_max`.
    pub(crate) fn product_noise(&self) -> u128 {
        weighted_noise(self.row_l1_max.into())
    }

    /// F, the bound of flooding, which is uniform in ±F; 0 means no flooding.
    pub(crate) fn flood_bound(&self) -> u128 {
        match self.flood_bits() {
            0 => 0,
            bits => self.product_noise() << bits,
        }
    }

    /// F + B + Z, the greatest noise of an answer before it is switched down.
    fn worst_case_noise(&self) -> u128 {
        self.flood_bound() + self.product_noise() + self.zero_encryption_noise()
    }

    /// The greatest noise before switching down for which decryption is exact, or a lower bound of
    /// it if it exceeds 2^120.
    fn noise_budget(&self) -> u128 {
        let first = u128::from(self.primes[0]);
        let steps = self.primes.len() as u128 - 1;
        // Each switch adds (N + 1)/2 and divides the noise of the earlier switches by a prime.
        let rounding = match steps {
            0 => 0,
            _ => self.n() as u128 / 2 + 2,
        };
        let room = ((first - 1) >> (self.plaintext_bits + 1)).saturating_sub(rounding);
        let fold = |product: u128, &p: &u64| product.saturating_mul(p.into()).min(1 << 100);
        let others = self.primes[1..].iter().fold(1, fold);
        room.saturating_mul(others).min(1 << 120)
    }

    /// Z, the noise of Enc(0) under the public key, e·u + e1 + e2·s, and of one encoded message; 0
    /// without flooding, because such a zero would protect nothing.
    fn zero_encryption_noise(&self) -> u128 {
        match self.flood_bits() {
            0 => 0,
            _ => u128::from(ERROR_BOUND) * (2 * self.n() as u128 + 1) + 1,
        }
    }

    fn greatest_row_l1(&self) -> u64 {
        if self.plaintext_bits > 62 {
            return 0;
        }
        let room = self.noise_budget().saturating_sub(self.zero_encryption_noise());
        let share = match self.flood_bits() {
            0 => room,
            bits => room / ((1 << bits) + 1),
        };
        (share * 2 / u128::from(2 * ERROR_BOUND + 1)).saturating_sub(1).min(L1_LIMIT) as u64
    }
}

/// 21.5 for each unit of weight, rounded up.
fn weighted_noise(l1: u128) -> u128 {
    (l1 * u128::from(2 * ERROR_BOUND + 1)).div_ceil(2)
}

/// The greatest of 128, 192 and 256 bits that a ternary-secret RLWE instance reaches by the
/// HomomorphicEncryption.org tables (2018), quantum row; 0 if it reaches none or the degree is
/// not in the tables.
pub fn quantum_security_bits(n: usize, modulus_bits: u32) -> u32 {
    const LEVELS: [u32; 3] = [256, 192, 128];
    let limits = match n {
        1024 => [13, 17, 25],
        2048 => [27, 35, 51],
        4096 => [54, 70, 101],
        8192 => [109, 141, 202],
        16384 => [220, 284, 411],
        32768 => [443, 571, 827],
        _ => [0; 3],
    };
    let reached = LEVELS.iter().zip(limits).find(|(_, limit)| modulus_bits <= *limit);
    reached.map_or(0, |(&level, _)| level)
}

impl fmt::Display for ParameterSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let log = |x: u128| (x as f64).log2();
        let (name, n, k) = (self.name(), self.n(), self.plaintext_bits);
        let (bits, level) = (self.modulus_bits(), self.security_bits());
        write!(out, "{name}: N = {n}, log q = {bits}, messages mod 2^{k}, ")?;
        match level {
            0 => write!(out, "below 128 bits")?,
            level => write!(out, "{level} bits")?,
        }
        write!(out, " (HomomorphicEncryption.org tables, quantum row), ")?;
        match self.flood_bits() {
            0 => write!(out, "not flooded: the matrix is not protected")?,
            bits => write!(out, "flooded by 2^{bits}")?,
        }
        let (noise, room) = (log(self.worst_case_noise()), log(self.noise_budget()));
        write!(out, ", worst noise 2^{noise:.2} of 2^{room:.2}, ")?;
        write!(out, "weights of an answer sum to at most {}", self.row_l1_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = ParameterSet> {
        ParameterSet::names().map(|name| ParameterSet::dangerous_from_name(name).unwrap())
    }

    #[test]
    fn weak_and_unflooded_sets_must_be_asked_for_by_their_danger() {
        assert!(ParameterSet::from_name("rlwe-4096-q100-flood40").is_ok());
        assert!(ParameterSet::from_name("rlwe-8192-q200-flood40").is_ok());
        let toy = ParameterSet::from_name("toy-256-q100-flood40");
        assert!(matches!(toy, Err(RlweError::Insecure { got: 0, .. })));
        for name in ["rlwe-2048-q50", "rlwe-1024-q25"] {
            assert!(matches!(ParameterSet::from_name(name), Err(RlweError::NotFlooded { .. })));
            assert_eq!(ParameterSet::dangerous_from_name(name).unwrap().security_bits(), 128);
        }
        assert!(matches!(ParameterSet::from_name("x"), Err(RlweError::UnknownSet { .. })));
    }

    #[test]
    fn names_and_numbers_are_used_once() {
        let mut ids: Vec<_> = all().map(|set| set.id()).collect();
        let mut names: Vec<_> = ParameterSet::names().collect();
        ids.sort_unstable();
        ids.dedup();
        names.sort_unstable();
        names.dedup();
        assert_eq!((ids.len(), names.len()), (DEFINITIONS.len(), DEFINITIONS.len()));
    }

    #[test]
    fn the_worst_noise_fits_and_one_more_weight_would_not() {
        for set in all() {
            assert_eq!(set.primes().len(), set.definition.limbs);
            assert!(set.worst_case_noise() <= set.noise_budget(), "{set}");
            let more = ParameterSet { row_l1_max: set.row_l1_max + 2, ..set.clone() };
            let capped = u128::from(set.row_l1_max) == L1_LIMIT;
            assert!(capped || more.worst_case_noise() > set.noise_budget(), "{set}");
        }
    }

    #[test]
    fn the_flooded_set_has_room_for_rows_of_twelve_bits() {
        let set = ParameterSet::from_name("rlwe-4096-q100-flood40").unwrap();
        assert_eq!(set.plaintext_bits(), 33);
        assert!(set.row_l1_max() > 3_000_000, "{set}");
        let wider = set.with_plaintext_bits(32).unwrap();
        assert!(wider.row_l1_max() > 6_000_000, "{wider}");
        let refused = wider.with_plaintext_bits(49);
        assert!(matches!(refused, Err(RlweError::PlaintextBits { .. })), "{refused:?}");
    }

    #[test]
    fn every_set_prints_its_level_and_its_budget() {
        let text = ParameterSet::from_name("rlwe-4096-q100-flood40").unwrap().to_string();
        for part in ["128 bits", "quantum row", "worst noise 2^", "messages mod 2^33", "2^40"] {
            assert!(text.contains(part), "{text}");
        }
        let toy = ParameterSet::dangerous_from_name("toy-256-q100-flood40").unwrap().to_string();
        assert!(toy.contains("below 128 bits"), "{toy}");
        let direct = ParameterSet::dangerous_from_name("rlwe-2048-q50").unwrap().to_string();
        assert!(direct.contains("not flooded"), "{direct}");
    }

    #[test]
    fn levels_are_those_of_the_tables() {
        assert_eq!(quantum_security_bits(4096, 101), 128);
        assert_eq!(quantum_security_bits(4096, 102), 0);
        assert_eq!(quantum_security_bits(16384, 200), 256);
        assert_eq!(quantum_security_bits(16384, 284), 192);
        assert_eq!(quantum_security_bits(512, 1), 0);
    }
}

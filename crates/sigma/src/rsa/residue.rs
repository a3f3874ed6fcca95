//! Arithmetic modulo N with crypto-bigint's Montgomery products, which take the same time for all
//! values. All exponents are public, so control flow may depend on their digits.

use crypto_bigint::{
    Uint,
    modular::{FixedMontyForm, FixedMontyParams},
};
use zeroize::{Zeroize, Zeroizing};

use crate::{challenge::CHALLENGE_LENGTH, random::SecretStream};

/// The only supported public exponent: prime, above every challenge, and the usual one in
/// certificates.
pub(crate) const EXPONENT: u32 = 65537;

/// The number of rounds, each with a challenge of 16 bits: soundness 2^-128.
pub(super) const ROUNDS: usize = CHALLENGE_LENGTH / 2;

type Residue<const L: usize> = FixedMontyForm<L>;

/// The number of digits of two bits in an exponent e − c: e has 17 bits.
const DIGITS: usize = 9;

/// The ring of residues modulo N.
pub(super) struct ResidueRing<'a, const L: usize> {
    params: &'a FixedMontyParams<L>,
    length: usize,
}

impl<'a, const L: usize> ResidueRing<'a, L> {
    pub(super) fn new(params: &'a FixedMontyParams<L>, length: usize) -> Self {
        Self { params, length }
    }

    /// Parses a public residue; `None` if it has another length, is zero, or is not below N.
    pub(super) fn parse(&self, bytes: &[u8]) -> Option<Residue<L>> {
        Some(Residue::new(&self.parse_nonzero(bytes)?, self.params))
    }

    /// Parses a secret residue, which is erased after use.
    pub(super) fn parse_secret(&self, bytes: &[u8]) -> Option<Zeroizing<Residue<L>>> {
        let number = Zeroizing::new(self.parse_nonzero(bytes)?);
        Some(Zeroizing::new(Residue::new(&number, self.params)))
    }

    pub(super) fn encode(&self, residue: &Residue<L>) -> Vec<u8> {
        encode_number(&residue.retrieve(), self.length)
    }

    pub(super) fn recover_encoded_message(&self, signature: &[u8]) -> Option<Vec<u8>> {
        let signature = self.parse_secret(signature)?;
        Some(self.encode(&raise_to_exponent(&signature)))
    }

    /// Whether s^e = EM.
    pub(super) fn is_root(&self, signature: &Residue<L>, em: &Residue<L>) -> bool {
        raise_to_exponent(signature).as_montgomery() == em.as_montgomery()
    }

    /// Draws a uniform residue for each round. The drawn number is used as the Montgomery form, as
    /// a uniform residue is uniform in this form too. A number that is not below N is drawn again,
    /// which reveals nothing about the accepted one.
    pub(super) fn draw_nonces(&self, stream: &mut SecretStream) -> Zeroizing<Vec<Residue<L>>> {
        let mut buffer = Zeroizing::new(vec![0; self.length]);
        let spare = 8 * self.length - self.params.modulus().bits() as usize;
        let mut draw = || {
            loop {
                stream.fill(&mut buffer);
                buffer[0] &= 0xff >> spare;
                if let Some(number) = self.parse_nonzero(&buffer) {
                    return Residue::from_montgomery(number, self.params);
                }
            }
        };
        Zeroizing::new((0..ROUNDS).map(|_| draw()).collect())
    }

    /// Computes the commitment (r·EM)^e of each nonce.
    pub(super) fn commit(&self, nonces: &[Residue<L>], em: &Residue<L>) -> Vec<Residue<L>> {
        nonces.iter().map(|r| raise_to_exponent(&Zeroizing::new(r.mul(em)))).collect()
    }

    /// Computes the response r·s^(e − c) of each round, with a table of s, s² and s³, each raised
    /// to every power 4^j.
    pub(super) fn respond(
        &self,
        nonces: &[Residue<L>],
        signature: &Residue<L>,
        challenges: &[u16; ROUNDS],
    ) -> Vec<Residue<L>> {
        let mut table = Zeroizing::new(Vec::with_capacity(DIGITS));
        let mut base = Zeroizing::new(*signature);
        for _ in 0..DIGITS {
            let square = Zeroizing::new(base.square());
            table.push([*base, *square, square.mul(&base)]);
            *base = square.square();
        }
        let respond = |(r, c): (&Residue<L>, &u16)| {
            let exponent = EXPONENT - u32::from(*c);
            // Before the last product this is a nonce times a power of the witness, so it is
            // erased.
            let mut product = Zeroizing::new(*r);
            for (j, powers) in table.iter().enumerate() {
                match exponent >> (2 * j) & 3 {
                    0 => {}
                    digit => *product = product.mul(&powers[digit as usize - 1]),
                }
            }
            *product
        };
        nonces.iter().zip(challenges).map(respond).collect()
    }

    /// Checks the equations of all rounds in one product, which a fault in a single value breaks.
    pub(super) fn verify_product(
        &self,
        responses: &[Residue<L>],
        commitments: &[Residue<L>],
        em: &Residue<L>,
        challenges: &[u16; ROUNDS],
    ) -> bool {
        let product = |factors: &[Residue<L>]| {
            factors[1..].iter().fold(factors[0], |product, factor| product.mul(factor))
        };
        let sum: u32 = challenges.iter().map(|c| u32::from(*c)).sum();
        let right =
            raise_to_exponent(&product(responses)).mul(&em.pow_vartime(&Uint::<1>::from(sum)));
        product(commitments).as_montgomery() == right.as_montgomery()
    }

    /// Computes EM^0 to EM^15.
    pub(super) fn small_powers(&self, em: &Residue<L>) -> [Residue<L>; 16] {
        let mut powers = [Residue::one(self.params); 16];
        for i in 1..16 {
            powers[i] = powers[i - 1].mul(em);
        }
        powers
    }

    /// Computes z^e·EM^c with shared squarings; `None` if z is not a residue.
    pub(super) fn recompute_commitment(
        &self,
        response: &[u8],
        challenge: u16,
        powers: &[Residue<L>; 16],
    ) -> Option<Uint<L>> {
        let number = self.parse_nonzero(response)?;
        let mut product = Residue::new(&number, self.params);
        for digit in [challenge >> 12, challenge >> 8 & 15, challenge >> 4 & 15, challenge & 15] {
            product = product.square_repeat_vartime(4);
            if digit != 0 {
                product = product.mul(&powers[usize::from(digit)]);
            }
        }
        // Multiplied by the plain number instead of its Montgomery form, the product is plain.
        let plain = Residue::from_montgomery(number, self.params);
        Some(product.mul(&plain).to_montgomery())
    }

    /// Parses a number above zero and below N.
    fn parse_nonzero(&self, bytes: &[u8]) -> Option<Uint<L>> {
        if bytes.len() != self.length {
            return None;
        }
        let number = parse_number(bytes);
        let inside = number < *self.params.modulus().as_ref() && number != Uint::ZERO;
        inside.then_some(number)
    }
}

/// Computes base^65537. The base follows from the result and the base's 65536th power, so that this
/// power is erased.
fn raise_to_exponent<const L: usize>(base: &Residue<L>) -> Residue<L> {
    Zeroizing::new(base.square_repeat_vartime(16)).mul(base)
}

/// Parses a number from at most 8·L bytes, most significant first.
pub(super) fn parse_number<const L: usize>(bytes: &[u8]) -> Uint<L> {
    let mut words = [0; L];
    for (word, chunk) in words.iter_mut().zip(bytes.rchunks(8)) {
        *word = chunk.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    }
    let number = Uint::from_words(words);
    words.zeroize();
    number
}

/// Encodes the lowest `length` bytes of a number, most significant first.
pub(super) fn encode_number<const L: usize>(number: &Uint<L>, length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    for (chunk, word) in out.rchunks_mut(8).zip(number.to_words()) {
        let word = word.to_be_bytes();
        chunk.copy_from_slice(&word[8 - chunk.len()..]);
    }
    out
}

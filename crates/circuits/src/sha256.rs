//! SHA-256 over words of a circuit (FIPS 180-4 section 6.2).
//!
//! A compression of hidden words takes about 17,500 constraints: 128 a round for two parities, the
//! choice and the majority, 71 for the two new words, and 99 for each word of the schedule.

use bellpepper_core::{ConstraintSystem, SynthesisError};

use crate::{
    curve::Scalar,
    kind::BLOCK_BYTES,
    word::{Byte, Word, WordSum, choice, majority, parity},
};

pub(crate) type Block = [Word; 16];

/// The eight words of a chaining value; the fourth and the eighth are only added, so they stay
/// sums.
pub(crate) struct ChainingValue {
    bits: [Word; 6],
    fourth: WordSum,
    eighth: WordSum,
}

impl ChainingValue {
    /// The chaining value before the first block.
    pub(crate) fn initial() -> Self {
        let bits = [0, 1, 2, 4, 5, 6].map(|place| Word::constant(INITIAL_VALUES[place]));
        let sum = |place: usize| WordSum::constant(INITIAL_VALUES[place].into());
        Self { bits, fourth: sum(3), eighth: sum(7) }
    }

    /// The eight words, each at most a few bits above 32.
    pub(crate) fn to_sums(&self) -> [WordSum; 8] {
        let [a, b, c, e, f, g] = self.bits.each_ref().map(WordSum::from_word);
        [a, b, c, self.fourth.clone(), e, f, g, self.eighth.clone()]
    }

    /// Makes a chaining value from the sums of a compression.
    pub(crate) fn from_sums<CS: ConstraintSystem<Scalar>>(
        cs: &mut CS,
        sums: &[WordSum; 8],
    ) -> Result<Self, SynthesisError> {
        let mut bits = [Word::constant(0); 6];
        for (word, place) in bits.iter_mut().zip([0, 1, 2, 4, 5, 6]) {
            *word = sums[place].reduce(cs)?;
        }
        Ok(Self { bits, fourth: sums[3].clone(), eighth: sums[7].clone() })
    }
}

/// Compresses one block, and returns the words of the next chaining value as sums modulo 2^32.
pub(crate) fn compress<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    chain: &ChainingValue,
    block: &Block,
) -> Result<[WordSum; 8], SynthesisError> {
    let schedule = message_schedule(cs, block)?;
    let [mut a, mut b, mut c, mut e, mut f, mut g] = chain.bits;
    let mut d = chain.fourth.clone();
    let mut d_word = None;
    let mut h = chain.eighth.clone();
    for (round, word) in schedule.iter().enumerate() {
        let large_one = parity(cs, [&e.rotate_right(6), &e.rotate_right(11), &e.rotate_right(25)])?;
        let chosen = choice(cs, [&e, &f, &g])?;
        let first = h.plus_sum(word).plus(&large_one).plus(&chosen);
        let first = first.plus_sum(&WordSum::constant(ROUND_CONSTANTS[round].into()));
        let large_zero =
            parity(cs, [&a.rotate_right(2), &a.rotate_right(13), &a.rotate_right(22)])?;
        let most = majority(cs, [&a, &b, &c])?;
        if round == 63 {
            let [b0, b1, b2, b4, b5, b6] = chain.bits.each_ref();
            return Ok([
                first.clone().plus(&large_zero).plus(&most).plus(b0),
                WordSum::from_word(&a).plus(b1),
                WordSum::from_word(&b).plus(b2),
                WordSum::from_word(&c).plus_sum(&chain.fourth),
                first.plus_sum(&d).plus(b4),
                WordSum::from_word(&e).plus(b5),
                WordSum::from_word(&f).plus(b6),
                WordSum::from_word(&g).plus_sum(&chain.eighth),
            ]);
        }
        let new_e = first.clone().plus_sum(&d).reduce(cs)?;
        let new_a = match &d_word {
            // a' = e' - d + ..., whose carry has one bit less than that of the full sum.
            Some(d) => WordSum::from_word(&new_e).minus(d),
            None => first,
        };
        let new_a = new_a.plus(&large_zero).plus(&most).reduce(cs)?;
        (h, g, f, e) = (WordSum::from_word(&g), f, e, new_e);
        (d_word, d, c, b, a) = (Some(c), WordSum::from_word(&c), b, a, new_a);
    }
    Err(SynthesisError::Unsatisfiable)
}

/// The 64 words of a block's schedule; the last two are only added, so they remain sums.
fn message_schedule<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    block: &Block,
) -> Result<Vec<WordSum>, SynthesisError> {
    let mut words = block.to_vec();
    let mut sums: Vec<WordSum> = block.iter().map(WordSum::from_word).collect();
    for place in 16..64 {
        let (two, fifteen) = (words[place - 2], words[place - 15]);
        let small_one =
            parity(cs, [&two.rotate_right(17), &two.rotate_right(19), &two.shift_right(10)])?;
        let small_zero = parity(
            cs,
            [&fifteen.rotate_right(7), &fifteen.rotate_right(18), &fifteen.shift_right(3)],
        )?;
        let sum = WordSum::from_word(&small_one).plus(&words[place - 7]).plus(&small_zero);
        let sum = sum.plus(&words[place - 16]);
        if place < 62 {
            let word = sum.reduce(cs)?;
            words.push(word);
            sums.push(WordSum::from_word(&word));
        } else {
            sums.push(sum);
        }
    }
    Ok(sums)
}

/// Makes a block from its 64 bytes.
pub(crate) fn block_from_bytes(bytes: &[Byte]) -> Option<Block> {
    let mut block = [Word::constant(0); 16];
    if bytes.len() != BLOCK_BYTES {
        return None;
    }
    for (word, bytes) in block.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = Word::from_bytes(bytes.try_into().ok()?);
    }
    Some(block)
}

/// The first 32 bits of the fractional parts of the square roots of the first eight primes.
const INITIAL_VALUES: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
#[rustfmt::skip]
const ROUND_CONSTANTS: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

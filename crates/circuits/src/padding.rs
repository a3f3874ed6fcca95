//! SHA-256 of hidden bytes of hidden length, within a fixed number of blocks.
//!
//! The witness contains the padded blocks and, for each position i, the bit `inside[i]`: whether i
//! is below the length. These bits fall from one to zero once, which determines the padding: there
//! the byte is 0x80, after it all are zero, and the last two bytes of the last block are the length
//! in bits. The digest is the chaining value after that block, which a selector bit chooses.

use bellpepper_core::{ConstraintSystem, SynthesisError};
use ff::Field;

use crate::{
    curve::Scalar,
    kind::{BLOCK_BYTES, PADDING_LEAST, block_count},
    sha256::{Block, ChainingValue, block_from_bytes, compress},
    word::{Bit, Byte, LinearForm, WordSum, allocate_variable, empty_name},
};

/// The index in a block of the last two bytes of the length. Lengths are below 2^13 bytes, so the
/// six bytes before them are zero.
const LENGTH_AT: usize = 62;

/// Hidden bytes and their digest.
pub(crate) struct HashedBytes {
    /// The bytes up to the greatest length; those after the true length are padding.
    pub(crate) bytes: Vec<Byte>,
    /// Whether each byte is within the length.
    pub(crate) inside: Vec<Bit>,
    /// The eight words of the digest, each modulo 2^32.
    pub(crate) digest: [WordSum; 8],
}

/// Hashes `prefix` and up to `capacity` hidden bytes; `message` is the prefix with these bytes.
pub(crate) fn hash_hidden<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    prefix: &[Byte],
    capacity: usize,
    message: Option<&[u8]>,
) -> Result<HashedBytes, SynthesisError> {
    let blocks = block_count(prefix.len() + capacity);
    let padded = message.map(|message| pad_message(message, blocks));
    let length = message.map(<[u8]>::len);
    let places = LengthMask::allocate(cs, prefix.len(), capacity, length)?;

    let mut stream = prefix.to_vec();
    for place in prefix.len()..blocks * BLOCK_BYTES {
        stream.push(places.allocate_byte(
            cs,
            place,
            padded.as_ref().map(|padded| padded[place]),
        )?);
    }
    for block in 0..blocks {
        places.bind_length(cs, block, &stream);
    }
    let chosen: Vec<Option<bool>> =
        (0..blocks).map(|block| length.map(|length| block_count(length) == block + 1)).collect();
    let digest = hash_blocks(cs, &places, &stream, &chosen)?;
    let bytes = stream[prefix.len()..prefix.len() + capacity].to_vec();
    Ok(HashedBytes { bytes, inside: places.inside, digest })
}

/// The bits that mark the positions within the length.
struct LengthMask {
    /// The number of positions that are always within the length.
    always: usize,
    /// The bits of the positions after those.
    inside: Vec<Bit>,
}

impl LengthMask {
    fn allocate<CS: ConstraintSystem<Scalar>>(
        cs: &mut CS,
        always: usize,
        capacity: usize,
        length: Option<usize>,
    ) -> Result<Self, SynthesisError> {
        let mut places = Self { always, inside: Vec::with_capacity(capacity) };
        let one = CS::one();
        for place in always..always + capacity {
            let before = places.inside_bit(place.checked_sub(1));
            let inside = allocate_variable(cs, length.map(|length| u64::from(place < length)))?;
            // A position may be inside only if the one before it is.
            cs.enforce(
                empty_name,
                |form| form + inside,
                |form| before.add_to(form + inside, one, -Scalar::ONE),
                |form| form,
            );
            places.inside.push(Bit::Variable(inside));
        }
        Ok(places)
    }

    /// The bit of a position; `None`, before the first position, is within the length.
    fn inside_bit(&self, place: Option<usize>) -> Bit {
        let Some(hidden) = place.and_then(|place| place.checked_sub(self.always)) else {
            return Bit::Constant(true);
        };
        self.inside.get(hidden).copied().unwrap_or(Bit::Constant(false))
    }

    /// A bit that is one if the message ends in `block`, as a difference of two bits.
    fn end_bit(&self, block: usize) -> [Bit; 2] {
        let reaches =
            |block: usize| self.inside_bit((block * BLOCK_BYTES).checked_sub(PADDING_LEAST));
        [reaches(block), reaches(block + 1)]
    }

    /// Allocates a byte of the padded message after the prefix.
    fn allocate_byte<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
        place: usize,
        value: Option<u8>,
    ) -> Result<Byte, SynthesisError> {
        let holds_length = place % BLOCK_BYTES >= LENGTH_AT;
        if place > self.always + self.inside.len() && !holds_length {
            return Ok(Byte::constant(0));
        }
        let byte = Byte::allocate(cs, value)?;
        let (before, inside) =
            (self.inside_bit(place.checked_sub(1)), self.inside_bit(Some(place)));
        let [from, to] = self.end_bit(place / BLOCK_BYTES);
        let one = CS::one();
        // 0x80 at the end, and zero after it except in the bytes of the length.
        cs.enforce(
            empty_name,
            |form| {
                let outside = inside.add_to(form + one, one, -Scalar::ONE);
                match holds_length {
                    true => add_difference(outside, [to, from], one, Scalar::ONE),
                    false => outside,
                }
            },
            |form| byte.add_to(form, one, 1),
            |form| add_difference(form, [before, inside], one, Scalar::from(0x80)),
        );
        Ok(byte)
    }

    /// Constrains the last two bytes of `block` to be the length in bits, if the message ends
    /// there.
    fn bind_length<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
        block: usize,
        stream: &[Byte],
    ) {
        let at = block * BLOCK_BYTES + LENGTH_AT;
        let ends = self.end_bit(block);
        let one = CS::one();
        cs.enforce(
            empty_name,
            |form| add_difference(form, ends, one, Scalar::ONE),
            |form| {
                let form = stream[at].add_to(form, one, 256);
                let form = stream[at + 1].add_to(form, one, 1);
                let form = form - (Scalar::from(8 * self.always as u64), one);
                let less = |form, bit: &Bit| bit.add_to(form, one, -Scalar::from(8));
                self.inside.iter().fold(form, less)
            },
            |form| form,
        );
    }
}

/// Hashes all blocks, and selects the chaining value after the one in which the message ends.
fn hash_blocks<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    places: &LengthMask,
    stream: &[Byte],
    chosen: &[Option<bool>],
) -> Result<[WordSum; 8], SynthesisError> {
    let blocks: Option<Vec<Block>> =
        stream.chunks_exact(BLOCK_BYTES).map(block_from_bytes).collect();
    let blocks = blocks.ok_or(SynthesisError::Unsatisfiable)?;
    let mut chain = ChainingValue::initial();
    let mut digest = std::array::from_fn(|_| WordSum::constant(0));
    for (number, block) in blocks.iter().enumerate() {
        let mut sums = compress(cs, &chain, block)?;
        if blocks.len() == 1 {
            return Ok(sums);
        }
        if number + 1 < blocks.len() {
            chain = ChainingValue::from_sums(cs, &sums)?;
            sums = chain.to_sums();
        }
        for (word, sum) in digest.iter_mut().zip(&sums) {
            *word = word.clone().plus_sum(&select_sum(
                cs,
                places.end_bit(number),
                chosen[number],
                sum,
            )?);
        }
    }
    Ok(digest)
}

/// Selects `sum` if the message ends in this block, otherwise zero.
fn select_sum<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    ends: [Bit; 2],
    chosen: Option<bool>,
    sum: &WordSum,
) -> Result<WordSum, SynthesisError> {
    let value = sum.value.zip(chosen).map(|(sum, chosen)| if chosen { sum } else { 0 });
    let product = allocate_variable(cs, value)?;
    let one = CS::one();
    cs.enforce(
        empty_name,
        |form| add_difference(form, ends, one, Scalar::ONE),
        |form| sum.add_to(form, one),
        |form| form + product,
    );
    Ok(WordSum::constant(0).plus_variable(product, value, sum.max_value()))
}

/// Adds the difference of two bits, multiplied by `times`.
fn add_difference(
    form: LinearForm,
    [from, less]: [Bit; 2],
    one: bellpepper_core::Variable,
    times: Scalar,
) -> LinearForm {
    less.add_to(from.add_to(form, one, times), one, -times)
}

/// Pads a message (FIPS 180-4 section 5.1.1), and adds zeros up to `blocks` blocks.
fn pad_message(message: &[u8], blocks: usize) -> Vec<u8> {
    let mut stream = vec![0; blocks * BLOCK_BYTES];
    stream[..message.len()].copy_from_slice(message);
    stream[message.len()] = 0x80;
    let end = block_count(message.len()) * BLOCK_BYTES;
    stream[end - 8..end].copy_from_slice(&(8 * message.len() as u64).to_be_bytes());
    stream
}

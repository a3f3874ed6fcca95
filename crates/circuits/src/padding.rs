//! SHA-256 of hidden bytes of a hidden number, within a fixed number of blocks.
//!
//! The witness holds the padded blocks and, for each place i, `inside[i]`: whether i is below the
//! length. These fall from one to zero once. The padding follows from them: at the fall the byte
//! is 0x80, after it zero, and the last two bytes of the block in which it ends are the length in
//! bits. The digest is the chaining value after that block, chosen by a one among zeros.

use bellpepper_core::{ConstraintSystem, SynthesisError};
use ff::Field;

use crate::{
    curve::Scalar,
    kind::{BLOCK_BYTES, PADDING_LEAST, blocks_of},
    sha256::{Block, Chain, block_of, compress},
    word::{Bit, Byte, Form, Sum, allocate, empty_name},
};

/// The place in a block of the two bytes of the length. Lengths stay below 2^13 bytes, so the six
/// bytes before are zero.
const LENGTH_AT: usize = 62;

/// Hidden bytes and their digest.
pub(crate) struct Hashed {
    /// The bytes up to the greatest length; those beyond the true length are padding.
    pub(crate) bytes: Vec<Byte>,
    /// Whether each byte is within the length.
    pub(crate) inside: Vec<Bit>,
    /// The eight words of the digest, each modulo 2^32.
    pub(crate) digest: [Sum; 8],
}

/// Hashes `prefix` and up to `room` hidden bytes. `message` is both together.
pub(crate) fn hash_hidden<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    prefix: &[Byte],
    room: usize,
    message: Option<&[u8]>,
) -> Result<Hashed, SynthesisError> {
    let blocks = blocks_of(prefix.len() + room);
    let padded = message.map(|message| pad_message(message, blocks));
    let length = message.map(<[u8]>::len);
    let places = Places::allocate(cs, prefix.len(), room, length)?;

    let mut stream = prefix.to_vec();
    for place in prefix.len()..blocks * BLOCK_BYTES {
        stream.push(places.byte(cs, place, padded.as_ref().map(|padded| padded[place]))?);
    }
    for block in 0..blocks {
        places.bind_length(cs, block, &stream);
    }
    let chosen: Vec<Option<bool>> =
        (0..blocks).map(|block| length.map(|length| blocks_of(length) == block + 1)).collect();
    let digest = chain(cs, &places, &stream, &chosen)?;
    let bytes = stream[prefix.len()..prefix.len() + room].to_vec();
    Ok(Hashed { bytes, inside: places.inside, digest })
}

/// The places that are within the length.
struct Places {
    /// The number of places that always are.
    always: usize,
    /// Whether each of the places after those is.
    inside: Vec<Bit>,
}

impl Places {
    fn allocate<CS: ConstraintSystem<Scalar>>(
        cs: &mut CS,
        always: usize,
        room: usize,
        length: Option<usize>,
    ) -> Result<Self, SynthesisError> {
        let mut places = Self { always, inside: Vec::with_capacity(room) };
        let one = CS::one();
        for place in always..always + room {
            let before = places.is_inside(place.checked_sub(1));
            let inside = allocate(cs, length.map(|length| u64::from(place < length)))?;
            // A place may be inside only if the one before it is.
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

    /// Returns whether a place is within the length; places before the first one are.
    fn is_inside(&self, place: Option<usize>) -> Bit {
        let Some(hidden) = place.and_then(|place| place.checked_sub(self.always)) else {
            return Bit::Constant(true);
        };
        self.inside.get(hidden).copied().unwrap_or(Bit::Constant(false))
    }

    /// A bit that is one where the message ends in `block`, as a difference of two bits.
    fn ends_in(&self, block: usize) -> [Bit; 2] {
        let reaches =
            |block: usize| self.is_inside((block * BLOCK_BYTES).checked_sub(PADDING_LEAST));
        [reaches(block), reaches(block + 1)]
    }

    /// Allocates a byte of the padded message after the prefix.
    fn byte<CS: ConstraintSystem<Scalar>>(
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
        let (before, inside) = (self.is_inside(place.checked_sub(1)), self.is_inside(Some(place)));
        let [from, to] = self.ends_in(place / BLOCK_BYTES);
        let one = CS::one();
        // 0x80 at the end, zero after it, except where the length stands.
        cs.enforce(
            empty_name,
            |form| {
                let outside = inside.add_to(form + one, one, -Scalar::ONE);
                match holds_length {
                    true => difference(outside, [to, from], one, Scalar::ONE),
                    false => outside,
                }
            },
            |form| byte.add_to(form, one, 1),
            |form| difference(form, [before, inside], one, Scalar::from(0x80)),
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
        let ends = self.ends_in(block);
        let one = CS::one();
        cs.enforce(
            empty_name,
            |form| difference(form, ends, one, Scalar::ONE),
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

/// The chaining value after the block in which the message ends.
fn chain<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    places: &Places,
    stream: &[Byte],
    chosen: &[Option<bool>],
) -> Result<[Sum; 8], SynthesisError> {
    let blocks: Option<Vec<Block>> = stream.chunks_exact(BLOCK_BYTES).map(block_of).collect();
    let blocks = blocks.ok_or(SynthesisError::Unsatisfiable)?;
    let mut chain = Chain::start();
    let mut digest = std::array::from_fn(|_| Sum::constant(0));
    for (number, block) in blocks.iter().enumerate() {
        let mut sums = compress(cs, &chain, block)?;
        if blocks.len() == 1 {
            return Ok(sums);
        }
        if number + 1 < blocks.len() {
            chain = Chain::from_sums(cs, &sums)?;
            sums = chain.sums();
        }
        for (word, sum) in digest.iter_mut().zip(&sums) {
            *word = word.clone().and(&chosen_sum(cs, places.ends_in(number), chosen[number], sum)?);
        }
    }
    Ok(digest)
}

/// `sum` where the message ends in this block, else zero.
fn chosen_sum<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    ends: [Bit; 2],
    chosen: Option<bool>,
    sum: &Sum,
) -> Result<Sum, SynthesisError> {
    let value = sum.value.zip(chosen).map(|(sum, chosen)| if chosen { sum } else { 0 });
    let product = allocate(cs, value)?;
    let one = CS::one();
    cs.enforce(
        empty_name,
        |form| difference(form, ends, one, Scalar::ONE),
        |form| sum.add_to(form, one),
        |form| form + product,
    );
    Ok(Sum::constant(0).number(product, value, sum.max()))
}

/// Adds the difference of two bits, multiplied by `times`.
fn difference(
    form: Form,
    [from, less]: [Bit; 2],
    one: bellpepper_core::Variable,
    times: Scalar,
) -> Form {
    less.add_to(from.add_to(form, one, times), one, -times)
}

/// Pads a message by FIPS 180-4 section 5.1.1, then with zeros up to `blocks`.
fn pad_message(message: &[u8], blocks: usize) -> Vec<u8> {
    let mut stream = vec![0; blocks * BLOCK_BYTES];
    stream[..message.len()].copy_from_slice(message);
    stream[message.len()] = 0x80;
    let end = blocks_of(message.len()) * BLOCK_BYTES;
    stream[end - 8..end].copy_from_slice(&(8 * message.len() as u64).to_be_bytes());
    stream
}

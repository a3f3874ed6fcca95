//! A hidden leaf under a public root contains public bytes.
//!
//! The leaf is the one of `confide-disclosure`: SHA-256(0x00 ‖ direction ‖ index ‖ salt ‖ chunk),
//! the index four bytes, the salt 16, the chunk up to 64; an inner node is
//! SHA-256(0x01 ‖ left ‖ right). Hidden: the chunk and its length, the salt, the index, the path,
//! and where in the chunk the bytes stand. Public: root, depth, direction, the bytes looked for.

use std::sync::Arc;

use bellpepper_core::{ConstraintSystem, SynthesisError, Variable, num::AllocatedNum};
use ff::Field;
use zeroize::Zeroize;

use crate::{
    Scalar,
    circuit::{Claim, equal, number, word_to_publish, words_of},
    kind::BLOCK_BYTES,
    padding::{Hashed, hash_hidden},
    sha256::{Chain, block_of, compress},
    word::{Bit, Byte, Sum, Word, unnamed},
};

/// Bytes of a chunk at most, and of what is looked for.
pub(crate) const CHUNK_BYTES: usize = 64;

/// Bytes of a salt.
pub(crate) const SALT_BYTES: usize = 16;

const LEAF_TAG: u8 = 0x00;
const NODE_TAG: u8 = 0x01;

/// Above every byte: where nothing is looked for. A place outside the chunk counts as its byte
/// plus [`OUTSIDE`], so that it equals no byte.
const ANYTHING: u64 = 512;
const OUTSIDE: u64 = 256;

/// Stages that move the chunk by 32, 16, ... 1 places.
const STAGES: u32 = CHUNK_BYTES.ilog2();

/// A leaf and its path.
pub(crate) struct LeafPath {
    pub(crate) index: u32,
    pub(crate) salt: [u8; SALT_BYTES],
    pub(crate) chunk: Vec<u8>,
    /// From below.
    pub(crate) siblings: Vec<[u8; 32]>,
    /// Where in the chunk the bytes looked for stand.
    pub(crate) at: u32,
}

impl Drop for LeafPath {
    fn drop(&mut self) {
        self.salt.zeroize();
        self.chunk.zeroize();
    }
}

/// The claim, for a tree of 2^depth leaves.
#[derive(Clone)]
pub(crate) struct ContainsClaim {
    pub(crate) depth: u8,
    pub(crate) leaf: Option<Arc<LeafPath>>,
    pub(crate) direction: u8,
    pub(crate) root: [u8; 32],
    pub(crate) needle: Vec<u8>,
}

impl Claim for ContainsClaim {
    fn hold<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
        let leaf = self.leaf.as_deref();
        let direction_value = leaf.map(|_| self.direction);
        let direction = Byte::hold(cs, direction_value)?;
        let index = Word::hold_low(cs, leaf.map(|leaf| leaf.index), self.depth.into())?;
        let hashed = self.leaf_hash(cs, direction, &index)?;

        let mut node = hashed.digest.clone();
        for level in 0..usize::from(self.depth) {
            let sibling = leaf.and_then(|leaf| leaf.siblings.get(level));
            node = parent(
                cs,
                &node,
                index.bit(level),
                leaf.map(|leaf| leaf.index >> level & 1 == 1),
                sibling,
            )?;
        }
        let mut held =
            node.iter().map(|word| word_to_publish(cs, word)).collect::<Result<Vec<_>, _>>()?;
        let direction_number = number(cs, direction_value.map(u64::from))?;
        let one = CS::one();
        cs.enforce(
            unnamed,
            |form| direction.add_to(form, one, 1) - direction_number.get_variable(),
            |form| form + one,
            |form| form,
        );
        held.push(direction_number);
        held.extend(window(cs, &hashed, leaf)?);
        Ok(held)
    }

    fn public(&self) -> Vec<u64> {
        let mut public = words_of(&self.root).to_vec();
        public.push(self.direction.into());
        let needle = self.needle.iter().map(|byte| u64::from(*byte));
        public.extend(needle.chain(std::iter::repeat(ANYTHING)).take(CHUNK_BYTES));
        public
    }

    fn bind<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
        held: &[AllocatedNum<Scalar>],
        public: &[Variable],
    ) -> Result<(), SynthesisError> {
        let exact = held.len() - CHUNK_BYTES;
        for (held, public) in held.iter().zip(public).take(exact) {
            equal(cs, held, *public);
        }
        for (window, wanted) in held.iter().zip(public).skip(exact) {
            cs.enforce(
                unnamed,
                |form| form + window.get_variable() - *wanted,
                |form| form + *wanted - (Scalar::from(ANYTHING), CS::one()),
                |form| form,
            );
        }
        Ok(())
    }
}

impl ContainsClaim {
    fn leaf_hash<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
        direction: Byte,
        index: &Word,
    ) -> Result<Hashed, SynthesisError> {
        let leaf = self.leaf.as_deref();
        let mut prefix = vec![Byte::known(LEAF_TAG), direction];
        prefix.extend(index.bytes());
        for place in 0..SALT_BYTES {
            prefix.push(Byte::hold(cs, leaf.map(|leaf| leaf.salt[place]))?);
        }
        let message = leaf.map(|leaf| {
            let mut message = vec![LEAF_TAG, self.direction];
            message.extend(leaf.index.to_be_bytes());
            message.extend(leaf.salt);
            message.extend(&leaf.chunk);
            zeroize::Zeroizing::new(message)
        });
        hash_hidden(cs, &prefix, CHUNK_BYTES, message.as_ref().map(|message| message.as_slice()))
    }
}

/// The node above `node` and a hidden sibling, which is on the left where `is_right`.
///
/// Left and right are words of the witness; the one that `is_right` points to is bound to `node`.
fn parent<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    node: &[Sum; 8],
    is_right: Bit,
    is_right_value: Option<bool>,
    sibling: Option<&[u8; 32]>,
) -> Result<[Sum; 8], SynthesisError> {
    let sibling = sibling.map(words_of);
    let (mut left, mut right) = ([Word::known(0); 8], [Word::known(0); 8]);
    let one = CS::one();
    for place in 0..8 {
        let mine = node[place].value.map(|value| value as u32);
        let other = sibling.map(|sibling| sibling[place] as u32);
        let (first, second) = match is_right_value {
            Some(true) => (other, mine),
            _ => (mine, other),
        };
        (left[place], right[place]) = (Word::hold(cs, first)?, Word::hold(cs, second)?);
        let carry = node[place].carry(cs)?;
        cs.enforce(
            unnamed,
            |form| is_right.add_to(form, one, Scalar::ONE),
            |form| {
                left[place].add_to(right[place].add_to(form, one, Scalar::ONE), one, -Scalar::ONE)
            },
            |form| {
                let form = carry.subtract_from(node[place].add_to(form, one));
                left[place].add_to(form, one, -Scalar::ONE)
            },
        );
    }
    node_hash(cs, &left, &right)
}

fn node_hash<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    left: &[Word; 8],
    right: &[Word; 8],
) -> Result<[Sum; 8], SynthesisError> {
    const BYTES: usize = 65;
    let mut stream = vec![Byte::known(NODE_TAG)];
    stream.extend(left.iter().chain(right).flat_map(Word::bytes));
    stream.push(Byte::known(0x80));
    stream.resize(2 * BLOCK_BYTES - 8, Byte::known(0));
    stream.extend((8 * BYTES as u64).to_be_bytes().map(Byte::known));
    let (first, second) = stream.split_at(BLOCK_BYTES);
    let block = |bytes| block_of(bytes).ok_or(SynthesisError::Unsatisfiable);
    let chain = compress(cs, &Chain::start(), &block(first)?)?;
    let chain = Chain::of(cs, &chain)?;
    compress(cs, &chain, &block(second)?)
}

/// The chunk from a hidden place on, filled up with what equals no byte.
fn window<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    hashed: &Hashed,
    leaf: Option<&LeafPath>,
) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
    let one = CS::one();
    let mut values: Vec<Option<u64>> = Vec::with_capacity(CHUNK_BYTES);
    let mut window = Vec::with_capacity(CHUNK_BYTES);
    for (place, (byte, inside)) in hashed.bytes.iter().zip(&hashed.inside).enumerate() {
        let outside = leaf.map(|leaf| place >= leaf.chunk.len());
        let value = byte
            .value
            .zip(outside)
            .map(|(byte, outside)| u64::from(byte) + if outside { OUTSIDE } else { 0 });
        let number = number(cs, value)?;
        cs.enforce(
            unnamed,
            |form| {
                let form = byte.add_to(form, one, 1) + (Scalar::from(OUTSIDE), one);
                inside.add_to(form, one, -Scalar::from(OUTSIDE)) - number.get_variable()
            },
            |form| form + one,
            |form| form,
        );
        values.push(value);
        window.push(number);
    }
    for stage in (0..STAGES).rev() {
        let moves_value = leaf.map(|leaf| leaf.at >> stage & 1 == 1);
        let moves = Bit::hold(cs, moves_value)?;
        (window, values) = moved(cs, &window, &values, moves, moves_value, 1 << stage)?;
    }
    Ok(window)
}

/// Variables with their values.
type Numbers = (Vec<AllocatedNum<Scalar>>, Vec<Option<u64>>);

/// All places moved down by `by` where `moves`.
fn moved<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    window: &[AllocatedNum<Scalar>],
    values: &[Option<u64>],
    moves: Bit,
    moves_value: Option<bool>,
    by: usize,
) -> Result<Numbers, SynthesisError> {
    let one = CS::one();
    let mut numbers = Vec::with_capacity(window.len());
    let mut new_values = Vec::with_capacity(window.len());
    for (place, stays) in window.iter().enumerate() {
        let from = window.get(place + by);
        let from_value = values.get(place + by).copied().unwrap_or(Some(OUTSIDE));
        let value = match moves_value {
            Some(true) => from_value,
            Some(false) => values[place],
            None => None,
        };
        let number = number(cs, value)?;
        cs.enforce(
            unnamed,
            |form| moves.add_to(form, one, Scalar::ONE),
            |form| match from {
                Some(from) => form + from.get_variable() - stays.get_variable(),
                None => form + (Scalar::from(OUTSIDE), one) - stays.get_variable(),
            },
            |form| form + number.get_variable() - stays.get_variable(),
        );
        numbers.push(number);
        new_values.push(value);
    }
    Ok((numbers, new_values))
}

//! A hidden leaf of `confide-disclosure` and its path to a root.
//!
//! The leaf is SHA-256(0x00 ‖ direction ‖ index ‖ salt ‖ chunk), the index four bytes, the salt
//! 16, the chunk up to 64; an inner node is SHA-256(0x01 ‖ left ‖ right).

use bellpepper_core::{ConstraintSystem, SynthesisError};
use ff::Field;
use zeroize::{Zeroize, Zeroizing};

use crate::{
    circuit::words_of,
    curve::Scalar,
    kind::BLOCK_BYTES,
    padding::{Hashed, hash_hidden},
    sha256::{Chain, block_of, compress},
    word::{Bit, Byte, Sum, Word, empty_name},
};

/// The greatest length of a chunk, in bytes.
pub(crate) const CHUNK_BYTES: usize = 64;

/// The length of a salt, in bytes.
pub(crate) const SALT_BYTES: usize = 16;

const LEAF_TAG: u8 = 0x00;
const NODE_TAG: u8 = 0x01;

/// A leaf and the nodes next to its path.
pub(crate) struct LeafPath {
    pub(crate) index: u32,
    pub(crate) salt: [u8; SALT_BYTES],
    pub(crate) chunk: Vec<u8>,
    /// The nodes next to the path, from the leaf upwards.
    pub(crate) siblings: Vec<[u8; 32]>,
}

impl Drop for LeafPath {
    fn drop(&mut self) {
        self.salt.zeroize();
        self.chunk.zeroize();
    }
}

/// The path of a leaf as the circuit holds it: the bits of the leaf's index are its turns.
pub(crate) struct AllocatedPath<'a> {
    pub(crate) index: Word,
    pub(crate) leaf: Option<&'a LeafPath>,
}

impl<'a> AllocatedPath<'a> {
    /// Allocates the path of a leaf in a tree of 2^depth leaves.
    pub(crate) fn allocate<CS: ConstraintSystem<Scalar>>(
        cs: &mut CS,
        leaf: Option<&'a LeafPath>,
        depth: u8,
    ) -> Result<Self, SynthesisError> {
        let index = Word::hold_low(cs, leaf.map(|leaf| leaf.index), depth.into())?;
        Ok(Self { index, leaf })
    }

    /// The hash of the leaf.
    pub(crate) fn leaf_hash<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
        direction: Byte,
    ) -> Result<Hashed, SynthesisError> {
        let mut prefix = vec![Byte::constant(LEAF_TAG), direction];
        prefix.extend(self.index.bytes());
        for place in 0..SALT_BYTES {
            prefix.push(Byte::allocate(cs, self.leaf.map(|leaf| leaf.salt[place]))?);
        }
        let message = self.leaf.zip(direction.value).map(|(leaf, direction)| {
            let mut message = vec![LEAF_TAG, direction];
            message.extend(leaf.index.to_be_bytes());
            message.extend(leaf.salt);
            message.extend(&leaf.chunk);
            Zeroizing::new(message)
        });
        hash_hidden(cs, &prefix, CHUNK_BYTES, message.as_ref().map(|message| message.as_slice()))
    }

    fn is_right(&self, level: usize) -> (Bit, Option<bool>) {
        (self.index.bit(level), self.leaf.map(|leaf| leaf.index >> level & 1 == 1))
    }
}

/// The node above those to which one or two paths lead at `level`.
///
/// Left and right are words of the witness; the one that a path's bit points to is bound to that
/// path's node. Two paths may point to the same one, then both nodes are it.
pub(crate) fn parent<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    level: usize,
    children: &[(&AllocatedPath<'_>, &[Sum; 8])],
) -> Result<[Sum; 8], SynthesisError> {
    let [(path, node), ..] = children else { return Err(SynthesisError::Unsatisfiable) };
    let sibling = path.leaf.and_then(|leaf| leaf.siblings.get(level)).map(words_of);
    let (mut left, mut right) = ([Word::constant(0); 8], [Word::constant(0); 8]);
    for place in 0..8 {
        let mine = node[place].value.map(|value| value as u32);
        let other = sibling.map(|sibling| sibling[place] as u32);
        let (first, second) = match path.is_right(level).1 {
            Some(true) => (other, mine),
            _ => (mine, other),
        };
        (left[place], right[place]) = (Word::allocate(cs, first)?, Word::allocate(cs, second)?);
        for (path, node) in children {
            bind_child(cs, path.is_right(level).0, &node[place], [&left[place], &right[place]])?;
        }
    }
    node_hash(cs, &left, &right)
}

/// Constrains one word of two, the one that `is_right` selects, to be a word of a node modulo 2^32.
fn bind_child<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    is_right: Bit,
    node: &Sum,
    [left, right]: [&Word; 2],
) -> Result<(), SynthesisError> {
    let carry = node.carry(cs)?;
    let one = CS::one();
    cs.enforce(
        empty_name,
        |form| is_right.add_to(form, one, Scalar::ONE),
        |form| left.add_to(right.add_to(form, one, Scalar::ONE), one, -Scalar::ONE),
        |form| left.add_to(carry.subtract_from(node.add_to(form, one)), one, -Scalar::ONE),
    );
    Ok(())
}

fn node_hash<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    left: &[Word; 8],
    right: &[Word; 8],
) -> Result<[Sum; 8], SynthesisError> {
    const BYTES: usize = 65;
    let mut stream = vec![Byte::constant(NODE_TAG)];
    stream.extend(left.iter().chain(right).flat_map(Word::bytes));
    stream.push(Byte::constant(0x80));
    stream.resize(2 * BLOCK_BYTES - 8, Byte::constant(0));
    stream.extend((8 * BYTES as u64).to_be_bytes().map(Byte::constant));
    let (first, second) = stream.split_at(BLOCK_BYTES);
    let block = |bytes| block_of(bytes).ok_or(SynthesisError::Unsatisfiable);
    let chain = compress(cs, &Chain::start(), &block(first)?)?;
    let chain = Chain::from_sums(cs, &chain)?;
    compress(cs, &chain, &block(second)?)
}

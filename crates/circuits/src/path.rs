//! A hidden leaf of `confide-disclosure` and its path to a root.
//!
//! The leaf is SHA-256(0x00 ‖ direction ‖ index ‖ salt ‖ chunk), the index four bytes, the salt
//! 16, the chunk up to 64; an inner node is SHA-256(0x01 ‖ left ‖ right).

use bellpepper_core::{ConstraintSystem, SynthesisError};
use ff::Field;
use zeroize::{Zeroize, Zeroizing};

use crate::{
    circuit::digest_words,
    curve::Scalar,
    kind::BLOCK_BYTES,
    padding::{HashedBytes, hash_hidden},
    sha256::{ChainingValue, block_from_bytes, compress},
    word::{Bit, Byte, Word, WordSum, empty_name},
};

/// The greatest length of a chunk, in bytes.
pub(crate) const CHUNK_BYTES: usize = 64;

/// The length of a salt, in bytes.
pub(crate) const SALT_BYTES: usize = 16;

const LEAF_TAG: u8 = 0x00;
const NODE_TAG: u8 = 0x01;

/// A leaf and the siblings of the nodes on its path.
pub(crate) struct LeafPath {
    pub(crate) index: u32,
    pub(crate) salt: [u8; SALT_BYTES],
    pub(crate) chunk: Vec<u8>,
    /// The siblings of the nodes on the path, from the leaf upwards.
    pub(crate) siblings: Vec<[u8; 32]>,
}

impl Drop for LeafPath {
    fn drop(&mut self) {
        self.salt.zeroize();
        self.chunk.zeroize();
    }
}

/// The path of a leaf in the circuit; the bits of the leaf's index select left or right.
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
        let index = Word::allocate_low_bits(cs, leaf.map(|leaf| leaf.index), depth.into())?;
        Ok(Self { index, leaf })
    }

    /// The hash of the leaf.
    pub(crate) fn hash_leaf<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
        direction: Byte,
    ) -> Result<HashedBytes, SynthesisError> {
        let mut prefix = vec![Byte::constant(LEAF_TAG), direction];
        prefix.extend(self.index.to_bytes());
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

    fn right_bit(&self, level: usize) -> (Bit, Option<bool>) {
        (self.index.bit(level), self.leaf.map(|leaf| leaf.index >> level & 1 == 1))
    }
}

/// Hashes the parent of the nodes of one or two paths at `level`.
///
/// The left and the right child are words of the witness; the one that the bit of a path selects is
/// constrained to be the path's node. Two paths may select the same child: then their nodes are
/// equal.
pub(crate) fn hash_parent<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    level: usize,
    children: &[(&AllocatedPath<'_>, &[WordSum; 8])],
) -> Result<[WordSum; 8], SynthesisError> {
    let [(path, node), ..] = children else { return Err(SynthesisError::Unsatisfiable) };
    let sibling = path.leaf.and_then(|leaf| leaf.siblings.get(level)).map(digest_words);
    let (mut left, mut right) = ([Word::constant(0); 8], [Word::constant(0); 8]);
    for place in 0..8 {
        let mine = node[place].value.map(|value| value as u32);
        let other = sibling.map(|sibling| sibling[place] as u32);
        let (first, second) = match path.right_bit(level).1 {
            Some(true) => (other, mine),
            _ => (mine, other),
        };
        (left[place], right[place]) = (Word::allocate(cs, first)?, Word::allocate(cs, second)?);
        for (path, node) in children {
            bind_child(cs, path.right_bit(level).0, &node[place], [&left[place], &right[place]])?;
        }
    }
    hash_node(cs, &left, &right)
}

/// Constrains the word that `is_right` selects of two to be a word of a node modulo 2^32.
fn bind_child<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    is_right: Bit,
    node: &WordSum,
    [left, right]: [&Word; 2],
) -> Result<(), SynthesisError> {
    let carry = node.allocate_carry(cs)?;
    let one = CS::one();
    cs.enforce(
        empty_name,
        |form| is_right.add_to(form, one, Scalar::ONE),
        |form| left.add_to(right.add_to(form, one, Scalar::ONE), one, -Scalar::ONE),
        |form| left.add_to(carry.subtract_from(node.add_to(form, one)), one, -Scalar::ONE),
    );
    Ok(())
}

fn hash_node<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    left: &[Word; 8],
    right: &[Word; 8],
) -> Result<[WordSum; 8], SynthesisError> {
    const BYTES: usize = 65;
    let mut stream = vec![Byte::constant(NODE_TAG)];
    stream.extend(left.iter().chain(right).flat_map(|word| word.to_bytes()));
    stream.push(Byte::constant(0x80));
    stream.resize(2 * BLOCK_BYTES - 8, Byte::constant(0));
    stream.extend((8 * BYTES as u64).to_be_bytes().map(Byte::constant));
    let (first, second) = stream.split_at(BLOCK_BYTES);
    let block = |bytes| block_from_bytes(bytes).ok_or(SynthesisError::Unsatisfiable);
    let chain = compress(cs, &ChainingValue::initial(), &block(first)?)?;
    let chain = ChainingValue::from_sums(cs, &chain)?;
    compress(cs, &chain, &block(second)?)
}

//! Statements about hidden texts. Their proofs need circuits, which this crate takes through
//! [`TextProofs`].

use confide_sigma::ProofSecurity;
use confide_transcript::{Direction, SALT_BYTES};

/// The greatest length in bytes of a text whose occurrence can be proven.
pub(crate) const TEXT_BYTES_MAX: usize = 64;

/// The greatest length in bytes of a field's value about which a circuit can prove a statement.
pub const FIELD_TEXT_BYTES_MAX: usize = 1024;

/// A back end that makes and checks proofs about hidden texts.
pub trait TextProofs {
    /// Proves a statement for one context.
    ///
    /// # Errors
    ///
    /// The reason, as text, if the statement is false or the back end fails.
    fn prove(
        &self,
        context: &[u8; 32],
        statement: &TextStatement<'_>,
        secret: &TextWitness<'_>,
    ) -> Result<Vec<u8>, String>;

    /// Checks a proof, and returns the security of such proofs.
    ///
    /// # Errors
    ///
    /// The reason, as text, if the proof does not prove the statement in this context.
    fn verify(
        &self,
        context: &[u8; 32],
        statement: &TextStatement<'_>,
        proof: &[u8],
    ) -> Result<ProofSecurity, String>;
}

/// A public statement about a hidden text.
#[derive(Clone, Copy, Debug)]
pub enum TextStatement<'a> {
    /// One chunk under a root, or two neighbouring ones, contain a text.
    BytesContain {
        /// The tree with the chunk.
        tree: SignedTree<'a>,
        /// The text that is contained: 1 to 64 bytes of UTF-8.
        text: &'a str,
    },
    /// A field's value contains a text.
    FieldContains {
        /// The value's salted digest.
        digest: &'a [u8; 32],
        /// The text that is contained: 1 to 64 bytes of UTF-8.
        text: &'a str,
    },
    /// SHA-256 of a field's value is a digest.
    FieldSha256 {
        /// The value's salted digest.
        digest: &'a [u8; 32],
        /// SHA-256 of the value.
        sha256: &'a [u8; 32],
    },
}

/// A signed tree over one direction: public to the prover and the verifier.
#[derive(Clone, Copy, Debug)]
pub struct SignedTree<'a> {
    /// The direction that the tree commits to.
    pub direction: Direction,
    /// The depth: the tree has 2^depth leaves.
    pub depth: u8,
    /// The root of the tree.
    pub root: &'a [u8; 32],
}

/// The witness of a [`TextStatement`], which the proof hides.
#[derive(Clone, Copy)]
pub enum TextWitness<'a> {
    /// The chunk that contains the text.
    Leaf(LeafWitness<'a>),
    /// Two neighbouring chunks that contain the text together; it begins in the first.
    Neighbours([LeafWitness<'a>; 2]),
    /// The value of a field.
    Field {
        /// The salt, 16 bytes.
        salt: &'a [u8; SALT_BYTES],
        /// The canonical bytes of the value, at most 1,024.
        value: &'a [u8],
    },
}

/// A hidden leaf of a tree and its path to the root.
#[derive(Clone, Copy)]
pub struct LeafWitness<'a> {
    /// The index of the leaf, from 0.
    pub index: u32,
    /// The salt, 16 bytes.
    pub salt: &'a [u8; SALT_BYTES],
    /// The bytes of the leaf, at most 64.
    pub chunk: &'a [u8],
    /// The siblings of the nodes on its path, from the leaf upwards.
    pub siblings: &'a [[u8; 32]],
}

/// The index of the first occurrence of `wanted` in `bytes`.
pub(crate) fn find_text(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len().max(1)).position(|window| window == wanted)
}

//! Statements about hidden texts. They need circuits: this crate has none and takes their proofs
//! through [`TextProofs`].

use confide_sigma::Security;

use crate::{seed::SALT_BYTES, transcript::Direction};

/// Longest text that is looked for.
pub const TEXT_BYTES_MAX: usize = 64;

/// Longest value of a field that something can be proven of by a circuit.
pub const FIELD_TEXT_BYTES_MAX: usize = 1024;

/// Makes and checks proofs about hidden texts.
pub trait TextProofs {
    /// Proves a statement for one context.
    ///
    /// # Errors
    ///
    /// Why there is no proof, in words.
    fn prove(
        &self,
        context: &[u8; 32],
        statement: &TextStatement<'_>,
        secret: &TextSecret<'_>,
    ) -> Result<Vec<u8>, String>;

    /// Checks a proof, and says what such proofs rest on.
    ///
    /// # Errors
    ///
    /// Why it is not believed, in words.
    fn verify(
        &self,
        context: &[u8; 32],
        statement: &TextStatement<'_>,
        proof: &[u8],
    ) -> Result<Security, String>;
}

/// What is said of a hidden text.
#[derive(Clone, Copy, Debug)]
pub enum TextStatement<'a> {
    /// One chunk under a root, or two neighbouring ones, contain a text.
    BytesContain {
        /// The tree.
        tree: TreePlace<'a>,
        /// The text.
        text: &'a str,
    },
    /// A field's value contains a text.
    FieldContains {
        /// The value's salted digest.
        digest: &'a [u8; 32],
        /// The text.
        text: &'a str,
    },
    /// A field's value has a digest.
    FieldSha256 {
        /// The value's salted digest.
        digest: &'a [u8; 32],
        /// SHA-256 of the value.
        sha256: &'a [u8; 32],
    },
}

/// A tree that everybody knows.
#[derive(Clone, Copy, Debug)]
pub struct TreePlace<'a> {
    /// Which way the bytes went.
    pub direction: Direction,
    /// It has 2^depth leaves.
    pub depth: u8,
    /// Its root.
    pub root: &'a [u8; 32],
}

/// What makes a statement true.
#[derive(Clone, Copy)]
pub enum TextSecret<'a> {
    /// The chunk that contains the text.
    Leaf(LeafSecret<'a>),
    /// Two neighbouring chunks that contain it together; it begins in the first.
    Neighbours([LeafSecret<'a>; 2]),
    /// The value.
    Field {
        /// Its salt.
        salt: &'a [u8; SALT_BYTES],
        /// Its canonical bytes.
        value: &'a [u8],
    },
}

/// A hidden leaf.
#[derive(Clone, Copy)]
pub struct LeafSecret<'a> {
    /// Its place.
    pub index: u32,
    /// Its salt.
    pub salt: &'a [u8; SALT_BYTES],
    /// Its chunk.
    pub chunk: &'a [u8],
    /// The nodes beside its path, from below.
    pub siblings: &'a [[u8; 32]],
}

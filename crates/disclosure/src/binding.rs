//! The contexts to which the proofs of a disclosure are bound: a statement, a field, a direction.

use confide_transcript::Direction;
use sha2::{Digest, Sha256};

/// The bytes that begin the context of every proof of a disclosure.
const CONTEXT: &[u8] = b"confide/disclosure/v1/";

/// The leaf of a field, with the digest of its statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BoundLeaf {
    pub(crate) statement: [u8; 32],
    pub(crate) leaf: [u8; 32],
}

/// The context of a proof about a field: the statement's digest and the field's leaf.
pub(crate) fn field_context(field: &BoundLeaf) -> Vec<u8> {
    [CONTEXT, b"field\0", &field.statement, &field.leaf].concat()
}

/// The context of a circuit's proof about a field: the hash of [`field_context`], because circuits
/// take 32 bytes.
pub(crate) fn text_context(field: &BoundLeaf) -> [u8; 32] {
    Sha256::digest(field_context(field)).into()
}

/// The context of a proof that two fields are equal: both fields, in their order.
pub(crate) fn equality_context(one: &BoundLeaf, other: &BoundLeaf) -> Vec<u8> {
    let both = [one.statement, one.leaf, other.statement, other.leaf].concat();
    [CONTEXT, b"equal\0", &both].concat()
}

/// The context of a proof about the bytes of a direction.
pub(crate) fn bytes_context(statement: &[u8; 32], direction: Direction) -> [u8; 32] {
    let parts = [CONTEXT, b"bytes\0", &statement[..], &[direction.byte()]].concat();
    Sha256::digest(parts).into()
}

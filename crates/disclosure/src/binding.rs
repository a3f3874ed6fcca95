//! What the proofs of a disclosure are bound to: a statement, a field, a direction.

use sha2::{Digest, Sha256};

use crate::transcript::Direction;

/// Begins the context of every proof of a disclosure.
const CONTEXT: &[u8] = b"confide/disclosure/v1/";

/// A field with its statement's digest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) statement: [u8; 32],
    pub(crate) leaf: [u8; 32],
}

/// What a proof about a field is bound to: the statement's digest and the field's leaf.
pub(crate) fn field_context(field: &Bound) -> Vec<u8> {
    [CONTEXT, b"field\0", &field.statement, &field.leaf].concat()
}

/// The same for circuits, whose contexts have 32 bytes.
pub(crate) fn text_context(field: &Bound) -> [u8; 32] {
    Sha256::digest(field_context(field)).into()
}

/// What a proof that two fields are equal is bound to: both, in their order.
pub(crate) fn equal_context(one: &Bound, other: &Bound) -> Vec<u8> {
    let both = [one.statement, one.leaf, other.statement, other.leaf].concat();
    [CONTEXT, b"equal\0", &both].concat()
}

/// What a proof about the bytes of a direction is bound to.
pub(crate) fn bytes_context(statement: &[u8; 32], direction: Direction) -> [u8; 32] {
    let parts = [CONTEXT, b"bytes\0", &statement[..], &[direction.byte()]].concat();
    Sha256::digest(parts).into()
}

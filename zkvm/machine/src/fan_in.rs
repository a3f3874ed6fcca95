//! How many proofs one node of an aggregation joins.

/// Proofs that one node of the tree may check. Both are part of the keys.
pub(crate) const LEAF_CHILDREN: usize = 4;
pub(crate) const INTERNAL_CHILDREN: usize = 3;

/// How many proofs one node of an aggregation joins, at most; its keys bound it too. A node of more
/// takes more memory, one of fewer makes more nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanIn {
    /// Proofs of segments that one node joins.
    pub leaf: usize,
    /// Joined proofs that one node joins.
    pub internal: usize,
}

impl FanIn {
    /// The most that the keys allow.
    pub const MOST: Self = Self { leaf: LEAF_CHILDREN, internal: INTERNAL_CHILDREN };
}

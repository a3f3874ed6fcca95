//! The kinds of circuits and their sizes.

use std::fmt;

use crate::error::CircuitError;

/// The number of bytes in a block of SHA-256.
pub(crate) const BLOCK_BYTES: usize = 64;

/// The least number of bytes of padding: 0x80 and the eight bytes of the length.
pub(crate) const PADDING_LEAST: usize = 9;

/// The greatest length of a message whose digest can be proved, in bytes.
pub const MESSAGE_BYTES_MOST: usize = 1024;

/// The least depth of a tree with a circuit. A transcript has at least 2^4 leaves.
pub const DEPTH_LEAST: u8 = 4;
/// The greatest depth of a tree with a circuit: 2^10 leaves are 64 KiB.
pub const DEPTH_MOST: u8 = 10;

/// The greatest message of each circuit for digests, in bytes: 1, 2, 4, 8 blocks and the maximum.
const CAPACITIES: [usize; 5] = [55, 119, 247, 503, MESSAGE_BYTES_MOST];

/// The number of bytes before a field's value in its hash: a tag and a salt.
const FIELD_PREFIX_BYTES: usize = 17;

/// The greatest value of each circuit for fields, in bytes: 1, 2, 4, 8 blocks including tag and
/// salt, and the maximum.
const FIELD_CAPACITIES: [usize; 5] = [38, 102, 230, 486, FIELD_BYTES_MOST];

/// The greatest length of a field's value about which a statement can be proved, in bytes.
pub const FIELD_BYTES_MOST: usize = 1024;

/// A circuit, with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Circuit {
    /// SHA-256 of at most `bytes_most` hidden bytes, whose number is hidden, is a public digest.
    Sha256 {
        /// The greatest number of bytes: 55, 119, 247, 503 or 1,024.
        bytes_most: usize,
    },
    /// A hidden leaf under a public root contains public bytes.
    Contains {
        /// The depth: the tree has 2^depth leaves.
        depth: u8,
    },
    /// Two neighbouring hidden leaves under a public root contain public bytes, which begin in the
    /// first of them.
    ContainsAcross {
        /// The depth: the tree has 2^depth leaves.
        depth: u8,
    },
    /// A hidden value of at most `bytes_most` bytes behind a salted digest contains public bytes.
    FieldContains {
        /// The greatest number of bytes: 38, 102, 230, 486 or 1,024.
        bytes_most: usize,
    },
    /// SHA-256 of a hidden value of at most `bytes_most` bytes behind a salted digest is public.
    FieldSha256 {
        /// The greatest number of bytes: 38, 102, 230, 486 or 1,024.
        bytes_most: usize,
    },
}

impl Circuit {
    /// The smallest circuit for the digest of a message.
    ///
    /// # Errors
    ///
    /// [`CircuitError::Length`] for a message longer than [`MESSAGE_BYTES_MOST`].
    pub fn for_message(bytes: usize) -> Result<Self, CircuitError> {
        let bytes_most = smallest_capacity("message", CAPACITIES, bytes)?;
        Ok(Self::Sha256 { bytes_most })
    }

    /// The circuit for one leaf of a tree.
    ///
    /// # Errors
    ///
    /// [`CircuitError::Depth`] for a depth outside [`DEPTH_LEAST`] to [`DEPTH_MOST`].
    pub fn for_tree(depth: u8) -> Result<Self, CircuitError> {
        check_depth(depth).map(|depth| Self::Contains { depth })
    }

    /// The circuit for two neighbouring leaves of a tree.
    ///
    /// # Errors
    ///
    /// [`CircuitError::Depth`] for a depth outside [`DEPTH_LEAST`] to [`DEPTH_MOST`].
    pub fn for_neighbours(depth: u8) -> Result<Self, CircuitError> {
        check_depth(depth).map(|depth| Self::ContainsAcross { depth })
    }

    /// The smallest circuit for bytes in a field's value.
    ///
    /// # Errors
    ///
    /// [`CircuitError::Length`] for a value longer than [`FIELD_BYTES_MOST`].
    pub fn for_field_text(bytes: usize) -> Result<Self, CircuitError> {
        let bytes_most = smallest_capacity("value of a field", FIELD_CAPACITIES, bytes)?;
        Ok(Self::FieldContains { bytes_most })
    }

    /// The smallest circuit for the digest of a field's value.
    ///
    /// # Errors
    ///
    /// [`CircuitError::Length`] for a value longer than [`FIELD_BYTES_MOST`].
    pub fn for_field_digest(bytes: usize) -> Result<Self, CircuitError> {
        let bytes_most = smallest_capacity("value of a field", FIELD_CAPACITIES, bytes)?;
        Ok(Self::FieldSha256 { bytes_most })
    }

    /// The two bytes that identify the circuit in a proof.
    pub(crate) fn code(self) -> [u8; 2] {
        match self {
            Self::Sha256 { bytes_most } => [1, block_count(bytes_most) as u8],
            Self::Contains { depth } => [2, depth],
            Self::ContainsAcross { depth } => [3, depth],
            Self::FieldContains { bytes_most } => [4, field_block_count(bytes_most) as u8],
            Self::FieldSha256 { bytes_most } => [5, field_block_count(bytes_most) as u8],
        }
    }

    pub(crate) fn from_code([kind, size]: [u8; 2]) -> Result<Self, CircuitError> {
        let blocks = usize::from(size);
        let unknown = || CircuitError::UnknownField { field: "blocks", got: size.into() };
        let message = || CAPACITIES.into_iter().find(|capacity| block_count(*capacity) == blocks);
        let field =
            || FIELD_CAPACITIES.into_iter().find(|capacity| field_block_count(*capacity) == blocks);
        match kind {
            1 => Ok(Self::Sha256 { bytes_most: message().ok_or_else(unknown)? }),
            2 => Self::for_tree(size),
            3 => Self::for_neighbours(size),
            4 => Ok(Self::FieldContains { bytes_most: field().ok_or_else(unknown)? }),
            5 => Ok(Self::FieldSha256 { bytes_most: field().ok_or_else(unknown)? }),
            got => Err(CircuitError::UnknownField { field: "circuit", got: got.into() }),
        }
    }
}

impl fmt::Display for Circuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256 { bytes_most } => write!(f, "sha256 of up to {bytes_most} bytes"),
            Self::Contains { depth } => {
                write!(f, "contains, under a root of {} leaves", 1 << depth)
            }
            Self::ContainsAcross { depth } => {
                write!(f, "contains, across two of {} leaves", 1 << depth)
            }
            Self::FieldContains { bytes_most } => {
                write!(f, "a field of up to {bytes_most} bytes contains")
            }
            Self::FieldSha256 { bytes_most } => {
                write!(f, "sha256 of a field of up to {bytes_most} bytes")
            }
        }
    }
}

/// The number of blocks of a message of `bytes` bytes with its padding.
pub(crate) fn block_count(bytes: usize) -> usize {
    (bytes + PADDING_LEAST).div_ceil(BLOCK_BYTES)
}

fn field_block_count(bytes: usize) -> usize {
    block_count(FIELD_PREFIX_BYTES + bytes)
}

fn check_depth(depth: u8) -> Result<u8, CircuitError> {
    match (DEPTH_LEAST..=DEPTH_MOST).contains(&depth) {
        true => Ok(depth),
        false => Err(CircuitError::Depth { got: depth }),
    }
}

fn smallest_capacity(
    subject: &'static str,
    capacities: [usize; 5],
    got: usize,
) -> Result<usize, CircuitError> {
    let [.., most] = capacities;
    let capacity = capacities.into_iter().find(|capacity| got <= *capacity);
    capacity.ok_or(CircuitError::Length { subject, least: 0, most, got })
}

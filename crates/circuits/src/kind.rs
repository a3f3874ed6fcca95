//! The circuits there are.

use std::fmt;

use crate::error::CircuitError;

/// Bytes in a block of SHA-256.
pub(crate) const BLOCK_BYTES: usize = 64;

/// The 0x80 byte and the eight bytes of the length.
pub(crate) const PADDING_LEAST: usize = 9;

/// Longest message whose digest can be proved.
pub const MESSAGE_BYTES_MOST: usize = 1024;

/// Trees of 2^4 to 2^10 leaves: from the least that a transcript has to 64 KiB.
pub const DEPTH_LEAST: u8 = 4;
/// Deepest tree that there is a circuit for.
pub const DEPTH_MOST: u8 = 10;

/// Longest message of each circuit for digests: 1, 2, 4, 8 blocks and the whole.
const ROOMS: [usize; 5] = [55, 119, 247, 503, MESSAGE_BYTES_MOST];

/// A circuit, with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Circuit {
    /// SHA-256 of at most so many hidden bytes is a public digest. How many they are is hidden.
    Sha256 {
        /// 55, 119, 247, 503 or 1,024.
        bytes_most: usize,
    },
    /// A hidden leaf under a public root contains public bytes.
    Contains {
        /// The tree has 2^depth leaves.
        depth: u8,
    },
}

impl Circuit {
    /// The least circuit for the digest of a message.
    pub fn for_message(bytes: usize) -> Result<Self, CircuitError> {
        let room = ROOMS.into_iter().find(|room| bytes <= *room);
        let (subject, least, most, got) = ("message", 0, MESSAGE_BYTES_MOST, bytes);
        room.map(|bytes_most| Self::Sha256 { bytes_most }).ok_or(CircuitError::Length {
            subject,
            least,
            most,
            got,
        })
    }

    /// The circuit for leaves of a tree.
    pub fn for_tree(depth: u8) -> Result<Self, CircuitError> {
        match (DEPTH_LEAST..=DEPTH_MOST).contains(&depth) {
            true => Ok(Self::Contains { depth }),
            false => Err(CircuitError::Depth { got: depth }),
        }
    }

    /// Two bytes that name it in a proof.
    pub(crate) fn code(self) -> [u8; 2] {
        match self {
            Self::Sha256 { bytes_most } => [1, blocks_of(bytes_most) as u8],
            Self::Contains { depth } => [2, depth],
        }
    }

    pub(crate) fn from_code([kind, size]: [u8; 2]) -> Result<Self, CircuitError> {
        let known = match kind {
            1 => ROOMS.into_iter().find(|room| blocks_of(*room) == usize::from(size)),
            2 => return Self::for_tree(size),
            got => return Err(CircuitError::Header { field: "circuit", got: got.into() }),
        };
        known
            .map(|bytes_most| Self::Sha256 { bytes_most })
            .ok_or(CircuitError::Header { field: "blocks", got: size.into() })
    }
}

impl fmt::Display for Circuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256 { bytes_most } => write!(f, "sha256 of up to {bytes_most} bytes"),
            Self::Contains { depth } => {
                write!(f, "contains, under a root of {} leaves", 1 << depth)
            }
        }
    }
}

/// Blocks that a message of so many bytes fills, with its padding.
pub(crate) fn blocks_of(bytes: usize) -> usize {
    (bytes + PADDING_LEAST).div_ceil(BLOCK_BYTES)
}

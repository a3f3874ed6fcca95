//! The circuits there are, and the claim of each.

use std::fmt;

use bellpepper_core::{ConstraintSystem, SynthesisError, Variable, num::AllocatedNum};

use crate::{
    Scalar, circuit::Claim, contains::ContainsClaim, error::CircuitError, hash::HashClaim,
    padding::blocks_of,
};

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

/// Either claim.
#[derive(Clone)]
pub(crate) enum AnyClaim {
    Hash(HashClaim),
    Contains(ContainsClaim),
}

impl AnyClaim {
    /// A circuit's shape, without a hidden part.
    pub(crate) fn shape(circuit: Circuit) -> Result<Self, CircuitError> {
        Self::from_public(circuit, &[0; 32], 0, &[])
    }

    /// What a checker knows.
    pub(crate) fn from_public(
        circuit: Circuit,
        digest: &[u8; 32],
        direction: u8,
        needle: &[u8],
    ) -> Result<Self, CircuitError> {
        // A circuit made by hand may have any size.
        Ok(match Circuit::from_code(circuit.code())? {
            Circuit::Sha256 { bytes_most: room } => {
                Self::Hash(HashClaim { room, message: None, digest: *digest })
            }
            Circuit::Contains { depth } => Self::Contains(ContainsClaim {
                depth,
                leaf: None,
                direction,
                root: *digest,
                needle: needle.to_vec(),
            }),
        })
    }
}

impl Claim for AnyClaim {
    fn hold<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
        match self {
            Self::Hash(claim) => claim.hold(cs),
            Self::Contains(claim) => claim.hold(cs),
        }
    }

    fn public(&self) -> Vec<u64> {
        match self {
            Self::Hash(claim) => claim.public(),
            Self::Contains(claim) => claim.public(),
        }
    }

    fn bind<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
        held: &[AllocatedNum<Scalar>],
        public: &[Variable],
    ) -> Result<(), SynthesisError> {
        match self {
            Self::Hash(claim) => claim.bind(cs, held, public),
            Self::Contains(claim) => claim.bind(cs, held, public),
        }
    }
}

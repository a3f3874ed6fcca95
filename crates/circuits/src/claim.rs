//! The claim of each circuit.

use bellpepper_core::{ConstraintSystem, SynthesisError, num::AllocatedNum};

use crate::{
    circuit::Claim,
    contains::{ContainsClaim, Leaves},
    curve::Scalar,
    error::CircuitError,
    field::{FieldClaim, FieldPredicate},
    hash::HashClaim,
    kind::Circuit,
};

/// A claim of any circuit.
#[derive(Clone)]
pub(crate) enum AnyClaim {
    Hash(HashClaim),
    Contains(ContainsClaim),
    Field(FieldClaim),
}

/// The public values of a statement. Each circuit reads the ones that it has.
#[derive(Clone, Copy, Default)]
pub(crate) struct Public<'a> {
    /// The digest, root or salted digest.
    pub(crate) digest: [u8; 32],
    /// SHA-256 of a field's value.
    pub(crate) value_digest: [u8; 32],
    pub(crate) direction: u8,
    pub(crate) needle: &'a [u8],
}

impl AnyClaim {
    /// The shape of a circuit, without public values or a hidden part.
    pub(crate) fn shape(circuit: Circuit) -> Result<Self, CircuitError> {
        Self::from_public(circuit, &Public::default())
    }

    /// The claim as a checker has it: public values without a hidden part.
    pub(crate) fn from_public(circuit: Circuit, public: &Public<'_>) -> Result<Self, CircuitError> {
        let Public { digest, value_digest, direction, needle } = *public;
        let needle = needle.to_vec();
        let contains = |depth, leaves, needle| {
            let (place, root) = (None, digest);
            Self::Contains(ContainsClaim { depth, leaves, place, direction, root, needle })
        };
        let field =
            |room, predicate| Self::Field(FieldClaim { room, secret: None, digest, predicate });
        // A circuit that a caller constructs may have any size.
        Ok(match Circuit::from_code(circuit.code())? {
            Circuit::Sha256 { bytes_most: room } => {
                Self::Hash(HashClaim { room, message: None, digest })
            }
            Circuit::Contains { depth } => contains(depth, Leaves::Single, needle),
            Circuit::ContainsAcross { depth } => contains(depth, Leaves::Neighbours, needle),
            Circuit::FieldContains { bytes_most } => {
                field(bytes_most, FieldPredicate::Contains(needle))
            }
            Circuit::FieldSha256 { bytes_most } => {
                field(bytes_most, FieldPredicate::Sha256(value_digest))
            }
        })
    }
}

impl Claim for AnyClaim {
    fn allocate<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
        match self {
            Self::Hash(claim) => claim.allocate(cs),
            Self::Contains(claim) => claim.allocate(cs),
            Self::Field(claim) => claim.allocate(cs),
        }
    }

    fn public(&self) -> Vec<u64> {
        match self {
            Self::Hash(claim) => claim.public(),
            Self::Contains(claim) => claim.public(),
            Self::Field(claim) => claim.public(),
        }
    }

    fn exact_count(&self) -> usize {
        match self {
            Self::Hash(claim) => claim.exact_count(),
            Self::Contains(claim) => claim.exact_count(),
            Self::Field(claim) => claim.exact_count(),
        }
    }
}

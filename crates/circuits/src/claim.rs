//! The claim of each circuit.

use bellpepper_core::{ConstraintSystem, SynthesisError, num::AllocatedNum};

use crate::{
    circuit::CircuitClaim,
    contains::{ContainsClaim, SearchedLeaves},
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

/// The public values of a statement, of which each circuit uses some.
#[derive(Clone, Copy, Default)]
pub(crate) struct PublicInputs<'a> {
    /// The digest, the root or the salted digest.
    pub(crate) digest: [u8; 32],
    /// SHA-256 of a field's value.
    pub(crate) value_digest: [u8; 32],
    pub(crate) direction: u8,
    pub(crate) needle: &'a [u8],
}

impl AnyClaim {
    /// The claim of a circuit without public values and hidden part, to derive its constraints.
    pub(crate) fn without_values(circuit: Circuit) -> Result<Self, CircuitError> {
        Self::from_public_inputs(circuit, &PublicInputs::default())
    }

    /// The claim with public values but without a hidden part, for a checker.
    pub(crate) fn from_public_inputs(
        circuit: Circuit,
        public: &PublicInputs<'_>,
    ) -> Result<Self, CircuitError> {
        let PublicInputs { digest, value_digest, direction, needle } = *public;
        let needle = needle.to_vec();
        let contains = |depth, leaves, needle| {
            let (place, root) = (None, digest);
            Self::Contains(ContainsClaim { depth, leaves, place, direction, root, needle })
        };
        let field = |capacity, predicate| {
            Self::Field(FieldClaim { capacity, secret: None, digest, predicate })
        };
        // A caller can construct a `Circuit` of any size, so the size is checked.
        Ok(match Circuit::from_code(circuit.code())? {
            Circuit::Sha256 { bytes_most: capacity } => {
                Self::Hash(HashClaim { capacity, message: None, digest })
            }
            Circuit::Contains { depth } => contains(depth, SearchedLeaves::Single, needle),
            Circuit::ContainsAcross { depth } => {
                contains(depth, SearchedLeaves::Neighbours, needle)
            }
            Circuit::FieldContains { bytes_most } => {
                field(bytes_most, FieldPredicate::Contains(needle))
            }
            Circuit::FieldSha256 { bytes_most } => {
                field(bytes_most, FieldPredicate::Sha256(value_digest))
            }
        })
    }
}

impl CircuitClaim for AnyClaim {
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

    fn public_integers(&self) -> Vec<u64> {
        match self {
            Self::Hash(claim) => claim.public_integers(),
            Self::Contains(claim) => claim.public_integers(),
            Self::Field(claim) => claim.public_integers(),
        }
    }

    fn exact_public_count(&self) -> usize {
        match self {
            Self::Hash(claim) => claim.exact_public_count(),
            Self::Contains(claim) => claim.exact_public_count(),
            Self::Field(claim) => claim.exact_public_count(),
        }
    }
}

//! The claim of each circuit.

use bellpepper_core::{ConstraintSystem, SynthesisError, Variable, num::AllocatedNum};

use crate::{
    Circuit, Scalar, circuit::Claim, contains::ContainsClaim, error::CircuitError, hash::HashClaim,
};

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

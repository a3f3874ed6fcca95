//! Circuits in the form that spartan2 expects: the hidden part, and then the public values to which
//! it is bound.

use bellpepper_core::{ConstraintSystem, SynthesisError, Variable, num::AllocatedNum};
use ff::Field;
use spartan2::traits::circuit::SpartanCircuit;

use crate::{
    curve::{Curve, Scalar},
    window,
    word::{WordSum, allocate_number, empty_name},
};

/// A statement with or without its hidden part, which allocates its constraints.
pub(crate) trait CircuitClaim: Clone + Send + Sync {
    /// Allocates the hidden part, and returns a variable for each public value.
    fn allocate<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError>;

    /// The public values, each below 2^32.
    fn public_integers(&self) -> Vec<u64>;

    /// The number of public values that must equal their variables. The ones after them are a
    /// window.
    fn exact_public_count(&self) -> usize;
}

/// A claim in a context of 32 bytes: the proof is valid only for this context.
#[derive(Clone)]
pub(crate) struct ContextCircuit<C> {
    pub(crate) claim: C,
    pub(crate) context: [u8; 32],
}

impl<C: CircuitClaim> ContextCircuit<C> {
    pub(crate) fn public_integers(&self) -> Vec<u64> {
        let mut public = self.claim.public_integers();
        public.extend(digest_words(&self.context));
        public
    }
}

impl<C: CircuitClaim> SpartanCircuit<Curve> for ContextCircuit<C> {
    fn public_values(&self) -> Result<Vec<Scalar>, SynthesisError> {
        Ok(self.public_integers().into_iter().map(Scalar::from).collect())
    }

    fn shared<CS: ConstraintSystem<Scalar>>(
        &self,
        _: &mut CS,
    ) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
        Ok(Vec::new())
    }

    fn precommitted<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
        _: &[AllocatedNum<Scalar>],
    ) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
        self.claim.allocate(cs)
    }

    fn num_challenges(&self) -> usize {
        0
    }

    // The zero-knowledge prover drops public values that were allocated before this point.
    fn synthesize<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
        _: &[AllocatedNum<Scalar>],
        held: &[AllocatedNum<Scalar>],
        _: Option<&[Scalar]>,
    ) -> Result<(), SynthesisError> {
        let values = self.public_integers();
        let public = values
            .iter()
            .map(|value| cs.alloc_input(empty_name, || Ok(Scalar::from(*value))))
            .collect::<Result<Vec<_>, _>>()?;
        let (public, context) = public.split_at(public.len() - DIGEST_WORDS);
        let exact = self.claim.exact_public_count();
        for (held, public) in held.iter().zip(public).take(exact) {
            constrain_equal(cs, held, *public);
        }
        window::bind_window(cs, &held[exact..], &public[exact..]);
        // The transcript binds the context; the copy makes it a part of the constraints too.
        for (variable, value) in context.iter().zip(&values[public.len()..]) {
            let copy = allocate_number(cs, Some(*value))?;
            constrain_equal(cs, &copy, *variable);
        }
        Ok(())
    }
}

/// Allocates a variable that equals `sum` modulo 2^32. The caller must equate it with a public
/// value below 2^32, as no constraint bounds it.
pub(crate) fn sum_to_variable<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    sum: &WordSum,
) -> Result<AllocatedNum<Scalar>, SynthesisError> {
    let carry = sum.allocate_carry(cs)?;
    let number = allocate_number(cs, sum.value.map(|value| value & u64::from(u32::MAX)))?;
    let one = CS::one();
    cs.enforce(
        empty_name,
        |form| carry.subtract_from(sum.add_to(form, one)) - number.get_variable(),
        |form| form + one,
        |form| form,
    );
    Ok(number)
}

fn constrain_equal<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    held: &AllocatedNum<Scalar>,
    public: Variable,
) {
    cs.enforce(
        empty_name,
        |form| form + held.get_variable() - public,
        |form| form + (Scalar::ONE, CS::one()),
        |form| form,
    );
}

/// The number of words of a digest.
pub(crate) const DIGEST_WORDS: usize = 8;

/// The eight big-endian words of a digest.
pub(crate) fn digest_words(digest: &[u8; 32]) -> [u64; DIGEST_WORDS] {
    std::array::from_fn(|word| {
        digest[4 * word..4 * word + 4].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    })
}

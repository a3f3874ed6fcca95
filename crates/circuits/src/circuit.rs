//! A circuit in the form that spartan2 expects: the hidden part, then the public values that bind
//! it.

use bellpepper_core::{ConstraintSystem, SynthesisError, Variable, num::AllocatedNum};
use ff::Field;
use spartan2::traits::circuit::SpartanCircuit;

use crate::{
    curve::{Curve, Scalar},
    window,
    word::{Sum, empty_name, number},
};

/// A statement with its hidden part, or only the shape of both.
pub(crate) trait Claim: Clone + Send + Sync {
    /// Allocates the hidden part, and returns a variable for each public value.
    fn allocate<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError>;

    /// The public values, each below 2^32.
    fn public(&self) -> Vec<u64>;

    /// The number of public values that equal their variables. Those after them are a window.
    fn exact_count(&self) -> usize;
}

/// A claim in a context of 32 bytes: the proof holds for this context only.
#[derive(Clone)]
pub(crate) struct InContext<C> {
    pub(crate) claim: C,
    pub(crate) context: [u8; 32],
}

impl<C: Claim> InContext<C> {
    pub(crate) fn public(&self) -> Vec<u64> {
        let mut public = self.claim.public();
        public.extend(words_of(&self.context));
        public
    }
}

impl<C: Claim> SpartanCircuit<Curve> for InContext<C> {
    fn public_values(&self) -> Result<Vec<Scalar>, SynthesisError> {
        Ok(self.public().into_iter().map(Scalar::from).collect())
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

    // The zero-knowledge prover forgets public values made before this point.
    fn synthesize<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
        _: &[AllocatedNum<Scalar>],
        held: &[AllocatedNum<Scalar>],
        _: Option<&[Scalar]>,
    ) -> Result<(), SynthesisError> {
        let values = self.public();
        let public = values
            .iter()
            .map(|value| cs.alloc_input(empty_name, || Ok(Scalar::from(*value))))
            .collect::<Result<Vec<_>, _>>()?;
        let (public, context) = public.split_at(public.len() - DIGEST_WORDS);
        let exact = self.claim.exact_count();
        for (held, public) in held.iter().zip(public).take(exact) {
            equal(cs, held, *public);
        }
        window::bind(cs, &held[exact..], &public[exact..]);
        // The transcript binds the context; a copy makes it a part of the constraints too.
        for (variable, value) in context.iter().zip(&values[public.len()..]) {
            let copy = number(cs, Some(*value))?;
            equal(cs, &copy, *variable);
        }
        Ok(())
    }
}

/// A variable that is `sum` modulo 2^32, to be equated with a public value. The public value is
/// below 2^32, so the variable is too.
pub(crate) fn word_to_publish<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    sum: &Sum,
) -> Result<AllocatedNum<Scalar>, SynthesisError> {
    let carry = sum.carry(cs)?;
    let number = number(cs, sum.value.map(|value| value & u64::from(u32::MAX)))?;
    let one = CS::one();
    cs.enforce(
        empty_name,
        |form| carry.subtract_from(sum.add_to(form, one)) - number.get_variable(),
        |form| form + one,
        |form| form,
    );
    Ok(number)
}

fn equal<CS: ConstraintSystem<Scalar>>(cs: &mut CS, held: &AllocatedNum<Scalar>, public: Variable) {
    cs.enforce(
        empty_name,
        |form| form + held.get_variable() - public,
        |form| form + (Scalar::ONE, CS::one()),
        |form| form,
    );
}

/// The number of words of a digest.
pub(crate) const DIGEST_WORDS: usize = 8;

/// The eight words of a digest, big-endian.
pub(crate) fn words_of(digest: &[u8; 32]) -> [u64; DIGEST_WORDS] {
    std::array::from_fn(|word| {
        digest[4 * word..4 * word + 4].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    })
}

//! The claim that the hidden value behind a salted digest of `confide-disclosure` contains public
//! bytes, or has a public SHA-256.
//!
//! The digest is SHA-256(0x03 ‖ salt ‖ value), the salt 16 bytes. Hidden: the salt, the value, its
//! length within the circuit's limit, and the position of the bytes in it.

use std::sync::Arc;

use bellpepper_core::{ConstraintSystem, SynthesisError, num::AllocatedNum};
use ff::Field;
use zeroize::{Zeroize, Zeroizing};

use crate::{
    circuit::{CircuitClaim, DIGEST_WORDS, digest_words, sum_to_variable},
    curve::Scalar,
    padding::{HashedBytes, hash_hidden},
    path::SALT_BYTES,
    window::{self, HiddenBytes, allocate_window},
    word::{Byte, empty_name},
};

const VALUE_TAG: u8 = 0x03;

/// The salt and the value of a field.
pub(crate) struct FieldWitness {
    pub(crate) salt: [u8; SALT_BYTES],
    pub(crate) value: Vec<u8>,
    /// The index in the value at which the needle begins.
    pub(crate) at: u32,
}

impl Drop for FieldWitness {
    fn drop(&mut self) {
        self.salt.zeroize();
        self.value.zeroize();
    }
}

/// The predicate that is proved about the value.
#[derive(Clone)]
pub(crate) enum FieldPredicate {
    Contains(Vec<u8>),
    Sha256([u8; 32]),
}

/// The claim about a value of at most `capacity` bytes.
#[derive(Clone)]
pub(crate) struct FieldClaim {
    pub(crate) capacity: usize,
    pub(crate) secret: Option<Arc<FieldWitness>>,
    pub(crate) digest: [u8; 32],
    pub(crate) predicate: FieldPredicate,
}

impl CircuitClaim for FieldClaim {
    fn allocate<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
        let secret = self.secret.as_deref();
        let salted = self.salted_hash(cs)?;
        let publish = |cs: &mut CS, hashed: &HashedBytes| {
            let words = hashed.digest.iter().map(|word| sum_to_variable(cs, word));
            words.collect::<Result<Vec<_>, _>>()
        };
        let mut held = publish(cs, &salted)?;
        let value = secret.map(|secret| secret.value.as_slice());
        match &self.predicate {
            FieldPredicate::Contains(_) => {
                let part = HiddenBytes { hashed: &salted, length: value.map(<[u8]>::len) };
                held.extend(allocate_window(
                    cs,
                    &[part],
                    self.capacity,
                    secret.map(|secret| secret.at),
                )?);
            }
            FieldPredicate::Sha256(_) => {
                let plain = hash_hidden(cs, &[], self.capacity, value)?;
                constrain_same_bytes(cs, &salted, &plain);
                held.extend(publish(cs, &plain)?);
            }
        }
        Ok(held)
    }

    fn public_integers(&self) -> Vec<u64> {
        let mut public = digest_words(&self.digest).to_vec();
        match &self.predicate {
            FieldPredicate::Contains(needle) => public.extend(window::needle_public_values(needle)),
            FieldPredicate::Sha256(digest) => public.extend(digest_words(digest)),
        }
        public
    }

    fn exact_public_count(&self) -> usize {
        match self.predicate {
            FieldPredicate::Contains(_) => DIGEST_WORDS,
            FieldPredicate::Sha256(_) => 2 * DIGEST_WORDS,
        }
    }
}

impl FieldClaim {
    fn salted_hash<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<HashedBytes, SynthesisError> {
        let secret = self.secret.as_deref();
        let mut prefix = vec![Byte::constant(VALUE_TAG)];
        for place in 0..SALT_BYTES {
            prefix.push(Byte::allocate(cs, secret.map(|secret| secret.salt[place]))?);
        }
        let message = secret
            .map(|secret| Zeroizing::new([&[VALUE_TAG], &secret.salt[..], &secret.value].concat()));
        hash_hidden(cs, &prefix, self.capacity, message.as_ref().map(|message| message.as_slice()))
    }
}

/// Constrains two hashed byte strings to have the same length and the same bytes. After them each
/// has its own padding.
fn constrain_same_bytes<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    one: &HashedBytes,
    other: &HashedBytes,
) {
    let constant = CS::one();
    let both = one.inside.iter().zip(&other.inside);
    let bytes = one.bytes.iter().zip(&other.bytes);
    for ((inside, other_inside), (byte, other_byte)) in both.zip(bytes) {
        cs.enforce(
            empty_name,
            |form| {
                let form = inside.add_to(form, constant, Scalar::ONE);
                other_inside.add_to(form, constant, -Scalar::ONE)
            },
            |form| form + constant,
            |form| form,
        );
        cs.enforce(
            empty_name,
            |form| inside.add_to(form, constant, Scalar::ONE),
            |form| other_byte.subtract_from(byte.add_to(form, constant, 1), constant),
            |form| form,
        );
    }
}

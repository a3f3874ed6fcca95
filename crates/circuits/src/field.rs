//! A salted digest of `confide-disclosure` is that of hidden bytes which contain public bytes, or
//! whose own SHA-256 is public.
//!
//! The digest is SHA-256(0x03 ‖ salt ‖ value), the salt 16 bytes. Hidden: salt, value, its length
//! within the circuit's bound, and where in it the bytes stand.

use std::sync::Arc;

use bellpepper_core::{ConstraintSystem, SynthesisError, num::AllocatedNum};
use ff::Field;
use zeroize::{Zeroize, Zeroizing};

use crate::{
    circuit::{Claim, DIGEST_WORDS, word_to_publish, words_of},
    curve::Scalar,
    padding::{Hashed, hash_hidden},
    path::SALT_BYTES,
    window::{self, HiddenPart, window},
    word::{Byte, empty_name},
};

const VALUE_TAG: u8 = 0x03;

/// The salt and the value of a field.
pub(crate) struct FieldSecret {
    pub(crate) salt: [u8; SALT_BYTES],
    pub(crate) value: Vec<u8>,
    /// The place in the value where the needle begins.
    pub(crate) at: u32,
}

impl Drop for FieldSecret {
    fn drop(&mut self) {
        self.salt.zeroize();
        self.value.zeroize();
    }
}

/// The predicate that is proved of the value.
#[derive(Clone)]
pub(crate) enum FieldPredicate {
    Contains(Vec<u8>),
    Sha256([u8; 32]),
}

/// The claim that a hidden value of at most `room` bytes has this digest and satisfies the predicate.
#[derive(Clone)]
pub(crate) struct FieldClaim {
    pub(crate) room: usize,
    pub(crate) secret: Option<Arc<FieldSecret>>,
    pub(crate) digest: [u8; 32],
    pub(crate) predicate: FieldPredicate,
}

impl Claim for FieldClaim {
    fn allocate<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
        let secret = self.secret.as_deref();
        let salted = self.salted_hash(cs)?;
        let publish = |cs: &mut CS, hashed: &Hashed| {
            let words = hashed.digest.iter().map(|word| word_to_publish(cs, word));
            words.collect::<Result<Vec<_>, _>>()
        };
        let mut held = publish(cs, &salted)?;
        let value = secret.map(|secret| secret.value.as_slice());
        match &self.predicate {
            FieldPredicate::Contains(_) => {
                let part = HiddenPart { hashed: &salted, length: value.map(<[u8]>::len) };
                held.extend(window(cs, &[part], self.room, secret.map(|secret| secret.at))?);
            }
            FieldPredicate::Sha256(_) => {
                let plain = hash_hidden(cs, &[], self.room, value)?;
                same_bytes(cs, &salted, &plain);
                held.extend(publish(cs, &plain)?);
            }
        }
        Ok(held)
    }

    fn public(&self) -> Vec<u64> {
        let mut public = words_of(&self.digest).to_vec();
        match &self.predicate {
            FieldPredicate::Contains(needle) => public.extend(window::public_values(needle)),
            FieldPredicate::Sha256(digest) => public.extend(words_of(digest)),
        }
        public
    }

    fn exact_count(&self) -> usize {
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
    ) -> Result<Hashed, SynthesisError> {
        let secret = self.secret.as_deref();
        let mut prefix = vec![Byte::constant(VALUE_TAG)];
        for place in 0..SALT_BYTES {
            prefix.push(Byte::allocate(cs, secret.map(|secret| secret.salt[place]))?);
        }
        let message = secret
            .map(|secret| Zeroizing::new([&[VALUE_TAG], &secret.salt[..], &secret.value].concat()));
        hash_hidden(cs, &prefix, self.room, message.as_ref().map(|message| message.as_slice()))
    }
}

/// Constrains two hashed strings to have one length and the same bytes within it. Beyond it each
/// has padding of its own.
fn same_bytes<CS: ConstraintSystem<Scalar>>(cs: &mut CS, one: &Hashed, other: &Hashed) {
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

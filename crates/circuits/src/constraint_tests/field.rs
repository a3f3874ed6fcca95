//! A field's value behind its salted digest.

use super::*;
use crate::field::{FieldClaim, FieldPredicate, FieldWitness};

fn field(
    capacity: usize,
    value: &[u8],
    predicate: FieldPredicate,
    at: u32,
) -> ContextCircuit<FieldClaim> {
    let salt = [0x3c; 16];
    let digest = digest_of(&[&[3], &salt[..], value].concat());
    let secret = Some(Arc::new(FieldWitness { salt, value: value.to_vec(), at }));
    ContextCircuit { claim: FieldClaim { capacity, secret, digest, predicate }, context: CONTEXT }
}

fn text(capacity: usize, value: &[u8], at: usize, needle: &[u8]) -> ContextCircuit<FieldClaim> {
    field(capacity, value, FieldPredicate::Contains(needle.to_vec()), at as u32)
}

fn digest(capacity: usize, value: &[u8]) -> ContextCircuit<FieldClaim> {
    field(capacity, value, FieldPredicate::Sha256(digest_of(value)), 0)
}

#[test]
fn texts_are_found_at_their_place_only() {
    for (capacity, length) in [(38, 38), (38, 7), (102, 102), (102, 39), (102, 70), (230, 200)] {
        let value = message(length);
        for at in [0, 1, length / 2, length - 3] {
            let needle = &value[at..(at + 64).min(length)];
            assert!(holds(&text(capacity, &value, at, needle)), "{at} of {length}");
            assert!(!holds(&text(capacity, &value, at + 1, needle)), "{at} of {length}");
        }
    }
}

#[test]
fn neither_padding_nor_what_lies_after_the_value_can_be_found() {
    let value = message(30);
    for (at, needle) in
        [(30, &[0x80][..]), (31, &[0]), (29, &[value[29], 0x80]), (37, &[0]), (37, &[0, 0])]
    {
        assert!(!holds(&text(38, &value, at, needle)), "{at}");
    }
    let full = message(38);
    assert!(!holds(&text(38, &full, 37, &[full[37], 0x80])));
    assert!(!holds(&text(38, &full, 38, &[0x80])));
    // The salt stands before the value and does not belong to it.
    assert!(!holds(&text(38, &full, 0, &[0x3c])));
    assert!(!holds(&text(38, &[], 0, &[0x80])));
}

#[test]
fn digests_of_values_of_every_length_hold() {
    for (capacity, lengths) in [
        (38, &[0, 1, 37, 38][..]),
        (102, &[0, 38, 39, 46, 47, 55, 56, 101, 102]),
        (230, &[111, 112, 119, 120, 230]),
    ] {
        for length in lengths {
            assert!(holds(&digest(capacity, &message(*length))), "{length} of {capacity}");
        }
    }
}

#[test]
fn another_digest_salt_or_value_does_not_hold() {
    let value = message(31);
    for circuit in [digest(38, &value), text(38, &value, 4, &value[4..9])] {
        assert!(holds(&circuit));
        let change = |change: &dyn Fn(&mut FieldWitness)| {
            let secret = circuit.claim.secret.as_ref().expect("given");
            let (salt, value, at) = (secret.salt, secret.value.clone(), secret.at);
            let mut secret = FieldWitness { salt, value, at };
            change(&mut secret);
            let mut other = circuit.clone();
            other.claim.secret = Some(Arc::new(secret));
            holds(&other)
        };
        assert!(change(&|_| ()));
        assert!(!change(&|secret| secret.salt[0] ^= 1));
        assert!(!change(&|secret| secret.value[30] ^= 1));
        assert!(!change(&|secret| secret.value.push(0)));
        assert!(!change(&|secret| secret.value.truncate(30)));
        let mut other = circuit.clone();
        other.claim.digest[31] ^= 1;
        assert!(!holds(&other));
    }
    let mut other = digest(38, &value);
    other.claim.predicate = FieldPredicate::Sha256(digest_of(b"another"));
    assert!(!holds(&other));
    // The salted digest is not that of the value alone, nor the other way round.
    let mut swapped = digest(38, &value);
    swapped.claim.predicate = FieldPredicate::Sha256(swapped.claim.digest);
    assert!(!holds(&swapped));
    let mut unsalted = digest(38, &value);
    unsalted.claim.digest = digest_of(&value);
    assert!(!holds(&unsalted));
}

#[test]
fn two_values_cannot_be_taken_for_one() {
    // Each hash is right for a value of its own: only the equality of both values fails.
    let (one, two) = (message(31), message(32));
    let mut mixed = rows(&digest(38, &one));
    let other = rows(&digest(38, &two));
    assert_eq!(mixed.hidden.len(), other.hidden.len());
    let same = mixed.hidden.iter().zip(&other.hidden).filter(|(a, b)| a == b).count();
    assert!(same < mixed.hidden.len());
    // The variables of the second hash follow those of the first; public values come last.
    for from in [mixed.hidden.len() / 4, mixed.hidden.len() / 2, 3 * mixed.hidden.len() / 4] {
        let kept = mixed.hidden.clone();
        mixed.hidden[from..].copy_from_slice(&other.hidden[from..]);
        for (place, value) in other.public.iter().enumerate().skip(9) {
            mixed.public[place] = *value;
        }
        assert!(!mixed.are_satisfied(), "from {from}");
        mixed.hidden = kept;
    }
}

#[test]
fn no_value_of_a_field_s_circuits_can_be_changed() {
    for (capacity, length) in [(38, 38), (38, 20), (102, 46), (102, 60)] {
        let value = message(length);
        nothing_can_be_changed("digest", &mut rows(&digest(capacity, &value)));
        let needle = &value[9..15];
        nothing_can_be_changed("text", &mut rows(&text(capacity, &value, 9, needle)));
    }
}

#[test]
fn samples_of_the_largest_fields_cannot_be_changed() {
    let value = message(1024);
    let found = &value[900..964];
    let mut contained = rows(&text(1024, &value, 900, found));
    check_sample("field contains, 1,024 bytes", &mut contained, 19);
    check_sample("sha256 of a field, 486 bytes", &mut rows(&digest(486, &value[..480])), 19);
    check_sample("sha256 of a field, 1,024 bytes", &mut rows(&digest(1024, &value[..1000])), 20);
}

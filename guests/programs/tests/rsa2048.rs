//! The program `rsa2048` with hostile hints: none gives a statement.

use confide_guest_programs::{
    LIMBS, ProgramError, STEPS,
    host::{InputError, RsaHints, input_from_json, run, sample_input},
};
use confide_statement::Statement;
use crypto_bigint::{U2048, U4096};
use serde_json::Value;

const LIMB_BYTES: usize = 16;

/// Words of a limb that hold bits which belong to the next one.
const TOP_NIBBLE: u8 = 0xf0;

fn json(seed: u64) -> Value {
    sample_input("rsa2048", 100, seed).expect("a sample")
}

fn hints(seed: u64) -> RsaHints {
    let json = json(seed);
    let bytes = |name: &str| hex::decode(json[name].as_str().expect("text")).expect("digits");
    let array = |name: &str| bytes(name).try_into().expect("256 bytes");
    RsaHints::new(&bytes("message_hex"), &array("modulus"), &array("signature")).expect("hints")
}

fn program(input: &[u8]) -> Result<Statement, ProgramError> {
    run("rsa2048", input).expect("a guest")
}

/// Offset in bytes of the signature in an encoded input.
fn signature_at(hints: &RsaHints) -> usize {
    4 + hints.message.len().next_multiple_of(4) + 256
}

#[test]
fn a_signature_that_holds_gives_a_statement() {
    for seed in 0..5 {
        let hints = hints(seed);
        assert!(hints.is_valid());
        let Ok(Statement::Rsa2048(claim)) = program(&hints.encode()) else { panic!("refused") };
        assert_eq!(claim.modulus, hints.modulus);
    }
}

#[test]
fn the_hints_are_seventeen_steps_of_quotient_and_remainder() {
    let hints = hints(1);
    assert_eq!(hints.steps.len(), STEPS as usize);
    let limbs = 1 + 2 * hints.steps.len() - 1;
    let wanted = signature_at(&hints) + limbs * LIMBS * LIMB_BYTES;
    assert_eq!(hints.encode().len(), wanted);
}

#[test]
fn another_message_signature_or_modulus_has_no_hints_that_pass() {
    for change in 0..3 {
        let RsaHints { mut message, mut modulus, mut signature, .. } = hints(2);
        match change {
            0 => message[0] ^= 1,
            1 => signature[255] ^= 1,
            _ => modulus[100] ^= 1,
        }
        let hints = RsaHints::new(&message, &modulus, &signature).expect("hints");
        assert!(!hints.is_valid());
        assert_eq!(program(&hints.encode()), Err(ProgramError::Identity { step: STEPS - 1 }));
    }
}

#[test]
fn every_changed_limb_of_every_hint_is_refused() {
    let hints = hints(3);
    let input = hints.encode();
    for limb in (signature_at(&hints)..input.len()).step_by(LIMB_BYTES) {
        for (byte, flip) in [(0, 1), (7, 0x80), (15, 0x08)] {
            let mut changed = input.clone();
            changed[limb + byte] ^= flip;
            assert!(program(&changed).is_err(), "byte {byte} of the limb at {limb}");
        }
        let mut long = input.clone();
        long[limb + LIMB_BYTES - 1] |= TOP_NIBBLE;
        let why = program(&long).expect_err("a long limb");
        assert!(matches!(why, ProgramError::Limb { .. }), "limb at {limb}: {why:?}");
    }
}

#[test]
fn a_carry_moved_between_limbs_is_refused() {
    let hints = hints(4);
    let input = hints.encode();
    // The same number written with another split into limbs: 2^124 of the next limb in this one.
    let number = LIMBS * LIMB_BYTES;
    for at in (signature_at(&hints)..input.len()).step_by(number) {
        let mut moved = input.clone();
        let next = &mut moved[at + LIMB_BYTES..at + 2 * LIMB_BYTES];
        let value = u128::from_le_bytes(next.try_into().expect("a limb"));
        next.copy_from_slice(&(value - 1).to_le_bytes());
        moved[at + LIMB_BYTES - 1] += 0x10;
        assert!(matches!(program(&moved), Err(ProgramError::Limb { .. })));
    }
}

#[test]
fn a_remainder_with_the_modulus_added_is_refused() {
    for step in 0..STEPS as usize - 1 {
        let mut hostile = hints(5);
        let n = U2048::from_be_slice(&hostile.modulus);
        let [quotient, remainder] = &mut hostile.steps[step];
        // q - 1 and r + n: the identity holds over the integers, the remainder is not reduced.
        let less = U2048::from_be_slice(quotient).wrapping_sub(&U2048::ONE);
        let more: U4096 = U2048::from_be_slice(remainder).resize();
        let more = more.wrapping_add(&n.resize());
        quotient.copy_from_slice(less.to_be_bytes().as_ref());
        remainder.copy_from_slice(&more.to_be_bytes().as_ref()[256..]);
        let mut input = hostile.encode();
        // The bits above 2^2048 do not fit the bytes: they are put into the highest limb.
        let high = more.to_be_bytes().as_ref()[255];
        let limbs = 1 + 2 * step + 1;
        let at = signature_at(&hostile) + limbs * LIMBS * LIMB_BYTES + (LIMBS - 1) * LIMB_BYTES;
        input[at + 8] |= high;
        let wanted = ProgramError::NotReduced { subject: "remainder" };
        assert_eq!(program(&input), Err(wanted), "step {step}");
    }
}

#[test]
fn a_product_that_only_holds_modulo_a_power_of_two_is_refused() {
    // q + 2^(2048 + 56) has the same low limbs of 124 bits but for the highest one; and q plus the
    // inverse of n modulo 2^k times anything changes only high columns.
    for step in 0..STEPS as usize {
        let hints = hints(6);
        let mut input = hints.encode();
        let at = signature_at(&hints) + (1 + 2 * step) * LIMBS * LIMB_BYTES;
        input[at + (LIMBS - 1) * LIMB_BYTES + 15] |= 0x01;
        assert_eq!(program(&input), Err(ProgramError::Identity { step: step as u32 }));
    }
}

#[test]
fn a_signature_that_is_not_reduced_is_refused() {
    let hostile = hints(7);
    let n = U2048::from_be_slice(&hostile.modulus);
    let sum: U4096 = U2048::from_be_slice(&hostile.signature).resize();
    let sum = sum.wrapping_add(&n.resize());
    let bytes = sum.to_be_bytes();
    let mut signature = [0; 256];
    signature.copy_from_slice(&bytes.as_ref()[256..]);
    let hints = RsaHints { signature, ..hostile };
    let mut input = hints.encode();
    let top = signature_at(&hints) + (LIMBS - 1) * LIMB_BYTES + 8;
    input[top] |= bytes.as_ref()[255];
    assert_eq!(program(&input), Err(ProgramError::NotReduced { subject: "signature" }));
    let none = RsaHints { signature: hints.modulus, ..hints };
    let wanted = ProgramError::NotReduced { subject: "signature" };
    assert_eq!(program(&none.encode()), Err(wanted));
}

#[test]
fn a_modulus_that_is_even_or_short_is_refused() {
    for (at, value) in [(0, 0x7f), (255, 0x02)] {
        let mut hints = hints(8);
        hints.modulus[at] = value;
        let why = program(&hints.encode()).expect_err("a false modulus");
        assert!(matches!(why, ProgramError::Statement(_)), "{why:?}");
    }
    // One, whose every remainder is zero.
    let mut one = [0; 256];
    one[255] = 1;
    let hints = RsaHints::new(b"", &one, &[0; 256]).expect("hints");
    assert!(matches!(program(&hints.encode()), Err(ProgramError::Statement(_))));
}

#[test]
fn an_input_is_made_only_of_a_signature_that_holds() {
    let mut json = json(9);
    json["signature"] = json["modulus"].clone();
    let made = input_from_json("rsa2048", json.to_string().as_bytes());
    assert_eq!(made, Err(InputError::Signature));
    json["message"] = "both".into();
    let made = input_from_json("rsa2048", json.to_string().as_bytes());
    assert!(matches!(made, Err(InputError::Value { subject: "message", .. })));
}

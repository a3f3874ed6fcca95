//! Tests of the constraints without the back end: they hold for true statements, and for no others.

mod across;
mod field;

use std::sync::Arc;

use bellpepper_core::boolean::AllocatedBit;
use ff::Field;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::{
    circuit::{CircuitClaim, ContextCircuit},
    contains::{ContainsClaim, NeedlePosition, SearchedLeaves},
    curve::Scalar,
    hash::HashClaim,
    kind::block_count,
    path::LeafPath,
    rows::{ConstraintRows, VariableIndex},
};

const CONTEXT: [u8; 32] = *b"a context of exactly 32 bytes...";

fn digest_of(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn message(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (place * 167 + 91) as u8 | 1).collect()
}

fn hash(capacity: usize, message: &[u8]) -> ContextCircuit<HashClaim> {
    let digest = digest_of(message);
    let message = Some(Arc::new(Zeroizing::new(message.to_vec())));
    ContextCircuit { claim: HashClaim { capacity, message, digest }, context: CONTEXT }
}

fn node(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    digest_of(&[&[1], &left[..], right].concat())
}

/// A claim about a leaf under a root of 2^depth leaves, which is searched at `at`.
fn contains(
    depth: u8,
    index: u32,
    chunk: &[u8],
    at: u32,
    needle: &[u8],
) -> ContextCircuit<ContainsClaim> {
    let salt = [0xa5; 16];
    let mut root = digest_of(&[&[0, 2], &index.to_be_bytes()[..], &salt, chunk].concat());
    let siblings: Vec<[u8; 32]> = (0..depth).map(|level| digest_of(&[level])).collect();
    for (level, sibling) in siblings.iter().enumerate() {
        root = match index >> level & 1 {
            0 => node(&root, sibling),
            _ => node(sibling, &root),
        };
    }
    let leaves = vec![LeafPath { index, salt, chunk: chunk.to_vec(), siblings }];
    let claim = ContainsClaim {
        depth,
        leaves: SearchedLeaves::Single,
        place: Some(Arc::new(NeedlePosition { leaves, at })),
        direction: 2,
        root,
        needle: needle.to_vec(),
    };
    ContextCircuit { claim, context: CONTEXT }
}

fn rows<C: CircuitClaim>(circuit: &ContextCircuit<C>) -> ConstraintRows {
    ConstraintRows::from_circuit(circuit).expect("a witness was given")
}

fn holds<C: CircuitClaim>(circuit: &ContextCircuit<C>) -> bool {
    rows(circuit).are_satisfied()
}

/// A copy of a circuit's hidden part, to be changed.
fn copy_place(circuit: &ContextCircuit<ContainsClaim>) -> NeedlePosition {
    let found = circuit.claim.place.as_ref().expect("given");
    let leaf = |leaf: &LeafPath| LeafPath {
        index: leaf.index,
        salt: leaf.salt,
        chunk: leaf.chunk.clone(),
        siblings: leaf.siblings.clone(),
    };
    NeedlePosition { leaves: found.leaves.iter().map(leaf).collect(), at: found.at }
}

/// Other values to try in place of a value: the other bit, its neighbours, and values that no
/// honest witness has.
fn other_values(value: Scalar) -> impl Iterator<Item = Scalar> {
    let far = Scalar::from(0x1234_5678_9abc_def1).square();
    let candidates = [
        Scalar::ONE - value,
        value + Scalar::ONE,
        value - Scalar::ONE,
        -value,
        value + Scalar::from(1 << 32),
        Scalar::ZERO,
        Scalar::from(2),
        far,
    ];
    candidates.into_iter().filter(move |other| *other != value)
}

/// Changes each of `places` alone into each of its other values; returns those that still hold.
fn changes_that_hold(
    rows: &mut ConstraintRows,
    places: impl Iterator<Item = VariableIndex>,
) -> Vec<VariableIndex> {
    let mut wrong = Vec::new();
    for place in places {
        let value = *rows.value_mut(place);
        if other_values(value).any(|other| rows.are_satisfied_with(place, other)) {
            wrong.push(place);
        }
    }
    wrong
}

fn every_place(rows: &ConstraintRows) -> impl Iterator<Item = VariableIndex> + use<> {
    // The first public value is the constant one.
    let public = (1..rows.public.len()).map(VariableIndex::Public);
    public.chain((0..rows.hidden.len()).map(VariableIndex::Hidden))
}

#[test]
fn digests_of_every_length_are_the_library_s() {
    for (capacity, lengths) in [
        (0, &[0][..]),
        (1, &[0, 1]),
        (55, &[0, 1, 31, 54, 55]),
        (56, &[0, 55, 56]),
        (63, &[0, 55, 56, 62, 63]),
        (64, &[55, 56, 63, 64]),
        (119, &[0, 55, 56, 63, 64, 65, 118, 119]),
        (120, &[55, 56, 119, 120]),
    ] {
        for length in lengths {
            assert!(holds(&hash(capacity, &message(*length))), "{length} of {capacity}");
        }
    }
}

#[test]
fn another_digest_context_or_message_does_not_hold() {
    let circuit = hash(55, &message(31));
    let mut rows = rows(&circuit);
    for place in 1..17 {
        for bit in 0..32 {
            let value = rows.public[place] + Scalar::from(1 << bit);
            assert!(
                !rows.are_satisfied_with(VariableIndex::Public(place), value),
                "bit {bit} of {place}"
            );
        }
    }
    let mut other = circuit.clone();
    let mut text = message(31);
    text[7] ^= 1;
    other.claim.message = Some(Arc::new(Zeroizing::new(text)));
    assert!(!holds(&other));
    // A message with as many zero bytes as the padding has is another message.
    let mut text = message(31);
    text.push(0);
    other.claim.message = Some(Arc::new(Zeroizing::new(text)));
    assert!(!holds(&other));
}

#[test]
fn no_value_of_a_hash_can_be_changed() {
    let circuit = hash(55, &message(31));
    let mut rows = rows(&circuit);
    assert!(rows.are_satisfied());
    let places = every_place(&rows);
    assert_eq!(changes_that_hold(&mut rows, places), []);
    assert_eq!(rows.unconstrained_values(), Vec::<usize>::new());
}

#[test]
fn no_value_of_two_chained_blocks_can_be_changed() {
    // In the first block, across both, and ending so that the length needs a block of its own.
    for length in [3, 56, 64, 119] {
        let mut rows = rows(&hash(119, &message(length)));
        assert!(rows.are_satisfied());
        let places = every_place(&rows);
        assert_eq!(changes_that_hold(&mut rows, places), [], "{length} bytes");
        assert_eq!(rows.unconstrained_values(), Vec::<usize>::new(), "{length} bytes");
    }
}

#[test]
fn no_value_of_a_leaf_and_one_level_can_be_changed() {
    for (index, length, at) in [(0, 64, 9), (1, 20, 3), (1, 64, 0), (0, 33, 14), (0, 34, 0)] {
        let chunk = message(length);
        let needle = &chunk[at..at + 6];
        let mut rows = rows(&contains(1, index, &chunk, at as u32, needle));
        assert!(rows.are_satisfied(), "leaf {index} of {length} bytes at {at}");
        let places = every_place(&rows);
        assert_eq!(changes_that_hold(&mut rows, places), []);
        assert_eq!(rows.unconstrained_values(), Vec::<usize>::new());
    }
}

#[test]
fn samples_of_the_largest_circuits_cannot_be_changed() {
    let large = message(1024);
    let chunk = message(64);
    let mut hashed = rows(&hash(1024, &large[..700]));
    let mut contained = rows(&contains(10, 677, &chunk, 40, &chunk[40..]));
    assert_eq!(block_count(1024), 17);
    for (name, rows) in [("sha256", &mut hashed), ("contains", &mut contained)] {
        check_sample(name, rows, 19);
    }
}

/// Checks that constraints pin every value, that none of a sample can be changed, and that there
/// are fewer than 2^`bits` constraints: beyond a power of two a proof takes twice as long.
fn check_sample(name: &str, rows: &mut ConstraintRows, bits: u32) {
    let (count, hidden) = (rows.row_count(), rows.hidden.len());
    println!("{name}: {count} rows, {hidden} hidden, {} nonzeros", rows.nonzero_count());
    assert!(count < 1 << bits && hidden < 1 << bits, "{name}");
    assert!(rows.are_satisfied(), "{name}");
    assert_eq!(rows.unconstrained_values(), Vec::<usize>::new(), "{name}");
    let places: Vec<VariableIndex> = every_place(rows).step_by(97).collect();
    assert_eq!(changes_that_hold(rows, places.into_iter()), [], "{name}");
}

/// Checks that no hidden or public value can be changed.
fn nothing_can_be_changed(name: &str, rows: &mut ConstraintRows) {
    assert!(rows.are_satisfied(), "{name}");
    let places = every_place(rows);
    assert_eq!(changes_that_hold(rows, places), [], "{name}");
    assert_eq!(rows.unconstrained_values(), Vec::<usize>::new(), "{name}");
}

#[test]
fn words_cannot_trade_bits_for_carries() {
    // Two changes that cancel in a sum of bits: one bit is added, a lower one twice.
    let mut rows = rows(&hash(55, &message(31)));
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..5_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let first = (state >> 33) as usize % rows.hidden.len();
        let second = (first + 1 + (state >> 20) as usize % 40) % rows.hidden.len();
        let (one, two) = (rows.hidden[first], rows.hidden[second]);
        rows.hidden[first] = Scalar::ONE - one;
        let held = rows.are_satisfied_with(VariableIndex::Hidden(second), Scalar::ONE - two)
            && rows.are_satisfied_with(VariableIndex::Hidden(first), Scalar::ONE - one)
            && {
                rows.hidden[second] = Scalar::ONE - two;
                let hold = rows.are_satisfied();
                rows.hidden[second] = two;
                hold
            };
        rows.hidden[first] = one;
        assert!(!held, "{first} and {second}");
    }
}

#[test]
fn the_end_of_a_message_cannot_be_moved() {
    let mut rows = rows(&hash(119, &message(60)));
    for length in 0..=119 {
        // The variables of the places come first in the witness.
        for place in 0..119 {
            rows.hidden[place] = Scalar::from(u64::from(place < length));
        }
        assert_eq!(rows.are_satisfied(), length == 60, "{length}");
    }
}

#[test]
fn what_a_leaf_contains_is_found_at_its_place_only() {
    let chunk = message(50);
    for at in [0, 1, 17, 43] {
        let needle = chunk[at..at + 6].to_vec();
        assert!(holds(&contains(0, 0, &chunk, at as u32, &needle)), "{at}");
        assert!(!holds(&contains(0, 0, &chunk, at as u32 + 1, &needle)), "{at}");
        assert!(!holds(&contains(0, 0, &chunk, (at as u32 + 63) % 64, &needle)), "{at}");
    }
    assert!(holds(&contains(0, 0, &chunk, 0, &chunk)));
    assert!(holds(&contains(0, 0, &chunk, 49, &chunk[49..])));
}

#[test]
fn neither_padding_nor_what_lies_after_the_chunk_can_be_found() {
    let chunk = message(30);
    // The 0x80 of the padding, the zeros after it, the length.
    for (at, needle) in [(30, &[0x80][..]), (31, &[0]), (29, &[chunk[29], 0x80]), (63, &[0])] {
        assert!(!holds(&contains(0, 0, &chunk, at, needle)), "{at}");
    }
    // The value of a place after the last, which is not a byte.
    let full = message(64);
    assert!(!holds(&contains(0, 0, &full, 63, &[full[63], 0])));
    let empty = contains(0, 0, &[], 0, &[0]);
    assert!(!holds(&empty));
}

#[test]
fn another_path_direction_or_leaf_does_not_hold() {
    let chunk = message(64);
    let circuit = contains(2, 3, &chunk, 5, &chunk[5..12]);
    assert!(holds(&circuit));
    let change = |change: &dyn Fn(&mut LeafPath)| {
        let mut other = circuit.clone();
        let mut found = copy_place(&other);
        change(&mut found.leaves[0]);
        other.claim.place = Some(Arc::new(found));
        holds(&other)
    };
    assert!(change(&|_| ()));
    assert!(!change(&|leaf| leaf.index = 2));
    assert!(!change(&|leaf| leaf.index = 3 + 4));
    assert!(!change(&|leaf| leaf.salt[15] ^= 1));
    assert!(!change(&|leaf| leaf.chunk[63] ^= 1));
    assert!(!change(&|leaf| leaf.chunk.truncate(63)));
    for level in 0..2 {
        assert!(!change(&|leaf| leaf.siblings[level][31] ^= 1), "{level}");
    }
    let mut other = circuit.clone();
    other.claim.direction = 1;
    assert!(!holds(&other));
    other = circuit.clone();
    other.claim.root[0] ^= 0x80;
    assert!(!holds(&other));
}

#[test]
fn a_block_takes_fewer_constraints_than_the_library_s() {
    let message = message(55);
    let one = rows(&hash(55, &message));
    let two = rows(&hash(119, &message));
    let peer = ConstraintRows::from_synthesis(|rows| {
        let mut bits = Vec::new();
        for bit in message.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1))
        {
            bits.push(AllocatedBit::alloc(&mut *rows, Some(bit))?.into());
        }
        bellpepper::gadgets::sha256::sha256(&mut *rows, &bits).map(|_| ())
    })
    .expect("a witness was given");
    let sizes = |rows: &ConstraintRows| (rows.row_count(), rows.hidden.len(), rows.nonzero_count());
    println!("one {:?}, two {:?}, library {:?}", sizes(&one), sizes(&two), sizes(&peer));
    assert!(peer.are_satisfied());
    assert!(one.row_count() < 18_000 && two.row_count() - one.row_count() < 18_500);
    assert!(peer.row_count() > 25_000);
}

//! Proofs from end to end: accepted for the proved statement, refused for every other one.

use confide_circuits::{
    Circuit, CircuitError, CircuitSecurity, HiddenField, HiddenLeaf, PreparedProof, ProofHeader,
    PublicTree, check_contains, check_contains_across, check_field_contains, check_field_sha256,
    check_sha256, prove_contains, prove_contains_across, prove_field_contains, prove_field_sha256,
    prove_sha256,
};
use sha2::{Digest, Sha256};

const CONTEXT: [u8; 32] = [0x11; 32];
const NEEDLE: &[u8] = b"\"model\":\"a-model\"";
const CHUNK: &[u8] = b"{\"object\":\"chat.completion\",\"model\":\"a-model\",\"n\":1}";

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn root(index: u32, chunk: &[u8], siblings: &[[u8; 32]]) -> [u8; 32] {
    let leaf = [&[0, 2], &index.to_be_bytes()[..], &[9; 16], chunk].concat();
    siblings.iter().enumerate().fold(digest(&leaf), |node, (level, sibling)| {
        let (left, right) =
            if index >> level & 1 == 0 { (&node, sibling) } else { (sibling, &node) };
        digest(&[&[1], &left[..], right].concat())
    })
}

#[test]
fn a_digest_is_proved_and_everything_else_refused() {
    let message = b"forty bytes that the checker never sees.";
    let hash = digest(message);
    let mut prepared = PreparedProof::for_sha256(message, &hash).unwrap();
    let proof = prepared.prove(&CONTEXT).unwrap();
    let header = check_sha256(&proof, &hash, &CONTEXT).unwrap();
    assert_eq!(header.circuit, Circuit::Sha256 { bytes_most: 55 });
    assert_eq!(header.security, CircuitSecurity { conjectured_bits: 128, zero_knowledge: true });
    assert!(!proof.windows(8).any(|window| message.windows(8).any(|part| part == window)));

    for bit in [0, 100, 255] {
        let mut other = hash;
        other[bit / 8] ^= 1 << (bit % 8);
        let refused = check_sha256(&proof, &other, &CONTEXT);
        assert!(matches!(refused, Err(CircuitError::Refused)), "{refused:?}");
        let mut other = CONTEXT;
        other[bit / 8] ^= 1 << (bit % 8);
        let refused = check_sha256(&proof, &hash, &other);
        assert!(matches!(refused, Err(CircuitError::Refused)), "{refused:?}");
    }
    changed_bytes_are_refused(&proof, |proof| check_sha256(proof, &hash, &CONTEXT));

    // The same preparation serves another context, with other bytes.
    let again = prepared.prove(&[0x22; 32]).unwrap();
    check_sha256(&again, &hash, &[0x22; 32]).unwrap();
    assert!(matches!(check_sha256(&again, &hash, &CONTEXT), Err(CircuitError::Refused)));
    let same = prepared.prove(&CONTEXT).unwrap();
    let common = proof.iter().zip(&same).skip(100).filter(|(a, b)| a == b).count();
    assert!(common < proof.len() / 20, "{common} bytes of two proofs are the same");
}

fn changed_bytes_are_refused(
    proof: &[u8],
    check: impl Fn(&[u8]) -> Result<ProofHeader, CircuitError>,
) {
    let refused = |proof: &[u8]| check(proof).is_err();
    assert!(!refused(proof));
    // All bytes of the header, and some all over the body.
    let body = (69..proof.len()).step_by(proof.len() / 40);
    for place in (0..69).chain(body).chain([proof.len() - 1]) {
        for change in [0x01, 0x80] {
            let mut changed = proof.to_vec();
            changed[place] ^= change;
            assert!(refused(&changed), "byte {place} changed by {change:#x}");
        }
    }
    assert!(refused(&proof[..proof.len() - 1]));
    assert!(refused(&[proof, &[0]].concat()));
    assert!(refused(&[]));
    // Two rows of the commitment, swapped.
    let mut swapped = proof.to_vec();
    swapped[65..65 + 66].rotate_left(33);
    assert!(refused(&swapped));
}

#[test]
fn what_is_not_so_is_not_proved() {
    let untrue = prove_sha256(b"a message", &[0; 32], &CONTEXT);
    assert!(matches!(untrue, Err(CircuitError::FalseStatement { .. })));
    let long = prove_sha256(&[0; 1025], &[0; 32], &CONTEXT);
    assert!(matches!(long, Err(CircuitError::Length { got: 1025, .. })));

    let siblings = [[3; 32]; 4];
    let root = root(6, CHUNK, &siblings);
    let tree = PublicTree { root: &root, depth: 4, direction: 2 };
    let leaf = HiddenLeaf { index: 6, salt: &[9; 16], chunk: CHUNK, siblings: &siblings };
    for needle in [&b"\"model\":\"b-model\""[..], b"}\x80"] {
        let untrue = prove_contains(&leaf, &tree, needle, &CONTEXT);
        assert!(matches!(untrue, Err(CircuitError::FalseStatement { .. })));
    }
    let elsewhere = HiddenLeaf { index: 7, ..leaf };
    let untrue = prove_contains(&elsewhere, &tree, NEEDLE, &CONTEXT);
    assert!(matches!(untrue, Err(CircuitError::FalseStatement { .. })));
    for needle in [&b""[..], &[b'x'; 65]] {
        let length = prove_contains(&leaf, &tree, needle, &CONTEXT);
        assert!(matches!(length, Err(CircuitError::Length { .. })));
    }
    let deep = PublicTree { depth: 11, ..tree };
    assert!(matches!(
        prove_contains(&leaf, &deep, NEEDLE, &CONTEXT),
        Err(CircuitError::Depth { got: 11 })
    ));
}

#[test]
fn what_a_hidden_leaf_contains_is_proved_and_everything_else_refused() {
    let siblings = [[3; 32]; 4];
    let root = root(6, CHUNK, &siblings);
    let tree = PublicTree { root: &root, depth: 4, direction: 2 };
    let leaf = HiddenLeaf { index: 6, salt: &[9; 16], chunk: CHUNK, siblings: &siblings };
    let proof = prove_contains(&leaf, &tree, NEEDLE, &CONTEXT).unwrap();
    let header = check_contains(&proof, &tree, NEEDLE, &CONTEXT).unwrap();
    assert_eq!(header.circuit, Circuit::Contains { depth: 4 });

    let refused = |tree: &PublicTree<'_>, needle: &[u8], context: &[u8; 32]| {
        matches!(check_contains(&proof, tree, needle, context), Err(CircuitError::Refused))
    };
    let mut other = root;
    other[31] ^= 1;
    assert!(refused(&PublicTree { root: &other, ..tree }, NEEDLE, &CONTEXT));
    assert!(refused(&PublicTree { direction: 1, ..tree }, NEEDLE, &CONTEXT));
    assert!(refused(&tree, b"\"model\":\"b-model\"", &CONTEXT));
    // The other statement is true as well, but is not the one that was proved.
    assert!(refused(&tree, &NEEDLE[..NEEDLE.len() - 1], &CONTEXT));
    assert!(refused(&tree, NEEDLE, &[0x12; 32]));
    let deeper = check_contains(&proof, &PublicTree { depth: 5, ..tree }, NEEDLE, &CONTEXT);
    assert!(matches!(deeper, Err(CircuitError::OtherCircuit { .. })));
    let of_a_digest = check_sha256(&proof, &root, &CONTEXT);
    assert!(matches!(of_a_digest, Err(CircuitError::OtherCircuit { .. })));

    // The header of another circuit on the same body names another key.
    let mut other = proof.clone();
    other[24..26].copy_from_slice(&[1, 1]);
    let key = check_sha256(&other, &root, &CONTEXT);
    assert!(matches!(key, Err(CircuitError::OtherKey { .. })), "{key:?}");
}

#[test]
fn bytes_across_two_hidden_leaves_are_proved_and_everything_else_refused() {
    let below = [[3; 32], [4; 32], [5; 32]];
    let chunks = [[b'a'; 64], [b'b'; 64]];
    let leaf = |index: u32, chunk: &[u8]| {
        digest(&[&[0, 2], &index.to_be_bytes()[..], &[9; 16], chunk].concat())
    };
    let node = |left: &[u8; 32], right: &[u8; 32]| digest(&[&[1], &left[..], right].concat());
    let left = below.iter().fold(leaf(7, &chunks[0]), |it, sibling| node(sibling, &it));
    let right = below.iter().fold(leaf(8, &chunks[1]), |it, sibling| node(&it, sibling));
    let paths = [[&below[..], &[right]].concat(), [&below[..], &[left]].concat()];
    let root = node(&left, &right);
    let tree = PublicTree { root: &root, depth: 4, direction: 2 };
    let of = |place: usize| HiddenLeaf {
        index: 7 + place as u32,
        salt: &[9; 16],
        chunk: &chunks[place],
        siblings: &paths[place],
    };
    let leaves = [of(0), of(1)];
    let proof = prove_contains_across(&leaves, &tree, b"aabbb", &CONTEXT).unwrap();
    let header = check_contains_across(&proof, &tree, b"aabbb", &CONTEXT).unwrap();
    assert_eq!(header.circuit, Circuit::ContainsAcross { depth: 4 });
    let refused = |tree: &PublicTree<'_>, needle: &[u8], context: &[u8; 32]| {
        let checked = check_contains_across(&proof, tree, needle, context);
        matches!(checked, Err(CircuitError::Refused))
    };
    let mut other = root;
    other[0] ^= 1;
    assert!(refused(&PublicTree { root: &other, ..tree }, b"aabbb", &CONTEXT));
    assert!(refused(&PublicTree { direction: 1, ..tree }, b"aabbb", &CONTEXT));
    assert!(refused(&tree, b"aabb", &CONTEXT));
    assert!(refused(&tree, b"aabbb", &[0; 32]));
    let in_one = check_contains(&proof, &tree, b"aabbb", &CONTEXT);
    assert!(matches!(in_one, Err(CircuitError::OtherCircuit { .. })));

    let untrue = |leaves: &[HiddenLeaf<'_>; 2], needle: &[u8]| {
        let proof = prove_contains_across(leaves, &tree, needle, &CONTEXT);
        assert!(matches!(proof, Err(CircuitError::FalseStatement { .. })));
    };
    untrue(&leaves, b"ba");
    // The text begins in the second leaf: one leaf contains it.
    untrue(&leaves, b"bbb\x80");
    untrue(&[of(1), of(0)], b"ba");
    untrue(&[of(0), of(0)], b"aa");
}

#[test]
fn what_a_hidden_field_holds_is_proved_and_everything_else_refused() {
    let (value, salt) = (b"four, and nothing else", [6; 16]);
    let field = HiddenField { salt: &salt, value };
    let salted = digest(&[&[3], &salt[..], value].concat());
    let plain = digest(value);
    let contains = prove_field_contains(&field, &salted, b"nothing", &CONTEXT).unwrap();
    let header = check_field_contains(&contains, &salted, b"nothing", &CONTEXT).unwrap();
    assert_eq!(header.circuit, Circuit::FieldContains { bytes_most: 38 });
    let whole = prove_field_sha256(&field, &salted, &plain, &CONTEXT).unwrap();
    let header = check_field_sha256(&whole, &salted, &plain, &CONTEXT).unwrap();
    assert_eq!(header.circuit, Circuit::FieldSha256 { bytes_most: 38 });

    let other = [&[salted[0] ^ 1], &salted[1..]].concat().try_into().unwrap();
    for refused in [
        check_field_contains(&contains, &other, b"nothing", &CONTEXT),
        check_field_contains(&contains, &plain, b"nothing", &CONTEXT),
        check_field_contains(&contains, &salted, b"nothin", &CONTEXT),
        check_field_contains(&contains, &salted, b"nothing", &[1; 32]),
        check_field_sha256(&whole, &other, &plain, &CONTEXT),
        check_field_sha256(&whole, &salted, &other, &CONTEXT),
        check_field_sha256(&whole, &plain, &salted, &CONTEXT),
        check_field_sha256(&whole, &salted, &plain, &[1; 32]),
    ] {
        assert!(matches!(refused, Err(CircuitError::Refused)), "{refused:?}");
    }
    for refused in [
        check_field_contains(&whole, &salted, b"nothing", &CONTEXT),
        check_field_sha256(&contains, &salted, &plain, &CONTEXT),
        check_sha256(&whole, &plain, &CONTEXT),
    ] {
        assert!(matches!(refused, Err(CircuitError::OtherCircuit { .. })), "{refused:?}");
    }
    for untrue in [
        prove_field_contains(&field, &salted, b"five", &CONTEXT),
        prove_field_contains(&field, &other, b"four", &CONTEXT),
        prove_field_sha256(&field, &salted, &other, &CONTEXT),
        prove_field_sha256(&field, &other, &plain, &CONTEXT),
    ] {
        assert!(matches!(untrue, Err(CircuitError::FalseStatement { .. })), "{untrue:?}");
    }
    let long = HiddenField { salt: &salt, value: &[b'x'; 1025] };
    let refused = prove_field_contains(&long, &salted, b"x", &CONTEXT);
    assert!(matches!(refused, Err(CircuitError::Length { got: 1025, .. })));
}

#[test]
fn a_header_is_read_alone_and_in_one_way_only() {
    let message = b"another message";
    let proof = prove_sha256(message, &digest(message), &CONTEXT).unwrap();
    let (header, body) = ProofHeader::parse(&proof).unwrap();
    assert_eq!(body.len() + 65, proof.len());
    assert_eq!(header.circuit, Circuit::Sha256 { bytes_most: 55 });
    let changed = |place: usize, value: u8| {
        let mut proof = proof.clone();
        proof[place] = value;
        proof
    };
    assert!(matches!(ProofHeader::parse(&changed(0, 0)), Err(CircuitError::Magic)));
    assert!(matches!(ProofHeader::parse(&changed(24, 6)), Err(CircuitError::UnknownField { .. })));
    assert!(matches!(ProofHeader::parse(&changed(25, 3)), Err(CircuitError::UnknownField { .. })));
    assert!(matches!(ProofHeader::parse(&changed(28, 2)), Err(CircuitError::UnknownField { .. })));
    assert!(matches!(ProofHeader::parse(&changed(64, 0)), Err(CircuitError::ProofLength { .. })));
    let weaker = changed(27, 100);
    let weaker = check_sha256(&weaker, &digest(message), &CONTEXT);
    assert!(matches!(weaker, Err(CircuitError::OtherSecurity { .. })));
    let bare = changed(28, 0);
    let bare = check_sha256(&bare, &digest(message), &CONTEXT);
    assert!(matches!(bare, Err(CircuitError::OtherSecurity { .. })));
    let key = check_sha256(&changed(29, !proof[29]), &digest(message), &CONTEXT);
    assert!(matches!(key, Err(CircuitError::OtherKey { .. })));
    assert!(ProofHeader::parse(&vec![0; 200_000]).is_err());
}

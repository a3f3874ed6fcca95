//! Proofs have the layout of their circuit, and no other is restored.

use super::*;
use crate::claim::PublicInputs;

const CONTEXT: [u8; 32] = [3; 32];

/// A proof in the back end's own encoding, with its keys.
fn encoded_proof() -> (ProofLayout, Vec<u8>, Arc<CircuitKeys>) {
    let message = b"hidden";
    let digest = sha256_parts(&[message]);
    let proof = prove_sha256(message, &digest, &CONTEXT).unwrap();
    let (header, body) = ProofHeader::parse(&proof).unwrap();
    let claim = AnyClaim::from_public_inputs(
        header.circuit,
        &PublicInputs { digest, ..PublicInputs::default() },
    )
    .unwrap();
    let keys = CircuitKeys::derive_cached(header.circuit).unwrap();
    let layout = ProofLayout::new(
        &keys.sizes,
        &encode_public_values(&ContextCircuit { claim, context: CONTEXT }),
    );
    let bytes = layout.restore(body).unwrap();
    assert_eq!(layout.strip(&bytes).as_deref(), Some(body));
    (layout, bytes, keys)
}

fn back_end_takes(bytes: &[u8], keys: &CircuitKeys) -> bool {
    let proof: Result<BackEnd, _> = bincode_options().deserialize(bytes);
    proof.is_ok_and(|proof| proof.verify(&keys.verifier).is_ok())
}

#[test]
fn the_back_end_takes_a_part_that_the_circuit_lacks_and_the_layout_cannot_say_it() {
    let (layout, bytes, keys) = encoded_proof();
    assert!(back_end_takes(&bytes, &keys));
    // A commitment to shared variables, which the circuit does not have: here one of no rows.
    let with_part = [&[1], &[0; 8][..], &bytes[1..]].concat();
    assert!(
        back_end_takes(&with_part, &keys),
        "the back end refuses it by now: say so in the docs"
    );
    assert_eq!(layout.strip(&with_part), None);
    // Whatever the body is, the part is absent from what the back end reads.
    let body = vec![0xff; layout.proof_bytes()];
    assert_eq!(layout.restore(&body).unwrap()[..2], [0, 1]);
}

#[test]
fn a_body_of_another_length_or_encoding_is_not_read() {
    let (layout, bytes, keys) = encoded_proof();
    let body = layout.strip(&bytes).unwrap();
    for length in [0, 1, body.len() - 1, body.len() + 1] {
        let mut other = body.clone();
        other.resize(length, 0);
        assert!(matches!(layout.restore(&other), Err(CircuitError::ProofLength { .. })));
    }
    // The last number plus the order of the field is the same number in another encoding.
    let mut other = bytes.clone();
    let place = other.len() - 32;
    other[place..].fill(0xff);
    assert!(!back_end_takes(&other, &keys));
    let cut: Result<BackEnd, _> = bincode_options().deserialize(&bytes[..bytes.len() - 1]);
    assert!(cut.is_err());
}

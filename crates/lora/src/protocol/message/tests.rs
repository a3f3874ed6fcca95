//! Every message comes back as it was, and nothing else is read.

use super::*;
use crate::{
    protocol::{ProtocolError, Scheme, VERSION, refusal::Refusal},
    site::LayerInput,
    terms::ProtectedMatrices,
};

fn encode(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn hello() -> Hello<'static> {
    Hello {
        version: VERSION,
        adapter: "banking",
        scheme: Scheme::Masked,
        parameters: "rlwe-4096-q100-flood40",
        protect: Some(ProtectedMatrices::A),
        client: [7; 32],
        credential: b"secret",
        public_key: &[1, 2, 3],
    }
}

fn welcome() -> Welcome {
    Welcome {
        version: VERSION,
        epoch: [1; 16],
        token: [2; 32],
        simulated: true,
        trusted: false,
        can_be_learned: true,
        protect: ProtectedMatrices::Ba,
        groups: 56,
    }
}

#[test]
fn messages_come_back_as_they_were() {
    let bytes = encode(|out| hello().encode(out));
    assert_eq!(Hello::decode(&bytes).unwrap(), hello());
    let bytes = encode(|out| welcome().encode(out));
    assert_eq!(Welcome::decode(&bytes).unwrap(), welcome());
    let attach = Attach { client: [1; 32], epoch: [2; 16], token: [3; 32] };
    assert_eq!(Attach::decode(&encode(|out| attach.encode(out))).unwrap(), attach);
    let attached = AttachAnswer { connections: 3 };
    assert_eq!(AttachAnswer::decode(&encode(|out| attached.encode(out))).unwrap(), attached);
    let terms = GroupTerms { budget: Some(7), budget_left: Some(0), terms: &[1, 2] };
    assert_eq!(GroupTerms::decode(&encode(|out| terms.encode(out))).unwrap(), terms);
    let prepare = PrepareRequest { layer: 1, input: LayerInput::FeedForward };
    assert_eq!(PrepareRequest::decode(&encode(|out| prepare.encode(out))).unwrap(), prepare);
    let block = CiphertextBlock { first: 16, count: 2, ciphertexts: &[1, 2, 3, 4] };
    assert_eq!(CiphertextBlock::decode(&encode(|out| block.encode(out))).unwrap(), block);
    let prepared = PreparedRows { first: 16, count: 2, ciphertexts: &[1, 2, 3, 4] };
    assert_eq!(PreparedRows::decode(&encode(|out| prepared.encode(out))).unwrap(), prepared);
    let credit = BlockCredit { blocks: 4, batch: 7 };
    assert_eq!(BlockCredit::decode(&encode(|out| credit.encode(out))).unwrap(), credit);
    let input = LayerInput::FinalHidden;
    let apply = MaskedRequest { layer: 0, input, counter: 4097, vectors: 2, packed: &[9; 8] };
    assert_eq!(MaskedRequest::decode(&encode(|out| apply.encode(out))).unwrap(), apply);
    let products = MaskedAnswer { budget_left: None, vectors: 2, packed: &[8; 4] };
    assert_eq!(MaskedAnswer::decode(&encode(|out| products.encode(out))).unwrap(), products);
    let direct =
        CiphertextRequest { layer: 1, input, tile_inputs: 512, tile_rows: 8, ciphertexts: &[6] };
    assert_eq!(CiphertextRequest::decode(&encode(|out| direct.encode(out))).unwrap(), direct);
    let answer = CiphertextAnswer { budget_left: Some(3), ciphertexts: &[6] };
    assert_eq!(CiphertextAnswer::decode(&encode(|out| answer.encode(out))).unwrap(), answer);
    let goodbye = Goodbye { session: true };
    assert_eq!(Goodbye::decode(&encode(|out| goodbye.encode(out))).unwrap(), goodbye);
}

#[test]
fn every_refusal_comes_back_by_its_name() {
    let plain = [
        Refusal::Malformed,
        Refusal::UnknownAdapter,
        Refusal::NotOffered,
        Refusal::NoSession,
        Refusal::CounterUsed,
        Refusal::NotPrepared,
        Refusal::AlreadyPrepared,
        Refusal::Busy,
        Refusal::Deadline,
        Refusal::Stopping,
        Refusal::Internal,
        Refusal::Version { host: 2 },
        Refusal::Budget { limit: 1535 },
    ];
    for refusal in plain {
        let bytes = encode(|out| refusal.encode(out));
        assert_eq!(Refusal::decode(&bytes).unwrap(), refusal);
    }
    assert!(Refusal::decode(&[0; 9]).is_err());
    assert!(Refusal::decode(&[99, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
}

#[test]
fn every_cut_of_a_message_with_an_end_is_refused() {
    let bytes = encode(|out| welcome().encode(out));
    for end in 0..bytes.len() {
        assert!(Welcome::decode(&bytes[..end]).is_err(), "{end}");
    }
    let long = [&bytes[..], &[0]].concat();
    assert!(Welcome::decode(&long).is_err());
    let bytes = encode(|out| hello().encode(out));
    // The public key is whatever follows the fields, of any length.
    for end in 0..bytes.len() - hello().public_key.len() {
        assert!(Hello::decode(&bytes[..end]).is_err(), "{end}");
    }
}

#[test]
fn another_protocol_and_another_version_are_told_apart() {
    let mut bytes = encode(|out| hello().encode(out));
    bytes[8] = 2;
    let refused = Hello::decode(&bytes).unwrap_err();
    assert!(matches!(refused, ProtocolError::Refused(Refusal::Version { host: VERSION })));
    let foreign = Hello::decode(b"GET / HTTP/1.1\r\n").unwrap_err();
    assert!(matches!(foreign, ProtocolError::Field { field: "magic", .. }), "{foreign}");
}

#[test]
fn terms_with_more_left_than_there_was_are_refused() {
    for (budget, budget_left) in [(Some(7), Some(8)), (None, Some(1)), (Some(1), None)] {
        let terms = GroupTerms { budget, budget_left, terms: &[] };
        assert!(GroupTerms::decode(&encode(|out| terms.encode(out))).is_err());
    }
}

#[test]
fn vectors_are_counted_before_they_are_looked_at() {
    for vectors in [0, MaskedRequest::VECTORS_MAX + 1] {
        let input = LayerInput::Attention;
        let apply = MaskedRequest { layer: 0, input, counter: 0, vectors, packed: &[] };
        assert!(MaskedRequest::decode(&encode(|out| apply.encode(out))).is_err());
    }
    let apply = MaskedRequest {
        layer: 0,
        input: LayerInput::Attention,
        counter: u64::MAX,
        vectors: 2,
        packed: &[],
    };
    assert!(MaskedRequest::decode(&encode(|out| apply.encode(out))).is_err());
}

//! Frames of the blind protocol as either side reads them, cut anywhere, and the messages, terms and packed integers in
//! them.

#![no_main]

use confide_lora::protocol::{
    Attach, AttachAnswer, BlockCredit, CiphertextAnswer, CiphertextBlock, CiphertextRequest,
    ConnectionSide, FrameKind, FrameReader, FrameSplitter, Goodbye, GroupTerms, Hello,
    MaskedAnswer, MaskedRequest, PrepareRequest, PreparedRows, Refusal, Welcome, decode_terms,
    encode_terms, is_packed, pack, unpack,
};
use libfuzzer_sys::fuzz_target;
use std::{sync::OnceLock, time::Duration};
use tokio::runtime::{Builder, Runtime};

/// The kind, the id and the payload of a frame.
type OwnedFrame = (FrameKind, u32, Vec<u8>);

fuzz_target!(|data: &[u8]| {
    // The first byte says how the rest is cut.
    let Some((cut, bytes)) = data.split_first() else { return };
    for side in [ConnectionSide::Host, ConnectionSide::Holder] {
        let frames = read_frames(bytes, side);
        assert_eq!(split_frames(bytes, side, usize::from(*cut).max(1)), frames);
        for (kind, _, payload) in frames {
            assert!(payload.len() <= kind.payload_max());
            decode_message(kind, &payload);
        }
    }
});

/// Reads frames from a stream until its end, or until one is refused.
fn read_frames(bytes: &[u8], side: ConnectionSide) -> Vec<OwnedFrame> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime =
        RUNTIME.get_or_init(|| Builder::new_current_thread().enable_all().build().unwrap());
    let mut reader = FrameReader::new(bytes, side);
    let mut found = Vec::new();
    while let Ok(frame) = runtime.block_on(reader.read_next("a frame", Duration::from_secs(1))) {
        found.push((frame.kind, frame.id, frame.payload.to_vec()));
    }
    found
}

/// Splits the same bytes, which come in pieces of `step`.
fn split_frames(bytes: &[u8], side: ConnectionSide, step: usize) -> Vec<OwnedFrame> {
    let mut splitter = FrameSplitter::new(side);
    let mut found = Vec::new();
    for piece in bytes.chunks(step) {
        splitter.push(piece);
        loop {
            match splitter.next_frame() {
                Ok(Some(frame)) => found.push((frame.kind, frame.id, frame.payload.to_vec())),
                Ok(None) => break,
                Err(_) => return found,
            }
        }
    }
    found
}

/// Unpacks values of every width, and of two that none has.
fn check_packed(packed: &[u8], vectors: u16, width: u64) {
    let (bits, count) = ((width % 66) as u32, usize::from(vectors) * 16);
    let values = unpack(packed, bits, count);
    assert_eq!(is_packed(packed, bits, count), values.is_some());
    if let Some(values) = values {
        let mut again = Vec::new();
        pack(&values, bits, &mut again);
        assert_eq!(again, packed);
    }
}

fn decode_message(kind: FrameKind, payload: &[u8]) {
    match kind {
        FrameKind::Hello => drop(Hello::decode(payload)),
        FrameKind::Attach => drop(Attach::decode(payload)),
        FrameKind::Prepare => drop(PrepareRequest::decode(payload)),
        FrameKind::Block => drop(CiphertextBlock::decode(payload)),
        FrameKind::Apply => {
            if let Ok(apply) = MaskedRequest::decode(payload) {
                check_packed(apply.packed, apply.vectors, apply.counter);
            }
        }
        FrameKind::Direct => drop(CiphertextRequest::decode(payload)),
        FrameKind::Goodbye => drop(Goodbye::decode(payload)),
        FrameKind::Welcome => drop(Welcome::decode(payload)),
        FrameKind::Terms => {
            let read = GroupTerms::decode(payload).and_then(|message| decode_terms(message.terms));
            if let Ok(terms) = read {
                let again = decode_terms(&encode_terms(&terms)).expect("what was read is written");
                assert_eq!(again, terms);
            }
        }
        FrameKind::Attached => drop(AttachAnswer::decode(payload)),
        FrameKind::Credit => drop(BlockCredit::decode(payload)),
        FrameKind::Prepared => drop(PreparedRows::decode(payload)),
        FrameKind::Products => {
            if let Ok(answer) = MaskedAnswer::decode(payload) {
                check_packed(answer.packed, answer.vectors, answer.budget_left.unwrap_or(33));
            }
        }
        FrameKind::CiphertextAnswer => {
            drop(CiphertextAnswer::decode(payload).and_then(|answer| answer.split_ciphertexts()))
        }
        FrameKind::Error => drop(Refusal::decode(payload)),
        _ => {}
    }
}

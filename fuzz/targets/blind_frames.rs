//! Frames, messages, terms and packed integers of the blind protocol, as either side reads them.

#![no_main]

use confide_lora::protocol::{
    Attach, AttachAnswer, BlockCredit, CiphertextAnswer, CiphertextBlock, CiphertextRequest,
    ConnectionSide, FrameKind, FrameReader, Goodbye, GroupTerms, Hello, MaskedAnswer,
    MaskedRequest, PrepareRequest, PreparedRows, Refusal, Welcome, decode_terms, encode_terms,
    unpack,
};
use libfuzzer_sys::fuzz_target;
use std::{sync::OnceLock, time::Duration};
use tokio::runtime::{Builder, Runtime};

fuzz_target!(|data: &[u8]| {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime =
        RUNTIME.get_or_init(|| Builder::new_current_thread().enable_all().build().unwrap());
    for side in [ConnectionSide::Host, ConnectionSide::Holder] {
        let mut reader = FrameReader::new(data, side);
        while let Ok(frame) = runtime.block_on(reader.read_next("a frame", Duration::from_secs(1)))
        {
            assert!(frame.payload.len() <= frame.kind.payload_max());
            message(frame.kind, frame.payload);
        }
    }
});

fn message(kind: FrameKind, payload: &[u8]) {
    match kind {
        FrameKind::Hello => drop(Hello::decode(payload)),
        FrameKind::Attach => drop(Attach::decode(payload)),
        FrameKind::Prepare => drop(PrepareRequest::decode(payload)),
        FrameKind::Block => drop(CiphertextBlock::decode(payload)),
        FrameKind::Apply => {
            if let Ok(apply) = MaskedRequest::decode(payload) {
                let _ = unpack(apply.packed, 33, usize::from(apply.vectors) * 16);
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
        FrameKind::Products => drop(MaskedAnswer::decode(payload)),
        FrameKind::CiphertextAnswer => {
            drop(CiphertextAnswer::decode(payload).and_then(|answer| answer.split_ciphertexts()))
        }
        FrameKind::Error => drop(Refusal::decode(payload)),
        _ => {}
    }
}

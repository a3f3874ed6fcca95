//! Frames, messages, terms and packed integers of the blind protocol, as either side reads them.

#![no_main]

use confide_lora::protocol::{
    Apply, Attach, Attached, Block, Credit, Direct, DirectAnswer, FrameKind, FrameReader, Goodbye,
    GroupTerms, Hello, Prepare, Prepared, Products, Refusal, Side, Welcome, decode_terms,
    encode_terms, unpack,
};
use libfuzzer_sys::fuzz_target;
use std::{sync::OnceLock, time::Duration};
use tokio::runtime::{Builder, Runtime};

fuzz_target!(|data: &[u8]| {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime =
        RUNTIME.get_or_init(|| Builder::new_current_thread().enable_all().build().unwrap());
    for side in [Side::Host, Side::Holder] {
        let mut reader = FrameReader::new(data, side);
        while let Ok(frame) = runtime.block_on(reader.next("a frame", Duration::from_secs(1))) {
            assert!(frame.payload.len() <= frame.kind.payload_max());
            message(frame.kind, frame.payload);
        }
    }
});

fn message(kind: FrameKind, payload: &[u8]) {
    match kind {
        FrameKind::Hello => drop(Hello::decode(payload)),
        FrameKind::Attach => drop(Attach::decode(payload)),
        FrameKind::Prepare => drop(Prepare::decode(payload)),
        FrameKind::Block => drop(Block::decode(payload)),
        FrameKind::Apply => {
            if let Ok(apply) = Apply::decode(payload) {
                let _ = unpack(apply.packed, 33, usize::from(apply.vectors) * 16);
            }
        }
        FrameKind::Direct => drop(Direct::decode(payload)),
        FrameKind::Goodbye => drop(Goodbye::decode(payload)),
        FrameKind::Welcome => drop(Welcome::decode(payload)),
        FrameKind::Terms => {
            let read = GroupTerms::decode(payload).and_then(|message| decode_terms(message.terms));
            if let Ok(terms) = read {
                let again = decode_terms(&encode_terms(&terms)).expect("what was read is written");
                assert_eq!(again, terms);
            }
        }
        FrameKind::Attached => drop(Attached::decode(payload)),
        FrameKind::Credit => drop(Credit::decode(payload)),
        FrameKind::Prepared => drop(Prepared::decode(payload)),
        FrameKind::Products => drop(Products::decode(payload)),
        FrameKind::DirectAnswer => {
            drop(DirectAnswer::decode(payload).and_then(|answer| answer.split()))
        }
        FrameKind::Error => drop(Refusal::decode(payload)),
        _ => {}
    }
}

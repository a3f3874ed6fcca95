//! What either side of the blind protocol reads: frames, messages, terms, packed integers.

#![no_main]

use confide_lora::protocol::{
    Apply, Attach, Attached, Block, Credit, Direct, DirectAnswer, FrameReader, Goodbye, GroupTerms,
    Hello, Kind, Prepare, Prepared, Products, Refusal, Side, Welcome, decode_terms, encode_terms,
    unpack,
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
        while let Ok(frame) =
            runtime.block_on(reader.next("a frame", Duration::from_secs(1)))
        {
            assert!(frame.payload.len() <= frame.kind.payload_max());
            message(frame.kind, frame.payload);
        }
    }
});

fn message(kind: Kind, payload: &[u8]) {
    match kind {
        Kind::Hello => drop(Hello::decode(payload)),
        Kind::Attach => drop(Attach::decode(payload)),
        Kind::Prepare => drop(Prepare::decode(payload)),
        Kind::Block => drop(Block::decode(payload)),
        Kind::Apply => {
            if let Ok(apply) = Apply::decode(payload) {
                let _ = unpack(apply.packed, 33, usize::from(apply.vectors) * 16);
            }
        }
        Kind::Direct => drop(Direct::decode(payload)),
        Kind::Goodbye => drop(Goodbye::decode(payload)),
        Kind::Welcome => drop(Welcome::decode(payload)),
        Kind::Terms => {
            let read = GroupTerms::decode(payload).and_then(|message| decode_terms(message.terms));
            if let Ok(terms) = read {
                let again = decode_terms(&encode_terms(&terms)).expect("what was read is written");
                assert_eq!(again, terms);
            }
        }
        Kind::Attached => drop(Attached::decode(payload)),
        Kind::Credit => drop(Credit::decode(payload)),
        Kind::Prepared => drop(Prepared::decode(payload)),
        Kind::Products => drop(Products::decode(payload)),
        Kind::DirectAnswer => drop(DirectAnswer::decode(payload).and_then(|answer| answer.split())),
        Kind::Error => drop(Refusal::decode(payload)),
        _ => {}
    }
}

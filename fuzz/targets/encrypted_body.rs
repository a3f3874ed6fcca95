//! Encrypted bodies: frames in pieces, opened with a known key, and key configurations.
#![no_main]

use confide_encrypted_body::{
    AnswerNonce, BodyEnd, EncapsulatedKey, ExchangeSecret, FrameReader, SealedFrame,
    encode_key_config, parse_key_configs,
};
use libfuzzer_sys::fuzz_target;

const FRAME_BYTES_MAX: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(keys) = parse_key_configs(bytes) {
        for key in keys {
            assert_eq!(parse_key_configs(&encode_key_config(&key)), Ok(vec![key]));
        }
    }
    if let Ok(key) = EncapsulatedKey::parse(bytes) {
        assert_eq!(key.to_hex().as_bytes(), bytes);
    }
    for end in [BodyEnd::Unmarked, BodyEnd::FinalFrame] {
        let whole = read_frames(bytes, end, bytes.len().max(1));
        for piece_bytes in [1, 3, 7] {
            assert_eq!(read_frames(bytes, end, piece_bytes), whole);
        }
        let Some((frames, _)) = whole else { continue };
        // The key and the nonce of `vectors/encrypted-body/answers.json`, so that the seeds are opened.
        let range = |begin: u8| std::array::from_fn(|index| begin + index as u8);
        let secret = ExchangeSecret::from_parts(range(0), &range(0x20));
        let nonce: String = (0x40..0x60).map(|byte| format!("{byte:02x}")).collect();
        let nonce = AnswerNonce::parse(nonce.as_bytes()).expect("a nonce");
        let mut opener = secret.open_answer(nonce).expect("a cipher");
        let _ = frames.into_iter().try_for_each(|frame| opener.open_frame(frame).map(drop));
    }
});

/// The frames of a body that comes in pieces, and whether it is complete; nothing if it is malformed.
fn read_frames(bytes: &[u8], end: BodyEnd, piece_bytes: usize) -> Option<(Vec<SealedFrame>, bool)> {
    let (mut reader, mut frames) = (FrameReader::new(end, FRAME_BYTES_MAX), Vec::new());
    for mut piece in bytes.chunks(piece_bytes) {
        while let Some(frame) = reader.read(&mut piece).ok()? {
            assert!(frame.ciphertext.len() <= FRAME_BYTES_MAX);
            frames.push(frame);
        }
        assert!(reader.capacity_after(0) <= FRAME_BYTES_MAX);
    }
    Some((frames, reader.finish().is_ok()))
}

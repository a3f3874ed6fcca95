//! Messages in binary form, as they come in pieces, and encapsulated requests and answers.
#![no_main]

use confide_encrypted_body::{
    BodyKem, ChunkReader, ControlData, EncryptedBodyError, MessageHead, MessageKind, MessageLimits,
    MessagePart, MessageReader, OhttpAnswerSecret, OhttpForm, OhttpRequestHead, RecipientKey,
    SealedFrame, append_content, append_message_end,
};
use libfuzzer_sys::fuzz_target;

const LIMITS: MessageLimits = MessageLimits { head_bytes: 2048, fields: 16 };
const CHUNK_BYTES_MAX: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    for kind in [MessageKind::Request, MessageKind::Answer] {
        check_message(kind, bytes);
    }
    for form in OhttpForm::ALL {
        let whole = read_chunks(bytes, form, bytes.len().max(1));
        for piece_bytes in [1, 3, 7] {
            assert_eq!(read_chunks(bytes, form, piece_bytes), whole);
        }
        // The keys of `vectors/encrypted-body/ohttp.json`, so that the seeds are opened.
        for kem in BodyKem::ALL {
            let private_key: [u8; 32] = std::array::from_fn(|index| 100 + index as u8);
            let key = RecipientKey::from_private_key(kem, &private_key).expect("a key");
            if let Some(secret) = open_request(&key, bytes, form) {
                assert_eq!(secret.form(), form);
            }
        }
    }
});

/// A message reads the same in pieces of any length, and again after it was written in either form.
fn check_message(kind: MessageKind, bytes: &[u8]) {
    let whole = read_message(kind, bytes, bytes.len().max(1));
    for piece_bytes in [1, 2, 5] {
        assert_eq!(read_message(kind, bytes, piece_bytes), whole);
    }
    let Ok((head, content)) = whole else { return };
    assert_eq!(matches!(head.control, ControlData::Request { .. }), kind == MessageKind::Request);
    assert!(head.fields.len() <= LIMITS.fields);
    let mut pieces = head.encode_head();
    append_content(&content, &mut pieces);
    append_message_end(&mut pieces);
    for written in [head.encode_message(&content), pieces] {
        match read_message(kind, &written, 64) {
            Ok(read) => assert_eq!(read, (head.clone(), content.clone())),
            // A length may take one byte more than it did.
            Err(error) => assert!(matches!(error, EncryptedBodyError::MessageTooLong { .. })),
        }
    }
}

fn read_message(
    kind: MessageKind,
    bytes: &[u8],
    piece_bytes: usize,
) -> Result<(MessageHead, Vec<u8>), EncryptedBodyError> {
    let mut reader = MessageReader::new(kind, LIMITS);
    let (mut head, mut content) = (None, Vec::new());
    for piece in bytes.chunks(piece_bytes) {
        reader.push(piece);
        while let Some(part) = reader.next_part()? {
            match part {
                MessagePart::Head(read) => assert!(head.replace(read).is_none()),
                MessagePart::Content(piece) => content.extend(piece),
            }
        }
    }
    if let Some(read) = reader.finish()? {
        assert!(head.replace(read).is_none());
    }
    Ok((head.expect("a complete message has a head"), content))
}

/// The chunks of a body that comes in pieces, and the final one.
fn read_chunks(
    bytes: &[u8],
    form: OhttpForm,
    piece_bytes: usize,
) -> Option<(Vec<SealedFrame>, Result<SealedFrame, EncryptedBodyError>)> {
    let (mut reader, mut chunks) = (ChunkReader::new(form, CHUNK_BYTES_MAX), Vec::new());
    for mut piece in bytes.chunks(piece_bytes) {
        while let Some(chunk) = reader.read(&mut piece).ok()? {
            assert!(chunk.ciphertext.len() <= CHUNK_BYTES_MAX);
            chunks.push(chunk);
        }
        assert!(reader.capacity_after(0) <= CHUNK_BYTES_MAX);
    }
    Some((chunks, reader.finish()))
}

fn open_request(key: &RecipientKey, bytes: &[u8], form: OhttpForm) -> Option<OhttpAnswerSecret> {
    let (head, length) = OhttpRequestHead::parse(bytes).ok()??;
    assert_eq!(head.to_bytes(), bytes[..length]);
    let mut opener = key.open_ohttp_request(&head, form).ok()?;
    let (chunks, last) = read_chunks(&bytes[length..], form, 64)?;
    for chunk in chunks {
        opener.open_chunk(chunk).ok()?;
    }
    opener.open_chunk(last.ok()?).ok()?;
    let secret = opener.answer_secret().expect("a secret");
    let (nonce, mut sealer) = secret.seal_answer().expect("a sealer");
    let mut answer = Vec::new();
    sealer.seal_final_chunk(b"answer", &mut answer).expect("an answer");
    let mut reader = ChunkReader::new(form, CHUNK_BYTES_MAX);
    assert_eq!(reader.read(&mut &answer[..]), Ok(None));
    let mut opener = secret.open_answer(&nonce).expect("an opener");
    let text = opener.open_chunk(reader.finish().expect("the final chunk"));
    assert_eq!(text.expect("the answer"), b"answer");
    Some(secret)
}

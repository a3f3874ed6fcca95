//! Bodies in both directions: whole, in pieces, and tampered with.

use super::*;

const FRAME_BYTES_MAX: usize = 1024;
const TEXTS: [&[u8]; 3] = [b"first", b"second", b""];

/// Opens one frame of either direction.
type OpenFrame<'a> = &'a mut dyn FnMut(SealedFrame) -> Result<Vec<u8>, EncryptedBodyError>;

/// Opens a body that comes in pieces of this length.
pub(crate) fn open_body(
    body: &[u8],
    end: BodyEnd,
    piece_bytes: usize,
    open: OpenFrame<'_>,
) -> Result<Vec<u8>, EncryptedBodyError> {
    let (mut reader, mut text) = (FrameReader::new(end, FRAME_BYTES_MAX), Vec::new());
    for mut piece in body.chunks(piece_bytes) {
        while let Some(frame) = reader.read(&mut piece)? {
            text.extend(open(frame)?);
        }
    }
    reader.finish()?;
    Ok(text)
}

fn seal_request(key: &RecipientKey, end: BodyEnd) -> (RequestSealer, Vec<Vec<u8>>) {
    let mut sealer = RequestSealer::new(key.public_key(), end).unwrap();
    let frames = TEXTS.iter().enumerate().map(|(index, text)| {
        let mut frame = Vec::new();
        match end == BodyEnd::FinalFrame && index + 1 == TEXTS.len() {
            true => sealer.seal_final_frame(text, &mut frame).unwrap(),
            false => sealer.seal_frame(text, &mut frame).unwrap(),
        }
        frame
    });
    let frames = frames.collect();
    (sealer, frames)
}

fn open_request(
    key: &RecipientKey,
    encapsulated: &EncapsulatedKey,
    end: BodyEnd,
    body: &[u8],
) -> Result<Vec<u8>, EncryptedBodyError> {
    let mut opener = key.open_request(encapsulated, end)?;
    open_body(body, end, 7, &mut |frame| opener.open_frame(frame))
}

const ENDS: [BodyEnd; 2] = [BodyEnd::Unmarked, BodyEnd::FinalFrame];

#[test]
fn a_request_and_its_answer_are_opened_however_they_are_cut_into_pieces() {
    for (kem, end) in BodyKem::ALL.into_iter().flat_map(|kem| ENDS.map(|end| (kem, end))) {
        let key = RecipientKey::generate(kem).unwrap();
        let (sealer, frames) = seal_request(&key, end);
        let (body, encapsulated) = (frames.concat(), sealer.encapsulated_key());
        let value = encapsulated.to_hex();
        assert_eq!(&EncapsulatedKey::parse(value.as_bytes()).unwrap(), encapsulated);
        let mut secret = None;
        for piece_bytes in [1, 3, 4, 5, 16, body.len()] {
            let mut opener = key.open_request(encapsulated, end).unwrap();
            let text = open_body(&body, end, piece_bytes, &mut |frame| opener.open_frame(frame));
            assert_eq!(text.unwrap(), TEXTS.concat());
            secret = Some(opener.exchange_secret().unwrap());
        }
        let (nonce, mut answer) = secret.unwrap().seal_answer().unwrap();
        let mut body = Vec::new();
        answer.seal_frame(b"answer", &mut body).unwrap();
        answer.seal_final_frame(b" to it", &mut body).unwrap();
        let nonce = AnswerNonce::parse(nonce.to_hex().as_bytes()).unwrap();
        let mut opener = sealer.exchange_secret().unwrap().open_answer(nonce).unwrap();
        let text = open_body(&body, BodyEnd::FinalFrame, 1, &mut |frame| opener.open_frame(frame));
        assert_eq!(text.unwrap(), b"answer to it");
    }
}

#[test]
fn every_way_to_tamper_with_a_body_that_has_an_end_is_refused() {
    let end = BodyEnd::FinalFrame;
    let key = RecipientKey::generate(BodyKem::X25519).unwrap();
    let (sealer, frames) = seal_request(&key, end);
    let open = |body: &[u8]| open_request(&key, sealer.encapsulated_key(), end, body);
    let [first, second, last] = frames.try_into().unwrap();
    assert!(open(&[&first[..], &second, &last].concat()).is_ok());
    for (frames, wanted) in [
        (vec![], EncryptedBodyError::FinalFrameMissing),
        (vec![&first[..], &second], EncryptedBodyError::FinalFrameMissing),
        (vec![&first, &second, &last[..4]], EncryptedBodyError::FinalFrameMissing),
        (vec![&first, &second, &last[..2]], EncryptedBodyError::CutFrame),
        (vec![&first, &second, &last[..9]], EncryptedBodyError::CutFrame),
        (vec![&second, &first, &last], EncryptedBodyError::Decryption),
        (vec![&first, &first, &second, &last], EncryptedBodyError::Decryption),
        (vec![&first, &last], EncryptedBodyError::Decryption),
        // The final frame as another one, and another one as the final frame.
        (vec![&first, &second, &last[4..]], EncryptedBodyError::Decryption),
        (vec![&first, &[0; 4], &second], EncryptedBodyError::Decryption),
        (vec![&first, &second, &last, &[0]], EncryptedBodyError::AfterFinalFrame),
        (vec![&first, &second, &last, &last], EncryptedBodyError::AfterFinalFrame),
        (vec![&first, &[0; 4], &[0; 4]], EncryptedBodyError::FrameTooShort { got: 0 }),
        (vec![&[0, 0, 0, 15]], EncryptedBodyError::FrameTooShort { got: 15 }),
        (
            vec![&[0, 0, 4, 1]],
            EncryptedBodyError::FrameTooLong { got: FRAME_BYTES_MAX + 1, max: FRAME_BYTES_MAX },
        ),
    ] {
        assert_eq!(open(&frames.concat()), Err(wanted), "{frames:?}");
    }
    for index in 0..first.len() {
        let mut changed = [&first[..], &second, &last].concat();
        changed[index] ^= 1;
        assert!(open(&changed).is_err(), "{index}");
    }
}

#[test]
fn an_announcement_that_was_added_or_removed_is_noticed_at_the_first_frame() {
    let key = RecipientKey::generate(BodyKem::X25519).unwrap();
    for (sent, received) in [(ENDS[0], ENDS[1]), (ENDS[1], ENDS[0])] {
        let (sealer, frames) = seal_request(&key, sent);
        let opened = open_request(&key, sealer.encapsulated_key(), received, &frames[0]);
        assert_eq!(opened, Err(EncryptedBodyError::Decryption), "{sent:?}");
    }
}

#[test]
fn a_body_without_an_announced_end_may_be_cut_between_frames_only() {
    let key = RecipientKey::generate(BodyKem::X25519).unwrap();
    let (sealer, frames) = seal_request(&key, BodyEnd::Unmarked);
    let open = |body: &[u8]| open_request(&key, sealer.encapsulated_key(), BodyEnd::Unmarked, body);
    assert_eq!(open(&frames[0]).unwrap(), b"first", "as EHBP has it");
    let skipped = [&[0; 4], &frames[0][..], &[0; 8], &frames[1]].concat();
    assert_eq!(open(&skipped).unwrap(), b"firstsecond");
    assert_eq!(open(&frames[0][..9]), Err(EncryptedBodyError::CutFrame));
    assert_eq!(open(&[]), Err(EncryptedBodyError::NoFrame));
    assert_eq!(open(&[0; 8]), Err(EncryptedBodyError::NoFrame));
}

#[test]
fn a_body_for_another_key_is_refused() {
    for kem in BodyKem::ALL {
        let [key, other] = [(), ()].map(|()| RecipientKey::generate(kem).unwrap());
        let (sealer, frames) = seal_request(&key, BodyEnd::Unmarked);
        let opened =
            open_request(&other, sealer.encapsulated_key(), BodyEnd::Unmarked, &frames.concat());
        assert_eq!(opened, Err(EncryptedBodyError::Decryption));
    }
    let [x25519, x_wing] =
        [BodyKem::X25519, BodyKem::XWing].map(|kem| RecipientKey::generate(kem).unwrap());
    let (sealer, _) = seal_request(&x25519, BodyEnd::Unmarked);
    let refused = x_wing.open_request(sealer.encapsulated_key(), BodyEnd::Unmarked);
    assert_eq!(refused.unwrap_err(), EncryptedBodyError::EncapsulatedKey);
}

#[test]
fn an_answer_for_another_request_or_with_another_nonce_is_refused() {
    let secret = ExchangeSecret::from_parts([1; 32], &[2; 32]);
    let (nonce, mut sealer) = secret.seal_answer().unwrap();
    let (other_nonce, _) = secret.seal_answer().unwrap();
    let mut body = Vec::new();
    sealer.seal_frame(b"text", &mut body).unwrap();
    let open = |secret: &ExchangeSecret, nonce| {
        let mut opener = secret.open_answer(nonce).unwrap();
        open_body(&body, BodyEnd::Unmarked, 64, &mut |frame| opener.open_frame(frame))
    };
    assert_eq!(open(&secret, nonce).unwrap(), b"text");
    for (secret, nonce) in [
        (&secret, other_nonce),
        (&ExchangeSecret::from_parts([3; 32], &[2; 32]), nonce),
        (&ExchangeSecret::from_parts([1; 32], &[3; 32]), nonce),
    ] {
        assert_eq!(open(secret, nonce), Err(EncryptedBodyError::Decryption));
    }
}

#[test]
fn a_reader_holds_no_more_than_it_says() {
    let mut reader = FrameReader::new(BodyEnd::Unmarked, 1 << 20);
    let mut body: &[u8] = &[&[0, 15, 0, 0][..], &[7; 100_000]].concat();
    while !body.is_empty() {
        let (mut piece, rest) = body.split_at(body.len().min(777));
        let most = reader.capacity_after(piece.len());
        assert_eq!(reader.read(&mut piece), Ok(None));
        assert!(reader.capacity_after(0) <= most && most <= 200_000, "{most}");
        body = rest;
    }
}

#[test]
fn fields_have_one_spelling() {
    let key = RecipientKey::generate(BodyKem::X25519).unwrap();
    let value = seal_request(&key, BodyEnd::Unmarked).0.encapsulated_key().to_hex();
    for malformed in [
        value.to_uppercase().replace(|digit: char| digit.is_ascii_digit(), "A"),
        value[1..].to_owned(),
        format!("{value}00"),
        format!("{}zz", &value[2..]),
        format!(" {value}"),
        String::new(),
    ] {
        let parsed = EncapsulatedKey::parse(malformed.as_bytes());
        assert_eq!(parsed, Err(EncryptedBodyError::EncapsulatedKey), "{malformed}");
        let parsed = AnswerNonce::parse(malformed.as_bytes());
        assert_eq!(parsed, Err(EncryptedBodyError::AnswerNonce), "{malformed}");
    }
    let parse = |values: &[&'static str]| BodyEnd::parse(values.iter().map(|it| it.as_bytes()));
    assert_eq!(parse(&[]), Ok(BodyEnd::Unmarked));
    assert_eq!(parse(&["final-frame"]), Ok(BodyEnd::FinalFrame));
    for values in [&["Final-Frame"][..], &[""], &["final-frame", "final-frame"], &["x"]] {
        assert_eq!(parse(values), Err(EncryptedBodyError::End), "{values:?}");
    }
}

#[test]
fn an_encapsulated_key_of_small_order_is_refused() {
    let key = RecipientKey::generate(BodyKem::X25519).unwrap();
    let zero = EncapsulatedKey::parse("00".repeat(32).as_bytes()).unwrap();
    let refused = key.open_request(&zero, BodyEnd::Unmarked);
    assert_eq!(refused.unwrap_err(), EncryptedBodyError::EncapsulatedKey);
}

//! Binary messages: the examples of RFC 9292, and what is refused.

use std::{fs, path::PathBuf};

use serde_json::Value;

use super::*;

const LIMITS: MessageLimits = MessageLimits { head_bytes: 1000, fields: 20 };

/// Head and content of a message that comes in pieces of this length.
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
                MessagePart::Content(piece) => {
                    assert!(head.is_some() && !piece.is_empty());
                    content.extend(piece);
                }
            }
        }
    }
    if let Some(read) = reader.finish()? {
        assert!(head.replace(read).is_none());
    }
    Ok((head.expect("a complete message has a head"), content))
}

fn describe(head: &MessageHead, content: &[u8]) -> Value {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let fields: Vec<_> = head
        .fields
        .iter()
        .map(|field| serde_json::json!({ "name": text(&field.name), "value": text(&field.value) }))
        .collect();
    let mut described = serde_json::json!({ "fields": fields, "content": hex::encode(content) });
    match &head.control {
        ControlData::Answer { status } => described["status"] = (*status).into(),
        ControlData::Request { method, scheme, authority, path } => {
            described["method"] = text(method).into();
            described["scheme"] = text(scheme).into();
            described["authority"] = text(authority).into();
            described["path"] = text(path).into();
        }
    }
    described
}

#[test]
fn the_examples_of_rfc_9292_hold() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../vectors/encrypted-body/binary-messages.json");
    let vectors: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 9);
    for case in cases {
        let bytes = hex::decode(case["bytes"].as_str().unwrap()).unwrap();
        let (kind, other) = match case["message"]["status"].is_number() {
            true => (MessageKind::Answer, MessageKind::Request),
            false => (MessageKind::Request, MessageKind::Answer),
        };
        for piece_bytes in [1, 2, 7, 1000] {
            let (head, content) = read_message(kind, &bytes, piece_bytes).unwrap();
            assert_eq!(describe(&head, &content), case["message"], "{}", case["name"]);
            for encoded in [head.encode_message(&content), encode_in_pieces(&head, &content)] {
                let read = read_message(kind, &encoded, piece_bytes).unwrap();
                assert_eq!(read, (head.clone(), content.clone()));
            }
        }
        assert!(read_message(other, &bytes, 9).is_err());
    }
}

fn encode_in_pieces(head: &MessageHead, content: &[u8]) -> Vec<u8> {
    let mut message = head.encode_head();
    for piece in content.chunks(5) {
        append_content(piece, &mut message);
        append_content(b"", &mut message);
    }
    append_message_end(&mut message);
    message
}

fn request(fields: &[(&str, &str)]) -> MessageHead {
    let field = |(name, value): &(&str, &str)| MessageField {
        name: name.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
    };
    let control = ControlData::Request {
        method: b"POST".to_vec(),
        scheme: b"https".to_vec(),
        authority: Vec::new(),
        path: b"/v1".to_vec(),
    };
    MessageHead { control, fields: fields.iter().map(field).collect() }
}

#[test]
fn a_message_that_is_cut_inside_a_section_is_refused() {
    let head = request(&[("a", "b"), ("c", "d")]);
    let (known, pieces) = (head.encode_message(b"content"), encode_in_pieces(&head, b"content"));
    for (message, ends) in [
        // Without content and trailers, without trailers, and whole: what is missing at the end counts
        // as empty, so that only the final chunk around a message shows that it was cut there.
        (&known, vec![known.len() - 9, known.len() - 1, known.len()]),
        (&pieces, vec![pieces.len() - 11, pieces.len() - 1, pieces.len()]),
    ] {
        // The control data may be all of it.
        let control = 1 + 5 + 6 + 1 + 4;
        for length in 0..=message.len() {
            let read = read_message(MessageKind::Request, &message[..length], 3);
            match length == control || ends.contains(&length) {
                true => assert!(read.is_ok(), "{length}"),
                false => assert_eq!(read, Err(EncryptedBodyError::MessageCut), "{length}"),
            }
        }
    }
}

#[test]
fn malformed_messages_are_refused_by_their_place() {
    let malformed = |place| Err(EncryptedBodyError::MessageMalformed { place });
    let read = |bytes: &[u8]| read_message(MessageKind::Request, bytes, 4);
    let head = request(&[("a", "b")]);
    let known = head.encode_message(b"");
    let padded = |padding: &[u8]| [&known[..], padding].concat();
    assert!(read(&padded(&[0; 30])).is_ok());
    assert_eq!(read(&padded(&[0, 0, 1])), malformed("padding"));
    assert_eq!(read(&[4]), malformed("framing indicator"));
    assert_eq!(read(&[1]), malformed("framing indicator"));
    // The section of fields has 4 bytes; one fewer cuts the last value, and a name may not be empty.
    let section = known.len() - 7;
    assert_eq!(known[section], 4);
    let with = |at: usize, value: u8| {
        let mut changed = known.clone();
        changed[at] = value;
        changed
    };
    assert_eq!(read(&with(section, 3)), malformed("section of fields"));
    assert_eq!(read(&[&known[..section], &[2, 0, 0, 0, 0]].concat()), malformed("name of a field"));
    let answer = |bytes: &[u8]| read_message(MessageKind::Answer, bytes, 1);
    assert_eq!(answer(&[1, 0x42, 0x58]), malformed("status"));
    assert_eq!(answer(&[1, 0x40, 0x63]), malformed("status"));
    // An informational answer is not the last one.
    assert_eq!(answer(&[1, 0x40, 0x64, 0]), Err(EncryptedBodyError::MessageCut));
}

#[test]
fn a_head_has_bounds_that_hold_before_its_bytes_arrive() {
    let long = "x".repeat(LIMITS.head_bytes);
    let too_long = EncryptedBodyError::MessageTooLong { max: LIMITS.head_bytes };
    for message in [
        request(&[("name", &long)]).encode_head(),
        request(&[(&long, "value")]).encode_message(b""),
    ] {
        // The announced length is enough.
        assert_eq!(read_message(MessageKind::Request, &message[..40], 40), Err(too_long));
    }
    assert_eq!(
        read_message(MessageKind::Request, &[0, 0xff, 255, 255, 255, 255, 255, 255, 255], 9),
        Err(too_long)
    );
    let fields = vec![("a", "b"); LIMITS.fields + 1];
    let message = request(&fields[1..]).encode_head();
    assert!(read_message(MessageKind::Request, &message, 50).is_ok());
    let refused = read_message(MessageKind::Request, &request(&fields).encode_head(), 50);
    assert_eq!(refused, Err(EncryptedBodyError::TooManyFields { max: LIMITS.fields }));
    // Informational answers and trailers count.
    let informational = [&[3][..], &[0x40, 0x64, 0].repeat(400)].concat();
    assert_eq!(read_message(MessageKind::Answer, &informational, 50), Err(too_long));
    // The content does not.
    let message = encode_in_pieces(&request(&[]), &[7; 10_000]);
    assert!(read_message(MessageKind::Request, &message, 999).is_ok());
}

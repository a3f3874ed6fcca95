//! Conceptual message wrappers (RFC 9999): evidence, endorsements and results with their media types.
//!
//! A wrapper authenticates nothing. The protocol that carries one has to bind its members to each
//! other and to the connection.

mod cbor;
mod json;
mod message;

pub use message::{Cmw, CmwCollection, CmwError, CmwLabel, CmwRecord, CmwType, indicator};

/// The longest wrapper in bytes: the TLS extension `cmw_attestation` holds at most 65,535 bytes, of
/// which two are the wrapper's length.
pub const CMW_BYTES_MAX: usize = 65_533;

/// The deepest nesting: a record alone is of depth 1.
pub const CMW_DEPTH_MAX: usize = 4;

/// The largest number of members of one collection.
pub const CMW_MEMBERS_MAX: usize = 32;

/// Reads a wrapper in CBOR or JSON, of which the first byte says which it is (RFC 9999 section 3).
///
/// # Errors
/// [`CmwError`] names the first rule that the bytes break.
pub fn parse_cmw(bytes: &[u8]) -> Result<Cmw, CmwError> {
    match bytes.len() {
        0 => return Err(CmwError::Empty),
        got if got > CMW_BYTES_MAX => {
            return Err(CmwError::TooLong { wanted: CMW_BYTES_MAX, got });
        }
        _ => {}
    }
    match bytes[0] {
        b'[' | b'{' => json::parse(bytes, CMW_DEPTH_MAX, CMW_MEMBERS_MAX),
        _ => cbor::parse(bytes, CMW_DEPTH_MAX, CMW_MEMBERS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::String, vec, vec::Vec};

    use super::*;

    fn record(content: CmwType, value: &[u8], indicator: Option<u8>) -> Cmw {
        Cmw::Record(CmwRecord { content, value: value.to_vec(), indicator })
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_example_of_the_rfc_reads_the_same_in_json_and_as_a_tag() {
        let value = [0x23, 0x47, 0xda, 0x55];
        let json = br#"["application/vnd.example.rats-conceptual-msg","I0faVQ"]"#;
        let media = CmwType::MediaType("application/vnd.example.rats-conceptual-msg".into());
        assert_eq!(parse_cmw(json), Ok(record(media, &value, None)));
        // Tag 1668612070 is that of content format 64999 (RFC 9277).
        let tagged = [&[0xda, 0x63, 0x74, 0xff, 0xe6, 0x44], &value[..]].concat();
        let wanted = record(CmwType::ContentFormat(64_999), &value, None);
        assert_eq!(parse_cmw(&tagged), Ok(wanted.clone()));
        // It is written as a record.
        assert_eq!(hex(&wanted.encode()), "8219fde7442347da55");
        assert_eq!(parse_cmw(&wanted.encode()), Ok(wanted));
    }

    #[test]
    fn collections_come_back_as_they_were_and_sort_their_labels() {
        let leaf = |n| record(CmwType::ContentFormat(n), b"v", Some(indicator::EVIDENCE));
        let inner = Cmw::Collection(CmwCollection {
            kind: None,
            members: vec![(CmwLabel::Number(-2), leaf(1)), (CmwLabel::Number(7), leaf(2))],
        });
        let outer = Cmw::Collection(CmwCollection {
            kind: Some("tag:example.org,2026:x".into()),
            members: vec![
                (CmwLabel::Text("long".into()), inner),
                (CmwLabel::Text("b".into()), leaf(3)),
            ],
        });
        let bytes = outer.encode();
        let read = parse_cmw(&bytes).unwrap();
        assert_eq!(read.encode(), bytes, "the order of labels is that of their encodings");
        let Cmw::Collection(collection) = &read else { panic!("a collection") };
        assert_eq!(collection.kind.as_deref(), Some("tag:example.org,2026:x"));
        assert_eq!(collection.member("b"), Some(&leaf(3)));
        assert_eq!(collection.member("c"), None);
    }

    #[test]
    fn json_collections_read_as_cbor_ones() {
        let json = br#"{"__cmwc_t":"1.2.3","a":["text/plain","aGk",4],"b":{"c":["a/b",""]}}"#;
        let plain = CmwType::MediaType("text/plain".into());
        let wanted = Cmw::Collection(CmwCollection {
            kind: Some("1.2.3".into()),
            members: vec![
                (CmwLabel::Text("a".into()), record(plain, b"hi", Some(4))),
                (
                    CmwLabel::Text("b".into()),
                    Cmw::Collection(CmwCollection {
                        kind: None,
                        members: vec![(
                            CmwLabel::Text("c".into()),
                            record(CmwType::MediaType("a/b".into()), b"", None),
                        )],
                    }),
                ),
            ],
        });
        assert_eq!(parse_cmw(json), Ok(wanted.clone()));
        assert_eq!(parse_cmw(&wanted.encode()), Ok(wanted));
    }

    #[test]
    fn indefinite_arrays_and_maps_are_read() {
        // _{"a": [_ 30, h'01']}
        let bytes = [0xbf, 0x61, b'a', 0x9f, 0x18, 30, 0x41, 1, 0xff, 0xff];
        let read = parse_cmw(&bytes).unwrap();
        assert_eq!(hex(&read.encode()), "a1616182181e4101");
    }

    #[test]
    fn what_breaks_a_rule_is_refused_by_its_name() {
        let deep = |depth: usize| {
            let mut bytes = b"{\"a\":".repeat(depth);
            bytes.extend_from_slice(b"[\"a/b\",\"\"]");
            bytes.extend(vec![b'}'; depth]);
            bytes
        };
        let deep_cbor = |depth: usize| {
            let mut bytes = b"\xa1\x61a".repeat(depth);
            bytes.extend_from_slice(&[0x82, 0x18, 30, 0x40]);
            bytes
        };
        let many: Vec<u8> = (0..33u8)
            .fold(vec![0xb8, 33], |all, n| [all, vec![0x18, 24 + n, 0x82, 0, 0x40]].concat());
        assert!(parse_cmw(&deep(3)).is_ok() && parse_cmw(&deep_cbor(3)).is_ok());
        let cases: &[(&str, &[u8])] = &[
            ("Empty", b""),
            ("TooLong", &[0x82; CMW_BYTES_MAX + 1]),
            ("TooDeep", &deep(4)),
            ("TooDeep", &deep_cbor(4)),
            ("TooManyMembers", &many),
            ("NoMembers", b"{}"),
            ("NoMembers", &[0xa0]),
            ("NoMembers", br#"{"__cmwc_t":"1.2.3"}"#),
            ("Malformed", &[0x81, 0x18, 30]),
            ("Malformed", &[0x84, 0, 0x40, 4, 4]),
            ("Malformed", &[0x82, 0, 0x60]),
            ("Malformed", &[0xf6]),
            ("Malformed", b"[\"a/b\",\"aGk=\"]"),
            ("Malformed", b"[30,\"aGk\"]"),
            ("Malformed", b"[\"a/b\",\"\"] x"),
            ("TrailingBytes", &[0x82, 0, 0x40, 0]),
            ("MediaType", b"[\"ab\",\"\"]"),
            ("MediaType", b"[\"a/b \\u00e9\",\"\"]"),
            ("ContentFormat", &[0x82, 0x1a, 0, 1, 0, 0, 0x40]),
            ("ContentFormat", &[0xda, 0, 0, 0, 1, 0x40]),
            ("Indicator", b"[\"a/b\",\"\",0]"),
            ("Indicator", &[0x83, 0, 0x40, 0x18, 32]),
            ("Duplicate", br#"{"a":["a/b",""],"a":["a/b",""]}"#),
            ("Duplicate", &[0xa2, 0x61, b'a', 0x82, 0, 0x40, 0x61, b'a', 0x82, 0, 0x40]),
            ("CollectionType", br#"{"__cmwc_t":"words","a":["a/b",""]}"#),
        ];
        for (wanted, bytes) in cases {
            let error = parse_cmw(bytes).unwrap_err();
            assert!(format!("{error:?}").starts_with(wanted), "{wanted}: {error:?}");
        }
    }
}

//! What is read of an answer does not depend on the pieces in which it came.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};

use super::*;

const LIMITS: HeadLimits = HeadLimits { bytes: 512, fields: 8 };

/// An answer as a client sees it.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: StatusCode,
    fields: HeaderMap,
    framing: BodyFraming,
    body: Vec<u8>,
    trailers: HeaderMap,
    /// The bytes after the answer.
    rest: Vec<u8>,
}

/// Reads one answer that comes in pieces of `step` bytes.
fn read_answer(bytes: &[u8], step: usize, method: &Method) -> Result<Answer, Http1Error> {
    let mut pieces = bytes.chunks(step);
    let mut received = BytesMut::new();
    let mut parser = AnswerHeadParser::new(LIMITS);
    let mut head = loop {
        match parser.parse(&mut received)? {
            Some(head) => break head,
            None => received.extend_from_slice(pieces.next().ok_or(Http1Error::CutShort)?),
        }
    };
    let framing = head.frame_body(method)?;
    let mut decoder = BodyDecoder::new(framing, LIMITS);
    let (mut body, mut trailers) = (Vec::new(), HeaderMap::new());
    loop {
        match decoder.decode(&mut received)? {
            BodyPiece::Data(data) => body.extend_from_slice(&data),
            BodyPiece::Trailers(fields) => trailers = fields,
            BodyPiece::End => break,
            BodyPiece::Incomplete => match pieces.next() {
                Some(piece) => received.extend_from_slice(piece),
                None => decoder.finish()?,
            },
        }
    }
    let mut rest = received.to_vec();
    rest.extend(pieces.flatten());
    Ok(Answer { status: head.status, fields: head.fields, framing, body, trailers, rest })
}

fn read_in_any_pieces(bytes: &[u8]) -> Result<Answer, Http1Error> {
    let whole = read_answer(bytes, bytes.len().max(1), &Method::GET);
    for step in 1..bytes.len().min(40) {
        let pieces = read_answer(bytes, step, &Method::GET);
        assert_eq!(pieces.is_err(), whole.is_err(), "step {step}: {pieces:?}");
        if let (Ok(pieces), Ok(whole)) = (pieces, &whole) {
            assert_eq!(pieces, *whole, "step {step}");
        }
    }
    whole
}

fn fields(given: &[(&'static str, &'static str)]) -> HeaderMap {
    given.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

#[test]
fn an_answer_is_read_alike_in_any_pieces() {
    for (bytes, framing, body, rest) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello!",
            BodyFraming::Length(5),
            "hello",
            "!",
        ),
        ("HTTP/1.1 200\r\ncontent-length:0\r\n\r\nrest", BodyFraming::Empty, "", "rest"),
        ("\r\n\r\nHTTP/1.0 200 OK\n\nto the end", BodyFraming::UntilEnd, "to the end", ""),
        ("HTTP/1.1 304 N\r\ncontent-length: 5\r\n\r\nx", BodyFraming::Empty, "", "x"),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
             5\r\nhello\r\n0A ;x=y\r\n, chunks!!\r\n000\r\n\r\nHTTP",
            BodyFraming::Chunked,
            "hello, chunks!!",
            "HTTP",
        ),
    ] {
        let answer = read_in_any_pieces(bytes.as_bytes()).expect(bytes);
        assert_eq!(answer.framing, framing, "{bytes}");
        assert_eq!(answer.body, body.as_bytes(), "{bytes}");
        assert_eq!(answer.rest, rest.as_bytes(), "{bytes}");
    }
}

#[test]
fn trailers_are_read_and_equal_lengths_become_one() {
    let bytes = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\
                 x-sum: 1\r\nx-other:  2 \r\n\r\nrest";
    let answer = read_in_any_pieces(bytes.as_bytes()).unwrap();
    assert_eq!(answer.trailers, fields(&[("x-sum", "1"), ("x-other", "2")]));
    assert_eq!(answer.rest, b"rest");
    let bytes = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: y\r\ncontent-length: 2\r\n\r\nok";
    let answer = read_in_any_pieces(bytes.as_bytes()).unwrap();
    assert_eq!(answer.fields, fields(&[("content-length", "2"), ("x", "y")]));
}

#[test]
fn malformed_answers_are_refused_in_any_pieces() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(512));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(9));
    let long_trailer = format!("{chunked}0\r\nx: {}\r\n\r\n", "y".repeat(512));
    let many_trailers = format!("{chunked}0\r\n{}\r\n", "x: y\r\n".repeat(9));
    let extension = format!("{chunked}1;{}\r\nx\r\n0\r\n\r\n", "y".repeat(20_000));
    for (bytes, wanted) in [
        ("HTTP/2.0 200 OK\r\n\r\n", Http1Error::Head),
        ("HTTQ", Http1Error::Head),
        ("HTTP/1=b\r\nok", Http1Error::Head),
        ("HTTP/1.1 200 OK\r\na b: c\r\n\r\n", Http1Error::Head),
        ("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", Http1Error::Head),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok", Http1Error::Length),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2,2\r\n\r\nok", Http1Error::Length),
        ("HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551616\r\n\r\n", Http1Error::Length),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell", Http1Error::CutShort),
        ("HTTP/1.1 200 OK\r\ncontent-le", Http1Error::CutShort),
        (&long, Http1Error::HeadTooLong { limit: 512 }),
        (&many, Http1Error::TooManyFields { limit: 8 }),
        (&long_trailer, Http1Error::TrailersTooLong { limit: 512 }),
        (&many_trailers, Http1Error::TooManyFields { limit: 8 }),
        (&extension, Http1Error::TrailersTooLong { limit: 16 * 1024 }),
    ] {
        assert_eq!(read_in_any_pieces(bytes.as_bytes()).unwrap_err(), wanted, "{bytes:.60}");
    }
    for body in [
        "\r\n",
        "x\r\n",
        " 1\r\nx\r\n0\r\n\r\n",
        "1\nx\n0\n\n",
        "1\r\nxx\r\n0\r\n\r\n",
        "-1\r\n",
        "1000000000000000\r\n",
        "1;\n\r\nx\r\n0\r\n\r\n",
        "0\r\na b: c\r\n\r\n",
        "0\r\nx: y\n\r\n\r\n",
    ] {
        let bytes = format!("{chunked}{body}");
        let refused = read_in_any_pieces(bytes.as_bytes()).unwrap_err();
        assert_eq!(refused, Http1Error::Chunk, "{body:?}");
    }
    let cut = format!("{chunked}5\r\nhell");
    assert_eq!(read_in_any_pieces(cut.as_bytes()).unwrap_err(), Http1Error::CutShort);
}

#[test]
fn the_end_of_a_body_is_known_with_its_last_piece() {
    for (framing, bytes) in
        [(BodyFraming::Length(2), &b"ok"[..]), (BodyFraming::Chunked, b"2\r\nok\r\n0\r\n\r\n")]
    {
        let mut decoder = BodyDecoder::new(framing, LIMITS);
        let mut received = BytesMut::from(bytes);
        assert!(!decoder.is_complete());
        let piece = decoder.decode(&mut received).unwrap();
        assert_eq!(piece, BodyPiece::Data(Bytes::from_static(b"ok")));
        assert!(decoder.is_complete(), "{framing:?}");
    }
}

#[test]
fn a_connection_is_kept_as_both_versions_say() {
    for (head, is_kept) in [
        ("HTTP/1.1 200 OK\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\nconnection: x, Close\r\n\r\n", false),
        ("HTTP/1.0 200 OK\r\n\r\n", false),
        ("HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\n\r\n", true),
    ] {
        let mut received = BytesMut::from(head);
        let head = AnswerHeadParser::new(LIMITS).parse(&mut received).unwrap().unwrap();
        assert_eq!(head.keeps_connection(), is_kept, "{head:?}");
    }
}

/// The bytes of a request with these pieces of a body.
fn write_request(method: Method, length: Option<u64>, pieces: &[&'static str]) -> String {
    let given = fields(&[("host", "h"), ("content-length", "9"), ("transfer-encoding", "gzip")]);
    let mut queue = WriteQueue::default();
    encode_request_head(&method, "/a?b", &given, length, &mut queue);
    let mut encoder = BodyEncoder::new(length);
    for piece in pieces {
        encoder.encode(Bytes::from_static(piece.as_bytes()), &mut queue).unwrap();
    }
    encoder.finish(&fields(&[("x-sum", "1")]), &mut queue).unwrap();
    assert!(encoder.is_complete());
    String::from_utf8(queue.copy_to_bytes(queue.remaining()).to_vec()).unwrap()
}

#[test]
fn only_the_body_itself_says_how_it_is_framed() {
    for (method, length, pieces, wanted) in [
        (Method::GET, Some(0), &[][..], "GET /a?b HTTP/1.1\r\nhost: h\r\n\r\n"),
        (Method::POST, Some(0), &[], "POST /a?b HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n"),
        (
            Method::POST,
            Some(3),
            &["a", "", "bc"],
            "POST /a?b HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc",
        ),
        (
            Method::PUT,
            None,
            &["a", "", "0123456789abcdef"],
            "PUT /a?b HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n\
             1\r\na\r\n10\r\n0123456789abcdef\r\n0\r\nx-sum: 1\r\n\r\n",
        ),
    ] {
        assert_eq!(write_request(method, length, pieces), wanted);
    }
}

#[test]
fn a_body_of_another_length_than_announced_is_an_error() {
    let mut queue = WriteQueue::default();
    let mut encoder = BodyEncoder::new(Some(2));
    let encoded = encoder.encode(Bytes::from_static(b"abc"), &mut queue);
    assert_eq!(encoded, Err(Http1Error::AnnouncedLength));
    encoder.encode(Bytes::from_static(b"a"), &mut queue).unwrap();
    let finished = encoder.finish(&HeaderMap::new(), &mut queue);
    assert_eq!(finished, Err(Http1Error::AnnouncedLength));
}

#[test]
fn a_request_is_read_alike_in_any_pieces() {
    let bytes = "\r\n\nPOST /a?b HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\
                 expect: 100-Continue\r\n\r\n2\r\nok\r\n0\r\nx: y\r\n\r\nGET";
    for step in 1..bytes.len() {
        let mut pieces = bytes.as_bytes().chunks(step);
        let mut received = BytesMut::new();
        let mut parser = RequestHeadParser::new(LIMITS);
        let mut head = loop {
            match parser.parse(&mut received).unwrap() {
                Some(head) => break head,
                None => received.extend_from_slice(pieces.next().unwrap()),
            }
        };
        assert_eq!((&head.method, head.target.to_string()), (&Method::POST, "/a?b".into()));
        assert_eq!(head.frame_body(), Ok(BodyFraming::Chunked));
        assert!(head.keeps_connection() && head.awaits_continue());
    }
}

#[test]
fn requests_whose_end_could_be_read_in_two_ways_are_refused_or_the_last() {
    for (fields, framing, keeps) in [
        ("content-length: 2\r\ncontent-length: 2\r\n", Ok(BodyFraming::Length(2)), true),
        ("content-length: 0\r\n", Ok(BodyFraming::Empty), true),
        ("connection: close\r\n", Ok(BodyFraming::Empty), false),
        ("content-length: 2\r\ntransfer-encoding: chunked\r\n", Ok(BodyFraming::Chunked), false),
        ("content-length: 2\r\ncontent-length: 3\r\n", Err(Http1Error::Length), true),
        ("content-length: 2, 2\r\n", Err(Http1Error::Length), true),
        ("transfer-encoding: gzip\r\n", Err(Http1Error::Length), true),
        ("transfer-encoding: chunked, gzip\r\n", Err(Http1Error::Length), true),
    ] {
        let mut received = BytesMut::from(format!("POST / HTTP/1.1\r\n{fields}\r\n").as_str());
        let mut head = RequestHeadParser::new(LIMITS).parse(&mut received).unwrap().unwrap();
        assert_eq!(head.frame_body(), framing, "{fields}");
        assert_eq!(head.keeps_connection(), keeps, "{fields}");
    }
    let mut received = BytesMut::from("POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n");
    let mut head = RequestHeadParser::new(LIMITS).parse(&mut received).unwrap().unwrap();
    assert_eq!(head.frame_body(), Err(Http1Error::Length));
}

#[test]
fn what_is_no_request_is_refused_before_its_end_has_come() {
    for (bytes, wanted) in [
        ("\x16\x03\x01\x02\x00", Http1Error::Head),
        ("GET / HTTP/3.0\r\n", Http1Error::Head),
        ("GET / HTTP/1.1\r\na b: c\r\n", Http1Error::Head),
        ("\rGET / HTTP/1.1\r\n\r\n", Http1Error::Head),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Http1Error::Head),
    ] {
        let mut received = BytesMut::from(bytes);
        let refused = RequestHeadParser::new(LIMITS).parse(&mut received).unwrap_err();
        assert_eq!(refused, wanted, "{bytes:?}");
    }
}

#[test]
fn an_answer_is_written_as_its_request_and_status_demand() {
    for (method, status, length, wanted) in [
        (Method::GET, 200, Some(2), "200 OK\r\nx: y\r\ncontent-length: 2\r\nd: e\r\n\r\n"),
        (Method::GET, 200, None, "200 OK\r\nx: y\r\ntransfer-encoding: chunked\r\nd: e\r\n\r\n"),
        (Method::HEAD, 200, None, "200 OK\r\nx: y\r\ncontent-length: 9\r\nd: e\r\n\r\n"),
        (
            Method::GET,
            304,
            Some(0),
            "304 Not Modified\r\nx: y\r\ncontent-length: 9\r\nd: e\r\n\r\n",
        ),
        (Method::GET, 204, Some(0), "204 No Content\r\nx: y\r\nd: e\r\n\r\n"),
    ] {
        let given = fields(&[("x", "y"), ("content-length", "9"), ("transfer-encoding", "gzip")]);
        let status = StatusCode::from_u16(status).unwrap();
        let framing = AnswerFraming::of_body(&method, status, length);
        let mut queue = WriteQueue::default();
        let version = http::Version::HTTP_11;
        encode_answer_head(version, status, &given, framing, &[b"d: e\r\n"], &mut queue);
        let written = queue.copy_to_bytes(queue.remaining());
        assert_eq!(written, format!("HTTP/1.1 {wanted}"), "{method} {status}");
    }
}

#[test]
fn a_head_may_have_as_many_fields_as_any_configuration_allows() {
    let limits = HeadLimits { bytes: 64 * 1024, fields: 1000 };
    let head = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(1000));
    let parsed = RequestHeadParser::new(limits).parse(&mut BytesMut::from(head.as_str()));
    assert_eq!(parsed.unwrap().unwrap().fields.len(), 1000);
    let more = head.replacen("x: y", "x: y\r\nx: y", 1);
    let parsed = RequestHeadParser::new(limits).parse(&mut BytesMut::from(more.as_str()));
    assert_eq!(parsed.unwrap_err(), Http1Error::TooManyFields { limit: 1000 });
}

/// Decodes chunks that come in pieces of `step` bytes; the data, and the number of its pieces.
fn decode_chunks(
    bytes: &[u8],
    step: usize,
    is_joining: bool,
) -> (Result<Vec<u8>, Http1Error>, usize) {
    let mut decoder = BodyDecoder::new(BodyFraming::Chunked, LIMITS);
    if is_joining {
        decoder = decoder.joining_small_chunks();
    }
    let (mut received, mut rest) = (BytesMut::new(), bytes.chunks(step));
    let (mut data, mut pieces) = (Vec::new(), 0);
    loop {
        match decoder.decode(&mut received) {
            Ok(BodyPiece::Data(piece)) => {
                data.extend_from_slice(&piece);
                pieces += 1;
            }
            Ok(BodyPiece::End | BodyPiece::Trailers(_)) => return (Ok(data), pieces),
            Ok(BodyPiece::Incomplete) => match rest.next() {
                Some(more) => received.extend_from_slice(more),
                None => return (decoder.finish().map(|()| data), pieces),
            },
            Err(fault) => return (Err(fault), pieces),
        }
    }
}

#[test]
fn small_chunks_that_come_together_are_one_piece_with_the_bytes_that_each_alone_would_give() {
    let token = "5\r\ntoken\r\n";
    let long = "4000\r\n".to_owned() + &"x".repeat(0x4000) + "\r\n";
    for (bytes, pieces) in [
        (token.repeat(200) + "0\r\n\r\n", 1),
        (token.repeat(3) + "0\r\nx: y\r\n\r\n", 1),
        (token.repeat(2) + &long + token + "0\r\n\r\n", 3),
        (long.repeat(2) + "0\r\n\r\n", 2),
        (token.repeat(2) + "5;x=y\r\ntoken\r\n" + token + "0\r\n\r\n", 2),
        (token.repeat(4000) + "0\r\n\r\n", 2),
        (token.to_owned() + "+5\r\ntoken\r\n", 1),
        (token.to_owned() + "5\r\ntokens\r\n", 2),
        (token.to_owned() + "5\r\ntoken\n\n", 2),
        (token.to_owned() + "5\ntoken\r\n", 1),
        (token.to_owned() + "\r\n", 1),
        (token.to_owned() + "5\r\ntok", 2),
    ] {
        let (together, count) = decode_chunks(bytes.as_bytes(), bytes.len(), true);
        assert_eq!(count, pieces, "{bytes:.60}");
        for step in [1, 2, 3, 7, 11, 4099, bytes.len()] {
            let (joined, _) = decode_chunks(bytes.as_bytes(), step, true);
            let (alone, _) = decode_chunks(bytes.as_bytes(), step, false);
            assert_eq!(joined, alone, "{bytes:.60}: {step}");
            assert_eq!(joined, together, "{bytes:.60}: {step}");
        }
    }
}

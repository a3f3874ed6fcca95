//! Compares `vectors/disclosure/disclosure.json` with the output of this crate, and reads it.
//!
//! `CONFIDE_WRITE_VECTORS=1` writes the file; range proofs are random, so they differ each time.

use std::{fs, path::PathBuf};

use confide_disclosure::{
    BodyView, Claim, CommittedDirection, CommittedFields, Direction, DiscloseOptions, Disclosure,
    Field, FieldKind, HttpMessage, HttpVersion, Json, NotarisedSession, NotaryEvidence, NotaryKey,
    Number, OtherField, Predicate, Reveal, Seed, Selector, SessionFacts, SessionTranscript,
    StartLine, TlsSession, VerifyError, assemble_stream, certificate_chain_hash, notarise,
    parse_amount, parse_rfc3339_micros,
};
use serde_json::{Value, json};

const SECRET: [u8; 32] = [5; 32];

type Change = fn(&mut Disclosure);

#[test]
fn the_vectors_are_what_this_crate_makes() {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/disclosure/disclosure.json");
    if std::env::var_os("CONFIDE_WRITE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(&vectors()).unwrap() + "\n";
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let text = fs::read_to_string(&path).expect("CONFIDE_WRITE_VECTORS=1 writes the vectors");
    let (written, mut made): (Value, Value) = (serde_json::from_str(&text).unwrap(), vectors());
    // Range proofs are random, so those of the file are checked instead of compared.
    made["files"] = written["files"].clone();
    assert_eq!(made, written);
    for case in written["files"].as_array().unwrap() {
        let file = hex::decode(case["file"].as_str().unwrap()).unwrap();
        assert_eq!(verdict(&file), case["refused"], "{}", case["name"]);
    }
}

fn verdict(file: &[u8]) -> Value {
    match Disclosure::decode(file).map(|read| read.verify(None)) {
        Err(_) => "format".into(),
        Ok(Err(refused)) => name(&refused).into(),
        Ok(Ok(_)) => Value::Null,
    }
}

fn name(refused: &VerifyError) -> &'static str {
    match refused {
        VerifyError::Signature(_) => "signature",
        VerifyError::Opening(_) => "opening",
        VerifyError::SameSession { .. } => "same_session",
        VerifyError::UnusedOtherSession => "other_unused",
        VerifyError::SameField { .. } => "same_field",
        VerifyError::Empty => "empty",
        VerifyError::NoCircuits { .. } => "no_circuits",
        VerifyError::OtherSession(refused) => name(refused),
        VerifyError::InvalidField { .. } | VerifyError::Proof { .. } => "proof",
    }
}

fn vectors() -> Value {
    json!({
        "comment": "docs/disclosure.md; bytes are hexadecimal",
        "numbers": numbers(),
        "dates": dates(),
        "json": texts(),
        "events": streams(),
        "transcripts": transcripts(),
        "fields": fields(),
        "statement": statement(),
        "files": files(),
    })
}

fn numbers() -> Value {
    let case = |token: &str| {
        let canonical = Number::parse(token.as_bytes()).ok().map(|number| number.canonical_form());
        let amount = parse_amount(token.as_bytes()).map(|amount| amount.to_string());
        json!({ "token": token, "canonical": canonical, "amount": amount })
    };
    [
        "0",
        "-0",
        "0.0e5",
        "1",
        "100",
        "1e2",
        "1E+2",
        "100.0",
        "-12.5",
        "0.1",
        "1e-6",
        "1e-7",
        "4611686018427.387903",
        "4611686018427.387904",
        "-4611686018427.387903",
        "18446744073709551617",
        "1e31",
        "1e32",
        "1e-32",
        "1e-33",
        "-1.5e-33",
        "1e400",
        "1e9999",
        "1e10000",
        "",
        "-",
        "01",
        "+1",
        ".5",
        "1.",
        "1e",
        "0x10",
        "1 ",
        "NaN",
    ]
    .into_iter()
    .map(case)
    .collect()
}

fn dates() -> Value {
    let case =
        |text: &str| json!({ "text": text, "micros": parse_rfc3339_micros(text.as_bytes()) });
    [
        "1970-01-01T00:00:00Z",
        "2026-11-22T10:00:00.5+02:30",
        "1969-12-31T23:59:59.999999Z",
        "2000-02-29T23:59:59-11:59",
        "2100-02-29T00:00:00Z",
        "2016-12-31T23:59:60Z",
        "2026-11-22 10:00:00Z",
        "2026-11-22t10:00:00z",
        "2026-11-22T10:00:00",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59.1234567Z",
        "9999-12-31T23:59:59.1234560Z",
        "2026-11-22T24:00:00Z",
    ]
    .into_iter()
    .map(case)
    .collect()
}

fn field_json(field: &Field) -> Value {
    json!({
        "path": field.path,
        "kind": field.kind as u8,
        "value": hex::encode(&field.value),
        "amount": field.amount().map(|amount| amount.to_string()),
    })
}

fn message(media: &str, body: &[u8]) -> HttpMessage {
    HttpMessage {
        start: StartLine::Response { status: 200 },
        headers: vec![("content-type".into(), media.into())],
        body: body.to_vec(),
    }
}

fn body_case(media: &str, body: &[u8]) -> Value {
    let (fields, view) = message(media, body).parse_fields().unwrap();
    let fields: Vec<Value> = fields
        .iter()
        .filter(|field| field.path == "response." || field.path.starts_with("response./"))
        .map(field_json)
        .collect();
    json!({ "body": hex::encode(body), "view": view as u8, "fields": fields })
}

fn texts() -> Value {
    let deep = format!("{}{}", "[".repeat(64), "]".repeat(64));
    let deeper = format!("{}{}", "[".repeat(65), "]".repeat(65));
    let long = format!("{{\"{}\":1}}", "k".repeat(1014));
    let mut cases: Vec<Value> = [
        r#"{"balance":5,"note":"\"balance\":100"}"#,
        r#"{"content":"{\"balance\":100}"}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"[{"x":{"a/b":1,"a\/b":2}}]"#,
        r#"{"\ud83d\ude00":1,"😀":2}"#,
        "{\"é\":1,\"e\u{301}\":2}",
        r#"{"a":{"b":1},"a/b":2,"a~1b":3,"a~b":4,"":5}"#,
        r#"[1e2,100,-0,18446744073709551617,1e400,0.0000001]"#,
        r#"{"at":"2026-11-22T10:00:00Z","n":null,"t":true,"e":[],"o":{}}"#,
        r#""\ud800""#,
        "[1,]",
        "\u{feff}1",
        "1 2",
        "[1e10000]",
        &deep,
        &deeper,
        &long,
    ]
    .into_iter()
    .map(|text| body_case("application/json", text.as_bytes()))
    .collect();
    cases.push(body_case("application/json", b"\"\xff\""));
    assert!(Json::parse(deep.as_bytes()).is_ok());
    cases.into()
}

fn streams() -> Value {
    let chunk = |delta: &str| {
        format!(
            "data: {{\"id\":\"c\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n"
        )
    };
    let usage = "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"total_tokens\":7}}\r\n\r\n";
    let whole = [
        ": hello\r\n\r\n",
        &chunk("{\"role\":\"assistant\",\"content\":\"\"}"),
        &chunk("{\"content\":\"Hel\"}"),
        &chunk("{\"content\":\"lo\",\"other\":1}"),
        usage,
        "data: [DONE]\n\n",
    ]
    .concat();
    let cut = chunk("{\"content\":\"a\"}");
    let twice = "data: {\"choices\":[{\"index\":0,\"index\":1}]}\n\n";
    let calls = concat!(
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"t\",\"type\":",
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}\r\r",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":",
        "{\"arguments\":\"}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n",
    );
    let after = format!("{whole}{cut}");
    let gap = "data: {\"choices\":[{\"index\":1,\"text\":\"a\"}]}\n\n";
    assert!(assemble_stream(whole.as_bytes()).unwrap().finished);
    [whole.as_str(), &cut, cut.trim_end(), twice, calls, &after, gap, "data: {\"type\":\"x\"}\n\n"]
        .into_iter()
        .map(|stream| body_case("text/event-stream", stream.as_bytes()))
        .collect()
}

fn transcripts() -> Value {
    let seed = Seed::from_bytes([9; 32]);
    let case = |direction: Direction, length: usize| {
        let bytes: Vec<u8> = (0..length).map(|place| (place * 7) as u8).collect();
        let commitment = CommittedDirection::new(&seed, direction, &bytes).unwrap().commitment();
        json!({
            "seed": hex::encode(seed.secret()),
            "direction": direction.byte(),
            "bytes": hex::encode(&bytes),
            "depth": commitment.depth,
            "length": hex::encode(commitment.length),
            "root": hex::encode(commitment.root),
        })
    };
    let both = [Direction::Request, Direction::Response];
    let cases = [0, 1, 64, 65, 1024, 1025].into_iter().enumerate();
    cases.map(|(place, length)| case(both[place % 2], length)).collect()
}

fn fields() -> Value {
    let seed = Seed::from_bytes([9; 32]);
    let mut fields =
        message("application/json", br#"{"model":"m","text":"four"}"#).parse_fields().unwrap().0;
    // Fields without commitments, which need an implementation of the group.
    fields.retain(|field| field.kind != FieldKind::Number);
    let committed = CommittedFields::new(&seed, &fields).unwrap();
    let opening = committed.open((0..fields.len()).map(|index| (index, Reveal::Value)).collect());
    json!({
        "seed": hex::encode(seed.secret()),
        "fields": fields.iter().map(field_json).collect::<Vec<_>>(),
        "places": fields
            .iter()
            .map(|field| opening.fields.iter().find(|it| it.path == field.path).unwrap().place)
            .collect::<Vec<_>>(),
        "depth": committed.root().depth,
        "root": hex::encode(committed.root().root),
    })
}

fn session(seed: u8) -> NotarisedSession {
    let request = HttpMessage {
        start: StartLine::Request { method: "POST".into(), target: "/v1/chat/completions".into() },
        headers: vec![
            ("host".into(), b"api.example.com".to_vec()),
            ("authorization".into(), b"Bearer sk-secret".to_vec()),
            ("content-type".into(), b"application/json".to_vec()),
        ],
        body: br#"{"model":"m-1","messages":[{"role":"user","content":"2+2?"}]}"#.to_vec(),
    };
    let body = concat!(
        r#"{"model":"m-1","at":"2026-11-22T10:00:00Z","note":"\"balance\":100","balance":5,"#,
        r#""limit":5.0,"choices":[{"message":{"content":"four"}}],"usage":{"total_tokens":17}}"#
    )
    .as_bytes();
    let response = message("application/json", body);
    let sent = [
        &b"POST /v1/chat/completions HTTP/1.1\r\nhost: api.example.com\r\n"[..],
        b"authorization: Bearer sk-secret\r\ncontent-type: application/json\r\n\r\n",
        &request.body,
    ]
    .concat();
    let received = [&b"HTTP/1.1 200\r\ncontent-type: application/json\r\n\r\n"[..], body].concat();
    let facts = SessionFacts {
        host: "api.example.com".into(),
        port: 443,
        certificate_chain_hash: certificate_chain_hash([&b"leaf"[..], b"issuer"]),
        tls: TlsSession::from_numbers(0x0304, 0x11ec, 0x1302).unwrap(),
        time: 1_795_341_600,
        http: HttpVersion::V11,
    };
    let key = NotaryKey::from_secret(&SECRET).unwrap();
    let (request, response) = (&request, &response);
    let parsed = SessionTranscript { sent: &sent, received: &received, request, response };
    let evidence = NotaryEvidence {
        quote: b"a quote".to_vec(),
        claims: b"claims".to_vec(),
        endorsements: b"{}".to_vec(),
    };
    notarise(&key, Seed::from_bytes([seed; 32]), facts, parsed, evidence).unwrap()
}

fn statement() -> Value {
    let session = session(1);
    assert_eq!(session.statement.response_view, BodyView::Json);
    json!({
        "encoded": hex::encode(session.statement.encode()),
        "signature": hex::encode(session.signature),
        "digest": hex::encode(session.statement.digest()),
        "spki_hash": hex::encode(session.statement.spki_hash()),
        "holder": hex::encode(&*session.encode()),
    })
}

fn disclose(session: &NotarisedSession, show: &[&str], prove: &[&str]) -> Disclosure {
    disclose_with_other(session, None, show, prove)
}

fn disclose_with_other(
    session: &NotarisedSession,
    other: Option<&NotarisedSession>,
    show: &[&str],
    prove: &[&str],
) -> Disclosure {
    let show: Vec<Selector> = show.iter().map(|name| Selector::parse(name).unwrap()).collect();
    let prove: Vec<Predicate> = prove.iter().map(|text| Predicate::parse(text).unwrap()).collect();
    session.disclose(&show, &prove, DiscloseOptions { texts: None, other }).unwrap()
}

fn files() -> Value {
    let names = ["response./choices/0/message/content", "request./model"];
    let wishes = ["response./usage/total_tokens <= 4096", "response./at >= 2026-01-01T00:00:00Z"];
    let (one, two) = (session(1), session(2));
    let content = disclose(&one, &names, &[]);
    let all = ["response.", "response.bytes:0-70", "request.length"];
    let mut cases = vec![
        ("shows which model answered what", content.clone()),
        ("proves a range and a date", disclose(&one, &names, &wishes)),
        ("shows the whole document, bytes and a length", disclose(&one, &all, &[])),
    ];
    let changes: [(&str, Change); 7] = [
        ("another host", |it| it.statement.host = "api.example.org".into()),
        ("another time", |it| it.statement.time += 1),
        ("another path", |it| {
            it.fields.as_mut().unwrap().fields[0].path = "response./balance".into();
        }),
        ("another kind", |it| it.fields.as_mut().unwrap().fields[0].kind = FieldKind::Number),
        ("another place", |it| it.fields.as_mut().unwrap().fields[0].place ^= 1),
        ("a node less", |it| {
            it.fields.as_mut().unwrap().siblings.pop();
        }),
        ("nothing shown", |it| it.fields = None),
    ];
    for (name, change) in changes {
        let mut changed = content.clone();
        change(&mut changed);
        cases.push((name, changed));
    }
    let mut mixed = content.clone();
    mixed.fields = disclose(&two, &names, &[]).fields;
    cases.push(("fields of another session", mixed));
    let mut swapped = disclose(&one, &["request.length", "response.length"], &[]);
    swapped.lengths.swap(0, 1);
    cases.push(("lengths swapped", swapped));
    let mut proofs = disclose(&one, &[], &wishes);
    let other = disclose(&two, &[], &wishes).claims;
    proofs.claims = other;
    cases.push(("proofs of another session", proofs));
    cases.extend(equal_cases(&one, &two));
    cases.extend(text_cases(&one));
    let written = cases.into_iter().map(|(name, disclosure)| (name, disclosure.encode()));
    let mut written: Vec<(&str, Vec<u8>)> = written.collect();
    let whole = content.encode();
    written.push(("a byte after the end", [&whole[..], b"\0"].concat()));
    written.push(("a byte less", whole[..whole.len() - 1].to_vec()));
    written.push(("no disclosure", b"confide disclosure v2\n".to_vec()));
    written.iter().map(|(name, file)| file_json(name, file)).collect()
}

fn equal_cases(one: &NotarisedSession, two: &NotarisedSession) -> Vec<(&'static str, Disclosure)> {
    let wish = ["response./balance == other.response./balance"];
    let equal = disclose_with_other(one, Some(two), &[], &wish);
    let mut cases = vec![
        ("equal numbers of two sessions", equal.clone()),
        (
            "equal numbers of one session",
            disclose(one, &[], &["response./balance == response./limit"]),
        ),
    ];
    let changes: [(&str, Change); 5] = [
        ("equality with a session that is not there", |it| drop(it.claims.remove(0))),
        ("another session that is compared with nothing", |it| {
            let Some(Claim::Equal { other, .. }) = it.claims.last_mut() else { panic!() };
            *other = OtherField::ThisSession(0);
        }),
        ("another session that only shows", |it| it.claims.truncate(1)),
        ("another time of the other session", |it| {
            let Some(Claim::OtherSession(other)) = it.claims.first_mut() else { panic!() };
            other.statement.time += 1;
        }),
        ("a session within the other one", |it| {
            let within = it.claims[0].clone();
            let Some(Claim::OtherSession(other)) = it.claims.first_mut() else { panic!() };
            other.claims.push(within);
        }),
    ];
    for (name, change) in changes {
        let mut changed = equal.clone();
        change(&mut changed);
        cases.push((name, changed));
    }
    // Its proofs do not hold, but it is refused before any of them is checked.
    let mut itself = equal;
    let mut paths = disclose(one, &[], &["response./balance <= 10"]);
    paths.claims.clear();
    itself.claims[0] = Claim::OtherSession(Box::new(paths));
    cases.push(("one session that poses as two", itself));
    let mut itself = disclose(one, &[], &["response./balance == response./limit"]);
    let Some(Claim::Equal { field, other, .. }) = itself.claims.last_mut() else { panic!() };
    *other = OtherField::ThisSession(*field);
    cases.push(("a field that is equal to itself", itself));
    cases
}

/// Disclosures with invalid circuit proofs: a checker without circuits stops when it meets them.
fn text_cases(session: &NotarisedSession) -> Vec<(&'static str, Disclosure)> {
    let proof = vec![7; 16];
    let shown = disclose(session, &["response./model", "response./balance"], &[]);
    let fields = &shown.fields.as_ref().unwrap().fields;
    let place = |kind| fields.iter().position(|field| field.kind == kind).unwrap() as u32;
    let (text, number) = (place(FieldKind::String), place(FieldKind::Number));
    let contains =
        |field, text: &str| Claim::FieldContains { field, text: text.into(), proof: proof.clone() };
    let direction = Direction::Response;
    let bytes = Claim::BytesContain { direction, text: "m-1".into(), proof: proof.clone() };
    let digest = Claim::FieldSha256 { field: text, sha256: [1; 32], proof: proof.clone() };
    [
        ("bytes contain a text", vec![bytes]),
        ("a field contains a text", vec![contains(text, "m")]),
        ("SHA-256 of a field", vec![digest]),
        ("a number contains a text", vec![contains(number, "5")]),
        ("a field that is not there contains a text", vec![contains(9, "m")]),
        ("a field contains an empty text", vec![contains(text, "")]),
        ("a field contains a text of 65 bytes", vec![contains(text, &"m".repeat(65))]),
        ("nine claims about texts", vec![contains(text, "m"); 9]),
    ]
    .map(|(name, claims)| (name, Disclosure { claims, ..shown.clone() }))
    .into()
}

fn file_json(name: &str, file: &[u8]) -> Value {
    json!({ "name": name, "refused": verdict(file), "file": hex::encode(file) })
}

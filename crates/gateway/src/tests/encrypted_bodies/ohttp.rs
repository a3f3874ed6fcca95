//! Encapsulated requests over real sockets: the one inside is answered like any other, and what a relay
//! changes, repeats or cuts is refused.

use confide_encrypted_body::{
    BodyCipher, ChunkReader, ControlData, MessageField, MessageHead, MessageKind, MessageLimits,
    MessagePart, MessageReader, OHTTP_GATEWAY_PATH, OHTTP_KEY_PROBLEM, OhttpForm,
    OhttpRequestSealer, TAG_BYTES, append_content, append_message_end, encode_ohttp_keys,
};

use super::*;

/// What is inside of an encapsulated answer.
#[derive(Debug, PartialEq, Eq)]
struct InnerAnswer {
    status: u16,
    fields: Vec<(String, String)>,
    text: String,
}

impl InnerAnswer {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// The status, and the code of an error.
    fn error(&self) -> (u16, String) {
        let body: serde_json::Value = serde_json::from_str(&self.text).unwrap();
        (self.status, body["error"]["code"].as_str().unwrap().to_owned())
    }
}

/// A request that a client has encapsulated.
struct Encapsulated {
    sealer: OhttpRequestSealer,
    form: OhttpForm,
    /// The head, and the chunks.
    parts: Vec<Vec<u8>>,
}

fn inner_head(method: &str, path: &str, fields: &[(&str, &str)]) -> MessageHead {
    let field = |(name, value): &(&str, &str)| MessageField {
        name: name.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
    };
    let control = ControlData::Request {
        method: method.as_bytes().to_vec(),
        scheme: b"https".to_vec(),
        authority: Vec::new(),
        path: path.as_bytes().to_vec(),
    };
    MessageHead { control, fields: fields.iter().map(field).collect() }
}

fn chat_head() -> MessageHead {
    inner_head("POST", CHAT, &[("content-type", "application/json")])
}

impl Encapsulated {
    /// Encapsulates a request in chunks: its head, each text, and its end.
    fn seal(key: &BodyPublicKey, head: &MessageHead, texts: &[&str]) -> Self {
        let form = OhttpForm::Chunked;
        let mut sealer = OhttpRequestSealer::new(key, BodyCipher::Aes256Gcm, form).unwrap();
        let mut parts = vec![sealer.head().to_bytes(), Vec::new()];
        sealer.seal_chunk(&head.encode_head(), &mut parts[1]).unwrap();
        for text in texts {
            let (mut message, mut part) = (Vec::new(), Vec::new());
            append_content(text.as_bytes(), &mut message);
            sealer.seal_chunk(&message, &mut part).unwrap();
            parts.push(part);
        }
        let (mut end, mut part) = (Vec::new(), Vec::new());
        append_message_end(&mut end);
        sealer.seal_final_chunk(&end, &mut part).unwrap();
        parts.push(part);
        Self { sealer, form, parts }
    }

    /// Encapsulates a request as one ciphertext.
    fn seal_whole(key: &BodyPublicKey, cipher: BodyCipher, message: &[u8]) -> Self {
        let form = OhttpForm::SingleChunk;
        let mut sealer = OhttpRequestSealer::new(key, cipher, form).unwrap();
        let mut parts = vec![sealer.head().to_bytes(), Vec::new()];
        sealer.seal_final_chunk(message, &mut parts[1]).unwrap();
        Self { sealer, form, parts }
    }

    async fn send(&self, gateway: SocketAddr) -> Answer {
        self.send_parts(gateway, &self.parts).await
    }

    async fn send_parts(&self, gateway: SocketAddr, parts: &[Vec<u8>]) -> Answer {
        post(gateway, self.form.request_type(), &parts.concat()).await
    }

    /// Opens an answer, or what there is of it.
    fn open(&self, answer: &Answer) -> Result<InnerAnswer, EncryptedBodyError> {
        assert_eq!(answer.status(), "200", "{answer:?}");
        assert_eq!(field(&answer.head, "content-type"), Some(self.form.answer_type()));
        let secret = self.sealer.answer_secret().unwrap();
        let (nonce, mut chunks) = answer.body.split_at(secret.nonce_bytes());
        let mut opener = secret.open_answer(nonce).unwrap();
        let mut reader = ChunkReader::new(self.form, 1 << 20);
        let limits = MessageLimits { head_bytes: 1 << 16, fields: 100 };
        let mut message = MessageReader::new(MessageKind::Answer, limits);
        let (mut head, mut text) = (None, Vec::new());
        let mut is_final = false;
        while !is_final {
            let chunk = match reader.read(&mut chunks)? {
                Some(chunk) => chunk,
                None => reader.finish()?,
            };
            is_final = chunk.is_final;
            message.push(&opener.open_chunk(chunk)?);
            while let Some(part) = message.next_part()? {
                match part {
                    MessagePart::Head(read) => head = Some(read),
                    MessagePart::Content(piece) => text.extend(piece),
                }
            }
        }
        let head = message.finish()?.or(head).expect("a head");
        let ControlData::Answer { status } = head.control else { panic!("an answer") };
        let text_of = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let fields = head.fields.into_iter();
        let fields = fields.map(|field| (text_of(field.name), text_of(field.value))).collect();
        Ok(InnerAnswer { status, fields, text: text_of(text) })
    }
}

/// Sends a body as a relay does.
async fn post(gateway: SocketAddr, kind: &str, body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(gateway).await.unwrap();
    let head = format!(
        "POST {OHTTP_GATEWAY_PATH} HTTP/1.1\r\nhost: gateway.example\r\nconnection: close\r\n\
         content-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    Answer::read(&mut stream).await
}

#[tokio::test]
async fn an_encapsulated_request_is_one_like_any_other_and_its_receipt_is_over_what_is_inside() {
    let (upstream, mut received) = recording_upstream().await;
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    let (first, second) = REQUEST.split_at(20);
    for kem in BodyKem::ALL {
        let key = fetch_key(gateway, kem).await;
        let whole = chat_head().encode_message(REQUEST.as_bytes());
        for request in [
            Encapsulated::seal(&key, &chat_head(), &[first, second]),
            Encapsulated::seal_whole(&key, BodyCipher::Aes256Gcm, &whole),
            Encapsulated::seal_whole(&key, BodyCipher::Aes128Gcm, &whole),
        ] {
            let answer = request.send(gateway).await;
            assert!(!answer.body.windows(8).any(|window| window == b"chatcmpl"));
            assert_eq!(field(&answer.head, "x-receipt-id"), None, "it is inside");
            let inner = request.open(&answer).unwrap();
            assert_eq!((inner.status, &*inner.text), (200, ANSWER));
            assert_eq!(inner.field("content-type"), Some("application/json"));
            let seen = received.recv().await.unwrap().to_lowercase();
            assert!(seen.starts_with(&format!("post {CHAT} http/1.1\r\n")), "{seen}");
            assert!(seen.ends_with(&REQUEST.to_lowercase()), "{seen}");
            assert!(!seen.contains("ohttp") && !seen.contains("gateway.example"), "{seen}");
            // The receipt is fetched in the same way.
            let id = inner.field("x-receipt-id").unwrap();
            let path = format!("/v1/aci/receipts/{id}");
            let fetch = Encapsulated::seal(&key, &inner_head("GET", &path, &[]), &[]);
            let receipt = fetch.open(&fetch.send(gateway).await).unwrap();
            assert_eq!(receipt.status, 200, "{receipt:?}");
            let report = fetch_report(gateway).await;
            let receipt = SignedReceipt::verify(receipt.text.as_bytes(), report.keyset()).unwrap();
            receipt.check_body(RECEIVED_EVENT, REQUEST.as_bytes()).unwrap();
            receipt.check_body(RETURNED_EVENT, ANSWER.as_bytes()).unwrap();
            assert_eq!(receipt.document().get_text("model"), Some("m"));
        }
    }
}

#[tokio::test]
async fn an_encapsulated_request_that_comes_again_is_refused() {
    let (upstream, mut received) = recording_upstream().await;
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::X25519).await;
    let whole = chat_head().encode_message(REQUEST.as_bytes());
    for request in [
        Encapsulated::seal(&key, &chat_head(), &[REQUEST]),
        Encapsulated::seal_whole(&key, BodyCipher::Aes256Gcm, &whole),
    ] {
        assert_eq!(request.open(&request.send(gateway).await).unwrap().text, ANSWER);
        received.recv().await.unwrap();
        let again = request.send(gateway).await;
        assert_eq!(again.clear_error(), ("400", "encrypted_body_replayed".into()));
    }
    assert!(received.try_recv().is_err(), "the model server saw each request once");
}

#[tokio::test]
async fn a_request_that_a_relay_has_cut_reordered_or_changed_reaches_no_model() {
    /// What the relay does with the parts, by name, and the refusal: in clear, or encapsulated.
    type Case<'a> = (&'a str, fn(&[Vec<u8>]) -> Vec<Vec<u8>>, Refusal<'a>);
    type Refusal<'a> = Result<(&'a str, &'a str), (u16, &'a str)>;
    let (upstream, mut received) = recording_upstream().await;
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::X25519).await;
    let (first, second) = REQUEST.split_at(20);
    // Head, chunk of the head, two chunks of text, final chunk.
    let cases: [Case<'_>; 9] = [
        ("no chunk", |it| it[..1].to_vec(), Ok(("400", "encrypted_body_truncated"))),
        (
            "half of the head",
            |it| vec![it[0][..20].to_vec()],
            Ok(("400", "encrypted_body_truncated")),
        ),
        (
            "the first chunks in another order",
            |it| [0, 2, 1, 3, 4].map(|index| it[index].clone()).to_vec(),
            Ok(("422", OHTTP_KEY_PROBLEM)),
        ),
        (
            "another key identifier",
            |it| [&[[&[it[0][0] ^ 1][..], &it[0][1..]].concat()][..], &it[1..]].concat(),
            Ok(("422", OHTTP_KEY_PROBLEM)),
        ),
        ("cut at a chunk", |it| it[..4].to_vec(), Err((400, "encrypted_body_truncated"))),
        (
            "cut inside the final chunk",
            |it| [&it[..4], &[it[4][..9].to_vec()]].concat(),
            Err((400, "encrypted_body_truncated")),
        ),
        (
            "later chunks in another order",
            |it| [0, 1, 3, 2, 4].map(|index| it[index].clone()).to_vec(),
            Err((400, "encrypted_body_invalid")),
        ),
        (
            "a chunk left out",
            |it| [0, 1, 2, 4].map(|index| it[index].clone()).to_vec(),
            Err((400, "encrypted_body_invalid")),
        ),
        (
            "bytes behind the end",
            |it| [it, &[vec![0]]].concat(),
            Err((400, "encrypted_body_invalid")),
        ),
    ];
    for (name, change, wanted) in cases {
        let request = Encapsulated::seal(&key, &chat_head(), &[first, second]);
        let answer = request.send_parts(gateway, &change(&request.parts)).await;
        match wanted {
            // Until the first chunk was opened, the answer is in clear.
            Ok((status, code)) => assert_eq!(answer.clear_error(), (status, code.into()), "{name}"),
            Err((status, code)) => {
                let inner = request.open(&answer).unwrap();
                assert_eq!(inner.error(), (status, code.into()), "{name}");
            }
        }
    }
    assert!(received.try_recv().is_err(), "no model server saw any of it");
}

#[tokio::test]
async fn an_inner_request_may_say_only_what_an_ordinary_one_could() {
    let (upstream, mut received) = recording_upstream().await;
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::X25519).await;
    let invalid = (400, "encapsulated_request_invalid");
    let upgrade = [("connection", "upgrade"), ("upgrade", "websocket")];
    for (method, path, fields, wanted) in [
        ("GET", "/metrics", &[][..], (404, "route_not_allowed")),
        ("POST", "/v1/../metrics", &[], (404, "route_not_allowed")),
        ("POST", OHTTP_GATEWAY_PATH, &[], (405, "method_not_allowed")),
        ("CONNECT", "/v1/chat/completions", &[], (405, "method_not_allowed")),
        ("TRACE", "/v1/models", &[], (405, "method_not_allowed")),
        ("POST", "https://other.example/v1", &[], (400, "bad_request_target")),
        ("POST", "*", &[], (400, "bad_request_target")),
        ("POST", "/v1/realtime", &upgrade, invalid),
        ("POST", CHAT, &[("ehbp-encapsulated-key", "00")], invalid),
        ("POST", CHAT, &[("host", "other.example")], invalid),
        ("POST", CHAT, &[("transfer-encoding", "chunked")], invalid),
    ] {
        let request = Encapsulated::seal(&key, &inner_head(method, path, fields), &[REQUEST]);
        let inner = request.open(&request.send(gateway).await).unwrap();
        assert_eq!(inner.error(), (wanted.0, wanted.1.into()), "{method} {path} {fields:?}");
    }
    let mut elsewhere = chat_head();
    if let ControlData::Request { authority, .. } = &mut elsewhere.control {
        *authority = b"other.example".to_vec();
    }
    let request = Encapsulated::seal(&key, &elsewhere, &[REQUEST]);
    let inner = request.open(&request.send(gateway).await).unwrap();
    assert_eq!(inner.error(), (invalid.0, invalid.1.into()));
    // No message at all, and one with too many fields.
    let request = Encapsulated::seal_whole(&key, BodyCipher::Aes256Gcm, b"GET / HTTP/1.1");
    let inner = request.open(&request.send(gateway).await).unwrap();
    assert_eq!(inner.error(), (400, "encrypted_body_invalid".into()));
    let fields = vec![("x", "y"); GatewayLimits::default().head_fields + 1];
    let request = Encapsulated::seal(&key, &inner_head("POST", CHAT, &fields), &[REQUEST]);
    let inner = request.open(&request.send(gateway).await).unwrap();
    assert_eq!(inner.error(), (431, "too_many_fields".into()));
    assert!(received.try_recv().is_err(), "no model server saw any of it");
}

#[tokio::test]
async fn an_api_key_is_that_of_the_inner_request() {
    let digest = ApiKeyDigest::of_key(b"k").to_hex();
    let keys = format!("[[key]]\nname = \"a\"\nsha256 = \"{digest}\"\nrequests_per_minute = 2\n");
    let authorizer = Arc::new(Authorizer::with_keys(KeySet::parse(&keys).unwrap(), || NOW));
    let (upstream, mut received) = recording_upstream().await;
    let limits = GatewayLimits::default();
    let running =
        gateway_with_options(upstream, limits, Arc::new(|| KEY), None, Some(authorizer)).await;
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::X25519).await;
    let json = ("content-type", "application/json");
    for (fields, wanted) in [
        (vec![json], Err((401, "invalid_api_key"))),
        (vec![json, ("authorization", "Bearer other")], Err((401, "invalid_api_key"))),
        (vec![json, ("authorization", "Bearer k")], Ok(ANSWER)),
        (vec![json, ("authorization", "Bearer k")], Ok(ANSWER)),
        (vec![json, ("authorization", "Bearer k")], Err((429, "rate_limit_exceeded"))),
    ] {
        let request = Encapsulated::seal(&key, &inner_head("POST", CHAT, &fields), &[REQUEST]);
        let inner = request.open(&request.send(gateway).await).unwrap();
        match wanted {
            Ok(text) => {
                assert_eq!((inner.status, &*inner.text), (200, text));
                let seen = received.recv().await.unwrap();
                assert!(!seen.contains("Bearer"), "{seen}");
            }
            Err((status, code)) => assert_eq!(inner.error(), (status, code.into())),
        }
    }
    assert!(received.try_recv().is_err(), "no model server saw the others");
}

#[tokio::test]
async fn chunks_stream_in_both_directions() {
    let (told, mut pieces) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let told = told.clone();
        async move {
            read_until(&mut stream, "first").await;
            told.send("first").unwrap();
            read_until(&mut stream, "second").await;
            read_until(&mut stream, LAST_CHUNK).await;
            stream.write_all(CHUNKED.as_bytes()).await.unwrap();
            stream.write_all(&chunk(b"data: 1\n\n")).await.unwrap();
            read_until(&mut stream, "never").await;
        }
    })
    .await;
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::XWing).await;
    let request =
        Encapsulated::seal(&key, &inner_head("POST", "/upload", &[]), &["first", "second"]);
    let mut stream = TcpStream::connect(gateway).await.unwrap();
    let head = format!(
        "POST {OHTTP_GATEWAY_PATH} HTTP/1.1\r\nhost: h\r\ncontent-type: {}\r\n\
         transfer-encoding: chunked\r\n\r\n",
        request.form.request_type()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    for part in &request.parts[..3] {
        stream.write_all(&chunk(part)).await.unwrap();
    }
    // The model server has the first piece before the second is sent.
    assert_eq!(finish_in_time(pieces.recv()).await, Some("first"));
    for part in &request.parts[3..] {
        stream.write_all(&chunk(part)).await.unwrap();
    }
    stream.write_all(LAST_CHUNK.as_bytes()).await.unwrap();
    // And the client has the first piece of the answer, which never ends: a chunk of the gateway's
    // HTTP with the nonce, the head and the piece.
    let head = read_until(&mut stream, "\r\n\r\n").await;
    assert_eq!(field(&head, "incremental"), Some("?1"), "{head}");
    let length = read_until(&mut stream, "\r\n").await;
    let mut bytes = vec![0; usize::from_str_radix(length.trim(), 16).unwrap()];
    finish_in_time(stream.read_exact(&mut bytes)).await.unwrap();
    let secret = request.sealer.answer_secret().unwrap();
    let (nonce, mut chunks) = bytes.split_at(secret.nonce_bytes());
    let mut opener = secret.open_answer(nonce).unwrap();
    let mut reader = ChunkReader::new(request.form, 1 << 20);
    let mut texts = Vec::new();
    while let Some(chunk) = reader.read(&mut chunks).unwrap() {
        texts.push(opener.open_chunk(chunk).unwrap());
    }
    assert_eq!(texts.len(), 2);
    assert_eq!(texts[1], b"\x09data: 1\n\n");
}

#[tokio::test]
async fn a_stream_that_breaks_off_has_no_final_chunk() {
    let broken = format!("{CHUNKED}9\r\ndata: 1\n\n\r\n");
    let upstream = upstream(move |mut stream| {
        let broken = broken.clone();
        async move {
            read_until(&mut stream, REQUEST).await;
            let _ = stream.write_all(broken.as_bytes()).await;
        }
    })
    .await;
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let key = fetch_key(running.address, BodyKem::X25519).await;
    let request = Encapsulated::seal(&key, &chat_head(), &[REQUEST]);
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let body = request.parts.concat();
    let head = format!(
        "POST {OHTTP_GATEWAY_PATH} HTTP/1.1\r\nhost: h\r\ncontent-type: {}\r\n\
         content-length: {}\r\n\r\n",
        request.form.request_type(),
        body.len()
    );
    stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    let mut bytes = Vec::new();
    let _ = finish_in_time(stream.read_to_end(&mut bytes)).await;
    assert!(!bytes.ends_with(LAST_CHUNK.as_bytes()));
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let chunks = [&bytes[end + 4..], LAST_CHUNK.as_bytes()].concat();
    let head = String::from_utf8(bytes[..end + 4].to_vec()).unwrap();
    let answer = Answer { head, body: join_chunks(&chunks) };
    assert_eq!(request.open(&answer), Err(EncryptedBodyError::FinalFrameMissing));
}

#[tokio::test]
async fn an_answer_without_content_is_encapsulated_too() {
    for (method, status, wanted) in
        [("POST", "204 No Content", 204), ("POST", "200 OK", 200), ("HEAD", "200 OK", 200)]
    {
        let upstream = upstream(move |mut stream| async move {
            let end = if method == "HEAD" { "\r\n\r\n" } else { REQUEST };
            read_until(&mut stream, end).await;
            let length = if wanted == 204 { "" } else { "content-length: 0\r\n" };
            let answer = format!("HTTP/1.1 {status}\r\n{length}connection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        })
        .await;
        let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
        let key = fetch_key(running.address, BodyKem::X25519).await;
        let (head, texts) = match method {
            "HEAD" => (inner_head("HEAD", "/v1/models", &[]), &[][..]),
            _ => (chat_head(), &[REQUEST][..]),
        };
        let request = Encapsulated::seal(&key, &head, texts);
        let inner = request.open(&request.send(running.address).await).unwrap();
        assert_eq!((inner.status, &*inner.text), (wanted, ""), "{method} {status}");
    }
}

#[tokio::test]
async fn each_slot_of_a_shaped_answer_is_one_chunk_of_one_size() {
    const SLOT_BYTES: usize = 256;
    let events = "data: 1\n\ndata: [DONE]\n\n";
    let streamed = format!("{CHUNKED}{:x}\r\n{events}\r\n{LAST_CHUNK}", events.len());
    let upstream = upstream(move |mut stream| {
        let streamed = streamed.clone();
        async move {
            read_until(&mut stream, REQUEST).await;
            let _ = stream.write_all(streamed.as_bytes()).await;
        }
    })
    .await;
    let shape = Some(format!("{SLOT_BYTES}/5/4").parse().unwrap());
    let limits = GatewayLimits::default();
    let running = gateway_with_options(upstream, limits, Arc::new(|| KEY), shape, None).await;
    let key = fetch_key(running.address, BodyKem::X25519).await;
    let request = Encapsulated::seal(&key, &chat_head(), &[REQUEST]);
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let body = request.parts.concat();
    let head = format!(
        "POST {OHTTP_GATEWAY_PATH} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-type: {}\r\n\
         content-length: {}\r\n\r\n",
        request.form.request_type(),
        body.len()
    );
    stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    let mut bytes = Vec::new();
    finish_in_time(stream.read_to_end(&mut bytes)).await.unwrap();
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let chunks = split_chunks(&bytes[end..]);
    assert!(chunks.len() >= 4 && chunks.len().is_multiple_of(4), "{}", chunks.len());
    // The length of the chunk, that of the piece inside, and the tag.
    let slot = 2 + 2 + SLOT_BYTES + TAG_BYTES;
    let (first, rest) = chunks.split_first().unwrap();
    let (last, between) = rest.split_last().unwrap();
    assert!(first.len() > slot, "it brings the head of the answer");
    assert!(between.iter().all(|chunk| chunk.len() == slot), "{between:?}");
    // Its length is 0 in one byte, and the end of the message is inside.
    assert_eq!(last.len(), slot + 1);
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let inner = request.open(&Answer { head, body: chunks.concat() }).unwrap();
    assert_eq!(inner.text.len(), chunks.len() * SLOT_BYTES);
    assert!(inner.text.ends_with("data: [DONE]\n\n"), "{}", inner.text);
}

#[tokio::test]
async fn the_keys_are_served_for_clients_of_ohttp_and_are_those_of_the_keyset() {
    let (_closed, upstream) = closed_address();
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    let mut stream = TcpStream::connect(gateway).await.unwrap();
    stream.write_all(get(OHTTP_GATEWAY_PATH).as_bytes()).await.unwrap();
    let answer = Answer::read(&mut stream).await;
    assert!(answer.head.starts_with("HTTP/1.1 200 "), "{answer:?}");
    assert_eq!(field(&answer.head, "content-type"), Some("application/ohttp-keys"));
    let mut keys = Vec::new();
    for kem in BodyKem::ALL {
        keys.push(fetch_key(gateway, kem).await);
    }
    assert_eq!(answer.body, encode_ohttp_keys(&keys));
    assert_ne!(keys[0].ohttp_key_id(), keys[1].ohttp_key_id());
}

#[tokio::test]
async fn what_is_no_encapsulated_request_is_refused_in_clear() {
    let (_closed, upstream) = closed_address();
    let limits = GatewayLimits {
        encrypted_bodies: EncryptedBodyLimits {
            per_minute_per_peer: 4,
            ..EncryptedBodyLimits::default()
        },
        ..GatewayLimits::default()
    };
    let running = gateway_for_clients(upstream, limits).await;
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::X25519).await;
    let request = Encapsulated::seal(&key, &chat_head(), &[REQUEST]);
    let body = request.parts.concat();
    for kind in ["application/json", "message/ohttp-chunked-res", "message/ohttp-req; a=b"] {
        let answer = post(gateway, kind, &body).await;
        assert_eq!(answer.clear_error(), ("415", "encapsulated_request_type".into()), "{kind}");
    }
    let chunked = OhttpForm::Chunked.request_type();
    let mut other_suite = body.clone();
    other_suite[6] = 3;
    let mut small_order = body.clone();
    small_order[7..39].fill(0);
    for (body, wanted) in [
        (&other_suite, ("422", OHTTP_KEY_PROBLEM)),
        (&small_order, ("400", "encrypted_body_invalid")),
        (&Vec::new(), ("400", "encrypted_body_truncated")),
        // A whole request is another form.
        (&body, ("422", OHTTP_KEY_PROBLEM)),
        (&body, ("429", "encrypted_body_too_many")),
    ] {
        let is_last = wanted.0 == "422" && body[6] != 3;
        let kind = if is_last { OhttpForm::SingleChunk.request_type() } else { chunked };
        let answer = post(gateway, kind, body).await;
        assert_eq!(answer.clear_error(), (wanted.0, wanted.1.into()));
    }
}

#[tokio::test]
async fn a_gateway_without_encrypted_bodies_is_no_gateway_of_ohttp() {
    let (_closed, upstream) = closed_address();
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    let gateway = gateway_with(configuration, GatewayLimits::default()).await;
    let answer = exchange(gateway.address, &get(OHTTP_GATEWAY_PATH)).await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    let answer = post(gateway.address, OhttpForm::Chunked.request_type(), b"").await;
    assert_eq!(answer.clear_error(), ("404", "route_not_allowed".into()));
}

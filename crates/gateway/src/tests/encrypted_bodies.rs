//! Requests with encrypted bodies over real sockets: answered like others, and refused by name once
//! somebody in between has touched them.

mod keys;
mod ohttp;

use std::sync::atomic::{AtomicU64, Ordering};

use confide_channel::KeyIdentity;
use confide_encrypted_body::{
    AnswerNonce, AnswerOpener, BodyEnd, BodyKem, BodyPublicKey, EncryptedBodyError,
    FRAME_OVERHEAD_BYTES, FrameReader, KEY_CONFIG_PROBLEM, LENGTH_BYTES, RequestSealer,
    parse_key_configs,
};
use confide_evidence::{
    Attest, AttestError, ReportData,
    weights_claim::{MeasuredWeights, WeightsClaim, WeightsSource},
};
use confide_receipt::{AttestationReport, RECEIVED_EVENT, RETURNED_EVENT, SignedReceipt};

use super::*;
use crate::{
    AnswerShape,
    api_key::ApiKeyDigest,
    authorizer::Authorizer,
    encrypted_request::EncryptedRequests,
    key_file::KeySet,
    limits::EncryptedBodyLimits,
    receipt_book::ReceiptBook,
    receipt_service::ReceiptService,
    receipt_signer::{IdentitySource, ReceiptContext, ReceiptSigner},
};

const NOW: u64 = 1_800_000_000;
const CONFIG_DIGEST: [u8; 32] = [3; 32];
const WEIGHTS: MeasuredWeights =
    MeasuredWeights { source: WeightsSource::HashedAtStart, digest: [4; 32] };
const KEY: KeyIdentity = KeyIdentity { spki_sha256: [7; 32], not_after: NOW + 3600 };
const REQUEST: &str = r#"{"model":"m","messages":[],"temperature":0.5}"#;
const ANSWER: &str = r#"{"id":"chatcmpl-1","choices":[]}"#;
const CHAT: &str = "/v1/chat/completions";
const ENDS: [BodyEnd; 2] = [BodyEnd::Unmarked, BodyEnd::FinalFrame];

/// A quote is its report data, after a byte that no kind of evidence begins with.
struct FakeAttester;

impl Attest for FakeAttester {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        Ok([&[0xff], report_data.as_ref()].concat())
    }

    fn collateral(&self) -> Option<Vec<u8>> {
        Some(b"{}".to_vec())
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

async fn gateway_for_clients(upstream: SocketAddr, limits: GatewayLimits) -> RunningGateway {
    gateway_with_identity(upstream, limits, Arc::new(|| KEY)).await
}

async fn gateway_with_identity(
    upstream: SocketAddr,
    limits: GatewayLimits,
    identity: IdentitySource,
) -> RunningGateway {
    gateway_with_options(upstream, limits, identity, None, None).await
}

async fn gateway_with_options(
    upstream: SocketAddr,
    limits: GatewayLimits,
    identity: IdentitySource,
    shape: Option<AnswerShape>,
    authorizer: Option<Arc<Authorizer>>,
) -> RunningGateway {
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    configuration.routes.push(Route::parse("POST /upload", DEFAULT_GROUP).unwrap());
    configuration.answer_shape = shape;
    let context = ReceiptContext {
        config_digest: CONFIG_DIGEST,
        weights: WeightsClaim::from_servers([Some(WEIGHTS)]),
        is_direct: true,
        checks_keys: authorizer.is_some(),
        encrypts_bodies: true,
        limits,
    };
    let book = Arc::new(ReceiptBook::new(|| NOW));
    let signer = Arc::new(ReceiptSigner::new(book, identity, context));
    let requests = Arc::new(EncryptedRequests::new(signer.clone()));
    let service = Arc::new(ReceiptService::new(signer, Arc::new(FakeAttester)));
    let proxy = Proxy::new(&configuration, true, limits).unwrap();
    let proxy = proxy.with_receipts(Some(service), Some(requests)).with_authorizer(authorizer);
    serve_proxy(proxy, limits, AdmissionLimits::default()).await
}

/// A model server that answers `ANSWER` and tells what it received.
async fn recording_upstream() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let (told, received) = mpsc::unbounded_channel();
    let address = upstream(move |mut stream| {
        let told = told.clone();
        async move {
            loop {
                let head = read_until(&mut stream, "\r\n\r\n").await;
                if head.is_empty() {
                    return;
                }
                let rest = match head.contains(REQUEST) {
                    true => String::new(),
                    false => read_until(&mut stream, REQUEST).await,
                };
                let _ = told.send(head + &rest);
                let length = ANSWER.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                     content-length: {length}\r\n\r\n{ANSWER}"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    })
    .await;
    (address, received)
}

/// A request that a client has encrypted.
struct EncryptedRequest {
    sealer: RequestSealer,
    end: BodyEnd,
    frames: Vec<Vec<u8>>,
}

impl EncryptedRequest {
    /// Encrypts `texts`, each as a frame; the last one is the final frame if there is one.
    fn seal(key: &BodyPublicKey, end: BodyEnd, texts: &[&str]) -> Self {
        let mut sealer = RequestSealer::new(key, end).unwrap();
        let frames = texts.iter().enumerate().map(|(index, text)| {
            let mut frame = Vec::new();
            match end == BodyEnd::FinalFrame && index + 1 == texts.len() {
                true => sealer.seal_final_frame(text.as_bytes(), &mut frame).unwrap(),
                false => sealer.seal_frame(text.as_bytes(), &mut frame).unwrap(),
            }
            frame
        });
        let frames = frames.collect();
        Self { sealer, end, frames }
    }

    fn head(&self, path: &str, end: BodyEnd) -> String {
        let announced = end.field_value().map(|value| format!("confide-body-end: {value}\r\n"));
        format!(
            "POST {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-type: application/json\r\n\
             ehbp-encapsulated-key: {}\r\n{}transfer-encoding: chunked\r\n\r\n",
            self.sealer.encapsulated_key().to_hex(),
            announced.unwrap_or_default()
        )
    }

    async fn send(&self, gateway: SocketAddr) -> Answer {
        self.send_frames(gateway, self.end, &self.frames).await
    }

    /// Sends these frames with this announcement, and reads the answer.
    async fn send_frames(&self, gateway: SocketAddr, end: BodyEnd, frames: &[Vec<u8>]) -> Answer {
        self.send_head(gateway, &self.head(CHAT, end), frames).await
    }

    async fn send_head(&self, gateway: SocketAddr, head: &str, frames: &[Vec<u8>]) -> Answer {
        let mut stream = TcpStream::connect(gateway).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        for frame in frames {
            stream.write_all(&chunk(frame)).await.unwrap();
        }
        stream.write_all(b"0\r\n\r\n").await.unwrap();
        Answer::read(&mut stream).await
    }

    fn open(&self, answer: &Answer) -> Result<String, EncryptedBodyError> {
        let mut reader = FrameReader::new(self.end, 1 << 20);
        let (mut opener, mut text) = (self.answer_opener(&answer.head), Vec::new());
        let mut bytes = &answer.body[..];
        while let Some(frame) = reader.read(&mut bytes)? {
            text.extend(opener.open_frame(frame)?);
        }
        reader.finish()?;
        Ok(String::from_utf8(text).unwrap())
    }

    /// The status and the code of a refusal, which is encrypted once the first frame was opened.
    fn refusal<'a>(&self, answer: &'a Answer) -> (&'a str, String) {
        if field(&answer.head, "ehbp-response-nonce").is_none() {
            return answer.clear_error();
        }
        let text: serde_json::Value = serde_json::from_str(&self.open(answer).unwrap()).unwrap();
        (answer.status(), text["error"]["code"].as_str().unwrap().to_owned())
    }

    fn answer_opener(&self, head: &str) -> AnswerOpener {
        let nonce = field(head, "ehbp-response-nonce").expect("the answer is encrypted");
        let nonce = AnswerNonce::parse(nonce.as_bytes()).unwrap();
        assert_eq!(field(head, "confide-body-end"), self.end.field_value());
        self.sealer.exchange_secret().unwrap().open_answer(nonce).unwrap()
    }
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// An answer with a body of any bytes.
#[derive(Debug)]
struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    async fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        let read = finish_in_time(stream.read_to_end(&mut bytes)).await;
        // What was sent after an early answer may reset the connection.
        assert!(read.is_ok() || !bytes.is_empty(), "{read:?}");
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(bytes[..end + 4].to_vec()).unwrap();
        let body = match head.contains("transfer-encoding: chunked") {
            true => join_chunks(&bytes[end + 4..]),
            false => bytes[end + 4..].to_vec(),
        };
        Self { head, body }
    }

    fn status(&self) -> &str {
        &self.head[9..12]
    }

    /// The status, and the code of an error that is not encrypted.
    fn clear_error(&self) -> (&str, String) {
        assert_eq!(field(&self.head, "ehbp-response-nonce"), None, "{}", self.head);
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        let code = body["error"]["code"].as_str().or(body["type"].as_str()).unwrap();
        (self.status(), code.to_owned())
    }
}

fn join_chunks(bytes: &[u8]) -> Vec<u8> {
    split_chunks(bytes).concat()
}

fn split_chunks(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut chunks = Vec::new();
    loop {
        let end = bytes.windows(2).position(|window| window == b"\r\n").expect("a chunk");
        let length = std::str::from_utf8(&bytes[..end]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return chunks;
        }
        chunks.push(&bytes[end + 2..][..length]);
        bytes = &bytes[end + 4 + length..];
    }
}

/// The value of a field of a head.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
}

async fn fetch_report(gateway: SocketAddr) -> AttestationReport {
    let answer = exchange(gateway, &get("/v1/aci/attestation")).await;
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let report = AttestationReport::parse(body.as_bytes(), None).unwrap();
    assert_eq!(report.quote()[1..], report.report_data().0, "the quote covers the keyset");
    report
}

async fn fetch_key(gateway: SocketAddr, kem: BodyKem) -> BodyPublicKey {
    let report = fetch_report(gateway).await;
    let mut keys = report.keyset().body_keys();
    let key = keys.find(|key| key.algorithm == kem.algorithm()).unwrap();
    assert_eq!(key.config_digest, CONFIG_DIGEST);
    assert_eq!(key.weights.unwrap().measured_weights(), [WEIGHTS]);
    BodyPublicKey::from_bytes(kem, &key.public_key).unwrap()
}

#[tokio::test]
async fn an_encrypted_request_is_one_like_any_other_and_its_answer_is_encrypted() {
    let (upstream, mut received) = recording_upstream().await;
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    for (kem, end) in BodyKem::ALL.into_iter().flat_map(|kem| ENDS.map(|end| (kem, end))) {
        let key = fetch_key(gateway, kem).await;
        let (first, second) = REQUEST.split_at(20);
        let request = EncryptedRequest::seal(&key, end, &[first, "", second, ""]);
        let answer = request.send(gateway).await;
        assert!(answer.head.starts_with("HTTP/1.1 200 "), "{answer:?}");
        assert_eq!(request.open(&answer).unwrap(), ANSWER);
        assert!(!answer.body.windows(8).any(|window| window == b"chatcmpl"));
        let seen = received.recv().await.unwrap().to_lowercase();
        assert!(seen.ends_with(&REQUEST.to_lowercase()), "{seen}");
        assert!(seen.contains(&format!("content-length: {}\r\n", REQUEST.len())), "{seen}");
        assert!(seen.contains("accept-encoding: identity\r\n"), "{seen}");
        for name in ["ehbp-encapsulated-key", "confide-body-end", "transfer-encoding"] {
            assert!(!seen.contains(name), "{seen}");
        }
        // The receipt is over the texts.
        let id = field(&answer.head, "x-receipt-id").unwrap();
        let receipt = exchange(gateway, &get(&format!("/v1/aci/receipts/{id}"))).await;
        let receipt = receipt.split_once("\r\n\r\n").unwrap().1;
        let report = fetch_report(gateway).await;
        let receipt = SignedReceipt::verify(receipt.as_bytes(), report.keyset()).unwrap();
        receipt.check_body(RECEIVED_EVENT, REQUEST.as_bytes()).unwrap();
        receipt.check_body(RETURNED_EVENT, ANSWER.as_bytes()).unwrap();
        assert!(!receipt.is_cut(RETURNED_EVENT));
        assert_eq!(receipt.document().get_text("model"), Some("m"));
    }
}

#[tokio::test]
async fn a_replayed_request_is_refused() {
    let (upstream, mut received) = recording_upstream().await;
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    for end in ENDS {
        let key = fetch_key(gateway, BodyKem::X25519).await;
        let request = EncryptedRequest::seal(&key, end, &[REQUEST, ""]);
        assert_eq!(request.open(&request.send(gateway).await).unwrap(), ANSWER);
        received.recv().await.unwrap();
        for frames in [&request.frames[..], &request.frames[..1]] {
            let again = request.send_frames(gateway, end, frames).await;
            assert_eq!(again.clear_error(), ("400", "encrypted_body_replayed".into()));
        }
    }
    assert!(received.try_recv().is_err(), "the model server saw each request once");
}

/// The name of the change, the end that the client meant, the end that arrives, and the frames.
type Change<'a> = (&'a str, BodyEnd, BodyEnd, fn(&[Vec<u8>]) -> Vec<Vec<u8>>, &'a str);

#[tokio::test]
async fn a_request_that_was_tampered_with_is_refused_before_a_model_sees_it() {
    let (upstream, mut received) = recording_upstream().await;
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::X25519).await;
    let (first, second) = REQUEST.split_at(20);
    let (second, third) = second.split_at(10);
    let (unmarked, marked) = (ENDS[0], ENDS[1]);
    let cases: [Change<'_>; 8] = [
        ("cut at a frame", marked, marked, |it| it[..2].to_vec(), "encrypted_body_truncated"),
        ("cut, no frame left", marked, marked, |_| vec![], "encrypted_body_truncated"),
        (
            "cut inside a frame",
            unmarked,
            unmarked,
            |it| vec![it[0].clone(), it[1][..9].to_vec()],
            "encrypted_body_truncated",
        ),
        (
            "later frames in another order",
            unmarked,
            unmarked,
            |it| vec![it[0].clone(), it[2].clone(), it[1].clone()],
            "encrypted_body_invalid",
        ),
        (
            "the first frames in another order",
            marked,
            marked,
            |it| vec![it[1].clone(), it[0].clone(), it[2].clone()],
            KEY_CONFIG_PROBLEM,
        ),
        (
            "bytes after the end",
            marked,
            marked,
            |it| [it, &[vec![0, 0, 0, 0]]].concat(),
            "encrypted_body_invalid",
        ),
        (
            "announcement removed, and cut",
            marked,
            unmarked,
            |it| it[..2].to_vec(),
            KEY_CONFIG_PROBLEM,
        ),
        ("announcement added", unmarked, marked, <[Vec<u8>]>::to_vec, KEY_CONFIG_PROBLEM),
    ];
    for (name, meant, arrives, change, wanted) in cases {
        let request = EncryptedRequest::seal(&key, meant, &[first, second, third]);
        let answer = request.send_frames(gateway, arrives, &change(&request.frames)).await;
        let status = if wanted == KEY_CONFIG_PROBLEM { "422" } else { "400" };
        assert_eq!(request.refusal(&answer), (status, wanted.into()), "{name}");
    }
    for (index, status, wanted) in
        [(0, "422", KEY_CONFIG_PROBLEM), (1, "400", "encrypted_body_invalid")]
    {
        let request = EncryptedRequest::seal(&key, unmarked, &[first, second]);
        let mut frames = request.frames.clone();
        *frames[index].last_mut().unwrap() ^= 1;
        let answer = request.send_frames(gateway, unmarked, &frames).await;
        assert_eq!(request.refusal(&answer), (status, wanted.into()), "frame {index}");
    }
    assert!(received.try_recv().is_err(), "no model server saw any of it");
}

/// EHBP's clients announce no end, and so nobody notices this; docs/encrypted-bodies.md says so.
#[tokio::test]
async fn a_request_without_an_announced_end_that_was_cut_at_a_frame_is_not_noticed() {
    let (upstream, mut received) = recording_upstream().await;
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::X25519).await;
    let request = EncryptedRequest::seal(&key, BodyEnd::Unmarked, &[REQUEST, "more"]);
    let answer = request.send_frames(gateway, BodyEnd::Unmarked, &request.frames[..1]).await;
    assert_eq!(request.open(&answer).unwrap(), ANSWER);
    assert!(received.recv().await.unwrap().ends_with(REQUEST));
}

#[tokio::test]
async fn an_answer_that_is_cut_or_stripped_of_its_announcement_shows() {
    let (upstream, _received) = recording_upstream().await;
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::X25519).await;
    let request = EncryptedRequest::seal(&key, BodyEnd::FinalFrame, &[REQUEST]);
    let mut answer = request.send(gateway).await;
    assert_eq!(request.open(&answer).unwrap(), ANSWER);
    answer.body.clear();
    assert_eq!(request.open(&answer), Err(EncryptedBodyError::FinalFrameMissing));
}

#[tokio::test]
async fn bodies_stream_in_both_directions() {
    let (told, mut pieces) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let told = told.clone();
        async move {
            read_until(&mut stream, "\r\n\r\n").await;
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
    let request = EncryptedRequest::seal(&key, BodyEnd::FinalFrame, &["first", "second"]);
    let mut stream = TcpStream::connect(gateway).await.unwrap();
    let head = request.head("/upload", BodyEnd::FinalFrame);
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&chunk(&request.frames[0])).await.unwrap();
    // The model server has the first piece before the second is sent.
    assert_eq!(finish_in_time(pieces.recv()).await, Some("first"));
    stream.write_all(&chunk(&request.frames[1])).await.unwrap();
    stream.write_all(LAST_CHUNK.as_bytes()).await.unwrap();
    // And the client has the first piece of the answer, which never ends.
    let frame_bytes = 4 + 9 + 16;
    let begin = format!("{frame_bytes:x}\r\n");
    let mut bytes = Vec::new();
    let frame = loop {
        let mut buffer = [0; 512];
        let count = finish_in_time(stream.read(&mut buffer)).await.unwrap();
        assert!(count > 0, "the answer ended");
        bytes.extend_from_slice(&buffer[..count]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let body = &bytes[end + 4..];
        if body.len() >= begin.len() + frame_bytes {
            assert!(body.starts_with(begin.as_bytes()));
            break body[begin.len()..][..frame_bytes].to_vec();
        }
    };
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let mut opener = request.answer_opener(&head);
    let read = FrameReader::new(BodyEnd::FinalFrame, 1024).read(&mut &frame[..]).unwrap();
    assert_eq!(opener.open_frame(read.unwrap()).unwrap(), b"data: 1\n\n");
}

#[tokio::test]
async fn each_slot_of_a_shaped_answer_is_one_frame_of_one_size() {
    const SLOT_BYTES: usize = 256;
    let events = "data: 1\n\ndata: [DONE]\n\n";
    let streamed = format!("{CHUNKED}{:x}\r\n{events}\r\n{LAST_CHUNK}", events.len());
    let fields = format!("content-type: application/json\r\ncontent-length: {}", ANSWER.len());
    let document = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{ANSWER}");
    for (answer, is_stream) in [(streamed, true), (document, false)] {
        let upstream = upstream(move |mut stream| {
            let answer = answer.clone();
            async move {
                while read_until(&mut stream, REQUEST).await.ends_with(REQUEST) {
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            }
        })
        .await;
        let shape = Some(format!("{SLOT_BYTES}/5/4").parse().unwrap());
        let limits = GatewayLimits::default();
        let running = gateway_with_options(upstream, limits, Arc::new(|| KEY), shape, None).await;
        for end in ENDS {
            let key = fetch_key(running.address, BodyKem::X25519).await;
            let request = EncryptedRequest::seal(&key, end, &[REQUEST, ""]);
            let body = request.frames.iter().flat_map(|frame| chunk(frame)).collect::<Vec<_>>();
            let mut stream = TcpStream::connect(running.address).await.unwrap();
            let head = request.head(CHAT, end);
            let sent = [head.as_bytes(), &body, LAST_CHUNK.as_bytes()].concat();
            stream.write_all(&sent).await.unwrap();
            let mut bytes = Vec::new();
            finish_in_time(stream.read_to_end(&mut bytes)).await.unwrap();
            let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
            let chunks = split_chunks(&bytes[head_end..]);
            assert!(chunks.len() >= 4 && chunks.len().is_multiple_of(4), "{}", chunks.len());
            // The announcement of the final frame is a length of its own.
            let announced = if end == BodyEnd::FinalFrame { LENGTH_BYTES } else { 0 };
            for (index, chunk) in chunks.iter().enumerate() {
                let announced = if index + 1 == chunks.len() { announced } else { 0 };
                assert_eq!(chunk.len(), SLOT_BYTES + FRAME_OVERHEAD_BYTES + announced);
            }
            let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
            let text = request.open(&Answer { head, body: chunks.concat() }).unwrap();
            assert_eq!(text.len(), chunks.len() * SLOT_BYTES);
            match is_stream {
                true => assert!(text.starts_with("data: 1\n\n: ") || text.starts_with(": ")),
                false => assert_eq!(text.trim_end_matches(' '), ANSWER),
            }
            assert!(!is_stream || text.ends_with("data: [DONE]\n\n"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_stream_that_the_model_server_breaks_off_has_no_final_frame() {
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
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::X25519).await;
    let request = EncryptedRequest::seal(&key, BodyEnd::FinalFrame, &[REQUEST]);
    let mut stream = TcpStream::connect(gateway).await.unwrap();
    stream.write_all(request.head(CHAT, request.end).as_bytes()).await.unwrap();
    stream.write_all(&chunk(&request.frames[0])).await.unwrap();
    stream.write_all(LAST_CHUNK.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let _ = finish_in_time(stream.read_to_end(&mut bytes)).await;
    assert!(!bytes.ends_with(LAST_CHUNK.as_bytes()));
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let frames = [&bytes[end + 4..], LAST_CHUNK.as_bytes()].concat();
    let head = String::from_utf8(bytes[..end + 4].to_vec()).unwrap();
    let answer = Answer { head, body: join_chunks(&frames) };
    assert_eq!(request.open(&answer), Err(EncryptedBodyError::FinalFrameMissing));
}

#[tokio::test]
async fn the_gateways_own_refusals_are_encrypted_once_the_request_is_open() {
    let (_closed, upstream) = closed_address();
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::X25519).await;
    for end in ENDS {
        let request = EncryptedRequest::seal(&key, end, &[REQUEST]);
        let answer = request.send(gateway).await;
        assert!(answer.head.starts_with("HTTP/1.1 502 "), "{answer:?}");
        assert!(request.open(&answer).unwrap().contains("\"upstream_unreachable\""));
    }
}

#[tokio::test]
async fn an_empty_answer_is_an_encrypted_empty_body_with_a_status_that_allows_one() {
    for (status, wanted) in [
        ("200 OK", "200"),
        ("204 No Content", "200"),
        ("205 Reset Content", "200"),
        ("304 Not Modified", "502"),
        ("404 Not Found", "404"),
    ] {
        let (told, mut received) = mpsc::unbounded_channel();
        let upstream = upstream(move |mut stream| {
            let told = told.clone();
            async move {
                let _ = told.send(read_until(&mut stream, REQUEST).await.to_lowercase());
                let length = if status.starts_with("204") { "" } else { "content-length: 0\r\n" };
                let answer = format!("HTTP/1.1 {status}\r\n{length}connection: close\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        })
        .await;
        let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
        let gateway = running.address;
        let key = fetch_key(gateway, BodyKem::X25519).await;
        for end in ENDS {
            let request = EncryptedRequest::seal(&key, end, &[REQUEST]);
            let head =
                request.head(CHAT, end).replacen("host: h", "host: h\r\nif-none-match: *", 1);
            let answer = request.send_head(gateway, &head, &request.frames).await;
            assert_eq!(answer.status(), wanted, "{status}: {answer:?}");
            assert_eq!(request.open(&answer).unwrap(), "", "{status}");
            let seen = received.recv().await.unwrap();
            assert!(seen.starts_with("post ") && !seen.contains("if-none-match"), "{seen}");
        }
    }
}

/// The head of a request with an encrypted body of 64 KiB, of which nothing has to be sent.
fn head_of_unsent_body(path: &str, fields: &str) -> String {
    let key = "5a".repeat(32);
    format!(
        "POST {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-type: application/json\r\n\
         ehbp-encapsulated-key: {key}\r\nconfide-body-end: final-frame\r\n{fields}\
         content-length: 65536\r\n\r\n"
    )
}

#[tokio::test]
async fn a_request_that_may_not_be_sent_is_refused_before_its_body_is_read() {
    let digest = ApiKeyDigest::of_key(b"k").to_hex();
    let keys = format!(
        "[[key]]\nname = \"a\"\nsha256 = \"{digest}\"\nrequests_per_minute = 2\n\
         routes = [\"POST {CHAT}\"]\n"
    );
    let authorizer = Arc::new(Authorizer::with_keys(KeySet::parse(&keys).unwrap(), || NOW));
    let (upstream, mut received) = recording_upstream().await;
    let limits = GatewayLimits::default();
    let running =
        gateway_with_options(upstream, limits, Arc::new(|| KEY), None, Some(authorizer)).await;
    let gateway = running.address;
    let (valid, wrong) = ("authorization: Bearer k\r\n", "authorization: Bearer other\r\n");
    for (path, fields, wanted) in [
        (CHAT, "", ("401", "invalid_api_key")),
        (CHAT, wrong, ("401", "invalid_api_key")),
        ("/upload", valid, ("403", "route_not_allowed_for_key")),
        ("/nowhere", valid, ("404", "route_not_allowed")),
    ] {
        let mut stream = TcpStream::connect(gateway).await.unwrap();
        stream.write_all(head_of_unsent_body(path, fields).as_bytes()).await.unwrap();
        // The body does not come, so an answer shows that nobody waits for it.
        let head = read_until(&mut stream, "\r\n\r\n").await;
        let length = field(&head, "content-length").expect("a refusal has a length");
        let mut body = vec![0; length.parse().unwrap()];
        finish_in_time(stream.read_exact(&mut body)).await.unwrap();
        let answer = Answer { head, body };
        assert_eq!(answer.clear_error(), (wanted.0, wanted.1.into()), "{path} {fields}");
    }
    // Both requests of the minute are left: each is charged once, and no refused one was.
    let key = fetch_key(gateway, BodyKem::X25519).await;
    for is_left in [true, true, false] {
        let request = EncryptedRequest::seal(&key, BodyEnd::FinalFrame, &[REQUEST]);
        let head = request.head(CHAT, request.end);
        let head = head.replacen("host: h\r\n", &format!("host: h\r\n{valid}"), 1);
        let answer = request.send_head(gateway, &head, &request.frames).await;
        match is_left {
            true => assert_eq!(request.open(&answer).unwrap(), ANSWER),
            false => assert_eq!(answer.clear_error(), ("429", "rate_limit_exceeded".into())),
        }
    }
    assert!(received.recv().await.is_some() && received.recv().await.is_some());
    assert!(received.try_recv().is_err(), "no model server saw the others");
}

#[tokio::test]
async fn malformed_fields_and_methods_without_a_body_are_refused() {
    let (upstream, _received) = recording_upstream().await;
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::X25519).await;
    let request = EncryptedRequest::seal(&key, BodyEnd::Unmarked, &[REQUEST]);
    let body = format!("\0\0\0\x20{}", "x".repeat(32));
    let value = request.sealer.encapsulated_key().to_hex();
    let invalid = "\"encrypted_body_invalid\"";
    for (line, wanted) in [
        (format!("ehbp-encapsulated-key: {value}\r\nehbp-encapsulated-key: {value}\r\n"), invalid),
        (format!("ehbp-encapsulated-key: {}\r\n", &value[2..]), invalid),
        (format!("ehbp-encapsulated-key: {}\r\n", "00".repeat(32)), invalid),
        (format!("ehbp-encapsulated-key: {value}\r\nconfide-body-end: later\r\n"), invalid),
    ] {
        let post = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{line}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = exchange(gateway, &post).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(wanted), "{line}: {answer}");
    }
    let bodiless = format!(
        "GET /v1/models HTTP/1.1\r\nhost: h\r\nconnection: close\r\nehbp-encapsulated-key: {value}\r\n\r\n"
    );
    let answer = exchange(gateway, &bodiless).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("encrypted_body_truncated"), "{answer}");
    let old = bodiless.replace("HTTP/1.1", "HTTP/1.0");
    assert!(exchange(gateway, &old).await.starts_with("HTTP/1.0 505 "));
}

#[tokio::test]
async fn the_key_is_served_for_ehbps_clients_and_is_that_of_the_keyset() {
    let (_closed, upstream) = closed_address();
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    let mut stream = TcpStream::connect(gateway).await.unwrap();
    stream.write_all(get("/.well-known/hpke-keys").as_bytes()).await.unwrap();
    let answer = Answer::read(&mut stream).await;
    assert!(answer.head.starts_with("HTTP/1.1 200 "), "{answer:?}");
    assert_eq!(field(&answer.head, "content-type"), Some("application/ohttp-keys"));
    let keys = parse_key_configs(&answer.body).unwrap();
    assert_eq!(keys, [fetch_key(gateway, BodyKem::X25519).await]);
    let post = get("/.well-known/hpke-keys").replace("GET", "POST");
    assert!(exchange(gateway, &post).await.starts_with("HTTP/1.1 405 "));
}

#[tokio::test]
async fn a_gateway_without_encrypted_bodies_serves_no_key() {
    let (_closed, upstream) = closed_address();
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    let gateway = gateway_with(configuration, GatewayLimits::default()).await;
    let answer = exchange(gateway.address, &get("/.well-known/hpke-keys")).await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}

#[tokio::test]
async fn an_answer_in_clear_has_no_field_that_claims_otherwise() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nEhbp-Response-Nonce: 00\r\n\
                  confide-body-end: final-frame\r\nx-kept: yes\r\n\r\nok";
    let upstream = upstream_saying(answer).await;
    let gateway = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let got = exchange(
        gateway.address,
        "GET /v1/models HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
    );
    let got = got.await.to_ascii_lowercase();
    assert!(got.contains("x-kept: yes") && got.ends_with("ok"), "{got}");
    assert!(!got.contains("ehbp-") && !got.contains("confide-body-end"), "{got}");
}

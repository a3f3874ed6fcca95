//! Receipts of answers: what is signed, who gets them, and how long.

use std::sync::atomic::{AtomicBool, Ordering};

use confide_channel::KeyIdentity;
use confide_evidence::{Attest, AttestError, ReportData};
use confide_receipt::{
    AttestationReport, CONFIGURATION_EVENT, FORWARDED_EVENT, Json, Nonce, RECEIVED_EVENT,
    RETURNED_EVENT, ReceiptError, SignedReceipt,
};

use super::*;
use crate::{
    limits::ReceiptLimits,
    receipt_book::ReceiptBook,
    receipt_service::ReceiptService,
    receipt_signer::{IdentitySource, ReceiptContext, ReceiptSigner},
};

pub(super) const NOW: u64 = 1_800_000_000;
const CONFIG_DIGEST: [u8; 32] = [3; 32];
pub(super) const KEY: KeyIdentity = KeyIdentity { spki_sha256: [7; 32], not_after: NOW + 3600 };
pub(super) const REQUEST: &str = r#"{"model":"m","messages":[],"temperature":0.5}"#;
const ANSWER: &str = r#"{"id":"chatcmpl-1","choices":[]}"#;

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

async fn gateway_with_receipts(upstream: SocketAddr, limits: GatewayLimits) -> RunningGateway {
    gateway_with_key(upstream, limits, Arc::new(|| KEY)).await
}

async fn gateway_with_key(
    upstream: SocketAddr,
    limits: GatewayLimits,
    identity: IdentitySource,
) -> RunningGateway {
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    gateway_of_context(configuration, direct_context(limits), identity).await
}

pub(super) async fn gateway_of_configuration(
    configuration: GatewayConfiguration,
) -> RunningGateway {
    let context = direct_context(GatewayLimits::default());
    gateway_of_context(configuration, context, Arc::new(|| KEY)).await
}

fn direct_context(limits: GatewayLimits) -> ReceiptContext {
    ReceiptContext {
        config_digest: CONFIG_DIGEST,
        weights: None,
        is_direct: true,
        checks_keys: false,
        encrypts_bodies: false,
        limits,
    }
}

async fn gateway_of_context(
    configuration: GatewayConfiguration,
    context: ReceiptContext,
    identity: IdentitySource,
) -> RunningGateway {
    let limits = context.limits;
    let book = Arc::new(ReceiptBook::new(|| NOW));
    let signer = Arc::new(ReceiptSigner::new(book, identity, context));
    let service = Arc::new(ReceiptService::new(signer, Arc::new(FakeAttester)));
    let proxy =
        Proxy::new(&configuration, true, limits).unwrap().with_receipts(Some(service), None);
    serve_proxy(proxy, limits, AdmissionLimits::default()).await
}

/// The identity of a key, and what makes it that of the next key.
pub(super) fn renewable_identity() -> (Arc<AtomicBool>, IdentitySource) {
    let has_new_key = Arc::new(AtomicBool::new(false));
    let is_new = has_new_key.clone();
    let identity = Arc::new(move || match is_new.load(Ordering::SeqCst) {
        false => KEY,
        true => KeyIdentity { spki_sha256: [8; 32], not_after: NOW + 7200 },
    });
    (has_new_key, identity)
}

pub(super) fn post(fields: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{fields}\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{REQUEST}",
        REQUEST.len()
    )
}

pub(super) fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{fields}\r\n")
}

/// The value of a field of a head, which has it once.
pub(super) fn field<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let start = format!("{name}: ");
    let mut values = answer.split("\r\n\r\n").next()?.lines();
    let found = values.find_map(|line| line.strip_prefix(start.as_str()));
    assert!(values.all(|line| !line.starts_with(&start)), "{name} twice: {answer}");
    found
}

pub(super) fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

pub(super) fn json_answer(fields: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{fields}content-length: {}\r\n\r\n{ANSWER}",
        ANSWER.len()
    )
}

pub(super) async fn upstream_answering(answer: String) -> SocketAddr {
    let answer: Arc<str> = answer.into();
    upstream(move |mut stream| {
        let answer = answer.clone();
        async move {
            read_until(&mut stream, REQUEST).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
    .await
}

async fn fetch_report(gateway: SocketAddr, nonce: Option<&Nonce>) -> AttestationReport {
    let query = nonce.map_or(String::new(), |nonce| format!("?nonce={}", hex::encode(nonce)));
    let answer = exchange(gateway, &get(&format!("/v1/aci/attestation{query}"), "")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(field(&answer, "cache-control"), Some("no-store"));
    let report = AttestationReport::parse(body(&answer).as_bytes(), nonce).unwrap();
    assert_eq!(report.quote()[1..], report.report_data().0, "the quote covers the keyset");
    assert_eq!(field(&answer, "x-aci-keyset-digest"), Some(report.keyset().digest()));
    report
}

pub(super) async fn fetch_receipt(gateway: SocketAddr, id: &str) -> SignedReceipt {
    let report = fetch_report(gateway, None).await;
    let answer = exchange(gateway, &get(&format!("/v1/aci/receipts/{id}"), "")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    SignedReceipt::verify(body(&answer).as_bytes(), report.keyset()).unwrap()
}

#[tokio::test]
async fn an_answer_has_a_receipt_over_its_bytes_and_those_of_its_request() {
    // What a server writes of such fields does not reach the client.
    let answer = json_answer("x-receipt-id: forged\r\nx-aci-version: aci/9\r\n");
    let gateway =
        gateway_with_receipts(upstream_answering(answer).await, GatewayLimits::default()).await;
    let got = exchange(gateway.address, &post("")).await;
    assert_eq!(body(&got), ANSWER);
    assert_eq!(field(&got, "x-aci-version"), Some("aci/1"));
    let id = field(&got, "x-receipt-id").unwrap();
    assert!(id.starts_with("rcpt-") && id.len() == 37, "{id}");
    let receipt = fetch_receipt(gateway.address, id).await;
    receipt.check_body(RECEIVED_EVENT, REQUEST.as_bytes()).unwrap();
    receipt.check_body(FORWARDED_EVENT, REQUEST.as_bytes()).unwrap();
    receipt.check_body(RETURNED_EVENT, ANSWER.as_bytes()).unwrap();
    assert!(!receipt.is_cut(RETURNED_EVENT));
    assert_eq!(receipt.served_at(), NOW);
    let text = |name| receipt.document().get_text(name);
    assert_eq!(text("receipt_id"), Some(id));
    assert_eq!((text("model"), text("chat_id")), (Some("m"), Some("chatcmpl-1")));
    assert_eq!((text("method"), text("endpoint")), (Some("POST"), Some("/v1/chat/completions")));
    let event = |kind| receipt.find_event(kind).unwrap();
    let digest = format!("sha256:{}", hex::encode(CONFIG_DIGEST));
    assert_eq!(event(CONFIGURATION_EVENT).get_text("config_digest"), Some(digest.as_str()));
    let sampling = event("confide.request").get("sampling").unwrap();
    assert_eq!(sampling, &Json::object([("temperature", "0.5".into())]));
    assert_eq!(event("confide.model").get_text("weights"), Some("not measured"));
    assert_eq!(event(RETURNED_EVENT).get("status"), Some(&Json::Integer(200)));
    // By the identifier in the answer, too.
    fetch_receipt(gateway.address, "chatcmpl-1").await;
}

#[tokio::test]
async fn the_secret_of_an_openable_receipt_reaches_no_model_server() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            saw.send(read_until(&mut stream, REQUEST).await).unwrap();
            stream.write_all(json_answer("").as_bytes()).await.unwrap();
        }
    })
    .await;
    let limits = GatewayLimits::default();
    let with_receipts = gateway_with_receipts(upstream, limits).await;
    let without = gateway(upstream, limits).await;
    for gateway in [&with_receipts, &without] {
        let request = post(&format!("x-receipt-secret: {}\r\n", "5a".repeat(32)));
        let answer = exchange(gateway.address, &request).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let forwarded = seen.recv().await.unwrap().to_ascii_lowercase();
        assert!(forwarded.starts_with("post ") && !forwarded.contains("5a5a"), "{forwarded}");
        assert!(!forwarded.contains("x-receipt-secret"), "{forwarded}");
    }
}

#[tokio::test]
async fn a_stream_has_a_receipt_over_its_raw_events() {
    let events = "data: {\"id\":\"chatcmpl-2\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n\
                  : ping\r\n\r\ndata: [DONE]\n\n";
    let chunks: String = events.as_bytes().chunks(7).fold(String::new(), |chunks, piece| {
        let piece = std::str::from_utf8(piece).unwrap();
        format!("{chunks}{:x}\r\n{piece}\r\n", piece.len())
    });
    let upstream = upstream_answering(format!("{CHUNKED}{chunks}{LAST_CHUNK}")).await;
    let gateway = gateway_with_receipts(upstream, GatewayLimits::default()).await;
    let got = exchange(gateway.address, &post("")).await;
    assert!(got.ends_with(LAST_CHUNK), "{got}");
    let receipt = fetch_receipt(gateway.address, field(&got, "x-receipt-id").unwrap()).await;
    receipt.check_body(RETURNED_EVENT, events.as_bytes()).unwrap();
    assert_eq!(receipt.document().get_text("chat_id"), Some("chatcmpl-2"));
    assert!(!receipt.is_cut(RETURNED_EVENT));
}

#[tokio::test]
async fn a_stream_that_is_cut_has_a_receipt_that_says_so() {
    let first = format!("{CHUNKED}9\r\ndata: 1\n\n\r\n");
    // The server dies.
    let upstream = upstream_answering(first.clone()).await;
    let gateway = gateway_with_receipts(upstream, GatewayLimits::default()).await;
    let got = exchange(gateway.address, &post("")).await;
    let receipt = fetch_receipt(gateway.address, field(&got, "x-receipt-id").unwrap()).await;
    assert!(receipt.is_cut(RETURNED_EVENT));
    receipt.check_body(RETURNED_EVENT, b"data: 1\n\n").unwrap();
    // The client leaves.
    let (upstream, _go_on) = stepping_upstream(&[&first, "9\r\ndata: 2\n\n\r\n"]).await;
    let gateway = gateway_with_receipts(upstream, GatewayLimits::default()).await;
    let mut client = ask(gateway.address, &post("")).await;
    let got = read_until(&mut client, "data: 1\n\n\r\n").await;
    drop(client);
    let path = format!("/v1/aci/receipts/{}", field(&got, "x-receipt-id").unwrap());
    let found = async {
        while !exchange(gateway.address, &get(&path, "")).await.starts_with("HTTP/1.1 200 ") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    finish_in_time(found).await;
    let receipt = fetch_receipt(gateway.address, path.rsplit('/').next().unwrap()).await;
    assert!(receipt.is_cut(RETURNED_EVENT));
}

#[tokio::test]
async fn a_running_answer_has_no_receipt_yet() {
    let first = format!("{CHUNKED}9\r\ndata: 1\n\n\r\n");
    let (upstream, go_on) = stepping_upstream(&[&first, LAST_CHUNK]).await;
    let gateway = gateway_with_receipts(upstream, GatewayLimits::default()).await;
    let mut client = ask(gateway.address, &post("")).await;
    let got = read_until(&mut client, "data: 1\n\n\r\n").await;
    let id = field(&got, "x-receipt-id").unwrap();
    let path = format!("/v1/aci/receipts/{id}");
    let early = exchange(gateway.address, &get(&path, "")).await;
    assert!(early.starts_with("HTTP/1.1 404 ") && early.contains("\"type\":\"not_found\""));
    go_on.send(()).unwrap();
    assert_eq!(read_to_end(&mut client).await, LAST_CHUNK);
    // A client that has read the end of the answer finds its receipt.
    fetch_receipt(gateway.address, id).await;
}

#[tokio::test]
async fn a_receipt_is_for_the_api_key_of_its_request() {
    let upstream = upstream_answering(json_answer("")).await;
    let gateway = gateway_with_receipts(upstream, GatewayLimits::default()).await;
    let got = exchange(gateway.address, &post("authorization: Bearer one\r\n")).await;
    let path = format!("/v1/aci/receipts/{}", field(&got, "x-receipt-id").unwrap());
    for (fields, status, kind) in [
        ("authorization: Bearer one\r\n", "200", ""),
        ("x-api-key: one\r\n", "200", ""),
        ("", "401", "\"type\":\"unauthorized\""),
        ("authorization: Basic one\r\n", "404", "\"type\":\"not_found\""),
        ("authorization: Bearer two\r\n", "404", "\"type\":\"not_found\""),
        ("authorization: Bearer one\r\nx-api-key: one\r\n", "404", "\"type\":\"not_found\""),
    ] {
        let answer = exchange(gateway.address, &get(&path, fields)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{fields}: {answer}");
        assert!(answer.contains(kind), "{answer}");
        assert_eq!(field(&answer, "x-aci-version"), Some("aci/1"));
    }
}

#[tokio::test]
async fn a_report_covers_the_nonce_of_whoever_asks() {
    let (_closed, upstream) = closed_address();
    let gateway = gateway_with_receipts(upstream, GatewayLimits::default()).await;
    let nonce = [9; 32];
    fetch_report(gateway.address, Some(&nonce)).await;
    let path = format!("/v1/aci/attestation?nonce={}", hex::encode(nonce));
    // One network gets one quote in a second; the report without a nonce costs none.
    let again = exchange(gateway.address, &get(&path, "")).await;
    assert!(again.starts_with("HTTP/1.1 429 ") && again.contains("retry-after: 1"), "{again}");
    fetch_report(gateway.address, None).await;
    fetch_report(gateway.address, None).await;
    let malformed = exchange(gateway.address, &get(&path[..path.len() - 1], "")).await;
    assert!(malformed.starts_with("HTTP/1.1 400 "), "{malformed}");
    assert!(malformed.contains("\"type\":\"invalid_request_error\""), "{malformed}");
}

#[tokio::test]
async fn only_answers_of_a_model_have_receipts() {
    let refused = "HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\noops";
    let gateway =
        gateway_with_receipts(upstream_answering(refused.into()).await, GatewayLimits::default())
            .await;
    let got = exchange(gateway.address, &post("")).await;
    let receipt = fetch_receipt(gateway.address, field(&got, "x-receipt-id").unwrap()).await;
    receipt.check_body(RETURNED_EVENT, b"oops").unwrap();
    let status = receipt.find_event(RETURNED_EVENT).unwrap().get("status");
    assert_eq!(status, Some(&Json::Integer(500)));
    for request in [
        get("/v1/aci/receipts/rcpt-0", ""),
        get("/v1/aci/sessions", ""),
        get("/nowhere", ""),
        post("").replace("POST /v1/chat/completions", "POST /v1/aci/attestation"),
    ] {
        let answer = exchange(gateway.address, &request).await;
        assert!(!answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(field(&answer, "x-receipt-id"), None, "{answer}");
        assert_eq!(field(&answer, "x-aci-version"), Some("aci/1"), "{answer}");
    }
}

#[tokio::test]
async fn a_gateway_without_receipts_knows_nothing_of_them() {
    let upstream = upstream_answering(json_answer("")).await;
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    let gateway = gateway_with(configuration, GatewayLimits::default()).await;
    let got = exchange(gateway.address, &post("")).await;
    assert_eq!((field(&got, "x-receipt-id"), field(&got, "x-aci-version")), (None, None));
    let answer = exchange(gateway.address, &get("/v1/aci/attestation", "")).await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}

#[tokio::test]
async fn a_report_is_given_for_the_keyset_of_an_earlier_receipt() {
    let (has_new_key, identity) = renewable_identity();
    let upstream = upstream_answering(json_answer("")).await;
    let limits = GatewayLimits { evidence_interval: Duration::ZERO, ..GatewayLimits::default() };
    let gateway = gateway_with_key(upstream, limits, identity).await;
    let got = exchange(gateway.address, &post("")).await;
    has_new_key.store(true, Ordering::SeqCst);
    let path = format!("/v1/aci/receipts/{}", field(&got, "x-receipt-id").unwrap());
    let receipt = exchange(gateway.address, &get(&path, "")).await;
    let current = fetch_report(gateway.address, None).await;
    let receipt = body(&receipt).as_bytes();
    let refused = SignedReceipt::verify(receipt, current.keyset());
    assert!(matches!(refused, Err(ReceiptError::OtherKeyset)));
    let digest = field(&got, "x-aci-keyset-digest").unwrap();
    let nonce = [6; 32];
    for (query, nonce) in [
        (format!("keyset={digest}"), None),
        (format!("nonce={}&keyset={digest}", hex::encode(nonce)), Some(&nonce)),
    ] {
        let path = format!("/v1/aci/attestation?{query}");
        let report = exchange(gateway.address, &get(&path, "")).await;
        let report = AttestationReport::parse(body(&report).as_bytes(), nonce).unwrap();
        SignedReceipt::verify(receipt, report.keyset()).unwrap();
    }
    let unknown = format!("/v1/aci/attestation?keyset=sha256:{}", "0".repeat(64));
    assert!(exchange(gateway.address, &get(&unknown, "")).await.starts_with("HTTP/1.1 404 "));
}

#[tokio::test]
async fn a_receipt_says_what_is_known_of_the_model_and_of_the_way_to_it() {
    let list = format!(r#"{{"data":[{{"confide_manifest_sha256":"{}"}}]}}"#, "ab".repeat(32));
    let upstream = upstream(move |mut stream| {
        let list = list.clone();
        async move {
            loop {
                let head = read_until(&mut stream, "\r\n\r\n").await;
                let body = match head.starts_with("GET ") {
                    _ if head.is_empty() => return,
                    true => list.as_str(),
                    false => ANSWER,
                };
                if !head.starts_with("GET ") {
                    read_until(&mut stream, REQUEST).await;
                }
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                     content-length: {length}\r\n\r\n{body}"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    })
    .await;
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    configuration.servers[0].model_manifest_sha256 = Some([0xab; 32]);
    let context = ReceiptContext {
        config_digest: CONFIG_DIGEST,
        weights: None,
        is_direct: false,
        checks_keys: false,
        encrypts_bodies: false,
        limits: GatewayLimits::default(),
    };
    let gateway = gateway_of_context(configuration, context, Arc::new(|| KEY)).await;
    let got = exchange(gateway.address, &post("")).await;
    let receipt = fetch_receipt(gateway.address, field(&got, "x-receipt-id").unwrap()).await;
    let event = |kind| receipt.find_event(kind).unwrap();
    let model = event("confide.model");
    assert_eq!(model.get_text("weights"), Some("stated by the model server"));
    assert_eq!(model.get_text("manifest_sha256"), Some("ab".repeat(32).as_str()));
    let hop = event("upstream.verified");
    assert_eq!((hop.get_text("result"), hop.get_text("model_id")), (Some("failed"), Some("m")));
    assert_eq!(hop.get("required"), Some(&Json::Bool(false)));
    assert!(hop.get_text("reason").unwrap().contains("on the attested machine"), "{hop:?}");
}

#[tokio::test]
async fn made_up_keys_take_the_places_of_their_address_only() {
    let receipts = ReceiptLimits { kept: 16, kept_per_client: 4, age: GENEROUS };
    let limits = GatewayLimits { receipts, ..GatewayLimits::default() };
    for (checks_keys, is_first_kept) in [(false, false), (true, true)] {
        let upstream = upstream_answering(json_answer("")).await;
        let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
        let configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
        let context = ReceiptContext {
            config_digest: CONFIG_DIGEST,
            weights: None,
            is_direct: true,
            checks_keys,
            encrypts_bodies: false,
            limits,
        };
        let gateway = gateway_of_context(configuration, context, Arc::new(|| KEY)).await;
        let mut first = None;
        for number in 0..5 {
            let key = format!("authorization: Bearer {number}\r\n");
            let got = exchange(gateway.address, &post(&key)).await;
            first.get_or_insert_with(|| field(&got, "x-receipt-id").unwrap().to_owned());
        }
        let path = format!("/v1/aci/receipts/{}", first.unwrap());
        let answer = exchange(gateway.address, &get(&path, "authorization: Bearer 0\r\n")).await;
        assert_eq!(answer.starts_with("HTTP/1.1 200 "), is_first_kept, "{checks_keys}: {answer}");
    }
}

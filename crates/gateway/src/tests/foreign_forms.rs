//! The forms of reports and signatures for the verifiers of other projects, checked by hand.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::{Engine, engine::general_purpose::STANDARD};
use confide_channel::{Server, ServerOptions};
use confide_evidence::{Attest, AttestError, EvidenceKind, ReportData};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    receipts::{
        KEY, NOW, REQUEST, body, field, get, json_answer, post, renewable_identity,
        upstream_answering,
    },
    *,
};
use crate::{
    receipt_book::ReceiptBook,
    receipt_service::ReceiptService,
    receipt_signer::{IdentitySource, ReceiptContext, ReceiptSigner},
};

const NONCE: [u8; 32] = [9; 32];
const ANSWER: &str = r#"{"id":"chatcmpl-1","choices":[]}"#;

/// An attester of a kind of machine, which counts its quotes. They hold report data alone.
struct CountingAttester {
    kind: EvidenceKind,
    quotes: Arc<AtomicUsize>,
}

impl Attest for CountingAttester {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        self.quotes.fetch_add(1, Ordering::SeqCst);
        Ok(match self.kind {
            EvidenceKind::TdxQuote => [&[4, 0, 2, 0, 0x81, 0, 0, 0], report_data.as_ref()].concat(),
            EvidenceKind::SnpReport => {
                let mut report = vec![0; 1184];
                report[0] = 2;
                report[0x50..0x90].copy_from_slice(report_data.as_ref());
                report
            }
            _ => [&[3, 0, 2, 0, 0, 0, 0, 0], report_data.as_ref()].concat(),
        })
    }

    fn collateral(&self) -> Option<Vec<u8>> {
        None
    }

    fn is_simulated(&self) -> bool {
        false
    }
}

/// A gateway on a kind of machine.
struct Machine {
    running: RunningGateway,
    /// SHA-256 of its TLS key.
    spki_sha256: [u8; 32],
    quotes: Arc<AtomicUsize>,
}

impl Machine {
    async fn start(kind: EvidenceKind, upstream: SocketAddr, interval: Duration) -> Self {
        Self::start_with_key(kind, upstream, interval, Arc::new(|| KEY)).await
    }

    async fn start_with_key(
        kind: EvidenceKind,
        upstream: SocketAddr,
        interval: Duration,
        identity: IdentitySource,
    ) -> Self {
        let spki_sha256 = identity().spki_sha256;
        Self::start_service(kind, upstream, interval, identity, spki_sha256, None).await
    }

    /// Starts a gateway with keys for encrypted bodies and a real TLS key, whose certificate is
    /// returned too.
    async fn start_encrypting(kind: EvidenceKind, interval: Duration) -> (Self, Vec<u8>) {
        let options = ServerOptions {
            binding: Binding::None,
            config_digest: [0; 32],
            guarantee: "none".into(),
            key_validity: Duration::from_secs(3600),
            deadline: GENEROUS,
            names: vec!["localhost".into()],
            weights: None,
        };
        let server = Arc::new(Server::new(options, None, || NOW).unwrap());
        let key = server.key_identity();
        let certificate = server.certificate_der();
        let (_closed, upstream) = closed_address();
        let identity = Arc::new(move || key);
        let machine =
            Self::start_service(kind, upstream, interval, identity, key.spki_sha256, Some(server));
        (machine.await, certificate)
    }

    async fn start_service(
        kind: EvidenceKind,
        upstream: SocketAddr,
        evidence_interval: Duration,
        identity: IdentitySource,
        spki_sha256: [u8; 32],
        server: Option<Arc<Server>>,
    ) -> Self {
        let limits = GatewayLimits { evidence_interval, ..GatewayLimits::default() };
        let context = ReceiptContext {
            config_digest: [3; 32],
            weights: None,
            is_direct: true,
            checks_keys: false,
            encrypts_bodies: server.is_some(),
            limits,
        };
        let book = Arc::new(ReceiptBook::new(|| NOW));
        let signer = Arc::new(ReceiptSigner::new(book, identity, context));
        let quotes = Arc::<AtomicUsize>::default();
        let attester = CountingAttester { kind, quotes: quotes.clone() };
        let mut service = ReceiptService::new(signer, Arc::new(attester));
        if let Some(server) = server {
            service = service.with_document_key(Arc::new(move || server.document_key()));
        }
        let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
        let configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
        let proxy = Proxy::new(&configuration, true, limits).unwrap();
        let proxy = proxy.with_receipts(Some(Arc::new(service)), None);
        let running = serve_proxy(proxy, limits, AdmissionLimits::default()).await;
        Self { running, spki_sha256, quotes }
    }

    async fn fetch(&self, path: &str) -> String {
        exchange(self.running.address, &get(path, "")).await
    }

    async fn fetch_json(&self, path: &str) -> Value {
        let answer = self.fetch(path).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(field(&answer, "cache-control"), Some("no-store"));
        serde_json::from_str(body(&answer)).unwrap()
    }

    fn quotes(&self) -> usize {
        self.quotes.load(Ordering::SeqCst)
    }
}

fn dstack_path(more: &str) -> String {
    let nonce = hex::encode(NONCE);
    format!("/v1/attestation/report?nonce={nonce}&signing_algo=ed25519{more}")
}

fn tinfoil_path() -> String {
    format!("/.well-known/tinfoil-attestation?nonce={}", hex::encode(NONCE))
}

fn decode_hex(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

fn assert_refused(answer: &str, status: u16, text: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert!(body(answer).contains(text), "{text}: {answer}");
}

#[tokio::test]
async fn dstacks_report_binds_address_tls_key_and_nonce() {
    let (_closed, upstream) = closed_address();
    let machine = Machine::start(EvidenceKind::TdxQuote, upstream, Duration::ZERO).await;
    for (more, has_tls_key) in [
        ("", false),
        ("&include_tls_fingerprint=false&model=m", false),
        ("&include_tls_fingerprint=true", true),
    ] {
        let report = machine.fetch_json(&dstack_path(more)).await;
        let address = decode_hex(&report["signing_address"]);
        let first = match has_tls_key {
            true => Sha256::digest([&address[..], &machine.spki_sha256].concat()).to_vec(),
            false => address.clone(),
        };
        let quote = decode_hex(&report["intel_quote"]);
        assert_eq!(quote[8..], [&first[..], &NONCE].concat(), "{more}");
        assert_eq!(decode_hex(&report["request_nonce"]), NONCE);
        assert_eq!(report["signing_algo"], "ed25519");
        assert_eq!(report["signing_public_key"], report["signing_address"]);
        let fingerprint = has_tls_key.then(|| hex::encode(machine.spki_sha256));
        assert_eq!(report["tls_cert_fingerprint"].as_str(), fingerprint.as_deref());
        assert_eq!(report["all_attestations"][0]["intel_quote"], report["intel_quote"]);
        // What a gateway does not know is not there.
        for name in ["event_log", "info", "nvidia_payload", "model_name"] {
            assert_eq!(report.get(name), None);
        }
    }
}

#[tokio::test]
async fn tinfoils_document_binds_tls_key_body_key_and_nonce() {
    for (kind, platform, at) in
        [(EvidenceKind::TdxQuote, "tdx", 8), (EvidenceKind::SnpReport, "sev-snp", 0x50)]
    {
        let (machine, certificate) = Machine::start_encrypting(kind, Duration::ZERO).await;
        let document = machine.fetch_json(&tinfoil_path()).await;
        assert_eq!(document["format"], "https://tinfoil.sh/predicate/attestation/v3");
        assert_eq!(document["cpu"]["platform"], platform);
        let bound = &document["report_data"];
        let [tls_key, hpke_key, nonce] =
            ["tls_key_fp", "hpke_key", "nonce"].map(|name| decode_hex(&bound[name]));
        assert_eq!((&tls_key[..], &nonce[..]), (&machine.spki_sha256[..], &NONCE[..]));
        let report = STANDARD.decode(document["cpu"]["report"].as_str().unwrap()).unwrap();
        let first = Sha256::digest([&tls_key[..], &hpke_key, &nonce].concat());
        assert_eq!(report[at..][..64], [&first[..], &[0; 32]].concat());
        let pem = document["certificate"].as_str().unwrap();
        let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        assert_eq!(STANDARD.decode(base64).unwrap(), certificate);
        // The body key is the one of the keyset, too.
        let report = machine.fetch_json("/v1/aci/attestation").await;
        let keys = &report["attestation"]["workload_keyset"]["e2ee_public_keys"];
        let keys = keys.as_array().unwrap();
        assert!(keys.iter().any(|key| key["public_key"] == bound["hpke_key"]), "{keys:?}");
    }
}

#[tokio::test]
async fn all_forms_share_the_one_report_of_an_interval() {
    let interval = Duration::from_secs(3600);
    let aci = format!("/v1/aci/attestation?nonce={}", hex::encode(NONCE));
    let paths = [dstack_path(""), tinfoil_path(), aci];
    for first in &paths {
        let (machine, _) = Machine::start_encrypting(EvidenceKind::TdxQuote, interval).await;
        machine.fetch_json(first).await;
        for second in &paths {
            let refused = machine.fetch(second).await;
            assert_refused(&refused, 429, "\"evidence_too_soon\"");
            assert_eq!(field(&refused, "retry-after"), Some("1"));
        }
        assert_eq!(machine.quotes(), 1, "after {first}");
    }
}

#[tokio::test]
async fn what_is_refused_costs_no_report() {
    let (_closed, upstream) = closed_address();
    let interval = Duration::from_secs(3600);
    let machine = Machine::start(EvidenceKind::TdxQuote, upstream, interval).await;
    let nonce = hex::encode(NONCE);
    let report = "/v1/attestation/report";
    for (path, status, text) in [
        (format!("{report}?nonce={nonce}"), 400, "no key for ecdsa"),
        (format!("{report}?nonce={nonce}&signing_algo=ecdsa"), 400, "no key for ecdsa"),
        (format!("{report}?signing_algo=ed25519"), 400, "wanted a nonce"),
        (dstack_path(&format!("&nonce={nonce}")), 400, "one nonce"),
        (dstack_path("&include_tls_fingerprint=yes"), 400, "include_tls_fingerprint"),
        (dstack_path(&format!("&signing_address={nonce}")), 404, "no such signing_address"),
        ("/v1/signature/chatcmpl-1".to_owned(), 400, "no key for ecdsa"),
        ("/v1/signature/chatcmpl-1?signing_algo=ecdsa".to_owned(), 400, "no key for ecdsa"),
        ("/v1/signature/chatcmpl-1?signing_algo=ed25519".to_owned(), 404, "\"not_found\""),
        (tinfoil_path(), 404, "no key for encrypted bodies"),
        ("/.well-known/tinfoil-attestation".to_owned(), 404, "no key for encrypted bodies"),
        (format!("{report}/more"), 404, "\"route_not_allowed\""),
    ] {
        assert_refused(&machine.fetch(&path).await, status, text);
    }
    let posted = post("").replace("/v1/chat/completions", &dstack_path(""));
    assert_refused(&exchange(machine.running.address, &posted).await, 405, "method_not_allowed");
    assert_eq!(machine.quotes(), 0);
    machine.fetch_json(&dstack_path("")).await;
    let (machine, _) = Machine::start_encrypting(EvidenceKind::TdxQuote, interval).await;
    let bare = machine.fetch("/.well-known/tinfoil-attestation").await;
    assert_refused(&bare, 400, "wanted a nonce");
    machine.fetch_json(&tinfoil_path()).await;
}

#[tokio::test]
async fn evidence_that_a_form_has_no_place_for_is_refused_by_name() {
    for (kind, paths) in [
        (EvidenceKind::SnpReport, vec![dstack_path("")]),
        (EvidenceKind::SgxQuote, vec![dstack_path(""), tinfoil_path()]),
    ] {
        for path in paths {
            let (machine, _) = Machine::start_encrypting(kind, Duration::ZERO).await;
            for _ in 0..2 {
                let refused = machine.fetch(&path).await;
                assert_refused(&refused, 501, "\"evidence_kind_unsupported\"");
            }
            assert_eq!(machine.quotes(), 1, "the kind is known after the first quote");
        }
    }
}

#[tokio::test]
async fn a_signature_is_over_the_digests_of_an_exchange_and_for_its_client() {
    let upstream = upstream_answering(json_answer("")).await;
    let machine = Machine::start(EvidenceKind::TdxQuote, upstream, Duration::ZERO).await;
    let gateway = machine.running.address;
    let got = exchange(gateway, &post("authorization: Bearer one\r\n")).await;
    let by_receipt = format!("/v1/signature/{}", field(&got, "x-receipt-id").unwrap());
    for path in [by_receipt.as_str(), "/v1/signature/chatcmpl-1"] {
        let path = format!("{path}?signing_algo=ed25519");
        for (fields, status) in
            [("", 401), ("authorization: Bearer two\r\n", 404), ("x-api-key: one\r\n", 200)]
        {
            let answer = exchange(gateway, &get(&path, fields)).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{fields}: {answer}");
            if status != 200 {
                assert!(!body(&answer).contains("signing_address"), "{answer}");
                continue;
            }
            let signed: Value = serde_json::from_str(body(&answer)).unwrap();
            let digests = [REQUEST, ANSWER].map(|text| hex::encode(Sha256::digest(text)));
            assert_eq!(signed["text"], digests.join(":"));
            assert_eq!(signed["signing_algo"], "ed25519");
            assert_eq!(signed["signature"].as_str().unwrap().len(), 128);
            let address = signed["signing_address"].as_str().unwrap();
            let path = dstack_path(&format!("&signing_address={address}"));
            assert_eq!(machine.fetch_json(&path).await["signing_address"], address);
        }
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_has_no_signature() {
    let upstream = upstream_answering(format!("{CHUNKED}9\r\ndata: 1\n\n\r\n")).await;
    let machine = Machine::start(EvidenceKind::TdxQuote, upstream, Duration::ZERO).await;
    let got = exchange(machine.running.address, &post("")).await;
    let id = field(&got, "x-receipt-id").unwrap();
    let answer = machine.fetch(&format!("/v1/signature/{id}?signing_algo=ed25519")).await;
    assert_refused(&answer, 404, "the answer was cut");
    machine.fetch_json(&format!("/v1/aci/receipts/{id}")).await;
}

#[tokio::test]
async fn an_earlier_address_has_reports_and_signs_nothing_any_more() {
    let (has_new_key, identity) = renewable_identity();
    let upstream = upstream_answering(json_answer("")).await;
    let machine =
        Machine::start_with_key(EvidenceKind::TdxQuote, upstream, Duration::ZERO, identity).await;
    exchange(machine.running.address, &post("")).await;
    let path = "/v1/signature/chatcmpl-1?signing_algo=ed25519";
    let early = machine.fetch_json(path).await["signing_address"].clone();
    has_new_key.store(true, Ordering::SeqCst);
    let late = machine.fetch_json(path).await["signing_address"].clone();
    assert_ne!(early, late, "a key ends with its TLS key");
    for (address, spki) in [(early, [7; 32]), (late, [8; 32])] {
        let address = address.as_str().unwrap();
        let more = format!("&include_tls_fingerprint=true&signing_address={address}");
        let report = machine.fetch_json(&dstack_path(&more)).await;
        assert_eq!(report["tls_cert_fingerprint"], hex::encode(spki));
        let address = hex::decode(address).unwrap();
        let first = Sha256::digest([&address[..], &spki].concat());
        assert_eq!(decode_hex(&report["intel_quote"])[8..40], first[..]);
    }
}

#[tokio::test]
async fn a_gateway_without_receipts_has_none_of_these_forms() {
    let upstream = upstream_answering(json_answer("")).await;
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    let gateway = gateway_with(configuration, GatewayLimits::default()).await;
    for path in [
        dstack_path(""),
        tinfoil_path(),
        "/v1/signature/chatcmpl-1?signing_algo=ed25519".to_owned(),
    ] {
        let answer = exchange(gateway.address, &get(&path, "")).await;
        assert_refused(&answer, 404, "\"route_not_allowed\"");
    }
}

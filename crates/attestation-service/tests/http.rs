//! The service over real sockets, with simulated evidence and with evidence under a root of its own.

// Its recipes are the verifier's; here only one is used.
#[allow(dead_code, reason = "the verifier's tests use the rest")]
#[path = "../../verifier/tests/own_pki/mod.rs"]
mod own_pki;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use confide_appraiser::PolicyAppraiser;
use confide_attestation_service::{
    OwnEvidence, PolicyEntry, PolicySet, ServiceError, ServiceLimits, ServiceOptions, SigningKey,
    serve,
};
use confide_evidence::{ReportData, binder::key_report_data, claims::Claims};
use confide_fake_attester::{FakeAttester, FakeAttesterOptions as FakeOptions, Mode, Tee};
use confide_verifier::Policy;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::oneshot,
};

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;

fn attester(debug: bool) -> FakeAttester {
    let options =
        FakeOptions { seed: [9; 32], tee: Tee::Tdx, debug, issued_at: NOW, mode: Mode::Raw };
    FakeAttester::new(options).expect("a simulated attester")
}

struct Running {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<Result<(), ServiceError>>,
    policy_text: String,
}

fn entry(text: &str) -> PolicyEntry {
    let policy = Policy::from_toml(text).expect("a policy");
    PolicyEntry {
        appraiser: Arc::new(PolicyAppraiser::new(policy, None, || NOW).expect("an appraiser")),
        sha256: Sha256::digest(text).into(),
    }
}

async fn start(limits: ServiceLimits) -> Running {
    let policy_text = attester(false).policy_toml();
    start_limited(limits, &[("fleet", &policy_text), ("real", "")]).await
}

async fn start_with(policies: &[(&str, &str)]) -> Running {
    start_limited(ServiceLimits::default(), policies).await
}

async fn start_limited(limits: ServiceLimits, policies: &[(&str, &str)]) -> Running {
    let policy_text = policies[0].1.to_owned();
    let entries = policies.iter().map(|(name, text)| ((*name).to_owned(), entry(text)));
    let own = OwnEvidence::new(Arc::new(attester(false)), [1; 32], "gateway only".into());
    let options = ServiceOptions {
        policies: PolicySet::new(entries).expect("policies"),
        key: SigningKey::generate().expect("a key"),
        issuer: "https://verifier.example".into(),
        audience: "fleet".into(),
        lifetime: Duration::from_secs(300),
        own_evidence: Some(own),
        limits,
        clock: || NOW,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(serve(listener, options, async move {
        let _ = stopped.await;
    }));
    Running { address, stop: Some(stop), task, policy_text }
}

impl Running {
    async fn ask(&self, method: Method, path: &str, body: String, h2: bool) -> (StatusCode, Bytes) {
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .http2_only(h2)
            .build_http::<Full<Bytes>>();
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .body(Full::new(Bytes::from(body)))
            .expect("a request");
        let response = client.request(request).await.expect("an answer");
        let status = response.status();
        let body = response.into_body().collect().await.expect("a whole body");
        (status, body.to_bytes())
    }

    async fn appraise(&self, body: &Value, h2: bool) -> (StatusCode, Value) {
        let (status, body) = self.ask(Method::POST, "/v1/appraise", body.to_string(), h2).await;
        (status, serde_json::from_slice(&body).expect("JSON"))
    }

    async fn key(&self) -> Value {
        let (status, body) =
            self.ask(Method::GET, "/.well-known/jwks.json", String::new(), false).await;
        assert_eq!(status, StatusCode::OK);
        serde_json::from_slice::<Value>(&body).expect("JSON")["keys"][0].clone()
    }

    async fn end(mut self) {
        self.stop.take().expect("it runs").send(()).expect("it listens");
        self.task.await.expect("no panic").expect("drained");
    }
}

fn request(fake: &FakeAttester, policy: &str) -> (Value, Vec<u8>) {
    request_until(fake, policy, NOW + 600)
}

fn request_until(fake: &FakeAttester, policy: &str, not_after: u64) -> (Value, Vec<u8>) {
    let claims = Claims {
        config_digest: [3; 32],
        gpu_evidence_hash: None,
        guarantee: "operator is outside the TEE".into(),
        nonce: None,
        not_after,
        not_before: NOW,
        pubkey_hash: [4; 32],
        weights: None,
    }
    .encode();
    let quote = fake.quote(&key_report_data(&claims));
    let endorsements: Value = serde_json::from_str(&fake.collateral_json()).expect("JSON");
    let body = json!({
        "evidence": URL_SAFE_NO_PAD.encode(&quote),
        "claims": URL_SAFE_NO_PAD.encode(&claims),
        "endorsements": endorsements,
        "policy_id": policy,
        "nonce": "bm9uY2Utb2YtdGhlLWNhbGxlcg",
    });
    (body, quote)
}

/// Verifies a token under a JWK and gives its claims.
fn verify_token(token: &str, jwk: &Value) -> Value {
    let (signed, signature) = token.rsplit_once('.').expect("three parts");
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).expect("base64url");
    let part = |name: &str| decode(jwk[name].as_str().expect("text"));
    let point = [&[4][..], &part("x"), &part("y")].concat();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .verify(signed.as_bytes(), &decode(signature))
        .expect("the published key signed it");
    let (header, claims) = signed.split_once('.').expect("two parts");
    let header: Value = serde_json::from_slice(&decode(header)).expect("JSON");
    assert_eq!(header["kid"], jwk["kid"]);
    serde_json::from_slice(&decode(claims)).expect("JSON")
}

#[tokio::test]
async fn a_result_names_nonce_evidence_policy_audience_and_lives_five_minutes_at_most() {
    let running = start(ServiceLimits::default()).await;
    let (body, quote) = request(&attester(false), "fleet");
    let jwk = running.key().await;
    for h2 in [false, true] {
        let (status, answer) = running.appraise(&body, h2).await;
        // It is simulated: see below.
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
        let claims = verify_token(answer["result"].as_str().expect("a token"), &jwk);
        assert_eq!(claims["eat_nonce"], body["nonce"]);
        assert_eq!(claims["aud"], "fleet");
        assert_eq!(claims["iat"], NOW);
        assert_eq!(claims["exp"], NOW + 300);
        let cpu = &claims["submods"]["cpu"];
        let hash = |bytes: &[u8]| json!(hex::encode(Sha256::digest(bytes)));
        assert_eq!(cpu["confide.evidence-sha256"], hash(&quote));
        assert_eq!(cpu["confide.policy-sha256"], hash(running.policy_text.as_bytes()));
        assert_eq!(cpu["confide.root"]["kind"], "custom");
        assert_eq!(cpu["confide.checks"]["quote_signature"], "passed");
    }
    running.end().await;
}

/// Issue: the service called simulated evidence `affirming`, `hardware: 2`, and its token did not
/// say that it is simulated.
#[tokio::test]
async fn simulated_evidence_is_contraindicated_whatever_the_policy_accepts() {
    let fake = attester(false);
    let pinned = fake.policy_toml_pinning([3; 32]);
    let roots = pinned.lines().find(|line| line.starts_with("roots")).expect("its root");
    // Not even as the operator's own.
    let own = format!("operator_{roots}\n{pinned}");
    let running = start_with(&[("pinned", &pinned), ("own", &own)]).await;
    let jwk = running.key().await;
    for policy in ["pinned", "own"] {
        let (status, answer) = running.appraise(&request(&fake, policy).0, false).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
        assert!(answer["reason"].as_str().expect("a reason").contains("simulated"), "{answer}");
        let claims = verify_token(answer["result"].as_str().expect("a token"), &jwk);
        let cpu = &claims["submods"]["cpu"];
        assert_eq!(cpu["ear.status"], "contraindicated", "{cpu}");
        assert_eq!(cpu["ear.trustworthiness-vector"], json!({ "hardware": 97 }));
        assert_eq!(cpu["confide.simulated"], true);
        assert_eq!(cpu["confide.operator-root"], false);
        assert_eq!(cpu["confide.scope"], "workload", "only the root is wanting: {cpu}");
    }
    running.end().await;
}

#[tokio::test]
async fn a_root_that_is_no_vendors_affirms_only_as_the_operators_own() {
    let made = own_pki::Recipe::default().make();
    let root = hex::encode(Sha256::digest(&made.root_der));
    let (aa, zero) = ("aa".repeat(48), "00".repeat(48));
    let policy = format!(
        "roots = [\"sha256:{root}\"]\n[workload.tdx]\nmrtd = \"{aa}\"\nrtmr0 = \"{zero}\"\n\
         rtmr1 = \"{zero}\"\nrtmr2 = \"{zero}\"\nrtmr3 = \"{zero}\"\n"
    );
    let own = format!("operator_roots = [\"sha256:{root}\"]\n{policy}");
    let running = start_with(&[("another", &policy), ("own", &own)]).await;
    let jwk = running.key().await;
    let endorsements: Value = serde_json::from_slice(&made.collateral).expect("JSON");
    for (policy, status, hardware) in [("another", "warning", 32), ("own", "affirming", 2)] {
        let body = json!({
            "evidence": URL_SAFE_NO_PAD.encode(&made.quote),
            "report_data": "00".repeat(64),
            "endorsements": endorsements,
            "policy_id": policy,
            "nonce": "bm9uY2Utb2YtdGhlLWNhbGxlcg",
        });
        let (code, answer) = running.appraise(&body, false).await;
        assert_eq!(code, StatusCode::OK, "{answer}");
        let claims = verify_token(answer["result"].as_str().expect("a token"), &jwk);
        let cpu = &claims["submods"]["cpu"];
        assert_eq!(cpu["ear.status"], status, "{cpu}");
        assert_eq!(cpu["ear.trustworthiness-vector"]["hardware"], hardware, "{cpu}");
        assert_eq!(cpu["confide.simulated"], false);
        assert_eq!(cpu["confide.operator-root"], policy == "own");
    }
    running.end().await;
}

#[test]
fn a_policy_that_can_affirm_nothing_is_named_at_the_start() {
    let root = "ab".repeat(32);
    let custom = format!("roots = [\"sha256:{root}\"]\n");
    let own = format!("{custom}operator_roots = [\"sha256:{root}\"]\n");
    let entries = [("vendors", ""), ("custom", custom.as_str()), ("own", own.as_str())];
    let policies = PolicySet::new(entries.map(|(name, text)| (name.to_owned(), entry(text))));
    assert_eq!(policies.expect("three policies").non_affirming_names(), ["custom"]);
}

#[tokio::test]
async fn what_is_refused_gets_a_contraindication_and_no_200() {
    let running = start(ServiceLimits::default()).await;
    let jwk = running.key().await;
    let debug = request(&attester(true), "fleet").0;
    let foreign_root = request(&attester(false), "real").0;
    for body in [debug, foreign_root] {
        let (status, answer) = running.appraise(&body, false).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
        let claims = verify_token(answer["result"].as_str().expect("a token"), &jwk);
        assert_eq!(claims["submods"]["cpu"]["ear.status"], "contraindicated");
        assert!(claims["submods"]["cpu"].get("ear.trustworthiness-vector").is_none());
    }
    running.end().await;
}

#[tokio::test]
async fn what_cannot_be_judged_gets_no_token_at_all() {
    let running = start(ServiceLimits { body_bytes: 64 * 1024, ..ServiceLimits::default() }).await;
    let good = request(&attester(false), "fleet").0;
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body
    };
    for (body, wanted) in [
        (with("policy_id", json!("nobody's")), StatusCode::NOT_FOUND),
        (with("evidence", json!("AQID")), StatusCode::BAD_REQUEST),
        (with("nonce", json!("short")), StatusCode::BAD_REQUEST),
        (with("policy", json!("roots = []")), StatusCode::BAD_REQUEST),
        (with("endorsements", Value::Null), StatusCode::BAD_REQUEST),
        (with("nonce", json!("n".repeat(100_000))), StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let (status, answer) = running.appraise(&body, false).await;
        assert_eq!(status, wanted, "{answer}");
        assert!(answer.get("result").is_none(), "{answer}");
        assert!(answer["error"]["message"].is_string());
    }
    let (status, _) = running.ask(Method::GET, "/v1/appraise", String::new(), false).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    let (status, _) = running.ask(Method::GET, "/policies", String::new(), false).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    for (method, path, h2, wanted) in [
        (Method::HEAD, "/health", false, StatusCode::OK),
        (Method::HEAD, "/health", true, StatusCode::OK),
        (Method::POST, "/health", true, StatusCode::METHOD_NOT_ALLOWED),
        (Method::GET, "/health/", true, StatusCode::NOT_FOUND),
    ] {
        let (status, _) = running.ask(method.clone(), path, String::new(), h2).await;
        assert_eq!(status, wanted, "{method} {path}");
    }
    let (_, text) = running.ask(Method::GET, "/metrics", String::new(), false).await;
    let text = String::from_utf8(text.to_vec()).expect("text");
    assert!(text.contains("confide_requests_total{outcome=\"no_policy\"} 1"), "{text}");
    running.end().await;
}

#[tokio::test]
async fn the_signing_key_is_bound_in_the_services_own_evidence() {
    let running = start(ServiceLimits::default()).await;
    let jwk = running.key().await;
    let own = &jwk["confide.evidence"];
    let decode =
        |name: &str| URL_SAFE_NO_PAD.decode(own[name].as_str().expect("text")).expect("base64url");
    let claims = decode("claims");
    let part = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str().expect("text")).expect("b64");
    // SubjectPublicKeyInfo of a P-256 key (RFC 5480), written out here a second time.
    let head = hex::decode("3059301306072a8648ce3d020106082a8648ce3d030107034200").expect("hex");
    let spki = [&head[..], &[4], &part("x"), &part("y")].concat();
    let named = Claims::decode(&claims).expect("claims");
    assert_eq!(named.pubkey_hash[..], Sha256::digest(spki)[..]);
    let quote = decode("evidence");
    let ReportData(bound) = key_report_data(&claims);
    assert!(quote.windows(64).any(|window| window == bound));
    assert_eq!(own["simulated"], true);
    running.end().await;
}

#[tokio::test]
async fn a_result_ends_with_the_claims_that_it_rests_on() {
    let running = start(ServiceLimits::default()).await;
    let (body, _) = request_until(&attester(false), "fleet", NOW + 100);
    let (status, answer) = running.appraise(&body, false).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    let claims = verify_token(answer["result"].as_str().expect("a token"), &running.key().await);
    assert_eq!((&claims["iat"], &claims["exp"]), (&json!(NOW), &json!(NOW + 100)));
    running.end().await;
}

#[tokio::test]
async fn bodies_of_all_requests_together_are_bounded() {
    let running = start(ServiceLimits { bodies_bytes: 1000, ..ServiceLimits::default() }).await;
    let body = request(&attester(false), "fleet").0;
    for h2 in [false, true] {
        let (status, answer) = running.appraise(&body, h2).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer["error"]["code"], "bodies_full");
    }
    // What they held is free again.
    let small = json!({ "evidence": "AQID", "policy_id": "none", "nonce": "12345678" });
    for _ in 0..20 {
        assert_eq!(running.appraise(&small, true).await.0, StatusCode::NOT_FOUND);
    }
    running.end().await;
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_again() {
    // No place at all to wait, and one to run: with many at once some are turned away.
    let limits = ServiceLimits { concurrent: 1, queued: 0, ..ServiceLimits::default() };
    let running = Arc::new(start(limits).await);
    let body = request(&attester(false), "fleet").0;
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (running, body) = (running.clone(), body.clone());
        asked.spawn(async move { running.appraise(&body, false).await.0 });
    }
    let statuses = asked.join_all().await;
    // Judged, and simulated.
    let judged = StatusCode::UNPROCESSABLE_ENTITY;
    assert!(statuses.contains(&judged), "{statuses:?}");
    let allowed = [judged, StatusCode::SERVICE_UNAVAILABLE];
    assert!(statuses.iter().all(|status| allowed.contains(status)), "{statuses:?}");
    assert!(statuses.contains(&StatusCode::SERVICE_UNAVAILABLE), "{statuses:?}");
    Arc::into_inner(running).expect("all have ended").end().await;
}

#[tokio::test]
async fn a_result_may_not_live_longer_than_five_minutes() {
    let fake = attester(false);
    let policy = Policy::from_toml(&fake.policy_toml()).expect("a policy");
    let appraiser = PolicyAppraiser::new(policy, None, || NOW).expect("an appraiser");
    let entry = PolicyEntry { appraiser: Arc::new(appraiser), sha256: [0; 32] };
    let options = ServiceOptions {
        policies: PolicySet::new([("p".to_string(), entry)]).expect("a policy"),
        key: SigningKey::generate().expect("a key"),
        issuer: String::new(),
        audience: String::new(),
        lifetime: Duration::from_secs(301),
        own_evidence: None,
        limits: ServiceLimits::default(),
        clock: || NOW,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let outcome = serve(listener, options, std::future::pending()).await;
    assert!(matches!(outcome, Err(ServiceError::Lifetime { wanted: 300, got: 301 })));
}

/// The holder is 127.0.0.2, the honest client 127.0.0.1.
#[tokio::test]
async fn one_address_that_holds_connections_does_not_lock_another_out() {
    let running = start(ServiceLimits { connections: 8, ..ServiceLimits::default() }).await;
    let mut held = Vec::new();
    for _ in 0..32 {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.2:0".parse().expect("an address")).expect("a loopback address");
        held.push(socket.connect(running.address).await.expect("it listens"));
    }
    for h2 in [false, true] {
        let path = "/.well-known/jwks.json";
        let asked = running.ask(Method::GET, path, String::new(), h2);
        let (status, _) =
            tokio::time::timeout(Duration::from_secs(60), asked).await.expect("at once");
        assert_eq!(status, StatusCode::OK);
    }
    drop(held);
    running.end().await;
}

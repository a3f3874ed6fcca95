//! A notary with simulated evidence, a client that verifies it, and servers that follow a script.

use std::{future::Future, net::SocketAddr, ops::RangeInclusive, sync::Arc, time::Duration};

use confide_channel::Binding;
use confide_client::{
    Connector, Endpoint, HttpClient, PolicyAppraiser, RequestBody, empty_body, whole_body,
};
use confide_disclosure::NotarisedSession;
use confide_fake_attester::{FakeAttester, FakeAttesterOptions as Simulated, Mode, Tee};
use confide_notary::{
    Admission, AdmissionLimits, AnswerReader, FETCH_PATH, FetchRequest, KEY_PATH, KeyEvidence,
    Notary, NotaryLimits, NotaryOptions, NotaryPolicy, Refusal, ServerRoots, StatementCheckError,
};
use confide_verifier::{Evidence, Policy};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Unix seconds of every clock here.
pub(crate) const NOW: u64 = 1_770_000_000;

/// Nothing here takes this long unless it hangs.
pub(crate) const GENEROUS: Duration = Duration::from_secs(60);

pub(crate) fn now() -> u64 {
    NOW
}

/// Little room, and the deadlines that a notary has.
pub(crate) fn small() -> NotaryLimits {
    NotaryLimits { response_bytes: 64 * 1024, request_bytes: 1024, ..NotaryLimits::default() }
}

/// Short enough for a test that waits for one of them, and wants nothing done in time.
pub(crate) fn short() -> NotaryLimits {
    let short = Duration::from_millis(300);
    NotaryLimits {
        tls: short,
        response_start: short,
        response_pause: short,
        exchange: Duration::from_secs(2),
        ..small()
    }
}

/// A root of servers' certificates.
pub(crate) struct Ca {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Certificate and key of a server, as files hold them.
    pub(crate) fn pem_for(&self, name: &str) -> (String, String) {
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// A server for `names` that speaks `alpn`.
    pub(crate) fn acceptor(&self, names: &[&str], alpn: &[&str]) -> TlsAcceptor {
        self.acceptor_of(names, alpn, |_| {})
    }

    pub(crate) fn acceptor_of(
        &self,
        names: &[&str],
        alpn: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> TlsAcceptor {
        let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let leaf: CertificateDer<'static> =
            params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![leaf], key)
                .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

pub(crate) type Stream = TlsStream<TcpStream>;

/// Runs `script` on each TLS connection; gives the port.
pub(crate) async fn server<F, R>(acceptor: TlsAcceptor, script: F) -> u16
where
    F: Fn(Stream) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, script) = (acceptor.clone(), script.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    script(stream).await;
                }
            });
        }
    });
    port
}

/// Reads a request's head, then answers with fixed bytes and closes.
pub(crate) async fn says(mut stream: Stream, answer: Arc<Vec<u8>>) {
    let _ = request_of(&mut stream).await;
    let _ = stream.write_all(&answer).await;
    let _ = stream.shutdown().await;
}

/// The bytes of a request without a body, or with one of `content-length`.
pub(crate) async fn request_of(stream: &mut Stream) -> Vec<u8> {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"\r\n\r\n") && stream.read(&mut byte).await.unwrap_or(0) == 1 {
        seen.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&seen).into_owned();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |digits| digits.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    [seen, body].concat()
}

/// A notary for `localhost:port`, which may dial 127.0.0.1. It ends with the value.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) attester: FakeAttester,
    clock: fn() -> u64,
    _stop: oneshot::Sender<()>,
}

pub(crate) async fn notary(ca: &Ca, port: u16, limits: NotaryLimits) -> Site {
    let text = format!(
        "hosts = [\"localhost:{port}\", \"127.0.0.1:{port}\"]\nroots = \"-\"\n\
         private_addresses = [\"127.0.0.1\"]"
    );
    notary_of(&text, ca, limits).await
}

pub(crate) async fn notary_of(policy: &str, ca: &Ca, limits: NotaryLimits) -> Site {
    notary_at(policy, ca, limits, now).await
}

/// A notary with a clock of its own, which its clients share.
pub(crate) async fn notary_at(
    policy: &str,
    ca: &Ca,
    limits: NotaryLimits,
    clock: fn() -> u64,
) -> Site {
    notary_with(policy, ca, limits, clock, AdmissionLimits::default()).await
}

/// A notary with limits on connections of its own.
pub(crate) async fn notary_with(
    policy: &str,
    ca: &Ca,
    limits: NotaryLimits,
    clock: fn() -> u64,
    admission: AdmissionLimits,
) -> Site {
    let attester = || {
        let (seed, issued_at) = ([1; 32], NOW - 60);
        let simulated = Simulated { seed, tee: Tee::Tdx, debug: false, issued_at, mode: Mode::Raw };
        FakeAttester::new(simulated).unwrap()
    };
    let options = NotaryOptions {
        binding: Binding::Key,
        key_validity: Duration::from_secs(3600),
        names: vec!["localhost".into()],
        policy: NotaryPolicy::from_toml(policy).unwrap().with_limits(limits),
        roots: ServerRoots::from_pem(ca.pem.as_bytes()).unwrap(),
    };
    let notary = Notary::new(options, Arc::new(attester()), clock).unwrap();
    let notary = notary.with_admission(Admission::new(admission));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(notary.serve(listener, async move { drop(stopped.await) }));
    Site { address, attester: attester(), clock, _stop: stop }
}

/// A client that has verified the notary.
pub(crate) struct Client {
    pub(crate) http: HttpClient,
    pub(crate) key: KeyEvidence,
    pub(crate) validity: RangeInclusive<u64>,
}

/// Why there is nothing to keep.
#[allow(dead_code, reason = "a failed test shows it")]
#[derive(Debug)]
pub(crate) enum Failure {
    /// The notary said so.
    Refused(String),
    /// The holder found out.
    Holder(StatementCheckError),
}

impl Site {
    pub(crate) async fn client(&self) -> Client {
        let policy = Policy::from_toml(&self.attester.dangerous_policy_toml()).unwrap();
        let appraiser = Arc::new(PolicyAppraiser::new(policy, None, self.clock).unwrap());
        let endpoint = Endpoint::parse(&format!("https://{}", self.address)).unwrap();
        let limits = confide_client::ClientLimits::default();
        let connector =
            Connector::with_appraiser(endpoint, None, Binding::Key, appraiser.clone(), limits)
                .unwrap();
        let http = HttpClient::new(connector, limits, self.clock);
        let (status, bytes) = send_and_read(&http, Request::get(KEY_PATH), empty_body()).await;
        assert_eq!(status, StatusCode::OK);
        let key = KeyEvidence::decode(&bytes).unwrap();
        let evidence = Evidence {
            quote: &key.evidence.quote,
            claims: Some(&key.evidence.claims),
            ..Evidence::default()
        };
        let appraised = appraiser.judge(&evidence, Some(&key.evidence.endorsements)).unwrap();
        let claims = appraised.verdict().claims().unwrap();
        assert_eq!(claims.pubkey_hash, key.spki_hash());
        let validity = claims.not_before..=claims.not_after;
        Client { http, key, validity }
    }
}

impl Client {
    pub(crate) fn get(&self, url: &str) -> FetchRequest {
        let fields = vec![("accept".into(), "*/*".into())];
        FetchRequest::new("GET", url, fields, Vec::new(), self.key.spki_hash()).unwrap()
    }

    pub(crate) fn post(&self, url: &str, body: &[u8]) -> FetchRequest {
        let fields = vec![
            ("authorization".into(), "Bearer made-up".into()),
            ("content-type".into(), "application/json".into()),
        ];
        FetchRequest::new("POST", url, fields, body.to_vec(), self.key.spki_hash()).unwrap()
    }

    pub(crate) async fn fetch(&self, request: &FetchRequest) -> Result<NotarisedSession, Failure> {
        let body = whole_body(request.encode().unwrap());
        let (status, bytes) = send_and_read(&self.http, Request::post(FETCH_PATH), body).await;
        if status != StatusCode::OK {
            let refusal: Refusal = serde_json::from_slice(&bytes).unwrap();
            return Err(Failure::Refused(refusal.code));
        }
        let mut reader = AnswerReader::default();
        let received = reader.push(&bytes).map(drop).and_then(|()| reader.finish());
        match received {
            Err(StatementCheckError::Refused(refusal)) => Err(Failure::Refused(refusal.code)),
            Err(error) => Err(Failure::Holder(error)),
            Ok(received) => {
                received.check(request, self.key.clone(), &self.validity).map_err(Failure::Holder)
            }
        }
    }

    /// The refusal's code.
    pub(crate) async fn fetch_refusal(&self, request: &FetchRequest) -> String {
        match self.fetch(request).await {
            Err(Failure::Refused(code)) => code,
            other => panic!("wanted a refusal, got {other:?}"),
        }
    }
}

pub(crate) async fn send_and_read(
    http: &HttpClient,
    request: http::request::Builder,
    body: RequestBody,
) -> (StatusCode, Vec<u8>) {
    let answer = tokio::time::timeout(GENEROUS, http.request(request.body(body).unwrap()));
    let response = answer.await.unwrap().unwrap().response;
    let status = response.status();
    let read = tokio::time::timeout(GENEROUS, response.into_body().collect()).await.unwrap();
    (status, read.unwrap().to_bytes().to_vec())
}

pub(crate) fn value<'a>(notarised: &'a NotarisedSession, path: &str) -> &'a str {
    let field = notarised.fields.iter().find(|field| field.path == path);
    let field = field.unwrap_or_else(|| panic!("{path} is no field"));
    std::str::from_utf8(&field.value).unwrap()
}

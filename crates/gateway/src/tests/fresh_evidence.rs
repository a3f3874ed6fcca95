//! Requests for fresh evidence on an open session, over TLS.

use std::sync::atomic::{AtomicBool, Ordering};

use confide_channel::{
    Client, ClientOptions, EVIDENCE_MEDIA_TYPE, EVIDENCE_PATH, LivePeer, SessionVersion,
};
use confide_evidence::{
    Appraise, Attest, AttestError, PresentedEvidence, ReportData, session_message::SessionMessage,
};
use tokio_rustls::client::TlsStream;

use super::*;
use crate::{Gateway, GatewayOptions};

/// The time of both ends, in Unix seconds.
const NOW: u64 = 1_800_000_000;

/// A quote is its report data.
#[derive(Default)]
struct FakeAttester {
    is_failing: AtomicBool,
}

impl Attest for FakeAttester {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        match self.is_failing.load(Ordering::SeqCst) {
            false => Ok(report_data.as_ref().to_vec()),
            true => Err(AttestError::Device { device: "fake".into(), reason: "told to".into() }),
        }
    }

    fn collateral(&self) -> Option<Vec<u8>> {
        None
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

#[derive(Debug, thiserror::Error)]
#[error("another report data")]
struct WrongReportData;

struct FakeAppraiser;

impl Appraise for FakeAppraiser {
    type Appraised = ();
    type Rejection = WrongReportData;

    fn appraise(&self, presented: &PresentedEvidence<'_>) -> Result<(), WrongReportData> {
        match presented.quote == presented.expected_report_data.as_ref() {
            true => Ok(()),
            false => Err(WrongReportData),
        }
    }
}

/// A client's end of a session with a gateway.
struct Session {
    stream: TlsStream<TcpStream>,
    live: Option<LivePeer>,
    attester: Arc<FakeAttester>,
}

impl Session {
    async fn open(binding: Binding, evidence_interval: Duration) -> Self {
        Self::open_with(binding, evidence_interval, None).await
    }

    async fn open_with(
        binding: Binding,
        evidence_interval: Duration,
        version: Option<SessionVersion>,
    ) -> Self {
        let upstream = Upstream::parse("http://127.0.0.1:1").unwrap();
        let options = GatewayOptions {
            configuration: GatewayConfiguration::with_upstream(binding, upstream),
            key_validity: Duration::from_secs(3600),
            limits: GatewayLimits { evidence_interval, ..GatewayLimits::default() },
            names: vec!["localhost".into()],
            session_tickets: false,
        };
        let attester = Arc::new(FakeAttester::default());
        let gateway = Gateway::new(options, Some(attester.clone()), || NOW).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        tokio::spawn(gateway.serve(listener, std::future::pending()));
        let options = ClientOptions { binding, deadline: GENEROUS };
        let mut client = Client::new(options, Arc::new(FakeAppraiser)).unwrap();
        if let Some(version) = version {
            client = client.with_session_versions(&[version]).unwrap();
        }
        let mut attested = finish_in_time(client.connect("localhost", tcp)).await.unwrap();
        let live = attested.take_live_peer();
        Self { stream: attested.into_parts().0, live, attester }
    }

    /// Sends a request to the path of fresh evidence. Returns the head of the answer and its body.
    async fn ask(&mut self, method: &str, body: &[u8]) -> (String, Vec<u8>) {
        let length = body.len();
        let head = format!(
            "{method} {EVIDENCE_PATH} HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n"
        );
        self.stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        let head = read_until(&mut self.stream, "\r\n\r\n").await;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        finish_in_time(self.stream.read_exact(&mut body)).await.unwrap();
        (head, body)
    }

    /// Asks for fresh evidence and appraises it.
    async fn renew(&mut self) -> bool {
        let request = self.live.as_ref().unwrap().request_evidence().unwrap();
        let (head, reply) = self.ask("POST", &request.encode()).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains(&format!("content-type: {EVIDENCE_MEDIA_TYPE}\r\n")), "{head}");
        assert!(head.contains("cache-control: no-store\r\n"), "{head}");
        let live = self.live.as_ref().unwrap();
        live.appraise_reply(request, &reply, &FakeAppraiser).is_ok()
    }

    async fn assert_refused(&mut self, method: &str, body: &[u8], status: &str, code: &str) {
        let (head, answer) = self.ask(method, body).await;
        let answer = String::from_utf8(answer).unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}{answer}");
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{answer}");
        let is_transient = ["429", "503"].contains(&status);
        assert_eq!(head.contains("retry-after: 1\r\n"), is_transient, "{head}");
    }
}

fn message() -> Vec<u8> {
    SessionMessage::Request { context: Some([7; 32]) }.encode()
}

#[tokio::test]
async fn an_open_session_shows_fresh_evidence_that_belongs_to_it() {
    for version in SessionVersion::ALL {
        let open = || Session::open_with(Binding::Session, Duration::ZERO, Some(version));
        let mut session = open().await;
        assert!(session.renew().await);
        assert!(session.renew().await);
        let mut other = open().await;
        std::mem::swap(&mut session.live, &mut other.live);
        assert!(!session.renew().await);
    }
}

#[tokio::test]
async fn evidence_of_a_moment_ago_is_not_made_again() {
    let mut session = Session::open(Binding::Session, GENEROUS).await;
    session.assert_refused("POST", &message(), "429", "evidence_too_soon").await;
}

#[tokio::test]
async fn what_is_no_request_for_evidence_is_refused_and_the_session_goes_on() {
    let mut session = Session::open(Binding::Session, Duration::ZERO).await;
    let without_context = SessionMessage::Request { context: None }.encode();
    for body in [&b""[..], b"{}", &without_context, &[0; 65]] {
        session.assert_refused("POST", body, "400", "bad_evidence_request").await;
    }
    session.assert_refused("GET", b"", "405", "method_not_allowed").await;
    session.attester.is_failing.store(true, Ordering::SeqCst);
    session.assert_refused("POST", &message(), "503", "evidence_unavailable").await;
    session.attester.is_failing.store(false, Ordering::SeqCst);
    assert!(session.renew().await);
}

#[tokio::test]
async fn only_session_binding_has_fresh_evidence() {
    let mut session = Session::open(Binding::Key, Duration::ZERO).await;
    assert!(session.live.is_none());
    session.assert_refused("POST", &message(), "404", "no_fresh_evidence").await;
}

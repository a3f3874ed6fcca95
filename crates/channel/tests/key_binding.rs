//! Evidence in the certificate: what is accepted, and what is refused by which error.

mod fakes;

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use confide_channel::{
    AttestedServerStream, Binding, CERTIFICATE_BYTES_MAX, ChannelError, ChannelPhase, Client,
    ClientOptions, ErrorOrigin, Server, ServerOptions,
};
use confide_evidence::{
    Attest, AttestError, ReportData,
    binder::{Role, key_report_data, session_report_data},
    claims::{Claims, ClaimsError},
    tagged_evidence::{COLLATERAL_BYTES_MAX, TaggedEvidence, TaggedEvidenceError},
};
use fakes::*;
use rcgen::{CertificateParams, CustomExtension, KeyPair, PublicKeyData};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const EVIDENCE_OID: [u64; 6] = [2, 23, 133, 5, 4, 9];

#[tokio::test]
async fn endorsements_that_a_device_gives_beside_its_first_quote_are_stapled() {
    /// An attester like an SNP guest: the host's certificate table comes with a report.
    #[derive(Default)]
    struct Table(AtomicU64);

    impl Attest for Table {
        fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(quote(report_data))
        }

        fn collateral(&self) -> Option<Vec<u8>> {
            (self.0.load(Ordering::SeqCst) > 0).then(|| b"{}".to_vec())
        }

        fn is_simulated(&self) -> bool {
            true
        }
    }

    let attester = Arc::new(Table::default());
    let server = Server::new(server_options(Binding::Key), Some(attester), clock).unwrap();
    let client = client(Binding::Key);
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    accepted.unwrap();
    assert_eq!(attested.unwrap().appraisal().collateral.as_deref(), Some(&b"{}"[..]));
}

#[tokio::test]
async fn a_stream_comes_with_what_was_accepted() {
    let attester = FakeAttester { collateral: Some(b"{}".to_vec()), ..Default::default() };
    let server = server_with(Binding::Key, LONG, attester);
    let client = client(Binding::Key);
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    let (accepted, attested) = (accepted.unwrap(), attested.unwrap());
    assert_eq!(attested.appraisal().claims.config_digest, [5; 32]);
    assert_eq!(attested.appraisal().collateral.as_deref(), Some(&b"{}"[..]));
    assert_eq!(attested.timings().round_trips, 2);
    assert_eq!(accepted.timings.round_trips, 2);
    let claims = &attested.appraisal().claims;
    assert_eq!(claims.not_after - claims.not_before, 3600);
    let (stream, ..) = attested.into_parts();
    echo(stream, accepted.stream).await;
}

#[tokio::test]
async fn it_works_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    let (server, client) = (server(Binding::Key), client(Binding::Key));
    let (attested, accepted) = tokio::join!(client.connect("127.0.0.1", near), server.accept(far));
    echo(attested.unwrap().into_parts().0, accepted.unwrap().stream).await;
}

#[tokio::test]
async fn no_ticket_is_sent_and_nothing_is_resumed() {
    let (server, client) = (server(Binding::Key), client(Binding::Key));
    for _ in 0..2 {
        let (near, far) = wire();
        let (attested, accepted) =
            tokio::join!(client.connect("localhost", near), server.accept(far));
        let (mut near, ..) = attested.unwrap().into_parts();
        let mut far = accepted.unwrap().stream;
        // Tickets would come before these bytes.
        far.write_all(b"x").await.unwrap();
        far.flush().await.unwrap();
        near.read_u8().await.unwrap();
        let session = near.get_ref().1;
        assert_eq!(session.tls13_tickets_received(), 0);
        assert_eq!(session.handshake_kind(), Some(rustls::HandshakeKind::Full));
        assert_eq!(session.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    }
}

#[tokio::test]
async fn a_tls_1_2_client_is_refused() {
    let server = server(Binding::Key);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let (near, far) = wire();
    let name = "localhost".try_into().unwrap();
    let connecting = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, near);
    let (connected, accepted) = tokio::join!(connecting, server.accept(far));
    assert!(connected.is_err());
    assert!(matches!(accepted, Err(ChannelError::Tls(rustls::Error::PeerIncompatible(_)))));
}

#[tokio::test]
async fn a_certificate_on_another_key_is_refused() {
    let victim = server(Binding::Key);
    let thief = Forger::new();
    let error = thief.serve(victim.certificate_der().into()).await;
    assert!(matches!(error, ChannelError::Tls(rustls::Error::InvalidCertificate(_))), "{error:?}");
}

#[tokio::test]
async fn evidence_copied_into_another_certificate_is_refused() {
    let attester = FakeAttester::default();
    let claims = claims([1; 32]).encode();
    let quote = attester.attest(&key_report_data(&claims)).unwrap();
    let thief = Forger::new();
    let error = thief.serve(thief.certificate(&[&evidence(&quote, &claims)])).await;
    assert!(matches!(error, ChannelError::KeyMismatch { claims: [1, ..], .. }), "{error:?}");
    assert_eq!(error.origin(), ErrorOrigin::Peer);
}

#[tokio::test]
async fn swapped_claims_are_rejected_by_their_report_data() {
    let attester = FakeAttester::default();
    let signed = claims([1; 32]).encode();
    let quote = attester.attest(&key_report_data(&signed)).unwrap();
    let thief = Forger::new();
    let swapped = claims(thief.spki_hash()).encode();
    let error = thief.serve(thief.certificate(&[&evidence(&quote, &swapped)])).await;
    assert_eq!(error.rejection(), Some(&FakeRejection::ReportData));
    assert_eq!(error.origin(), ErrorOrigin::Evidence);
}

#[tokio::test]
async fn a_genuine_quote_over_nothing_is_rejected() {
    let thief = Forger::new();
    let claims = claims(thief.spki_hash()).encode();
    let evidence = evidence(&quote(&ReportData::ZERO), &claims);
    let error = thief.serve(thief.certificate(&[&evidence])).await;
    assert_eq!(error.rejection(), Some(&FakeRejection::ReportData));
}

#[tokio::test]
async fn expired_claims_are_for_the_appraiser_to_decide() {
    let server = server(Binding::Key);
    let appraiser = FakeAppraiser { now: Some(NOW + 4000), ..Default::default() };
    let options = ClientOptions { binding: Binding::Key, deadline: LONG };
    let client = Client::new(options, Arc::new(appraiser)).unwrap();
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    assert_eq!(attested.unwrap_err().rejection(), Some(&FakeRejection::Validity));
    // The client ends the session in order: the server reads an end, not a break.
    let mut stream = accepted.unwrap().stream;
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_certificate_without_evidence_or_with_two_is_refused() {
    let thief = Forger::new();
    let error = thief.serve(thief.certificate(&[])).await;
    assert!(matches!(error, ChannelError::Extension { got: 0, .. }), "{error:?}");
    let claims = claims(thief.spki_hash()).encode();
    let good = evidence(&quote(&key_report_data(&claims)), &claims);
    let error = thief.serve(thief.certificate(&[&good, &good])).await;
    assert!(matches!(error, ChannelError::Extension { got: 2, .. }), "{error:?}");
}

#[tokio::test]
async fn unreadable_evidence_and_claims_are_refused() {
    let thief = Forger::new();
    let error = thief.serve(thief.certificate(&[b"\x00"])).await;
    assert!(matches!(error, ChannelError::Tagged(TaggedEvidenceError::Tag { .. })), "{error:?}");
    let error = thief.serve(thief.certificate(&[&evidence(b"quote", b"\xa0")])).await;
    assert!(matches!(error, ChannelError::Claims(_)), "{error:?}");
}

#[tokio::test]
async fn a_truncated_stream_is_an_error_to_its_reader() {
    let (server, client) = (server(Binding::Key), client(Binding::Key));
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    let mut stream = accepted.unwrap().stream;
    stream.write_all(b"half an answ").await.unwrap();
    stream.flush().await.unwrap();
    drop(stream);
    let mut got = Vec::new();
    let read = attested.unwrap().into_parts().0.read_to_end(&mut got).await;
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_ends_in_a_timeout_that_names_the_handshake() {
    let (near, _silent) = wire();
    let error = client_within(Binding::Key, SHORT).connect("localhost", near).await.unwrap_err();
    assert!(
        matches!(error, ChannelError::Timeout { phase: ChannelPhase::Handshake, .. }),
        "{error:?}"
    );
    let (_silent, far) = wire();
    let server = server_with(Binding::Key, SHORT, FakeAttester::default());
    let error = server.accept(far).await.unwrap_err();
    assert!(
        matches!(error, ChannelError::Timeout { phase: ChannelPhase::Handshake, .. }),
        "{error:?}"
    );
    assert_eq!(error.origin(), ErrorOrigin::Network);
}

#[tokio::test]
async fn a_stream_that_ends_in_the_handshake_is_named() {
    let (near, far) = wire();
    drop(far);
    let error = client(Binding::Key).connect("localhost", near).await.unwrap_err();
    let named = matches!(
        error,
        ChannelError::UnexpectedEnd { phase: ChannelPhase::Handshake }
            | ChannelError::Io { phase: ChannelPhase::Handshake, .. }
    );
    assert!(named, "{error:?}");
}

#[tokio::test]
async fn a_key_is_renewed_before_its_end_and_never_kept() {
    static TIME: AtomicU64 = AtomicU64::new(NOW);
    let attester = Arc::new(FakeAttester::default());
    let time = || TIME.load(Ordering::SeqCst);
    let server = Server::new(server_options(Binding::Key), Some(attester.clone()), time).unwrap();
    let first = connect(&server).await;

    TIME.store(NOW + 2500, Ordering::SeqCst);
    let due = connect(&server).await;
    assert_eq!(due, first, "the present key is served while the next one is made");
    while attester.made.load(Ordering::SeqCst) < 2 || server.certificate_der() == first {
        tokio::task::yield_now().await;
    }
    let second = connect(&server).await;
    assert_ne!(spki(&second), spki(&first));

    TIME.store(NOW + 20_000, Ordering::SeqCst);
    let third = connect(&server).await;
    assert_ne!(spki(&third), spki(&second), "an ended key is not served");
}

#[tokio::test(start_paused = true)]
async fn an_ended_key_is_not_served_and_its_broken_device_is_asked_once_in_a_while() {
    static TIME: AtomicU64 = AtomicU64::new(NOW);
    let attester = Arc::new(FakeAttester::default());
    let time = || TIME.load(Ordering::SeqCst);
    let server = Server::new(server_options(Binding::Key), Some(attester.clone()), time).unwrap();
    attester.failing.store(true, Ordering::SeqCst);
    TIME.store(NOW + 40_000, Ordering::SeqCst);
    for _ in 0..3 {
        let error = server.accept(wire().1).await.unwrap_err();
        let ChannelError::KeyEnded { source } = &error else { panic!("{error:?}") };
        assert!(matches!(**source, ChannelError::Attester(_)), "{source:?}");
        assert_eq!(error.origin(), ErrorOrigin::Local);
    }
    assert_eq!(attester.made.load(Ordering::SeqCst), 2, "one at the start, one for all three");
    assert_eq!(server.renewal_failures(), 1);

    tokio::time::advance(Duration::from_secs(6)).await;
    attester.failing.store(false, Ordering::SeqCst);
    attester.panicking.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let error = server.accept(wire().1).await.unwrap_err();
        let ChannelError::KeyEnded { source } = &error else { panic!("{error:?}") };
        assert!(matches!(**source, ChannelError::AttesterTask), "{source:?}");
    }
    assert_eq!(server.renewal_failures(), 2, "a panic is a failure like any other");

    tokio::time::advance(Duration::from_secs(6)).await;
    attester.panicking.store(false, Ordering::SeqCst);
    connect(&server).await;
}

#[tokio::test]
async fn a_clock_that_goes_back_gets_a_new_key() {
    static TIME: AtomicU64 = AtomicU64::new(NOW);
    let attester = Arc::new(FakeAttester::default());
    let time = || TIME.load(Ordering::SeqCst);
    let server = Server::new(server_options(Binding::Key), Some(attester), time).unwrap();
    let first = connect(&server).await;
    TIME.store(NOW - 1000, Ordering::SeqCst);
    assert_ne!(spki(&connect(&server).await), spki(&first));
}

#[tokio::test]
async fn connections_that_come_together_after_the_end_share_one_renewal() {
    static TIME: AtomicU64 = AtomicU64::new(NOW);
    let takes = Duration::from_millis(20);
    let attester = Arc::new(FakeAttester { takes, ..Default::default() });
    let time = || TIME.load(Ordering::SeqCst);
    let server = Server::new(server_options(Binding::Key), Some(attester.clone()), time).unwrap();
    TIME.store(NOW + 20_000, Ordering::SeqCst);
    let served = futures_util::future::join_all((0..16).map(|_| connect(&server))).await;
    assert!(served.iter().all(|certificate| *certificate == served[0]));
    assert_eq!(attester.made.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_certificate_just_under_its_limit_passes() {
    let collateral = Some(vec![b' '; CERTIFICATE_BYTES_MAX - 900]);
    let attester = FakeAttester { collateral, ..Default::default() };
    let server = server_with(Binding::Key, LONG, attester);
    let len = server.certificate_der().len();
    assert!((CERTIFICATE_BYTES_MAX - 400..CERTIFICATE_BYTES_MAX).contains(&len), "{len}");
    connect(&server).await;
}

#[tokio::test]
async fn a_compressed_certificate_is_shorter_on_the_wire_and_appraised_just_the_same() {
    // It repeats itself, as chains of certificates in JSON do.
    let collateral = br#"{"pck_crl":"3082"}"#.repeat(800);
    let attester = FakeAttester { collateral: Some(collateral.clone()), ..Default::default() };
    let server = server_with(Binding::Key, LONG, attester);
    let certificate = server.certificate_der();

    let (near, far) = wire();
    let (far, sent) = CountingStream::new(far);
    let client = client(Binding::Key);
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    accepted.unwrap();
    let attested = attested.unwrap();
    assert_eq!(attested.appraisal().collateral.as_ref(), Some(&collateral));
    let compressed = sent.load(Ordering::SeqCst);
    assert!(compressed < certificate.len() / 2, "{compressed} of {}", certificate.len());
    let session = attested.into_parts().0;
    assert_eq!(session.get_ref().1.peer_certificates().unwrap()[0].as_ref(), certificate);

    // A client without RFC 8879 gets the certificate as it is.
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(cheat::AnyCertificate))
        .with_no_client_auth();
    config.cert_decompressors = Vec::new();
    let (near, far) = wire();
    let (far, sent) = CountingStream::new(far);
    let name = "localhost".try_into().unwrap();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, near);
    let (connected, accepted) = tokio::join!(connecting, server.accept(far));
    accepted.unwrap();
    let session = connected.unwrap();
    assert_eq!(session.get_ref().1.peer_certificates().unwrap()[0].as_ref(), certificate);
    assert!(sent.load(Ordering::SeqCst) > certificate.len());
}

/// A stream that counts the bytes written to it.
struct CountingStream {
    io: DuplexStream,
    written: Arc<AtomicUsize>,
}

impl CountingStream {
    fn new(io: DuplexStream) -> (Self, Arc<AtomicUsize>) {
        let written = Arc::<AtomicUsize>::default();
        (Self { io, written: written.clone() }, written)
    }
}

impl AsyncRead for CountingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for CountingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let length = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.written.fetch_add(length, Ordering::SeqCst);
        Poll::Ready(Ok(length))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn a_quote_over_a_session_is_not_one_over_a_key() {
    let thief = Forger::new();
    let (hash, claims) = (thief.spki_hash(), claims(thief.spki_hash()).encode());
    let session = quote(&session_report_data(Role::Server, &hash, &[0; 32], &claims));
    let error = thief.serve(thief.certificate(&[&evidence(&session, &claims)])).await;
    assert_eq!(error.rejection(), Some(&FakeRejection::ReportData));
}

#[tokio::test]
async fn a_server_of_session_binding_is_refused() {
    let (server, client) = (server(Binding::Session), client(Binding::Key));
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    assert!(matches!(attested, Err(ChannelError::Tls(rustls::Error::AlertReceived(_)))));
    assert!(matches!(accepted, Err(ChannelError::Tls(_))));
}

#[tokio::test]
async fn a_deadline_that_no_clock_can_hold_is_no_panic() {
    let server = server_with(Binding::Key, Duration::MAX, FakeAttester::default());
    let client = client_within(Binding::Key, Duration::MAX);
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    assert!(attested.is_ok() && accepted.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_drips_ends_in_the_same_timeout() {
    let server = server_with(Binding::Key, SHORT, FakeAttester::default());
    let (mut near, far) = wire();
    // The header of a handshake record, then its content byte by byte.
    near.write_all(&[0x16, 0x03, 0x01, 0x40, 0x00, 0x01, 0x00, 0x3f, 0xfc]).await.unwrap();
    let dripping = async {
        while near.write_all(&[0]).await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    let (accepted, ()) = tokio::join!(async { server.accept(far).await.map(drop) }, dripping,);
    let error = accepted.unwrap_err();
    assert!(
        matches!(error, ChannelError::Timeout { phase: ChannelPhase::Handshake, .. }),
        "{error:?}"
    );
}

#[test]
fn options_out_of_bounds_are_refused() {
    let attester = || Some(Arc::new(FakeAttester::default()) as Arc<dyn Attest>);
    let none = Server::new(server_options(Binding::Key), None, clock).err();
    assert!(matches!(none, Some(ChannelError::NoAttester { binding: "key" })));
    let key_validity = Duration::from_millis(999);
    let options = ServerOptions { key_validity, ..server_options(Binding::Key) };
    let short = Server::new(options, attester(), clock).err();
    assert!(matches!(short, Some(ChannelError::Option { option: "key_validity", .. })));
    let options = ServerOptions { guarantee: String::new(), ..server_options(Binding::Key) };
    let mute = Server::new(options, attester(), clock).err();
    let own = ChannelError::OwnClaims(ClaimsError::GuaranteeLength { wanted: 256, got: 0 });
    assert_eq!(mute.map(|error| error.to_string()), Some(own.to_string()));
    assert_eq!(own.origin(), ErrorOrigin::Local);
    let large = FakeAttester { collateral: Some(vec![b' '; 60_000]), ..Default::default() };
    let large = Server::new(server_options(Binding::Key), Some(Arc::new(large)), clock).err();
    assert!(matches!(large, Some(ChannelError::CertificateSize { wanted: 60_000, .. })));
    let empty = FakeAttester { empty: true, ..Default::default() };
    let empty = Server::new(server_options(Binding::Key), Some(Arc::new(empty)), clock).err();
    assert!(matches!(empty, Some(ChannelError::OwnEvidence { part: "quote", got: 0, .. })));
    for (binding, len) in
        [(Binding::Key, 0), (Binding::Session, 0), (Binding::Session, COLLATERAL_BYTES_MAX + 1)]
    {
        let attester = FakeAttester { collateral: Some(vec![b' '; len]), ..Default::default() };
        let error = Server::new(server_options(binding), Some(Arc::new(attester)), clock).err();
        let unusable = matches!(
            error,
            Some(ChannelError::OwnEvidence { part: "collateral", got, .. }) if got == len
        );
        assert!(unusable, "{binding:?} {len}: {error:?}");
    }
    let options = ClientOptions { binding: Binding::None, deadline: LONG };
    let plain = Client::new(options, Arc::new(FakeAppraiser::default())).err();
    assert!(matches!(plain, Some(ChannelError::Binding { .. })));
}

/// Connects with a client for which the claims' time does not matter; returns the certificate.
async fn connect(server: &Server) -> Vec<u8> {
    let (near, far) = wire();
    let options = ClientOptions { binding: Binding::Key, deadline: LONG };
    let client = Client::new(options, Arc::new(Timeless)).unwrap();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    accepted.unwrap();
    let attested: AttestedServerStream<DuplexStream, ()> = attested.unwrap();
    let (stream, ..) = attested.into_parts();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

struct Timeless;

impl confide_evidence::Appraise for Timeless {
    type Appraised = ();
    type Rejection = FakeRejection;

    fn appraise(
        &self,
        presented: &confide_evidence::PresentedEvidence<'_>,
    ) -> Result<(), FakeRejection> {
        match presented.quote == quote(&presented.expected_report_data) {
            true => Ok(()),
            false => Err(FakeRejection::ReportData),
        }
    }
}

fn spki(certificate: &[u8]) -> Vec<u8> {
    use der::{Decode, Encode};
    let certificate = x509_cert::Certificate::from_der(certificate).unwrap();
    certificate.tbs_certificate().subject_public_key_info().to_der().unwrap()
}

fn claims(pubkey_hash: [u8; 32]) -> Claims {
    Claims {
        config_digest: [5; 32],
        gpu_evidence_hash: None,
        guarantee: "operator is outside the TEE".into(),
        nonce: None,
        not_after: NOW + 3600,
        not_before: NOW,
        pubkey_hash,
        weights: None,
    }
}

fn evidence(quote: &[u8], claims: &[u8]) -> Vec<u8> {
    TaggedEvidence { quote, claims }.encode()
}

/// A server with a key of its own and any certificate.
struct Forger(KeyPair);

impl Forger {
    fn new() -> Self {
        Self(KeyPair::generate().unwrap())
    }

    fn spki_hash(&self) -> [u8; 32] {
        let spki = self.0.subject_public_key_info();
        let digest = ::aws_lc_rs::digest::digest(&::aws_lc_rs::digest::SHA256, &spki);
        digest.as_ref().try_into().unwrap()
    }

    fn certificate(&self, evidence: &[&[u8]]) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let extension =
            |content: &&[u8]| CustomExtension::from_oid_content(&EVIDENCE_OID, content.to_vec());
        params.custom_extensions = evidence.iter().map(extension).collect();
        params.self_signed(&self.0).unwrap().der().clone()
    }

    /// The error with which an honest client refuses this server.
    async fn serve(&self, certificate: CertificateDer<'static>) -> ChannelError {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.0.serialize_der()));
        let key = aws_lc_rs::sign::any_supported_type(&key).unwrap();
        let resolver = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let (near, far) = wire();
        let client = client(Binding::Key);
        let accepting = TlsAcceptor::from(Arc::new(config)).accept(far);
        let (attested, _accepted) = tokio::join!(client.connect("localhost", near), accepting);
        attested.map(drop).unwrap_err()
    }
}

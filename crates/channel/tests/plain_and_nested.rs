//! Ordinary TLS, and an attested session inside it.

mod fakes;

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use confide_channel::{
    Binding, ChannelError, ClientOptions, NestedClient, PlainClient, RecordTuning, Server,
    nested_accept, nested_connect,
};
use fakes::*;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, HandshakeKind, NamedGroup, RootCertStore,
    crypto::{
        CryptoProvider, SupportedKxGroup,
        aws_lc_rs::{self, kx_group},
    },
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime},
    time_provider::TimeProvider,
    version::TLS13,
};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio_rustls::TlsConnector;

fn plain_server() -> Server {
    Server::new(server_options(Binding::None), None, clock).unwrap()
}

fn plain_client(server: &Server) -> PlainClient {
    let options = ClientOptions { binding: Binding::None, deadline: LONG };
    PlainClient::new(options, &server.certificate_der(), clock).unwrap()
}

#[tokio::test]
async fn plain_tls_works_with_a_pinned_certificate_and_resumes_nothing() {
    let server = plain_server();
    let client = plain_client(&server);
    for _ in 0..2 {
        let (near, far) = wire();
        let (connected, accepted) =
            tokio::join!(client.connect("localhost", near), server.accept(far));
        let (connected, accepted) = (connected.unwrap(), accepted.unwrap());
        assert_eq!(connected.timings.round_trips, 2);
        let session = connected.stream.get_ref().1;
        assert_eq!(session.handshake_kind(), Some(rustls::HandshakeKind::Full));
        assert_eq!(session.tls13_tickets_received(), 0);
        echo(connected.stream, accepted.stream).await;
    }
}

/// The kinds of two handshakes of one client that may resume its sessions.
async fn handshake_kinds(server: &Server) -> [HandshakeKind; 2] {
    let mut roots = RootCertStore::empty();
    roots.add(server.certificate_der().into()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_details(provider, Arc::new(FakeTime))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_early_data = true;
    let connector = TlsConnector::from(Arc::new(config));
    let mut kinds = [HandshakeKind::Full; 2];
    for kind in &mut kinds {
        let (near, far) = wire();
        let connecting = connector.connect("localhost".try_into().unwrap(), near);
        let (connected, accepted) = tokio::join!(connecting, server.accept(far));
        let (mut near, mut far) = (connected.unwrap(), accepted.unwrap().stream);
        assert!(!near.get_ref().1.is_early_data_accepted());
        *kind = near.get_ref().1.handshake_kind().unwrap();
        // Tickets come before these bytes.
        far.write_all(b"x").await.unwrap();
        far.flush().await.unwrap();
        near.read_u8().await.unwrap();
    }
    kinds
}

#[tokio::test]
async fn a_server_with_tickets_resumes_ordinary_sessions_even_after_other_options() {
    let server = plain_server().with_session_tickets().unwrap().with_http2().unwrap();
    assert_eq!(handshake_kinds(&server).await, [HandshakeKind::Full, HandshakeKind::Resumed]);
    assert_eq!(handshake_kinds(&plain_server()).await, [HandshakeKind::Full; 2]);
}

#[tokio::test]
async fn a_server_with_evidence_gives_no_tickets() {
    for binding in [Binding::Key, Binding::Session] {
        let error = server(binding).with_session_tickets().err().unwrap();
        assert!(matches!(error, ChannelError::Binding { wanted: "none", .. }), "{error:?}");
    }
}

/// The group of a handshake with a client that offers only these groups.
async fn negotiate(server: &Server, groups: Vec<&'static dyn SupportedKxGroup>) -> NamedGroup {
    let mut roots = RootCertStore::empty();
    roots.add(server.certificate_der().into()).unwrap();
    let provider = CryptoProvider { kx_groups: groups, ..aws_lc_rs::default_provider() };
    let config = ClientConfig::builder_with_details(Arc::new(provider), Arc::new(FakeTime))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (near, far) = wire();
    let connecting = TlsConnector::from(Arc::new(config));
    let connecting = connecting.connect("localhost".try_into().unwrap(), near);
    let (connected, _accepted) = tokio::join!(connecting, server.accept(far));
    connected.unwrap().get_ref().1.negotiated_key_exchange_group().unwrap().name()
}

#[derive(Debug)]
struct FakeTime;

impl TimeProvider for FakeTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(clock())))
    }
}

#[tokio::test]
async fn both_ends_prefer_the_hybrid_key_exchange_and_the_server_takes_the_classical_ones() {
    let server = plain_server();
    let (near, far) = wire();
    let client = plain_client(&server);
    let (connected, _accepted) =
        tokio::join!(client.connect("localhost", near), server.accept(far));
    let connected = connected.unwrap();
    let group = connected.stream.get_ref().1.negotiated_key_exchange_group().unwrap();
    assert_eq!(group.name(), NamedGroup::X25519MLKEM768);
    for group in [kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1] {
        assert_eq!(negotiate(&server, vec![group]).await, group.name());
    }
    // A client that prefers X25519 and offers the hybrid group as well gets what it has sent a share for.
    let both = vec![kx_group::X25519, kx_group::X25519MLKEM768];
    assert_eq!(negotiate(&server, both).await, NamedGroup::X25519);
}

#[tokio::test]
async fn plain_tls_refuses_another_certificate_and_another_name() {
    let (server, other) = (plain_server(), plain_server());
    for (client, name) in
        [(plain_client(&other), "localhost"), (plain_client(&server), "elsewhere.example")]
    {
        let (near, far) = wire();
        let (connected, _accepted) = tokio::join!(client.connect(name, near), server.accept(far));
        let refused =
            matches!(connected, Err(ChannelError::Tls(rustls::Error::InvalidCertificate(_))));
        assert!(refused, "{name}");
    }
}

#[tokio::test]
async fn a_given_certificate_is_served() {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let options = server_options(Binding::None);
    let server = Server::with_certificate(options, vec![certificate.clone()], key).unwrap();
    assert_eq!(server.certificate_der(), certificate.to_vec());
    let client = plain_client(&server);
    let (near, far) = wire();
    let (connected, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    echo(connected.unwrap().stream, accepted.unwrap().stream).await;
}

#[tokio::test]
async fn an_attested_session_runs_inside_an_ordinary_one() {
    let outer_server = plain_server();
    let outer_client = plain_client(&outer_server);
    for (binding, round_trips) in [(Binding::Key, 3), (Binding::Session, 4)] {
        let (inner_server, inner_client) = (server(binding), client(binding));
        let tuning = RecordTuning::for_nested_tls();
        let (near, far) = wire();
        let connecting =
            nested_connect(&outer_client, "localhost", &inner_client, "localhost", tuning, near);
        let accepting = nested_accept(&outer_server, &inner_server, tuning, far);
        let (attested, accepted) = tokio::join!(connecting, accepting);
        let (attested, accepted) = (attested.unwrap(), accepted.unwrap());
        assert_eq!(attested.appraisal().claims.config_digest, [5; 32]);
        assert_eq!(attested.timings().round_trips, round_trips);
        echo(attested.into_parts().0, accepted.stream).await;
    }
}

#[tokio::test]
async fn a_nested_session_in_which_nobody_attests_is_refused() {
    let outer_server = plain_server();
    let outer_client = plain_client(&outer_server);
    // It demands evidence, and only `accept_attested` can appraise it.
    let options = server_options(Binding::Session);
    let inner_server = Server::without_evidence(options, clock).unwrap();
    let inner_client = plain_client(&inner_server).with_evidence(client_evidence()).unwrap();
    let (near, far) = wire();
    let accepting =
        nested_accept(&outer_server, &inner_server, RecordTuning::for_nested_tls(), far);
    let connecting = async {
        let outer = outer_client.connect("localhost", near).await.unwrap().stream;
        inner_client.connect("localhost", outer).await.map(drop)
    };
    let (connected, accepted) = tokio::join!(connecting, accepting);
    assert!(matches!(accepted, Err(ChannelError::NoAttester { binding: "session" })));
    assert!(connected.is_err());
}

#[tokio::test]
async fn an_inner_record_fills_one_outer_record() {
    const BYTES: usize = 4 << 20;
    let outer_server = plain_server();
    let outer_client = plain_client(&outer_server);
    let (inner_server, inner_client) = (server(Binding::Key), client(Binding::Key));
    let tuning = RecordTuning::for_nested_tls();
    // So large that no write has to wait: a full socket would cut a batch anywhere.
    let (near, far) = duplex(2 * BYTES);
    let near = RecordCounter { stream: near, ahead: Vec::new(), skip: 0, records: Vec::new() };
    let connecting =
        nested_connect(&outer_client, "localhost", &inner_client, "localhost", tuning, near);
    let accepting = nested_accept(&outer_server, &inner_server, tuning, far);
    let (attested, accepted) = tokio::join!(connecting, accepting);
    let (mut stream, ..) = attested.unwrap().into_parts();
    let counter = |stream: &mut tokio_rustls::client::TlsStream<NestedClient<RecordCounter>>| {
        std::mem::take(&mut stream.get_mut().0.get_mut().get_mut().0.records)
    };
    counter(&mut stream);
    let reading = tokio::spawn(async move {
        let mut stream = accepted.unwrap().stream;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    });
    stream.write_all(&vec![7; BYTES]).await.unwrap();
    stream.flush().await.unwrap();
    let records = counter(&mut stream);
    // The runtime may interrupt a batch, which costs a record; otherwise only the last is small.
    let (wanted, interrupted) = (BYTES.div_ceil(tuning.record_bytes), 4);
    let small = records.iter().filter(|len| **len < RecordTuning::RECORD_BYTES_MAX / 2).count();
    assert!((wanted..=wanted + interrupted).contains(&records.len()), "{records:?}");
    assert!(small <= 1 + interrupted, "{records:?}");
    stream.shutdown().await.unwrap();
    assert_eq!(reading.await.unwrap().unwrap(), BYTES as u64);
}

#[tokio::test]
async fn the_holder_of_the_outer_certificate_cannot_stand_for_the_inner_end() {
    let outer_server = plain_server();
    let outer_client = plain_client(&outer_server);
    let inner_client = client(Binding::Key);
    let tuning = RecordTuning::for_nested_tls();
    let (near, far) = wire();
    // It ends the outer session and offers its ordinary certificate again for the inner one.
    let accepting = nested_accept(&outer_server, &outer_server, tuning, far);
    let connecting =
        nested_connect(&outer_client, "localhost", &inner_client, "localhost", tuning, near);
    let (attested, _accepted) = tokio::join!(connecting, accepting);
    assert!(matches!(attested, Err(ChannelError::Extension { got: 0, .. })));
}

/// Notes the length of each TLS record that is written.
struct RecordCounter {
    stream: DuplexStream,
    /// The part of a header that has come.
    ahead: Vec<u8>,
    /// Bytes of the present record that are still to come.
    skip: usize,
    records: Vec<usize>,
}

impl RecordCounter {
    fn note(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if self.skip == 0 && !bytes.is_empty() {
                self.ahead.push(bytes[0]);
                bytes = &bytes[1..];
                if let [_, _, _, high, low] = self.ahead[..] {
                    self.skip = usize::from(u16::from_be_bytes([high, low]));
                    self.records.push(self.skip);
                    self.ahead.clear();
                }
            }
        }
    }
}

impl AsyncRead for RecordCounter {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, out)
    }
}

impl AsyncWrite for RecordCounter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.note(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

//! A server that is appraised over a TLS session which another library opened.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use confide_channel::{Binding, ChannelError, Server, TlsSession, appraise_server};
use rustls::{CipherSuite, crypto::WebPkiSupportedAlgorithms};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

mod fakes;
use fakes::{
    FakeAppraised, FakeAppraiser, LONG,
    cheat::{Cheat, raw_client_with},
    echo, server, wire,
};

type Opened = tokio_rustls::client::TlsStream<DuplexStream>;

/// The session of a library that exports other bytes than the handshake gave.
struct OtherExporter(Opened);

impl TlsSession for OtherExporter {
    fn export(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), rustls::Error> {
        self.0.export(output, label, context)?;
        output[0] ^= 1;
        Ok(())
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        self.0.peer_certificate()
    }

    fn alpn_protocol(&self) -> Option<&[u8]> {
        self.0.alpn_protocol()
    }

    fn cipher_suite(&self) -> Option<CipherSuite> {
        self.0.cipher_suite()
    }
}

impl AsyncRead for OtherExporter {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for OtherExporter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Opens a session that offers `alpn` alone, next to what `server` makes of it.
async fn open(
    server: &Server,
    alpn: &'static str,
    appraise: impl AsyncFnOnce(Opened) -> Result<(FakeAppraised, Opened), ChannelError>,
) -> Result<FakeAppraised, ChannelError> {
    let (near, far) = wire();
    let mut cheat = Cheat::new();
    cheat.alpn = alpn;
    let opening = async { appraise(raw_client_with(&cheat, near).await).await };
    let (opened, accepted) = tokio::join!(opening, server.accept(far));
    let (appraised, stream) = opened?;
    echo(stream, accepted.unwrap().stream).await;
    Ok(appraised)
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms
}

async fn appraise(
    binding: Binding,
    mut stream: Opened,
) -> Result<(FakeAppraised, Opened), ChannelError> {
    let appraiser = FakeAppraiser::default();
    Ok((appraise_server(&mut stream, binding, &appraiser, algorithms(), LONG).await?, stream))
}

#[tokio::test]
async fn each_binding_leads_to_a_verdict_and_then_carries_bytes() {
    for (binding, alpn) in [
        (Binding::Key, "http/1.1"),
        (Binding::Session, "confide-session/1"),
        (Binding::Session, "confide-session/2"),
        (Binding::Session, "confide-session/3"),
    ] {
        let appraised = open(&server(binding), alpn, async |it| appraise(binding, it).await).await;
        assert_eq!(appraised.unwrap().claims.config_digest, [5; 32], "{alpn}");
    }
}

#[tokio::test]
async fn a_session_without_the_exchange_is_no_bound_one() {
    let binding = Binding::Session;
    let refused =
        open(&server(Binding::Key), "http/1.1", async |it| appraise(binding, it).await).await;
    assert!(matches!(refused, Err(ChannelError::Protocol { .. })), "{refused:?}");
    let refused =
        open(&server(Binding::Key), "http/1.1", async |it| appraise(Binding::None, it).await).await;
    assert!(matches!(refused, Err(ChannelError::Binding { .. })), "{refused:?}");
}

#[tokio::test]
async fn evidence_of_another_session_is_refused() {
    for alpn in ["confide-session/1", "confide-session/2", "confide-session/3"] {
        let server = server(Binding::Session);
        let refused = open(&server, alpn, async |stream| {
            let appraiser = FakeAppraiser::default();
            let mut other = OtherExporter(stream);
            let appraised =
                appraise_server(&mut other, Binding::Session, &appraiser, algorithms(), LONG)
                    .await?;
            Ok((appraised, other.0))
        });
        let error = refused.await.unwrap_err();
        let is_about_session =
            matches!(error, ChannelError::Rejected(_) | ChannelError::Authenticator(_));
        assert!(is_about_session, "{alpn}: {error:?}");
    }
}

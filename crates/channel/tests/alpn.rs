//! Which version of HTTP a server offers, and which one is agreed.

use std::{sync::Arc, time::Duration};

use confide_channel::{Binding, ChannelError, Server};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime},
    time_provider::TimeProvider,
};
use tokio_rustls::TlsConnector;

mod fakes;
use fakes::{NOW, client, server, wire};

#[derive(Debug)]
struct FixedTime;

impl TimeProvider for FixedTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(NOW)))
    }
}

/// Whether an ordinary client that offers `names` and `server` agree on HTTP/2; `None` if they agree
/// on nothing.
async fn agree_on_http2(server: &Server, names: &[&str]) -> Option<bool> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(server.certificate_der())).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_details(provider, Arc::new(FixedTime))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    let (near, far) = wire();
    let name = ServerName::try_from("localhost").unwrap();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, near);
    let (connected, accepted) = tokio::join!(connecting, server.accept(far));
    connected.ok().map(|_| accepted.unwrap().is_http2())
}

#[tokio::test]
async fn http2_is_preferred_where_it_was_asked_for_and_not_offered_elsewhere() {
    for binding in [Binding::None, Binding::Key] {
        let with = server(binding).with_http2().unwrap();
        assert_eq!(agree_on_http2(&with, &["http/1.1", "h2"]).await, Some(true));
        assert_eq!(agree_on_http2(&with, &["http/1.1"]).await, Some(false));
        assert_eq!(agree_on_http2(&with, &[]).await, Some(false));
        assert_eq!(agree_on_http2(&with, &["h3"]).await, None);
        let without = server(binding);
        assert_eq!(agree_on_http2(&without, &["h2", "http/1.1"]).await, Some(false));
        assert_eq!(agree_on_http2(&without, &["h2"]).await, None);
    }
}

#[tokio::test]
async fn the_verifying_client_keeps_http_1_1() {
    let server = server(Binding::Key).with_http2().unwrap();
    let (near, far) = wire();
    let client = client(Binding::Key);
    let (connected, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    assert!(connected.is_ok() && !accepted.unwrap().is_http2());
}

#[test]
fn a_session_that_is_bound_carries_http_1_1_only() {
    let refused = server(Binding::Session).with_http2();
    assert!(matches!(refused, Err(ChannelError::Binding { .. })));
}

//! Ordinary TLS, and an attested session inside it.

mod fakes;

use confide_channel::{
    Binding, ChannelError, ClientOptions, PlainClient, Server, Tuning, nested_accept,
    nested_connect,
};
use fakes::*;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

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
        let tuning = Tuning::inside_tls();
        let (near, far) = wire();
        let connecting =
            nested_connect(&outer_client, "localhost", &inner_client, "localhost", tuning, near);
        let accepting = nested_accept(&outer_server, &inner_server, tuning, far);
        let (attested, accepted) = tokio::join!(connecting, accepting);
        let (attested, accepted) = (attested.unwrap(), accepted.unwrap());
        assert_eq!(attested.appraised().claims.config_digest, [5; 32]);
        assert_eq!(attested.timings().round_trips, round_trips);
        echo(attested.into_parts().0, accepted.stream).await;
    }
}

#[tokio::test]
async fn the_holder_of_the_outer_certificate_cannot_stand_for_the_inner_end() {
    let outer_server = plain_server();
    let outer_client = plain_client(&outer_server);
    let inner_client = client(Binding::Key);
    let tuning = Tuning::inside_tls();
    let (near, far) = wire();
    // It ends the outer session and offers its ordinary certificate again for the inner one.
    let accepting = nested_accept(&outer_server, &outer_server, tuning, far);
    let connecting =
        nested_connect(&outer_client, "localhost", &inner_client, "localhost", tuning, near);
    let (attested, _accepted) = tokio::join!(connecting, accepting);
    assert!(matches!(attested, Err(ChannelError::Extension { got: 0, .. })));
}

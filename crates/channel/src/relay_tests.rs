//! The relay of CVE-2026-33697 over real sockets: an attacker on another machine holds the TLS key that
//! leaked from a TEE, stands in front of the client, and has the genuine TEE attest.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use confide_evidence::{
    Attest, AttestError, ReportData,
    authenticator::{AuthenticatorAnswer, AuthenticatorError},
    binder::Role,
    session_message_3::AuthenticatedEvidence,
};
use rustls::{
    pki_types::ServerName,
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::{
    authenticator::AuthenticatorSigner,
    authenticator_tests::{Appraiser, Rejected},
    client::Client,
    deadline::Deadline,
    error::{ChannelError, ChannelPhase},
    exchange_message::{EvidenceDemand, ExchangeMessage, ShownEvidence, encode_reply},
    frame,
    handshake::{attested_client_config, crypto_provider, server_config, session_alpn},
    nested::nested_connect,
    options::{Binding, ClientOptions, RecordTuning, ServerOptions, SessionVersion},
    plain::PlainClient,
    server::Server,
    session_terms::SessionTerms,
};

const LONG: Duration = Duration::from_secs(60);
const PROMPT: &[u8] = b"a prompt that nobody but the TEE may read";

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

struct Attester;

impl Attest for Attester {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        Ok([b"quote", report_data.as_ref()].concat())
    }

    fn collateral(&self) -> Option<Vec<u8>> {
        Some(b"{}".to_vec())
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

/// The genuine TEE on a loopback address.
struct Tee {
    address: SocketAddr,
    /// The TLS key that leaked.
    leaked: Arc<CertifiedKey>,
    received: UnboundedReceiver<Vec<u8>>,
}

impl Tee {
    async fn start(binding: Binding) -> Self {
        let server = Arc::new(server(binding));
        let leaked = server.leak_key();
        let (listener, address) = listen().await;
        let (sender, received) = unbounded_channel();
        tokio::spawn(async move {
            while let Ok((io, _)) = listener.accept().await {
                let (server, sender) = (server.clone(), sender.clone());
                tokio::spawn(async move {
                    let Ok(mut accepted) = server.accept(io).await else { return };
                    let mut bytes = Vec::new();
                    let _ = accepted.stream.read_to_end(&mut bytes).await;
                    let _ = sender.send(bytes);
                });
            }
        });
        Self { address, leaked, received }
    }
}

/// The attacker's way with the evidence that the TEE gives it.
#[derive(Clone, Copy, PartialEq)]
enum Relay {
    /// Passes the TEE's answer on as it is.
    Answer,
    /// Signs the evidence again with the leaked key, over the session with the client (version 3).
    SignedAgain,
}

/// Stands for the TEE at the end of `io` with the leaked key, and relays the exchange of evidence.
/// Returns the bytes that it reads from the client in the clear.
async fn impersonate(
    tee: (SocketAddr, Arc<CertifiedKey>),
    session: Option<(SessionVersion, Relay)>,
    io: impl Stream,
) -> Vec<u8> {
    let (address, leaked) = tee;
    let binding = if session.is_some() { Binding::Session } else { Binding::Key };
    let resolver = Arc::new(SingleCertAndKey::from(leaked.clone()));
    let mut config = server_config(binding, None, resolver).unwrap();
    if let Some((version, _)) = session {
        config.alpn_protocols = session_alpn(&[version]);
    }
    let mut client = TlsAcceptor::from(Arc::new(config)).accept(io).await.unwrap();
    if let Some((version, relay)) = session {
        let mut config = attested_client_config(Binding::Session, crypto_provider()).unwrap();
        config.alpn_protocols = session_alpn(&[version]);
        let name = ServerName::try_from("localhost").unwrap();
        let io = TcpStream::connect(address).await.unwrap();
        let mut genuine = TlsConnector::from(Arc::new(config)).connect(name, io).await.unwrap();
        let deadline = Deadline::after(LONG);
        let request =
            frame::read_frame(&mut client, ChannelPhase::Request, deadline).await.unwrap();
        frame::write_frame(&mut genuine, &request, ChannelPhase::Request, deadline).await.unwrap();
        let reply =
            frame::read_frame(&mut genuine, ChannelPhase::Evidence, deadline).await.unwrap();
        let reply = match relay {
            Relay::Answer => reply,
            Relay::SignedAgain => {
                let terms = SessionTerms::from_stream(&client, Role::Server).unwrap();
                sign_again(&terms, &leaked, &request, &reply)
            }
        };
        let sent = frame::write_frame(&mut client, &reply, ChannelPhase::Evidence, deadline).await;
        sent.unwrap();
    }
    let mut read = Vec::new();
    let _ = client.read_to_end(&mut read).await;
    read
}

/// The TEE's evidence in an authenticator of the leaked key over the attacker's session.
fn sign_again(
    terms: &SessionTerms,
    leaked: &CertifiedKey,
    request: &[u8],
    reply: &[u8],
) -> Vec<u8> {
    let (version, phase) = (SessionVersion::V3, ChannelPhase::Evidence);
    let request = ExchangeMessage::decode(version, Role::Client, phase, request).unwrap();
    let ExchangeMessage::Request(Some(EvidenceDemand::Authenticator { request, bytes })) = request
    else {
        panic!("a request for an authenticator");
    };
    let reply = ExchangeMessage::decode(version, Role::Server, phase, reply).unwrap();
    let ExchangeMessage::Reply(None, Some(ShownEvidence::Authenticated(shown))) = reply else {
        panic!("a reply with an authenticator");
    };
    let answer = AuthenticatorAnswer::decode(shown.authenticator).unwrap();
    let AuthenticatorAnswer::Authenticator(genuine) = answer else { panic!("no refusal") };
    let cmw = genuine.find_cmw(&request).unwrap();
    let signer = AuthenticatorSigner::choose(&request, leaked).unwrap();
    let made = terms.keys.as_ref().unwrap().make(&request, &bytes, &signer, cmw).unwrap();
    let shown = AuthenticatedEvidence { authenticator: &made, ..shown };
    encode_reply(version, None, Some(ShownEvidence::Authenticated(shown))).unwrap()
}

/// A client that believes it connects to the TEE. Returns its error, and what the attacker has read.
async fn attack(session: Option<(SessionVersion, Relay)>) -> (Option<ChannelError>, Vec<u8>) {
    let binding = if session.is_some() { Binding::Session } else { Binding::Key };
    let tee = Tee::start(binding).await;
    let (listener, address) = listen().await;
    let attacking = async {
        let (io, _) = listener.accept().await.unwrap();
        impersonate((tee.address, tee.leaked.clone()), session, io).await
    };
    let connecting = async {
        let client = client(binding, session);
        let io = TcpStream::connect(address).await.unwrap();
        send_prompt(client.connect("localhost", io).await.map(|attested| attested.into_parts().0))
            .await
    };
    tokio::join!(connecting, attacking)
}

/// The same inside an outer session that ends at the attacker.
async fn attack_nested(
    session: Option<(SessionVersion, Relay)>,
) -> (Option<ChannelError>, Vec<u8>) {
    let binding = if session.is_some() { Binding::Session } else { Binding::Key };
    let tee = Tee::start(binding).await;
    let outer = server(Binding::None);
    let outer_client = plain_client(&outer);
    let (listener, address) = listen().await;
    let attacking = async {
        let (io, _) = listener.accept().await.unwrap();
        let carrier = outer.accept(io).await.unwrap().stream;
        impersonate((tee.address, tee.leaked.clone()), session, carrier).await
    };
    let connecting = async {
        let client = client(binding, session);
        let io = TcpStream::connect(address).await.unwrap();
        let tuning = RecordTuning::for_nested_tls();
        let opened =
            nested_connect(&outer_client, "localhost", &client, "localhost", tuning, io).await;
        send_prompt(opened.map(|attested| attested.into_parts().0)).await
    };
    tokio::join!(connecting, attacking)
}

#[tokio::test]
async fn with_key_binding_a_leaked_key_on_another_machine_reads_the_prompt() {
    let (error, read) = attack(None).await;
    assert!(error.is_none(), "nothing ties this connection to the TEE: {error:?}");
    assert_eq!(read, PROMPT);
}

#[tokio::test]
async fn with_session_binding_2_a_leaked_key_with_relayed_evidence_is_refused() {
    let (error, read) = attack(Some((SessionVersion::V2, Relay::Answer))).await;
    assert!(error.unwrap().rejection::<Rejected>().is_some());
    assert_eq!(read, b"");
}

#[tokio::test]
async fn with_session_binding_3_a_leaked_key_with_a_relayed_authenticator_is_refused() {
    let (error, read) = attack(Some((SessionVersion::V3, Relay::Answer))).await;
    assert!(has_wrong_mac(&error.unwrap()), "the MAC is of the session with the TEE");
    assert_eq!(read, b"");
}

#[tokio::test]
async fn with_session_binding_3_relayed_evidence_signed_again_by_the_leaked_key_is_refused() {
    let (error, read) = attack(Some((SessionVersion::V3, Relay::SignedAgain))).await;
    assert!(error.unwrap().rejection::<Rejected>().is_some(), "the quote is over another session");
    assert_eq!(read, b"");
}

#[tokio::test]
async fn in_a_nested_session_the_inner_binding_decides_about_a_leaked_key() {
    let (error, read) = attack_nested(None).await;
    assert!(error.is_none());
    assert_eq!(read, PROMPT);
    for session in [
        (SessionVersion::V2, Relay::Answer),
        (SessionVersion::V3, Relay::Answer),
        (SessionVersion::V3, Relay::SignedAgain),
    ] {
        let (error, read) = attack_nested(Some(session)).await;
        let error = error.unwrap();
        match session {
            (SessionVersion::V3, Relay::Answer) => assert!(has_wrong_mac(&error), "{error:?}"),
            _ => assert!(error.rejection::<Rejected>().is_some(), "{error:?}"),
        }
        assert_eq!(read, b"");
    }
}

#[tokio::test]
async fn a_relay_that_passes_a_bound_session_on_unread_is_not_noticed_and_reads_nothing() {
    for version in [SessionVersion::V2, SessionVersion::V3] {
        let mut tee = Tee::start(Binding::Session).await;
        let (listener, address) = listen().await;
        let genuine = tee.address;
        let relaying = tokio::spawn(async move {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = TcpStream::connect(genuine).await.unwrap();
            let mut seen = Vec::new();
            let (mut near_read, mut near_write) = near.split();
            let (mut far_read, mut far_write) = far.split();
            let onward = async {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = near_read.read(&mut buffer).await {
                    seen.extend_from_slice(&buffer[..length]);
                    far_write.write_all(&buffer[..length]).await.unwrap();
                }
                far_write.shutdown().await.unwrap();
            };
            let back = tokio::io::copy(&mut far_read, &mut near_write);
            let _ = tokio::join!(onward, back);
            seen
        });
        let client = client(Binding::Session, Some((version, Relay::Answer)));
        let io = TcpStream::connect(address).await.unwrap();
        let opened = client.connect("localhost", io).await;
        assert!(send_prompt(opened.map(|attested| attested.into_parts().0)).await.is_none());
        assert_eq!(tee.received.recv().await.unwrap(), PROMPT);
        let seen = relaying.await.unwrap();
        assert!(!seen.windows(PROMPT.len()).any(|part| part == PROMPT));
    }
}

fn has_wrong_mac(error: &ChannelError) -> bool {
    matches!(error, ChannelError::Authenticator(AuthenticatorError::Mac))
}

/// Sends the prompt on an opened stream, or returns the error with which it was not opened.
async fn send_prompt<S: Stream>(opened: Result<S, ChannelError>) -> Option<ChannelError> {
    match opened {
        Ok(mut stream) => {
            stream.write_all(PROMPT).await.unwrap();
            stream.shutdown().await.unwrap();
            None
        }
        Err(error) => Some(error),
    }
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn clock() -> u64 {
    1_800_000_000
}

fn server(binding: Binding) -> Server {
    let options = ServerOptions {
        binding,
        config_digest: [5; 32],
        guarantee: "operator is outside the TEE".into(),
        key_validity: Duration::from_secs(3600),
        deadline: LONG,
        names: vec!["localhost".into()],
        weights: None,
    };
    Server::new(options, Some(Arc::new(Attester)), clock).unwrap()
}

fn client(binding: Binding, session: Option<(SessionVersion, Relay)>) -> Client<Appraiser> {
    let options = ClientOptions { binding, deadline: LONG };
    let client = Client::new(options, Arc::new(Appraiser)).unwrap();
    match session {
        Some((version, _)) => client.with_session_versions(&[version]).unwrap(),
        None => client,
    }
}

fn plain_client(outer: &Server) -> PlainClient {
    let options = ClientOptions { binding: Binding::None, deadline: LONG };
    PlainClient::new(options, &outer.certificate_der(), clock).unwrap()
}

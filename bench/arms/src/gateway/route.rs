//! How connections are opened, and what is believed of the other end.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{stream::Stream, trust::ChannelArgs};
use clap::ValueEnum;
use confide_arm_line::Outcome;
use confide_channel::{Binding, Client, ClientOptions, SessionVersion, tunnel};
use confide_client::{PolicyAppraiser, error_chain};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind,
    ProtocolVersion, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The deadline of a connection, far above what a loaded machine needs.
const DEADLINE: Duration = Duration::from_secs(20);

/// The cipher suite of every connection: suites differ in their amount of work.
const CIPHER_SUITE: CipherSuite = CipherSuite::TLS13_AES_128_GCM_SHA256;

#[derive(clap::Args)]
pub(crate) struct RouteArgs {
    /// The protocol below HTTP
    #[arg(long, value_enum)]
    mode: Mode,
    #[command(flatten)]
    channel: ChannelArgs,
    /// The only key exchange group offered: groups differ in their amount of work
    #[arg(long, value_enum, default_value_t = KeyExchangeGroup::X25519)]
    group: KeyExchangeGroup,
    /// Leave Nagle's algorithm on, as sockets do by default
    #[arg(long)]
    default_sockets: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Mode {
    /// No TLS
    Http,
    /// TLS 1.3, the certificate pinned
    Tls,
    /// TLS 1.3, the certificate's evidence appraised once, then the certificate pinned
    Key,
    /// TLS 1.3 with session binding 2, the evidence of every session appraised
    #[value(name = "session-2")]
    Session2,
    /// TLS 1.3 with session binding 3, the evidence of every session appraised
    #[value(name = "session-3")]
    Session3,
}

/// What is below HTTP on a connection, and what is believed of the other end.
enum Security {
    None,
    Pinned(TlsConnector, Arc<PinnedCertificate>),
    /// Session binding: every session shows evidence.
    Session(Box<Client<PolicyAppraiser>>, SessionVersion),
}

/// The group of the key exchange.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum KeyExchangeGroup {
    X25519,
    X25519mlkem768,
}

impl RouteArgs {
    /// The group of every key exchange; `None` without TLS.
    pub(crate) fn group(&self) -> Option<KeyExchangeGroup> {
        (self.mode != Mode::Http).then_some(self.group)
    }

    /// The part of an arm's name that describes this route.
    pub(crate) fn describe(&self) -> String {
        let tunnel = self.channel.describe_tunnel();
        let sockets = if self.default_sockets { ", default sockets" } else { "" };
        format!("{tunnel}{sockets}")
    }
}

/// How connections to the server are opened.
pub(crate) struct Route {
    server: String,
    via: Option<String>,
    nodelay: bool,
    security: Security,
    group: &'static str,
}

/// The arm's guarantee, and whether it rests on something simulated.
pub(crate) struct Guarantee {
    pub(crate) text: String,
    pub(crate) simulated: bool,
}

/// Description of a connection, for people.
pub(crate) struct ConnectionDescription(Option<String>);

impl fmt::Display for ConnectionDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("HTTP without TLS"))
    }
}

impl Route {
    pub(crate) async fn new(args: &RouteArgs) -> Outcome<(Self, Guarantee)> {
        let group = match args.group {
            KeyExchangeGroup::X25519 => "X25519",
            KeyExchangeGroup::X25519mlkem768 => "X25519MLKEM768",
        };
        if args.default_sockets && args.channel.via.is_some() {
            return Err(
                "--default-sockets cannot be used with --via: the tunnel's client sets its \
                        own socket options"
                    .into(),
            );
        }
        let mut route = Self {
            server: args.channel.server.clone(),
            via: args.channel.via.clone(),
            nodelay: !args.default_sockets,
            security: Security::None,
            group,
        };
        let none = || Guarantee { text: "none".into(), simulated: false };
        let (certificate, guarantee) = match args.mode {
            Mode::Http => return Ok((route, none())),
            Mode::Tls => (args.channel.read_root()?, none()),
            Mode::Key => route.appraise_server(args).await?,
            Mode::Session2 => return route.with_sessions(args, SessionVersion::V2).await,
            Mode::Session3 => return route.with_sessions(args, SessionVersion::V3).await,
        };
        let pinned = Arc::new(PinnedCertificate::new(certificate, args.group));
        let config = client_config(pinned.clone())?;
        route.security = Security::Pinned(TlsConnector::from(Arc::new(config)), pinned);
        Ok((route, guarantee))
    }

    /// Returns the route with attested sessions of this version, and the guarantee of a first one.
    async fn with_sessions(
        self,
        args: &RouteArgs,
        version: SessionVersion,
    ) -> Outcome<(Self, Guarantee)> {
        if args.group != KeyExchangeGroup::X25519mlkem768 {
            let wanted = "--mode session-2 and session-3 need --group x25519mlkem768";
            return Err(format!("{wanted}, which the attested client prefers").into());
        }
        let options = ClientOptions { binding: Binding::Session, deadline: DEADLINE };
        let client = Client::new(options, Arc::new(args.channel.open_appraiser(None)?))
            .and_then(|client| client.with_session_versions(&[version]))
            .map_err(|error| error_chain(&error))?;
        let stream = self.open_carrier().await?;
        let attested = client.connect("localhost", stream).await;
        let attested = attested.map_err(|error| error_chain(&error))?;
        let guarantee = Guarantee {
            text: attested.appraisal().guarantee().to_string(),
            simulated: attested.appraisal().is_simulated(),
        };
        Ok((Self { security: Security::Session(Box::new(client), version), ..self }, guarantee))
    }

    /// Opens a connection and says what it is.
    pub(crate) async fn probe(&self) -> Outcome<ConnectionDescription> {
        self.open().await?;
        let pinned = match &self.security {
            Security::None => return Ok(ConnectionDescription(None)),
            Security::Session(_, version) => {
                let (group, suite) = (self.group, CIPHER_SUITE.as_str().unwrap_or("unknown suite"));
                return Ok(ConnectionDescription(Some(format!(
                    "full TLS 1.3 handshakes, {group}, {suite}, {}",
                    version.alpn()
                ))));
            }
            Security::Pinned(_, pinned) => pinned,
        };
        let seen = pinned.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(ConnectionDescription(
            seen.clone().map(|seen| format!("full TLS 1.3 handshakes, {seen}")),
        ))
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn has_tls(&self) -> bool {
        !matches!(self.security, Security::None)
    }

    pub(crate) async fn open(&self) -> Outcome<Stream> {
        let carrier = self.open_carrier().await?;
        let (tls, pinned) = match &self.security {
            Security::None => return Ok(carrier),
            Security::Pinned(tls, pinned) => (tls, pinned),
            Security::Session(client, _) => {
                let attested = client.connect("localhost", carrier).await;
                let stream = attested.map_err(|error| error_chain(&error))?.into_parts().0;
                self.check_handshake(stream.get_ref().1)?;
                return Ok(Box::new(stream));
            }
        };
        let name = ServerName::try_from("localhost")?;
        let stream = tls.connect(name, carrier).await.map_err(|error| error_chain(&error))?;
        self.check_handshake(stream.get_ref().1)?;
        pinned.note_handshake(self.group);
        Ok(Box::new(stream))
    }

    async fn open_carrier(&self) -> Outcome<Stream> {
        match &self.via {
            Some(via) => {
                let stream = tunnel::dial(via, &self.server, DEADLINE).await;
                Ok(Box::new(stream.map_err(|error| error_chain(&error))?))
            }
            None => {
                let tcp = TcpStream::connect(&self.server).await?;
                tcp.set_nodelay(self.nodelay)?;
                Ok(Box::new(tcp))
            }
        }
    }

    /// Refuses a resumed handshake, an older version, another group or another cipher suite: each is
    /// another amount of work.
    fn check_handshake(&self, session: &ClientConnection) -> Outcome {
        let group = session.negotiated_key_exchange_group().map(|group| group.name());
        let group = group.and_then(|name| name.as_str()).unwrap_or("none");
        let kind = session.handshake_kind();
        let version = session.protocol_version();
        let suite = session.negotiated_cipher_suite().map(|suite| suite.suite());
        let is_wanted = kind == Some(HandshakeKind::Full)
            && version == Some(ProtocolVersion::TLSv1_3)
            && suite == Some(CIPHER_SUITE)
            && group == self.group;
        if !is_wanted {
            let wanted = self.group;
            return Err(format!(
                "wanted a full handshake of TLS 1.3 with {wanted} and {CIPHER_SUITE:?}, got \
                 {kind:?} of {version:?} with {group} and {suite:?}"
            )
            .into());
        }
        Ok(())
    }

    /// Appraises the server's evidence as any client does, and gives the certificate that it came
    /// in: the verdict holds for its key.
    async fn appraise_server(&self, args: &RouteArgs) -> Outcome<(Vec<u8>, Guarantee)> {
        let appraiser = args.channel.open_appraiser(None)?;
        let options = ClientOptions { binding: Binding::Key, deadline: DEADLINE };
        let client =
            Client::new(options, Arc::new(appraiser)).map_err(|error| error_chain(&error))?;
        let stream = self.open_carrier().await?;
        let attested =
            client.connect("localhost", stream).await.map_err(|error| error_chain(&error))?;
        let (stream, appraised, _) = attested.into_parts();
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let first = chain.first().ok_or("the server showed no certificate")?.to_vec();
        let guarantee = Guarantee {
            text: appraised.guarantee().to_string(),
            simulated: appraised.is_simulated(),
        };
        Ok((first, guarantee))
    }
}

fn client_config(pinned: Arc<PinnedCertificate>) -> Outcome<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(pinned.provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(pinned)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Accepts one certificate, byte for byte, whose key has to sign every handshake: both kinds of
/// TLS are checked alike, so that the client's work differs in the length of the certificate only.
#[derive(Debug)]
struct PinnedCertificate {
    certificate: Vec<u8>,
    provider: Arc<CryptoProvider>,
    scheme: Mutex<Option<SignatureScheme>>,
    seen: Mutex<Option<String>>,
}

impl PinnedCertificate {
    fn new(certificate: Vec<u8>, group: KeyExchangeGroup) -> Self {
        let only = match group {
            KeyExchangeGroup::X25519 => aws_lc_rs::kx_group::X25519,
            KeyExchangeGroup::X25519mlkem768 => aws_lc_rs::kx_group::X25519MLKEM768,
        };
        let provider = CryptoProvider { kx_groups: vec![only], ..aws_lc_rs::default_provider() };
        Self {
            certificate,
            provider: Arc::new(provider),
            scheme: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    /// Notes what the first handshake was.
    fn note_handshake(&self, group: &str) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_none() {
            let scheme = self.scheme.lock().unwrap_or_else(PoisonError::into_inner);
            let scheme = scheme.and_then(|scheme| scheme.as_str()).unwrap_or("unknown key");
            let bytes = self.certificate.len();
            let suite = CIPHER_SUITE.as_str().unwrap_or("unknown suite");
            *seen = Some(format!("{group}, {scheme}, {suite}, a certificate of {bytes} bytes"));
        }
    }
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if certificate.as_ref() == self.certificate.as_slice() {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::General("not the pinned certificate".into()))
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not offered".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        *self.scheme.lock().unwrap_or_else(PoisonError::into_inner) = Some(signed.scheme);
        verify_tls13_signature(message, certificate, signed, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{SocketAddr, TcpListener},
        thread,
    };

    use rcgen::{CertificateParams, KeyPair};
    use rustls::{
        ServerConfig, ServerConnection, SupportedCipherSuite,
        crypto::aws_lc_rs::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384},
        pki_types::PrivatePkcs8KeyDer,
    };

    use super::*;

    /// A server with one cipher suite, which takes one connection: its address and its certificate.
    fn start_server(suite: SupportedCipherSuite) -> (SocketAddr, Vec<u8>) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let provider =
            CryptoProvider { cipher_suites: vec![suite], ..aws_lc_rs::default_provider() };
        let config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut tcp, _) = listener.accept().unwrap();
            let mut session = ServerConnection::new(Arc::new(config)).unwrap();
            session.complete_io(&mut tcp).unwrap();
        });
        (address, certificate.to_vec())
    }

    #[test]
    fn a_connection_with_another_cipher_suite_is_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (suite, is_wanted) in
            [(TLS13_AES_128_GCM_SHA256, true), (TLS13_AES_256_GCM_SHA384, false)]
        {
            let (server, certificate) = start_server(suite);
            let group = KeyExchangeGroup::X25519;
            let pinned = Arc::new(PinnedCertificate::new(certificate, group));
            let config = client_config(pinned.clone()).unwrap();
            let route = Route {
                server: server.to_string(),
                via: None,
                nodelay: true,
                security: Security::Pinned(TlsConnector::from(Arc::new(config)), pinned),
                group: "X25519",
            };
            let opened =
                runtime.block_on(route.open()).map(drop).map_err(|error| error.to_string());
            assert_eq!(opened.is_ok(), is_wanted, "{opened:?}");
        }
    }
}

//! How connections are opened, and what is believed of the other end.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use confide_channel::{Binding, Client, ClientOptions, tunnel};
use confide_client::{PolicyAppraiser, with_causes};
use confide_evidence::pem::decode_chain;
use confide_verifier::Policy;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, ProtocolVersion,
    SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::{Args, Group, Mode};
use crate::{Outcome, read};

/// Far above what a loaded machine needs for one connection.
const DEADLINE: Duration = Duration::from_secs(20);

/// One way to the server.
pub(crate) struct Route {
    server: String,
    via: Option<String>,
    nodelay: bool,
    tls: Option<(TlsConnector, Arc<Pinned>)>,
    group: &'static str,
}

/// An open stream of any kind.
pub(crate) type Stream = Box<dyn ReadWrite>;
pub(crate) trait ReadWrite: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> ReadWrite for T {}

/// Who is protected from whom, and whether that rests on something simulated.
pub(crate) struct Guarantee {
    pub(crate) text: String,
    pub(crate) simulated: bool,
}

/// What a connection was, for people.
pub(crate) struct Facts(Option<String>);

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("HTTP without TLS"))
    }
}

impl Route {
    pub(crate) async fn new(args: &Args) -> Outcome<(Self, Guarantee)> {
        let group = match args.group {
            Group::X25519 => "X25519",
            Group::X25519mlkem768 => "X25519MLKEM768",
        };
        if args.default_sockets && args.via.is_some() {
            return Err("--default-sockets and --via: the tunnel's client sets its own".into());
        }
        let mut door = Self {
            server: args.server.clone(),
            via: args.via.clone(),
            nodelay: !args.default_sockets,
            tls: None,
            group,
        };
        let none = || Guarantee { text: "none".into(), simulated: false };
        let (certificate, guarantee) = match args.mode {
            Mode::Http => return Ok((door, none())),
            Mode::Tls => {
                let path = args.root.as_ref().ok_or("--mode tls needs --root FILE")?;
                let chain = decode_chain("--root", &read(path)?).map_err(|e| e.to_string())?;
                let first = chain.into_iter().next().ok_or("--root: no certificate in the file")?;
                (first, none())
            }
            Mode::Key => door.appraise(args).await?,
        };
        let pinned = Arc::new(Pinned::new(certificate, args.group));
        let config = client_config(pinned.clone())?;
        door.tls = Some((TlsConnector::from(Arc::new(config)), pinned));
        Ok((door, guarantee))
    }

    /// What a connection is; opens one.
    pub(crate) async fn facts(&self) -> Outcome<Facts> {
        self.open().await?;
        let Some((_, pinned)) = &self.tls else { return Ok(Facts(None)) };
        let seen = pinned.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Facts(seen.clone().map(|seen| format!("full TLS 1.3 handshakes, {seen}"))))
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Whether a connection has a handshake.
    pub(crate) fn shakes(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) async fn open(&self) -> Outcome<Stream> {
        let carrier = self.carrier().await?;
        let Some((tls, pinned)) = &self.tls else { return Ok(carrier) };
        let name = ServerName::try_from("localhost").map_err(|error| error.to_string())?;
        let stream = tls.connect(name, carrier).await.map_err(|error| with_causes(&error))?;
        self.check(stream.get_ref().1, pinned)?;
        Ok(Box::new(stream))
    }

    async fn carrier(&self) -> Outcome<Stream> {
        match &self.via {
            Some(via) => tunnel::dial(via, &self.server, DEADLINE)
                .await
                .map(|stream| Box::new(stream) as Stream)
                .map_err(|error| with_causes(&error)),
            None => {
                let tcp = TcpStream::connect(&self.server).await.map_err(|e| e.to_string())?;
                tcp.set_nodelay(self.nodelay).map_err(|error| error.to_string())?;
                Ok(Box::new(tcp))
            }
        }
    }

    /// A resumed handshake, an older version or another group is another amount of work.
    fn check(&self, session: &ClientConnection, pinned: &Pinned) -> Outcome {
        let group = session.negotiated_key_exchange_group().map(|group| group.name());
        let group = group.and_then(|name| name.as_str()).unwrap_or("none");
        let kind = session.handshake_kind();
        let version = session.protocol_version();
        let full = kind == Some(HandshakeKind::Full);
        if !full || version != Some(ProtocolVersion::TLSv1_3) || group != self.group {
            let wanted = self.group;
            return Err(format!(
                "wanted a full handshake of TLS 1.3 with {wanted}, got {kind:?} of {version:?} \
                 with {group}"
            ));
        }
        let suite = session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
        let mut seen = pinned.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_none() {
            let scheme = pinned.scheme.lock().unwrap_or_else(PoisonError::into_inner);
            let scheme = scheme.and_then(|scheme| scheme.as_str()).unwrap_or("unknown key");
            let bytes = pinned.certificate.len();
            *seen = Some(format!(
                "{group}, {scheme}, {}, a certificate of {bytes} bytes",
                suite.unwrap_or("unknown suite")
            ));
        }
        Ok(())
    }

    /// Appraises the server's evidence as any client does, and gives the certificate that it came
    /// in: the verdict holds for its key.
    async fn appraise(&self, args: &Args) -> Outcome<(Vec<u8>, Guarantee)> {
        let path = args.policy.as_ref().ok_or("--mode key needs --policy FILE")?;
        let text = String::from_utf8(read(path)?).map_err(|error| error.to_string())?;
        let policy = Policy::from_toml(&text).map_err(|error| error.to_string())?;
        let appraiser =
            PolicyAppraiser::new(policy, None, unix_now).map_err(|error| with_causes(&error))?;
        let options = ClientOptions { binding: Binding::Key, deadline: DEADLINE };
        let client =
            Client::new(options, Arc::new(appraiser)).map_err(|error| with_causes(&error))?;
        let stream = self.carrier().await?;
        let attested =
            client.connect("localhost", stream).await.map_err(|error| with_causes(&error))?;
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

fn client_config(pinned: Arc<Pinned>) -> Outcome<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(pinned.provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(pinned)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Accepts one certificate, byte for byte, whose key has to sign every handshake: both kinds of
/// TLS are checked alike, so that the client's work differs in the length of the certificate only.
#[derive(Debug)]
struct Pinned {
    certificate: Vec<u8>,
    provider: Arc<CryptoProvider>,
    scheme: Mutex<Option<SignatureScheme>>,
    seen: Mutex<Option<String>>,
}

impl Pinned {
    fn new(certificate: Vec<u8>, group: Group) -> Self {
        let only = match group {
            Group::X25519 => aws_lc_rs::kx_group::X25519,
            Group::X25519mlkem768 => aws_lc_rs::kx_group::X25519MLKEM768,
        };
        let provider = CryptoProvider { kx_groups: vec![only], ..aws_lc_rs::default_provider() };
        Self {
            certificate,
            provider: Arc::new(provider),
            scheme: Mutex::default(),
            seen: Mutex::default(),
        }
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match certificate.as_ref() == self.certificate.as_slice() {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(rustls::Error::General("not the pinned certificate".into())),
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

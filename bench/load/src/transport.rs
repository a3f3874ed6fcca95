//! Connections to the server: a trait, with plain TCP and TLS behind it.

use std::{future::Future, pin::Pin, sync::Arc, time::Instant};

use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme,
    WantsVerifier,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::event::{Attestation, RequestRecord};

/// The clock of a run, in seconds since the run's origin.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose 0 is `origin`.
    pub fn new(origin: Instant) -> Self {
        Self { origin }
    }

    /// The present instant; below 0 before the origin.
    pub fn now_s(&self) -> f64 {
        self.seconds_at(Instant::now())
    }

    /// An instant in seconds; below 0 before the origin.
    pub fn seconds_at(&self, instant: Instant) -> f64 {
        match instant.checked_duration_since(self.origin) {
            Some(after) => after.as_secs_f64(),
            None => -self.origin.duration_since(instant).as_secs_f64(),
        }
    }
}

/// A byte stream to the server.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// A connection that takes a request, and the instants at which its stages were reached.
pub struct OpenedConnection {
    /// The byte stream.
    pub wire: Box<dyn Wire>,
    /// The instants of its stages.
    pub stages: ConnectStages,
}

/// Instants of opening a connection, in seconds of the run's clock. A stage that did not happen is
/// absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConnectStages {
    /// The instant at which the name was resolved.
    pub resolved_s: Option<f64>,
    /// The instant at which TCP was connected and, with a tunnel, upgraded.
    pub connected_s: Option<f64>,
    /// The instant at which the TLS handshake was complete.
    pub handshake_s: Option<f64>,
    /// The instant at which the evidence was accepted.
    pub attested_s: Option<f64>,
    /// The durations within attestation.
    pub attestation: Option<Attestation>,
}

impl ConnectStages {
    /// Writes the stages into the event of the request for which the connection was opened.
    pub(crate) fn write_to(self, event: &mut RequestRecord) {
        event.resolved_s = self.resolved_s;
        event.connected_s = self.connected_s;
        event.handshake_s = self.handshake_s;
        event.attested_s = self.attested_s;
        event.attestation = self.attestation;
    }
}

/// What [`Transport::open`] gives: a connection, or a text that says why there is none.
pub type Opening<'a> = Pin<Box<dyn Future<Output = Result<OpenedConnection, String>> + Send + 'a>>;

/// A way to the server.
pub trait Transport: Send + Sync {
    /// Opens one connection, its stages timed by `clock`. The caller sets the deadline.
    fn open(&self, clock: Clock) -> Opening<'_>;

    /// Its description in event logs: `tcp`, `tls 1.3`, ….
    fn describe(&self) -> String;
}

/// Plain TCP: HTTP in the clear.
#[derive(Clone, Debug)]
pub struct TcpTransport {
    host: String,
    port: u16,
}

impl TcpTransport {
    /// A transport to this host, which has no brackets around an IPv6 address.
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port }
    }

    /// Connects a socket; gives the instants at which its stages were reached too.
    ///
    /// # Errors
    /// A text that says what failed.
    pub async fn dial(&self, clock: Clock) -> Result<(TcpStream, ConnectStages), String> {
        let mut stages = ConnectStages::default();
        let cannot = |what: &str, error: std::io::Error| {
            format!("cannot {what} {}:{}: {error}", self.host, self.port)
        };
        let address: Option<std::net::IpAddr> = self.host.parse().ok();
        let stream = match address {
            Some(address) => TcpStream::connect((address, self.port)).await,
            None => {
                let addresses = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
                let addresses: Vec<_> =
                    addresses.map_err(|error| cannot("resolve", error))?.collect();
                stages.resolved_s = Some(clock.now_s());
                TcpStream::connect(&addresses[..]).await
            }
        };
        let stream = stream.map_err(|error| cannot("connect to", error))?;
        // A request is a small write and must not wait for an earlier acknowledgement.
        let _ = stream.set_nodelay(true);
        stages.connected_s = Some(clock.now_s());
        Ok((stream, stages))
    }
}

impl Transport for TcpTransport {
    fn open(&self, clock: Clock) -> Opening<'_> {
        Box::pin(async move {
            let (stream, stages) = self.dial(clock).await?;
            Ok(OpenedConnection { wire: Box::new(stream), stages })
        })
    }

    fn describe(&self) -> String {
        "tcp".into()
    }
}

/// TLS 1.3 or 1.2 that trusts a set of roots. Every handshake is full.
#[derive(Clone)]
pub struct TlsTransport {
    tcp: TcpTransport,
    name: ServerName<'static>,
    connector: TlsConnector,
    description: &'static str,
}

impl TlsTransport {
    /// A transport to this host, whose certificate must lead to one of `roots` (DER) or, where none
    /// is given, to a root that the machine trusts.
    ///
    /// # Errors
    /// A text, where a root cannot be read or the host is not a name.
    pub fn new(host: &str, port: u16, roots: &[Vec<u8>]) -> Result<Self, String> {
        let mut store = RootCertStore::empty();
        if roots.is_empty() {
            for root in rustls_native_certs::load_native_certs().certs {
                // Some machines carry roots that cannot be read; the others suffice.
                let _ = store.add(root);
            }
        }
        for root in roots {
            store.add(root.clone().into()).map_err(|error| format!("root certificate: {error}"))?;
        }
        let config = config_builder()?.with_root_certificates(store).with_no_client_auth();
        Self::with_config(host, port, config, "tls, every handshake full")
    }

    /// A transport to this host, whose certificate must have this SHA-256, no matter who signed it: a
    /// self-signed one too.
    ///
    /// # Errors
    /// A text, where the host is not a name.
    pub fn with_pin(host: &str, port: u16, sha256: [u8; 32]) -> Result<Self, String> {
        let verifier = Arc::new(PinOrAnyVerifier { sha256: Some(sha256), provider: provider() });
        let config = config_builder()?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Self::with_config(host, port, config, "tls, a pinned certificate, every handshake full")
    }

    /// A transport to this host that accepts any certificate: nothing tells the server from
    /// somebody in between.
    ///
    /// # Errors
    /// A text, where the host is not a name.
    pub fn dangerous_unverified(host: &str, port: u16) -> Result<Self, String> {
        let verifier = Arc::new(PinOrAnyVerifier { sha256: None, provider: provider() });
        let config = config_builder()?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Self::with_config(host, port, config, "tls, NOT VERIFIED, every handshake full")
    }

    fn with_config(
        host: &str,
        port: u16,
        mut config: ClientConfig,
        description: &'static str,
    ) -> Result<Self, String> {
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Self { tcp: TcpTransport::new(host, port), name, connector, description })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn config_builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, String> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())
}

/// Accepts one certificate by its hash, or any at all; the handshake still proves that the server
/// has its key.
#[derive(Debug)]
struct PinOrAnyVerifier {
    sha256: Option<[u8; 32]>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinOrAnyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let got: [u8; 32] = Sha256::digest(end_entity).into();
        match self.sha256 {
            Some(wanted) if wanted != got => Err(rustls::Error::General(format!(
                "certificate: wanted SHA-256 {}, got {}",
                hex::encode(wanted),
                hex::encode(got)
            ))),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl Transport for TlsTransport {
    fn open(&self, clock: Clock) -> Opening<'_> {
        Box::pin(async move {
            let (stream, mut stages) = self.tcp.dial(clock).await?;
            let wire = self.connector.connect(self.name.clone(), stream).await;
            let wire = wire.map_err(|error| format!("TLS: {error}"))?;
            stages.handshake_s = Some(clock.now_s());
            Ok(OpenedConnection { wire: Box::new(wire), stages })
        })
    }

    fn describe(&self) -> String {
        self.description.into()
    }
}

//! How connections are made: a trait, and plain TCP and TLS behind it.

use std::{future::Future, pin::Pin, sync::Arc, time::Instant};

use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::event::{Attestation, Event};

/// Seconds since the run's origin.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose 0 is `origin`.
    pub fn new(origin: Instant) -> Self {
        Self { origin }
    }

    /// Now; below 0 before the origin.
    pub fn now_s(&self) -> f64 {
        self.at_s(Instant::now())
    }

    /// The seconds of an instant.
    pub fn at_s(&self, instant: Instant) -> f64 {
        match instant.checked_duration_since(self.origin) {
            Some(after) => after.as_secs_f64(),
            None => -self.origin.duration_since(instant).as_secs_f64(),
        }
    }
}

/// A byte stream to the server.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// A connection that takes a request, and when its stages were reached.
pub struct Opened {
    /// The stream.
    pub wire: Box<dyn Wire>,
    /// The stages.
    pub stages: Stages,
}

/// Instants of opening a connection, in seconds of the run's clock. Absent is what did not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stages {
    /// Name resolved.
    pub resolved_s: Option<f64>,
    /// TCP connected, and with a tunnel its upgrade.
    pub connected_s: Option<f64>,
    /// TLS handshake complete.
    pub handshake_s: Option<f64>,
    /// Evidence accepted.
    pub attested_s: Option<f64>,
    /// Parts of attestation.
    pub attestation: Option<Attestation>,
}

impl Stages {
    /// Writes the stages into the event of the request for which the connection was opened.
    pub(crate) fn write_to(self, event: &mut Event) {
        event.resolved_s = self.resolved_s;
        event.connected_s = self.connected_s;
        event.handshake_s = self.handshake_s;
        event.attested_s = self.attested_s;
        event.attestation = self.attestation;
    }
}

/// What [`Transport::open`] gives: a connection, or a text that says why there is none.
pub type Opening<'a> = Pin<Box<dyn Future<Output = Result<Opened, String>> + Send + 'a>>;

/// A way to the server.
pub trait Transport: Send + Sync {
    /// Opens one connection; stages by `clock`. The caller has a deadline.
    fn open(&self, clock: Clock) -> Opening<'_>;

    /// What it is, for the log: `tcp`, `tls 1.3`, ….
    fn describe(&self) -> String;
}

/// Plain TCP: HTTP in the clear.
#[derive(Clone, Debug)]
pub struct Tcp {
    host: String,
    port: u16,
}

impl Tcp {
    /// To this host, without brackets around an IPv6 address.
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port }
    }

    /// A connected socket and when its stages were reached.
    ///
    /// # Errors
    /// A text that says what failed.
    pub async fn dial(&self, clock: Clock) -> Result<(TcpStream, Stages), String> {
        let mut stages = Stages::default();
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

impl Transport for Tcp {
    fn open(&self, clock: Clock) -> Opening<'_> {
        Box::pin(async move {
            let (stream, stages) = self.dial(clock).await?;
            Ok(Opened { wire: Box::new(stream), stages })
        })
    }

    fn describe(&self) -> String {
        "tcp".into()
    }
}

/// TLS 1.3 or 1.2 that trusts a set of roots. Every handshake is full.
#[derive(Clone)]
pub struct Tls {
    tcp: Tcp,
    name: ServerName<'static>,
    connector: TlsConnector,
}

impl Tls {
    /// To this host, whose certificate must lead to one of `roots` (DER); where none is given, to
    /// one that the machine trusts.
    ///
    /// # Errors
    /// A text: a root that cannot be read, or a host that is no name.
    pub fn new(host: &str, port: u16, roots: &[Vec<u8>]) -> Result<Self, String> {
        let mut store = RootCertStore::empty();
        if roots.is_empty() {
            for root in rustls_native_certs::load_native_certs().certs {
                // Machines carry roots that no verifier reads; the others do.
                let _ = store.add(root);
            }
        }
        for root in roots {
            store.add(root.clone().into()).map_err(|error| format!("root certificate: {error}"))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(store)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Self { tcp: Tcp::new(host, port), name, connector })
    }
}

impl Transport for Tls {
    fn open(&self, clock: Clock) -> Opening<'_> {
        Box::pin(async move {
            let (stream, mut stages) = self.tcp.dial(clock).await?;
            let wire = self.connector.connect(self.name.clone(), stream).await;
            let wire = wire.map_err(|error| format!("TLS: {error}"))?;
            stages.handshake_s = Some(clock.now_s());
            Ok(Opened { wire: Box::new(wire), stages })
        })
    }

    fn describe(&self) -> String {
        "tls, every handshake full".into()
    }
}

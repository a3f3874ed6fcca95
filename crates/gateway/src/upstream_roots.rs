//! The root certificates by which the gateway verifies https upstreams.

use std::{fmt, io, path::Path, sync::Arc};

use confide_channel::UnixClock;
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        client::Resumption,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

use crate::{
    http_version::HttpVersion,
    trusted_file::{TrustedFileError, read_trusted_file},
};

/// The largest number of bytes of a file of root certificates, several times those of a whole
/// operating system.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The name of HTTP/2 in TLS (RFC 9113 section 3.2).
const HTTP2: &[u8] = b"h2";

/// The roots of https upstreams, and the TLS client that verifies the upstreams by them.
///
/// Two values are equal if their roots have the same source: the system, or files of equal
/// contents.
#[derive(Clone)]
pub(crate) struct UpstreamRoots {
    source: RootsSource,
    /// The TLS client for HTTP/1.1.
    http1: TlsConnector,
    /// The TLS client for HTTP/2.
    http2: TlsConnector,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RootsSource {
    /// The roots of the operating system.
    System,
    /// A file with this SHA-256.
    File([u8; 32]),
}

impl UpstreamRoots {
    /// Reads the roots of the operating system. `clock` returns Unix seconds.
    ///
    /// # Errors
    /// The text of the failure if the system has no usable root.
    pub(crate) fn read_system(clock: fn() -> u64) -> Result<Self, String> {
        let system = rustls_native_certs::load_native_certs();
        let mut store = RootCertStore::empty();
        // Systems also have certificates of forms that TLS no longer accepts.
        store.add_parsable_certificates(system.certs);
        if store.is_empty() {
            let why = system.errors.first().map(|error| format!(": {error}"));
            return Err(format!("this system has none{}", why.unwrap_or_default()));
        }
        Self::new(RootsSource::System, store, clock)
    }

    /// Reads the certificates of a PEM file, which only its owner may write.
    ///
    /// # Errors
    /// [`TrustedFileError`] if the file cannot be read, others may write to it, it has no
    /// certificate, or one of its certificates cannot be a root.
    pub(crate) fn read(path: &Path, clock: fn() -> u64) -> Result<Self, TrustedFileError> {
        let pem = read_trusted_file(path, FILE_BYTES_MAX)?;
        Self::from_pem(&pem, clock).map_err(|reason| TrustedFileError::content(path, reason))
    }

    /// The roots in a PEM text.
    pub(crate) fn from_pem(pem: &[u8], clock: fn() -> u64) -> Result<Self, String> {
        let wanted = |got: String| format!("wanted root certificates in PEM (RFC 7468), got {got}");
        let mut store = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| wanted(error.to_string()))?;
            store.add(certificate).map_err(|error| wanted(error.to_string()))?;
        }
        if store.is_empty() {
            return Err(wanted("no certificate".into()));
        }
        Self::new(RootsSource::File(Sha256::digest(pem).into()), store, clock)
    }

    fn new(source: RootsSource, store: RootCertStore, clock: fn() -> u64) -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_details(provider, Arc::new(UnixClock(clock)))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(store)
            .with_no_client_auth();
        // A resumed session would outlive the certificate that was verified for it.
        config.resumption = Resumption::disabled();
        let mut speaking = |protocol: &[u8]| {
            config.alpn_protocols = vec![protocol.to_vec()];
            TlsConnector::from(Arc::new(config.clone()))
        };
        Ok(Self { source, http1: speaking(b"http/1.1"), http2: speaking(HTTP2) })
    }

    /// The roots as the configuration digest holds them: `system`, or the SHA-256 of their file in
    /// hexadecimal digits.
    pub(crate) fn canonical_name(&self) -> String {
        match self.source {
            RootsSource::System => "system".into(),
            RootsSource::File(digest) => hex::encode(digest),
        }
    }

    /// Completes a TLS handshake with the server `name`.
    ///
    /// # Errors
    /// [`io::Error`] for a failed handshake or certificate, or a server that was to choose HTTP/2
    /// and did not.
    pub(crate) async fn connect(
        &self,
        name: ServerName<'static>,
        stream: TcpStream,
        version: HttpVersion,
    ) -> io::Result<TlsStream<TcpStream>> {
        let connector = match version {
            HttpVersion::Http1 => &self.http1,
            HttpVersion::Http2 => &self.http2,
        };
        let stream = connector.connect(name, stream).await?;
        if version == HttpVersion::Http2 && stream.get_ref().1.alpn_protocol() != Some(HTTP2) {
            return Err(io::Error::other("the server does not speak HTTP/2 (ALPN `h2`)"));
        }
        Ok(stream)
    }
}

impl PartialEq for UpstreamRoots {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for UpstreamRoots {}

impl fmt::Debug for UpstreamRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UpstreamRoots").field(&self.source).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_a_usable_root_is_refused() {
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        for (pem, wanted) in [
            ("", "got no certificate"),
            ("not PEM", "got no certificate"),
            (&key, "got no certificate"),
            (garbage, "got invalid peer certificate"),
        ] {
            let refused = UpstreamRoots::from_pem(pem.as_bytes(), || 0).unwrap_err();
            assert!(refused.contains(wanted), "{pem}: {refused}");
        }
    }

    #[test]
    fn roots_are_named_by_the_digest_of_their_file() {
        let pem = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem();
        let [one, two] = [&pem, &format!("{pem}\n")]
            .map(|pem| UpstreamRoots::from_pem(pem.as_bytes(), || 0).unwrap());
        assert_eq!(one.canonical_name(), hex::encode(Sha256::digest(&pem)));
        assert_ne!(one, two);
        assert_eq!(one, one.clone());
    }
}

//! The TLS 1.3 configuration of all bindings, and the certificate checks of attested peers.

use std::{io, sync::Arc};

use rustls::{
    AlertDescription, ClientConfig, DigitallySignedStruct, DistinguishedName, HandshakeKind,
    OtherError, PeerMisbehaved, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls13_signature_with_raw_key},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
    version::TLS13,
};
#[cfg(feature = "native")]
use rustls::{
    CipherSuite, ServerConfig,
    crypto::aws_lc_rs,
    server::{NoServerSessionStorage, ResolvesServerCert},
};

use crate::{
    certificate::PeerCertificate,
    error::{ChannelError, ChannelPhase},
    options::{Binding, SessionVersion},
};

/// The ALPN name of HTTP/2 over TLS (RFC 9113 section 3.2).
pub(crate) const HTTP_2: &[u8] = b"h2";

/// The library's algorithms, with TLS_AES_128_GCM_SHA256 before the other cipher suites. A handshake
/// hashes the whole certificate, with key binding 10 KiB of evidence, and processors have
/// instructions for SHA-256 where they have none for SHA-384.
#[cfg(feature = "native")]
pub(crate) fn crypto_provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    let first = CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != first);
    Arc::new(provider)
}

/// Builds a server configuration for TLS 1.3 only, without tickets, session storage or early data,
/// in which the server's preference decides the cipher suite.
#[cfg(feature = "native")]
pub(crate) fn server_config(
    binding: Binding,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    resolver: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, ChannelError> {
    let builder = ServerConfig::builder_with_provider(crypto_provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(ChannelError::Tls)?;
    let builder = match clients {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(resolver);
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    config.ignore_client_order = true;
    config.alpn_protocols = alpn_protocols(binding);
    Ok(config)
}

/// Applies the policy of all clients: no resumption and no early data.
pub(crate) fn apply_client_policy(config: &mut ClientConfig, binding: Binding) {
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    config.alpn_protocols = alpn_protocols(binding);
}

fn alpn_protocols(binding: Binding) -> Vec<Vec<u8>> {
    binding.alpn_names().iter().map(|name| name.as_bytes().to_vec()).collect()
}

/// The ALPN names of versions of the session exchange.
pub(crate) fn session_alpn(versions: &[SessionVersion]) -> Vec<Vec<u8>> {
    versions.iter().map(|version| version.alpn().as_bytes().to_vec()).collect()
}

/// Checks that an end may be restricted to these versions of the session exchange.
pub(crate) fn check_session_versions(
    binding: Binding,
    versions: &[SessionVersion],
) -> Result<(), ChannelError> {
    if binding != Binding::Session {
        return Err(ChannelError::Binding { call: "session versions", wanted: "session" });
    }
    if versions.is_empty() {
        let (option, wanted) = ("session versions", "at least one");
        return Err(ChannelError::Option { option, wanted, got: "none".into() });
    }
    Ok(())
}

/// Builds a client configuration that accepts any certificate whose key signed the handshake.
///
/// The evidence proves who holds the key, after the handshake.
pub(crate) fn attested_client_config(
    binding: Binding,
    provider: Arc<CryptoProvider>,
) -> Result<ClientConfig, ChannelError> {
    let verifier = Arc::new(KeyPossessionVerifier { provider: provider.clone() });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(ChannelError::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    apply_client_policy(&mut config, binding);
    Ok(config)
}

/// Checks that a peer holds the key of its certificate, and trusts nothing else in the certificate.
#[derive(Debug)]
pub(crate) struct KeyPossessionVerifier {
    pub(crate) provider: Arc<CryptoProvider>,
}

impl KeyPossessionVerifier {
    fn verify_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let spki = PeerCertificate::parse(certificate).and_then(|parsed| parsed.spki());
        let spki = spki.map_err(|error| rustls::Error::Other(OtherError(Arc::new(error))))?;
        let schemes = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &spki, signed, schemes)
    }

    fn refuse_tls12() -> rustls::Error {
        PeerMisbehaved::SelectedTls12UsingTls13VersionExtension.into()
    }

    fn supported_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for KeyPossessionVerifier {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(Self::refuse_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.supported_schemes()
    }
}

impl ClientCertVerifier for KeyPossessionVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(Self::refuse_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.supported_schemes()
    }
}

/// Classifies a failed handshake: a TLS error, a network error, or an early end of stream.
pub(crate) fn handshake_error(source: io::Error) -> ChannelError {
    let phase = ChannelPhase::Handshake;
    let tls = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match (tls.cloned(), source.kind()) {
        (Some(error), _) => ChannelError::Tls(error),
        (None, io::ErrorKind::UnexpectedEof) => ChannelError::UnexpectedEnd { phase },
        (None, _) => ChannelError::Io { phase, source },
    }
}

/// Whether the server demands a certificate that this end does not have. TLS 1.3 says so after the
/// handshake, in place of the first bytes.
pub(crate) fn is_missing_certificate(error: &ChannelError) -> bool {
    let tls = match error {
        ChannelError::Tls(tls) => Some(tls),
        ChannelError::Io { source, .. } => {
            source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
        }
        _ => None,
    };
    matches!(tls, Some(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)))
}

/// Checks the agreed ALPN protocol: a peer that does not know the exchange would take its first
/// frame for application bytes. Without an exchange, a client may omit ALPN; it then speaks HTTP/1.1.
pub(crate) fn check_alpn(got: Option<&[u8]>, binding: Binding) -> Result<(), ChannelError> {
    let wanted = binding.alpn();
    let exchanges = binding == Binding::Session;
    // TLS itself refuses a protocol that this end did not offer.
    let known = binding.alpn_names().iter().any(|name| got == Some(name.as_bytes()))
        || (got == Some(HTTP_2) && !exchanges);
    if known || (got.is_none() && !exchanges) {
        return Ok(());
    }
    let got = got.map(|name| String::from_utf8_lossy(name).into_owned());
    Err(ChannelError::Protocol { wanted, got })
}

/// The round trips of TCP and TLS; one more if the server requested another key share.
pub(crate) fn handshake_round_trips(kind: Option<HandshakeKind>) -> u32 {
    match kind {
        Some(HandshakeKind::FullWithHelloRetryRequest) => 3,
        _ => 2,
    }
}

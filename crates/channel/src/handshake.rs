//! TLS 1.3 as every arm speaks it, and the certificate checks of attested peers.

use std::{io, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, HandshakeKind, OtherError,
    PeerMisbehaved, ServerConfig, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature_with_raw_key},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        NoServerSessionStorage, ResolvesServerCert,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::TLS13,
};

use crate::{
    certificate::PeerCertificate,
    error::{ChannelError, Phase},
    options::Binding,
};

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// A server that speaks TLS 1.3 only, sends no tickets, keeps no sessions and reads no early data.
pub(crate) fn server_config(
    binding: Binding,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    resolver: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, ChannelError> {
    let builder = ServerConfig::builder_with_provider(provider())
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
    config.alpn_protocols = alpn_protocols(binding);
    Ok(config)
}

/// Sets what all clients have in common: nothing is resumed and nothing is sent early.
pub(crate) fn client_policy(config: &mut ClientConfig, binding: Binding) {
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    config.alpn_protocols = alpn_protocols(binding);
}

fn alpn_protocols(binding: Binding) -> Vec<Vec<u8>> {
    binding.alpn_names().iter().map(|name| name.as_bytes().to_vec()).collect()
}

/// A client that accepts any certificate whose key signed the handshake.
///
/// Who holds the key is decided by the evidence, after the handshake.
pub(crate) fn attested_client_config(binding: Binding) -> Result<ClientConfig, ChannelError> {
    let provider = provider();
    let verifier = Arc::new(KeyPossessionVerifier { provider: provider.clone() });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(ChannelError::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    client_policy(&mut config, binding);
    Ok(config)
}

/// Checks that a peer holds the key of its certificate, and believes nothing else in it.
#[derive(Debug)]
pub(crate) struct KeyPossessionVerifier {
    pub(crate) provider: Arc<CryptoProvider>,
}

impl KeyPossessionVerifier {
    fn verify(
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
        self.verify(message, certificate, signed)
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
        self.verify(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.supported_schemes()
    }
}

/// A handshake's failure as what it is: TLS, the network, or an early end.
pub(crate) fn handshake_error(source: io::Error) -> ChannelError {
    let phase = Phase::Handshake;
    let tls = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match (tls.cloned(), source.kind()) {
        (Some(error), _) => ChannelError::Tls(error),
        (None, io::ErrorKind::UnexpectedEof) => ChannelError::UnexpectedEnd { phase },
        (None, _) => ChannelError::Io { phase, source },
    }
}

/// Both ends have to have agreed on the one protocol: a peer that knows nothing of the exchange
/// would take its first frame for application bytes. Where there is no exchange, a client may
/// leave the protocol unnamed.
pub(crate) fn check_alpn(got: Option<&[u8]>, binding: Binding) -> Result<(), ChannelError> {
    let wanted = binding.alpn();
    let known = binding.alpn_names().iter().any(|name| got == Some(name.as_bytes()));
    if known || (got.is_none() && binding != Binding::Session) {
        return Ok(());
    }
    let got = got.map(|name| String::from_utf8_lossy(name).into_owned());
    Err(ChannelError::Protocol { wanted, got })
}

/// The round trips of TCP and TLS; one more where the server had to ask for another key share.
pub(crate) fn round_trips(kind: Option<HandshakeKind>) -> u32 {
    match kind {
        Some(HandshakeKind::FullWithHelloRetryRequest) => 3,
        _ => 2,
    }
}

//! Ends that speak the protocol by hand and say what they like.

use std::sync::Arc;

use confide_channel::{AttestedServerStream, ChannelError, Client};
use confide_evidence::{
    binder::EXPORTER_LABEL,
    claims::Claims,
    session_message::{SessionEvidence, SessionMessage},
};
use rcgen::{CertificateParams, KeyPair, PublicKeyData};
use rustls::{
    ClientConfig, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::danger::{ClientCertVerified, ClientCertVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{FakeAppraised, FakeAppraiser, NOW, client, wire};
use confide_channel::Binding;

pub(crate) type FakeAttested = AttestedServerStream<DuplexStream, FakeAppraised>;

/// A server that speaks the protocol by hand and says what it likes.
pub(crate) struct Cheat {
    pub(crate) alpn: &'static str,
    key: KeyPair,
}

/// The evidence that a [`Cheat`] shows.
pub(crate) struct ShownEvidence {
    pub(crate) batch: Option<Vec<u8>>,
    pub(crate) claims: Vec<u8>,
    pub(crate) gpu: Option<Vec<u8>>,
    pub(crate) quote: Vec<u8>,
}

impl From<(Vec<u8>, Vec<u8>)> for ShownEvidence {
    fn from(shown: (Vec<u8>, Vec<u8>)) -> Self {
        let (quote, claims) = shown;
        Self { batch: None, claims, gpu: None, quote }
    }
}

pub(crate) type Exporter<'a> = &'a dyn Fn(&[u8; 32]) -> [u8; 32];

impl Cheat {
    /// A cheat that speaks the version without batch paths.
    pub(crate) fn new() -> Self {
        Self { alpn: "confide-session/1", key: KeyPair::generate().unwrap() }
    }

    pub(crate) fn version_2() -> Self {
        Self { alpn: "confide-session/2", ..Self::new() }
    }

    pub(crate) fn version_3() -> Self {
        Self { alpn: "confide-session/3", ..Self::new() }
    }

    pub(crate) fn hash(&self) -> [u8; 32] {
        sha256(&self.key.subject_public_key_info())
    }

    pub(crate) fn claims(&self) -> Vec<u8> {
        claims(self.hash())
    }

    /// The error with which an honest client refuses the quote and claims that `says` gives.
    pub(crate) async fn answer<S: Into<ShownEvidence>>(
        self,
        says: impl FnOnce(&Cheat, Exporter<'_>, [u8; 32]) -> S,
    ) -> ChannelError {
        self.try_answer(client(Binding::Session), says).await.unwrap_err()
    }

    pub(crate) async fn try_answer<S: Into<ShownEvidence>>(
        self,
        client: Client<FakeAppraiser>,
        says: impl FnOnce(&Cheat, Exporter<'_>, [u8; 32]) -> S,
    ) -> Result<FakeAttested, ChannelError> {
        let (near, far) = wire();
        let config = cheat_config(&self, false);
        let cheating = async {
            let mut stream = TlsAcceptor::from(Arc::new(config)).accept(far).await.unwrap();
            let request = read_frame(&mut stream).await;
            let Ok(SessionMessage::Request { context: Some(context) }) =
                SessionMessage::decode(&request)
            else {
                panic!("no request");
            };
            let session = stream.get_ref().1;
            let exporter = |context: &[u8; 32]| {
                session.export_keying_material([0; 32], EXPORTER_LABEL, Some(context)).unwrap()
            };
            let ShownEvidence { batch, claims, gpu, quote } =
                says(&self, &exporter, context).into();
            let (batch, gpu) = (batch.as_deref(), gpu.as_deref());
            let evidence =
                SessionEvidence { quote: &quote, claims: &claims, collateral: None, batch, gpu };
            let reply = SessionMessage::Reply { context: None, evidence: Some(evidence) };
            send(&mut stream, &reply).await;
            stream
        };
        let (attested, _stream) = tokio::join!(client.connect("localhost", near), cheating);
        attested
    }
}

pub(crate) fn cheat_config(cheat: &Cheat, asks_for_certificate: bool) -> ServerConfig {
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&cheat.key).unwrap().der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(cheat.key.serialize_der()));
    let key = aws_lc_rs::sign::any_supported_type(&key).unwrap();
    let resolver = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap();
    let builder = match asks_for_certificate {
        true => builder.with_client_cert_verifier(Arc::new(AnyCertificate)),
        false => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![cheat.alpn.into()];
    config
}

/// A TLS client that speaks the protocol by hand; its certificate is that of a fresh key.
pub(crate) async fn raw_client(io: DuplexStream) -> tokio_rustls::client::TlsStream<DuplexStream> {
    raw_client_with(&Cheat::new(), io).await
}

pub(crate) async fn raw_client_with(
    cheat: &Cheat,
    io: DuplexStream,
) -> tokio_rustls::client::TlsStream<DuplexStream> {
    raw_client_of(cheat, aws_lc_rs::default_provider(), io).await
}

/// A TLS client that offers what `provider` has.
pub(crate) async fn raw_client_of(
    cheat: &Cheat,
    provider: CryptoProvider,
    io: DuplexStream,
) -> tokio_rustls::client::TlsStream<DuplexStream> {
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&cheat.key).unwrap().der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(cheat.key.serialize_der()));
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_client_auth_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![cheat.alpn.into()];
    let name = "localhost".try_into().unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, io).await.unwrap()
}

/// The same claims with the hash of a GPU's evidence.
pub(crate) fn claims_with_gpu(claims: &[u8], evidence: &[u8]) -> Vec<u8> {
    let claims = Claims::decode(claims).unwrap();
    Claims { gpu_evidence_hash: Some(sha256(evidence)), ..claims }.encode()
}

pub(crate) fn claims(pubkey_hash: [u8; 32]) -> Vec<u8> {
    let claims = Claims {
        config_digest: [5; 32],
        gpu_evidence_hash: None,
        guarantee: "operator is outside the TEE".into(),
        nonce: None,
        not_after: NOW + 3600,
        not_before: NOW,
        pubkey_hash,
        weights: None,
    };
    claims.encode()
}

pub(crate) fn reply<'a>(quote: &'a [u8], claims: &'a [u8]) -> SessionMessage<'a> {
    let evidence = Some(SessionEvidence { quote, claims, ..Default::default() });
    SessionMessage::Reply { context: None, evidence }
}

pub(crate) async fn send<S: AsyncWrite + Unpin>(stream: &mut S, message: &SessionMessage<'_>) {
    send_frame(stream, &message.encode()).await;
}

pub(crate) async fn send_frame<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) {
    stream.write_u32(bytes.len() as u32).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream.flush().await.unwrap();
}

pub(crate) async fn read_frame<S: AsyncRead + Unpin>(stream: &mut S) -> Vec<u8> {
    let len = stream.read_u32().await.unwrap();
    let mut bytes = vec![0; len as usize];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

pub(crate) fn spki_hash(certificate: &[u8]) -> [u8; 32] {
    use der::{Decode, Encode};
    let certificate = x509_cert::Certificate::from_der(certificate).unwrap();
    sha256(&certificate.tbs_certificate().subject_public_key_info().to_der().unwrap())
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = ::aws_lc_rs::digest::digest(&::aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().try_into().unwrap()
}

/// Lets any certificate and any signature pass: for the cheating ends only.
#[derive(Debug)]
pub(crate) struct AnyCertificate;

mod any_certificate {
    use rustls::{
        DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        pki_types::{CertificateDer, ServerName, UnixTime},
    };

    use super::{AnyCertificate, ClientCertVerified, ClientCertVerifier, aws_lc_rs};

    type Verified = Result<HandshakeSignatureValid, Error>;

    fn schemes() -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }

    impl ServerCertVerifier for AnyCertificate {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Verified {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Verified {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            schemes()
        }
    }

    impl ClientCertVerifier for AnyCertificate {
        fn root_hint_subjects(&self) -> &[DistinguishedName] {
            &[]
        }

        fn verify_client_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: UnixTime,
        ) -> Result<ClientCertVerified, Error> {
            Ok(ClientCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Verified {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Verified {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            schemes()
        }
    }
}

//! A TLS session as the exchange sees it, and the terms on which one end attests in it.

use confide_evidence::binder::{CONTEXT_BYTES, EXPORTER_LABEL, RENEWAL_LABEL, Role, SuiteHash};
use rustls::{CipherSuite, CommonState};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client;
#[cfg(feature = "native")]
use tokio_rustls::server;
use zeroize::Zeroizing;

use crate::{
    authenticator::{AuthenticatorKeys, exporter_labels},
    error::ChannelError,
    options::SessionVersion,
};

/// A session of TLS 1.3 after its handshake, whichever library has opened it: the stream of what it
/// carries, and what the handshake agreed on.
pub trait TlsSession: AsyncRead + AsyncWrite + Unpin {
    /// Exports keying material of the session into `output` (RFC 8446 section 7.5). In TLS 1.3 no
    /// context is an empty one.
    ///
    /// # Errors
    /// The library's error.
    fn export(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), rustls::Error>;

    /// The peer's certificate in DER, whose key signed the handshake; `None` if it presented none.
    fn peer_certificate(&self) -> Option<&[u8]>;

    /// The protocol on which both ends agreed (ALPN, RFC 7301).
    fn alpn_protocol(&self) -> Option<&[u8]>;

    /// The cipher suite of the session.
    fn cipher_suite(&self) -> Option<CipherSuite>;
}

/// A session from which the exchange derives its version, its exporter and the secret of renewals.
pub(crate) trait ExchangeSession: TlsSession {
    fn exporter(&self, context: &[u8; CONTEXT_BYTES]) -> Result<[u8; 32], ChannelError> {
        let mut output = [0; 32];
        self.export(&mut output, EXPORTER_LABEL, Some(context)).map_err(ChannelError::Tls)?;
        Ok(output)
    }

    /// The secret from which the binders of fresh evidence are made.
    fn renewal_secret(&self) -> Result<Zeroizing<[u8; 32]>, ChannelError> {
        let mut secret = Zeroizing::new([0; 32]);
        self.export(secret.as_mut(), RENEWAL_LABEL, None).map_err(ChannelError::Tls)?;
        Ok(secret)
    }

    /// The version of the exchange on which both ends agreed.
    fn version(&self) -> SessionVersion {
        self.alpn_protocol().and_then(SessionVersion::from_alpn).unwrap_or(SessionVersion::V1)
    }
}

impl<S: TlsSession> ExchangeSession for S {}

/// The terms of one end's evidence in a session.
pub(crate) struct SessionTerms {
    /// The end that attests.
    pub(crate) attester: Role,
    pub(crate) version: SessionVersion,
    /// The keys of its authenticators (version 3 only).
    pub(crate) keys: Option<AuthenticatorKeys>,
}

impl SessionTerms {
    pub(crate) fn from_stream<S: ExchangeSession>(
        stream: &S,
        attester: Role,
    ) -> Result<Self, ChannelError> {
        let version = stream.version();
        let keys = match version {
            SessionVersion::V3 => Some(export_authenticator_keys(stream, attester)?),
            SessionVersion::V1 | SessionVersion::V2 => None,
        };
        Ok(Self { attester, version, keys })
    }
}

fn export_authenticator_keys<S: TlsSession>(
    stream: &S,
    sender: Role,
) -> Result<AuthenticatorKeys, ChannelError> {
    let hash = suite_hash(
        stream.cipher_suite().ok_or(ChannelError::Tls(rustls::Error::HandshakeNotComplete))?,
    )?;
    let export = |label| {
        let mut output = Zeroizing::new(vec![0; hash.bytes()]);
        stream.export(&mut output, label, None).map_err(ChannelError::Tls)?;
        Ok::<_, ChannelError>(output)
    };
    let (context, finished) = exporter_labels(sender);
    Ok(AuthenticatorKeys { hash, context: export(context)?, finished: export(finished)? })
}

/// The hash of a cipher suite of TLS 1.3.
fn suite_hash(suite: CipherSuite) -> Result<SuiteHash, ChannelError> {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 | CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => {
            Ok(SuiteHash::Sha256)
        }
        CipherSuite::TLS13_AES_256_GCM_SHA384 => Ok(SuiteHash::Sha384),
        other => {
            let error = format!("no authenticators are defined for cipher suite {other:?}");
            Err(ChannelError::Tls(rustls::Error::General(error)))
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsSession for client::TlsStream<S> {
    fn export(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), rustls::Error> {
        self.get_ref().1.export_keying_material(output, label, context).map(|_| ())
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        first_certificate(self.get_ref().1)
    }

    fn alpn_protocol(&self) -> Option<&[u8]> {
        self.get_ref().1.alpn_protocol()
    }

    fn cipher_suite(&self) -> Option<CipherSuite> {
        self.get_ref().1.negotiated_cipher_suite().map(|suite| suite.suite())
    }
}

#[cfg(feature = "native")]
impl<S: AsyncRead + AsyncWrite + Unpin> TlsSession for server::TlsStream<S> {
    fn export(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), rustls::Error> {
        self.get_ref().1.export_keying_material(output, label, context).map(|_| ())
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        first_certificate(self.get_ref().1)
    }

    fn alpn_protocol(&self) -> Option<&[u8]> {
        self.get_ref().1.alpn_protocol()
    }

    fn cipher_suite(&self) -> Option<CipherSuite> {
        self.get_ref().1.negotiated_cipher_suite().map(|suite| suite.suite())
    }
}

fn first_certificate(session: &CommonState) -> Option<&[u8]> {
    session.peer_certificates().and_then(<[_]>::first).map(|certificate| &**certificate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cipher_suite_without_a_known_hash_has_no_authenticators() {
        for (suite, wanted) in [
            (CipherSuite::TLS13_AES_128_GCM_SHA256, Some(SuiteHash::Sha256)),
            (CipherSuite::TLS13_AES_256_GCM_SHA384, Some(SuiteHash::Sha384)),
            (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, Some(SuiteHash::Sha256)),
            (CipherSuite::TLS13_AES_128_CCM_SHA256, None),
        ] {
            assert_eq!(suite_hash(suite).ok(), wanted, "{suite:?}");
        }
    }
}

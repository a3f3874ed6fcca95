//! The messages of the session exchange in all its versions: what they say, apart from their bytes.

use confide_evidence::{
    authenticator::{AuthenticatorError, AuthenticatorRequest},
    binder::{CONTEXT_BYTES, Role},
    session_message::{SessionEvidence, SessionMessage},
    session_message_3::{AuthenticatedEvidence, SessionMessage3},
};

use crate::{
    error::{ChannelError, ChannelPhase},
    options::SessionVersion,
};

/// One end's demand that the other end attest.
#[derive(Clone, Debug)]
pub(crate) enum EvidenceDemand {
    /// The context over which it is to attest (versions 1 and 2).
    Context([u8; CONTEXT_BYTES]),
    /// The request for an authenticator, and its whole message (version 3).
    Authenticator { request: AuthenticatorRequest, bytes: Vec<u8> },
}

impl EvidenceDemand {
    /// A demand with a fresh context, by the end `asker`.
    pub(crate) fn fresh(version: SessionVersion, asker: Role) -> Result<Self, ChannelError> {
        let mut context = [0; CONTEXT_BYTES];
        let failed = |_| ChannelError::Identity { reason: "no random bytes".into() };
        getrandom::fill(&mut context).map_err(failed)?;
        if version != SessionVersion::V3 {
            return Ok(Self::Context(context));
        }
        let request = AuthenticatorRequest::new(asker, context);
        Ok(Self::Authenticator { bytes: request.encode(), request })
    }

    /// The context, which is used once.
    pub(crate) fn context(&self) -> &[u8; CONTEXT_BYTES] {
        match self {
            Self::Context(context) => context,
            Self::Authenticator { request, .. } => &request.context,
        }
    }

    fn bare_context(&self) -> [u8; CONTEXT_BYTES] {
        *self.context()
    }

    fn request_bytes(&self) -> &[u8] {
        match self {
            Self::Context(context) => context,
            Self::Authenticator { bytes, .. } => bytes,
        }
    }

    /// Reads a request for an authenticator, which has to announce the extension for evidence.
    fn from_request(asker: Role, bytes: &[u8]) -> Result<Self, ChannelError> {
        let request = AuthenticatorRequest::decode(asker, bytes)?;
        match request.takes_cmw {
            true => Ok(Self::Authenticator { request, bytes: bytes.to_vec() }),
            false => Err(AuthenticatorError::NoCmwAsked.into()),
        }
    }
}

/// Evidence as it travels.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ShownEvidence<'a> {
    /// Quote and claims themselves (versions 1 and 2).
    Bare(SessionEvidence<'a>),
    /// An authenticator that holds them (version 3).
    Authenticated(AuthenticatedEvidence<'a>),
}

/// A message of the exchange that is no refusal.
#[derive(Debug)]
pub(crate) enum ExchangeMessage<'a> {
    Request(Option<EvidenceDemand>),
    Reply(Option<EvidenceDemand>, Option<ShownEvidence<'a>>),
    Evidence(ShownEvidence<'a>),
    Accepted,
}

impl<'a> ExchangeMessage<'a> {
    /// Reads a message from `sender`. A refusal becomes [`ChannelError::Refused`].
    pub(crate) fn decode(
        version: SessionVersion,
        sender: Role,
        phase: ChannelPhase,
        bytes: &'a [u8],
    ) -> Result<Self, ChannelError> {
        let unreadable = |source| ChannelError::Message { phase, source };
        if version != SessionVersion::V3 {
            let demand = |context: Option<_>| context.map(EvidenceDemand::Context);
            return Ok(match SessionMessage::decode(bytes).map_err(unreadable)? {
                SessionMessage::Request { context } => Self::Request(demand(context)),
                SessionMessage::Reply { context, evidence } => {
                    Self::Reply(demand(context), evidence.map(ShownEvidence::Bare))
                }
                SessionMessage::Evidence(evidence) => Self::Evidence(ShownEvidence::Bare(evidence)),
                SessionMessage::Accepted => Self::Accepted,
                SessionMessage::Refused(refusal) => {
                    return Err(ChannelError::Refused { phase, refusal });
                }
            });
        }
        let demand = |request: Option<&[u8]>| {
            request.map(|request| EvidenceDemand::from_request(sender, request)).transpose()
        };
        Ok(match SessionMessage3::decode(bytes).map_err(unreadable)? {
            SessionMessage3::Request { request } => Self::Request(demand(request)?),
            SessionMessage3::Reply { request, evidence } => {
                Self::Reply(demand(request)?, evidence.map(ShownEvidence::Authenticated))
            }
            SessionMessage3::Evidence(evidence) => {
                Self::Evidence(ShownEvidence::Authenticated(evidence))
            }
            SessionMessage3::Accepted => Self::Accepted,
            SessionMessage3::Refused(refusal) => {
                return Err(ChannelError::Refused { phase, refusal });
            }
        })
    }
}

/// The client's request.
pub(crate) fn encode_request(version: SessionVersion, demand: Option<&EvidenceDemand>) -> Vec<u8> {
    match version {
        SessionVersion::V1 | SessionVersion::V2 => {
            SessionMessage::Request { context: demand.map(EvidenceDemand::bare_context) }.encode()
        }
        SessionVersion::V3 => {
            SessionMessage3::Request { request: demand.map(EvidenceDemand::request_bytes) }.encode()
        }
    }
}

/// The server's reply.
///
/// # Errors
/// [`ChannelError::OwnEvidenceVersion`] if the evidence is of another version.
pub(crate) fn encode_reply(
    version: SessionVersion,
    demand: Option<&EvidenceDemand>,
    shown: Option<ShownEvidence<'_>>,
) -> Result<Vec<u8>, ChannelError> {
    let wrong_version = || ChannelError::OwnEvidenceVersion { version: version.number() };
    match version {
        SessionVersion::V3 => {
            let request = demand.map(EvidenceDemand::request_bytes);
            let evidence = match shown {
                Some(ShownEvidence::Authenticated(evidence)) => Some(evidence),
                Some(ShownEvidence::Bare(_)) => return Err(wrong_version()),
                None => None,
            };
            Ok(SessionMessage3::Reply { request, evidence }.encode())
        }
        SessionVersion::V1 | SessionVersion::V2 => {
            let context = demand.map(EvidenceDemand::bare_context);
            let evidence = match shown {
                Some(ShownEvidence::Bare(evidence)) => Some(evidence),
                Some(ShownEvidence::Authenticated(_)) => return Err(wrong_version()),
                None => None,
            };
            Ok(SessionMessage::Reply { context, evidence }.encode())
        }
    }
}

/// The client's evidence.
pub(crate) fn encode_evidence(shown: ShownEvidence<'_>) -> Vec<u8> {
    match shown {
        ShownEvidence::Bare(evidence) => SessionMessage::Evidence(evidence).encode(),
        ShownEvidence::Authenticated(evidence) => SessionMessage3::Evidence(evidence).encode(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_of_another_version_is_no_reply() {
        let bare = ShownEvidence::Bare(SessionEvidence::default());
        let authenticated = ShownEvidence::Authenticated(AuthenticatedEvidence::default());
        for (version, wrong) in [
            (SessionVersion::V1, authenticated),
            (SessionVersion::V2, authenticated),
            (SessionVersion::V3, bare),
        ] {
            let error = encode_reply(version, None, Some(wrong)).unwrap_err();
            assert!(matches!(error, ChannelError::OwnEvidenceVersion { version: got }
                if got == version.number()));
            assert!(encode_reply(version, None, None).is_ok());
        }
    }
}

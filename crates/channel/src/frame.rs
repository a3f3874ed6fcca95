//! Frames of session binding: a big-endian u32 length, followed by that many bytes.

use confide_evidence::{
    authenticator::AuthenticatorError,
    session_message::{Refusal, SessionMessage, SessionMessageError},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{
    deadline::Deadline,
    error::{ChannelError, ChannelPhase},
};

/// The longest frame in bytes, in any version: it holds an authenticator, collateral and GPU evidence,
/// each at its greatest length.
pub const FRAME_BYTES_MAX: usize = 240 * 1024;

/// The longest request or verdict in bytes. A request takes 36 (in version 3 59 from our clients and
/// 517 at most), a verdict 2 or 3; longer ones are read so that an error can state what is wrong.
/// The limit is low because the peer has proved nothing yet.
const SHORT_FRAME_BYTES_MAX: usize = 1024;

/// Writes one message as one frame in one write, so that it does not become two TLS records.
pub(crate) async fn write_message<S: AsyncWrite + Unpin>(
    stream: &mut S,
    message: &SessionMessage<'_>,
    phase: ChannelPhase,
    deadline: Deadline,
) -> Result<(), ChannelError> {
    write_frame(stream, &message.encode(), phase, deadline).await
}

/// As [`write_message()`], for a message that is already encoded.
pub(crate) async fn write_frame<S: AsyncWrite + Unpin>(
    stream: &mut S,
    bytes: &[u8],
    phase: ChannelPhase,
    deadline: Deadline,
) -> Result<(), ChannelError> {
    let mut frame = Vec::with_capacity(4 + bytes.len());
    frame.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    frame.extend_from_slice(bytes);
    let sending = async {
        stream.write_all(&frame).await?;
        stream.flush().await
    };
    deadline.limit_io(phase, sending).await
}

/// Reads one frame, and nothing after it.
pub(crate) async fn read_frame<S: AsyncRead + Unpin>(
    stream: &mut S,
    phase: ChannelPhase,
    deadline: Deadline,
) -> Result<Vec<u8>, ChannelError> {
    let got = deadline.limit_io(phase, stream.read_u32()).await? as usize;
    let wanted = match phase {
        ChannelPhase::Evidence => FRAME_BYTES_MAX,
        _ => SHORT_FRAME_BYTES_MAX,
    };
    if got > wanted {
        return Err(ChannelError::FrameLength { phase, wanted, got });
    }
    // The buffer grows with the received bytes, so that an announced length alone reserves no
    // memory.
    let mut bytes = Vec::new();
    let mut part = stream.take(got as u64);
    deadline.limit_io(phase, part.read_to_end(&mut bytes)).await?;
    if bytes.len() < got {
        return Err(ChannelError::UnexpectedEnd { phase });
    }
    Ok(bytes)
}

/// The refusal that is sent to the peer for an error; `None` if none is sent.
pub(crate) fn refusal_for_error(error: &ChannelError) -> Option<Refusal> {
    match error {
        ChannelError::Message { source: SessionMessageError::ContextLength { .. }, .. } => {
            Some(Refusal::ContextLength)
        }
        ChannelError::Message { .. }
        | ChannelError::MessageKind { .. }
        | ChannelError::FrameLength { .. } => Some(Refusal::Malformed),
        ChannelError::Authenticator(error) => Some(refusal_for_authenticator(error)),
        ChannelError::NoAttester { .. } => Some(Refusal::NoAttester),
        ChannelError::Attester(_)
        | ChannelError::AttesterTask
        | ChannelError::QuoteQueue(_)
        | ChannelError::Identity { .. }
        | ChannelError::OwnEvidence { .. }
        | ChannelError::OwnEvidenceVersion { .. }
        | ChannelError::Timeout { phase: ChannelPhase::Quote, .. } => {
            Some(Refusal::EvidenceUnavailable)
        }
        ChannelError::Rejected(_)
        | ChannelError::NoEvidence
        | ChannelError::BatchPath(_)
        | ChannelError::Claims(_)
        | ChannelError::KeyMismatch { .. }
        | ChannelError::GpuEvidence { .. }
        | ChannelError::Reflected => Some(Refusal::EvidenceRejected),
        _ => None,
    }
}

fn refusal_for_authenticator(error: &AuthenticatorError) -> Refusal {
    match error {
        AuthenticatorError::ContextLength { .. } => Refusal::ContextLength,
        AuthenticatorError::Truncated { .. }
        | AuthenticatorError::Length { .. }
        | AuthenticatorError::TrailingBytes { .. }
        | AuthenticatorError::MessageType { .. }
        | AuthenticatorError::DuplicateExtension { .. }
        | AuthenticatorError::TooMany { .. }
        | AuthenticatorError::NoSchemes
        | AuthenticatorError::NoCommonScheme
        | AuthenticatorError::NoCmwAsked
        | AuthenticatorError::ContextReused
        | AuthenticatorError::TooManyRequests { .. } => Refusal::Malformed,
        _ => Refusal::EvidenceRejected,
    }
}

#[cfg(test)]
mod tests {
    use confide_evidence::{
        authenticator::{AUTHENTICATOR_BYTES_MAX, AuthenticatorRequest, REQUEST_BYTES_MAX},
        batch::BATCH_PATH_BYTES_MAX,
        binder::Role,
        claims::CLAIMS_BYTES_MAX,
        gpu::GPU_EVIDENCE_BYTES_MAX,
        session_message::SessionEvidence,
        session_message_3::{AuthenticatedEvidence, SessionMessage3},
        tagged_evidence::{COLLATERAL_BYTES_MAX, QUOTE_BYTES_MAX},
    };

    use super::*;

    #[test]
    fn the_longest_message_fits_a_frame() {
        let quote = vec![1; QUOTE_BYTES_MAX];
        let claims = vec![1; CLAIMS_BYTES_MAX];
        let collateral = vec![1; COLLATERAL_BYTES_MAX];
        let path = vec![1; BATCH_PATH_BYTES_MAX];
        let gpu = vec![1; GPU_EVIDENCE_BYTES_MAX];
        let evidence = SessionEvidence {
            quote: &quote,
            claims: &claims,
            collateral: Some(&collateral),
            batch: Some(&path),
            gpu: Some(&gpu),
        };
        let context = Some([1; 32]);
        let reply = SessionMessage::Reply { context, evidence: Some(evidence) }.encode();
        assert!(SessionMessage::decode(&reply).is_ok());
        assert!(reply.len() <= FRAME_BYTES_MAX, "{}", reply.len());
    }

    #[test]
    fn requests_and_verdicts_fit_a_short_frame() {
        let request =
            |request: &[u8]| SessionMessage3::Request { request: Some(request) }.encode().len();
        let own = AuthenticatorRequest::new(Role::Client, [1; 32]).encode();
        assert_eq!(SessionMessage::Request { context: Some([1; 32]) }.encode().len(), 36);
        assert_eq!(request(&own), 59);
        assert_eq!(request(&[1; REQUEST_BYTES_MAX]), 517);
        assert!(request(&[1; REQUEST_BYTES_MAX]) <= SHORT_FRAME_BYTES_MAX);
        assert_eq!(SessionMessage::Accepted.encode().len(), 2);
        assert_eq!(SessionMessage::Refused(Refusal::Malformed).encode().len(), 3);
    }

    #[test]
    fn the_longest_message_of_version_3_fits_a_frame() {
        let request = vec![1; REQUEST_BYTES_MAX];
        let authenticator = vec![1; AUTHENTICATOR_BYTES_MAX];
        let collateral = vec![1; COLLATERAL_BYTES_MAX];
        let gpu = vec![1; GPU_EVIDENCE_BYTES_MAX];
        let evidence = AuthenticatedEvidence {
            authenticator: &authenticator,
            collateral: Some(&collateral),
            gpu: Some(&gpu),
        };
        let (request, evidence) = (Some(request.as_slice()), Some(evidence));
        let reply = SessionMessage3::Reply { request, evidence }.encode();
        assert!(SessionMessage3::decode(&reply).is_ok());
        assert!(reply.len() <= FRAME_BYTES_MAX, "{}", reply.len());
    }
}

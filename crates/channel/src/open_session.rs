//! Appraises the server of a TLS session that another library has opened.

use std::time::Duration;

use confide_evidence::Appraise;
use rustls::crypto::WebPkiSupportedAlgorithms;

use crate::{
    deadline::Deadline,
    error::ChannelError,
    handshake,
    options::Binding,
    session::{self, PeerChecks},
    session_terms::TlsSession,
};

/// Appraises the server at the other end of `session`, and runs the exchange of session binding first if that is the
/// binding. The caller sends nothing of its own before this has returned, and nothing at all after an error.
///
/// [`crate::Client::connect`] does all of this itself; here the caller vouches for what it does in the handshake: TLS
/// 1.3 only, without resumption and early data, and with a signature by the key of the certificate that `session`
/// returns. It offers `confide-session/2`, `/3` or `/1` for session binding, and for key binding `http/1.1` or
/// nothing (`docs/channel.md`). `algorithms` check the signatures of authenticators (version 3). Without the feature
/// `native` the deadline is not kept here.
///
/// # Errors
/// [`ChannelError::Binding`] for [`Binding::None`], [`ChannelError::Protocol`] for another protocol,
/// [`ChannelError::Timeout`] or [`ChannelError::Io`] if the exchange fails, [`ChannelError::NoEvidence`],
/// [`ChannelError::Rejected`] and similar errors if the server's evidence is missing, unreadable, of another connection
/// or not accepted.
pub async fn appraise_server<S: TlsSession, A: Appraise>(
    session: &mut S,
    binding: Binding,
    appraiser: &A,
    algorithms: WebPkiSupportedAlgorithms,
    deadline: Duration,
) -> Result<A::Appraised, ChannelError> {
    if binding == Binding::None {
        return Err(ChannelError::Binding { call: "appraise_server", wanted: "key or session" });
    }
    handshake::check_alpn(session.alpn_protocol(), binding)?;
    let outcome = match binding {
        Binding::Session => {
            let deadline = Deadline::after(deadline);
            let checks = PeerChecks { appraiser, algorithms };
            session::exchange_as_client(session, None, Some(&checks), deadline).await?
        }
        _ => session::appraise_certificate(session, appraiser)?,
    };
    outcome.appraised.ok_or(ChannelError::NoEvidence)
}

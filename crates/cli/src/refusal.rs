//! Refusals of peers: by their evidence, by the network, or by the arguments of this end.

use confide_channel::ChannelError;
use confide_client::{Blame, ClientError, error_chain};

use crate::error::CliError;

/// Exit status where evidence was judged and refused.
pub(crate) const STATUS_REFUSED: u8 = 1;

/// The hints that a command gives where its peer is not used, although no evidence was refused.
pub(crate) struct PeerHints<'a> {
    /// The hint where the peer demands evidence of this end.
    pub(crate) attester: &'a str,
    /// The hint where the peer could not be reached or judged.
    pub(crate) network: &'a dyn Fn(&ClientError) -> String,
}

/// Explains why the peer at `url` is not used.
pub(crate) fn explain_client_error(
    url: &str,
    error: &ClientError,
    hints: &PeerHints<'_>,
) -> CliError {
    if let Some(refusal) = error.refusal() {
        return CliError::new(refusal.describe_without_hint(url))
            .with_hint(refusal.hint)
            .with_status(STATUS_REFUSED);
    }
    let text = error.rejection().map_or_else(|| error_chain(error), ToString::to_string);
    let is_unattested =
        matches!(error, ClientError::Channel { source: ChannelError::NoAttester { .. }, .. });
    match error.blame() {
        Blame::Network => CliError::new(format!("{url} could not be judged: {text}"))
            .with_hint((hints.network)(error)),
        Blame::Local if is_unattested => {
            CliError::new(format!("{url} demands evidence from this end, which has none"))
                .with_hint(hints.attester)
        }
        Blame::Local | Blame::Evidence => CliError::new(text),
    }
}

/// The refusal of a peer whose evidence was judged.
pub(crate) fn failed_check_error(url: &str, reason: &str, hint: &str) -> CliError {
    CliError::new(format!("{url} is not accepted: {reason}"))
        .with_hint(hint)
        .with_status(STATUS_REFUSED)
}

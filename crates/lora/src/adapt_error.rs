//! Errors of the use of an adapter, whatever protects it.

/// The reason why an adapter could not compute a delta.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdaptError {
    /// The host cannot be reached or disconnected.
    #[error("adapter host is lost: {reason}")]
    HostLost {
        /// The message of the connection's error.
        reason: String,
    },
    /// The host refused the request.
    #[error("adapter host refused: {reason}")]
    Refused {
        /// The host's refusal, as a message.
        reason: String,
    },
    /// The client's budget of answers is used up.
    #[error(
        "adapter budget is used up: {limit} answers were allowed; hint: its owner can raise --budget \
         or accept this key holder's evidence (--client-policy); trying again changes nothing"
    )]
    Budget {
        /// The number of answers that the budget allowed in all.
        limit: u64,
    },
    /// The request needs more answers than are left; none was used.
    #[error(
        "adapter budget is too small for this request: wanted {wanted} answers, got {left}; hint: a \
         shorter prompt or a smaller max_tokens needs fewer, and the adapter's owner can raise \
         --budget or accept this key holder's evidence (--client-policy)"
    )]
    BudgetTooSmall {
        /// The number of answers that the request needs: one for each token of its prompt and of its
        /// completion, except the last.
        wanted: u64,
        /// The number of answers that are left.
        left: u64,
    },
    /// A vector does not fit the terms of the adapter.
    #[error("activation cannot be sent: {reason}")]
    Activation {
        /// The reason why the value cannot be sent.
        reason: String,
    },
}

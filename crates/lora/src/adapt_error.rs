//! Why an adapter at work fails, whatever protects it.

/// Why an adapter gave no delta.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdaptError {
    /// The host went away or was never there.
    #[error("adapter host is lost: {reason}")]
    HostLost {
        /// What the connection said.
        reason: String,
    },
    /// The host refused, by name.
    #[error("adapter host refused: {reason}")]
    Refused {
        /// What it said.
        reason: String,
    },
    /// The client's budget of answers is used up.
    #[error(
        "adapter budget is used up: {limit} answers were allowed; hint: its owner can raise --budget \
         or accept this key holder's evidence (--client-policy); trying again changes nothing"
    )]
    Budget {
        /// The budget.
        limit: u64,
    },
    /// The request takes more answers than are left; none of them was asked for.
    #[error(
        "adapter budget is too small for this request: wanted {wanted} answers, got {left}; hint: a \
         shorter prompt or a smaller max_tokens takes fewer, and the adapter's owner can raise \
         --budget or accept this key holder's evidence (--client-policy)"
    )]
    BudgetTooSmall {
        /// Answers that the request takes: its prompt's tokens and its completion's but the last.
        wanted: u64,
        /// Answers that are left.
        left: u64,
    },
    /// A value does not fit what was agreed on.
    #[error("activation cannot be sent: {reason}")]
    Activation {
        /// What is wrong with it.
        reason: String,
    },
}

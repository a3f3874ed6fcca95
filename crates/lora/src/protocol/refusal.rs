//! Refusals of a host, by name and code.

/// A host's reason not to answer. It is coarse, so that it tells an attacker nothing that a key
/// holder who follows the protocol does not know already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A frame or a message cannot be read, or is not allowed at this point.
    #[error("malformed: the host could not read what was sent")]
    Malformed,
    /// The host speaks another version.
    #[error("version: the host supports version {host} only")]
    Version {
        /// The version of the host.
        host: u16,
    },
    /// The host has no adapter of this name for this client.
    #[error("unknown adapter")]
    UnknownAdapter,
    /// The host has the adapter, but not with this scheme, parameter set, protection or input.
    #[error("not offered: the adapter has no such scheme, parameter set, protection or input")]
    NotOffered,
    /// The session expired, is of another process of the host, or has another token.
    #[error("no session: it expired, or the host was restarted")]
    NoSession,
    /// The counter was answered before, and no counter is answered twice.
    #[error("counter used: each is answered once")]
    CounterUsed,
    /// The counter belongs to no batch that was prepared.
    #[error("not prepared: the counter belongs to no finished batch")]
    NotPrepared,
    /// The batch was prepared before, or a later one was.
    #[error("prepared already: each batch is prepared once, in order")]
    AlreadyPrepared,
    /// The client's budget of answers for this input is used up.
    #[error("budget: {limit} answered vectors were allowed")]
    Budget {
        /// The number of answers that the budget allows in all.
        limit: u64,
    },
    /// The host holds as many sessions, batches or preparations as it may.
    #[error("busy: the host is at a limit, try later")]
    Busy,
    /// The key holder's next frame did not arrive in time.
    #[error("deadline: the host waited too long")]
    Deadline,
    /// The host is shutting down.
    #[error("stopping: the host is going down")]
    Stopping,
    /// The host failed for a reason of its own.
    #[error("internal: the host failed")]
    Internal,
}

impl Refusal {
    /// The code and detail of the refusal on the wire.
    pub(crate) fn parts(self) -> (u8, u64) {
        match self {
            Refusal::Malformed => (1, 0),
            Refusal::Version { host } => (2, host.into()),
            Refusal::UnknownAdapter => (3, 0),
            Refusal::NotOffered => (4, 0),
            Refusal::NoSession => (5, 0),
            Refusal::CounterUsed => (6, 0),
            Refusal::NotPrepared => (7, 0),
            Refusal::AlreadyPrepared => (8, 0),
            Refusal::Budget { limit } => (9, limit),
            Refusal::Busy => (10, 0),
            Refusal::Deadline => (11, 0),
            Refusal::Stopping => (12, 0),
            Refusal::Internal => (13, 0),
        }
    }

    pub(crate) fn from_parts(code: u8, detail: u64) -> Option<Refusal> {
        Some(match code {
            1 => Refusal::Malformed,
            2 => Refusal::Version { host: detail.try_into().ok()? },
            3 => Refusal::UnknownAdapter,
            4 => Refusal::NotOffered,
            5 => Refusal::NoSession,
            6 => Refusal::CounterUsed,
            7 => Refusal::NotPrepared,
            8 => Refusal::AlreadyPrepared,
            9 => Refusal::Budget { limit: detail },
            10 => Refusal::Busy,
            11 => Refusal::Deadline,
            12 => Refusal::Stopping,
            13 => Refusal::Internal,
            _ => return None,
        })
    }

    /// The name of the refusal in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::Version { .. } => "version",
            Refusal::UnknownAdapter => "unknown-adapter",
            Refusal::NotOffered => "not-offered",
            Refusal::NoSession => "no-session",
            Refusal::CounterUsed => "counter-used",
            Refusal::NotPrepared => "not-prepared",
            Refusal::AlreadyPrepared => "already-prepared",
            Refusal::Budget { .. } => "budget",
            Refusal::Busy => "busy",
            Refusal::Deadline => "deadline",
            Refusal::Stopping => "stopping",
            Refusal::Internal => "internal",
        }
    }
}

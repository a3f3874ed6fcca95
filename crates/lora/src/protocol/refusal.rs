//! Refusals of a host, by name and code.

/// What a host says when it does not answer: coarse, so that it tells an attacker nothing that a
/// key holder who follows the protocol does not know already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A frame or a message cannot be read, or comes where it has no place.
    #[error("malformed: the host could not read what was sent")]
    Malformed,
    /// The host speaks another version.
    #[error("version: the host speaks version {host}")]
    Version {
        /// The host's.
        host: u16,
    },
    /// No adapter of this name, for this client.
    #[error("unknown adapter")]
    UnknownAdapter,
    /// The adapter is there, and not with this scheme, parameter set, protection or input.
    #[error("not offered: the adapter has no such scheme, parameter set, protection or input")]
    NotOffered,
    /// No such session: expired, of another process of the host, or shown with another token.
    #[error("no session: it expired, or the host was started anew")]
    NoSession,
    /// The counter was answered before. It never is again.
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
        /// The budget.
        limit: u64,
    },
    /// The host holds as many sessions, batches or preparations as it may.
    #[error("busy: the host is at a limit, try later")]
    Busy,
    /// The key holder took too long.
    #[error("deadline: the host waited too long")]
    Deadline,
    /// The host is going down.
    #[error("stopping: the host is going down")]
    Stopping,
    /// The host failed by itself.
    #[error("internal: the host failed")]
    Internal,
}

impl Refusal {
    /// Its code and detail on the wire.
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

    /// Its name in the audit log.
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

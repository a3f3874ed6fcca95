//! The reasons with which a host refuses a request, with their names and codes.

/// A host's reason to refuse a request. It is coarse, so that an attacker learns nothing from it
/// that an honest key holder does not know already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A frame or a message cannot be read, or is not allowed at this point.
    #[error("malformed: the host could not read the message")]
    Malformed,
    /// The host supports another version of the protocol.
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
    /// The counter was used before. Each counter is answered once.
    #[error("counter used: each counter is answered once")]
    CounterUsed,
    /// The counter does not belong to a prepared batch.
    #[error("not prepared: the counter belongs to no finished batch")]
    NotPrepared,
    /// The batch was prepared before, or a later one was.
    #[error("prepared already: each batch is prepared once, in order")]
    AlreadyPrepared,
    /// The client's budget of answers for this input is used up.
    #[error("budget: all {limit} answers are used up")]
    Budget {
        /// The number of answers that the budget allows in all.
        limit: u64,
    },
    /// The host has reached its limit of sessions, batches or preparations.
    #[error("busy: the host has reached a limit; try again later")]
    Busy,
    /// The key holder's next frame did not arrive in time.
    #[error("deadline: the host waited too long")]
    Deadline,
    /// The host is shutting down.
    #[error("stopping: the host is shutting down")]
    Stopping,
    /// The host failed for an internal reason.
    #[error("internal: the host failed")]
    Internal,
}

impl Refusal {
    /// The code and detail of the refusal in a message.
    pub fn code_and_detail(self) -> (u8, u64) {
        let detail = match self {
            Refusal::Version { host } => host.into(),
            Refusal::Budget { limit } => limit,
            _ => 0,
        };
        (self.code_and_name().0, detail)
    }

    /// The refusal of a code and detail; `None` if the code is unknown, or the detail is not one of its.
    pub fn from_code_and_detail(code: u8, detail: u64) -> Option<Refusal> {
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
        self.code_and_name().1
    }

    fn code_and_name(self) -> (u8, &'static str) {
        match self {
            Refusal::Malformed => (1, "malformed"),
            Refusal::Version { .. } => (2, "version"),
            Refusal::UnknownAdapter => (3, "unknown-adapter"),
            Refusal::NotOffered => (4, "not-offered"),
            Refusal::NoSession => (5, "no-session"),
            Refusal::CounterUsed => (6, "counter-used"),
            Refusal::NotPrepared => (7, "not-prepared"),
            Refusal::AlreadyPrepared => (8, "already-prepared"),
            Refusal::Budget { .. } => (9, "budget"),
            Refusal::Busy => (10, "busy"),
            Refusal::Deadline => (11, "deadline"),
            Refusal::Stopping => (12, "stopping"),
            Refusal::Internal => (13, "internal"),
        }
    }
}

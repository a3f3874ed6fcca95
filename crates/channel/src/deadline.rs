//! One deadline for all the waits of a call.

use std::{future::Future, io, time::Duration};

use tokio::time::{Instant, timeout_at};

use crate::error::{ChannelError, Phase};

/// The instant at which a call has to be over, and the time that it was given (for the error).
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    given: Duration,
}

/// Longer ones are cut to this: `Duration::MAX` from now is not an instant.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

impl Deadline {
    pub(crate) fn after(given: Duration) -> Self {
        Self { at: Instant::now() + given.min(LONGEST), given }
    }

    /// The output of `future`, unless the deadline comes first.
    pub(crate) async fn keep<T>(
        &self,
        phase: Phase,
        future: impl Future<Output = T>,
    ) -> Result<T, ChannelError> {
        let late = |_| ChannelError::Timeout { phase, deadline: self.given };
        timeout_at(self.at, future).await.map_err(late)
    }

    /// As [`Self::keep`], for input and output.
    pub(crate) async fn keep_io<T>(
        &self,
        phase: Phase,
        future: impl Future<Output = io::Result<T>>,
    ) -> Result<T, ChannelError> {
        self.keep(phase, future).await?.map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => ChannelError::UnexpectedEnd { phase },
            _ => ChannelError::Io { phase, source },
        })
    }
}

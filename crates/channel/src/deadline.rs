//! One deadline for all the waits of a call. Without the feature `native` there is no clock: the caller
//! drops the future when its time is over.

use std::{future::Future, io, time::Duration};

#[cfg(feature = "native")]
use tokio::time::{Instant, timeout_at};

use crate::error::{ChannelError, ChannelPhase};

/// The instant at which a call has to end, and the time that the caller allowed (for the error).
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    #[cfg(feature = "native")]
    at: Instant,
    given: Duration,
}

/// The longest deadline. Longer ones are cut to it, because `now + Duration::MAX` would overflow.
#[cfg(feature = "native")]
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

impl Deadline {
    pub(crate) fn after(given: Duration) -> Self {
        Self {
            #[cfg(feature = "native")]
            at: Instant::now() + given.min(LONGEST),
            given,
        }
    }

    /// Returns the output of `future`, or a timeout error if the deadline comes first.
    pub(crate) async fn limit<T>(
        &self,
        phase: ChannelPhase,
        future: impl Future<Output = T>,
    ) -> Result<T, ChannelError> {
        #[cfg(feature = "native")]
        {
            let late = |_| ChannelError::Timeout { phase, deadline: self.given };
            timeout_at(self.at, future).await.map_err(late)
        }
        #[cfg(not(feature = "native"))]
        {
            let _ = phase;
            Ok(future.await)
        }
    }

    /// Does as [`Self::limit`] for a future that reads or writes.
    pub(crate) async fn limit_io<T>(
        &self,
        phase: ChannelPhase,
        future: impl Future<Output = io::Result<T>>,
    ) -> Result<T, ChannelError> {
        self.limit(phase, future).await?.map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => ChannelError::UnexpectedEnd { phase },
            _ => ChannelError::Io { phase, source },
        })
    }
}

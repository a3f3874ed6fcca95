//! The body of a request, which says how far it has been sent.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::watch;

use crate::failure::{Failure, TransportFault};

/// The bytes that are handed to the connection at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// The state of a request that is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendPhase {
    /// No connection has taken the request yet.
    Waiting,
    /// The connection has taken a piece; this many bytes are left.
    Sending(usize),
    /// The connection has taken all of it.
    Complete,
}

/// A body in memory whose progress can be watched.
pub(crate) struct WatchedBody {
    rest: Bytes,
    phase: watch::Sender<SendPhase>,
}

/// The progress of a body.
pub(crate) struct SendProgress(watch::Receiver<SendPhase>);

impl WatchedBody {
    pub(crate) fn new(bytes: Bytes) -> (Self, SendProgress) {
        let (phase, progress) = watch::channel(SendPhase::Waiting);
        (Self { rest: bytes, phase }, SendProgress(progress))
    }
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.rest.len().min(PIECE_BYTES);
        if length == 0 {
            return Poll::Ready(None);
        }
        let piece = self.rest.split_to(length);
        let phase = match self.rest.len() {
            0 => SendPhase::Complete,
            left => SendPhase::Sending(left),
        };
        self.phase.send_replace(phase);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// A connection drops a body that it has sent, and one that is empty at once.
impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.phase.send_replace(SendPhase::Complete);
    }
}

impl SendProgress {
    /// Resolves when no piece was taken for `write`, or when no answer began for `read` after the last one.
    pub(crate) async fn wait_for_stall(
        mut self,
        write: Option<Duration>,
        read: Option<Duration>,
    ) -> Failure {
        loop {
            let phase = *self.0.borrow_and_update();
            let (limit, fault) = match phase {
                SendPhase::Waiting => (None, TransportFault::WriteTimeout),
                SendPhase::Sending(_) => (write, TransportFault::WriteTimeout),
                SendPhase::Complete => (read, TransportFault::ReadTimeout),
            };
            let moved = async {
                if self.0.changed().await.is_err() {
                    // The body is gone, so its last phase is the end.
                    std::future::pending::<()>().await;
                }
            };
            match limit {
                None => moved.await,
                Some(limit) => {
                    if tokio::time::timeout(limit, moved).await.is_err() {
                        let text = format!("nothing moved for {limit:?}");
                        return Failure::transport(fault, text);
                    }
                }
            }
        }
    }
}

//! The bytes between the TLS session in here and the host's socket or WebSocket: a bounded queue in
//! each direction.
//!
//! The host moves the bytes: it pulls what is to be sent and pushes what has come. Both wait where
//! a queue is empty or full, so that a slow end slows the other one down.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes that wait in one direction.
const QUEUED_BYTES_MAX: usize = 256 * 1024;

/// The largest piece that is handed to the host: what one message of the tunnel may hold.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// The session's end: what TLS reads and writes.
#[derive(Debug)]
pub struct Carrier(Arc<Queues>);

/// The host's end.
#[derive(Clone, Debug)]
pub struct CarrierHost(Arc<Queues>);

/// Makes the two ends.
pub fn carrier() -> (Carrier, CarrierHost) {
    let queues = Arc::new(Queues::default());
    (Carrier(queues.clone()), CarrierHost(queues))
}

#[derive(Debug, Default)]
struct Queues(Mutex<QueueState>);

#[derive(Debug, Default)]
struct QueueState {
    /// From the host to the session.
    inbound: Queue,
    /// From the session to the host.
    outbound: Queue,
    is_broken: bool,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: VecDeque<u8>,
    is_ended: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Queue {
    /// Appends as much as there is room for; `None` without room.
    fn append(&mut self, bytes: &[u8], context: &Context<'_>) -> Option<usize> {
        let room = QUEUED_BYTES_MAX.saturating_sub(self.bytes.len());
        if room == 0 && !bytes.is_empty() {
            self.writer = Some(context.waker().clone());
            return None;
        }
        let taken = bytes.len().min(room);
        self.bytes.extend(&bytes[..taken]);
        wake(&mut self.reader);
        Some(taken)
    }

    /// Takes at most `limit` bytes; an empty answer is the end, and `None` that nothing is there yet.
    fn take(&mut self, limit: usize, context: &Context<'_>) -> Option<Vec<u8>> {
        if self.bytes.is_empty() && !self.is_ended {
            self.reader = Some(context.waker().clone());
            return None;
        }
        let taken = self.bytes.len().min(limit);
        wake(&mut self.writer);
        Some(self.bytes.drain(..taken).collect())
    }

    fn end(&mut self) {
        self.is_ended = true;
        wake(&mut self.reader);
    }

    fn wake_both(&mut self) {
        wake(&mut self.reader);
        wake(&mut self.writer);
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn break_off(&self) {
        let mut state = self.lock();
        state.is_broken = true;
        state.inbound.wake_both();
        state.outbound.wake_both();
    }
}

impl CarrierHost {
    /// Waits for bytes to send; `None` after the last ones, or after [`CarrierHost::break_off`].
    pub async fn pull(&self) -> Option<Vec<u8>> {
        let bytes = poll_fn(|context| {
            let mut state = self.0.lock();
            if state.is_broken {
                return Poll::Ready(Vec::new());
            }
            match state.outbound.take(PIECE_BYTES_MAX, context) {
                Some(bytes) => Poll::Ready(bytes),
                None => Poll::Pending,
            }
        });
        Some(bytes.await).filter(|bytes| !bytes.is_empty())
    }

    /// Hands over bytes that have come, and waits until there is room for all of them.
    pub async fn push(&self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = poll_fn(|context| {
                let mut state = self.0.lock();
                if state.is_broken {
                    return Poll::Ready(usize::MAX);
                }
                match state.inbound.append(rest, context) {
                    Some(taken) => Poll::Ready(taken),
                    None => Poll::Pending,
                }
            });
            rest = rest.get(taken.await..).unwrap_or_default();
        }
    }

    /// Says that the peer sends no more.
    pub fn end(&self) {
        self.0.lock().inbound.end();
    }

    /// Breaks the connection off: every wait on either end is over.
    pub fn break_off(&self) {
        self.0.break_off();
    }
}

impl AsyncRead for Carrier {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        if state.is_broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        match state.inbound.take(buffer.remaining(), context) {
            Some(bytes) => {
                buffer.put_slice(&bytes);
                Poll::Ready(Ok(()))
            }
            None => Poll::Pending,
        }
    }
}

impl AsyncWrite for Carrier {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock();
        if state.is_broken || state.outbound.is_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match state.outbound.append(bytes, context) {
            Some(taken) => Poll::Ready(Ok(taken)),
            None => Poll::Pending,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().outbound.end();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Carrier {
    /// The host still sends what waits, for instance the session's last alert.
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.outbound.end();
        state.inbound.is_ended = true;
        wake(&mut state.inbound.writer);
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin};

    use super::*;

    fn poll<F: Future>(future: F) -> Poll<F::Output> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn write(carrier: &mut Carrier, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(carrier).poll_write(&mut Context::from_waker(Waker::noop()), bytes)
    }

    #[test]
    fn a_full_queue_makes_the_writer_wait() {
        let (mut carrier, host) = carrier();
        let bytes = vec![7; QUEUED_BYTES_MAX + 1];
        assert!(matches!(write(&mut carrier, &bytes), Poll::Ready(Ok(QUEUED_BYTES_MAX))));
        assert!(write(&mut carrier, &bytes).is_pending());
        let Poll::Ready(Some(piece)) = poll(host.pull()) else { panic!("nothing to send") };
        assert_eq!(piece.len(), PIECE_BYTES_MAX);
        assert!(matches!(write(&mut carrier, &bytes), Poll::Ready(Ok(PIECE_BYTES_MAX))));
        assert!(poll(host.push(&bytes)).is_pending());
    }

    #[test]
    fn what_waits_is_sent_after_the_session_ends() {
        let (mut carrier, host) = carrier();
        assert!(matches!(write(&mut carrier, b"alert"), Poll::Ready(Ok(5))));
        drop(carrier);
        assert_eq!(poll(host.pull()), Poll::Ready(Some(b"alert".to_vec())));
        assert_eq!(poll(host.pull()), Poll::Ready(None));
    }

    #[test]
    fn after_a_break_nothing_waits() {
        let (mut carrier, host) = carrier();
        assert!(poll(host.pull()).is_pending());
        host.break_off();
        assert_eq!(poll(host.pull()), Poll::Ready(None));
        assert!(poll(host.push(b"late")).is_ready());
        assert!(matches!(write(&mut carrier, b"late"), Poll::Ready(Err(_))));
    }
}

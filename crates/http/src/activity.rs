//! When bytes last moved through a connection, and what follows from their absence.

use std::{
    io,
    pin::Pin,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::Notify,
    time::Instant,
};

use crate::{
    admission::{BusyGuard, ConnectionPlace},
    observed_stream::StreamObserver,
};

/// The time without a byte after which a connection may be evicted from a full server.
const BUSY_FOR: Duration = Duration::from_secs(10);

/// The movement of bytes through a connection that carries no exchanges: TLS that is passed on, or a
/// WebSocket. As an observer it notes what is read from a stream, and the end of it.
#[derive(Debug)]
pub struct Activity<'a> {
    place: &'a ConnectionPlace,
    began: Instant,
    last_ms: AtomicU64,
    half_closed: AtomicBool,
    busy: AtomicBool,
    guard: Mutex<Option<BusyGuard>>,
    woken: Notify,
}

impl<'a> Activity<'a> {
    /// Starts with a busy connection.
    pub fn new(place: &'a ConnectionPlace) -> Self {
        Self {
            place,
            began: Instant::now(),
            last_ms: AtomicU64::new(0),
            half_closed: AtomicBool::new(false),
            busy: AtomicBool::new(true),
            guard: Mutex::new(Some(place.mark_busy())),
            woken: Notify::new(),
        }
    }

    /// Notes that bytes have moved now.
    pub fn record_bytes(&self) {
        self.last_ms.store(self.elapsed_ms(), Ordering::Relaxed);
        if !self.busy.swap(true, Ordering::Relaxed) {
            self.set_guard(Some(self.place.mark_busy()));
            self.woken.notify_one();
        }
    }

    /// Notes that one side has ended its direction, after which the other has less time.
    pub fn record_half_close(&self) {
        if !self.half_closed.swap(true, Ordering::Relaxed) {
            self.record_bytes();
            self.woken.notify_one();
        }
    }

    /// Resolves when no byte has moved for `idle`, or for `half_closed` once one side has ended its direction. Until
    /// then the connection counts as busy while bytes move, and as idle afterwards.
    pub async fn wait_until_idle(&self, idle: Duration, half_closed: Duration) {
        loop {
            let is_half_closed = self.half_closed.load(Ordering::Relaxed);
            let limit = if is_half_closed { half_closed } else { idle };
            let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let silent = self.began.elapsed().saturating_sub(last);
            if silent >= limit {
                return;
            }
            let mut until = limit;
            if silent < BUSY_FOR {
                until = until.min(BUSY_FOR);
            } else if self.busy.swap(false, Ordering::Relaxed) {
                self.set_guard(None);
            }
            tokio::select! {
                () = tokio::time::sleep_until(self.began + last + until) => {}
                () = self.woken.notified() => {}
            }
        }
    }

    fn set_guard(&self, guard: Option<BusyGuard>) {
        *self.guard.lock().unwrap_or_else(PoisonError::into_inner) = guard;
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl<S> StreamObserver<S> for &Activity<'_> {
    fn poll_read(
        &mut self,
        inner: Pin<&mut S>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>>
    where
        S: AsyncRead,
    {
        let before = buf.filled().len();
        let poll = inner.poll_read(cx, buf);
        if matches!(poll, Poll::Ready(Ok(()))) {
            match buf.filled().len() > before {
                true => self.record_bytes(),
                false => self.record_half_close(),
            }
        }
        poll
    }
}

//! Connections on which no request runs. One task watches all of them: each ends when its peer ends it,
//! and not when somebody wants it next.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
    time::Instant,
};

use crate::connection::Connection;

/// The idle connections of a pool.
#[derive(Default)]
pub(crate) struct IdleConnections(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    kept: Vec<IdleConnection>,
    watcher: Watcher,
}

/// A connection, and since when it is idle.
pub(crate) struct IdleConnection {
    pub(crate) connection: Connection,
    pub(crate) since: Instant,
}

/// The task that watches.
#[derive(Default)]
enum Watcher {
    #[default]
    Absent,
    /// It will look at every connection first.
    Starting,
    /// It is woken when something happens on one of the connections.
    Waiting(Waker),
}

impl IdleConnections {
    /// Keeps a connection until it is taken, or ends.
    pub(crate) fn push(&self, mut idle: IdleConnection) {
        let mut state = self.lock();
        let is_ended = match &state.watcher {
            Watcher::Waiting(waker) => {
                idle.connection.poll_end(&mut Context::from_waker(waker)).is_ready()
            }
            Watcher::Starting => false,
            Watcher::Absent => {
                let watched = Arc::downgrade(&self.0);
                idle.connection.runtime().spawn(watch(watched));
                state.watcher = Watcher::Starting;
                false
            }
        };
        if !is_ended {
            state.kept.push(idle);
        }
    }

    /// Takes the connection that was kept last.
    pub(crate) fn pop(&self) -> Option<IdleConnection> {
        self.lock().kept.pop()
    }

    /// Drops the connections for which `is_kept` is false.
    pub(crate) fn retain(&self, is_kept: impl Fn(&IdleConnection) -> bool) {
        self.lock().kept.retain(is_kept);
    }

    /// Takes the connections for which `is_wanted` is true.
    pub(crate) fn extract_if(
        &self,
        is_wanted: impl Fn(&mut IdleConnection) -> bool,
    ) -> Vec<IdleConnection> {
        self.lock().kept.extract_if(.., is_wanted).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().kept.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

/// Drops each connection that ends, until none is left or the pool is dropped.
async fn watch(watched: Weak<Mutex<State>>) {
    poll_fn(|cx| {
        let Some(watched) = watched.upgrade() else { return Poll::Ready(()) };
        let mut state = lock(&watched);
        state.kept.retain_mut(|idle| idle.connection.poll_end(cx).is_pending());
        if state.kept.is_empty() {
            state.watcher = Watcher::Absent;
            return Poll::Ready(());
        }
        state.watcher = Watcher::Waiting(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

/// The watcher ends with what it watches.
impl Drop for State {
    fn drop(&mut self) {
        if let Watcher::Waiting(waker) = std::mem::take(&mut self.watcher) {
            waker.wake();
        }
    }
}

/// Locks a mutex. A panic elsewhere leaves its value valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

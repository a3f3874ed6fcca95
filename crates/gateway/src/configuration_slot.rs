//! The version of the configuration that a listener's new connections belong to.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use confide_http::{Admission, DrainOutcome, Listener, accept_on_threads};
use tokio::task::JoinSet;

use crate::{
    acceptor::Acceptor, configuration_version::ConfigurationVersion, serve::serve_connection_of,
};

/// The current version of a listener's configuration, and the maintenance of those that
/// connections still use.
pub(crate) struct ConfigurationSlot<A> {
    state: Mutex<SlotState<A>>,
}

struct SlotState<A> {
    current: Arc<ConfigurationVersion<A>>,
    /// The maintenance of each version that is in use, once the listener serves.
    maintenance: Option<JoinSet<()>>,
}

impl<A: Acceptor> ConfigurationSlot<A> {
    pub(crate) fn new(first: ConfigurationVersion<A>) -> Self {
        Self { state: Mutex::new(SlotState { current: Arc::new(first), maintenance: None }) }
    }

    /// Makes `next` the version of all further connections.
    pub(crate) fn replace(&self, next: ConfigurationVersion<A>) {
        let next = Arc::new(next);
        let mut state = self.lock();
        if let Some(maintenance) = &mut state.maintenance {
            while maintenance.try_join_next().is_some() {}
            maintenance.spawn(next.clone().maintain());
        }
        std::mem::replace(&mut state.current, next).mark_replaced();
    }

    /// Serves until `stop` resolves, then lets running answers end within the drain deadline.
    pub(crate) async fn serve(
        self: Arc<Self>,
        listener: Listener,
        admission: Admission,
        stop: impl Future<Output = ()>,
    ) -> DrainOutcome {
        let drain = self.start_maintenance();
        let slot = self.clone();
        let serve = move |stream, place, closing| {
            // Under the lock, so that a reload waits for this connection's signal.
            let (configuration, replaced) = {
                let state = slot.lock();
                (state.current.clone(), state.current.replacement_signal())
            };
            serve_connection_of(configuration, replaced, stream, place, closing)
        };
        let drained = accept_on_threads(listener, admission, drain, stop, serve).await;
        let maintenance = self.lock().maintenance.take();
        if let Some(mut maintenance) = maintenance {
            maintenance.shutdown().await;
        }
        drained
    }

    /// Starts the maintenance of the current version, and returns its drain deadline.
    fn start_maintenance(&self) -> std::time::Duration {
        let mut state = self.lock();
        let current = state.current.clone();
        let drain = current.limits.drain;
        state.maintenance.get_or_insert_default().spawn(current.maintain());
        drain
    }

    /// Locks the state, which every holder of the lock leaves valid.
    fn lock(&self) -> MutexGuard<'_, SlotState<A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

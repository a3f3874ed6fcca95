//! The configuration in use, which a reload replaces without ending a connection.
//!
//! A connection belongs to the generation whose evidence its client appraised. Once a newer one has
//! replaced that, the connection's next answer is its last, so that the client connects anew and
//! appraises the evidence of the new configuration. No running answer is cut.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use confide_http::{Admission, DrainOutcome, accept_until};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

use crate::{acceptor::Acceptor, limits::GatewayLimits, proxy::Proxy, serve::serve_connection_of};

/// One configuration: its channel, its proxy and its limits.
pub(crate) struct Generation<A> {
    pub(crate) acceptor: Arc<A>,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) limits: GatewayLimits,
    /// Becomes true when a newer generation replaces this one. Its connections hold receivers.
    replaced: watch::Sender<bool>,
    is_maintained: AtomicBool,
}

/// A connection's view of its generation, which tells when a newer one has replaced it.
#[derive(Clone)]
pub(crate) struct ReplacementSignal(watch::Receiver<bool>);

/// The current generation of a listener, and the maintenance of those that connections still use.
pub(crate) struct GenerationSlot<A> {
    current: Mutex<Arc<Generation<A>>>,
    maintenance: Mutex<JoinSet<()>>,
}

impl<A: Acceptor> Generation<A> {
    pub(crate) fn new(acceptor: Arc<A>, proxy: Arc<Proxy>, limits: GatewayLimits) -> Self {
        let (replaced, _) = watch::channel(false);
        Self { acceptor, proxy, limits, replaced, is_maintained: AtomicBool::new(false) }
    }

    pub(crate) fn replacement_signal(&self) -> ReplacementSignal {
        ReplacementSignal(self.replaced.subscribe())
    }

    /// Keeps pools and evidence in order until the generation is replaced and its last connection
    /// has ended.
    async fn maintain(self: Arc<Self>) {
        let unused = async {
            self.replacement_signal().wait().await;
            self.replaced.closed().await;
        };
        tokio::select! {
            never = self.proxy.maintain_servers() => match never {},
            never = self.acceptor.maintain() => match never {},
            () = unused => {}
        }
    }
}

impl ReplacementSignal {
    /// Whether a newer generation has replaced the connection's.
    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Resolves when a newer generation replaces the connection's.
    pub(crate) async fn wait(&mut self) {
        // A connection keeps its generation, so the sender exists.
        let _ = self.0.wait_for(|is_replaced| *is_replaced).await;
    }
}

impl<A: Acceptor> GenerationSlot<A> {
    pub(crate) fn new(first: Generation<A>) -> Self {
        Self { current: Mutex::new(Arc::new(first)), maintenance: Mutex::default() }
    }

    /// Makes `next` the generation of all further connections.
    pub(crate) fn replace(&self, next: Generation<A>) {
        let next = Arc::new(next);
        let mut current = lock(&self.current);
        self.start_maintenance(&next);
        std::mem::replace(&mut *current, next).replaced.send_replace(true);
    }

    /// Serves until `stop` resolves, then lets running answers end within the drain deadline.
    pub(crate) async fn serve(
        &self,
        listener: TcpListener,
        admission: Admission,
        stop: impl Future<Output = ()>,
    ) -> DrainOutcome {
        let first = lock(&self.current).clone();
        self.start_maintenance(&first);
        let drain = first.limits.drain;
        drop(first);
        let serve = |stream, place, closing| {
            let generation = lock(&self.current).clone();
            serve_connection_of(generation, stream, place, closing)
        };
        let drained = accept_until(listener, admission, drain, stop, serve).await;
        let mut maintenance = std::mem::take(&mut *lock(&self.maintenance));
        maintenance.shutdown().await;
        drained
    }

    fn start_maintenance(&self, generation: &Arc<Generation<A>>) {
        if generation.is_maintained.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut maintenance = lock(&self.maintenance);
        while maintenance.try_join_next().is_some() {}
        maintenance.spawn(generation.clone().maintain());
    }
}

/// Locks a value that every holder of the lock leaves valid.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

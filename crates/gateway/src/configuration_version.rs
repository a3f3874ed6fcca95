//! The configuration in use, which a reload replaces without ending a connection.
//!
//! A connection belongs to the version whose evidence its client appraised. Once a newer one has
//! replaced that, the connection's next answer is its last, so that the client connects anew and
//! appraises the evidence of the new configuration. No running answer is cut.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{acceptor::Acceptor, limits::GatewayLimits, proxy::Proxy};

/// One version of the configuration: its channel, its proxy and its limits.
pub(crate) struct ConfigurationVersion<A> {
    pub(crate) acceptor: Arc<A>,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) limits: GatewayLimits,
    /// Becomes true when a newer version replaces this one. Its connections hold receivers.
    replaced: watch::Sender<bool>,
}

/// A connection's view of its version, which tells when a newer one has replaced it.
#[derive(Clone)]
pub(crate) struct ReplacementSignal(watch::Receiver<bool>);

impl<A: Acceptor> ConfigurationVersion<A> {
    pub(crate) fn new(acceptor: Arc<A>, proxy: Arc<Proxy>, limits: GatewayLimits) -> Self {
        let (replaced, _) = watch::channel(false);
        Self { acceptor, proxy, limits, replaced }
    }

    /// Tells the connections that a newer version has replaced this one.
    pub(crate) fn mark_replaced(&self) {
        self.replaced.send_replace(true);
    }

    pub(crate) fn replacement_signal(&self) -> ReplacementSignal {
        ReplacementSignal(self.replaced.subscribe())
    }

    /// Keeps pools and evidence in order until the version is replaced and its last connection
    /// has ended.
    pub(crate) async fn maintain(self: Arc<Self>) {
        let unused = async {
            self.replacement_signal().wait().await;
            self.replaced.closed().await;
        };
        tokio::select! {
            never = self.proxy.maintain_servers() => match never {},
            never = self.acceptor.maintain(|| *self.replaced.borrow()) => match never {},
            () = unused => {}
        }
    }
}

impl ReplacementSignal {
    /// Whether a newer version has replaced the connection's.
    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Resolves when a newer version replaces the connection's.
    pub(crate) async fn wait(&mut self) {
        // A connection keeps its version, so the sender exists.
        let _ = self.0.wait_for(|is_replaced| *is_replaced).await;
    }
}

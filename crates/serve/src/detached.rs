//! Runs blocking destructors off the event loop: closing an adapter's session is a round trip.

use std::{collections::BTreeMap, sync::Arc};

use confide_lora::{
    AdaptError, DeltaProvider, DeltaSession, Guarantee, ProjectionSite, ProjectionWidth,
    Reservation,
};

/// Drops a value whose destructor may block: on a new thread if an event loop runs here, otherwise
/// in place.
pub fn drop_detached<T: Send + 'static>(value: T) {
    match tokio::runtime::Handle::try_current() {
        Err(_) => drop(value),
        Ok(_) => drop(std::thread::spawn(move || drop(value))),
    }
}

/// An adapter that may be dropped in any thread, including an event loop's.
pub(crate) struct DetachedAdapter(
    Option<Arc<dyn DeltaProvider>>,
    Arc<BTreeMap<ProjectionSite, ProjectionWidth>>,
);

impl DetachedAdapter {
    pub(crate) fn new(adapter: Arc<dyn DeltaProvider>) -> Self {
        let sites = Arc::new(adapter.sites().clone());
        Self(Some(adapter), sites)
    }
}

impl DeltaProvider for DetachedAdapter {
    fn sites(&self) -> &BTreeMap<ProjectionSite, ProjectionWidth> {
        &self.1
    }

    fn guarantee(&self) -> Guarantee {
        self.0.as_ref().map_or(Guarantee::NONE, |adapter| adapter.guarantee())
    }

    fn reserve_answers(
        &self,
        prompt: u32,
        completion: Option<u32>,
    ) -> Result<Reservation, AdaptError> {
        match &self.0 {
            Some(adapter) => adapter.reserve_answers(prompt, completion),
            None => Ok(Reservation::UNLIMITED),
        }
    }

    fn open_session(&self) -> Result<Box<dyn DeltaSession>, AdaptError> {
        match &self.0 {
            Some(adapter) => adapter.open_session(),
            None => Err(AdaptError::HostLost { reason: "the adapter was unloaded".into() }),
        }
    }
}

impl Drop for DetachedAdapter {
    fn drop(&mut self) {
        drop_detached(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value whose destructor blocks, as that of an adapter at a host does, which waits for an
    /// event loop of its own.
    struct Blocking(std::sync::mpsc::Sender<()>);

    impl Drop for Blocking {
        fn drop(&mut self) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {});
            let _ = self.0.send(());
        }
    }

    #[tokio::test]
    async fn a_destructor_that_blocks_runs_beside_the_event_loop() {
        let (sender, dropped) = std::sync::mpsc::channel();
        drop_detached(Blocking(sender.clone()));
        let elsewhere = tokio::task::spawn_blocking(move || drop_detached(Blocking(sender)));
        elsewhere.await.expect("no panic");
        for _ in 0..2 {
            dropped.recv_timeout(std::time::Duration::from_secs(60)).expect("it is dropped");
        }
    }
}

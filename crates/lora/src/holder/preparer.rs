//! Threads that prepare masks while tokens are generated.

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use super::{
    batch,
    connection::HostConnection,
    error::HolderError,
    session::{AdapterState, HolderSession},
};
use crate::{host::BATCHES_MAX, masked::HolderBatch, meter::StepMeter};

/// The longest sleep of an idle preparer; a change wakes it earlier.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The pause after a failure, so that an unavailable host is not flooded with requests.
const RETRY: Duration = Duration::from_millis(500);

/// Starts a thread that prepares batches until its adapter is dropped.
pub(crate) fn start_preparer(shared: &Arc<AdapterState>, index: usize) {
    // The thread holds no reference while it sleeps, so that the adapter can be dropped.
    let weak = Arc::downgrade(shared);
    let name = format!("confide-prepare-{index}");
    let spawned = thread::Builder::new().name(name).spawn(move || {
        let mut connection: Option<(HostConnection, [u8; 32])> = None;
        while let Some(shared) = weak.upgrade() {
            if shared.is_stopping() {
                break;
            }
            if let Err(error) = prepare_next_batch(&shared, &mut connection) {
                connection = None;
                tracing::debug!(%error, "a batch could not be prepared");
                drop(shared);
                thread::sleep(RETRY);
            }
        }
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "the thread that prepares masks could not be started");
    }
}

/// Prepares one batch, or waits if none is needed.
fn prepare_next_batch(
    shared: &Arc<AdapterState>,
    held: &mut Option<(HostConnection, [u8; 32])>,
) -> Result<(), HolderError> {
    let session = shared.session();
    if session.is_dead() {
        // The next generation opens a new session; nothing is requested before.
        thread::sleep(RETRY);
        return Ok(());
    }
    let Some(group) = choose_group_or_wait(shared, &session) else { return Ok(()) };
    let prepared = prepare_batch(shared, &session, held, group);
    let (batch, outcome) = match prepared {
        Ok(batch) => (Some(batch), Ok(())),
        Err(error) => (None, Err(error)),
    };
    session.pools()[group].record_preparation_end(batch);
    session.notify_waiters();
    outcome
}

fn prepare_batch(
    shared: &AdapterState,
    session: &HolderSession,
    held: &mut Option<(HostConnection, [u8; 32])>,
    group: usize,
) -> Result<HolderBatch, HolderError> {
    let client = session.attach.client;
    if held.as_ref().is_none_or(|(_, of)| *of != client) {
        *held = Some((shared.open_connection(session)?, client));
    }
    let Some((connection, _)) = held else {
        return Err(HolderError::connection_lost(&*shared.connect, &"no connection"));
    };
    let before = connection.bytes;
    let mut meter = StepMeter::default();
    let prepared = batch::prepare_batch(connection, &*shared.connect, session, group, &mut meter);
    shared.offline_bytes.fetch_add(connection.bytes - before, Ordering::Relaxed);
    prepared
}

/// Returns the input with the fewest prepared vectors, if it needs more; otherwise waits once and
/// returns `None`.
fn choose_group_or_wait(shared: &AdapterState, session: &HolderSession) -> Option<usize> {
    let wanted = shared.wanted.load(Ordering::Relaxed);
    let mut pools = session.pools();
    let pick = |pools: &[super::pool::MaskPool]| {
        let short = pools.iter().enumerate().filter(|(group, pool)| {
            // Masks beyond the budget would never be used, so they are not prepared.
            let budget = session.groups[*group].budget_left().unwrap_or(u64::MAX);
            !pool.preparing
                && pool.tokens_left() < wanted.min(budget)
                && pool.batches() < BATCHES_MAX
        });
        short.min_by_key(|(_, pool)| pool.tokens_left()).map(|(group, _)| group)
    };
    if let Some(group) = pick(&pools) {
        pools[group].preparing = true;
        return Some(group);
    }
    drop(session.wait_for_change(pools, LOOK_EVERY));
    None
}

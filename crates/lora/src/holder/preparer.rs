//! Threads that keep masks ready while tokens run.

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use super::{
    batch,
    connection::Connection,
    error::HolderError,
    session::{Session, Shared},
};
use crate::{host::BATCHES_MAX, masked::HolderBatch, meter::Meter};

/// The longest sleep of a preparer that has nothing to do; a change wakes it earlier.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Pause after a failure, so that a host that is down is not asked all the time.
const RETRY: Duration = Duration::from_millis(500);

/// Starts a thread that prepares until its adapter is dropped.
pub(crate) fn start(shared: &Arc<Shared>, index: usize) {
    // The thread holds no reference while it sleeps, so that the adapter can be dropped.
    let weak = Arc::downgrade(shared);
    let name = format!("confide-prepare-{index}");
    let spawned = thread::Builder::new().name(name).spawn(move || {
        let mut connection: Option<(Connection, [u8; 32])> = None;
        while let Some(shared) = weak.upgrade() {
            if shared.stopping() {
                break;
            }
            if let Err(error) = step(&shared, &mut connection) {
                connection = None;
                tracing::debug!(%error, "a batch came to nothing");
                drop(shared);
                thread::sleep(RETRY);
            }
        }
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "no thread to prepare masks on");
    }
}

/// Prepares one batch, or waits for a while where none is wanted.
fn step(
    shared: &Arc<Shared>,
    held: &mut Option<(Connection, [u8; 32])>,
) -> Result<(), HolderError> {
    let session = shared.session();
    if session.is_dead() {
        // The next generation opens a new session; until then no host is asked.
        thread::sleep(RETRY);
        return Ok(());
    }
    let Some(group) = next(shared, &session) else { return Ok(()) };
    let prepared = prepare(shared, &session, held, group);
    let (batch, outcome) = match prepared {
        Ok(batch) => (Some(batch), Ok(())),
        Err(error) => (None, Err(error)),
    };
    session.pools()[group].end(batch);
    session.notify();
    outcome
}

fn prepare(
    shared: &Shared,
    session: &Session,
    held: &mut Option<(Connection, [u8; 32])>,
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
    let mut meter = Meter::default();
    let prepared = batch::prepare(connection, &*shared.connect, session, group, &mut meter);
    shared.offline_bytes.fetch_add(connection.bytes - before, Ordering::Relaxed);
    prepared
}

/// The input that has fewest prepared vectors left, if it has too few; otherwise waits once and
/// returns `None`.
fn next(shared: &Shared, session: &Session) -> Option<usize> {
    let wanted = shared.wanted.load(Ordering::Relaxed);
    let mut pools = session.pools();
    let pick = |pools: &[super::pool::Pool]| {
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
    drop(session.wait(pools, LOOK_EVERY));
    None
}

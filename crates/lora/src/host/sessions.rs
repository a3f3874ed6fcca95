//! Sessions: what a key holder's connections share, and what outlives one of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use confide_rlwe::PublicKey;

use super::{accounts::Account, adapter::Hosted, tally::Tally, upload::Place};
use crate::{
    Allowance, Epoch,
    protocol::{Attach, Refusal, Scheme},
};

/// Sessions at once. Each holds a public key of about 400 KB and, for each input and batch, a bit
/// for each counter.
pub const SESSIONS_MAX: usize = 256;

/// Connections of one session: one for each generation that runs, one for preparations.
pub const CONNECTIONS_MAX: u16 = 64;

/// A session without a connection is forgotten after this, its batches with it.
pub const SESSION_IDLE: Duration = Duration::from_secs(600);

/// What a hello opened.
pub(crate) struct Session {
    pub(crate) client: [u8; 32],
    pub(crate) token: [u8; 32],
    pub(crate) adapter: Arc<Hosted>,
    pub(crate) account: Account,
    pub(crate) allowance: Allowance,
    pub(crate) scheme: Scheme,
    pub(crate) public_key: Arc<PublicKey>,
    /// One for each group of the adapter.
    pub(crate) sequences: Vec<Mutex<Sequence>>,
    pub(crate) tally: Tally,
    life: Mutex<Life>,
}

/// What a new session is made of.
pub(crate) struct Opening {
    pub(crate) client: [u8; 32],
    pub(crate) token: [u8; 32],
    pub(crate) adapter: Arc<Hosted>,
    pub(crate) account: Account,
    pub(crate) allowance: Allowance,
    pub(crate) scheme: Scheme,
    pub(crate) public_key: Arc<PublicKey>,
    pub(crate) sequences: Vec<Mutex<Sequence>>,
}

struct Life {
    connections: u16,
    last_seen: Instant,
}

/// All sessions of a host.
#[derive(Default)]
pub(crate) struct Sessions {
    open: Mutex<HashMap<[u8; 32], Arc<Session>>>,
}

/// One connection of a session, counted until it is dropped.
pub(crate) struct Seat(pub(crate) Arc<Session>);

impl Sessions {
    /// Enters a new session, with its first connection.
    pub(crate) fn open(&self, opening: Opening) -> Result<Seat, Refusal> {
        let mut open = self.lock();
        if open.len() >= SESSIONS_MAX {
            open.retain(|_, session| !session.expired());
        }
        // A client id names shares: the same one twice would have two sessions share them.
        if open.len() >= SESSIONS_MAX || open.contains_key(&opening.client) {
            return Err(Refusal::Busy);
        }
        let session = Arc::new(Session {
            client: opening.client,
            token: opening.token,
            adapter: opening.adapter,
            account: opening.account,
            allowance: opening.allowance,
            scheme: opening.scheme,
            public_key: opening.public_key,
            sequences: opening.sequences,
            tally: Tally::default(),
            life: Mutex::new(Life { connections: 1, last_seen: Instant::now() }),
        });
        open.insert(opening.client, session.clone());
        Ok(Seat(session))
    }

    /// One more connection of a session. Whatever is wrong, the answer is one and the same.
    pub(crate) fn attach(&self, attach: &Attach, epoch: Epoch) -> Result<(Seat, u16), Refusal> {
        let session = self.lock().get(&attach.client).cloned().ok_or(Refusal::NoSession)?;
        if !same(&attach.token, &session.token) || attach.epoch != epoch.0 || session.expired() {
            return Err(Refusal::NoSession);
        }
        let mut life = session.life();
        if life.connections >= CONNECTIONS_MAX {
            return Err(Refusal::Busy);
        }
        life.connections += 1;
        let connections = life.connections;
        drop(life);
        Ok((Seat(session), connections))
    }

    /// Forgets a session; connections that it still has find nothing any more.
    pub(crate) fn forget(&self, session: &Session) {
        self.lock().remove(&session.client);
    }

    /// Forgets those without connections; gives them.
    pub(crate) fn expire(&self) -> Vec<Arc<Session>> {
        let mut open = self.lock();
        let expired: Vec<_> = open.values().filter(|session| session.expired()).cloned().collect();
        open.retain(|_, session| !session.expired());
        expired
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Arc<Session>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    pub(crate) fn sequence(&self, group: usize) -> MutexGuard<'_, Sequence> {
        self.sequences[group].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The batch was answered.
    pub(crate) fn finish(&self, place: Place) {
        self.sequence(place.group).finish(place.batch);
    }

    /// The batch was not answered, and never will be.
    pub(crate) fn abandon(&self, place: Place) {
        self.sequence(place.group).abandon(place.batch);
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expired(&self) -> bool {
        let life = self.life();
        life.connections == 0 && life.last_seen.elapsed() >= SESSION_IDLE
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut life = self.0.life();
        life.connections = life.connections.saturating_sub(1);
        life.last_seen = Instant::now();
    }
}

/// Compares in a time that does not depend on where they differ.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// The batches of one session for one input, and which of their counters were answered.
pub(crate) struct Sequence {
    /// Tokens of a batch: the degree of the ring.
    degree: u64,
    next_batch: u32,
    batches: Vec<Batch>,
}

struct Batch {
    number: u32,
    ready: bool,
    used: Vec<u64>,
    left: u32,
}

/// Batches of one input with counters left: the one in use, the next one, and room for those that
/// several generations have not quite used up.
pub const BATCHES_MAX: usize = 4;

impl Sequence {
    pub(crate) fn new(degree: usize) -> Self {
        Self { degree: degree as u64, next_batch: 0, batches: Vec::new() }
    }

    /// Begins a batch; those that are skipped never come. It counts as prepared from here on, whatever becomes of it: two
    /// answers under one share would be an equation about the adapter that nobody counts.
    pub(crate) fn begin(&mut self, number: u32) -> Result<(), Refusal> {
        if number < self.next_batch {
            return Err(Refusal::AlreadyPrepared);
        }
        if self.batches.len() >= BATCHES_MAX {
            return Err(Refusal::Busy);
        }
        self.next_batch = number.checked_add(1).ok_or(Refusal::AlreadyPrepared)?;
        let used = vec![0; self.degree.div_ceil(64) as usize];
        self.batches.push(Batch { number, ready: false, used, left: self.degree as u32 });
        Ok(())
    }

    /// The batch was answered: its counters can be used.
    pub(crate) fn finish(&mut self, number: u32) {
        if let Some(batch) = self.batches.iter_mut().find(|batch| batch.number == number) {
            batch.ready = true;
        }
    }

    /// The batch was not answered, and never will be.
    pub(crate) fn abandon(&mut self, number: u32) {
        self.batches.retain(|batch| batch.number != number);
    }

    /// Whether all these counters, which lie in one batch, can be answered: batch and first token.
    pub(crate) fn check(&self, counter: u64, count: u16) -> Result<(u32, u32), Refusal> {
        let number = u32::try_from(counter / self.degree).map_err(|_| Refusal::NotPrepared)?;
        let first = counter % self.degree;
        if first + u64::from(count) > self.degree {
            return Err(Refusal::NotPrepared);
        }
        let Some(batch) = self.batches.iter().find(|batch| batch.number == number) else {
            // One that was used up, or abandoned, is gone; its counters were burnt with it.
            let used = number < self.next_batch;
            return Err(if used { Refusal::CounterUsed } else { Refusal::NotPrepared });
        };
        if !batch.ready {
            return Err(Refusal::NotPrepared);
        }
        let first = first as u32;
        let taken = |token: u32| batch.used[token as usize / 64] >> (token % 64) & 1 == 1;
        match (first..first + u32::from(count)).any(taken) {
            true => Err(Refusal::CounterUsed),
            false => Ok((number, first)),
        }
    }

    /// Burns counters that [`Sequence::check`] found good.
    pub(crate) fn burn(&mut self, number: u32, first: u32, count: u16) {
        if let Some(batch) = self.batches.iter_mut().find(|batch| batch.number == number) {
            for token in first..first + u32::from(count) {
                batch.used[token as usize / 64] |= 1 << (token % 64);
            }
            batch.left = batch.left.saturating_sub(count.into());
        }
        self.batches.retain(|batch| batch.left > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_is_good_once_and_in_its_batch_only() {
        let mut sequence = Sequence::new(8);
        assert_eq!(sequence.check(0, 1), Err(Refusal::NotPrepared));
        sequence.begin(0).unwrap();
        assert_eq!(sequence.check(0, 1), Err(Refusal::NotPrepared));
        sequence.finish(0);
        assert_eq!(sequence.check(3, 2), Ok((0, 3)));
        sequence.burn(0, 3, 2);
        for (counter, count) in [(3, 1), (4, 1), (2, 2), (0, 8)] {
            assert_eq!(sequence.check(counter, count), Err(Refusal::CounterUsed));
        }
        assert_eq!(sequence.check(7, 2), Err(Refusal::NotPrepared));
        assert_eq!(sequence.check(8, 1), Err(Refusal::NotPrepared));
        assert_eq!(sequence.check(u64::MAX - 1, 1), Err(Refusal::NotPrepared));
        for token in [0, 1, 2, 5, 6, 7] {
            let (batch, first) = sequence.check(token, 1).unwrap();
            sequence.burn(batch, first, 1);
        }
        // The batch is gone, and its counters are still known to be used.
        assert!(sequence.batches.is_empty());
        assert_eq!(sequence.check(0, 1), Err(Refusal::CounterUsed));
    }

    #[test]
    fn a_batch_is_begun_once_even_where_it_came_to_nothing() {
        let mut sequence = Sequence::new(8);
        sequence.begin(0).unwrap();
        assert_eq!(sequence.begin(0), Err(Refusal::AlreadyPrepared));
        sequence.abandon(0);
        assert_eq!(sequence.begin(0), Err(Refusal::AlreadyPrepared));
        assert_eq!(sequence.check(0, 1), Err(Refusal::CounterUsed));
        for number in 2..BATCHES_MAX as u32 + 2 {
            sequence.begin(number).unwrap();
        }
        assert_eq!(sequence.begin(1), Err(Refusal::AlreadyPrepared));
        assert_eq!(sequence.begin(BATCHES_MAX as u32 + 2), Err(Refusal::Busy));
    }
}

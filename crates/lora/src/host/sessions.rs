//! Sessions: what a key holder's connections share, and what outlives one of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use confide_rlwe::{Context, PublicKey};

use super::{accounts::Account, adapter::Hosted, tally::Tally};
use crate::{
    Allowance, Epoch,
    masked::{HostSequence, MaskedError},
    protocol::{Attach, Refusal, Scheme},
};

/// Sessions at once. Each holds a public key of about 400 KB and, for each input and batch, a bit
/// for each counter.
pub const SESSIONS_MAX: usize = 256;

/// Connections of one session: one for each generation that runs, one for preparations.
pub const CONNECTIONS_MAX: u16 = 64;

/// Batches of one input with counters left: the one in use, the next one, and room for those that
/// several generations have not quite used up.
pub const BATCHES_MAX: usize = 4;

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
    pub(crate) context: Arc<Context>,
    /// One for each group of the adapter; none in the direct scheme.
    pub(crate) sequences: Vec<Mutex<HostSequence>>,
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
    pub(crate) context: Arc<Context>,
    pub(crate) sequences: Vec<Mutex<HostSequence>>,
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
            context: opening.context,
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
    pub(crate) fn sequence(&self, group: usize) -> Option<MutexGuard<'_, HostSequence>> {
        let sequence = self.sequences.get(group)?;
        Some(sequence.lock().unwrap_or_else(PoisonError::into_inner))
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

/// What is said of an error of the masked scheme.
pub(crate) fn masked_refusal(error: &MaskedError) -> Refusal {
    match error {
        MaskedError::CounterUsed { .. } => Refusal::CounterUsed,
        MaskedError::CounterUnknown { .. } => Refusal::NotPrepared,
        MaskedError::Batch { .. } => Refusal::AlreadyPrepared,
        MaskedError::Epoch { .. } => Refusal::NoSession,
        MaskedError::Count { .. } | MaskedError::Word { .. } | MaskedError::Ring(_) => {
            Refusal::Malformed
        }
        _ => Refusal::Internal,
    }
}

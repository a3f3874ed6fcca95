//! Sessions: the state that a key holder's connections share, and that outlives each of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use confide_rlwe::{Context, PublicKey};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use super::{
    accounts::Account,
    adapter::HostedAdapter,
    peers::{HostLimits, PeerPrefix},
    sequences::Sequences,
    tally::Tally,
};
use crate::{
    budget::Allowance,
    mask::Epoch,
    protocol::{Attach, Refusal, Scheme},
};

/// The greatest number of connections of one session: one for each generation that runs, one for
/// preparations.
const CONNECTIONS_MAX: u16 = 64;

/// The greatest number of batches of one input with counters left: the one in use, the next one,
/// and room for those that several generations have not quite used up.
pub const BATCHES_MAX: usize = 4;

/// The time after which a session without a connection is forgotten, with its batches.
pub(crate) const SESSION_IDLE: Duration = Duration::from_secs(600);

/// A session, which a hello opened.
pub(crate) struct Session {
    pub(crate) client: [u8; 32],
    pub(crate) token: [u8; 32],
    pub(crate) adapter: Arc<HostedAdapter>,
    pub(crate) account: Account,
    pub(crate) allowance: Allowance,
    pub(crate) scheme: Scheme,
    pub(crate) public_key: Arc<PublicKey>,
    pub(crate) context: Arc<Context>,
    pub(crate) sequences: Sequences,
    pub(crate) tally: Tally,
    /// The peer that the hello came from.
    pub(crate) peer: Option<PeerPrefix>,
    /// Whether the session was evicted for a newcomer.
    pub(crate) evicted: watch::Sender<bool>,
    pub(crate) life: Mutex<Life>,
}

/// The connections of a session, and the last use of it.
pub(crate) struct Life {
    connections: u16,
    /// The last time that it was opened, attached to or used, or lost a connection.
    last_used: Instant,
    /// Whether a batch was begun or a vector was answered.
    is_used: bool,
}

/// The sessions of a host, by client id.
pub(crate) struct Sessions {
    limits: HostLimits,
    open: Mutex<HashMap<[u8; 32], Arc<Session>>>,
}

/// One connection of a session, counted until it is dropped.
pub(crate) struct Seat(pub(crate) Arc<Session>);

impl Sessions {
    pub(crate) fn new(limits: HostLimits) -> Self {
        Self { limits, open: Mutex::default() }
    }

    /// Adds a new session, with its first connection. Returns the session that was evicted for it
    /// too.
    ///
    /// A newcomer is refused only where nobody has to give way: see [`Sessions::room`].
    pub(crate) fn open(&self, session: Session) -> Result<(Seat, Option<Arc<Session>>), Refusal> {
        let mut open = self.lock();
        // Shares are derived from the client id: two sessions of one id would have the same ones.
        if open.contains_key(&session.client) {
            return Err(Refusal::Busy);
        }
        let evicted = self.room(&mut open, session.peer)?;
        let session = Arc::new(session);
        open.insert(session.client, session.clone());
        Ok((Seat(session), evicted))
    }

    /// Makes room for a session of `peer`. Returns the session that was evicted for it.
    ///
    /// A peer that has its share takes the place of its own longest idle session without a
    /// connection. Where the host is full, the first to go is a session without a connection, a
    /// batch and an answer; then the longest idle one of the peer that holds most, where that is
    /// more than the newcomer holds.
    fn room(
        &self,
        open: &mut HashMap<[u8; 32], Arc<Session>>,
        peer: Option<PeerPrefix>,
    ) -> Result<Option<Arc<Session>>, Refusal> {
        let own = open.values().filter(|session| session.peer == peer).count();
        let full = open.len() >= self.limits.sessions;
        if own < self.limits.sessions_per_peer && !full {
            return Ok(None);
        }
        let longest_idle = |chosen: &dyn Fn(&Session, &Life) -> bool| {
            let idle = open.values().filter_map(|session| {
                let life = session.life();
                chosen(session, &life).then(|| (life.last_used, session.clone()))
            });
            idle.min_by_key(|(last_used, _)| *last_used).map(|(_, session)| session)
        };
        let victim = match own >= self.limits.sessions_per_peer {
            true => longest_idle(&|session, life| session.peer == peer && life.connections == 0),
            false => {
                longest_idle(&|_, life| life.connections == 0 && !life.is_used).or_else(|| {
                    let (most, held) = greatest_holder(open)?;
                    longest_idle(&|session, life| {
                        session.peer == most && (held > own + 1 || life.connections == 0)
                    })
                })
            }
        };
        let victim = victim.ok_or(Refusal::Busy)?;
        open.remove(&victim.client);
        victim.evicted.send_replace(true);
        Ok(Some(victim))
    }

    /// Adds a connection to a session. The refusal is the same whatever is wrong with the request.
    pub(crate) fn attach(&self, attach: &Attach, epoch: Epoch) -> Result<(Seat, u16), Refusal> {
        let session = self.lock().get(&attach.client).cloned().ok_or(Refusal::NoSession)?;
        if !bool::from(attach.token.ct_eq(&session.token))
            || attach.epoch != epoch.0
            || session.is_expired()
        {
            return Err(Refusal::NoSession);
        }
        let mut life = session.life();
        if life.connections >= CONNECTIONS_MAX {
            return Err(Refusal::Busy);
        }
        life.connections += 1;
        life.last_used = Instant::now();
        let connections = life.connections;
        drop(life);
        Ok((Seat(session), connections))
    }

    /// Forgets a session; requests on its remaining connections are refused.
    pub(crate) fn forget(&self, session: &Session) {
        let mut open = self.lock();
        // The id of an evicted session may be that of another session by now.
        if open.get(&session.client).is_some_and(|held| std::ptr::eq(&**held, session)) {
            open.remove(&session.client);
        }
    }

    /// Forgets the sessions that have expired and returns them.
    pub(crate) fn expire(&self) -> Vec<Arc<Session>> {
        let mut open = self.lock();
        let expired: Vec<_> =
            open.values().filter(|session| session.is_expired()).cloned().collect();
        open.retain(|_, session| !session.is_expired());
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

impl Life {
    /// The life of a session that its first connection opens now.
    pub(crate) fn begin() -> Mutex<Self> {
        Mutex::new(Self { connections: 1, last_used: Instant::now(), is_used: false })
    }
}

impl Session {
    /// Notes a request: the session's idle time begins again, and it counts as used.
    pub(crate) fn note_use(&self) {
        let mut life = self.life();
        life.last_used = Instant::now();
        life.is_used = true;
    }

    /// A receiver that becomes true when the session is evicted for a newcomer.
    pub(crate) fn eviction(&self) -> watch::Receiver<bool> {
        self.evicted.subscribe()
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_expired(&self) -> bool {
        let life = self.life();
        life.connections == 0 && life.last_used.elapsed() >= SESSION_IDLE
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut life = self.0.life();
        life.connections = life.connections.saturating_sub(1);
        life.last_used = Instant::now();
    }
}

/// The peer that holds most sessions, and their number.
fn greatest_holder(open: &HashMap<[u8; 32], Arc<Session>>) -> Option<(Option<PeerPrefix>, usize)> {
    let mut held: HashMap<Option<PeerPrefix>, usize> = HashMap::new();
    for session in open.values() {
        *held.entry(session.peer).or_default() += 1;
    }
    held.into_iter().max_by_key(|(_, count)| *count)
}

//! Sessions: state that the connections of a key holder share and that outlives them.

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
    sequences::CounterSequences,
    tally::AuditTally,
};
use crate::{
    budget::AnswerAllowance,
    mask::HostEpoch,
    protocol::{Attach, Refusal, Scheme},
};

/// The greatest number of connections of one session: one for each running generation, and one for
/// preparations.
const CONNECTIONS_MAX: u16 = 64;

/// The greatest number of batches of one input with counters left: the one in use, the next one, and
/// two that several generations have not quite used up.
pub const BATCHES_MAX: usize = 4;

/// The time after which a session without a connection is forgotten, with its batches.
pub(crate) const SESSION_IDLE: Duration = Duration::from_secs(600);

/// A session, which a hello opened.
pub(crate) struct HostSession {
    pub(crate) client: [u8; 32],
    pub(crate) token: [u8; 32],
    pub(crate) adapter: Arc<HostedAdapter>,
    pub(crate) account: Account,
    pub(crate) allowance: AnswerAllowance,
    pub(crate) scheme: Scheme,
    pub(crate) public_key: Arc<PublicKey>,
    pub(crate) context: Arc<Context>,
    pub(crate) sequences: CounterSequences,
    pub(crate) tally: AuditTally,
    /// The peer that the hello came from.
    pub(crate) peer: Option<PeerPrefix>,
    /// Whether the session has ended: by a goodbye, by eviction for a new one, or because it expired.
    pub(crate) ended: watch::Sender<bool>,
    pub(crate) life: Mutex<SessionActivity>,
}

/// The number of connections of a session, and its last use.
pub(crate) struct SessionActivity {
    connections: u16,
    /// The time of the last opening, attachment, use or loss of a connection.
    last_used: Instant,
    /// Whether a batch was started or a vector was answered.
    is_used: bool,
}

/// The sessions of a host, by client id.
pub(crate) struct HostSessions {
    limits: HostLimits,
    open: Mutex<HashMap<[u8; 32], Arc<HostSession>>>,
}

/// One connection of a session, counted until it is dropped.
pub(crate) struct SessionConnection(pub(crate) Arc<HostSession>);

impl HostSessions {
    pub(crate) fn new(limits: HostLimits) -> Self {
        Self { limits, open: Mutex::default() }
    }

    /// Adds a new session with its first connection. Also returns the session that was evicted for
    /// it.
    ///
    /// The new session is refused if no session can be evicted: see [`HostSessions::make_room`].
    pub(crate) fn open(
        &self,
        session: HostSession,
    ) -> Result<(SessionConnection, Option<Arc<HostSession>>), Refusal> {
        let mut open = self.lock();
        // Masks are derived from the client id, so two sessions of one id would have the same masks.
        if open.contains_key(&session.client) {
            return Err(Refusal::Busy);
        }
        let evicted = self.make_room(&mut open, session.peer)?;
        let session = Arc::new(session);
        open.insert(session.client, session.clone());
        Ok((SessionConnection(session), evicted))
    }

    /// Makes room for a session of `peer`. Returns the session that was evicted for it.
    ///
    /// A peer at its limit evicts its own longest idle session without a connection. If the host is
    /// full, the longest idle session without a connection, a batch or an answer is evicted; if there
    /// is none, the longest idle session of the peer with the most sessions, if that peer has more
    /// than the new one.
    fn make_room(
        &self,
        open: &mut HashMap<[u8; 32], Arc<HostSession>>,
        peer: Option<PeerPrefix>,
    ) -> Result<Option<Arc<HostSession>>, Refusal> {
        let own = open.values().filter(|session| session.peer == peer).count();
        let full = open.len() >= self.limits.sessions;
        if own < self.limits.sessions_per_peer && !full {
            return Ok(None);
        }
        let longest_idle = |chosen: &dyn Fn(&HostSession, &SessionActivity) -> bool| {
            let idle = open.values().filter_map(|session| {
                let life = session.lock_activity();
                chosen(session, &life).then(|| (life.last_used, session.clone()))
            });
            idle.min_by_key(|(last_used, _)| *last_used).map(|(_, session)| session)
        };
        let victim = match own >= self.limits.sessions_per_peer {
            true => longest_idle(&|session, life| session.peer == peer && life.connections == 0),
            false => {
                longest_idle(&|_, life| life.connections == 0 && !life.is_used).or_else(|| {
                    let (most, held) = peer_with_most_sessions(open)?;
                    longest_idle(&|session, life| {
                        session.peer == most && (held > own + 1 || life.connections == 0)
                    })
                })
            }
        };
        let victim = victim.ok_or(Refusal::Busy)?;
        open.remove(&victim.client);
        victim.ended.send_replace(true);
        Ok(Some(victim))
    }

    /// Adds a connection to a session. The refusal does not depend on what is wrong with the request.
    pub(crate) fn attach(
        &self,
        attach: &Attach,
        epoch: HostEpoch,
    ) -> Result<(SessionConnection, u16), Refusal> {
        // The lock is held until the connection is counted, so that the session cannot end in between.
        let open = self.lock();
        let session = open.get(&attach.client).cloned().ok_or(Refusal::NoSession)?;
        if !bool::from(attach.token.ct_eq(&session.token))
            || attach.epoch != epoch.0
            || session.is_expired()
        {
            return Err(Refusal::NoSession);
        }
        let mut life = session.lock_activity();
        if life.connections >= CONNECTIONS_MAX {
            return Err(Refusal::Busy);
        }
        life.connections += 1;
        life.last_used = Instant::now();
        let connections = life.connections;
        drop(life);
        Ok((SessionConnection(session), connections))
    }

    /// Forgets a session and ends its remaining connections. Returns false if it had ended already.
    pub(crate) fn remove(&self, session: &HostSession) -> bool {
        let mut open = self.lock();
        // Another session may have the id of an ended session by now.
        if open.get(&session.client).is_none_or(|held| !std::ptr::eq(&**held, session)) {
            return false;
        }
        open.remove(&session.client);
        session.ended.send_replace(true);
        true
    }

    /// Forgets the sessions that have expired and returns them.
    pub(crate) fn expire_sessions(&self) -> Vec<Arc<HostSession>> {
        let mut open = self.lock();
        let expired: Vec<_> =
            open.values().filter(|session| session.is_expired()).cloned().collect();
        for session in &expired {
            open.remove(&session.client);
            session.ended.send_replace(true);
        }
        expired
    }

    pub(crate) fn list(&self) -> Vec<Arc<HostSession>> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Arc<HostSession>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionActivity {
    /// The activity of a session that its first connection opens now.
    pub(crate) fn with_one_connection() -> Mutex<Self> {
        Mutex::new(Self { connections: 1, last_used: Instant::now(), is_used: false })
    }
}

impl HostSession {
    /// Records a request: it resets the idle time, and the session counts as used.
    pub(crate) fn record_use(&self) {
        let mut life = self.lock_activity();
        life.last_used = Instant::now();
        life.is_used = true;
    }

    /// A receiver whose value becomes true when the session ends.
    pub(crate) fn end_signal(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    fn lock_activity(&self) -> MutexGuard<'_, SessionActivity> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_expired(&self) -> bool {
        let life = self.lock_activity();
        life.connections == 0 && life.last_used.elapsed() >= SESSION_IDLE
    }
}

impl Drop for SessionConnection {
    fn drop(&mut self) {
        let mut life = self.0.lock_activity();
        life.connections = life.connections.saturating_sub(1);
        life.last_used = Instant::now();
    }
}

/// The peer with the most sessions, and their number.
fn peer_with_most_sessions(
    open: &HashMap<[u8; 32], Arc<HostSession>>,
) -> Option<(Option<PeerPrefix>, usize)> {
    let mut held: HashMap<Option<PeerPrefix>, usize> = HashMap::new();
    for session in open.values() {
        *held.entry(session.peer).or_default() += 1;
    }
    held.into_iter().max_by_key(|(_, count)| *count)
}

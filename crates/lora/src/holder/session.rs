//! A session with a host: keys, terms and prepared masks.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use confide_rlwe::{Context, Rng, SecretKey};

use super::{
    connect::HostConnector,
    connection::{ANSWER_DEADLINE, HostConnection},
    error::HolderError,
    options::KeyHolderOptions,
    pool::{MaskPool, MaskedVectorsWithBatch},
};
use crate::{
    direct,
    meter::StepMeter,
    protocol::{
        Attach, FrameKind, GroupTerms, Hello, ProtocolError, Refusal, Scheme, VERSION, Welcome,
        decode_terms,
    },
    site::{LayerInput, Projection, ProjectionSite, ProjectionWidth},
    terms::{InputTerms, OutputTransform, ProtectedMatrices},
};

/// A session with a host: keys, terms and masks. All of them become useless when the host restarts.
pub(crate) struct HolderSession {
    pub(crate) secret: SecretKey,
    pub(crate) attach: Attach,
    pub(crate) welcome: Welcome,
    pub(crate) groups: Vec<InputGroup>,
    by_input: HashMap<(u32, LayerInput), usize>,
    pools: Mutex<Vec<MaskPool>>,
    changed: Condvar,
    dead: AtomicBool,
    /// Whether evidence that either side presented is simulated.
    pub(crate) simulated: bool,
}

/// One input of the adapter: its terms, and this client's budget for it.
pub(crate) struct InputGroup {
    pub(crate) terms: InputTerms,
    pub(crate) budget: Option<u64>,
    left: AtomicU64,
}

impl HolderSession {
    /// Sends a hello on a new connection, with a new key.
    pub(crate) fn open(
        connection: &mut HostConnection,
        connect: &dyn HostConnector,
        options: &KeyHolderOptions,
    ) -> Result<Self, HolderError> {
        let set = match options.scheme {
            Scheme::Masked => options.parameters.clone(),
            Scheme::Direct => direct::derive_parameters(&options.parameters)?.0,
        };
        let context = Context::new(&set)?;
        let mut rng = Rng::from_os()?;
        let secret = SecretKey::generate(&context, &mut rng);
        let public_key = secret.public_key(&mut rng).to_bytes(&context);
        let mut client = [0; 32];
        rng.fill_bytes(&mut client);
        let hello = Hello {
            version: VERSION,
            adapter: &options.adapter,
            scheme: options.scheme,
            parameters: options.parameters.name(),
            protect: options.protect,
            client,
            credential: &options.credential,
            public_key: &public_key,
        };
        let of = |error| HolderError::from_protocol(connect, error);
        let id = connection.begin_request(FrameKind::Hello, |out| hello.encode(out)).map_err(of)?;
        let welcome = receive_welcome(connection, id).map_err(of)?;
        let mut groups = Vec::with_capacity(welcome.groups.into());
        for _ in 0..welcome.groups {
            groups.push(receive_terms(connection, id).map_err(of)?);
        }
        let attach = Attach { client, epoch: welcome.epoch, token: welcome.token };
        let session = Self {
            secret,
            attach,
            by_input: HashMap::new(),
            pools: Mutex::new(groups.iter().map(|_| MaskPool::default()).collect()),
            changed: Condvar::new(),
            dead: AtomicBool::new(false),
            simulated: connection.simulated || welcome.simulated,
            welcome,
            groups,
        };
        session.check_offer(connect, options)
    }

    /// Checks that the host's offer is consistent and matches the options.
    fn check_offer(
        mut self,
        connect: &dyn HostConnector,
        options: &KeyHolderOptions,
    ) -> Result<Self, HolderError> {
        let offer =
            |wanted: String, got: String| HolderError::Offer { host: connect.host(), wanted, got };
        let set = self.secret.context().parameter_set();
        let (protect, bits) = (self.welcome.protect, set.plaintext_bits());
        if let Some(wanted) = options.protect.filter(|wanted| *wanted != protect) {
            return Err(offer(wanted.name().into(), protect.name().into()));
        }
        for (index, group) in self.groups.iter().enumerate() {
            let terms = &group.terms;
            if terms.bits > bits {
                let (wanted, got) =
                    (format!("at most {bits} bits"), format!("{} bits", terms.bits));
                return Err(offer(wanted, got));
            }
            let merged =
                terms.parts.iter().all(|part| matches!(part.effect, OutputTransform::Scale(_)));
            if merged != (protect == ProtectedMatrices::Ba) {
                let wanted = format!("terms of protect = {}", protect.name());
                return Err(offer(wanted, "terms of the other kind".into()));
            }
            if self.by_input.insert((terms.layer, terms.input), index).is_some() {
                return Err(offer("each input once".into(), "one twice".into()));
            }
        }
        Ok(self)
    }

    pub(crate) fn group_index(&self, layer: u32, input: LayerInput) -> Option<usize> {
        self.by_input.get(&(layer, input)).copied()
    }

    pub(crate) fn sites(&self) -> BTreeMap<ProjectionSite, ProjectionWidth> {
        let groups = self.groups.iter().flat_map(|group| {
            group.terms.parts.iter().map(move |part| {
                let output = match &part.effect {
                    OutputTransform::Factor(factor) => factor.width(),
                    OutputTransform::Scale(_) => part.rows,
                };
                let (layer, projection): (u32, Projection) = (group.terms.layer, part.projection);
                (
                    ProjectionSite { layer, projection },
                    ProjectionWidth { input: group.terms.columns, output },
                )
            })
        });
        groups.collect()
    }

    pub(crate) fn pools(&self) -> MutexGuard<'_, Vec<MaskPool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify_waiters(&self) {
        self.changed.notify_all();
    }

    /// Waits for a change of the pools, or for `at_most`.
    pub(crate) fn wait_for_change<'a>(
        &self,
        pools: MutexGuard<'a, Vec<MaskPool>>,
        at_most: Duration,
    ) -> MutexGuard<'a, Vec<MaskPool>> {
        let waited = self.changed.wait_timeout(pools, at_most);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Marks the session as dead and wakes the threads that wait for masks.
    pub(crate) fn mark_dead(&self) {
        self.dead.store(true, Ordering::Release);
        // The lock is taken, so that the notification cannot come between a check and its wait.
        drop(self.pools());
        self.notify_waiters();
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Masks as many of these vectors as one batch has counters for. Waits if no batch is ready.
    pub(crate) fn mask_vectors(
        &self,
        connect: &dyn HostConnector,
        group: usize,
        vectors: &[i16],
        deadline: Duration,
        meter: &mut StepMeter,
    ) -> Result<MaskedVectorsWithBatch, HolderError> {
        let columns = self.groups[group].terms.columns;
        let until = Instant::now() + deadline;
        let mut pools = self.pools();
        loop {
            if self.is_dead() {
                return Err(HolderError::HostRestarted { host: connect.host() });
            }
            if let Some(taken) = pools[group].mask_vectors(vectors, columns, meter) {
                return Ok(taken?);
            }
            if self.groups[group].budget_left() == Some(0) {
                let limit = self.groups[group].budget.unwrap_or(0);
                return Err(HolderError::Refused {
                    host: connect.host(),
                    refusal: Refusal::Budget { limit },
                });
            }
            // Wake the preparers, and wait for their batch.
            self.notify_waiters();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let waited_s = deadline.as_secs();
                return Err(HolderError::NotPrepared { host: connect.host(), waited_s });
            }
            pools = self.wait_for_change(pools, left);
        }
    }
}

impl InputGroup {
    pub(crate) fn budget_left(&self) -> Option<u64> {
        let left = self.left.load(Ordering::Relaxed);
        (left != u64::MAX).then_some(left)
    }

    pub(crate) fn set_budget_left(&self, left: Option<u64>) {
        self.left.store(left.unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

fn receive_welcome(connection: &mut HostConnection, id: u32) -> Result<Welcome, ProtocolError> {
    let answer = connection.receive(id, "the host's welcome", ANSWER_DEADLINE)?;
    match answer.kind {
        FrameKind::Welcome => Welcome::decode(answer.payload),
        got => Err(ProtocolError::Unexpected { wanted: "welcome", got }),
    }
}

fn receive_terms(connection: &mut HostConnection, id: u32) -> Result<InputGroup, ProtocolError> {
    let answer = connection.receive(id, "the host's terms", ANSWER_DEADLINE)?;
    if answer.kind != FrameKind::Terms {
        return Err(ProtocolError::Unexpected { wanted: "terms", got: answer.kind });
    }
    let message = GroupTerms::decode(answer.payload)?;
    let left = AtomicU64::new(message.budget_left.unwrap_or(u64::MAX));
    Ok(InputGroup { terms: decode_terms(message.terms)?, budget: message.budget, left })
}

/// State that an adapter shares with its generations and its preparers.
pub(crate) struct AdapterState {
    pub(crate) connect: Arc<dyn HostConnector>,
    pub(crate) options: KeyHolderOptions,
    session: Mutex<Arc<HolderSession>>,
    idle: Mutex<Vec<(HostConnection, [u8; 32])>>,
    stopping: AtomicBool,
    pub(crate) wanted: AtomicU64,
    pub(crate) offline_bytes: AtomicU64,
}

/// The greatest number of idle connections that are kept for the next generation.
const IDLE_MAX: usize = 8;

impl AdapterState {
    pub(crate) fn new(
        connect: Arc<dyn HostConnector>,
        options: KeyHolderOptions,
        connection: HostConnection,
        session: HolderSession,
    ) -> Self {
        let wanted = AtomicU64::new(options.low_water.into());
        let idle = Mutex::new(vec![(connection, session.attach.client)]);
        let session = Mutex::new(Arc::new(session));
        Self {
            connect,
            options,
            session,
            idle,
            stopping: AtomicBool::new(false),
            wanted,
            offline_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn session(&self) -> Arc<HolderSession> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes an idle connection of this session, or opens a new one.
    pub(crate) fn take_connection(
        &self,
        session: &HolderSession,
    ) -> Result<HostConnection, HolderError> {
        {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|(_, client)| *client == session.attach.client);
            if let Some((connection, _)) = idle.pop() {
                return Ok(connection);
            }
        }
        self.open_connection(session)
    }

    /// Opens a connection of this session, and marks the session as dead if the host no longer knows
    /// it.
    pub(crate) fn open_connection(
        &self,
        session: &HolderSession,
    ) -> Result<HostConnection, HolderError> {
        let mut connection = HostConnection::open(&*self.connect)?;
        let attached = connection.attach(&session.attach);
        attached.map_err(|error| {
            let error = HolderError::from_protocol(&*self.connect, error);
            if matches!(error, HolderError::HostRestarted { .. }) {
                session.mark_dead();
            }
            error
        })?;
        Ok(connection)
    }

    pub(crate) fn keep_idle_connection(&self, connection: HostConnection, session: &HolderSession) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !session.is_dead() {
            idle.push((connection, session.attach.client));
        }
    }

    /// Returns the current session, or replaces a dead one, whose masks are discarded.
    pub(crate) fn ensure_session(&self) -> Result<Arc<HolderSession>, HolderError> {
        let mut held = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.is_dead() {
            return Ok(held.clone());
        }
        let mut connection = HostConnection::open(&*self.connect)?;
        let fresh = HolderSession::open(&mut connection, &*self.connect, &self.options)?;
        if fresh.sites() != held.sites() {
            let (wanted, got) = ("the same projections as before".into(), "others".into());
            return Err(HolderError::Offer { host: self.connect.host(), wanted, got });
        }
        let thrown: u64 = held.pools().iter().map(MaskPool::tokens_left).sum();
        tracing::warn!(
            host = self.connect.host(),
            same_process = fresh.welcome.epoch == held.welcome.epoch,
            "the adapter host no longer knows the session: {thrown} prepared vectors are discarded"
        );
        let fresh = Arc::new(fresh);
        *held = fresh.clone();
        drop(held);
        self.keep_idle_connection(connection, &fresh);
        Ok(fresh)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.session().mark_dead();
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        for (index, (connection, _)) in idle.into_iter().enumerate() {
            if index == 0 {
                connection.send_goodbye(true);
            }
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

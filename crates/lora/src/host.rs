//! The adapter host: holds adapters and never a key, answers about vectors that it cannot read.
//!
//! [`AdapterHost::serve`] speaks the blind protocol on one connection. What is shared between
//! connections: sessions, whose batches of masks live in memory only; budgets, which are counted for
//! an account and not for a key; the audit log.

mod accounts;
mod adapter;
mod audit;
mod budget_file;
mod connection;
mod direct;
mod error;
mod online;
mod queue;
mod sessions;
mod sums;
mod tally;
mod upload;

pub use accounts::{CLIENTS_BYTES_MAX, Clients, ClientsError};
pub use adapter::ROWS_MAX;
pub use audit::{AuditLog, FILE_BYTES_MAX, LINES_KEPT, Subject};
pub use connection::{HELLO_DEADLINE, IDLE_DEADLINE, WRITE_DEADLINE};
pub use error::HostError;
pub use sessions::{BATCHES_MAX, CONNECTIONS_MAX, SESSION_IDLE, SESSIONS_MAX};
pub use upload::{BLOCK_DEADLINE, WINDOW};

use std::{
    collections::BTreeMap,
    num::NonZero,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use confide_rlwe::{Context, ParameterSet, PublicKey, Rng};
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
};

use crate::{
    Adapter, Allowance, BudgetError, BudgetState, Budgets, Guarantee, ProcessKey, Protect, Slot,
    protocol::{
        Apply, Attach, Direct, Hello, Prepare, ProtocolError, Refusal, Scheme, VERSION, Welcome,
        packed_bytes, unpack,
    },
};
use adapter::Hosted;
use budget_file::BudgetFile;
use online::OnlineJob;
use sessions::{Opening, Seat, Sequence, Session, Sessions};
use sums::Sums;
use tally::{Tally, input_name};
use upload::Place;

/// The set that both schemes share.
pub const PARAMETERS_DEFAULT: &str = "rlwe-4096-q100-flood40";

/// Adapters of one host.
const ADAPTERS_MAX: usize = 64;

/// Batches whose sums are held at once, half a gigabyte each at the most.
const SUMS_MAX: usize = 4;

/// What an adapter host is.
#[derive(Debug)]
pub struct HostOptions {
    /// Ring and noise.
    pub parameters: ParameterSet,
    /// What stays here.
    pub protect: Protect,
    /// Answers for each account, adapter and input.
    pub allowance: Allowance,
    /// Standard deviation of noise on each answer, in units of its integers; 0 is none.
    pub noise_sigma: f64,
    /// Greatest rank of an adapter.
    pub rank_max: usize,
    /// Who may ask; empty is everyone, on one account.
    pub clients: Clients,
    /// Keeps the counts of answers over a restart.
    pub budget_file: Option<PathBuf>,
    /// Whoever reaches [`AdapterHost::serve`] was attested: for the guarantee.
    pub attested_only: bool,
}

/// What the channel knows of a key holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its evidence was accepted by the adapter's policy.
    pub attested: bool,
    /// Evidence of either side is simulated.
    pub simulated: bool,
}

/// Answers key holders about its adapters.
pub struct AdapterHost {
    options: HostOptions,
    context: Arc<Context>,
    key: ProcessKey,
    adapters: Mutex<BTreeMap<String, Arc<Hosted>>>,
    sessions: Sessions,
    budgets: Budgets,
    budget_file: Option<BudgetFile>,
    audit: AuditLog,
    at_the_door: Tally,
    room: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    stopping: watch::Sender<bool>,
    simulated: AtomicBool,
}

impl AdapterHost {
    /// A host without adapters yet, with a fresh key and epoch.
    ///
    /// # Errors
    /// Where the parameter set is not flooded, randomness fails, or the budget file cannot be read.
    pub fn new(options: HostOptions, audit: AuditLog) -> Result<Self, HostError> {
        let context = Context::new(&options.parameters)?;
        let key = ProcessKey::random(&mut Rng::from_os()?);
        let budgets = Budgets::new();
        let budget_file = match &options.budget_file {
            None => None,
            Some(path) => {
                let cannot = |source| HostError::BudgetFile { path: path.clone(), source };
                let (file, counts) = BudgetFile::open(path).map_err(cannot)?;
                for (slot, used) in counts {
                    let counted = budgets.take(slot, 0, Allowance::Attested, used);
                    counted.map_err(|_| HostError::Budgets)?;
                }
                Some(file)
            }
        };
        // One of two cores, or half of many: the others answer tokens.
        let turns = thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2);
        Ok(Self {
            options,
            context,
            key,
            adapters: Mutex::default(),
            sessions: Sessions::default(),
            budgets,
            budget_file,
            audit,
            at_the_door: Tally::default(),
            room: Arc::new(Semaphore::new(SUMS_MAX)),
            turns: Arc::new(Semaphore::new(turns)),
            stopping: watch::Sender::new(false),
            simulated: AtomicBool::new(false),
        })
    }

    /// Quantises an adapter and offers it under its name.
    ///
    /// # Errors
    /// Where it has no name that can be sent, another of that name is there, its rank or shape is
    /// beyond a limit, or a value is not finite.
    pub fn load(&self, adapter: &Adapter) -> Result<(), HostError> {
        let limit = self.options.rank_max;
        if let Some(pair) = adapter.modules.values().find(|pair| pair.rank() > limit) {
            return Err(HostError::Rank { limit, got: pair.rank() });
        }
        let (protect, sigma) = (self.options.protect, self.options.noise_sigma);
        let hosted = Hosted::new(adapter, &self.context, protect, sigma)?;
        let mut adapters = self.adapters.lock().unwrap_or_else(PoisonError::into_inner);
        if adapters.len() >= ADAPTERS_MAX {
            return Err(HostError::Adapters { limit: ADAPTERS_MAX });
        }
        if adapters.contains_key(&hosted.name) {
            return Err(HostError::Twice { name: hosted.name });
        }
        adapters.insert(hosted.name.clone(), Arc::new(hosted));
        Ok(())
    }

    /// Speaks the blind protocol on one connection until either side ends it.
    ///
    /// # Errors
    /// Where the key holder broke off, or broke the protocol. The audit log has it.
    pub async fn serve<S>(self: &Arc<Self>, stream: S, peer: Peer) -> Result<(), ProtocolError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        connection::serve(self, stream, peer).await
    }

    /// Who is protected from whom, for every key holder that may come.
    pub fn guarantee(&self) -> Guarantee {
        let allowance = match self.options.attested_only {
            true => Allowance::Attested,
            false => self.options.allowance,
        };
        Guarantee {
            host_is_blind: true,
            adapter_stays: true,
            b_is_handed_over: self.options.protect == Protect::A,
            adapter_can_be_learned: self.all().iter().any(|adapter| lets_learn(adapter, allowance)),
            simulated: self.simulated.load(Ordering::Relaxed),
        }
    }

    /// Whether the evidence that the channel shows for this host is simulated.
    pub fn set_simulated(&self, simulated: bool) {
        self.simulated.store(simulated, Ordering::Relaxed);
    }

    /// The name of this process: batches of another epoch are worthless.
    pub fn epoch(&self) -> [u8; 16] {
        self.key.epoch().0
    }

    /// Sessions that live.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    /// What is offered and on which terms, for a ready line or a digest; no values.
    pub fn describe(&self) -> Value {
        let adapters = self.all().into_iter().map(|adapter| {
            let widths = adapter.groups().iter().map(adapter::Group::columns);
            let limits = widths.map(|width| self.options.allowance.limit(width));
            json!({
                "name": adapter.name,
                "inputs": adapter.groups().len(),
                "rows": adapter.groups().iter().map(adapter::Group::rows).sum::<usize>(),
                "budget_least": limits.min().flatten(),
            })
        });
        json!({
            "parameters": self.options.parameters.to_string(),
            "protect": self.options.protect.name(),
            "noise_sigma": self.options.noise_sigma,
            "adapters": adapters.collect::<Vec<_>>(),
        })
    }

    /// The audit log's lines, where they are kept in memory.
    pub fn audit_lines(&self) -> Vec<String> {
        self.audit.lines()
    }

    /// Forgets sessions that nobody has come back to, and writes what was counted.
    pub fn expire(&self) {
        for session in self.sessions.expire() {
            self.write_tally(&session);
            self.audit.write("expired", subject(&session), Map::new());
        }
        for session in self.sessions.all() {
            self.write_tally(&session);
        }
        if let Some(fields) = self.at_the_door.take() {
            self.audit.write("counted", Subject::default(), fields);
        }
    }

    /// Ends every connection after the request that it is at.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Writes what was counted; for the end.
    pub fn close(&self) {
        self.expire();
        self.audit.write("stopped", Subject::default(), Map::new());
    }

    fn all(&self) -> Vec<Arc<Hosted>> {
        let adapters = self.adapters.lock().unwrap_or_else(PoisonError::into_inner);
        adapters.values().cloned().collect()
    }
}

/// What a connection asks of its host.
impl AdapterHost {
    fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    fn welcome(&self, hello: &Hello<'_>, peer: Peer) -> Result<(Seat, Welcome), Refusal> {
        let account = self.options.clients.account(hello.credential, peer.attested)?;
        let adapter = {
            let adapters = self.adapters.lock().unwrap_or_else(PoisonError::into_inner);
            adapters.get(hello.adapter).cloned().ok_or(Refusal::UnknownAdapter)?
        };
        let protect = self.options.protect;
        if hello.parameters != self.options.parameters.name()
            || hello.protect.is_some_and(|wanted| wanted != protect)
        {
            return Err(Refusal::NotOffered);
        }
        let public_key = PublicKey::from_bytes(&self.context, hello.public_key)
            .map_err(|_| Refusal::Malformed)?;
        let allowance = match peer.attested {
            true => Allowance::Attested,
            false => self.options.allowance,
        };
        let mut token = [0; 32];
        Rng::from_os().map_err(|_| Refusal::Internal)?.fill_bytes(&mut token);
        let degree = self.context.n();
        let sequences = adapter.groups().iter().map(|_| Mutex::new(Sequence::new(degree)));
        let welcome = Welcome {
            version: VERSION,
            epoch: self.epoch(),
            token,
            simulated: peer.simulated,
            trusted: peer.attested,
            can_be_learned: lets_learn(&adapter, allowance),
            protect,
            groups: adapter.groups().len() as u16,
        };
        let seat = self.sessions.open(Opening {
            client: hello.client,
            token,
            sequences: sequences.collect(),
            adapter,
            account,
            allowance,
            scheme: hello.scheme,
            public_key: Arc::new(public_key),
        })?;
        let mut fields = Map::new();
        fields.insert("scheme".into(), hello.scheme.name().into());
        fields.insert("attested".into(), peer.attested.into());
        fields.insert("simulated".into(), peer.simulated.into());
        self.audit.write("hello", subject(&seat.0), fields);
        Ok((seat, welcome))
    }

    fn attach(&self, attach: &Attach) -> Result<(Seat, u16), Refusal> {
        self.sessions.attach(attach, self.key.epoch())
    }

    fn budget_state(&self, session: &Session, group: usize) -> BudgetState {
        let (slot, width) = self.budget_slot(session, group);
        self.budgets.left(&slot, width, session.allowance)
    }

    async fn apply(
        &self,
        session: &Arc<Session>,
        apply: &Apply<'_>,
    ) -> Result<(Vec<u8>, Option<u64>), Refusal> {
        let adapter = &session.adapter;
        let group = adapter.group(apply.layer, apply.input).ok_or(Refusal::NotOffered)?;
        if session.scheme != Scheme::Masked {
            return Err(Refusal::NotOffered);
        }
        let vectors = self.read_vectors(adapter, group, apply)?;
        let (batch, token, state) = {
            let mut sequence = session.sequence(group);
            let (batch, token) = sequence.check(apply.counter, apply.vectors)?;
            let state = self.count(session, group, apply.vectors.into())?;
            sequence.burn(batch, token, apply.vectors);
            (batch, token, state)
        };
        let shares = self.shares(session, group, batch);
        let job = OnlineJob { group, vectors, shares, token };
        let packed = adapter.queue.answer(job).await.filter(|packed| !packed.is_empty());
        let packed = packed.ok_or(Refusal::Internal)?;
        session.tally.answered(apply.layer, apply.input, apply.vectors.into());
        Ok((packed, state.left))
    }

    fn read_vectors(
        &self,
        adapter: &Hosted,
        group: usize,
        apply: &Apply<'_>,
    ) -> Result<Vec<u64>, Refusal> {
        let terms = &adapter.groups()[group].weights.terms;
        let bytes = packed_bytes(terms.columns, terms.bits);
        let count = usize::from(apply.vectors);
        if apply.packed.len() != bytes * count {
            return Err(Refusal::Malformed);
        }
        let mut vectors = Vec::with_capacity(terms.columns * count);
        for packed in apply.packed.chunks_exact(bytes) {
            let vector = unpack(packed, terms.bits, terms.columns).ok_or(Refusal::Malformed)?;
            vectors.extend(vector);
        }
        Ok(vectors)
    }

    /// Counts answers before they are given, on disk too where there is a file.
    fn count(&self, session: &Session, group: usize, vectors: u64) -> Result<BudgetState, Refusal> {
        let (slot, width) = self.budget_slot(session, group);
        let taken = self.budgets.take(slot, width, session.allowance, vectors);
        let state = taken.map_err(|error| match error {
            BudgetError::UsedUp { limit, .. } => Refusal::Budget { limit },
            _ => Refusal::Busy,
        })?;
        if let Some(file) = &self.budget_file {
            file.reserve(slot, state.used).map_err(|error| {
                tracing::error!(%error, "counts of answers cannot be kept: nothing is answered");
                Refusal::Internal
            })?;
        }
        Ok(state)
    }

    fn budget_slot(&self, session: &Session, group: usize) -> (Slot, usize) {
        let terms = &session.adapter.groups()[group].weights.terms;
        let (client, adapter) = (session.account.id, session.adapter.id);
        (Slot { client, adapter, layer: terms.layer, input: terms.input }, terms.columns)
    }

    fn shares(&self, session: &Session, group: usize, batch: u32) -> crate::mask::MaskStream {
        let (slot, _) = self.budget_slot(session, group);
        // Not the account but the key's own name: shares of two sessions have nothing in common.
        let slot = Slot { client: session.client, ..slot };
        let mut nonce = [0; 16];
        nonce.copy_from_slice(&session.token[..16]);
        self.key.answer_masks(&slot, &nonce, batch.into())
    }

    fn begin_batch(&self, session: &Session, prepare: &Prepare) -> Result<Place, Refusal> {
        let found = session.adapter.group(prepare.layer, prepare.input);
        let place = Place { group: found.ok_or(Refusal::NotOffered)?, batch: prepare.batch };
        session.sequence(place.group).begin(prepare.batch)?;
        Ok(place)
    }

    fn room_for_sums(&self) -> Option<OwnedSemaphorePermit> {
        self.room.clone().try_acquire_owned().ok()
    }

    async fn turn_to_prepare(&self) -> Option<OwnedSemaphorePermit> {
        self.turns.clone().acquire_owned().await.ok()
    }

    fn sums(&self, session: &Session, place: Place) -> Sums {
        let shares = self.shares(session, place.group, place.batch);
        let key = session.public_key.clone();
        Sums::new(&self.context, &session.adapter, place.group, key, shares)
    }

    async fn direct(
        &self,
        session: &Arc<Session>,
        direct: &Direct<'_>,
    ) -> Result<(Vec<u8>, Option<u64>), Refusal> {
        let found = session.adapter.group(direct.layer, direct.input);
        let group = found.ok_or(Refusal::NotOffered)?;
        direct::answer(self, session, group, direct).await
    }

    fn end_session(&self, session: &Arc<Session>) {
        self.sessions.forget(session);
        self.write_tally(session);
        self.audit.write("goodbye", subject(session), Map::new());
    }
}

/// What is written down.
impl AdapterHost {
    fn refused_at_the_door(&self, error: &ProtocolError) {
        let refusal = match error {
            ProtocolError::Refused(refusal) => *refusal,
            ProtocolError::Deadline { .. } => Refusal::Deadline,
            ProtocolError::Io(_) | ProtocolError::Ended { .. } => return,
            _ => Refusal::Malformed,
        };
        if self.at_the_door.refused(refusal) {
            self.audit.write("refused", Subject::default(), refused(refusal));
        }
    }

    fn note_refusal(&self, session: &Session, refusal: Refusal) {
        if session.tally.refused(refusal) {
            self.audit.write("refused", subject(session), refused(refusal));
        }
    }

    fn note_end(&self, session: &Session, error: &ProtocolError) {
        match error {
            ProtocolError::Refused(refusal) => self.note_refusal(session, *refusal),
            ProtocolError::Io(_) | ProtocolError::Ended { .. } => {
                self.audit.write("lost", subject(session), Map::new());
            }
            ProtocolError::Deadline { .. } => self.note_refusal(session, Refusal::Deadline),
            _ => self.note_refusal(session, Refusal::Malformed),
        }
    }

    fn note_prepared(&self, session: &Session, place: Place) {
        let terms = &session.adapter.groups()[place.group].weights.terms;
        let mut fields = Map::new();
        let input = format!("{}/{}", terms.layer, input_name(terms.input));
        fields.insert("input".into(), input.into());
        fields.insert("batch".into(), place.batch.into());
        fields.insert("vectors".into(), self.context.n().into());
        self.audit.write("prepared", subject(session), fields);
    }

    fn write_tally(&self, session: &Session) {
        if let Some(fields) = session.tally.take() {
            self.audit.write("counted", subject(session), fields);
        }
    }
}

fn lets_learn(adapter: &Hosted, allowance: Allowance) -> bool {
    adapter.groups().iter().any(|group| allowance.lets_learn(group.columns()))
}

fn subject(session: &Session) -> Subject<'_> {
    Subject {
        client: Some(&session.client),
        account: Some(&session.account.name),
        adapter: Some(&session.adapter.name),
    }
}

fn refused(refusal: Refusal) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("refusal".into(), refusal.name().into());
    fields
}

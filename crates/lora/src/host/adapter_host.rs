//! The state of a host that all connections share: adapters, sessions, budgets and the audit log.

use std::{
    collections::BTreeMap,
    num::NonZero,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use confide_rlwe::{Context, ParameterSet, PublicKey, Rng};
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{
    accounts::ClientList,
    adapter::HostedAdapter,
    audit::{AuditLog, AuditSubject},
    error::HostError,
    group::{ProjectionGroup, SchemeContexts},
    ledger::AnswerLedger,
    online::OnlineJob,
    peers::{HostLimits, PeerPrefix, PreparationPermit, RunningPreparations},
    sequences::CounterSequences,
    sessions::{HostSession, HostSessions, SessionActivity, SessionConnection},
    tally::{AuditTally, input_name},
};
use crate::{
    adapter::Adapter,
    budget::{AnswerAllowance, BudgetState},
    direct,
    guarantee::Guarantee,
    mask::{CounterSlot, ProcessKey},
    protocol::{
        Attach, Hello, MaskedRequest, ProtocolError, Refusal, Scheme, VERSION, Welcome,
        packed_bytes, unpack,
    },
    terms::ProtectedMatrices,
};

/// The name of the default parameter set, which both schemes can use.
pub const PARAMETERS_DEFAULT: &str = "rlwe-4096-q100-flood40";

/// The greatest number of adapters of one host.
const ADAPTERS_MAX: usize = 64;

/// The least security level in bits at which the host counts as blind (HomomorphicEncryption.org
/// tables, quantum row).
pub(crate) const SECURITY_BITS_MIN: u32 = 128;

/// Configuration of an adapter host.
#[derive(Debug)]
pub struct HostOptions {
    /// The parameter set of the encryption: ring, moduli, flooding.
    pub parameters: ParameterSet,
    /// The matrices that stay at the host: A, or the product of B and A.
    pub protect: ProtectedMatrices,
    /// The number of answers for each account, A and input.
    pub allowance: AnswerAllowance,
    /// The standard deviation of the noise on each answer, in units of its integers; 0 adds no noise.
    pub noise_sigma: f64,
    /// The greatest rank of an adapter that is loaded.
    pub rank_max: usize,
    /// The clients that are served. With an empty list, every client is served, on one account.
    pub clients: ClientList,
    /// The file that preserves the counts of answers across restarts; without one they are lost.
    pub budget_file: Option<PathBuf>,
    /// Whether every peer of [`AdapterHost::serve`] is attested, which the guarantee depends on.
    pub attested_only: bool,
    /// The limits of concurrent sessions and preparations, in all and for one peer.
    pub limits: HostLimits,
}

/// Facts about a key holder that the channel has established.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelPeer {
    /// Whether the policy for clients accepted its evidence.
    pub attested: bool,
    /// Whether the evidence of either side is simulated.
    pub simulated: bool,
    /// The network from which it connects; `None` if there is no address, as on a pipe.
    pub prefix: Option<PeerPrefix>,
}

/// A host of adapters, with the state that the connections of all key holders share.
pub struct AdapterHost {
    options: HostOptions,
    contexts: SchemeContexts,
    key: ProcessKey,
    adapters: Mutex<BTreeMap<String, Arc<HostedAdapter>>>,
    sessions: HostSessions,
    ledger: AnswerLedger,
    audit: AuditLog,
    before_hello: AuditTally,
    preparations: Arc<RunningPreparations>,
    turns: Arc<Semaphore>,
    stopping: watch::Sender<bool>,
    simulated: AtomicBool,
}

impl AdapterHost {
    /// Makes a host without adapters, with a fresh key and epoch.
    ///
    /// # Errors
    /// If the parameter set cannot be used, the random generator fails, or the budget file cannot be
    /// read.
    pub fn new(options: HostOptions, audit: AuditLog) -> Result<Self, HostError> {
        let (direct, direct_entry_max) = direct::derive_parameters(&options.parameters)?;
        let contexts = SchemeContexts {
            masked: Context::new(&options.parameters)?,
            direct: Context::new(&direct)?,
            direct_entry_max,
        };
        let key = ProcessKey::random(&mut Rng::from_os()?);
        let ledger = AnswerLedger::open(options.budget_file.as_deref())?;
        // Preparation uses half of the cores, so that the others can answer tokens.
        let turns = thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2);
        let limits = options.limits;
        Ok(Self {
            options,
            contexts,
            key,
            adapters: Mutex::default(),
            sessions: HostSessions::new(limits),
            preparations: Arc::new(RunningPreparations::new(limits)),
            ledger,
            audit,
            before_hello: AuditTally::default(),
            turns: Arc::new(Semaphore::new(turns)),
            stopping: watch::Sender::new(false),
            simulated: AtomicBool::new(false),
        })
    }

    /// Quantises an adapter and offers it under its name.
    ///
    /// # Errors
    /// If its name cannot be sent, an adapter of the same name is loaded, its rank or shape exceeds a
    /// limit, or a value is not finite.
    pub fn load(&self, adapter: &Adapter) -> Result<(), HostError> {
        let limit = self.options.rank_max;
        if let Some(pair) = adapter.modules.values().find(|pair| pair.rank() > limit) {
            return Err(HostError::RankTooLarge { limit, got: pair.rank() });
        }
        let (protect, sigma) = (self.options.protect, self.options.noise_sigma);
        let epoch = self.key.epoch();
        let hosted = HostedAdapter::new(adapter, &self.contexts, protect, sigma, epoch)?;
        let mut adapters = self.adapters.lock().unwrap_or_else(PoisonError::into_inner);
        if adapters.len() >= ADAPTERS_MAX {
            return Err(HostError::TooManyAdapters { limit: ADAPTERS_MAX });
        }
        if adapters.contains_key(&hosted.name) {
            return Err(HostError::DuplicateName { name: hosted.name });
        }
        adapters.insert(hosted.name.clone(), Arc::new(hosted));
        Ok(())
    }

    /// The guarantee that holds for every key holder that may connect, even the least trusted.
    pub fn guarantee(&self) -> Guarantee {
        let allowance = match self.options.attested_only {
            true => AnswerAllowance::Attested,
            false => self.options.allowance,
        };
        let set = &self.options.parameters;
        Guarantee {
            host_is_blind: set.security_bits() >= SECURITY_BITS_MIN,
            adapter_stays: set.flood_bits() > 0,
            b_is_handed_over: self.options.protect == ProtectedMatrices::A,
            adapter_can_be_learned: allowance.permits_extraction(),
            simulated: self.simulated.load(Ordering::Relaxed),
        }
    }

    /// Sets whether the evidence that the channel presents for this host is simulated.
    pub fn set_simulated(&self, simulated: bool) {
        self.simulated.store(simulated, Ordering::Relaxed);
    }

    /// The epoch of this process. Masks that were prepared in another one are useless.
    pub fn epoch(&self) -> [u8; 16] {
        self.key.epoch().0
    }

    /// The file that preserves the counts of answers across restarts.
    pub fn budget_file(&self) -> Option<&Path> {
        self.options.budget_file.as_deref()
    }

    /// The number of sessions that are open.
    pub fn session_count(&self) -> usize {
        self.sessions.count()
    }

    /// Describes the adapters and their terms without any values, for a ready line or a digest.
    pub fn describe_adapters(&self) -> Value {
        let adapters = self.loaded_adapters().into_iter().map(|adapter| {
            let widths = adapter.groups().iter().map(ProjectionGroup::columns);
            let limits = widths.map(|width| self.options.allowance.limit(width));
            json!({
                "name": adapter.name,
                "inputs": adapter.groups().len(),
                "rows": adapter.groups().iter().map(ProjectionGroup::rows).sum::<usize>(),
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

    /// The lines of the audit log, if it is kept in memory.
    pub fn audit_lines(&self) -> Vec<String> {
        self.audit.lines()
    }

    /// Removes expired sessions, and writes the counts to the audit log.
    pub fn expire_sessions(&self) {
        for session in self.sessions.expire_sessions() {
            self.note_session_end(&session, "expired");
        }
        for session in self.sessions.list() {
            self.write_counts(&session, session.tally.take_counts());
        }
        if let Some(fields) = self.before_hello.take_counts() {
            self.write_audit_line("counted", AuditSubject::default(), fields);
        }
    }

    /// Ends every connection after its current request.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Writes the last counts to the audit log and the budget file. Call it at the end of the program.
    pub fn write_final_counts(&self) {
        self.expire_sessions();
        let counts = self
            .loaded_adapters()
            .iter()
            .map(|adapter| adapter.queue.round_and_job_counts())
            .fold((0, 0), |(rounds, requests), (more_rounds, more)| {
                (rounds + more_rounds, requests + more)
            });
        let mut fields = Map::new();
        fields.insert("requests".into(), counts.1.into());
        fields.insert("rounds_of_products".into(), counts.0.into());
        self.write_audit_line("stopped", AuditSubject::default(), fields);
        if let Err(error) = self.ledger.write_exact_counts() {
            tracing::warn!(%error, "the exact counts cannot be written to the budget file");
        }
    }

    fn loaded_adapters(&self) -> Vec<Arc<HostedAdapter>> {
        let adapters = self.adapters.lock().unwrap_or_else(PoisonError::into_inner);
        adapters.values().cloned().collect()
    }
}

/// Methods for the connections of the host.
impl AdapterHost {
    pub(super) fn stop_signal(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    pub(super) fn open_session(
        &self,
        hello: &Hello<'_>,
        peer: ChannelPeer,
    ) -> Result<(SessionConnection, Welcome), Refusal> {
        let account = self.options.clients.account(hello.credential, peer.attested)?;
        let adapter = {
            let adapters = self.adapters.lock().unwrap_or_else(PoisonError::into_inner);
            adapters.get(hello.adapter).cloned().ok_or(Refusal::UnknownAdapter)?
        };
        let protect = self.options.protect;
        if hello.parameters != self.options.parameters.name()
            || hello.protect.is_some_and(|wanted| wanted != protect)
            || !adapter.offers_scheme(hello.scheme)
        {
            return Err(Refusal::NotOffered);
        }
        let context = self.contexts.for_scheme(hello.scheme).clone();
        let public_key =
            PublicKey::from_bytes(&context, hello.public_key).map_err(|_| Refusal::Malformed)?;
        let allowance =
            if peer.attested { AnswerAllowance::Attested } else { self.options.allowance };
        let mut rng = Rng::from_os().map_err(|_| Refusal::Internal)?;
        let mut token = [0; 32];
        rng.fill_bytes(&mut token);
        let sequences = match hello.scheme {
            Scheme::Masked => self.new_counter_sequences(&adapter, hello.client, &mut rng),
            Scheme::Direct => CounterSequences::default(),
        };
        let welcome = Welcome {
            version: VERSION,
            epoch: self.epoch(),
            token,
            simulated: peer.simulated,
            trusted: peer.attested,
            can_be_learned: allowance.permits_extraction(),
            protect,
            groups: adapter.groups().len() as u16,
        };
        let (seat, evicted) = self.sessions.open(HostSession {
            client: hello.client,
            token,
            sequences,
            context,
            adapter,
            account,
            allowance,
            scheme: hello.scheme,
            public_key: Arc::new(public_key),
            tally: AuditTally::default(),
            peer: peer.prefix,
            ended: watch::Sender::new(false),
            life: SessionActivity::with_one_connection(),
        })?;
        if let Some(session) = evicted {
            self.note_session_end(&session, "evicted");
        }
        let mut fields = Map::new();
        fields.insert("scheme".into(), hello.scheme.name().into());
        fields.insert("attested".into(), peer.attested.into());
        fields.insert("simulated".into(), peer.simulated.into());
        self.write_audit_line("hello", audit_subject(&seat.0), fields);
        Ok((seat, welcome))
    }

    pub(super) fn attach(&self, attach: &Attach) -> Result<(SessionConnection, u16), Refusal> {
        self.sessions.attach(attach, self.key.epoch())
    }

    pub(super) fn budget_state(&self, session: &HostSession, group: usize) -> BudgetState {
        let (slot, width) = self.budget_slot(session, group);
        self.ledger.budget_state(&slot, width, session.allowance)
    }

    pub(super) async fn answer_masked_request(
        &self,
        session: &Arc<HostSession>,
        apply: &MaskedRequest<'_>,
    ) -> Result<(Vec<u8>, Option<u64>), Refusal> {
        let adapter = &session.adapter;
        let group = adapter.group_index(apply.layer, apply.input).ok_or(Refusal::NotOffered)?;
        if session.scheme != Scheme::Masked {
            return Err(Refusal::NotOffered);
        }
        let vectors = unpack_vectors(adapter, group, apply)?;
        // Answers are counted first, even if the masked scheme then refuses the request.
        let state = self.count_answers(session, group, apply.vectors.into()).await?;
        let job = OnlineJob {
            sequences: session.sequences.clone(),
            group,
            counter: apply.counter,
            vectors,
        };
        let packed = adapter.queue.run_job(job).await.unwrap_or(Err(Refusal::Internal))?;
        session.tally.count_answers(apply.layer, apply.input, apply.vectors.into())?;
        Ok((packed, state.left))
    }

    /// Counts answers before they are sent, also on disk if there is a budget file. A request that
    /// exceeds the budget is refused and not counted.
    pub(super) async fn count_answers(
        &self,
        session: &HostSession,
        group: usize,
        vectors: u64,
    ) -> Result<BudgetState, Refusal> {
        session.record_use();
        let (slot, width) = self.budget_slot(session, group);
        let (state, unwritten) =
            self.ledger.count_in_memory(slot, width, session.allowance, vectors)?;
        if let Some(unwritten) = unwritten {
            let writing = tokio::task::spawn_blocking(|| unwritten.write());
            writing.await.map_err(|_| Refusal::Internal)?.map_err(|error| {
                tracing::error!(%error, "the budget file cannot be written: requests are refused");
                Refusal::Internal
            })?;
        }
        Ok(state)
    }

    pub(super) fn budget_slot(&self, session: &HostSession, group: usize) -> (CounterSlot, usize) {
        let group = &session.adapter.groups()[group];
        let (client, adapter) = (session.account.id, group.weights);
        (CounterSlot { client, adapter, layer: group.layer, input: group.input }, group.columns())
    }

    /// Makes the counters of a new session. Their masks are derived from the key holder's id and not
    /// from the account, so the masks of two sessions are independent.
    pub(super) fn new_counter_sequences(
        &self,
        adapter: &HostedAdapter,
        client: [u8; 32],
        rng: &mut Rng,
    ) -> CounterSequences {
        let groups = adapter.groups().iter();
        let sequences = groups.filter_map(|group| {
            let (layer, input) = (group.layer, group.input);
            let slot = CounterSlot { client, adapter: adapter.id, layer, input };
            Some(group.masked_weights()?.new_counter_sequence(&self.key, slot, rng))
        });
        CounterSequences::new(sequences)
    }

    pub(super) fn process_key(&self) -> &ProcessKey {
        &self.key
    }

    pub(super) fn begin_preparation(&self, session: &HostSession) -> Option<PreparationPermit> {
        session.record_use();
        self.preparations.acquire_permit(session.peer)
    }

    pub(super) async fn acquire_compute_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.turns.clone().acquire_owned().await.ok()
    }

    pub(super) fn end_session(&self, session: &HostSession) {
        if self.sessions.remove(session) {
            self.note_session_end(session, "goodbye");
        }
    }
}

/// Methods that write the audit log.
impl AdapterHost {
    pub(super) fn note_refusal_before_hello(&self, error: &ProtocolError) {
        let refusal = match error {
            ProtocolError::Refused(refusal) => *refusal,
            ProtocolError::Deadline { .. } => Refusal::Deadline,
            ProtocolError::Io(_) | ProtocolError::StreamEnded { .. } => return,
            _ => Refusal::Malformed,
        };
        if self.before_hello.count_refusal(refusal) {
            self.write_audit_line("refused", AuditSubject::default(), refusal_fields(refusal));
        }
    }

    pub(super) fn note_refusal(&self, session: &HostSession, refusal: Refusal) {
        // Where the session has ended, the line of its end says why.
        if refusal != Refusal::NoSession && session.tally.count_refusal(refusal) {
            self.write_audit_line("refused", audit_subject(session), refusal_fields(refusal));
        }
    }

    pub(super) fn note_connection_error(&self, session: &HostSession, error: &ProtocolError) {
        match error {
            ProtocolError::Refused(refusal) => self.note_refusal(session, *refusal),
            ProtocolError::Io(_) | ProtocolError::StreamEnded { .. } => {
                self.write_audit_line("lost", audit_subject(session), Map::new());
            }
            ProtocolError::Deadline { .. } => self.note_refusal(session, Refusal::Deadline),
            _ => self.note_refusal(session, Refusal::Malformed),
        }
    }

    pub(super) fn note_prepared_batch(&self, session: &HostSession, group: usize, batch: u64) {
        let group = &session.adapter.groups()[group];
        let mut fields = Map::new();
        let input = format!("{}/{}", group.layer, input_name(group.input));
        fields.insert("input".into(), input.into());
        fields.insert("batch".into(), batch.into());
        fields.insert("vectors".into(), session.context.n().into());
        self.write_audit_line("prepared", audit_subject(session), fields);
    }

    /// Closes the tally of a session that has ended, and writes its last lines.
    fn note_session_end(&self, session: &HostSession, event: &str) {
        self.write_counts(session, session.tally.close());
        self.write_audit_line(event, audit_subject(session), Map::new());
    }

    fn write_audit_line(&self, event: &str, subject: AuditSubject<'_>, fields: Map<String, Value>) {
        if let Err(error) = self.audit.write(event, subject, fields) {
            tracing::error!(%error, "the audit log cannot be written");
        }
    }

    fn write_counts(&self, session: &HostSession, counts: Option<Map<String, Value>>) {
        if let Some(fields) = counts {
            self.write_audit_line("counted", audit_subject(session), fields);
        }
    }
}

fn unpack_vectors(
    adapter: &HostedAdapter,
    group: usize,
    apply: &MaskedRequest<'_>,
) -> Result<Vec<u64>, Refusal> {
    let input = adapter.groups()[group].masked_weights().ok_or(Refusal::NotOffered)?;
    let (columns, bits) = (input.terms().columns, input.terms().bits);
    let (bytes, count) = (packed_bytes(columns, bits), usize::from(apply.vectors));
    if apply.packed.len() != bytes * count {
        return Err(Refusal::Malformed);
    }
    let mut vectors = Vec::with_capacity(columns * count);
    for packed in apply.packed.chunks_exact(bytes) {
        vectors.extend(unpack(packed, bits, columns).ok_or(Refusal::Malformed)?);
    }
    Ok(vectors)
}

fn audit_subject(session: &HostSession) -> AuditSubject<'_> {
    AuditSubject {
        client: Some(&session.client),
        account: Some(&session.account.name),
        adapter: Some(&session.adapter.name),
    }
}

fn refusal_fields(refusal: Refusal) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("refusal".into(), refusal.name().into());
    fields
}

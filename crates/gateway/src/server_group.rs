//! The model servers of one group: which of them takes the next request, and which requests wait.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use confide_encrypted_body::{BodyKeyId, BodyPublicKey};
use confide_evidence::weights_claim::MeasuredWeights;
use confide_http::{LeastBusyChoice, Peer, QueueError, ServerLoad};
use http::uri::PathAndQuery;
use tokio::{sync::oneshot, task::JoinSet, time::Instant};

use crate::{
    choice_error::ChoiceError,
    configuration::GatewayConfiguration,
    error::GatewayError,
    fault::{UpstreamFailure, UpstreamFault},
    health::ServerHealth,
    key_directory::KeyDirectory,
    limits::GatewayLimits,
    manifest::{AttestedModelWatch, ModelChange},
    pool::UpstreamPool,
    receipt_draft::AnsweringServer,
    request_model::RequestModel,
    route::Route,
    server::{ModelServer, SERVERS_MAX},
    weights_watch::WeightsWatch,
};

/// The interval between two sweeps of idle connections and of requests that wait, which is short
/// compared with the time that a connection is kept or a server is avoided.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Servers of one group, by their indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerSet(u64);

impl ServerSet {
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn of_one(index: usize) -> Self {
        Self(1 << index)
    }

    fn intersect(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    pub(crate) fn remove(&mut self, index: usize) {
        self.0 &= !(1 << index);
    }

    fn indices(self) -> impl Iterator<Item = usize> + Clone {
        (0..SERVERS_MAX).filter(move |index| self.0 >> index & 1 == 1)
    }
}

/// A group of model servers, to which routes lead.
pub(crate) struct ServerGroup {
    name: String,
    servers: Vec<GroupServer>,
    lists_models: bool,
    has_bounds: bool,
    salts_caches: bool,
    /// The keys of the servers, if a route selects one of them by key.
    keys: Option<KeyDirectory>,
    limits: GatewayLimits,
    choice: Mutex<ChoiceState>,
}

/// The target of a request, and the group of model servers to which its route leads.
#[derive(Clone, Copy)]
pub(crate) struct Destination<'a> {
    pub(crate) target: &'a PathAndQuery,
    pub(crate) group: &'a Arc<ServerGroup>,
    /// The only server that may take the request, if the route selects it by key.
    pub(crate) holder: Option<ServerSet>,
}

impl Destination<'_> {
    /// The servers that may take the request, which is for `model`.
    pub(crate) fn find_candidates(&self, model: &RequestModel) -> ServerSet {
        let candidates = self.group.find_candidates(model);
        self.holder.map_or(candidates, |holder| candidates.intersect(holder))
    }
}

/// A model server of a group.
pub(crate) struct GroupServer {
    pool: Arc<UpstreamPool>,
    weights: Option<MeasuredWeights>,
    models: Vec<String>,
    weight: u32,
    /// The largest number of running requests; 0 for no limit.
    requests_max: u32,
    health_path: PathAndQuery,
    health: ServerHealth,
    /// The number of running requests. It changes under the lock of the group's state if the group
    /// has a choice or a queue.
    running: AtomicU32,
}

#[derive(Default)]
struct ChoiceState {
    least_busy: LeastBusyChoice,
    /// The requests that wait, the oldest first.
    waiting: VecDeque<WaitingRequest>,
}

struct WaitingRequest {
    candidates: ServerSet,
    peer: Peer,
    /// It is closed when the request leaves.
    admission: oneshot::Sender<ServerPermit>,
}

impl ServerGroup {
    /// The groups of a configuration's servers, in the order of their first servers.
    ///
    /// # Errors
    /// [`GatewayError::Server`] for a server whose health path is malformed.
    pub(crate) fn from_configuration(
        configuration: &GatewayConfiguration,
        change: &Arc<ModelChange>,
        limits: GatewayLimits,
    ) -> Result<Vec<Arc<Self>>, GatewayError> {
        let mut groups: Vec<Self> = Vec::new();
        for server in &configuration.servers {
            let index = groups.iter().position(|group| group.name == server.group);
            let index = index.unwrap_or_else(|| {
                let mut group = Self::new(server.group.clone(), limits);
                let leads_here = |route: &Route| route.by_key_id && route.group == group.name;
                group.keys = configuration.routes.iter().any(leads_here).then(KeyDirectory::new);
                groups.push(group);
                groups.len() - 1
            });
            groups[index].add_server(server, change)?;
        }
        Ok(groups.into_iter().map(Arc::new).collect())
    }

    fn new(name: String, limits: GatewayLimits) -> Self {
        Self {
            name,
            servers: Vec::new(),
            lists_models: false,
            has_bounds: false,
            salts_caches: false,
            keys: None,
            limits,
            choice: Mutex::default(),
        }
    }

    fn add_server(
        &mut self,
        server: &ModelServer,
        change: &Arc<ModelChange>,
    ) -> Result<(), GatewayError> {
        let watch = AttestedModelWatch::new(server.model_manifest_sha256, change.clone());
        let weights = server.weights.clone().zip(server.listening_address());
        let weights = weights.map(|(weights, address)| {
            Arc::new(WeightsWatch::new(weights, address, change.clone()))
        });
        let pool = UpstreamPool::new(server.upstream.clone(), watch, weights, self.limits);
        self.lists_models |= !server.models.is_empty();
        self.has_bounds |= server.requests_max > 0;
        self.salts_caches |= server.cache_salt;
        self.servers.push(GroupServer {
            pool: Arc::new(pool),
            weights: server.measured_weights(),
            models: server.models.clone(),
            weight: server.weight.max(1),
            requests_max: server.requests_max,
            health_path: server.parse_health_path()?,
            health: ServerHealth::new(),
            running: AtomicU32::new(0),
        });
        Ok(())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn servers(&self) -> &[GroupServer] {
        &self.servers
    }

    /// Whether the choice of a server depends on the model of the request.
    pub(crate) fn lists_models(&self) -> bool {
        self.lists_models
    }

    /// Whether requests get a salt for the prefix cache.
    pub(crate) fn salts_caches(&self) -> bool {
        self.salts_caches
    }

    /// Whether a body is read whole before the request is sent: to find the model, or because a
    /// slow sender must not occupy one of a limited number of running requests.
    pub(crate) fn reads_bodies(&self) -> bool {
        self.lists_models || self.has_bounds
    }

    /// The models of all servers, sorted, if every server lists its models.
    pub(crate) fn complete_model_list(&self) -> Option<Vec<&str>> {
        if self.servers.iter().any(|server| server.models.is_empty()) {
            return None;
        }
        let mut models: Vec<&str> =
            self.servers.iter().flat_map(|server| &server.models).map(String::as_str).collect();
        models.sort_unstable();
        models.dedup();
        Some(models)
    }

    /// The servers that may take a request for `model`: those that list it and those that list
    /// none.
    pub(crate) fn find_candidates(&self, model: &RequestModel) -> ServerSet {
        self.select(|server| match model {
            _ if server.models.is_empty() => true,
            RequestModel::Named(name) => server.models.contains(name),
            RequestModel::Absent => false,
        })
    }

    /// Admits a request to one of the candidates, of which there has to be at least one. Waits in
    /// the queue while all are busy; dropping the future leaves the queue. `began` is the time at
    /// which the request of `peer` first asked for a server: all its waits have one deadline.
    ///
    /// # Errors
    /// [`ChoiceError::Queue`] or [`ChoiceError::QueueShareFull`] if too many requests wait, or too
    /// many of `peer`, or this one has waited for too long.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        candidates: ServerSet,
        peer: Peer,
        began: Instant,
    ) -> Result<ServerPermit, ChoiceError> {
        let GatewayLimits { queued_requests, queued_requests_per_peer, queue_wait, .. } =
            self.limits;
        if !self.has_choice() {
            self.servers[0].running.fetch_add(1, Ordering::Relaxed);
            return Ok(ServerPermit { group: self.clone(), index: 0 });
        }
        let admitted = {
            let mut state = self.lock();
            if let Some(index) = self.admit(&mut state, candidates) {
                return Ok(ServerPermit { group: self.clone(), index });
            }
            state.forget_departed();
            if state.waiting.len() >= queued_requests {
                return Err(QueueError::Full { queued: queued_requests }.into());
            }
            let of_peer = state.waiting.iter().filter(|request| request.peer == peer).count();
            if of_peer >= queued_requests_per_peer {
                return Err(ChoiceError::QueueShareFull { queued: queued_requests_per_peer });
            }
            let (admission, admitted) = oneshot::channel();
            state.waiting.push_back(WaitingRequest { candidates, peer, admission });
            admitted
        };
        match tokio::time::timeout_at(began + queue_wait, admitted).await {
            Ok(Ok(permit)) => Ok(permit),
            // The queue drops no sender before it is used, so only the timeout ends a wait.
            Ok(Err(_)) | Err(_) => Err(QueueError::TimedOut { waited: queue_wait }.into()),
        }
    }

    /// The number of requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        let mut state = self.lock();
        state.forget_departed();
        state.waiting.len()
    }

    /// Whether any model of a server is in the configuration.
    pub(crate) fn expects_model(&self) -> bool {
        self.servers.iter().any(|server| server.pool.expects_model())
    }

    /// Keeps a server's idle connections, its health and its model in order. A server that answers
    /// one check late delays nothing else.
    pub(crate) async fn maintain_server(self: &Arc<Self>, index: usize) -> Infallible {
        let server = &self.servers[index];
        tokio::select! {
            never = self.sweep(server) => never,
            never = self.check_health_at_intervals(server) => never,
            never = self.check_model_at_intervals(server) => never,
            never = self.check_weights_at_intervals(server) => never,
            never = self.check_keys_at_intervals(index) => never,
        }
    }

    /// Asks a server for its keys at intervals, if a route selects the server by key.
    async fn check_keys_at_intervals(&self, index: usize) -> Infallible {
        if self.keys.is_none() {
            return std::future::pending().await;
        }
        loop {
            self.ask_for_keys(index).await;
            tokio::time::sleep(self.limits.health_check).await;
        }
    }

    /// Asks a server for its keys, and remembers them.
    async fn ask_for_keys(&self, index: usize) {
        let Some(directory) = &self.keys else { return };
        let pool = &self.servers[index].pool;
        match pool.fetch_body_keys().await {
            Ok(keys) => {
                if directory.record_keys(index, &keys) {
                    let upstream = pool.upstream().url();
                    tracing::warn!(%upstream, "a server lists a key of another server: ignored");
                }
            }
            Err(UpstreamFailure { reason, .. }) => {
                directory.record_failure(index);
                tracing::debug!(%reason, "a server does not list its keys");
            }
        }
    }

    /// The server that has a key. If it is not known, all servers are asked, which a moment later is
    /// not done again.
    pub(crate) async fn find_key_holder(self: &Arc<Self>, id: BodyKeyId) -> Option<ServerSet> {
        let directory = self.keys.as_ref()?;
        if let Some(index) = directory.find_holder(id) {
            return Some(ServerSet::of_one(index));
        }
        let group = self.clone();
        let ask_all = || async move {
            let mut asking = JoinSet::new();
            for index in 0..group.servers.len() {
                let group = group.clone();
                asking.spawn(async move { group.ask_for_keys(index).await });
            }
            while asking.join_next().await.is_some() {}
        };
        directory.refresh(ask_all).await;
        directory.find_holder(id).map(ServerSet::of_one)
    }

    /// The preferred key of each server that answers, if a route selects the server by key.
    pub(crate) fn list_keys(&self) -> Vec<BodyPublicKey> {
        self.keys.as_ref().map(KeyDirectory::list_preferred).unwrap_or_default()
    }

    /// Closes connections that have been idle for too long, and admits requests that wait once a
    /// server is no longer avoided.
    async fn sweep(self: &Arc<Self>, server: &GroupServer) -> Infallible {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            server.pool.close_stale();
            self.admit_waiting(None);
        }
    }

    /// Checks the health of a server, if there are others that could take its requests.
    async fn check_health_at_intervals(self: &Arc<Self>, server: &GroupServer) -> Infallible {
        if self.servers.len() == 1 {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(self.limits.health_check).await;
            server.check_health(&self.limits).await;
            // A server that is healthy again may take requests that wait.
            self.admit_waiting(None);
        }
    }

    /// Asks a server for its model, if the model is in the configuration.
    async fn check_model_at_intervals(&self, server: &GroupServer) -> Infallible {
        loop {
            tokio::time::sleep(self.limits.upstream_check).await;
            if server.pool.watches_model()
                && let Err(UpstreamFailure { reason, .. }) = server.pool.check_model().await
            {
                tracing::debug!(%reason, "upstream does not confirm its model");
            }
        }
    }

    /// Looks at a server's weights, if they were measured.
    async fn check_weights_at_intervals(&self, server: &GroupServer) -> Infallible {
        match server.pool.weights_watch() {
            Some(weights) => weights.check_at_intervals(self.limits.upstream_check).await,
            None => std::future::pending().await,
        }
    }

    /// Whether there are several servers to choose from, or a queue.
    fn has_choice(&self) -> bool {
        self.has_bounds || self.servers.len() > 1
    }

    /// Chooses a server and counts the request as running there.
    fn admit(&self, state: &mut ChoiceState, candidates: ServerSet) -> Option<usize> {
        let index = self.choose(state, candidates)?;
        self.servers[index].running.fetch_add(1, Ordering::Relaxed);
        Some(index)
    }

    /// Chooses among the healthy candidates, or among all if none is healthy, the least busy one;
    /// `None` if all are busy.
    fn choose(&self, state: &mut ChoiceState, candidates: ServerSet) -> Option<usize> {
        let healthy = self.select_from(candidates, |server| server.health.is_healthy());
        let preferred = if healthy.is_empty() { candidates } else { healthy };
        let free = self.select_from(preferred, GroupServer::has_capacity);
        let load = |index: usize| {
            let server = &self.servers[index];
            ServerLoad { index, running: server.running(), weight: server.weight }
        };
        state.least_busy.choose(free.indices().map(load))
    }

    /// Admits the requests that wait, the oldest first, as far as servers are free. If a request
    /// has ended on a server, no newcomer takes its place before those that wait.
    fn admit_waiting(self: &Arc<Self>, ended_on: Option<&GroupServer>) {
        let mut admitted = Vec::new();
        {
            let mut state = self.lock();
            if let Some(server) = ended_on {
                server.running.fetch_sub(1, Ordering::Relaxed);
            }
            state.forget_departed();
            let mut position = 0;
            while let Some(request) = state.waiting.get(position) {
                let candidates = request.candidates;
                let Some(index) = self.admit(&mut state, candidates) else {
                    position += 1;
                    continue;
                };
                admitted.extend(state.waiting.remove(position).map(|request| {
                    (request.admission, ServerPermit { group: self.clone(), index })
                }));
            }
        }
        for (admission, permit) in admitted {
            // If the request has just left, its permit is dropped, which admits the next one.
            drop(admission.send(permit));
        }
    }

    fn release(self: &Arc<Self>, index: usize) {
        let server = &self.servers[index];
        match self.has_choice() {
            true => self.admit_waiting(Some(server)),
            false => drop(server.running.fetch_sub(1, Ordering::Relaxed)),
        }
    }

    fn select(&self, is_selected: impl Fn(&GroupServer) -> bool) -> ServerSet {
        let mut set = ServerSet::default();
        let selected = self.servers.iter().enumerate().filter(|(_, server)| is_selected(server));
        selected.for_each(|(index, _)| set.insert(index));
        set
    }

    fn select_from(&self, set: ServerSet, is_selected: impl Fn(&GroupServer) -> bool) -> ServerSet {
        set.intersect(self.select(is_selected))
    }

    /// Locks the state. A panic elsewhere leaves it valid.
    fn lock(&self) -> MutexGuard<'_, ChoiceState> {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChoiceState {
    /// Removes the requests whose clients have left or that have waited for too long.
    fn forget_departed(&mut self) {
        self.waiting.retain(|request| !request.admission.is_closed());
    }
}

impl GroupServer {
    pub(crate) fn pool(&self) -> &Arc<UpstreamPool> {
        &self.pool
    }

    pub(crate) fn health(&self) -> &ServerHealth {
        &self.health
    }

    pub(crate) fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    pub(crate) fn requests_max(&self) -> u32 {
        self.requests_max
    }

    fn has_capacity(&self) -> bool {
        self.requests_max == 0 || self.running() < self.requests_max
    }

    async fn check_health(&self, limits: &GatewayLimits) {
        let upstream = self.pool.upstream().url();
        match self.pool.check_health(&self.health_path).await {
            Ok(()) => {
                if self.health.record_passed_check() {
                    tracing::warn!(%upstream, "a model server is healthy again");
                }
            }
            Err(UpstreamFailure { fault, reason }) => {
                if fault == UpstreamFault::Unreachable {
                    self.health.record_connect_failure(limits.upstream_retry);
                }
                if self.health.record_failed_check() {
                    tracing::warn!(%upstream, %reason, "a model server is down: it is tried last");
                }
            }
        }
    }
}

/// The permission to run one request on a server, which ends when it is dropped.
pub(crate) struct ServerPermit {
    group: Arc<ServerGroup>,
    index: usize,
}

impl ServerPermit {
    pub(crate) fn pool(&self) -> &Arc<UpstreamPool> {
        &self.group.servers[self.index].pool
    }

    /// The index of the server in its group.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The server as a receipt describes it.
    pub(crate) fn describe_server(&self) -> AnsweringServer {
        let GroupServer { pool, weights, .. } = &self.group.servers[self.index];
        AnsweringServer {
            manifest_sha256: pool.model_manifest(),
            weights: *weights,
            is_local: pool.upstream().is_loopback(),
        }
    }

    /// Remembers that the server took no byte of the request.
    pub(crate) fn record_connect_failure(&self) {
        let health = &self.group.servers[self.index].health;
        health.record_connect_failure(self.group.limits.upstream_retry);
    }
}

impl Drop for ServerPermit {
    fn drop(&mut self) {
        self.group.release(self.index);
    }
}

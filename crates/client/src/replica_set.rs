//! The replicas of one service: each is admitted by itself, and requests are spread over those that
//! are. One that is refused or cannot be reached is left out, and tried again later. Where requests
//! are encrypted, several replicas may be behind one address; each is known by its key.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use confide_appraiser::SharedAppraisal;
use confide_encrypted_body::BodyKeyId;
use confide_http::{LeastBusyChoice, ServerLoad};
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time::Instant,
};

use crate::{
    encrypted_client::{EncryptedAnswerBody, EncryptedClient},
    error::{Blame, ClientError},
    pool::{RequestDeadlines, WebSocketAnswer},
    remote_end::RemoteEnd,
    replica_health::{ReplicaFailure, ReplicaHealth},
    request_body::RequestBody,
    running_request::{RunningCount, RunningRequest},
    shared_key::JudgedKey,
};

/// The largest number of replicas.
pub const REPLICAS_MAX: usize = 16;
/// The longest wait for one replica while another could take the request, or while the program
/// starts and another is admitted.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two looks at the keys that an address lists, and the shortest after a key was
/// replaced.
const LISTING_EVERY: Duration = Duration::from_secs(30);
const LISTING_PAUSE: Duration = Duration::from_secs(1);
/// The longest time for such a list.
const LISTING_DEADLINE: Duration = Duration::from_secs(10);

/// The replicas of one service, among which each request has a choice.
///
/// A request goes to the replica with the fewest running ones of those that are admitted. If nothing
/// of it could be sent there, it goes to the next one, to each at most once.
pub struct ReplicaSet {
    members: Mutex<Members>,
    /// The largest number of replicas of one address, which is its share of [`REPLICAS_MAX`].
    per_url_max: usize,
    /// Tells that a replica is left out, or was discovered.
    left_out: Notify,
    /// Tells that a gateway no longer has the key that is known of it.
    key_replaced: Notify,
}

struct Members {
    /// At most [`REPLICAS_MAX`].
    replicas: Vec<Arc<Replica>>,
    choice: LeastBusyChoice,
}

struct Replica {
    url: String,
    end: RemoteEnd,
    running: RunningCount,
    health: Mutex<ReplicaHealth>,
    /// Whether it was discovered by its key, behind the address of another one.
    is_discovered: bool,
}

/// The replica for a request.
struct Chosen {
    replica: Arc<Replica>,
    running: RunningRequest,
    deadlines: RequestDeadlines,
}

/// The state of one replica.
pub struct ReplicaStatus {
    /// The address.
    pub url: String,
    /// Whether requests go to it.
    pub is_admitted: bool,
    /// The reason why none do; also `None` before it was tried.
    pub failure: Option<ReplicaFailure>,
    /// The time until it is tried again, if it is left out.
    pub retry_in: Option<Duration>,
    /// The number of requests that run on it.
    pub running: u32,
    /// The appraisal of its newest connection, if connections are attested.
    pub appraisal: Option<SharedAppraisal>,
    /// The identifier of its key, if requests are encrypted.
    pub key_id: Option<String>,
    /// The verification document of that key.
    pub key_verification: Option<Value>,
}

impl ReplicaSet {
    /// The replicas with their addresses, of which the first [`REPLICAS_MAX`] are used.
    pub fn new(replicas: impl IntoIterator<Item = (String, RemoteEnd)>) -> Self {
        let replicas = replicas.into_iter().take(REPLICAS_MAX);
        let replicas = replicas.map(|(url, end)| Arc::new(Replica::new(url, end, false)));
        let replicas: Vec<_> = replicas.collect();
        let per_url_max = REPLICAS_MAX / replicas.len().max(1);
        let members = Mutex::new(Members { replicas, choice: LeastBusyChoice::default() });
        let (left_out, key_replaced) = Default::default();
        Self { members, per_url_max, left_out, key_replaced }
    }

    /// A set of one replica, whose address does not show.
    pub fn of_one(end: impl Into<RemoteEnd>) -> Self {
        Self::new([(String::new(), end.into())])
    }

    /// Tries all replicas at once, until each is admitted or not, but not for long once one is. If none is,
    /// those are tried that further keys of the same addresses lead to.
    ///
    /// # Errors
    /// The reason for each replica, if none is admitted.
    pub async fn open(self: &Arc<Self>) -> Result<(), Vec<(String, ClientError)>> {
        let Err(mut failures) = self.admit_any(self.list()).await else { return Ok(()) };
        let mut listings = JoinSet::new();
        for (url, client) in self.list_discoverable() {
            let set = self.clone();
            listings.spawn(async move { set.fetch_listing(&url, &client).await });
        }
        listings.join_all().await;
        let discovered = self.list().into_iter().filter(|replica| replica.is_discovered);
        let admitted = self.admit_any(discovered.collect()).await;
        admitted.map_err(|more| {
            failures.extend(more);
            failures
        })
    }

    /// Tries replicas at once, until each is admitted or not, but not for long once one is.
    ///
    /// # Errors
    /// The reason for each, if none is admitted.
    async fn admit_any(
        self: &Arc<Self>,
        replicas: Vec<Arc<Replica>>,
    ) -> Result<(), Vec<(String, ClientError)>> {
        let (told, mut outcomes) = mpsc::unbounded_channel();
        for replica in replicas {
            replica.lock_health().begin_try(Instant::now());
            let (set, told) = (self.clone(), told.clone());
            // It goes on where this does not wait for it.
            tokio::spawn(async move {
                let failed = set.try_replica(&replica).await.err();
                let _ = told.send((replica.url.clone(), failed));
            });
        }
        drop(told);
        let (mut failures, mut deadline) = (Vec::new(), None);
        loop {
            let outcome = match deadline {
                None => outcomes.recv().await,
                Some(deadline) => {
                    tokio::time::timeout_at(deadline, outcomes.recv()).await.ok().flatten()
                }
            };
            match outcome {
                Some((url, Some(error))) => failures.push((url, error)),
                Some((_, None)) => {
                    deadline.get_or_insert(Instant::now() + PATIENCE);
                }
                None if deadline.is_some() => return Ok(()),
                None => return Err(failures),
            }
        }
    }

    /// Keeps evidence fresh, tries replicas that are left out, and looks for others behind an address where
    /// [`EncryptedClient::with_discovery`] allows it, until it is dropped.
    pub async fn maintain(self: Arc<Self>) -> Infallible {
        let mut tasks = JoinSet::new();
        for replica in self.list() {
            if let RemoteEnd::Attested(client) = &replica.end {
                let client = client.clone();
                tasks.spawn(async move { match client.keep_fresh().await {} });
            }
        }
        for (url, client) in self.list_discoverable() {
            let set = self.clone();
            tasks.spawn(async move { match set.discover_replicas(&url, &client).await {} });
        }
        loop {
            while tasks.try_join_next().is_some() {}
            let now = Instant::now();
            for replica in self.list_retried() {
                if replica.lock_health().begin_try(now) {
                    let set = self.clone();
                    tasks.spawn(async move {
                        // The outcome is remembered and logged.
                        let _ = set.try_replica(&replica).await;
                    });
                }
            }
            let due = |replica: &Arc<Replica>| replica.lock_health().next_try(now);
            let next = self.list_retried().iter().filter_map(due).min();
            tokio::select! {
                () = self.left_out.notified() => {}
                Some(_) = tasks.join_next() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// The state of each replica.
    pub fn describe(&self) -> Vec<ReplicaStatus> {
        let now = Instant::now();
        self.list().iter().map(|replica| replica.describe(now)).collect()
    }

    /// Sends one request to one of the replicas.
    ///
    /// # Errors
    /// Those of [`crate::HttpClient::request`] and of encrypted bodies. If no replica took the
    /// request, the error of one that was refused, or else of the last one that was tried.
    pub(crate) async fn request(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<EncryptedAnswerBody>, ClientError> {
        let mut attempts = Attempts::default();
        loop {
            let Some(chosen) = self.choose(&attempts) else { return Err(attempts.into_error()) };
            let Chosen { replica, running, deadlines } = chosen;
            let is_sealed = replica.end.is_sealed(&request);
            let error = match replica.end.prepare(is_sealed, deadlines, running).await {
                Ok(prepared) => {
                    // An answer may take minutes, in which the replica may be refused.
                    self.record_admission(&replica);
                    let key = prepared.key.clone();
                    match replica.end.send(prepared, request).await {
                        Ok(answer) => return Ok(answer),
                        Err(unanswered) => match unanswered.unsent {
                            Some(unsent) => {
                                request = unsent;
                                unanswered.error
                            }
                            None => {
                                self.record_unanswered(&replica, key.as_ref(), &unanswered.error);
                                return Err(unanswered.error);
                            }
                        },
                    }
                }
                Err(error) => error,
            };
            self.record_attempt(&mut attempts, replica, error)?;
        }
    }

    /// Opens a WebSocket to one of the replicas.
    pub(crate) async fn open_websocket(
        &self,
        request: Request<RequestBody>,
    ) -> Result<WebSocketAnswer, ClientError> {
        let mut attempts = Attempts::default();
        loop {
            let Some(chosen) = self.choose(&attempts) else { return Err(attempts.into_error()) };
            let Chosen { replica, running, deadlines } = chosen;
            match replica.end.prepare_websocket(deadlines, running).await {
                Ok(checked_out) => {
                    self.record_admission(&replica);
                    return replica.end.open_websocket(checked_out, request).await;
                }
                Err(error) => self.record_attempt(&mut attempts, replica, error)?,
            }
        }
    }

    /// Sends one request, whose target is a path, and reads the answer whole, up to `bytes_max` bytes.
    ///
    /// # Errors
    /// Those of a request, and [`ClientError::Answer`] if the answer is longer or breaks off.
    pub async fn fetch(
        &self,
        request: Request<RequestBody>,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, ClientError> {
        let (head, body) = self.request(request).await?.into_parts();
        let body = Limited::new(body, bytes_max).collect().await;
        let body = body.map_err(ClientError::Answer)?.to_bytes();
        Ok(Response::from_parts(head, body))
    }

    /// Chooses the least busy of the admitted replicas that were not tried yet, or of all others if
    /// none of them is admitted. While there is another choice, the request does not wait long for it.
    /// There is none after [`REPLICAS_MAX`] attempts, even if new replicas are discovered meanwhile.
    fn choose(&self, attempts: &Attempts) -> Option<Chosen> {
        if attempts.tried.len() >= REPLICAS_MAX {
            return None;
        }
        let mut members = self.lock_members();
        let Members { replicas, choice } = &mut *members;
        let untried = |replica: &Arc<Replica>| {
            !attempts.tried.iter().any(|tried| Arc::ptr_eq(tried, replica))
        };
        let others: Vec<usize> =
            (0..replicas.len()).filter(|&index| untried(&replicas[index])).collect();
        let is_admitted = |&index: &usize| replicas[index].lock_health().is_admitted();
        let admitted: Vec<usize> = others.iter().copied().filter(is_admitted).collect();
        let preferred = if admitted.is_empty() { &others } else { &admitted };
        let load = |&index: &usize| ServerLoad {
            index,
            running: replicas[index].running.current(),
            weight: 1,
        };
        let replica = replicas[choice.choose(preferred.iter().map(load))?].clone();
        let running = replica.running.begin_request();
        let connect = (preferred.len() > 1).then_some(PATIENCE);
        let deadlines = RequestDeadlines { connect, ..RequestDeadlines::default() };
        Some(Chosen { replica, running, deadlines })
    }

    /// Notes that a replica took no byte of a request, which may go to the next one.
    ///
    /// # Errors
    /// The error, if it is not the replica's.
    fn record_attempt(
        &self,
        attempts: &mut Attempts,
        replica: Arc<Replica>,
        error: ClientError,
    ) -> Result<(), ClientError> {
        let is_of_this_end = matches!(
            error,
            ClientError::Busy { .. }
                | ClientError::QueueFull { .. }
                | ClientError::UnencryptedWebSocket
        );
        if is_of_this_end || error.blame() == Blame::Local {
            return Err(error);
        }
        self.leave_out(&replica, &error);
        attempts.tried.push(replica);
        // That a replica is refused must not be hidden by another one that is only away.
        let is_refusal = |error: &ClientError| error.blame() == Blame::Evidence;
        if is_refusal(&error) || !attempts.error.as_ref().is_some_and(is_refusal) {
            attempts.error = Some(error);
        }
        Ok(())
    }

    /// Notes that a request got no answer and cannot be sent elsewhere. That is so of one that was sealed
    /// to the key of this replica, even if its connection turned out to be closed and no other one could
    /// be opened.
    fn record_unanswered(
        &self,
        replica: &Replica,
        key: Option<&Arc<JudgedKey>>,
        error: &ClientError,
    ) {
        if error.is_connect_failure() {
            self.leave_out(replica, error);
        } else if let Some(key) = key {
            self.note_lost_key(replica, key, error);
        }
    }

    /// Leaves a replica out to which no connection could be opened, or that was refused.
    fn leave_out(&self, replica: &Replica, error: &ClientError) {
        let is_slow = matches!(
            error,
            ClientError::DialTimeout { .. } | ClientError::ReportUnavailable { .. }
        );
        match is_slow && replica.lock_health().is_admitted() {
            // It may only be busy: the next try, which has more time, shows that.
            true => self.forget_admission(replica),
            false => self.record_failure(replica, error),
        }
    }

    /// Leaves a replica out until its report is judged anew, if it no longer has the key of a request, or
    /// cannot be reached while there is another replica. Anybody in between can say so, which costs one
    /// more report for each key.
    fn note_lost_key(&self, replica: &Replica, used: &Arc<JudgedKey>, error: &ClientError) {
        let is_lost = match error {
            ClientError::KeyReplaced => true,
            ClientError::Unencrypted { status } => status.is_server_error() && self.has_choice(),
            _ => false,
        };
        // Other requests with the same key may fail later than the new one is judged.
        if is_lost && replica.end.forget_key(used) {
            self.forget_admission(replica);
            self.key_replaced.notify_waiters();
        }
    }

    /// Has a replica admitted anew in the background, before requests go to it again.
    fn forget_admission(&self, replica: &Replica) {
        replica.lock_health().forget_admission();
        self.left_out.notify_one();
    }

    /// Discovers further gateways behind an address, at intervals and after a key was replaced, until it
    /// is dropped.
    async fn discover_replicas(&self, url: &str, client: &EncryptedClient) -> Infallible {
        self.repeat_listing(|| self.fetch_listing(url, client)).await
    }

    async fn repeat_listing<F: Future<Output = ()>>(&self, fetch: impl Fn() -> F) -> Infallible {
        loop {
            // A key may be replaced while the list is fetched, which then does not have the new one.
            let replaced = self.key_replaced.notified();
            fetch().await;
            let _ = tokio::time::timeout(LISTING_EVERY, replaced).await;
            tokio::time::sleep(LISTING_PAUSE).await;
        }
    }

    /// Requests the keys that an address lists, and adds and forgets replicas by them.
    async fn fetch_listing(&self, url: &str, client: &EncryptedClient) {
        let listed = tokio::time::timeout(LISTING_DEADLINE, client.list_key_ids()).await;
        let ids = match listed {
            Ok(Ok(ids)) => ids,
            Ok(Err(error)) => {
                tracing::debug!(url, error = error.reason(), "no list of keys");
                Vec::new()
            }
            Err(_) => {
                tracing::debug!(url, "no list of keys in time");
                Vec::new()
            }
        };
        self.record_listing(url, client, &ids);
    }

    /// Adds a replica for each listed key of an address that is not known yet, up to the share of that
    /// address, and forgets those that were discovered there earlier and are neither listed nor admitted.
    fn record_listing(&self, url: &str, client: &EncryptedClient, ids: &[BodyKeyId]) {
        // A gateway may have a new key, which was listed before its replica knew it.
        self.remove_duplicates();
        let replicas = &mut self.lock_members().replicas;
        replicas.retain(|replica| {
            let is_listed = || replica.end.key_id().is_some_and(|id| ids.contains(&id));
            let is_kept = || is_listed() || replica.lock_health().is_admitted();
            !replica.is_discovered || replica.url != url || is_kept()
        });
        for id in ids {
            let known = replicas.iter().filter(|replica| replica.url == url);
            let known: Vec<_> = known.map(|replica| replica.end.key_id()).collect();
            if known.len() < self.per_url_max && !known.contains(&Some(*id)) {
                let end = RemoteEnd::Encrypted(Arc::new(client.for_key(*id)));
                replicas.push(Arc::new(Replica::new(url.to_owned(), end, true)));
                self.left_out.notify_one();
            }
        }
    }

    /// Forgets discovered replicas that turned out to have a key that another one of the same address
    /// has: a proxy that knows no keys passes the request for a report on to any of them. What one
    /// address leads to says nothing of another address.
    fn remove_duplicates(&self) {
        let replicas = &mut self.lock_members().replicas;
        let mut known = Vec::new();
        replicas.retain(|replica| {
            let judged = replica.end.latest_key();
            let judged = judged.map(|judged| (replica.url.clone(), judged.key.key_id()));
            let is_duplicate = judged.as_ref().is_some_and(|judged| known.contains(judged));
            known.extend(judged);
            !(is_duplicate && replica.is_discovered)
        });
    }

    /// Tries to admit one replica, and remembers the outcome.
    async fn try_replica(&self, replica: &Arc<Replica>) -> Result<(), ClientError> {
        let admitted = replica.end.admit().await;
        replica.lock_health().end_try();
        match &admitted {
            Ok(()) => {
                self.record_admission(replica);
                self.remove_duplicates();
            }
            Err(error) => self.record_failure(replica, error),
        }
        admitted
    }

    fn record_admission(&self, replica: &Replica) {
        if replica.lock_health().record_admission() && self.has_choice() {
            tracing::warn!(replica = replica.name(), "a replica is admitted again");
        }
    }

    fn record_failure(&self, replica: &Replica, error: &ClientError) {
        let news = replica.lock_health().record_failure(error, Instant::now());
        self.left_out.notify_one();
        let Some(ReplicaFailure { is_refused, check, reason }) = news else { return };
        if !self.has_choice() {
            return;
        }
        match is_refused {
            true => tracing::error!(
                replica = replica.name(),
                check = check.unwrap_or_default(),
                reason,
                "a replica does not satisfy the policy: it is left out, and nothing is sent to it"
            ),
            false => tracing::warn!(replica = replica.name(), reason, "a replica is left out"),
        }
    }

    fn has_choice(&self) -> bool {
        self.lock_members().replicas.len() > 1
    }

    fn list(&self) -> Vec<Arc<Replica>> {
        self.lock_members().replicas.clone()
    }

    /// The replicas that are tried in the background: none if there is only one, which every request
    /// tries.
    fn list_retried(&self) -> Vec<Arc<Replica>> {
        let replicas = self.list();
        if replicas.len() > 1 { replicas } else { Vec::new() }
    }

    /// The addresses behind which further gateways may be discovered, each with its client.
    fn list_discoverable(&self) -> Vec<(String, Arc<EncryptedClient>)> {
        let discoverable = |replica: &Arc<Replica>| match &replica.end {
            RemoteEnd::Encrypted(client) if client.is_discovery_allowed() => {
                Some((replica.url.clone(), client.clone()))
            }
            _ => None,
        };
        self.list().iter().filter_map(discoverable).collect()
    }

    fn lock_members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Replica {
    fn new(url: String, end: RemoteEnd, is_discovered: bool) -> Self {
        Self { url, end, running: RunningCount::default(), health: Mutex::default(), is_discovered }
    }

    fn describe(&self, now: Instant) -> ReplicaStatus {
        let health = self.lock_health();
        let failure = health.failure().cloned();
        let next = health.next_try(now).filter(|_| failure.is_some());
        ReplicaStatus {
            url: self.url.clone(),
            is_admitted: health.is_admitted(),
            failure,
            retry_in: next.map(|next| next.saturating_duration_since(now)),
            running: self.running.current(),
            appraisal: self.end.latest_appraisal(),
            key_id: self.end.key_id().map(|id| id.to_string()),
            key_verification: self.end.latest_key().map(|judged| judged.verification),
        }
    }

    /// Its address, with the identifier of its key if it has one.
    fn name(&self) -> String {
        match self.end.key_id() {
            Some(id) => format!("{} ({id})", self.url),
            None => self.url.clone(),
        }
    }

    fn lock_health(&self) -> MutexGuard<'_, ReplicaHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The replicas that took no byte of a request, and why.
#[derive(Default)]
struct Attempts {
    tried: Vec<Arc<Replica>>,
    error: Option<ClientError>,
}

impl Attempts {
    fn into_error(self) -> ClientError {
        self.error.unwrap_or(ClientError::NoReplica)
    }
}

/// Sleeps until then, or for ever.
async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use confide_encrypted_body::{BodyKem, RecipientKey};

    use super::*;
    use crate::{
        connector::Connector, encrypted_client::EncryptedForm, endpoint::Endpoint,
        gateway_report::ReportJudge, limits::ClientLimits, pool::HttpClient,
    };

    const GIVEN: [&str; 2] = ["https://one", "https://two"];

    /// A client of a front to which nothing is sent here.
    fn make_client() -> Arc<EncryptedClient> {
        let root = rcgen::generate_simple_self_signed(["front".into()]).unwrap().cert;
        let (limits, endpoint) = (ClientLimits::default(), Endpoint::new("127.0.0.1", 9));
        let connector = Connector::to_proxy(endpoint, [root.der().to_vec()], || 0, limits);
        let http = HttpClient::new(connector.unwrap(), limits, || 0);
        let judge: ReportJudge = Arc::new(|_, _| Err("nothing is accepted".into()));
        let form = EncryptedForm::Bodies(http.clone());
        Arc::new(EncryptedClient::new(http, form, judge, limits.age_max, || 0))
    }

    fn make_set(client: &Arc<EncryptedClient>) -> ReplicaSet {
        ReplicaSet::new(GIVEN.map(|url| (url.to_owned(), client.clone().into())))
    }

    fn make_ids<const N: usize>() -> [BodyKeyId; N] {
        std::array::from_fn(|_| {
            RecipientKey::generate(BodyKem::X25519).unwrap().public_key().key_id()
        })
    }

    fn count(set: &ReplicaSet, url: &str) -> usize {
        set.list().iter().filter(|replica| replica.url == url).count()
    }

    #[test]
    fn the_keys_that_one_address_lists_take_no_place_of_another_address() {
        let (client, ids) = (make_client(), make_ids::<16>());
        let set = make_set(&client);
        set.record_listing(GIVEN[0], &client, &ids);
        assert_eq!(GIVEN.map(|url| count(&set, url)), [8, 1]);
        // It has listed the keys behind the other address, which are found there all the same.
        set.record_listing(GIVEN[1], &client, &ids);
        assert_eq!(GIVEN.map(|url| count(&set, url)), [8, 8]);
        set.record_listing(GIVEN[0], &client, &make_ids::<16>());
        assert_eq!(GIVEN.map(|url| count(&set, url)), [8, 8], "others take the places");
    }

    #[test]
    fn what_is_no_longer_listed_and_not_admitted_is_forgotten_also_if_there_is_no_list() {
        let (client, ids) = (make_client(), make_ids::<3>());
        let set = make_set(&client);
        set.record_listing(GIVEN[0], &client, &ids);
        set.record_listing(GIVEN[1], &client, &ids);
        let admitted = set.list().into_iter().rfind(|replica| replica.url == GIVEN[0]).unwrap();
        admitted.lock_health().record_admission();
        // This is what a list is that cannot be fetched.
        set.record_listing(GIVEN[0], &client, &[]);
        assert_eq!(GIVEN.map(|url| count(&set, url)), [2, 4]);
        assert!(set.list().iter().any(|replica| Arc::ptr_eq(replica, &admitted)));
        set.record_listing(GIVEN[0], &client, &ids);
        assert_eq!(count(&set, GIVEN[0]), 4);
    }

    #[test]
    fn a_request_is_tried_a_bounded_number_of_times_however_many_replicas_come_and_go() {
        let client = make_client();
        let set = make_set(&client);
        let mut attempts = Attempts::default();
        for _ in 0..REPLICAS_MAX {
            set.record_listing(GIVEN[0], &client, &make_ids::<16>());
            let chosen = set.choose(&attempts).expect("there are new ones");
            attempts.tried.push(chosen.replica);
        }
        set.record_listing(GIVEN[0], &client, &make_ids::<16>());
        assert!(set.choose(&attempts).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_replaced_while_a_list_is_fetched_has_the_next_one_fetched_at_once() {
        let set = Arc::new(make_set(&make_client()));
        let (listing, count) = (set.clone(), Arc::<AtomicUsize>::default());
        let counted = count.clone();
        let repeated = tokio::spawn(async move {
            let fetch = || async {
                if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                    listing.key_replaced.notify_waiters();
                }
            };
            match listing.repeat_listing(fetch).await {}
        });
        tokio::time::sleep(2 * LISTING_PAUSE).await;
        assert_eq!(count.load(Ordering::SeqCst), 2);
        tokio::time::sleep(LISTING_EVERY - LISTING_PAUSE).await;
        assert_eq!(count.load(Ordering::SeqCst), 2, "without an event there is no hurry");
        tokio::time::sleep(2 * LISTING_PAUSE).await;
        assert_eq!(count.load(Ordering::SeqCst), 3);
        repeated.abort();
    }

    #[test]
    fn a_replica_that_cannot_be_dialled_is_left_out_also_by_a_request_that_was_sealed_to_its_key() {
        let set = make_set(&make_client());
        let replica = set.list().remove(0);
        let failed = |source: std::io::ErrorKind| ClientError::Dial {
            target: "127.0.0.1:9".into(),
            source: source.into(),
        };
        replica.lock_health().record_admission();
        set.record_unanswered(&replica, None, &failed(std::io::ErrorKind::ConnectionRefused));
        let state = set.describe().remove(0);
        assert!(!state.is_admitted && state.failure.is_some() && state.retry_in.is_some());
        // A connection that breaks later says nothing of the next one.
        replica.lock_health().record_admission();
        let deadline = Duration::from_secs(600);
        set.record_unanswered(&replica, None, &ClientError::Slow { deadline });
        assert!(set.describe()[0].is_admitted);
    }
}

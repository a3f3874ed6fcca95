//! A pool of idle connections to the upstream; each serves one request at a time, of the thread that
//! opened it. A server closes idle connections, and a request that crosses the close is lost. A
//! request that is safe to repeat is sent again; one that the server may have read is not (RFC 9110
//! section 9.2.2). A request that is not safe to repeat therefore only uses a connection that has been
//! idle for at most half the idle time that others have survived.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use confide_encrypted_body::{BodyPublicKey, OHTTP_GATEWAY_PATH, parse_key_configs};
use confide_http::{available_cores, list_members, serving_thread_index};
use http::{HeaderMap, HeaderName, StatusCode, header, uri::PathAndQuery};
use http_body_util::{BodyExt, Limited};

use crate::{
    connection::{Connection, no_free_stream, open_http2_session},
    fault::{UpstreamFailure, UpstreamFault},
    http2_session::{Http2Session, Http2Stream},
    limits::GatewayLimits,
    manifest::AttestedModelWatch,
    upstream::Upstream,
    weights_watch::WeightsWatch,
};

/// The time that an upstream which does not keep connections needs to close one after an answer.
const AT_ONCE: Duration = Duration::from_millis(10);
/// A connection that was closed after a shorter time may have been closed at once: nothing looks at
/// idle connections more often.
const SHORT: Duration = Duration::from_secs(2);
/// The time by which the closes of an upstream on a busy machine differ. One connection may be
/// closed so much earlier than another one, which was seen open.
const CLOSE_JITTER: Duration = Duration::from_millis(50);
/// The time for which a close by the upstream is remembered.
const CLOSES_REMEMBERED: Duration = Duration::from_secs(10);
/// The time without a request after which a connection of HTTP/2 is closed. Its end loses no
/// request, so that it may be longer than for HTTP/1.1.
const SESSION_IDLE: Duration = Duration::from_secs(60);
/// The longest time for a list of keys, for which a request may wait, and its largest number of bytes.
const KEYS_DEADLINE: Duration = Duration::from_secs(2);
const KEYS_BYTES_MAX: usize = 32 * 1024;
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

pub(crate) struct UpstreamPool {
    upstream: Upstream,
    limits: GatewayLimits,
    manifest: AttestedModelWatch,
    weights: Option<Arc<WeightsWatch>>,
    /// The connections of each thread that serves: one that another thread opened would wake it for
    /// every answer.
    threads: Box<[Mutex<ThreadPool>]>,
    /// The number of idle connections of all threads.
    idle_count: Arc<AtomicUsize>,
    lifetime: Mutex<IdleLifetime>,
    /// For each thread: is held while a connection of HTTP/2 is opened, so that requests that come at
    /// once do not open one each. Holds the latest failure, which those that waited for it share.
    opening: Box<[OpeningTurn]>,
}

/// The turn to open a connection, with the latest failure.
type OpeningTurn = tokio::sync::Mutex<Option<(Instant, UpstreamFailure)>>;

/// The connections that one thread has opened.
#[derive(Default)]
struct ThreadPool {
    /// The connections of HTTP/2, the oldest first.
    sessions: Vec<Http2Session>,
    /// The idle connections, the most recently used one last.
    idle: Vec<IdleConnection>,
}

struct IdleConnection {
    connection: Connection,
    _counted: CountedIdle,
    since: Instant,
    /// The longest time for which it may be kept: the gateway's limit, or the upstream's if that is
    /// shorter.
    limit: Duration,
}

/// Counts a connection as idle for as long as this value lives.
struct CountedIdle(Arc<AtomicUsize>);

impl Drop for CountedIdle {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The observed time for which the upstream keeps an idle connection.
#[derive(Clone, Copy, Debug, Default)]
struct IdleLifetime {
    /// The longest idle time after which a connection was still open.
    survived: Duration,
    /// The shortest idle time after which the upstream closed a connection, and the time of the
    /// last close.
    closed: Option<(Duration, Instant)>,
}

impl IdleLifetime {
    /// Learns from an idle connection; returns whether it is open and may be kept longer.
    fn observe(&mut self, kept: &mut IdleConnection, now: Instant) -> bool {
        let idle = now.duration_since(kept.since);
        if kept.connection.is_open_and_silent() {
            self.record_open(idle.min(kept.limit));
            return idle <= kept.limit;
        }
        self.record_closed(idle, now);
        false
    }

    fn record_open(&mut self, idle: Duration) {
        self.survived = self.survived.max(idle.saturating_sub(CLOSE_JITTER));
    }

    fn record_closed(&mut self, idle: Duration, now: Instant) {
        let shortest = self.shortest_lifetime(now).map_or(idle, |shortest| shortest.min(idle));
        self.survived = self.survived.min(shortest);
        self.closed = Some((shortest, now));
    }

    /// The shortest idle time before a recent close. Older closes are forgotten, because a server
    /// that restarts closes every connection.
    fn shortest_lifetime(&self, now: Instant) -> Option<Duration> {
        let (shortest, last) = self.closed?;
        (now.duration_since(last) < CLOSES_REMEMBERED).then_some(shortest)
    }

    /// The longest idle time of a connection that is used for a request that is not safe to repeat.
    fn trusted_idle_time(&self, now: Instant) -> Duration {
        self.shortest_lifetime(now).map_or(self.survived, |shortest| shortest.min(self.survived))
            / 2
    }

    fn may_close_at_once(&self, now: Instant) -> bool {
        self.shortest_lifetime(now).is_some_and(|shortest| shortest < SHORT)
    }

    /// Whether a connection that has been idle for this time, and is still open, shows much more
    /// than is known.
    fn is_news(&self, idle: Duration) -> bool {
        idle > self.survived * 2 + CLOSE_JITTER * 2
    }
}

impl UpstreamPool {
    pub(crate) fn new(
        upstream: Upstream,
        manifest: AttestedModelWatch,
        weights: Option<Arc<WeightsWatch>>,
        limits: GatewayLimits,
    ) -> Self {
        let (idle_count, lifetime) = Default::default();
        let threads = (0..available_cores()).map(|_| Mutex::default()).collect();
        let opening = (0..available_cores()).map(|_| OpeningTurn::default()).collect();
        Self { upstream, limits, manifest, weights, threads, idle_count, lifetime, opening }
    }

    /// The connections of the calling thread.
    fn lock_own(&self) -> MutexGuard<'_, ThreadPool> {
        lock(&self.threads[serving_thread_index() % self.threads.len()])
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Whether the configuration has the upstream's model, or its weights.
    pub(crate) fn expects_model(&self) -> bool {
        self.manifest.expects_model() || self.weights.is_some()
    }

    /// The watch over the server's weights, if they were measured.
    pub(crate) fn weights_watch(&self) -> Option<&Arc<WeightsWatch>> {
        self.weights.as_ref()
    }

    /// Checks that the process that listens has the measured weights.
    async fn confirm_weights(&self) -> Result<(), UpstreamFailure> {
        match &self.weights {
            Some(weights) => weights.confirm_process().await,
            None => Ok(()),
        }
    }

    /// The digest of the model's manifest in the configuration.
    pub(crate) fn model_manifest(&self) -> Option<[u8; 32]> {
        self.manifest.wanted_digest()
    }

    /// Whether the upstream is asked for its model at intervals.
    pub(crate) fn watches_model(&self) -> bool {
        self.manifest.expects_model() && !self.manifest.was_model_swapped()
    }

    /// Takes the most recently used connection, if it is open and has not been idle for too long.
    pub(crate) fn take_idle(&self, is_repeatable: bool) -> Option<Connection> {
        if self.upstream.speaks_http2() {
            return self.claim_stream().map(Connection::Http2);
        }
        let now = Instant::now();
        let (mut own, mut lifetime) = (self.lock_own(), lock(&self.lifetime));
        let idle = &mut own.idle;
        // The others are left to the sweep, so that a request does not look at all of them; the
        // oldest one shows for how long the upstream keeps connections.
        if let Some(oldest) = idle.first_mut()
            && lifetime.is_news(now.duration_since(oldest.since).min(oldest.limit))
        {
            lifetime.observe(oldest, now);
        }
        while idle.pop_if(|newest| !lifetime.observe(newest, now)).is_some() {}
        let trusted = lifetime.trusted_idle_time(now);
        let is_fit = |newest: &mut IdleConnection| {
            let limit = if is_repeatable { newest.limit } else { newest.limit.min(trusted) };
            now.duration_since(newest.since) <= limit
        };
        Some(idle.pop_if(is_fit)?.connection)
    }

    /// Opens a new connection. If a model was attested, the upstream is asked for its model on this
    /// connection, directly before the request.
    ///
    /// If the upstream closes the connection after its answer, another one is opened and returned.
    pub(crate) async fn open(&self) -> Result<Connection, UpstreamFailure> {
        match self.upstream.speaks_http2() {
            true => self.open_stream().await.map(Connection::Http2),
            false => self.open_http1().await,
        }
    }

    /// Opens a new connection of HTTP/1.1, as [`Self::open`] does.
    pub(crate) async fn open_http1(&self) -> Result<Connection, UpstreamFailure> {
        let connection = Connection::open_http1(&self.upstream, &self.limits).await?;
        self.confirm_weights().await?;
        if !self.manifest.expects_model() {
            return Ok(connection);
        }
        let deadline = self.limits.upstream_question;
        let asked = self.manifest.confirm_model(connection, &self.upstream, deadline).await?;
        let may_close = lock(&self.lifetime).may_close_at_once(Instant::now());
        let wait = if may_close { AT_ONCE } else { Duration::ZERO };
        if let Some(mut connection) = asked
            // A request that crosses the close would be lost.
            && !connection.closes_within(wait).await
        {
            return Ok(connection);
        }
        let connection = Connection::open_http1(&self.upstream, &self.limits).await?;
        self.confirm_weights().await?;
        Ok(connection)
    }

    /// Claims a stream of a connection of HTTP/2. The oldest connection with a free one is used, so
    /// that those that were opened for a burst become idle.
    fn claim_stream(&self) -> Option<Http2Stream> {
        self.lock_own().sessions.iter().find_map(Http2Session::claim)
    }

    /// Claims a stream, of a new connection if no other has a free one.
    async fn open_stream(&self) -> Result<Http2Stream, UpstreamFailure> {
        let began = Instant::now();
        let opening = &self.opening[serving_thread_index() % self.opening.len()];
        let mut latest_failure = opening.lock().await;
        if let Some(stream) = self.claim_stream() {
            return Ok(stream);
        }
        match &*latest_failure {
            Some((time, failure)) if *time >= began => return Err(failure.clone()),
            _ => {}
        }
        let opened = self.open_session().await;
        *latest_failure = opened.as_ref().err().map(|failure| (Instant::now(), failure.clone()));
        opened
    }

    async fn open_session(&self) -> Result<Http2Stream, UpstreamFailure> {
        let session = open_http2_session(&self.upstream, &self.limits).await?;
        self.confirm_weights().await?;
        let claim = || session.claim().ok_or_else(|| no_free_stream(&self.upstream));
        if self.manifest.expects_model() {
            let (question, deadline) = (Connection::Http2(claim()?), self.limits.upstream_question);
            self.manifest.confirm_model(question, &self.upstream, deadline).await?;
        }
        let stream = claim()?;
        let sessions = &mut self.lock_own().sessions;
        sessions.retain(|session| !session.is_retired());
        sessions.push(session);
        Ok(stream)
    }

    /// Asks for the upstream's model on a new connection. It is not kept: the thread that asks serves
    /// no requests.
    pub(crate) async fn check_model(&self) -> Result<(), UpstreamFailure> {
        let connection = Connection::open(&self.upstream, &self.limits).await?;
        let deadline = self.limits.upstream_question;
        self.manifest.confirm_model(connection, &self.upstream, deadline).await.map(drop)
    }

    /// Requests the public keys to which requests for the upstream are encrypted, on a new connection.
    pub(crate) async fn fetch_body_keys(&self) -> Result<Vec<BodyPublicKey>, UpstreamFailure> {
        let failed = |reason: String| UpstreamFailure::new(UpstreamFault::NotReady, reason);
        let exchange = async {
            let connection = Connection::open(&self.upstream, &self.limits).await?;
            let path = PathAndQuery::from_static(OHTTP_GATEWAY_PATH);
            let answer = connection.get(&self.upstream, &path).await?;
            if answer.status() != StatusCode::OK {
                return Err(failed(format!("list of keys: status {}", answer.status())));
            }
            let list = Limited::new(answer.into_body(), KEYS_BYTES_MAX).collect().await;
            let list = list.map_err(|error| failed(format!("list of keys: {error}")))?;
            parse_key_configs(&list.to_bytes())
                .map_err(|error| failed(format!("list of keys: {error}")))
        };
        let deadline = self.limits.health_check.min(KEYS_DEADLINE);
        let fetched = tokio::time::timeout(deadline, exchange).await;
        fetched.map_err(|_| failed(format!("no list of keys within {deadline:?}")))?
    }

    /// Requests `path` on a new connection. Any status of success is healthy; 404 comes from a
    /// server that can be reached and has no health check.
    pub(crate) async fn check_health(&self, path: &PathAndQuery) -> Result<(), UpstreamFailure> {
        let deadline = self.limits.health_check;
        let check = async {
            let connection = Connection::open(&self.upstream, &self.limits).await?;
            Ok(connection.get(&self.upstream, path).await?.status())
        };
        let unhealthy = |reason: String| Err(UpstreamFailure::new(UpstreamFault::NotReady, reason));
        match tokio::time::timeout(deadline, check).await {
            Ok(Ok(status)) if status.is_success() || status == StatusCode::NOT_FOUND => Ok(()),
            Ok(Ok(status)) => unhealthy(format!("health check: status {status}")),
            Ok(Err(failure)) => Err(failure),
            Err(_) => unhealthy(format!("health check: no answer within {deadline:?}")),
        }
    }

    /// The longest time for which a connection is kept after an answer with these header fields.
    pub(crate) fn idle_limit(&self, headers: &HeaderMap) -> Duration {
        let most = self.limits.upstream_idle;
        announced_keep_alive(headers).map_or(most, |announced| announced.min(most))
    }

    /// Closes the connections that have been idle for too long.
    pub(crate) fn close_stale(&self) {
        let now = Instant::now();
        for thread in &self.threads {
            let mut thread = lock(thread);
            let is_used = |session: &Http2Session| session.idle_time(now) <= SESSION_IDLE;
            thread.sessions.retain(|session| !session.is_retired() && is_used(session));
            let mut lifetime = lock(&self.lifetime);
            thread.idle.retain_mut(|kept| lifetime.observe(kept, now));
        }
    }

    /// Keeps a connection whose last answer has ended, for at most `limit`.
    pub(crate) fn keep_idle(&self, connection: Connection, limit: Duration) {
        let is_kept = matches!(connection, Connection::Http1(_));
        if !is_kept || limit.is_zero() {
            return;
        }
        let before = self.idle_count.fetch_add(1, Ordering::Relaxed);
        let counted = CountedIdle(self.idle_count.clone());
        let idle = &mut self.lock_own().idle;
        if before >= self.limits.upstream_idle_connections {
            // The oldest one goes, or this one if the others belong to other threads.
            if idle.is_empty() {
                return;
            }
            idle.remove(0);
        }
        idle.push(IdleConnection { connection, _counted: counted, since: Instant::now(), limit });
    }
}

/// Locks what a panic elsewhere leaves valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The keep-alive time that the upstream announced: zero after `Connection: close`, and a second
/// less than `Keep-Alive: timeout=N`, because the upstream's clock started earlier.
fn announced_keep_alive(headers: &HeaderMap) -> Option<Duration> {
    if list_members(headers, &header::CONNECTION).any(|name| name.eq_ignore_ascii_case("close")) {
        return Some(Duration::ZERO);
    }
    let parameter = list_members(headers, &KEEP_ALIVE).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.trim())
    })?;
    Some(Duration::from_secs(parameter.parse::<u32>().ok()?.saturating_sub(1).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announced_idle_limit_is_undercut_by_a_second() {
        for (value, wanted) in [
            ("timeout=5", Some(4)),
            ("timeout=5, max=100", Some(4)),
            ("max=100, Timeout = 2", Some(1)),
            ("timeout=1", Some(0)),
            ("timeout=0", Some(0)),
            ("timeout=soon", None),
            ("max=3", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(KEEP_ALIVE, value.parse().unwrap());
            assert_eq!(announced_keep_alive(&headers), wanted.map(Duration::from_secs), "{value}");
        }
        assert_eq!(announced_keep_alive(&HeaderMap::new()), None);
        let mut closing = HeaderMap::new();
        closing.insert(header::CONNECTION, "x, Close".parse().unwrap());
        assert_eq!(announced_keep_alive(&closing), Some(Duration::ZERO));
    }

    #[test]
    fn what_cannot_be_repeated_uses_a_connection_for_half_as_long_as_others_survived() {
        let mut lifetime = IdleLifetime::default();
        let now = Instant::now();
        assert_eq!(lifetime.trusted_idle_time(now), Duration::ZERO);
        lifetime.record_open(CLOSE_JITTER + Duration::from_millis(80));
        lifetime.record_open(CLOSE_JITTER + Duration::from_millis(40));
        assert_eq!(lifetime.trusted_idle_time(now), Duration::from_millis(40));
        assert!(!lifetime.may_close_at_once(now));
        lifetime.record_closed(Duration::from_secs(3), now);
        assert_eq!(lifetime.trusted_idle_time(now), Duration::from_millis(40));
        assert!(!lifetime.may_close_at_once(now));
        // One that is slow to close is no reason to trust the next.
        lifetime.record_closed(Duration::from_micros(80), now);
        lifetime.record_open(CLOSE_JITTER + Duration::from_secs(1));
        assert!(lifetime.may_close_at_once(now));
        assert!(lifetime.trusted_idle_time(now) < Duration::from_millis(1));
        // After a restart, the time that the new server keeps connections is learnt again.
        let later = now + CLOSES_REMEMBERED;
        assert!(!lifetime.may_close_at_once(later));
        assert_eq!(lifetime.trusted_idle_time(later), Duration::from_millis(500));
    }
}

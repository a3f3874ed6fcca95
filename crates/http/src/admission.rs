//! Decides which connections get a place, by limits for all connections, for each peer, and for
//! newcomers. A full server keeps accepting. It evicts an idle connection, or closes the new one at
//! once; if it stopped accepting, one peer could block it for all others.

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, Ipv4Addr},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use tokio::{sync::Notify, time::Instant};

/// The shortest interval between two log lines on refusals and evictions.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// The deadline for the header of a listed proxy, which sends it in its first packet.
const PROXY_HEADER_DEADLINE: Duration = Duration::from_secs(5);

/// The limits on a server's connections, in total and for each peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// The largest number of connections at once.
    pub connections: usize,
    /// The largest number of connections of one [`Peer`] at once.
    pub connections_per_peer: usize,
    /// The part of `connections` that is reserved for peers without a connection.
    pub newcomer_reserve: usize,
}

impl AdmissionLimits {
    /// Limits for a server of many peers: one peer gets at most a quarter of the places, and an
    /// eighth is reserved for newcomers.
    pub const fn for_many_peers(connections: usize) -> Self {
        let quarter = if connections < 4 { 1 } else { connections / 4 };
        Self { connections, connections_per_peer: quarter, newcomer_reserve: connections / 8 }
    }

    /// Limits for an address that only one machine or one proxy uses: one peer may have all places.
    pub const fn for_one_peer(connections: usize) -> Self {
        Self { connections, connections_per_peer: connections, newcomer_reserve: 0 }
    }
}

impl Default for AdmissionLimits {
    /// The default of every program of this project: 1,024 connections, shared among many peers.
    fn default() -> Self {
        Self::for_many_peers(1024)
    }
}

/// The unit to which a limit applies: an IPv4 address, or the 64 bits of an IPv6 address that name
/// a network, since the holder of one address of a network has all 2⁶⁴.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// An IPv4 address, including the form mapped to IPv6 (`::ffff:192.0.2.1`).
    V4(Ipv4Addr),
    /// The first four groups of an IPv6 address.
    V6([u16; 4]),
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(address) => address.fmt(f),
            Self::V6([a, b, c, d]) => {
                let network = std::net::Ipv6Addr::new(*a, *b, *c, *d, 0, 0, 0, 0);
                write!(f, "{network}/64")
            }
        }
    }
}

/// Assigns the places of a server to connections.
#[derive(Clone, Debug)]
pub struct Admission {
    places: Arc<AdmissionState>,
    proxies: Arc<[IpAddr]>,
    /// The deadline for the header of a listed proxy, which tests shorten.
    pub(crate) header_deadline: Duration,
}

#[derive(Debug)]
struct AdmissionState {
    limits: AdmissionLimits,
    began: Instant,
    table: Mutex<PlaceTable>,
    vacated: Notify,
    /// The number of connections of listed proxies whose headers are awaited.
    announcing: AtomicUsize,
}

/// A connection of a listed proxy whose header is awaited, for as long as this value lives.
#[derive(Debug)]
pub(crate) struct AwaitedAnnouncement(Arc<AdmissionState>);

impl Drop for AwaitedAnnouncement {
    fn drop(&mut self) {
        self.0.announcing.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct PlaceTable {
    total: usize,
    peers: HashMap<Peer, Vec<Arc<PlaceState>>>,
    report: LimitReport,
}

/// The refusals and evictions since the last log line.
#[derive(Debug, Default)]
struct LimitReport {
    logged: Option<Instant>,
    refused: u64,
    evicted: u64,
}

/// The user of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occupant {
    /// A connection, which is idle at first.
    Connection,
    /// An exchange or a tunnel at the same time as others of its connection. It is busy from the
    /// start, so that it is not evicted before it runs.
    Exchange,
}

#[derive(Debug)]
struct PlaceState {
    occupant: Occupant,
    /// The number of requests that run on the connection, or [`EVICTED`] once its place was
    /// reassigned.
    busy: AtomicU32,
    /// Microseconds from the start of the server to the last change to idle.
    idle_since_us: AtomicU64,
    /// Whether an exchange has begun on the connection.
    has_run_exchange: AtomicBool,
    /// Whether an exchange that counts as one of several at once occupies this place.
    has_exchange: AtomicBool,
    evicted: Notify,
}

const EVICTED: u32 = 1 << 31;

/// The limit that a connection reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReachedLimit {
    Connections,
    PerPeer,
    Descriptors,
}

impl ReachedLimit {
    /// The option by which an operator changes the limit.
    fn option_name(self) -> &'static str {
        match self {
            Self::Connections => "--connections",
            Self::PerPeer => "--connections-per-address",
            Self::Descriptors => "ulimit -n",
        }
    }
}

impl Admission {
    /// Makes an admission whose places are all free.
    pub fn new(limits: AdmissionLimits) -> Self {
        Self {
            places: Arc::new(AdmissionState {
                limits,
                began: Instant::now(),
                table: Mutex::default(),
                vacated: Notify::new(),
                announcing: AtomicUsize::new(0),
            }),
            proxies: Arc::new([]),
            header_deadline: PROXY_HEADER_DEADLINE,
        }
    }

    /// Returns the admission for a server behind `proxies`. Connections from these addresses must
    /// begin with a PROXY protocol header, whose source address is counted as the peer; from other
    /// addresses no header is read.
    pub fn with_trusted_proxies(mut self, proxies: &[IpAddr]) -> Self {
        self.proxies = proxies.iter().map(IpAddr::to_canonical).collect();
        self
    }

    /// The number of places that are taken: by connections, and by further exchanges of theirs.
    pub fn occupied_places(&self) -> usize {
        self.places.lock_table().total
    }

    /// The number of connections that have a place.
    pub(crate) fn count_connections(&self) -> usize {
        let table = self.places.lock_table();
        let states = table.peers.values().flatten();
        states.filter(|state| state.occupant == Occupant::Connection).count()
    }

    /// The limits.
    pub fn limits(&self) -> AdmissionLimits {
        self.places.limits
    }

    pub(crate) fn is_proxy(&self, address: IpAddr) -> bool {
        !self.proxies.is_empty() && self.proxies.contains(&address.to_canonical())
    }

    /// Assigns a place to a new connection of `peer`, and evicts an idle connection if necessary.
    pub(crate) fn admit(&self, peer: Peer) -> Option<ConnectionPlace> {
        self.places.admit(peer, Occupant::Connection)
    }

    /// Evicts any idle connection, to free a file descriptor.
    pub fn evict_any_idle(&self) {
        let mut table = self.places.lock_table();
        let Some(peer) = table.choose_victim(0, None) else { return };
        let held = table.count_places(peer);
        table.evict_longest_idle(peer);
        let line = table.record_limit_event(true);
        drop(table);
        if let Some(line) = line {
            line.log(peer, held, ReachedLimit::Descriptors);
        }
    }

    /// Begins to wait for the header of a listed proxy; `None` if as many are awaited as there are
    /// places.
    pub(crate) fn begin_announcement(&self) -> Option<AwaitedAnnouncement> {
        let awaited = AwaitedAnnouncement(self.places.clone());
        let before = self.places.announcing.fetch_add(1, Ordering::Relaxed);
        (before < self.places.limits.connections).then_some(awaited)
    }

    /// Counts a connection that was closed before its peer was known.
    pub(crate) fn record_refused_unknown(&self, peer: Peer) {
        let line = self.places.lock_table().record_limit_event(false);
        if let Some(line) = line {
            line.log(peer, 0, ReachedLimit::Connections);
        }
    }

    /// Resolves when all places are free.
    pub(crate) async fn wait_until_vacant(&self) {
        let mut vacated = pin!(self.places.vacated.notified());
        loop {
            vacated.as_mut().enable();
            if self.occupied_places() == 0 {
                return;
            }
            vacated.as_mut().await;
            vacated.set(self.places.vacated.notified());
        }
    }
}

impl AdmissionState {
    /// Assigns a place of `peer`, and evicts an idle connection if necessary.
    fn admit(self: &Arc<Self>, peer: Peer, occupant: Occupant) -> Option<ConnectionPlace> {
        let AdmissionLimits { connections, connections_per_peer, newcomer_reserve } = self.limits;
        let mut table = self.lock_table();
        let held = table.count_places(peer);
        let open_to_all = connections.saturating_sub(newcomer_reserve);
        let met = match table.total {
            _ if held >= connections_per_peer.min(connections) => match held >= connections {
                true => Some(ReachedLimit::Connections),
                false => Some(ReachedLimit::PerPeer),
            },
            total if total >= connections => Some(ReachedLimit::Connections),
            total if held > 0 && total >= open_to_all => Some(ReachedLimit::Connections),
            _ => None,
        };
        let victim = match met {
            None => None,
            Some(ReachedLimit::PerPeer) => Some(table.evict_longest_idle(peer)),
            Some(_) => Some(table.evict_for_peer(peer, held)),
        };
        let place = (victim != Some(false)).then(|| {
            let state = Arc::new(PlaceState {
                occupant,
                busy: AtomicU32::new(u32::from(occupant == Occupant::Exchange)),
                idle_since_us: AtomicU64::new(self.now_us()),
                has_run_exchange: AtomicBool::new(false),
                has_exchange: AtomicBool::new(false),
                evicted: Notify::new(),
            });
            table.total += 1;
            table.peers.entry(peer).or_default().push(state.clone());
            ConnectionPlace(Arc::new(PlaceRecord { state, peer, places: self.clone() }))
        });
        let line = met.and_then(|_| table.record_limit_event(place.is_some()));
        drop(table);
        if let (Some(met), Some(line)) = (met, line) {
            line.log(peer, held, met);
        }
        place
    }

    /// Locks the table. A panic elsewhere leaves it valid.
    fn lock_table(&self) -> MutexGuard<'_, PlaceTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl PlaceTable {
    fn count_places(&self, peer: Peer) -> usize {
        self.peers.get(&peer).map_or(0, Vec::len)
    }

    /// Evicts a connection for `peer`, which holds `held` places. Connections of a peer that holds
    /// as many or fewer are spared, since that peer would come back and evict in turn.
    fn evict_for_peer(&mut self, peer: Peer, held: usize) -> bool {
        self.choose_victim(held, Some(peer)).is_some_and(|victim| self.evict_longest_idle(victim))
    }

    /// Chooses the peer that holds most places and has an idle connection; among equals, the one
    /// with the longest idle connection.
    fn choose_victim(&self, held: usize, own: Option<Peer>) -> Option<Peer> {
        let mut best: Option<(usize, u64, Peer)> = None;
        for (peer, states) in &self.peers {
            let count = states.len();
            let allowed = count > held || Some(*peer) == own;
            if !allowed || best.is_some_and(|(most, ..)| count < most) {
                continue;
            }
            let Some(since) = states.iter().filter_map(|state| state.idle_since()).min() else {
                continue;
            };
            if best.is_none_or(|(most, oldest, _)| count > most || since < oldest) {
                best = Some((count, since, *peer));
            }
        }
        best.map(|(.., peer)| peer)
    }

    /// Evicts the longest idle connection of `peer`; `false` if all are busy.
    fn evict_longest_idle(&mut self, peer: Peer) -> bool {
        let Some(states) = self.peers.get_mut(&peer) else { return false };
        // A connection that has become busy meanwhile is skipped.
        while let Some((_, at)) = (states.iter().enumerate())
            .filter_map(|(at, state)| state.idle_since().map(|since| (since, at)))
            .min()
        {
            if states[at].evict() {
                states.swap_remove(at);
                self.total -= 1;
                if states.is_empty() {
                    self.peers.remove(&peer);
                }
                return true;
            }
        }
        false
    }

    fn remove(&mut self, peer: Peer, state: &Arc<PlaceState>) {
        let Some(states) = self.peers.get_mut(&peer) else { return };
        let Some(at) = states.iter().position(|held| Arc::ptr_eq(held, state)) else { return };
        states.swap_remove(at);
        self.total -= 1;
        if states.is_empty() {
            self.peers.remove(&peer);
        }
    }

    /// Counts an eviction or a refusal. Returns the report to log, if a log line is due.
    fn record_limit_event(&mut self, evicted: bool) -> Option<LimitReport> {
        let report = &mut self.report;
        if evicted {
            report.evicted += 1;
        } else {
            report.refused += 1;
        }
        let due = report.logged.is_none_or(|logged| logged.elapsed() >= LOG_EVERY);
        due.then(|| {
            let logged = Some(Instant::now());
            std::mem::replace(report, LimitReport { logged, ..LimitReport::default() })
        })
    }
}

impl LimitReport {
    fn log(&self, peer: Peer, held: usize, met: ReachedLimit) {
        let Self { refused, evicted, .. } = *self;
        tracing::warn!(
            %peer, held, refused, evicted, limit = met.option_name(),
            "a connection limit was reached: idle connections are evicted, new ones refused"
        );
    }
}

impl PlaceState {
    /// The time since which the connection has been idle; `None` if it is busy.
    fn idle_since(&self) -> Option<u64> {
        (self.busy.load(Ordering::Acquire) == 0).then(|| self.idle_since_us.load(Ordering::Acquire))
    }

    fn evict(&self) -> bool {
        let evicted = self.busy.compare_exchange(0, EVICTED, Ordering::AcqRel, Ordering::Acquire);
        if evicted.is_ok() {
            self.evicted.notify_one();
        }
        evicted.is_ok()
    }
}

/// A connection's place at a server, which is freed when the last clone is dropped.
///
/// A connection that waits for a handshake or a request is idle and may be evicted: its task is
/// dropped, which closes it. While a [`BusyGuard`] exists it is not evicted.
#[derive(Clone, Debug)]
pub struct ConnectionPlace(Arc<PlaceRecord>);

#[derive(Debug)]
struct PlaceRecord {
    state: Arc<PlaceState>,
    peer: Peer,
    places: Arc<AdmissionState>,
}

impl ConnectionPlace {
    /// The peer to which the place is counted.
    pub fn peer(&self) -> Peer {
        self.0.peer
    }

    /// Marks the connection as busy until the guard is dropped.
    pub fn mark_busy(&self) -> BusyGuard {
        self.0.state.busy.fetch_add(1, Ordering::AcqRel);
        BusyGuard { place: self.clone(), is_exchange: false }
    }

    /// Begins one exchange. The connection is busy until the guard is dropped.
    pub fn begin_exchange(&self) -> BusyGuard {
        self.0.state.has_run_exchange.store(true, Ordering::Relaxed);
        self.mark_busy()
    }

    /// Runs one exchange. The connection is busy until the answer's body has ended.
    ///
    /// # Errors
    /// Returns the errors of `answer`.
    pub fn run_exchange<F, B, E>(
        &self,
        answer: F,
    ) -> impl Future<Output = BusyAnswer<B, E>> + use<F, B, E>
    where
        F: Future<Output = Result<Response<B>, E>>,
    {
        let busy = self.begin_exchange();
        async move { Ok(answer.await?.map(|body| BusyBody { body, busy: Some(busy) })) }
    }

    /// Takes a place for an exchange that may run at the same time as others (a stream of HTTP/2),
    /// until the guard is dropped. One of them uses the connection's own place; each further one is
    /// admitted as a new connection of the peer is. `None` if the limits allow no more.
    pub fn admit_exchange(&self) -> Option<BusyGuard> {
        if self.0.state.has_exchange.swap(true, Ordering::AcqRel) {
            return self.admit_tunnel();
        }
        let mut busy = self.mark_busy();
        busy.is_exchange = true;
        Some(busy)
    }

    /// Takes a place for a tunnel on the connection (a WebSocket in a stream of HTTP/2), until the
    /// guard is dropped. It is admitted as a new connection of the peer is, because the connection's
    /// own place may count as idle while the tunnel is open.
    pub fn admit_tunnel(&self) -> Option<BusyGuard> {
        // The connection must not make room for its own tunnel.
        let _own = self.mark_busy();
        let place = self.0.places.admit(self.0.peer, Occupant::Exchange)?;
        Some(BusyGuard { place, is_exchange: false })
    }

    /// Resolves once no exchange has run on the connection for `limit`.
    ///
    /// One timer serves all exchanges of the connection, so an exchange costs no timer of its own.
    pub async fn wait_for_idle_time(&self, limit: Duration) {
        loop {
            let record = &self.0;
            let idle = record.state.idle_since().map_or(Duration::ZERO, |since_us| {
                Duration::from_micros(record.places.now_us().saturating_sub(since_us))
            });
            if idle >= limit {
                return;
            }
            tokio::time::sleep(limit - idle).await;
        }
    }

    /// Whether [`ConnectionPlace::run_exchange`] was called for the connection.
    pub(crate) fn has_run_exchange(&self) -> bool {
        self.0.state.has_run_exchange.load(Ordering::Relaxed)
    }

    /// Resolves when the connection has been evicted.
    pub(crate) async fn wait_for_eviction(&self) {
        self.0.state.evicted.notified().await;
    }
}

impl Drop for PlaceRecord {
    fn drop(&mut self) {
        let mut table = self.places.lock_table();
        table.remove(self.peer, &self.state);
        let empty = table.total == 0;
        drop(table);
        if empty {
            self.places.vacated.notify_waiters();
        }
    }
}

/// An answer that keeps its connection busy until its body has ended.
pub type BusyAnswer<B, E> = Result<Response<BusyBody<B>>, E>;

/// Marks a connection as busy while it exists, so that the connection is not evicted.
#[derive(Debug)]
pub struct BusyGuard {
    place: ConnectionPlace,
    /// Whether the connection's own place is that of an exchange until the guard is dropped.
    is_exchange: bool,
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        let place = &self.place.0;
        if self.is_exchange {
            place.state.has_exchange.store(false, Ordering::Release);
        }
        // Stored before the count, so that a reader of the count also sees the time.
        place.state.idle_since_us.store(place.places.now_us(), Ordering::Release);
        place.state.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The body of an answer, which keeps its connection busy until it has ended.
#[derive(Debug)]
pub struct BusyBody<B> {
    body: B,
    busy: Option<BusyGuard>,
}

impl<B: Body + Unpin> Body for BusyBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let poll = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(poll, Poll::Ready(None | Some(Err(_)))) {
            self.busy = None;
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::from(IpAddr::from([192, 0, 2, last]))
    }

    fn admission(connections: usize, connections_per_peer: usize, reserve: usize) -> Admission {
        let newcomer_reserve = reserve;
        Admission::new(AdmissionLimits { connections, connections_per_peer, newcomer_reserve })
    }

    /// Two connections that became idle in one tick of the clock are equally idle.
    fn tick() {
        std::thread::sleep(Duration::from_millis(2));
    }

    async fn is_evicted(place: &ConnectionPlace) -> bool {
        tokio::select! { biased; () = place.wait_for_eviction() => true, () = std::future::ready(()) => false }
    }

    #[test]
    fn a_peer_is_an_ipv4_address_or_the_network_of_an_ipv6_address() {
        let of = |text: &str| Peer::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("2001:db8:1:2:3::1").to_string(), "2001:db8:1:2::/64");
        assert_eq!(of("::ffff:192.0.2.1").to_string(), "192.0.2.1");
    }

    #[tokio::test]
    async fn a_peer_at_its_limit_gets_the_place_of_its_longest_idle_connection() {
        let admission = admission(8, 2, 0);
        let first = admission.admit(peer(1)).expect("a place");
        tick();
        let second = admission.admit(peer(1)).expect("a place");
        tick();
        // It was used since: the second one is idle for longer now.
        drop(first.mark_busy());
        let third = admission.admit(peer(1)).expect("the place of the second");
        assert!(is_evicted(&second).await && !is_evicted(&first).await);
        assert_eq!(admission.occupied_places(), 2);
        drop(second);
        assert_eq!(admission.occupied_places(), 2, "an evicted place is not given back twice");
        let _busy = (first.mark_busy(), third.mark_busy());
        assert!(admission.admit(peer(1)).is_none(), "none is idle");
        assert!(admission.admit(peer(2)).is_some());
    }

    #[tokio::test]
    async fn a_full_server_evicts_of_the_peer_that_holds_most() {
        let admission = admission(5, 4, 0);
        let many: Vec<_> = (0..3).map(|_| admission.admit(peer(1)).expect("a place")).collect();
        let other = admission.admit(peer(2)).expect("a place");
        tick();
        let second = admission.admit(peer(2)).expect("a place");
        let newcomer = admission.admit(peer(3)).expect("one of the three");
        let mut evicted = 0;
        for place in &many {
            evicted += usize::from(is_evicted(place).await);
        }
        assert_eq!(evicted, 1);
        // Each holds two or one now: nobody's share is greater than the one that asks.
        assert!(admission.admit(peer(2)).is_some(), "of its own");
        assert!(is_evicted(&other).await && !is_evicted(&second).await);
        assert!(!is_evicted(&newcomer).await);
    }

    #[test]
    fn the_reserve_is_for_peers_without_a_connection() {
        let admission = admission(4, 4, 1);
        let held: Vec<_> = (0..3).map(|_| admission.admit(peer(1)).expect("a place")).collect();
        let _busy: Vec<_> = held.iter().map(ConnectionPlace::mark_busy).collect();
        assert!(admission.admit(peer(1)).is_none(), "the last place is not for it");
        let newcomer = admission.admit(peer(2)).expect("the last place");
        let _busy_too = newcomer.mark_busy();
        assert!(admission.admit(peer(3)).is_none(), "none is idle and none is left");
        drop(held);
    }

    #[test]
    fn a_place_is_free_again_when_nobody_holds_it() {
        let admission = admission(1, 1, 0);
        let place = admission.admit(peer(1)).expect("a place");
        let busy = place.mark_busy();
        drop(place);
        assert_eq!(admission.occupied_places(), 1, "its request still runs");
        drop(busy);
        assert_eq!(admission.occupied_places(), 0);
    }

    #[test]
    fn no_line_follows_another_within_ten_seconds_and_none_is_forgotten() {
        let mut table = PlaceTable::default();
        assert!(table.record_limit_event(false).is_some_and(|line| line.refused == 1));
        assert!(table.record_limit_event(false).is_none());
        assert!(table.record_limit_event(true).is_none());
        table.report.logged = Instant::now().checked_sub(LOG_EVERY);
        assert!(
            table
                .record_limit_event(true)
                .is_some_and(|line| (line.refused, line.evicted) == (1, 2))
        );
    }

    #[tokio::test]
    async fn a_descriptor_is_freed_of_the_peer_that_holds_most() {
        let admission = admission(8, 8, 0);
        let many: Vec<_> = (0..2).map(|_| admission.admit(peer(1)).expect("a place")).collect();
        let other = admission.admit(peer(2)).expect("a place");
        admission.evict_any_idle();
        assert_eq!(admission.occupied_places(), 2);
        assert!(!is_evicted(&other).await);
        assert!(is_evicted(&many[0]).await || is_evicted(&many[1]).await);
    }

    #[test]
    fn exchanges_at_once_take_places_and_never_that_of_their_own_connection() {
        let admission = admission(3, 3, 0);
        let place = admission.admit(peer(1)).expect("a place");
        let first = place.admit_exchange().expect("its own place");
        assert_eq!(admission.occupied_places(), 1);
        let second = place.admit_exchange().expect("a further place");
        let third = place.admit_exchange().expect("a further place");
        assert_eq!(admission.occupied_places(), 3);
        assert!(place.admit_exchange().is_none() && place.admit_tunnel().is_none());
        // The place of the connection itself is free for the next exchange.
        drop(first);
        let first = place.admit_exchange().expect("its own place");
        assert_eq!(admission.occupied_places(), 3);
        drop((first, second, third));
        assert_eq!(admission.occupied_places(), 1);
        let tunnels = [place.admit_tunnel(), place.admit_tunnel()];
        assert!(tunnels.iter().all(Option::is_some));
        assert!(place.admit_tunnel().is_none(), "the connection itself is idle and stays");
        assert!(place.admit_exchange().is_some());
    }

    #[test]
    fn the_place_of_a_tunnel_is_not_evicted_before_its_tunnel_runs() {
        let admission = admission(3, 3, 0);
        let place = admission.admit(peer(1)).expect("a place");
        let _busy = place.mark_busy();
        std::thread::scope(|scope| {
            let evicting = scope.spawn(|| {
                for _ in 0..20_000 {
                    admission.evict_any_idle();
                }
            });
            while !evicting.is_finished() {
                let tunnel = place.admit_tunnel().expect("a further place");
                let busy = tunnel.place.0.state.busy.load(Ordering::Acquire);
                assert_eq!(busy, 1, "the place of the tunnel was evicted");
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_from_the_end_of_its_last_exchange() {
        let limit = Duration::from_secs(300);
        let place = admission(1, 1, 0).admit(peer(1)).expect("a place");
        let began = Instant::now();
        let (short, long) = (place.mark_busy(), place.mark_busy());
        let exchanges = async {
            tokio::time::sleep(limit / 2).await;
            drop(short);
            tokio::time::sleep(limit * 2).await;
            drop(long);
        };
        tokio::join!(exchanges, place.wait_for_idle_time(limit));
        let waited = began.elapsed().as_secs();
        assert_eq!(waited, (limit / 2 + limit * 2 + limit).as_secs());
    }
}

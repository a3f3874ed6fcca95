//! Who gets a place at a server: limits for all connections, for each peer, and for newcomers.
//!
//! A full server goes on accepting. It evicts a connection that waits for something, or closes the
//! new one at once: a server that stops accepting is shut for everybody by whoever filled it.

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, Ipv4Addr},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::Notify;

/// Refusals and evictions are logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// A listed proxy sends its header in its first packet, before anything of its client.
const PROXY_HEADER_DEADLINE: Duration = Duration::from_secs(5);

/// The most connections that a server holds, and how they are shared among its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// The most connections at once.
    pub connections: usize,
    /// The most connections of one [`Peer`] at once.
    pub connections_per_peer: usize,
    /// The part of `connections` that only peers without any connection get.
    pub newcomer_reserve: usize,
}

impl AdmissionLimits {
    /// Limits for a server of many peers: a quarter of the places for one peer, and an eighth
    /// reserved for newcomers.
    pub const fn for_many_peers(connections: usize) -> Self {
        let quarter = if connections < 4 { 1 } else { connections / 4 };
        Self { connections, connections_per_peer: quarter, newcomer_reserve: connections / 8 }
    }

    /// Limits for addresses that only one machine or one proxy uses: all places for one peer.
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
/// a network, since whoever has one address of a network has all 2⁶⁴.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// An IPv4 address, also where it is written as IPv6 (`::ffff:192.0.2.1`).
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

/// Gives places to connections, and takes them back.
#[derive(Clone, Debug)]
pub struct Admission {
    places: Arc<Places>,
    proxies: Arc<[IpAddr]>,
    /// The deadline for the header of a listed proxy, which tests shorten.
    pub(crate) header_deadline: Duration,
}

#[derive(Debug)]
struct Places {
    limits: AdmissionLimits,
    began: Instant,
    table: Mutex<PeerTable>,
    vacated: Notify,
}

#[derive(Debug, Default)]
struct PeerTable {
    total: usize,
    peers: HashMap<Peer, Vec<Arc<PlaceState>>>,
    report: Report,
}

/// The events since the last line of the log.
#[derive(Debug, Default)]
struct Report {
    logged: Option<Instant>,
    refused: u64,
    evicted: u64,
}

#[derive(Debug)]
struct PlaceState {
    /// Requests that run on the connection; [`EVICTED`] when its place was given away.
    busy: AtomicU32,
    /// Microseconds from the start of the server to the last change to idle.
    idle_since_us: AtomicU64,
    /// Whether an exchange has begun on the connection.
    has_run_exchange: AtomicBool,
    evicted: Notify,
}

const EVICTED: u32 = 1 << 31;

/// The limit that a connection met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetLimit {
    Connections,
    PerPeer,
    Descriptors,
}

impl MetLimit {
    /// The option with which an operator changes the limit.
    fn flag(self) -> &'static str {
        match self {
            Self::Connections => "--connections",
            Self::PerPeer => "--connections-per-address",
            Self::Descriptors => "ulimit -n",
        }
    }
}

impl Admission {
    /// An admission whose places are all free.
    pub fn new(limits: AdmissionLimits) -> Self {
        Self {
            places: Arc::new(Places {
                limits,
                began: Instant::now(),
                table: Mutex::default(),
                vacated: Notify::new(),
            }),
            proxies: Arc::new([]),
            header_deadline: PROXY_HEADER_DEADLINE,
        }
    }

    /// The same admission, for a server behind `proxies`: connections from these addresses begin
    /// with a header of the PROXY protocol, whose source is the peer that is counted. From no other
    /// address is such a header read.
    pub fn behind_proxies(mut self, proxies: &[IpAddr]) -> Self {
        self.proxies = proxies.iter().map(IpAddr::to_canonical).collect();
        self
    }

    /// The number of connections that have a place.
    pub fn occupied_places(&self) -> usize {
        self.places.table().total
    }

    /// The limits that it was made with.
    pub fn limits(&self) -> AdmissionLimits {
        self.places.limits
    }

    pub(crate) fn is_proxy(&self, address: IpAddr) -> bool {
        !self.proxies.is_empty() && self.proxies.contains(&address.to_canonical())
    }

    /// A place for a new connection of `peer`; if necessary, an idle connection is evicted for it.
    pub(crate) fn admit(&self, peer: Peer) -> Option<Occupancy> {
        let places = &self.places;
        let AdmissionLimits { connections, connections_per_peer, newcomer_reserve } = places.limits;
        let mut table = places.table();
        let held = table.held_by(peer);
        let open_to_all = connections.saturating_sub(newcomer_reserve);
        let met = match table.total {
            _ if held >= connections_per_peer.min(connections) => match held >= connections {
                true => Some(MetLimit::Connections),
                false => Some(MetLimit::PerPeer),
            },
            total if total >= connections => Some(MetLimit::Connections),
            total if held > 0 && total >= open_to_all => Some(MetLimit::Connections),
            _ => None,
        };
        let victim = match met {
            None => None,
            Some(MetLimit::PerPeer) => Some(table.evict_of(peer)),
            Some(_) => Some(table.evict_for(peer, held)),
        };
        let place = (victim != Some(false)).then(|| {
            let state = Arc::new(PlaceState {
                busy: AtomicU32::new(0),
                idle_since_us: AtomicU64::new(places.now_us()),
                has_run_exchange: AtomicBool::new(false),
                evicted: Notify::new(),
            });
            table.total += 1;
            table.peers.entry(peer).or_default().push(state.clone());
            Occupancy(Arc::new(Place { state, peer, places: places.clone() }))
        });
        let line = met.and_then(|_| table.report(place.is_some()));
        drop(table);
        if let (Some(met), Some(line)) = (met, line) {
            line.log(peer, held, met);
        }
        place
    }

    /// Frees a descriptor where the process has none left.
    pub(crate) fn evict_any(&self) {
        let mut table = self.places.table();
        let Some(peer) = table.choose_victim(0, None) else { return };
        let held = table.held_by(peer);
        table.evict_of(peer);
        let line = table.report(true);
        drop(table);
        if let Some(line) = line {
            line.log(peer, held, MetLimit::Descriptors);
        }
    }

    /// Counts a connection that was closed before its peer was known.
    pub(crate) fn refuse_unknown(&self, peer: Peer) {
        let line = self.places.table().report(false);
        if let Some(line) = line {
            line.log(peer, 0, MetLimit::Connections);
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

impl Places {
    /// A panic elsewhere leaves a table of places that is still a table of places.
    fn table(&self) -> MutexGuard<'_, PeerTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl PeerTable {
    fn held_by(&self, peer: Peer) -> usize {
        self.peers.get(&peer).map_or(0, Vec::len)
    }

    /// Evicts for a newcomer, or for a peer that holds `held` places. Never evicts a connection of
    /// another peer that holds as many or fewer: the evicted one would come back and evict in turn.
    fn evict_for(&mut self, peer: Peer, held: usize) -> bool {
        self.choose_victim(held, Some(peer)).is_some_and(|victim| self.evict_of(victim))
    }

    /// The peer that holds most and has an idle connection; among equals, the peer whose connection
    /// has been idle longest.
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

    /// Evicts the longest idle connection of `peer`; `false` where all are busy.
    fn evict_of(&mut self, peer: Peer) -> bool {
        let Some(states) = self.peers.get_mut(&peer) else { return false };
        // A connection that becomes busy meanwhile is skipped.
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

    /// Counts an eviction or a refusal; gives what is to be logged, where a line is due.
    fn report(&mut self, evicted: bool) -> Option<Report> {
        let report = &mut self.report;
        if evicted {
            report.evicted += 1;
        } else {
            report.refused += 1;
        }
        let due = report.logged.is_none_or(|logged| logged.elapsed() >= LOG_EVERY);
        due.then(|| {
            let logged = Some(Instant::now());
            std::mem::replace(report, Report { logged, ..Report::default() })
        })
    }
}

impl Report {
    fn log(&self, peer: Peer, held: usize, met: MetLimit) {
        let Self { refused, evicted, .. } = *self;
        tracing::warn!(
            %peer, held, refused, evicted, limit = met.flag(),
            "a limit on connections is reached: idle ones are evicted, others refused"
        );
    }
}

impl PlaceState {
    /// The time since when the connection has been idle, if it is.
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

/// A place at a server. It becomes free when the last clone is dropped.
///
/// A connection is idle at first, while it waits for a handshake or a request, and may be evicted
/// then: what serves it is dropped, which closes it. While a [`Busy`] lives it is not.
#[derive(Clone, Debug)]
pub struct Occupancy(Arc<Place>);

#[derive(Debug)]
struct Place {
    state: Arc<PlaceState>,
    peer: Peer,
    places: Arc<Places>,
}

impl Occupancy {
    /// The peer for which the place is counted.
    pub fn peer(&self) -> Peer {
        self.0.peer
    }

    /// Marks the connection as busy until the guard is dropped.
    pub fn mark_busy(&self) -> Busy {
        self.0.state.busy.fetch_add(1, Ordering::AcqRel);
        Busy(self.clone())
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
        self.0.state.has_run_exchange.store(true, Ordering::Relaxed);
        let busy = self.mark_busy();
        async move { Ok(answer.await?.map(|body| BusyBody { body, busy: Some(busy) })) }
    }

    /// Whether [`Occupancy::run_exchange`] was called for the connection.
    pub(crate) fn has_run_exchange(&self) -> bool {
        self.0.state.has_run_exchange.load(Ordering::Relaxed)
    }

    /// Resolves once, when the place was given to another connection.
    pub(crate) async fn wait_for_eviction(&self) {
        self.0.state.evicted.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.table();
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

/// A request that runs on a connection; the connection is not evicted while this lives.
#[derive(Debug)]
pub struct Busy(Occupancy);

impl Drop for Busy {
    fn drop(&mut self) {
        let place = &self.0.0;
        // Stored before the count: whoever sees that the connection is idle also sees since when.
        place.state.idle_since_us.store(place.places.now_us(), Ordering::Release);
        place.state.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The body of an answer, which keeps its connection busy until it has ended.
#[derive(Debug)]
pub struct BusyBody<B> {
    body: B,
    busy: Option<Busy>,
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

    async fn is_evicted(place: &Occupancy) -> bool {
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
        let _busy: Vec<_> = held.iter().map(Occupancy::mark_busy).collect();
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
        let mut table = PeerTable::default();
        assert!(table.report(false).is_some_and(|line| line.refused == 1));
        assert!(table.report(false).is_none());
        assert!(table.report(true).is_none());
        table.report.logged = Instant::now().checked_sub(LOG_EVERY);
        assert!(table.report(true).is_some_and(|line| (line.refused, line.evicted) == (1, 2)));
    }

    #[tokio::test]
    async fn a_descriptor_is_freed_of_the_peer_that_holds_most() {
        let admission = admission(8, 8, 0);
        let many: Vec<_> = (0..2).map(|_| admission.admit(peer(1)).expect("a place")).collect();
        let other = admission.admit(peer(2)).expect("a place");
        admission.evict_any();
        assert_eq!(admission.occupied_places(), 2);
        assert!(!is_evicted(&other).await);
        assert!(is_evicted(&many[0]).await || is_evicted(&many[1]).await);
    }
}

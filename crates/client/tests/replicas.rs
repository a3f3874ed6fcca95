//! Several replicas of one service behind one loopback address.

mod local;
mod site;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use confide_channel::Server;
use confide_client::{
    AllowedOrigins, Binding, Blame, ClientLimits, Connector, Endpoint, HttpClient, PolicyAppraiser,
    ReplicaSet, ReplicaStatus,
};
use confide_fake_attester::{FakeAttester, FakeAttesterOptions};
use confide_verifier::Policy;
use local::{ask, read_to_end, serve_replicas};
use site::{Stream, attester, now, options, read_head, server, server_claiming};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpSocket},
    task::JoinSet,
};

const GET: &str = "GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";

/// A replica that can be stopped, with everything that it serves.
struct Replica {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    /// Whether it accepts new connections and says nothing.
    is_silent: Arc<AtomicBool>,
    running: JoinSet<()>,
}

impl Replica {
    async fn start(server: Server) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), server)
    }

    fn start_on(listener: TcpListener, server: Server) -> Self {
        let address = listener.local_addr().unwrap();
        let (requests, is_silent) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, silenced, server) = (requests.clone(), is_silent.clone(), Arc::new(server));
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (server, counted) = (server.clone(), counted.clone());
                let is_silent = silenced.load(Ordering::SeqCst);
                connections.spawn(async move {
                    if is_silent {
                        tokio::time::sleep(site::GENEROUS).await;
                    }
                    if let Ok(accepted) = server.accept(stream).await {
                        answer(accepted.stream, &counted).await;
                    }
                });
            }
        });
        Self { address, requests, is_silent, running }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    async fn stop(mut self) {
        self.running.shutdown().await;
    }
}

/// Answers each request after a moment, so that several run at once.
async fn answer(mut stream: Stream, requests: &AtomicUsize) {
    while read_head(&mut stream).await.is_some() {
        requests.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        if stream.write_all(site::OK).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

fn good_server() -> Server {
    server(Binding::Key, Some(attester()), now)
}

/// A server whose evidence leads to a root that the policy does not name.
fn foreign_server() -> Server {
    let foreign = FakeAttester::new(FakeAttesterOptions { seed: [2; 32], ..options() }).unwrap();
    server(Binding::Key, Some(foreign), now)
}

fn replica_set(addresses: &[SocketAddr], limits: ClientLimits) -> Arc<ReplicaSet> {
    let policy = Policy::from_toml(&attester().policy_toml_pinning(site::CONFIG_DIGEST)).unwrap();
    let appraiser = Arc::new(PolicyAppraiser::new(policy, None, now).unwrap());
    let mut clients: Vec<HttpClient> = Vec::new();
    for address in addresses {
        let endpoint = Endpoint::parse(&format!("https://{address}")).unwrap();
        let appraiser = appraiser.clone();
        let connector =
            Connector::with_appraiser(endpoint, None, Binding::Key, appraiser, limits).unwrap();
        clients.push(match clients.first() {
            Some(first) => first.for_replica(connector),
            None => HttpClient::new(connector, limits, now),
        });
    }
    let named = addresses.iter().map(ToString::to_string);
    let ends = clients.into_iter().map(|client| Arc::new(client).into());
    Arc::new(ReplicaSet::new(named.zip(ends)))
}

async fn get_at(address: SocketAddr) -> String {
    read_to_end(&mut ask(address, GET).await).await
}

/// Sends so many requests at once, of which each has to be answered.
async fn get_many(address: SocketAddr, count: usize) {
    let mut requests = JoinSet::new();
    for _ in 0..count {
        requests.spawn(get_at(address));
    }
    for answer in requests.join_all().await {
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
}

fn find(set: &ReplicaSet, address: SocketAddr) -> ReplicaStatus {
    let mut states = set.describe().into_iter();
    states.find(|state| state.url == address.to_string()).expect("a replica of this address")
}

#[tokio::test]
async fn requests_are_spread_over_replicas_that_are_each_admitted() {
    let (one, two) = (Replica::start(good_server()).await, Replica::start(good_server()).await);
    let limits = ClientLimits { connections: 8, ..ClientLimits::default() };
    let set = replica_set(&[one.address, two.address], limits);
    set.open().await.expect("both are admitted");
    for address in [one.address, two.address] {
        let state = find(&set, address);
        assert!(state.is_admitted && state.appraisal.is_some() && state.failure.is_none());
    }
    let local = serve_replicas(set.clone(), AllowedOrigins::default(), limits).await;
    get_many(local.address, 60).await;
    let counts = [one.requests(), two.requests()];
    assert_eq!(counts.iter().sum::<usize>(), 60);
    assert!(counts.iter().all(|count| (20..=40).contains(count)), "{counts:?}");
    assert!(set.describe().iter().all(|state| state.running == 0), "each answer has ended");
}

#[tokio::test]
async fn a_replica_that_is_refused_gets_nothing_and_says_why() {
    let good = Replica::start(good_server()).await;
    let foreign = Replica::start(foreign_server()).await;
    let claim = server_claiming("gateway only", Binding::Key, Some(attester()), now);
    let limits = ClientLimits::default();
    let set = replica_set(&[foreign.address, good.address], limits);
    set.open().await.expect("one is admitted");
    let state = find(&set, foreign.address);
    let failure = state.failure.expect("it is refused");
    assert!(failure.is_refused && !state.is_admitted, "{failure:?}");
    assert_eq!(failure.check.as_deref(), Some("root"));
    assert!(state.retry_in.is_some_and(|wait| wait <= Duration::from_secs(2)));
    let local = serve_replicas(set, AllowedOrigins::default(), limits).await;
    get_many(local.address, 20).await;
    assert_eq!((foreign.requests(), good.requests()), (0, 20));

    // One that claims less than the first is refused, although the policy accepts it.
    let other = Replica::start(claim).await;
    let set = replica_set(&[good.address, other.address], limits);
    set.open().await.expect("one is admitted");
    let refused = set.describe().into_iter().filter_map(|state| state.failure);
    let checks: Vec<_> = refused.map(|failure| failure.check).collect();
    assert_eq!(checks, [Some("guarantee".to_owned())]);
}

#[tokio::test]
async fn without_an_admitted_replica_each_failure_is_told() {
    let foreign = Replica::start(foreign_server()).await;
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let away = closed.local_addr().unwrap();
    let limits = ClientLimits::default();
    let set = replica_set(&[away, foreign.address], limits);
    let mut failures = set.open().await.expect_err("none is admitted");
    failures.sort_by_key(|(_, error)| error.blame() != Blame::Evidence);
    let told: Vec<_> = failures.iter().map(|(url, error)| (&**url, error.blame())).collect();
    let (foreign_url, away_url) = (foreign.address.to_string(), away.to_string());
    assert_eq!(told, [(&*foreign_url, Blame::Evidence), (&*away_url, Blame::Network)]);
    // The refusal is what a program is told, and not that the other one is away.
    let local = serve_replicas(set, AllowedOrigins::default(), limits).await;
    let answer = get_at(local.address).await;
    assert!(
        answer.starts_with("HTTP/1.1 502 ") && answer.contains("evidence_rejected"),
        "{answer}"
    );
    assert_eq!(foreign.requests(), 0);
}

#[tokio::test]
async fn a_silent_replica_delays_few_requests_and_not_for_long() {
    // It accepts connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let good = Replica::start(good_server()).await;
    let limits = ClientLimits::default();
    let set = replica_set(&[silent.local_addr().unwrap(), good.address], limits);
    let began = Instant::now();
    set.open().await.expect("one is admitted");
    assert!(began.elapsed() < limits.channel, "{:?}", began.elapsed());
    let local = serve_replicas(set, AllowedOrigins::default(), limits).await;
    let began = Instant::now();
    get_many(local.address, 20).await;
    assert!(began.elapsed() < Duration::from_secs(2), "nobody waits: {:?}", began.elapsed());
    assert_eq!(good.requests(), 20);
}

#[tokio::test]
async fn a_replica_that_falls_silent_delays_its_requests_once() {
    let (one, two) = (Replica::start(good_server()).await, Replica::start(good_server()).await);
    // Each request opens a connection.
    let channel = Duration::from_secs(4);
    let limits = ClientLimits { idle: Duration::ZERO, channel, ..ClientLimits::default() };
    let set = replica_set(&[one.address, two.address], limits);
    set.open().await.expect("both are admitted");
    let maintained = tokio::spawn(set.clone().maintain());
    let local = serve_replicas(set.clone(), AllowedOrigins::default(), limits).await;
    get_many(local.address, 20).await;
    two.is_silent.store(true, Ordering::SeqCst);
    let served = two.requests();
    let began = Instant::now();
    get_many(local.address, 20).await;
    assert!(began.elapsed() < channel, "those that chose it went on: {:?}", began.elapsed());
    let began = Instant::now();
    get_many(local.address, 20).await;
    assert!(began.elapsed() < Duration::from_secs(2), "nobody waits: {:?}", began.elapsed());
    assert_eq!(two.requests(), served);
    let left_out = async {
        while find(&set, two.address).failure.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    site::finish_in_time(left_out).await;
    maintained.abort();
}

#[tokio::test]
async fn a_replica_that_goes_away_loses_no_request_that_was_not_sent_and_comes_back() {
    let (one, two) = (Replica::start(good_server()).await, Replica::start(good_server()).await);
    let limits = ClientLimits::default();
    let (lost, kept) = (two.address, one.address);
    let set = replica_set(&[kept, lost], limits);
    set.open().await.expect("both are admitted");
    let maintained = tokio::spawn(set.clone().maintain());
    let local = serve_replicas(set.clone(), AllowedOrigins::default(), limits).await;
    get_many(local.address, 20).await;
    assert!(two.requests() > 0);
    // Its kept connections are closed, and it takes no new ones.
    two.stop().await;
    // The ends of its connections arrive: a request that crosses one may be lost, as ever.
    tokio::time::sleep(Duration::from_millis(50)).await;
    get_many(local.address, 40).await;
    assert!(!find(&set, lost).is_admitted && find(&set, kept).is_admitted);

    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(lost).unwrap();
    let back = Replica::start_on(socket.listen(64).unwrap(), good_server());
    let returned = async {
        while !find(&set, lost).is_admitted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    site::finish_in_time(returned).await;
    get_many(local.address, 20).await;
    assert!(back.requests() > 0, "it takes its share again");
    maintained.abort();
}

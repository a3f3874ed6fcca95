//! The client against attested servers with simulated evidence.

mod site;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use confide_channel::tunnel::{self, AllowList, AllowedOrigins, TunnelDeadlines};
use confide_client::{
    AppraisalError, Binding, Blame, ClientError, ClientLimits, Connector, Endpoint, HttpClient,
    PolicyAppraiser, RequestDeadlines, empty_body, whole_body,
};
use confide_fake_attester::{FakeAttester, Fault};
use confide_verifier::Policy;
use http::Request;
use http_body_util::BodyExt;
use site::{CHUNKED, NOW, attester, now, options, read_head, server, site};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket},
    sync::mpsc,
};

fn policy(attester: &FakeAttester) -> Policy {
    Policy::from_toml(&attester.policy_toml_pinning(site::CONFIG_DIGEST)).unwrap()
}

fn appraiser(policy: Policy) -> Arc<PolicyAppraiser> {
    Arc::new(PolicyAppraiser::new(policy, None, now).unwrap())
}

fn endpoint(address: std::net::SocketAddr) -> Endpoint {
    Endpoint::parse(&format!("https://{address}")).unwrap()
}

fn connector(
    address: std::net::SocketAddr,
    binding: Binding,
    appraiser: &Arc<PolicyAppraiser>,
    limits: ClientLimits,
) -> Connector {
    Connector::with_appraiser(endpoint(address), None, binding, appraiser.clone(), limits).unwrap()
}

fn get() -> Request<confide_client::RequestBody> {
    Request::get("/v1/models").body(empty_body()).unwrap()
}

async fn read_text(answer: confide_client::PooledAnswer) -> String {
    let bytes = answer.response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn requests_use_kept_attested_connections_with_either_binding() {
    for binding in [Binding::Key, Binding::Session] {
        let attester = attester();
        let appraiser = appraiser(policy(&attester));
        let address = site(vec![server(binding, Some(attester), now)], site::answering).await;
        let limits = ClientLimits::default();
        let client = HttpClient::new(connector(address, binding, &appraiser, limits), limits, now);
        let first = client.request(get()).await.unwrap();
        let timings = first.opened.expect("the first request opens a connection");
        assert!(timings.channel.round_trips >= 2, "{timings:?}");
        assert_eq!(read_text(first).await, "ok");
        let post = Request::post("/v1/completions").body(whole_body("{}")).unwrap();
        let second = client.request(post).await.unwrap();
        assert!(second.opened.is_none(), "the kept connection was not used");
        let own = second.appraisal.clone().expect("the answer came over an attested connection");
        assert_eq!(read_text(second).await, "ok");
        let appraised = client.latest_appraisal().unwrap();
        assert!(Arc::ptr_eq(&own, &appraised));
        assert_eq!(appraised.guarantee(), "none (simulated)");
        assert!(appraised.is_simulated());
        assert_eq!(appraised.verdict().claims().unwrap().config_digest, site::CONFIG_DIGEST);
    }
}

#[tokio::test]
async fn a_request_with_deadlines_of_its_own_waits_no_longer() {
    // It accepts connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let appraiser = appraiser(policy(&attester()));
    let limits = ClientLimits { connections: 1, ..ClientLimits::default() };
    let connector = connector(silent.local_addr().unwrap(), Binding::Key, &appraiser, limits);
    let client = Arc::new(HttpClient::new(connector, limits, now));
    let short = Some(Duration::from_millis(50));
    let deadlines = RequestDeadlines { connect: short, ..RequestDeadlines::default() };
    let refused = client.request_within(get(), deadlines).await;
    assert!(matches!(refused, Err(ClientError::DialTimeout { .. })));
    // Another request opens the only connection meanwhile.
    let (_first, _) = silent.accept().await.unwrap();
    let opening = client.clone();
    let other = tokio::spawn(async move { opening.request(get()).await.is_ok() });
    let (_second, _) = silent.accept().await.unwrap();
    let deadlines = RequestDeadlines { queue: short, ..RequestDeadlines::default() };
    let refused = client.request_within(get(), deadlines).await;
    assert!(matches!(refused, Err(ClientError::Busy { .. })));
    other.abort();
}

#[tokio::test]
async fn a_simulated_root_is_refused_by_a_production_policy() {
    let address = site(vec![server(Binding::Key, Some(attester()), now)], site::answering).await;
    let appraiser = appraiser(Policy::default());
    let connector = connector(address, Binding::Key, &appraiser, ClientLimits::default());
    let error = connector.connect().await.map(|_| ()).unwrap_err();
    assert_eq!((error.blame(), error.failed_check()), (Blame::Evidence, Some("root")));
    assert!(matches!(error.rejection(), Some(AppraisalError::Rejected { .. })));
}

#[tokio::test]
async fn evidence_of_a_debug_td_is_refused() {
    let debug =
        FakeAttester::new(confide_fake_attester::FakeAttesterOptions { debug: true, ..options() });
    let servers = vec![server(Binding::Session, Some(debug.unwrap()), now)];
    let address = site(servers, site::answering).await;
    let appraiser = appraiser(policy(&attester()));
    let connector = connector(address, Binding::Session, &appraiser, ClientLimits::default());
    let error = connector.connect().await.map(|_| ()).unwrap_err();
    assert_eq!(error.failed_check(), Some("debug"));
}

#[tokio::test]
async fn another_configuration_than_the_pinned_one_is_refused() {
    let attester = attester();
    let pinned = "00".repeat(32);
    let text = attester.policy_toml().replace("\"dangerous-any\"", &format!("\"{pinned}\""));
    let appraiser = appraiser(Policy::from_toml(&text).unwrap());
    let address = site(vec![server(Binding::Key, Some(attester), now)], site::answering).await;
    let connector = connector(address, Binding::Key, &appraiser, ClientLimits::default());
    let error = connector.connect().await.map(|_| ()).unwrap_err();
    assert_eq!(error.failed_check(), Some("config_digest"));
}

#[tokio::test]
async fn a_revocation_list_older_than_one_already_seen_is_refused() {
    let old = FakeAttester::with_fault(options(), Fault::RolledBackCrl).unwrap();
    let appraiser = appraiser(policy(&attester()));
    let limits = ClientLimits::default();
    let old = site(vec![server(Binding::Key, Some(old), now)], site::answering).await;
    let new = site(vec![server(Binding::Key, Some(attester()), now)], site::answering).await;
    connector(old, Binding::Key, &appraiser, limits).connect().await.unwrap();
    connector(new, Binding::Key, &appraiser, limits).connect().await.unwrap();
    let error = connector(old, Binding::Key, &appraiser, limits).connect().await.map(|_| ());
    assert_eq!(error.unwrap_err().failed_check(), Some("root_crl"));
}

#[tokio::test]
async fn own_collateral_takes_the_place_of_the_stapled() {
    let old = FakeAttester::with_fault(options(), Fault::ExpiredCollateral).unwrap();
    let policy = policy(&old);
    let address = site(vec![server(Binding::Key, Some(old), now)], site::answering).await;
    let limits = ClientLimits::default();
    let stapled = connector(address, Binding::Key, &appraiser(policy.clone()), limits);
    assert!(stapled.connect().await.is_err());
    let collateral = attester().collateral_json();
    let own = PolicyAppraiser::new(policy, Some(collateral.as_bytes()), now).unwrap();
    connector(address, Binding::Key, &Arc::new(own), limits).connect().await.unwrap();
}

#[tokio::test]
async fn a_connection_whose_claims_ran_out_is_attested_anew() {
    static CLOCK: AtomicU64 = AtomicU64::new(NOW);
    fn clock() -> u64 {
        CLOCK.load(Ordering::SeqCst)
    }
    let attester = attester();
    let appraiser = PolicyAppraiser::new(policy(&attester), None, clock).unwrap();
    let address = site(vec![server(Binding::Key, Some(attester), clock)], site::answering).await;
    let limits = ClientLimits::default();
    let connector = connector(address, Binding::Key, &Arc::new(appraiser), limits);
    let client = HttpClient::new(connector, limits, clock);
    let mut opened = Vec::new();
    for _ in 0..2 {
        for _ in 0..2 {
            let answer = client.request(get()).await.unwrap();
            opened.push(answer.opened.is_some());
            read_text(answer).await;
        }
        CLOCK.fetch_add(site::KEY_VALIDITY.as_secs() + 1, Ordering::SeqCst);
    }
    assert_eq!(opened, [true, false, true, false]);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error_and_its_connection_is_not_kept() {
    for polite in [false, true] {
        let attester = attester();
        let appraiser = appraiser(policy(&attester));
        let servers = vec![server(Binding::Key, Some(attester), now)];
        let address = site(servers, move |mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(CHUNKED).await.unwrap();
            stream.write_all(b"5\r\nhello\r\n").await.unwrap();
            // With TLS's own end of stream, and without it as a killed process leaves it.
            match polite {
                true => drop(stream.shutdown().await),
                false => drop(stream.flush().await),
            }
        })
        .await;
        let limits = ClientLimits::default();
        let connector = connector(address, Binding::Key, &appraiser, limits);
        let client = HttpClient::new(connector, limits, now);
        let answer = client.request(get()).await.unwrap();
        assert!(answer.response.into_body().collect().await.is_err(), "polite: {polite}");
        assert_eq!(client.idle_connections(), 0);
    }
}

#[tokio::test]
async fn an_answer_that_pauses_too_long_is_an_error() {
    let attester = attester();
    let appraiser = appraiser(policy(&attester));
    let servers = vec![server(Binding::Key, Some(attester), now)];
    let address = site(servers, |mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(CHUNKED).await.unwrap();
        stream.flush().await.unwrap();
        read_head(&mut stream).await;
    })
    .await;
    let limits =
        ClientLimits { response_pause: Duration::from_millis(50), ..ClientLimits::default() };
    let connector = connector(address, Binding::Key, &appraiser, limits);
    let client = HttpClient::new(connector, limits, now);
    let answer = client.request(get()).await.unwrap();
    assert!(answer.response.into_body().collect().await.is_err());
}

#[tokio::test]
async fn an_answer_dropped_early_ends_the_work_of_the_other_end() {
    let (ended, mut end) = mpsc::unbounded_channel();
    let attester = attester();
    let appraiser = appraiser(policy(&attester));
    let servers = vec![server(Binding::Key, Some(attester), now)];
    let address = site(servers, move |mut stream| {
        let ended = ended.clone();
        async move {
            read_head(&mut stream).await;
            stream.write_all(CHUNKED).await.unwrap();
            stream.flush().await.unwrap();
            read_head(&mut stream).await;
            ended.send(()).unwrap();
        }
    })
    .await;
    let limits = ClientLimits::default();
    let connector = connector(address, Binding::Key, &appraiser, limits);
    let client = HttpClient::new(connector, limits, now);
    drop(client.request(get()).await.unwrap());
    site::finish_in_time(end.recv()).await.unwrap();
    assert_eq!(client.idle_connections(), 0);
}

#[tokio::test]
async fn a_closed_connection_is_replaced() {
    let attester = attester();
    let appraiser = appraiser(policy(&attester));
    let servers = vec![server(Binding::Key, Some(attester), now)];
    let address = site(servers, |mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(site::OK_AND_CLOSE).await.unwrap();
        stream.shutdown().await.unwrap();
    })
    .await;
    let limits = ClientLimits::default();
    let connector = connector(address, Binding::Key, &appraiser, limits);
    let client = HttpClient::new(connector, limits, now);
    for _ in 0..3 {
        let answer = client.request(get()).await.unwrap();
        assert!(answer.opened.is_some());
        assert_eq!(read_text(answer).await, "ok");
    }
}

/// A client of a server that follows `script`.
async fn client_of<F, R>(script: F) -> HttpClient
where
    F: Fn(site::Stream) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let attester = attester();
    let appraiser = appraiser(policy(&attester));
    let address = site(vec![server(Binding::Key, Some(attester), now)], script).await;
    let limits = ClientLimits::default();
    HttpClient::new(connector(address, Binding::Key, &appraiser, limits), limits, now)
}

#[tokio::test]
async fn an_idle_connection_ends_when_its_peer_ends_it() {
    let (told, mut ended) = mpsc::unbounded_channel();
    let client = client_of(move |mut stream| {
        let told = told.clone();
        async move {
            read_head(&mut stream).await;
            stream.write_all(site::OK).await.unwrap();
            stream.flush().await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
            stream.shutdown().await.unwrap();
            // Until the client ends its direction too, whoever is in between keeps the connection.
            let _ = stream.read(&mut [0]).await;
            told.send(()).unwrap();
        }
    })
    .await;
    // The second one is kept while the first is watched already.
    let (one, two) = tokio::join!(client.request(get()), client.request(get()));
    for answer in [one, two] {
        assert_eq!(read_text(answer.unwrap()).await, "ok");
    }
    for _ in 0..2 {
        site::finish_in_time(ended.recv()).await.unwrap();
    }
    let is_empty = async {
        while client.idle_connections() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    site::finish_in_time(is_empty).await;
}

#[tokio::test]
async fn idle_connections_end_with_their_client() {
    let (told, mut ended) = mpsc::unbounded_channel();
    let client = client_of(move |stream| {
        let told = told.clone();
        async move {
            site::answering(stream).await;
            told.send(()).unwrap();
        }
    })
    .await;
    assert_eq!(read_text(client.request(get()).await.unwrap()).await, "ok");
    assert_eq!(client.idle_connections(), 1);
    drop(client);
    site::finish_in_time(ended.recv()).await.unwrap();
}

#[tokio::test]
async fn connections_beyond_the_limit_are_refused_after_a_wait() {
    let attester = attester();
    let appraiser = appraiser(policy(&attester));
    let servers = vec![server(Binding::Key, Some(attester), now)];
    let address = site(servers, |mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(CHUNKED).await.unwrap();
        stream.flush().await.unwrap();
        read_head(&mut stream).await;
    })
    .await;
    let limits = ClientLimits {
        connections: 1,
        queue: Duration::from_millis(50),
        ..ClientLimits::default()
    };
    let connector = connector(address, Binding::Key, &appraiser, limits);
    let client = HttpClient::new(connector, limits, now);
    let held = client.request(get()).await.unwrap();
    let error = client.request(get()).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, ClientError::Busy { connections: 1, .. }), "{error}");
    drop(held);
    assert!(client.request(get()).await.is_ok());
}

#[tokio::test]
async fn many_requests_at_once_share_few_connections() {
    let attester = attester();
    let appraiser = appraiser(policy(&attester));
    let servers = vec![server(Binding::Key, Some(attester), now)];
    let address = site(servers, site::answering).await;
    let limits = ClientLimits { connections: 4, ..ClientLimits::default() };
    let connector = connector(address, Binding::Key, &appraiser, limits);
    let client = Arc::new(HttpClient::new(connector, limits, now));
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let client = client.clone();
        requests.spawn(async move {
            let answer = client.request(get()).await.unwrap();
            let opened = answer.opened.is_some();
            assert_eq!(read_text(answer).await, "ok");
            opened
        });
    }
    let opened = requests.join_all().await.into_iter().filter(|opened| *opened).count();
    assert!((1..=4).contains(&opened), "{opened} connections were opened");
    assert!(client.idle_connections() <= 4);
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let limits = ClientLimits { channel: Duration::from_millis(50), ..ClientLimits::default() };
    for binding in [Binding::Key, Binding::Session] {
        let connector = connector(address, binding, &appraiser(Policy::default()), limits);
        let error = site::finish_in_time(connector.connect()).await.map(|_| ()).unwrap_err();
        assert_eq!(error.blame(), Blame::Network, "{error}");
    }
}

#[tokio::test]
async fn a_peer_without_evidence_is_refused_and_plain_tls_has_to_be_asked_for() {
    let plain = server(Binding::None, None, now);
    let root = plain.certificate_der();
    let address = site(vec![plain], site::answering).await;
    let limits = ClientLimits::default();
    let attested = connector(address, Binding::Key, &appraiser(Policy::default()), limits);
    let error = attested.connect().await.map(|_| ()).unwrap_err();
    assert_eq!((error.blame(), error.failed_check()), (Blame::Evidence, Some("evidence")));
    let plain = Connector::dangerous_plain_tls(endpoint(address), None, &root, now, limits);
    let client = HttpClient::new(plain.unwrap(), limits, now);
    let answer = client.request(get()).await.unwrap();
    assert_eq!(read_text(answer).await, "ok");
    assert!(client.latest_appraisal().is_none());
}

#[tokio::test]
async fn a_tunnel_carries_attested_connections_and_costs_round_trips() {
    let attester = attester();
    let appraiser = appraiser(policy(&attester));
    let address = site(vec![server(Binding::Key, Some(attester), now)], site::answering).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let via = format!("ws://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let allow = AllowList::new([address.to_string()]).unwrap();
        let deadlines = TunnelDeadlines { open: site::GENEROUS, idle: site::GENEROUS };
        while let Ok((stream, _)) = listener.accept().await {
            let allow = allow.clone();
            tokio::spawn(async move {
                let origins = AllowedOrigins::default();
                tunnel::serve(stream, &allow, &origins, deadlines).await
            });
        }
    });
    let limits = ClientLimits::default();
    let direct = connector(address, Binding::Key, &appraiser, limits).connect().await.unwrap();
    let via = Some(via);
    let connector =
        Connector::with_appraiser(endpoint(address), via, Binding::Key, appraiser, limits).unwrap();
    let tunnelled = connector.connect().await.unwrap();
    let (direct, through) = (direct.timings().channel, tunnelled.timings().channel);
    assert!(through.round_trips > direct.round_trips, "{through:?} {direct:?}");
    let client = HttpClient::new(connector, limits, now);
    assert_eq!(read_text(client.request(get()).await.unwrap()).await, "ok");
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_a_matter_of_the_network() {
    // Bound and not listening: nobody else can take the port meanwhile.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = closed.local_addr().unwrap();
    let connector =
        connector(address, Binding::Key, &appraiser(Policy::default()), ClientLimits::default());
    let error = connector.connect().await.map(|_| ()).unwrap_err();
    assert!(matches!(error, ClientError::Dial { .. }), "{error}");
    assert_eq!(error.blame(), Blame::Network);
}

/// A client that demands fresh evidence before each request.
fn doubting_client(address: std::net::SocketAddr) -> HttpClient {
    let limits = ClientLimits { age_max: Duration::ZERO, ..ClientLimits::default() };
    let appraiser = appraiser(policy(&attester()));
    HttpClient::new(connector(address, Binding::Session, &appraiser, limits), limits, now)
}

#[tokio::test]
async fn old_evidence_is_renewed_on_the_same_connection() {
    let asked = Arc::new(AtomicU64::new(0));
    let counted = asked.clone();
    let server = server(Binding::Session, Some(attester()), now);
    let (address, connections) = site::site_with_evidence(server, move |live, request| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { live.answer(&request, site::GENEROUS).await.ok() }
    })
    .await;
    let client = doubting_client(address);
    for _ in 0..3 {
        assert_eq!(read_text(client.request(get()).await.unwrap()).await, "ok");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn idle_connections_get_fresh_evidence_before_a_request_needs_it() {
    for binding in [Binding::Session, Binding::Key] {
        let asked = Arc::new(AtomicU64::new(0));
        let counted = asked.clone();
        let server = server(binding, Some(attester()), now);
        let (address, connections) = site::site_with_evidence(server, move |live, request| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move { live.answer(&request, site::GENEROUS).await.ok() }
        })
        .await;
        let age_max = Duration::from_millis(400);
        let limits = ClientLimits { age_max, ..ClientLimits::default() };
        let appraiser = appraiser(policy(&attester()));
        let client = HttpClient::new(connector(address, binding, &appraiser, limits), limits, now);
        assert_eq!(read_text(client.request(get()).await.unwrap()).await, "ok");
        let refreshed_twice = async {
            let opened = || connections.load(Ordering::SeqCst) as u64;
            while asked.load(Ordering::SeqCst) + opened() < 3 || client.idle_connections() == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            never = client.keep_fresh() => match never {},
            () = site::finish_in_time(refreshed_twice) => {}
        }
        let (asked, opened) = (asked.load(Ordering::SeqCst), connections.load(Ordering::SeqCst));
        let is_kept = binding == Binding::Session;
        assert_eq!((asked > 0, opened == 1), (is_kept, is_kept), "{binding:?}: {asked} {opened}");
        assert_eq!(client.idle_connections(), 1, "{binding:?}");
        assert_eq!(read_text(client.request(get()).await.unwrap()).await, "ok");
    }
}

#[tokio::test]
async fn a_connection_without_fresh_evidence_is_replaced() {
    for gives_stale_evidence in [false, true] {
        let server = server(Binding::Session, Some(attester()), now);
        let stale = Arc::new(tokio::sync::OnceCell::new());
        let (address, connections) = site::site_with_evidence(server, move |live, request| {
            let stale = stale.clone();
            async move {
                if !gives_stale_evidence {
                    return None;
                }
                // The answer to another request, which this client has not made.
                let mut other = request.clone();
                *other.last_mut().unwrap() ^= 1;
                let reply = || async { live.answer(&other, site::GENEROUS).await.unwrap() };
                Some(stale.get_or_init(reply).await.clone())
            }
        })
        .await;
        let client = doubting_client(address);
        for opened in 1..=3 {
            assert_eq!(read_text(client.request(get()).await.unwrap()).await, "ok");
            assert_eq!(connections.load(Ordering::SeqCst), opened);
        }
    }
}

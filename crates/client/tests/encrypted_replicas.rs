//! Gateways behind fronts that terminate TLS, as the client finds, judges and uses them. A front here
//! follows a script, and may be hostile.

mod local;
mod site;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use confide_client::{
    AllowedOrigins, ClientLimits, Connector, EncryptedClient, EncryptedForm, Endpoint, HttpClient,
    JudgedKey, RemoteEnd, ReplicaSet, ReplicaStatus, ReportJudge,
};
use confide_encrypted_body::{BodyKem, BodyPublicKey, RecipientKey, encode_ohttp_keys};
use local::{ask, read_to_end, serve_replicas};
use serde_json::Value;
use site::{Stream, now, server};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::Semaphore,
    task::JoinSet,
};

const MODELS: &str = "/v1/models";
const CHAT: &str = "/v1/chat/completions";
const POST: &str = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\
                    content-length: 2\r\n\r\n{}";
const REPORT: &str = "/v1/aci/attestation";
const KEYS: &str = "/.well-known/ohttp-gateway";
/// The path of requests that are answered when the test says so.
const HELD: &str = "/v1/held";

/// A request as a front sees it: its head, in lower case.
#[derive(Clone)]
struct SeenRequest(String);

impl SeenRequest {
    fn path(&self) -> &str {
        let target = self.0.split(' ').nth(1).unwrap_or_default();
        target.split('?').next().unwrap_or_default()
    }

    /// The key that it names.
    fn key_id(&self) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix("confide-key-id: "))
    }
}

/// A front whose answers are those of a script.
struct Front {
    address: SocketAddr,
    root: Vec<u8>,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    /// Each permit has one request for [`HELD`] answered.
    held: Arc<Semaphore>,
    _running: JoinSet<()>,
}

impl Front {
    async fn start(script: impl Fn(&SeenRequest) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let server = server(confide_channel::Binding::None, None, now);
        let root = server.certificate_der();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (server, script) = (Arc::new(server), Arc::new(script));
        let seen = Arc::<Mutex<Vec<SeenRequest>>>::default();
        let held = Arc::new(Semaphore::new(0));
        let (noted, holding) = (seen.clone(), held.clone());
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (server, script) = (server.clone(), script.clone());
                let (noted, holding) = (noted.clone(), holding.clone());
                connections.spawn(async move {
                    let Ok(accepted) = server.accept(stream).await else { return };
                    let mut stream = accepted.stream;
                    while let Some(request) = read_request(&mut stream).await {
                        noted.lock().unwrap().push(request.clone());
                        if request.path() == HELD {
                            holding.acquire().await.unwrap().forget();
                        }
                        let answer = script(&request);
                        let written = stream.write_all(&answer).await;
                        let is_last =
                            String::from_utf8_lossy(&answer).contains("connection: close");
                        if written.is_err() || stream.flush().await.is_err() || is_last {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, root, seen, held, _running: running }
    }

    fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    fn requests_for(&self, path: &str) -> Vec<SeenRequest> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|request| request.path() == path).cloned().collect()
    }

    fn connect(&self, limits: ClientLimits) -> HttpClient {
        let endpoint = Endpoint::parse(&self.url()).unwrap();
        let connector = Connector::to_proxy(endpoint, [self.root.clone()], now, limits).unwrap();
        HttpClient::new(connector, limits, now)
    }

    /// A client that encrypts bodies only.
    fn client(&self, limits: ClientLimits) -> EncryptedClient {
        let (reports, requests) = (self.connect(limits), self.connect(limits));
        let form = EncryptedForm::Bodies(requests);
        EncryptedClient::new(reports, form, judge(), limits.age_max, now)
    }

    fn replica(&self, limits: ClientLimits) -> (String, RemoteEnd) {
        (self.url(), Arc::new(self.client(limits).with_discovery()).into())
    }
}

/// Reads one request with its body, which comes in chunks if there is one; `None` at the end of the
/// stream.
async fn read_request(stream: &mut Stream) -> Option<SeenRequest> {
    let head = site::read_head(stream).await?;
    if head.contains("transfer-encoding: chunked") {
        let (mut body, mut byte) = (Vec::new(), [0]);
        while !body.ends_with(b"\r\n0\r\n\r\n") {
            stream.read_exact(&mut byte).await.ok()?;
            body.push(byte[0]);
        }
    }
    Some(SeenRequest(head))
}

/// Accepts reports whose text is a key, and refuses all others.
fn judge() -> ReportJudge {
    Arc::new(|report, _nonce| {
        let key = hex::decode(report).map_err(|_| "it is no key".to_owned())?;
        let key = BodyPublicKey::from_bytes(BodyKem::X25519, &key);
        let key = key.map_err(|error| error.to_string())?;
        Ok(JudgedKey { key, not_after: u64::MAX, verification: Value::Null })
    })
}

fn answer_with(body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn make_key() -> BodyPublicKey {
    RecipientKey::generate(BodyKem::X25519).unwrap().public_key().clone()
}

fn report(key: &BodyPublicKey) -> Vec<u8> {
    answer_with(hex::encode(key.as_bytes()))
}

fn key_list<'a>(keys: impl IntoIterator<Item = &'a BodyPublicKey>) -> Vec<u8> {
    answer_with(encode_ohttp_keys(keys))
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
}

async fn wait_until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    site::finish_in_time(waiting).await;
}

async fn exchange(address: SocketAddr, request: &str) -> String {
    read_to_end(&mut ask(address, request).await).await
}

#[tokio::test]
async fn a_request_without_a_body_is_not_sent_to_a_gateway_that_is_refused() {
    let front = Front::start(|request| match request.path() {
        REPORT => answer_with("refused"),
        _ => site::OK.to_vec(),
    })
    .await;
    let limits = ClientLimits::default();
    let set = Arc::new(ReplicaSet::new([front.replica(limits)]));
    let local = serve_replicas(set.clone(), AllowedOrigins::default(), limits).await;
    let answer = exchange(local.address, &get(MODELS)).await;
    assert!(
        answer.starts_with("HTTP/1.1 502 ") && answer.contains("evidence_rejected"),
        "{answer}"
    );
    assert!(front.requests_for(MODELS).is_empty(), "nothing but the report is requested");
    let state = set.describe().remove(0);
    assert!(!state.is_admitted && state.failure.is_some_and(|failure| failure.is_refused));
}

#[tokio::test]
async fn an_answer_that_comes_late_does_not_admit_a_gateway_that_was_refused_meanwhile() {
    let (key, is_good) = (make_key(), Arc::new(AtomicBool::new(true)));
    let good = is_good.clone();
    let front = Front::start(move |request| match request.path() {
        REPORT if good.load(Ordering::SeqCst) => report(&key),
        REPORT => answer_with("refused"),
        _ => site::OK.to_vec(),
    })
    .await;
    // Each request has the report judged anew.
    let limits = ClientLimits { age_max: Duration::ZERO, ..ClientLimits::default() };
    let set = Arc::new(ReplicaSet::new([front.replica(limits)]));
    let local = serve_replicas(set.clone(), AllowedOrigins::default(), limits).await;
    let mut late = ask(local.address, &get(HELD)).await;
    wait_until(|| !front.requests_for(HELD).is_empty()).await;
    assert!(set.describe()[0].is_admitted);
    is_good.store(false, Ordering::SeqCst);
    assert!(exchange(local.address, &get(MODELS)).await.contains("evidence_rejected"));
    front.held.add_permits(1);
    let answer = read_to_end(&mut late).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let state = set.describe().remove(0);
    assert!(!state.is_admitted && state.failure.is_some_and(|failure| failure.is_refused));
}

#[tokio::test]
async fn a_report_does_not_wait_for_requests_to_end() {
    let key = make_key();
    let front = Front::start(move |request| match request.path() {
        REPORT => report(&key),
        _ => site::OK.to_vec(),
    })
    .await;
    let (age_max, queue) = (Duration::ZERO, Duration::from_millis(100));
    let limits = ClientLimits { connections: 1, queue, age_max, ..ClientLimits::default() };
    let client = Arc::new(front.client(limits));
    let set = Arc::new(ReplicaSet::of_one(client.clone()));
    let local = serve_replicas(set, AllowedOrigins::default(), limits).await;
    let _running = ask(local.address, &get(HELD)).await;
    wait_until(|| !front.requests_for(HELD).is_empty()).await;
    client.find_key().await.expect("the only place for requests is not that of reports");
}

#[tokio::test]
async fn further_gateways_are_looked_for_only_where_that_is_allowed() {
    let (key, other) = (make_key(), make_key());
    let front = Front::start(move |request| match request.path() {
        REPORT => report(&key),
        KEYS => key_list([&key, &other]),
        _ => site::OK.to_vec(),
    })
    .await;
    let limits = ClientLimits::default();
    for is_allowed in [false, true] {
        let client = front.client(limits);
        let client = if is_allowed { client.with_discovery() } else { client };
        let set = Arc::new(ReplicaSet::of_one(Arc::new(client)));
        set.open().await.expect("it is admitted");
        let maintained = tokio::spawn(set.clone().maintain());
        let local = serve_replicas(set, AllowedOrigins::default(), limits).await;
        for _ in 0..20 {
            assert!(exchange(local.address, &get(MODELS)).await.starts_with("HTTP/1.1 200 "));
        }
        match is_allowed {
            true => wait_until(|| !front.requests_for(KEYS).is_empty()).await,
            false => assert!(front.requests_for(KEYS).is_empty()),
        }
        maintained.abort();
    }
}

#[tokio::test]
async fn a_gateway_that_is_listed_is_tried_before_the_start_fails() {
    let (refused, good) = (make_key(), make_key());
    let good_id = good.key_id().to_string();
    let front = Front::start(move |request| match request.path() {
        // A report without a name is that of whichever gateway.
        REPORT if request.key_id() == Some(&good_id) => report(&good),
        REPORT => answer_with("refused"),
        KEYS => key_list([&refused, &good]),
        _ => site::OK.to_vec(),
    })
    .await;
    let limits = ClientLimits::default();
    let set = Arc::new(ReplicaSet::new([front.replica(limits)]));
    set.open().await.expect("one of the two is admitted");
    let states = set.describe();
    let admitted: Vec<_> = states.iter().map(|state| state.is_admitted).collect();
    assert_eq!(admitted, [false, false, true]);
    // Where none is, each reason is told.
    let alone = Front::start(|request| match request.path() {
        REPORT => answer_with("refused"),
        _ => key_list([&make_key()]),
    })
    .await;
    let set = Arc::new(ReplicaSet::new([alone.replica(limits)]));
    assert_eq!(set.open().await.expect_err("none is admitted").len(), 2);
}

/// A front that lists `listed`, gives the reports of `held`, of the first one where none is named, and
/// refuses those of others. Its answers to requests are in clear.
async fn start_listing_front(listed: Vec<BodyPublicKey>, held: Vec<BodyPublicKey>) -> Front {
    Front::start(move |request| match (request.path(), request.key_id()) {
        (KEYS, _) => key_list(&listed),
        (REPORT, None) => report(&held[0]),
        (REPORT, Some(id)) => match held.iter().find(|key| key.key_id().to_string() == id) {
            Some(key) => report(key),
            None => answer_with("refused"),
        },
        _ => site::OK.to_vec(),
    })
    .await
}

fn make_keys(count: usize) -> Vec<BodyPublicKey> {
    (0..count).map(|_| make_key()).collect()
}

/// Sends so many chats, one after the other, and gives the keys to which they were encrypted.
async fn chat_many(set: &Arc<ReplicaSet>, fronts: &[&Front], count: usize) -> Vec<String> {
    let local =
        serve_replicas(set.clone(), AllowedOrigins::default(), ClientLimits::default()).await;
    for _ in 0..count {
        let answer = exchange(local.address, POST).await;
        assert!(answer.contains("answer_not_encrypted"), "{answer}");
    }
    let chats: Vec<_> = fronts.iter().flat_map(|front| front.requests_for(CHAT)).collect();
    assert_eq!(chats.len(), count, "each was sent once");
    chats.iter().map(|chat| chat.key_id().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn keys_that_are_listed_and_have_no_accepted_report_get_no_request() {
    let key = make_key();
    let front = start_listing_front(make_keys(16), vec![key.clone()]).await;
    let set = Arc::new(ReplicaSet::new([front.replica(ClientLimits::default())]));
    set.open().await.expect("it is admitted");
    let maintained = tokio::spawn(set.clone().maintain());
    let is_judged =
        || set.describe().iter().all(|state| state.is_admitted || state.failure.is_some());
    wait_until(|| set.describe().len() > 1 && is_judged()).await;
    let states = set.describe();
    assert_eq!(states.len(), 16, "there is no place for more");
    assert!(states[1..].iter().all(|state| state.failure.as_ref().is_some_and(|f| f.is_refused)));
    let used = chat_many(&set, &[&front], 20).await;
    assert!(used.iter().all(|id| *id == key.key_id().to_string()), "{used:?}");
    maintained.abort();
}

#[tokio::test]
async fn listed_keys_that_all_lead_to_one_gateway_are_one_replica() {
    let (key, listed) = (make_key(), make_keys(16));
    let judged = key.clone();
    let front = Front::start(move |request| match request.path() {
        KEYS => key_list(&listed),
        REPORT => report(&judged),
        _ => site::OK.to_vec(),
    })
    .await;
    let set = Arc::new(ReplicaSet::new([front.replica(ClientLimits::default())]));
    set.open().await.expect("it is admitted");
    let maintained = tokio::spawn(set.clone().maintain());
    wait_until(|| front.requests_for(REPORT).len() == 16 && set.describe().len() == 1).await;
    let state = set.describe().remove(0);
    assert_eq!(state.key_id, Some(key.key_id().to_string()));
    maintained.abort();
}

#[tokio::test]
async fn a_front_that_lists_the_keys_behind_another_one_takes_no_place_and_no_gateway_from_it() {
    let held = make_keys(2);
    let listed = [held.clone(), make_keys(14)].concat();
    // It passes requests for their reports on to them.
    let hostile = start_listing_front(listed, [vec![make_key()], held.clone()].concat()).await;
    let honest = start_listing_front(held.clone(), held.clone()).await;
    let limits = ClientLimits::default();
    let set = Arc::new(ReplicaSet::new([hostile.replica(limits), honest.replica(limits)]));
    set.open().await.expect("both are admitted");
    let maintained = tokio::spawn(set.clone().maintain());
    let admitted = || {
        let states = set.describe().into_iter();
        let admitted = states.filter(|state| state.is_admitted && state.url == honest.url());
        admitted.filter_map(|state| state.key_id).collect::<Vec<_>>()
    };
    wait_until(|| admitted().len() == 2).await;
    let mut ids = admitted();
    let mut wanted: Vec<_> = held.iter().map(|key| key.key_id().to_string()).collect();
    ids.sort();
    wanted.sort();
    assert_eq!(ids, wanted);
    let of_hostile = |state: &&ReplicaStatus| state.url == hostile.url();
    wait_until(|| set.describe().iter().filter(of_hostile).count() == 8).await;
    maintained.abort();
}

#[tokio::test]
async fn lists_that_are_malformed_too_long_or_missing_lead_to_no_replica() {
    let x_wing = RecipientKey::generate(BodyKem::XWing).unwrap().public_key().clone();
    let lists = [
        answer_with(""),
        answer_with("no keys"),
        answer_with([0, 41]),
        answer_with([255; 64]),
        answer_with(vec![0; 32 * 1024 + 1]),
        key_list(&make_keys(17)),
        b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\nconnection: close\r\n\r\ncut".to_vec(),
    ];
    for list in lists {
        let shown = String::from_utf8_lossy(&list[..list.len().min(99)]).into_owned();
        let front = Front::start(move |request| match request.path() {
            KEYS => list.clone(),
            _ => answer_with("refused"),
        })
        .await;
        let set = Arc::new(ReplicaSet::new([front.replica(ClientLimits::default())]));
        assert_eq!(set.open().await.expect_err("none is admitted").len(), 1, "{shown}");
        assert_eq!((front.requests_for(KEYS).len(), set.describe().len()), (1, 1), "{shown}");
    }
    // Of two kinds the first one counts while no key is judged.
    let front = Front::start(move |request| match request.path() {
        KEYS => key_list([&x_wing, &make_key()]),
        _ => answer_with("refused"),
    })
    .await;
    let set = Arc::new(ReplicaSet::new([front.replica(ClientLimits::default())]));
    assert_eq!(set.open().await.expect_err("none is admitted").len(), 2);
}

#[tokio::test]
async fn a_front_that_says_each_time_that_the_key_is_gone_has_no_request_repeated() {
    let key = make_key();
    let problem = "HTTP/1.1 422 Unprocessable Content\r\ncontent-type: application/problem+json\r\n\
                   content-length: 2\r\n\r\n{}";
    let front = Front::start(move |request| match request.path() {
        REPORT => report(&key),
        CHAT => problem.as_bytes().to_vec(),
        _ => site::OK.to_vec(),
    })
    .await;
    let limits = ClientLimits::default();
    let set = Arc::new(ReplicaSet::new([front.replica(limits)]));
    let local = serve_replicas(set, AllowedOrigins::default(), limits).await;
    for _ in 0..5 {
        let answer = exchange(local.address, POST).await;
        assert!(answer.contains("gateway_key_replaced"), "{answer}");
    }
    assert_eq!((front.requests_for(CHAT).len(), front.requests_for(REPORT).len()), (5, 5));
}

#[tokio::test]
async fn a_key_that_expires_while_a_request_waits_for_a_place_is_not_used() {
    static NOW: AtomicU64 = AtomicU64::new(100);
    let (key, is_first) = (make_key(), AtomicBool::new(true));
    let front = Front::start(move |request| match request.path() {
        REPORT if is_first.swap(false, Ordering::SeqCst) => report(&key),
        REPORT => answer_with("refused"),
        _ => site::OK.to_vec(),
    })
    .await;
    let limits = ClientLimits { connections: 1, ..ClientLimits::default() };
    let judge = judge();
    let until_100: ReportJudge = Arc::new(move |report, nonce| {
        judge(report, nonce).map(|judged| JudgedKey { not_after: 100, ..judged })
    });
    let form = EncryptedForm::Bodies(front.connect(limits));
    let clock = || NOW.load(Ordering::SeqCst);
    let client =
        EncryptedClient::new(front.connect(limits), form, until_100, limits.age_max, clock);
    let set = Arc::new(ReplicaSet::of_one(Arc::new(client)));
    let local = serve_replicas(set.clone(), AllowedOrigins::default(), limits).await;
    let mut running = ask(local.address, &get(HELD)).await;
    wait_until(|| !front.requests_for(HELD).is_empty()).await;
    let mut waiting = ask(local.address, POST).await;
    wait_until(|| set.describe()[0].running == 2).await;
    NOW.store(101, Ordering::SeqCst);
    front.held.add_permits(1);
    assert!(read_to_end(&mut running).await.starts_with("HTTP/1.1 200 "));
    let answer = read_to_end(&mut waiting).await;
    assert!(answer.contains("evidence_rejected"), "{answer}");
    assert!(front.requests_for(CHAT).is_empty() && !set.describe()[0].is_admitted);
}

//! Several model servers behind one gateway: which of them gets a request, and which never does.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::Semaphore;

use super::*;
use crate::{ModelServer, ServerState};

/// A model server that answers with its name.
#[derive(Clone)]
pub(super) struct NamedServer {
    name: &'static str,
    pub(super) address: SocketAddr,
    /// The request lines and bodies that it has read, without health checks.
    requests: Arc<Mutex<Vec<(String, String)>>>,
    health_checks: Arc<AtomicUsize>,
    is_healthy: Arc<AtomicBool>,
    /// One permit for each answer that it may send.
    answers: Arc<Semaphore>,
}

impl NamedServer {
    pub(super) async fn start(name: &'static str) -> Self {
        let server = Self::start_holding(name).await;
        server.answers.add_permits(1000);
        server
    }

    /// Starts a server that reads requests, and answers each one when it is let go.
    pub(super) async fn start_holding(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            name,
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
            health_checks: Arc::default(),
            is_healthy: Arc::new(AtomicBool::new(true)),
            answers: Arc::new(Semaphore::new(0)),
        };
        let own = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(own.clone().answer_requests(stream));
            }
        });
        server
    }

    async fn answer_requests(self, mut stream: TcpStream) {
        while let Some((line, body)) = read_request(&mut stream).await {
            let mut status = "200 OK";
            if line == "GET /health HTTP/1.1" {
                self.health_checks.fetch_add(1, Ordering::SeqCst);
                if !self.is_healthy.load(Ordering::SeqCst) {
                    status = "500 Internal Server Error";
                }
            } else {
                self.requests.lock().unwrap().push((line, body));
                self.answers.acquire().await.unwrap().forget();
            }
            let (name, length) = (self.name, self.name.len());
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{name}");
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    pub(super) fn let_go(&self, answers: usize) {
        self.answers.add_permits(answers);
    }

    pub(super) fn bodies(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|(_, body)| body.clone()).collect()
    }

    pub(super) fn configuration(&self) -> ModelServer {
        server_at(self.address)
    }
}

/// Reads a request; returns its line and its body.
async fn read_request(stream: &mut TcpStream) -> Option<(String, String)> {
    let head = read_until(stream, "\r\n\r\n").await;
    let line = head.lines().next()?.to_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    match head.contains("transfer-encoding: chunked") {
        true => body = read_until(stream, LAST_CHUNK).await.into_bytes(),
        false => drop(stream.read_exact(&mut body).await.ok()?),
    }
    Some((line, String::from_utf8(body).unwrap()))
}

pub(super) fn server_at(address: SocketAddr) -> ModelServer {
    ModelServer::new(Upstream::parse(&format!("http://{address}")).unwrap())
}

fn server_for(server: &NamedServer, models: &[&str]) -> ModelServer {
    let models = models.iter().map(|&model| model.to_owned()).collect();
    ModelServer { models, ..server.configuration() }
}

/// Starts a gateway with the inference routes before servers of the default group.
pub(super) async fn gateway_before(
    servers: Vec<ModelServer>,
    limits: GatewayLimits,
) -> RunningGateway {
    let routes = Route::inference_routes(DEFAULT_GROUP);
    let configuration = GatewayConfiguration {
        binding: Binding::Key,
        servers,
        routes,
        tunnel_allow: Vec::new(),
        answer_shape: None,
    };
    configuration.check().unwrap();
    gateway_with(configuration, limits).await
}

/// Limits under which no server is asked for its health.
pub(super) fn no_health_checks() -> GatewayLimits {
    GatewayLimits { health_check: GENEROUS, ..GatewayLimits::default() }
}

/// A prompt with `fields`, which end with their line breaks.
pub(super) fn post(fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{fields}\
         content-length: {length}\r\n\r\n{body}"
    )
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
}

/// Waits until the condition holds.
pub(super) async fn wait_until(condition: impl Fn() -> bool) {
    finish_in_time(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

fn assert_code(answer: &str, status: &str, code: &str) {
    let has_code = answer.contains(&format!("\"code\":\"{code}\""));
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && has_code, "{code}: {answer}");
}

#[tokio::test]
async fn a_request_goes_to_the_server_that_lists_its_model() {
    let (a, b) = (NamedServer::start("server a").await, NamedServer::start("server b").await);
    let servers = vec![server_for(&a, &["a", "both"]), server_for(&b, &["org/b", "both"])];
    let gateway = gateway_before(servers, no_health_checks()).await;
    for (body, wanted) in [
        (r#"{"model":"a","stream":false}"#, "server a"),
        (r#"{"messages":[{"model":"a"}],"model":"org/b"}"#, "server b"),
        (r#"{"mod\u0065l":"\u0061"}"#, "server a"),
        (r#"{"model":"org\/b"}"#, "server b"),
    ] {
        for _ in 0..3 {
            let got = exchange(gateway.address, &post("", body)).await;
            assert!(got.starts_with("HTTP/1.1 200 ") && got.ends_with(wanted), "{body}: {got}");
        }
    }
    let chunked = "POST /v1/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
                   transfer-encoding: chunked\r\n\r\n8\r\n{\"model\"\r\n7\r\n:\"org/b\r\n2\r\n\"}\r\n0\r\n\r\n";
    assert!(exchange(gateway.address, chunked).await.ends_with("server b"));
    assert_eq!(b.bodies().last().unwrap(), r#"{"model":"org/b"}"#);
    for _ in 0..2 {
        let got = exchange(gateway.address, &post("", r#"{"model":"both"}"#)).await;
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    }
    assert_eq!((a.bodies().len(), b.bodies().len()), (7, 8));
}

#[tokio::test]
async fn a_request_whose_model_is_not_certain_goes_nowhere() {
    let a = NamedServer::start("a").await;
    let gateway = gateway_before(vec![server_for(&a, &["a"])], no_health_checks()).await;
    for (body, status, code) in [
        (r#"{"model":"other"}"#, "404", "model_not_found"),
        (r#"{"model":"A"}"#, "404", "model_not_found"),
        (r#"{"model":"a","model":"a"}"#, "400", "model_not_named"),
        (r#"{"model":"a","mod\u0065l":"other"}"#, "400", "model_not_named"),
        (r#"{"model":"a","Model":"other"}"#, "400", "model_not_named"),
        (r#"{"model":["a"]}"#, "400", "model_not_named"),
        (r#"{"prompt":"a"}"#, "400", "model_not_named"),
        ("model=a", "400", "model_not_named"),
        ("", "400", "model_not_named"),
    ] {
        assert_code(&exchange(gateway.address, &post("", body)).await, status, code);
    }
    let body = r#"{"model":"a"}"#;
    for (fields, code) in [
        ("content-encoding: gzip\r\n", "content_coding"),
        ("content-type: application/json; charset=utf-16\r\n", "content_type"),
    ] {
        assert_code(&exchange(gateway.address, &post(fields, body)).await, "415", code);
    }
    let refused = exchange(gateway.address, &post("content-type: text/plain\r\n", body)).await;
    assert_code(&refused, "415", "content_type");
    assert!(refused.contains("wanted one Content-Type, JSON or multipart/, and no"), "{refused}");
    let form = post("content-type: multipart/form-data; boundary=x\r\n", "--x--");
    assert_code(&exchange(gateway.address, &form).await, "400", "model_not_named");
    assert_code(&exchange(gateway.address, &get("/v1/files")).await, "400", "model_not_named");
    assert!(a.bodies().is_empty(), "{:?}", a.bodies());
    assert!(exchange(gateway.address, &post("", body)).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_body_over_the_parsers_size_for_one_thread_is_read_like_any_other() {
    let a = NamedServer::start("a").await;
    let gateway = gateway_before(vec![server_for(&a, &["a"])], no_health_checks()).await;
    let long = format!(r#"{{"prompt":"{}","model":"a"}}"#, "x".repeat(600_000));
    assert!(exchange(gateway.address, &post("", &long)).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(a.bodies(), [long]);
}

#[tokio::test]
async fn requests_without_a_model_go_to_servers_that_list_none() {
    let (a, any) = (NamedServer::start("a").await, NamedServer::start("any").await);
    let servers = vec![server_for(&a, &["a"]), server_for(&any, &[])];
    let gateway = gateway_before(servers, no_health_checks()).await;
    let form = post("content-type: Multipart/Form-Data; boundary=x\r\n", "--x--");
    let other = post("", r#"{"model":"other"}"#);
    for request in [get("/v1/models"), get("/v1/files"), form, other] {
        let got = exchange(gateway.address, &request).await;
        assert!(got.ends_with("\r\n\r\nany"), "{request}: {got}");
    }
    assert!(a.bodies().is_empty());
}

#[tokio::test]
async fn the_gateway_lists_the_models_of_servers_that_all_list_theirs() {
    let (a, b) = (NamedServer::start("a").await, NamedServer::start("b").await);
    let servers = vec![server_for(&a, &["z", "both"]), server_for(&b, &["both", "a"])];
    let gateway = gateway_before(servers, no_health_checks()).await;
    let got = exchange(gateway.address, &get("/v1/models")).await;
    let list: serde_json::Value =
        serde_json::from_str(got.split_once("\r\n\r\n").unwrap().1).unwrap();
    let model = |id: &str| serde_json::json!({ "id": id, "object": "model" });
    let wanted = serde_json::json!({
        "object": "list", "data": [model("a"), model("both"), model("z")]
    });
    assert_eq!(list, wanted);
    assert!(a.bodies().is_empty() && b.bodies().is_empty());
    // A model that is named in the path is described by a server that lists it.
    for (path, wanted) in [("/v1/models/%7a", "a"), ("/v1/models/a", "b")] {
        assert!(
            exchange(gateway.address, &get(path)).await.ends_with(&format!("\r\n\r\n{wanted}"))
        );
    }
    let unknown = exchange(gateway.address, &get("/v1/models/other")).await;
    assert_code(&unknown, "404", "model_not_found");
    assert_eq!((a.bodies().len(), b.bodies().len()), (1, 1));
}

#[tokio::test]
async fn a_path_leads_to_its_own_group() {
    let (chat, audio) = (NamedServer::start("chat").await, NamedServer::start("audio").await);
    let mut routes = Route::inference_routes(DEFAULT_GROUP);
    for route in routes.iter_mut().filter(|route| route.path.starts_with("/v1/audio/")) {
        route.group = "audio".into();
    }
    let audio_server = ModelServer { group: "audio".into(), ..audio.configuration() };
    let servers = vec![chat.configuration(), audio_server];
    let configuration = GatewayConfiguration {
        binding: Binding::Key,
        servers,
        routes,
        tunnel_allow: Vec::new(),
        answer_shape: None,
    };
    configuration.check().unwrap();
    let gateway = gateway_with(configuration, no_health_checks()).await;
    for _ in 0..3 {
        let prompt = post("", "{}");
        assert!(exchange(gateway.address, &prompt).await.ends_with("\r\n\r\nchat"));
        let speech = prompt.replace("/v1/chat/completions", "/v1/audio/speech");
        assert!(exchange(gateway.address, &speech).await.ends_with("\r\n\r\naudio"));
    }
}

#[tokio::test]
async fn weights_hold_for_one_client_and_for_many() {
    let (a, b) = (NamedServer::start("a").await, NamedServer::start("b").await);
    let servers = vec![ModelServer { weight: 3, ..a.configuration() }, b.configuration()];
    let gateway = gateway_before(servers, no_health_checks()).await;
    for _ in 0..16 {
        exchange(gateway.address, &post("", "{}")).await;
    }
    assert_eq!((a.bodies().len(), b.bodies().len()), (12, 4));

    let a = NamedServer::start_holding("a").await;
    let b = NamedServer::start_holding("b").await;
    let servers = vec![ModelServer { weight: 3, ..a.configuration() }, b.configuration()];
    let gateway = gateway_before(servers, no_health_checks()).await;
    let mut clients = Vec::new();
    for sent in 1..=16 {
        clients.push(ask(gateway.address, &post("", "{}")).await);
        wait_until(|| a.bodies().len() + b.bodies().len() == sent).await;
    }
    assert_eq!((a.bodies().len(), b.bodies().len()), (12, 4));
    let running: Vec<u32> = gateway.states.servers().iter().map(|state| state.running).collect();
    assert_eq!(running, [12, 4]);
    // The slow server gets less: one that has answered all is chosen next.
    b.let_go(4);
    wait_until(|| gateway.states.servers()[1].running == 0).await;
    clients.push(ask(gateway.address, &post("", "{}")).await);
    wait_until(|| b.bodies().len() == 5).await;
    drop(clients);
    wait_until(|| gateway.states.servers().iter().all(|state| state.running == 0)).await;
}

#[tokio::test]
async fn a_server_that_cannot_be_connected_to_is_tried_last() {
    let (_closed, address) = closed_address();
    let live = NamedServer::start("live").await;
    let servers = vec![server_at(address), live.configuration()];
    let gateway = gateway_before(servers, no_health_checks()).await;
    for _ in 0..4 {
        let got = exchange(gateway.address, &post("", r#"{"prompt":"x"}"#)).await;
        assert!(got.starts_with("HTTP/1.1 200 ") && got.ends_with("live"), "{got}");
    }
    assert_eq!(live.bodies(), [r#"{"prompt":"x"}"#; 4]);
    let states = gateway.states.servers();
    let state = |state: &ServerState| (state.is_healthy, state.connect_failures, state.running);
    assert_eq!((state(&states[0]), state(&states[1])), ((false, 1, 0), (true, 0, 0)));
    assert_eq!(states[0].url, format!("http://{address}"));
}

#[tokio::test]
async fn without_any_server_each_is_tried_once() {
    let ((_one, one), (_two, two)) = (closed_address(), closed_address());
    let gateway = gateway_before(vec![server_at(one), server_at(two)], no_health_checks()).await;
    let got = exchange(gateway.address, &post("", "{}")).await;
    assert_code(&got, "502", "upstream_unreachable");
    let failures: Vec<u64> =
        gateway.states.servers().iter().map(|state| state.connect_failures).collect();
    assert_eq!(failures, [1, 1]);
}

#[tokio::test]
async fn a_request_whose_kept_connection_was_closed_unsent_goes_to_the_next_server() {
    // It answers one request, and is gone.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let leaving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        drop(listener);
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nleaving";
        stream.write_all(answer).await.unwrap();
    });
    let live = NamedServer::start("live").await;
    let servers = vec![
        ModelServer { weight: 1000, ..server_at(address) },
        ModelServer { weight: 1, ..live.configuration() },
    ];
    let gateway = gateway_before(servers, no_health_checks()).await;
    assert!(exchange(gateway.address, GET_CLOSE).await.ends_with("leaving"));
    leaving.await.unwrap();
    assert!(exchange(gateway.address, GET_CLOSE).await.ends_with("live"));
}

#[tokio::test]
async fn a_request_of_which_bytes_were_written_is_not_sent_to_another_server() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let mut servers = Vec::new();
    for _ in 0..2 {
        let saw = saw.clone();
        let address = upstream(move |mut stream| {
            let saw = saw.clone();
            async move {
                let _ = saw.send(read_request(&mut stream).await);
            }
        })
        .await;
        servers.push(server_at(address));
    }
    let gateway = gateway_before(servers.clone(), no_health_checks()).await;
    let got = exchange(gateway.address, &post("", "{}")).await;
    assert_code(&got, "502", "upstream_broke_off");
    // The same where the body is in memory and could be sent again.
    servers.iter_mut().for_each(|server| server.models = vec!["m".into()]);
    let gateway = gateway_before(servers, no_health_checks()).await;
    let got = exchange(gateway.address, &post("", r#"{"model":"m"}"#)).await;
    assert_code(&got, "502", "upstream_broke_off");
    for body in ["{}", r#"{"model":"m"}"#] {
        assert_eq!(finish_in_time(seen.recv()).await.unwrap().unwrap().1, body);
    }
    assert!(seen.try_recv().is_err(), "a prompt was sent twice");
}

#[tokio::test]
async fn a_server_that_fails_its_health_checks_gets_no_request_until_it_passes_one() {
    let (a, b) = (NamedServer::start("a").await, NamedServer::start("b").await);
    let limits =
        GatewayLimits { health_check: Duration::from_millis(20), ..GatewayLimits::default() };
    let gateway = gateway_before(vec![a.configuration(), b.configuration()], limits).await;
    let is_healthy = |index: usize| gateway.states.servers()[index].is_healthy;
    a.is_healthy.store(false, Ordering::SeqCst);
    wait_until(|| !is_healthy(0)).await;
    for _ in 0..4 {
        assert!(exchange(gateway.address, &post("", "{}")).await.ends_with("\r\n\r\nb"));
    }
    b.is_healthy.store(false, Ordering::SeqCst);
    wait_until(|| !is_healthy(1)).await;
    // If all are down, the check may be wrong: they are tried.
    assert!(exchange(gateway.address, &post("", "{}")).await.starts_with("HTTP/1.1 200 "));
    a.is_healthy.store(true, Ordering::SeqCst);
    wait_until(|| is_healthy(0)).await;
    for _ in 0..4 {
        assert!(exchange(gateway.address, &post("", "{}")).await.ends_with("\r\n\r\na"));
    }
}

#[tokio::test]
async fn one_server_alone_is_not_asked_and_a_server_without_a_check_is_healthy() {
    let limits =
        GatewayLimits { health_check: Duration::from_millis(10), ..GatewayLimits::default() };
    let alone = NamedServer::start("alone").await;
    let gateway = gateway_before(vec![alone.configuration()], limits).await;
    let (saw, mut seen) = mpsc::unbounded_channel();
    let without = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            let _ = saw.send(read_request(&mut stream).await);
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
        }
    })
    .await;
    let other = NamedServer::start("other").await;
    let other_path = ModelServer { health_path: "/up?now".into(), ..server_at(without) };
    let pair = gateway_before(vec![other_path, other.configuration()], limits).await;
    for _ in 0..4 {
        let (line, _) = finish_in_time(seen.recv()).await.unwrap().unwrap();
        assert_eq!(line, "GET /up?now HTTP/1.1");
    }
    assert!(pair.states.servers().iter().all(|state| state.is_healthy));
    assert!(other.health_checks.load(Ordering::SeqCst) > 0);
    assert_eq!(alone.health_checks.load(Ordering::SeqCst), 0);
    drop(gateway);
}

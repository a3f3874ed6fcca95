//! An upstream that is another one than the configuration names (issue line 1).

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use super::{
    model_servers::{no_health_checks, server_at, wait_until},
    *,
};
use crate::{GatewayMetrics, Telemetry};

const OURS: &str = "ab";
const OTHER: &str = "cd";

/// A model server whose model can be exchanged while it runs; each connection keeps the model that
/// it was accepted with, as the processes of two servers on one port do.
#[derive(Clone)]
struct ModelServer {
    manifest: Arc<Mutex<Option<&'static str>>>,
    questions: Arc<AtomicUsize>,
    prompts: Arc<Mutex<Vec<Option<&'static str>>>>,
    /// Prompts that came on a connection without a question.
    unasked: Arc<AtomicUsize>,
    closes: bool,
    /// Whether it sends one byte more than its answers to prompts have.
    exceeds: bool,
}

impl ModelServer {
    async fn start(closes: bool) -> (Self, SocketAddr) {
        Self::behaving(closes, false).await
    }

    async fn behaving(closes: bool, exceeds: bool) -> (Self, SocketAddr) {
        let server = Self {
            manifest: Arc::new(Mutex::new(Some(OURS))),
            questions: Arc::default(),
            prompts: Arc::default(),
            unasked: Arc::default(),
            closes,
            exceeds,
        };
        let own = server.clone();
        let address = upstream(move |stream| own.clone().talk(stream)).await;
        (server, address)
    }

    async fn talk(self, mut stream: TcpStream) {
        let manifest = *self.manifest.lock().unwrap();
        let mut is_asked = false;
        loop {
            let mut excess = "";
            let head = read_until(&mut stream, "\r\n\r\n").await;
            let body = match head.split(' ').nth(1) {
                None => return,
                Some("/v1/models") => {
                    self.questions.fetch_add(1, Ordering::SeqCst);
                    is_asked = true;
                    let manifest =
                        manifest.map_or("null".into(), |byte| format!("\"{}\"", byte.repeat(32)));
                    format!(r#"{{"data":[{{"confide_manifest_sha256":{manifest}}}]}}"#)
                }
                Some("/stall") => {
                    let _ = stream.write_all(CHUNKED.as_bytes()).await;
                    read_to_end(&mut stream).await;
                    return;
                }
                Some(_) => {
                    self.prompts.lock().unwrap().push(manifest);
                    self.unasked.fetch_add(usize::from(!is_asked), Ordering::SeqCst);
                    excess = if self.exceeds { "!" } else { "" };
                    "ok".into()
                }
            };
            let fields = if self.closes { "connection: close\r\n" } else { "" };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\n{fields}content-length: {length}\r\n\r\n{body}{excess}"
            );
            if stream.write_all(answer.as_bytes()).await.is_err() || self.closes {
                return;
            }
        }
    }

    fn exchange_for(&self, manifest: Option<&'static str>) {
        *self.manifest.lock().unwrap() = manifest;
    }

    fn prompts(&self) -> Vec<Option<&'static str>> {
        self.prompts.lock().unwrap().clone()
    }
}

async fn attested_gateway(upstream: SocketAddr, limits: GatewayLimits) -> RunningGateway {
    attested_gateway_before(&[upstream], limits).await
}

async fn attested_gateway_before(
    upstreams: &[SocketAddr],
    limits: GatewayLimits,
) -> RunningGateway {
    gateway_with(attested_configuration(upstreams), limits).await
}

fn attested_configuration(upstreams: &[SocketAddr]) -> GatewayConfiguration {
    let upstream = Upstream::parse(&format!("http://{}", upstreams[0])).unwrap();
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    configuration.servers = upstreams.iter().map(|&address| server_at(address)).collect();
    for server in &mut configuration.servers {
        server.model_manifest_sha256 = Some([0xab; 32]);
    }
    configuration.add_route(Route::parse("/stall", DEFAULT_GROUP).unwrap());
    configuration
}

/// Limits under which nothing is asked at intervals, so that all that happens follows from the
/// requests.
fn no_checks() -> GatewayLimits {
    GatewayLimits { upstream_check: GENEROUS, ..no_health_checks() }
}

const PROMPT: &str = "POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n";
const PROMPT_CLOSE: &str =
    "POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_model_server_swapped_behind_a_running_gateway_gets_no_prompt() {
    for (other, closes) in [(Some(OTHER), false), (None, false), (Some(OTHER), true)] {
        let (server, address) = ModelServer::start(closes).await;
        let limits = GatewayLimits { upstream_idle: Duration::ZERO, ..no_checks() };
        let gateway = attested_gateway(address, limits).await;
        let first = exchange(gateway.address, PROMPT_CLOSE).await;
        assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
        server.exchange_for(other);
        // The one that finds out is told; it is the last that is answered.
        let second = exchange(gateway.address, PROMPT_CLOSE).await;
        assert!(second.starts_with("HTTP/1.1 503 "), "{second}");
        assert!(second.contains("upstream_changed"), "{second}");
        assert_eq!(server.prompts(), [Some(OURS)], "the other model saw a prompt");
        // Nobody is let in any more, not even when the first model is back.
        server.exchange_for(Some(OURS));
        assert_eq!(exchange(gateway.address, PROMPT_CLOSE).await, "");
        let shown = "GET /.well-known/confide HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
        assert_eq!(exchange(gateway.address, shown).await, "", "it still claims its model");
    }
}

#[tokio::test]
async fn the_question_for_the_model_is_asked_once_for_each_new_connection() {
    let (server, address) = ModelServer::start(false).await;
    let gateway = attested_gateway(address, no_checks()).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    for _ in 0..5 {
        let get = "GET /v1/files HTTP/1.1\r\nhost: h\r\n\r\n";
        client.write_all(get.as_bytes()).await.unwrap();
        assert!(read_until(&mut client, "\r\n\r\nok").await.starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(server.questions.load(Ordering::SeqCst), 1);
    assert_eq!(server.prompts().len(), 5);
}

/// A byte beyond the answer ends the connection; that server is not one that always closes.
#[tokio::test]
async fn an_upstream_that_sends_more_than_its_answer_is_asked_where_the_prompt_goes() {
    let (server, address) = ModelServer::behaving(false, true).await;
    let gateway = attested_gateway(address, no_checks()).await;
    for _ in 0..20 {
        let got = exchange(gateway.address, PROMPT_CLOSE).await;
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    }
    assert_eq!(server.prompts().len(), 20);
    assert_eq!(server.unasked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn another_model_closes_sessions_and_running_answers_without_any_request() {
    let (server, address) = ModelServer::start(false).await;
    let limits =
        GatewayLimits { upstream_check: Duration::from_millis(20), ..GatewayLimits::default() };
    let gateway = attested_gateway(address, limits).await;
    let mut idle = ask(gateway.address, PROMPT).await;
    assert!(read_until(&mut idle, "\r\n\r\nok").await.ends_with("ok"));
    let stall = "GET /stall HTTP/1.1\r\nhost: h\r\n\r\n";
    let mut running = ask(gateway.address, stall).await;
    assert!(read_until(&mut running, "\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
    server.exchange_for(Some(OTHER));
    assert_eq!(read_to_end(&mut idle).await, "");
    let rest = read_to_end(&mut running).await;
    assert!(!rest.ends_with(LAST_CHUNK), "a cut answer looks complete: {rest}");
    assert_eq!(exchange(gateway.address, PROMPT_CLOSE).await, "");
}

#[tokio::test]
async fn an_upstream_that_is_away_or_loading_is_not_another_one() {
    let (_closed, address) = closed_address();
    let away = attested_gateway(address, no_checks()).await;
    let loading = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
    let loading = attested_gateway(upstream_saying(loading).await, no_checks()).await;
    let broken = attested_gateway(upstream_saying("garbage\r\n\r\n").await, no_checks()).await;
    for (gateway, status, code) in [
        (&away, " 502 ", "upstream_unreachable"),
        (&loading, " 503 ", "upstream_not_ready"),
        (&broken, " 502 ", "upstream_malformed"),
    ] {
        for _ in 0..2 {
            let got = exchange(gateway.address, PROMPT_CLOSE).await;
            assert!(got.contains(status) && got.contains(code), "{got}");
        }
    }
}

#[tokio::test]
async fn a_configuration_without_a_model_asks_nothing_and_claims_nothing() {
    let (server, address) = ModelServer::start(false).await;
    let gateway = gateway(address, GatewayLimits::default()).await;
    for manifest in [Some(OURS), Some(OTHER), None] {
        server.exchange_for(manifest);
        let got = exchange(gateway.address, PROMPT_CLOSE).await;
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    }
    assert_eq!(server.questions.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn one_of_several_servers_with_another_model_stops_the_gateway() {
    let ((first, one), (second, two)) =
        (ModelServer::start(false).await, ModelServer::start(false).await);
    let limits = GatewayLimits { upstream_idle: Duration::ZERO, ..no_checks() };
    let gateway = attested_gateway_before(&[one, two], limits).await;
    for _ in 0..4 {
        let got = exchange(gateway.address, PROMPT_CLOSE).await;
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    }
    assert_eq!((first.prompts().len(), second.prompts().len()), (2, 2));
    second.exchange_for(Some(OTHER));
    let mut refused = String::new();
    while refused.is_empty() {
        let got = exchange(gateway.address, PROMPT_CLOSE).await;
        refused = if got.starts_with("HTTP/1.1 200 ") { String::new() } else { got };
    }
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("upstream_changed"));
    assert_eq!(exchange(gateway.address, PROMPT_CLOSE).await, "");
    assert_eq!(second.prompts(), [Some(OURS); 2], "the other model saw a prompt");
    assert!(first.prompts().len() <= 3, "a prompt went to the first server after the change");
}

#[tokio::test]
async fn every_server_is_asked_for_its_model_at_intervals() {
    let ((first, one), (second, two)) =
        (ModelServer::start(false).await, ModelServer::start(false).await);
    let limits = GatewayLimits { upstream_check: Duration::from_millis(20), ..no_health_checks() };
    let gateway = attested_gateway_before(&[one, two], limits).await;
    let mut idle = ask(gateway.address, PROMPT).await;
    assert!(read_until(&mut idle, "\r\n\r\nok").await.ends_with("ok"));
    second.exchange_for(Some(OTHER));
    assert_eq!(read_to_end(&mut idle).await, "");
    assert_eq!(exchange(gateway.address, PROMPT_CLOSE).await, "");
    assert_eq!(first.prompts().len() + second.prompts().len(), 1);
}

#[tokio::test]
async fn idle_connections_are_closed_while_the_question_for_the_model_has_no_answer() {
    let (open, unanswered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let is_stalled = Arc::new(AtomicBool::new(false));
    let counts = (open.clone(), unanswered.clone(), is_stalled.clone());
    let address = upstream(move |mut stream| {
        let (open, unanswered, is_stalled) = counts.clone();
        async move {
            open.fetch_add(1, Ordering::SeqCst);
            loop {
                let head = read_until(&mut stream, "\r\n\r\n").await;
                if head.is_empty() {
                    break;
                }
                if is_stalled.load(Ordering::SeqCst) {
                    unanswered.fetch_add(1, Ordering::SeqCst);
                    read_to_end(&mut stream).await;
                    break;
                }
                let digest = OURS.repeat(32);
                let list = format!(r#"{{"data":[{{"confide_manifest_sha256":"{digest}"}}]}}"#);
                let body = if head.starts_with("GET ") { list.as_str() } else { "ok" };
                let length = body.len();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
            open.fetch_sub(1, Ordering::SeqCst);
        }
    })
    .await;
    let limits = GatewayLimits {
        upstream_check: Duration::from_millis(20),
        upstream_question: 2 * GENEROUS,
        upstream_idle: Duration::from_millis(500),
        ..no_health_checks()
    };
    let gateway = attested_gateway(address, limits).await;
    let got = exchange(gateway.address, PROMPT_CLOSE).await;
    assert!(got.starts_with("HTTP/1.1 200 ") && open.load(Ordering::SeqCst) > 0, "{got}");
    is_stalled.store(true, Ordering::SeqCst);
    wait_until(|| unanswered.load(Ordering::SeqCst) > 0).await;
    wait_until(|| open.load(Ordering::SeqCst) == unanswered.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn a_server_that_has_not_loaded_its_model_gets_no_prompt_and_the_next_one_does() {
    let loading = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
    let loading = upstream_saying(loading).await;
    let (ready, address) = ModelServer::start(false).await;
    let gateway = attested_gateway_before(&[loading, address], no_checks()).await;
    for _ in 0..3 {
        let got = exchange(gateway.address, PROMPT_CLOSE).await;
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    }
    assert_eq!(ready.prompts().len(), 3);
    assert_eq!(gateway.states.servers()[0].connect_failures, 1);
}

#[tokio::test]
async fn a_changed_model_is_shown_until_a_reload_has_replaced_the_configuration() {
    let (server, address) = ModelServer::start(true).await;
    let configuration = attested_configuration(&[address]);
    let metrics = Arc::new(GatewayMetrics::new([&configuration], []));
    let telemetry =
        Arc::new(Telemetry { metrics: metrics.clone(), traces: None, counts_tokens: false });
    let proxy = || {
        Proxy::new(&configuration, true, no_checks())
            .unwrap()
            .with_telemetry(Some(telemetry.clone()))
    };
    let shows = async |is_changed: bool| {
        finish_in_time(async {
            while metrics.status()["model_changed"] != is_changed {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    };
    let gateway = serve_proxy(proxy(), no_checks(), AdmissionLimits::default()).await;
    server.exchange_for(Some(OTHER));
    assert!(exchange(gateway.address, PROMPT_CLOSE).await.contains("upstream_changed"));
    shows(true).await;
    assert!(metrics.encode().contains("confide_gateway_model_changed 1\n"));
    server.exchange_for(Some(OURS));
    gateway.slot.replace(configuration_version(proxy(), no_checks()));
    assert!(exchange(gateway.address, PROMPT_CLOSE).await.starts_with("HTTP/1.1 200 "));
    shows(false).await;
}

//! API keys, their limits and what they use, through the proxy.

use std::path::PathBuf;

use super::{websocket::echoing, *};
use crate::{ApiKeyDigest, Authorizer, KeySet, UpstreamKey};

/// The time of the tests in Unix seconds.
pub(super) fn clock() -> u64 {
    1_800_000_000
}

/// A gateway with the default routes in front of `upstream`.
pub(super) async fn start_with(
    authorizer: &Arc<Authorizer>,
    upstream: SocketAddr,
) -> RunningGateway {
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    let limits = GatewayLimits::default();
    let proxy =
        Proxy::new(&configuration, true, limits).unwrap().with_authorizer(Some(authorizer.clone()));
    serve_proxy(proxy, limits, AdmissionLimits::default()).await
}

/// The table of a key, with `more` lines.
pub(super) fn key_table(name: &str, key: &str, more: &str) -> String {
    let digest = ApiKeyDigest::of_key(key.as_bytes()).to_hex();
    format!("[[key]]\nname = \"{name}\"\nsha256 = \"{digest}\"\n{more}\n")
}

/// An authorizer for the keys of a file with this text.
pub(super) fn authorizer_for(keys: &str) -> Arc<Authorizer> {
    Arc::new(Authorizer::with_keys(KeySet::parse(keys).unwrap(), clock))
}

/// A POST to `path` with more fields, each with its line end, after which the connection is closed.
pub(super) fn post(path: &str, fields: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{fields}content-length: 2\r\n\r\n{{}}"
    )
}

fn chat_with(key: &str) -> String {
    post("/v1/chat/completions", &format!("authorization: Bearer {key}\r\n"))
}

/// An upstream that sends what it was asked to `heads`, and answers with JSON.
async fn upstream_with_json(json: &'static str) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let (saw, heads) = mpsc::unbounded_channel();
    let address = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            let _ = saw.send(read_until(&mut stream, "\r\n\r\n").await);
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
                 x-ratelimit-limit-requests: 7\r\n\r\n{json}",
                json.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    (address, heads)
}

/// The usage file of one test.
struct UsagePath(PathBuf);

impl UsagePath {
    fn new(test: &str) -> Self {
        let name = format!("confide-usage-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    /// An authorizer that writes this file.
    fn authorizer_for(&self, keys: &str) -> Authorizer {
        let authorizer = Authorizer::with_keys(KeySet::parse(keys).unwrap(), clock);
        authorizer.with_usage_file(&self.0).unwrap()
    }

    /// The lines, once one more was written.
    async fn lines_after_next(&self, authorizer: &Authorizer) -> String {
        let read = || std::fs::read_to_string(&self.0).unwrap();
        let before = read();
        finish_in_time(async {
            while read() == before {
                tokio::task::yield_now().await;
                authorizer.write_usage();
            }
        })
        .await;
        read()
    }
}

impl Drop for UsagePath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const JSON: &str = "{\"model\":\"m\",\"choices\":[{\"message\":{\"content\":\"\\\"usage\\\":{}\"}}],\
                    \"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5,\
                    \"prompt_tokens_details\":{\"cached_tokens\":3}}}";

#[tokio::test]
async fn without_a_valid_key_nothing_reaches_the_upstream() {
    let keys = key_table("old", "k-old", "not_after = 1799999999")
        + &key_table("new", "k-new", "not_after = 1800000000");
    let authorizer = authorizer_for(&keys);
    let (upstream, mut heads) = upstream_with_json(JSON).await;
    let gateway = start_with(&authorizer, upstream).await;
    let mut texts = std::collections::BTreeSet::new();
    for fields in [
        "",
        "authorization: Basic abc\r\n",
        "authorization: Bearer k-unknown\r\n",
        "authorization: Bearer k-old\r\n",
        "x-api-key: k-old\r\n",
    ] {
        let got = exchange(gateway.address, &post("/v1/messages", fields)).await;
        assert!(got.starts_with("HTTP/1.1 401 ") && got.contains("invalid_api_key"), "{got}");
        assert!(got.contains("www-authenticate: Bearer\r\n"), "{got}");
        texts.insert(got.rsplit_once("\r\n\r\n").unwrap().1.to_owned());
    }
    assert_eq!(texts.len(), 1, "a client learns whether a key has existed: {texts:?}");
    let two = "authorization: Bearer k-new\r\nx-api-key: k-new\r\n";
    let got = exchange(gateway.address, &post("/v1/messages", two)).await;
    assert!(got.starts_with("HTTP/1.1 400 ") && got.contains("several_api_keys"), "{got}");
    assert!(heads.try_recv().is_err(), "an unauthorised request was sent on");

    let known = "GET /.well-known/confide HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
    assert!(exchange(gateway.address, known).await.starts_with("HTTP/1.1 200 "), "it needs no key");
    let got = exchange(gateway.address, &post("/v1/messages", "x-api-key: k-new\r\n")).await;
    assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
}

#[tokio::test]
async fn the_upstream_gets_its_own_key_and_the_answer_is_counted_unchanged() {
    let (upstream, mut heads) = upstream_with_json(JSON).await;
    let usage = UsagePath::new("unchanged");
    let authorizer = usage.authorizer_for(&key_table("team-a", "k", "requests_per_minute = 9"));
    let own = UpstreamKey::new(b"own").unwrap();
    let authorizer = Arc::new(authorizer.with_upstream_key(own));
    let gateway = start_with(&authorizer, upstream).await;
    let fields = "x-api-key: k\r\naccept-encoding: gzip\r\n";
    let got = exchange(gateway.address, &post("/v1/chat/completions", fields)).await;
    assert!(got.ends_with(&format!("\r\n\r\n{JSON}")), "{got}");
    assert!(got.contains("x-ratelimit-limit-requests: 9\r\n"), "{got}");
    assert!(got.contains("x-ratelimit-remaining-requests: 8\r\n"), "{got}");
    assert!(!got.contains("x-ratelimit-limit-requests: 7"), "{got}");
    let head = heads.recv().await.unwrap();
    assert!(head.contains("authorization: Bearer own\r\n"), "{head}");
    assert!(head.contains("accept-encoding: identity\r\n") && !head.contains("gzip"), "{head}");
    assert!(!head.contains("x-api-key"), "{head}");
    let wanted = "{\"unix_s\":1800000000,\"key\":\"team-a\",\"model\":\"m\",\"requests\":1,\"failed\":0,\
                  \"uncounted\":0,\"prompt_tokens\":7,\"cached_tokens\":3,\"completion_tokens\":5,\
                  \"estimated_tokens\":0}\n";
    assert_eq!(usage.lines_after_next(&authorizer).await, wanted);
}

#[tokio::test]
async fn a_stream_is_counted_without_delay_and_holds_its_place_until_its_end() {
    let event = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n";
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    let first = format!("{CHUNKED}{chunk}");
    let (upstream, go_on) = stepping_upstream(&[&first, &chunk, LAST_CHUNK]).await;
    let usage = UsagePath::new("stream");
    let keys = key_table("a", "k", "concurrent = 1\ntokens_per_day = 2");
    let authorizer = Arc::new(usage.authorizer_for(&keys));
    let gateway = start_with(&authorizer, upstream).await;
    let mut client = ask(gateway.address, &chat_with("k")).await;
    assert!(read_until(&mut client, "}\n\n\r\n").await.contains(" 200 "));
    let got = exchange(gateway.address, &chat_with("k")).await;
    assert!(got.starts_with("HTTP/1.1 429 ") && got.contains("retry-after: 1\r\n"), "{got}");
    assert!(got.contains("rate_limit_exceeded") && got.contains("running requests"), "{got}");
    go_on.send(()).unwrap();
    go_on.send(()).unwrap();
    assert!(read_to_end(&mut client).await.ends_with(LAST_CHUNK));
    let counted = usage.lines_after_next(&authorizer).await;
    assert!(counted.contains("\"model\":null,\"requests\":1,\"failed\":0,"), "{counted}");
    assert!(counted.ends_with("\"estimated_tokens\":2}\n"), "{counted}");
    // Both tokens of the day are spent; the clock of the tests stands at 08:00 UTC.
    let got = exchange(gateway.address, &chat_with("k")).await;
    assert!(got.contains("retry-after: 57600\r\n") && got.contains("left for today"), "{got}");
    assert!(got.contains("x-ratelimit-remaining-tokens: 0\r\n"), "{got}");
    assert!(got.contains("x-ratelimit-reset-tokens: 16h0m0s\r\n"), "{got}");
}

#[tokio::test]
async fn a_key_reaches_its_own_routes_and_models_only() {
    let keys = key_table("a", "k", "routes = [\"POST /v1/embeddings\"]")
        + &key_table("b", "l", "models = [\"m\"]");
    let authorizer = authorizer_for(&keys);
    let (upstream, _heads) = upstream_with_json(JSON).await;
    let gateway = start_with(&authorizer, upstream).await;
    let got = exchange(gateway.address, &chat_with("k")).await;
    assert!(got.starts_with("HTTP/1.1 403 ") && got.contains("route_not_allowed_for_key"), "{got}");
    let fields = "authorization: Bearer k\r\n";
    let got = exchange(gateway.address, &post("/v1/embeddings", fields)).await;
    assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    // A path outside of the listener's routes is none for any key.
    let got = exchange(gateway.address, &post("/metrics", fields)).await;
    assert!(got.starts_with("HTTP/1.1 404 ") && got.contains("route_not_allowed"), "{got}");
    let chat = |body: &str| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
             authorization: Bearer l\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for (body, wanted) in [
        ("{\"messages\":[],\"model\":\"m\"}", " 200 "),
        ("{\"model\":\"other\"}", "model_not_found"),
        ("{}", "model_not_named"),
        ("{\"model\":\"m\",\"model\":\"other\"}", "model_not_named"),
    ] {
        let got = exchange(gateway.address, &chat(body)).await;
        assert!(got.contains(wanted), "{body}: {got}");
    }
}

#[tokio::test]
async fn new_keys_replace_the_old_ones_and_a_name_keeps_what_it_has_used() {
    let limit = "requests_per_minute = 2";
    let authorizer = authorizer_for(&key_table("a", "old", limit));
    let (upstream, _heads) = upstream_with_json(JSON).await;
    let gateway = start_with(&authorizer, upstream).await;
    assert!(exchange(gateway.address, &chat_with("old")).await.contains(" 200 "));
    let keys = key_table("a", "new", limit) + &key_table("b", "more", "");
    assert!(authorizer.replace_keys(KeySet::parse(&keys).unwrap()));
    assert!(exchange(gateway.address, &chat_with("old")).await.contains(" 401 "));
    assert!(exchange(gateway.address, &chat_with("more")).await.contains(" 200 "));
    let got = exchange(gateway.address, &chat_with("new")).await;
    assert!(got.contains("x-ratelimit-remaining-requests: 0\r\n"), "{got}");
    let got = exchange(gateway.address, &chat_with("new")).await;
    assert!(got.starts_with("HTTP/1.1 429 ") && got.contains("no requests left"), "{got}");
}

#[tokio::test]
async fn a_guesser_is_slowed_down_and_locks_nobody_out() {
    let authorizer = authorizer_for(&key_table("a", "k", ""));
    let (upstream, _heads) = upstream_with_json(JSON).await;
    let gateway = start_with(&authorizer, upstream).await;
    for number in 0..20 {
        let got = exchange(gateway.address, &chat_with(&format!("wrong-{number}"))).await;
        assert!(got.starts_with("HTTP/1.1 401 "), "{got}");
    }
    let got = exchange(gateway.address, &chat_with("wrong")).await;
    assert!(got.starts_with("HTTP/1.1 429 ") && got.contains("retry-after: "), "{got}");
    assert!(got.contains("too_many_invalid_api_keys"), "{got}");
    assert!(exchange(gateway.address, &chat_with("k")).await.contains(" 200 "));
}

#[tokio::test]
async fn a_failed_attempt_is_counted_and_gives_its_place_back() {
    let usage = UsagePath::new("failed");
    let authorizer = Arc::new(usage.authorizer_for(&key_table("a", "k", "concurrent = 1")));
    let gateway = start_with(&authorizer, upstream_saying("").await).await;
    for _ in 0..2 {
        assert!(exchange(gateway.address, &chat_with("k")).await.contains(" 502 "));
    }
    let counted = usage.lines_after_next(&authorizer).await;
    assert!(counted.contains("\"requests\":2,\"failed\":2,"), "{counted}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_before_its_counts_is_an_uncounted_one() {
    const CUT: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                       content-length: 99\r\n\r\n{\"model\":\"m\",\"choices\":[";
    let usage = UsagePath::new("cut");
    let authorizer = Arc::new(usage.authorizer_for(&key_table("a", "k", "")));
    let gateway = start_with(&authorizer, upstream_saying(CUT).await).await;
    assert!(exchange(gateway.address, &chat_with("k")).await.ends_with("\"choices\":["));
    let counted = usage.lines_after_next(&authorizer).await;
    assert!(
        counted.contains("\"model\":\"m\",\"requests\":1,\"failed\":1,\"uncounted\":1,"),
        "{counted}"
    );
}

#[tokio::test]
async fn a_client_that_leaves_before_the_last_slot_pays_for_what_was_held_back() {
    let events = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n\
                  event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":\
                  {\"model\":\"m\",\"usage\":{\"input_tokens\":7,\"output_tokens\":5}}}\n\n";
    let answer = format!("{CHUNKED}{:x}\r\n{events}\r\n{LAST_CHUNK}", events.len());
    let upstream = upstream_saying(answer.leak()).await;
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    // The last slot does not come while this test runs.
    configuration.answer_shape = Some("1024/100/4096".parse().unwrap());
    let usage = UsagePath::new("held");
    let authorizer = Arc::new(usage.authorizer_for(&key_table("a", "k", "")));
    let limits = GatewayLimits::default();
    let proxy = Proxy::new(&configuration, true, limits).unwrap();
    let proxy = proxy.with_authorizer(Some(authorizer.clone()));
    let gateway = serve_proxy(proxy, limits, AdmissionLimits::default()).await;
    let request = post("/v1/responses", "authorization: Bearer k\r\n");
    let mut client = ask(gateway.address, &request).await;
    assert!(read_until(&mut client, "\"delta\":\"a\"}\n\n").await.contains(" 200 "));
    drop(client);
    let counted = usage.lines_after_next(&authorizer).await;
    let wanted = "\"model\":\"m\",\"requests\":1,\"failed\":0,\"uncounted\":0,\"prompt_tokens\":7,\
                  \"cached_tokens\":0,\"completion_tokens\":5,\"estimated_tokens\":0}\n";
    assert!(counted.ends_with(wanted), "{counted}");
}

#[tokio::test]
async fn a_list_of_models_that_the_gateway_makes_itself_is_an_answer_like_others() {
    let usage = UsagePath::new("models");
    let keys = key_table("a", "k", "requests_per_minute = 5");
    let authorizer = Arc::new(usage.authorizer_for(&keys));
    let address = Upstream::parse("http://127.0.0.1:1").unwrap();
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, address);
    configuration.servers[0].models = vec!["m".into()];
    let limits = GatewayLimits::default();
    let proxy =
        Proxy::new(&configuration, true, limits).unwrap().with_authorizer(Some(authorizer.clone()));
    let gateway = serve_proxy(proxy, limits, AdmissionLimits::default()).await;
    let list = "GET /v1/models HTTP/1.1\r\nhost: h\r\nauthorization: Bearer k\r\n\
                connection: close\r\n\r\n";
    let got = exchange(gateway.address, list).await;
    assert!(got.contains("x-ratelimit-remaining-requests: 4\r\n"), "{got}");
    let counted = usage.lines_after_next(&authorizer).await;
    assert!(counted.contains("\"requests\":1,\"failed\":0,\"uncounted\":0,"), "{counted}");
}

#[tokio::test]
async fn the_usage_file_keeps_a_days_budget_across_a_restart() {
    let usage = UsagePath::new("restart");
    let keys = key_table("a", "k", "tokens_per_day = 10");
    for wanted in [" 200 ", " 429 "] {
        let authorizer = Arc::new(usage.authorizer_for(&keys));
        let (upstream, _heads) = upstream_with_json(JSON).await;
        let gateway = start_with(&authorizer, upstream).await;
        let got = exchange(gateway.address, &chat_with("k")).await;
        assert!(got.contains(wanted), "{got}");
        if wanted == " 200 " {
            usage.lines_after_next(&authorizer).await;
        }
    }
}

#[tokio::test]
async fn a_websocket_runs_as_a_request_of_its_key_and_needs_one_for_all_models() {
    let keys = key_table("a", "k", "concurrent = 1") + &key_table("b", "l", "models = [\"m\"]");
    let authorizer = authorizer_for(&keys);
    let (upstream, _seen) = echoing().await;
    let address = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, address);
    configuration.add_route(Route::parse("WEBSOCKET /v1/realtime", DEFAULT_GROUP).unwrap());
    let limits = GatewayLimits::default();
    let proxy =
        Proxy::new(&configuration, true, limits).unwrap().with_authorizer(Some(authorizer.clone()));
    let gateway = serve_proxy(proxy, limits, AdmissionLimits::default()).await;
    let open = |key: &str| {
        format!(
            "GET /v1/realtime?model=x HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {key}\r\nconnection: upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
    };
    let mut first = ask(gateway.address, &open("k")).await;
    assert!(read_until(&mut first, "\r\n\r\n").await.starts_with("HTTP/1.1 101 "));
    let refused = |key: &'static str| async move {
        let mut stream = ask(gateway.address, &open(key)).await;
        read_until(&mut stream, "\r\n\r\n").await
    };
    assert!(refused("k").await.starts_with("HTTP/1.1 429 "));
    assert!(refused("l").await.starts_with("HTTP/1.1 404 "));
    drop(first);
    while !refused("k").await.starts_with("HTTP/1.1 101 ") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

//! Metrics and spans of requests over real sockets, and what they must never contain.

use serde::Deserialize;

use super::{
    api_keys::{authorizer_for, key_table},
    *,
};
use crate::{GatewayMetrics, Telemetry, TraceExporter};

/// Unix nanoseconds of a fixed time; they are over 2⁵³, as real ones are.
const NOW_NS: u64 = 1_700_000_000_123_456_789;
const STREAM: &str = "9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn configuration(upstream: SocketAddr) -> GatewayConfiguration {
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    GatewayConfiguration::with_upstream(Binding::Key, upstream)
}

fn metrics_of(configuration: &GatewayConfiguration) -> Arc<GatewayMetrics> {
    Arc::new(GatewayMetrics::new([configuration], ["tiny".to_owned()]))
}

async fn observed_gateway(
    configuration: &GatewayConfiguration,
    metrics: &Arc<GatewayMetrics>,
    traces: Option<TraceExporter>,
) -> RunningGateway {
    let telemetry = Arc::new(Telemetry { metrics: metrics.clone(), traces, counts_tokens: true });
    let limits = GatewayLimits::default();
    let proxy = Proxy::new(configuration, true, limits).unwrap().with_telemetry(Some(telemetry));
    serve_proxy(proxy, limits, AdmissionLimits::default()).await
}

/// Stops a gateway, so that all its requests have been recorded.
async fn stop(gateway: RunningGateway) {
    gateway.stop.send(()).unwrap();
    finish_in_time(gateway.ended).await.unwrap();
}

fn post(path: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: h\r\n{fields}content-length: {length}\r\n\r\n{body}")
}

/// An upstream that reads requests that end with `}` and answers each with `answer`.
async fn repeating_upstream(answer: String) -> SocketAddr {
    upstream(move |mut stream| {
        let answer = answer.clone();
        async move {
            while read_until(&mut stream, "}").await.ends_with('}') {
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    })
    .await
}

fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn a_streamed_chat_is_counted_by_pattern_model_and_outcome() {
    let upstream = repeating_upstream(format!("{CHUNKED}{STREAM}")).await;
    let configuration = configuration(upstream);
    let metrics = metrics_of(&configuration);
    let gateway = observed_gateway(&configuration, &metrics, None).await;
    let mut client = ask(gateway.address, &post("/v1/chat/completions", "", "{}")).await;
    read_until(&mut client, LAST_CHUNK).await;
    client.write_all(post("/v1/responses/resp_1/cancel", "", "{}").as_bytes()).await.unwrap();
    read_until(&mut client, LAST_CHUNK).await;
    client.write_all(b"GET /metrics HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
    assert!(read_until(&mut client, "}}").await.contains("route_not_allowed"));
    assert_lines(&metrics.encode(), &["confide_gateway_connections 1"]);
    drop(client);
    stop(gateway).await;
    let text = metrics.encode();
    let chat = "gen_ai_operation_name=\"chat\",gen_ai_provider_name=\"confide\",\
                gen_ai_request_model=\"tiny\"";
    assert_lines(
        &text,
        &[
            "confide_gateway_connections 0",
            "confide_gateway_requests_total{route=\"/v1/chat/completions\",status_class=\"2xx\"} 1",
            "confide_gateway_requests_total{route=\"/v1/responses/*/cancel\",status_class=\"2xx\"} 1",
            "confide_gateway_requests_total{route=\"other\",status_class=\"4xx\"} 1",
            "confide_gateway_refusals_total{code=\"route_not_allowed\"} 1",
            "vllm:num_requests_running{model_name=\"tiny\"} 0",
            "vllm:num_requests_waiting{model_name=\"tiny\"} 0",
            "vllm:time_to_first_token_seconds_count{model_name=\"tiny\"} 1",
            "vllm:e2e_request_latency_seconds_count{model_name=\"tiny\"} 1",
            "vllm:request_success_total{model_name=\"tiny\",finished_reason=\"complete\"} 1",
            &format!("gen_ai_server_request_duration_seconds_count{{{chat},error_type=\"\"}} 1"),
            &format!("gen_ai_server_time_to_first_token_seconds_count{{{chat}}} 1"),
            &format!("gen_ai_server_time_per_output_token_seconds_count{{{chat}}} 1"),
        ],
    );
}

#[tokio::test]
async fn tokens_are_counted_for_the_requests_model_if_the_server_reported_all_of_them() {
    let chunk = |event: &str| format!("{:x}\r\n{event}\r\n", event.len());
    let piece = chunk("data: {\"model\":\"org/tiny\",\"choices\":[{\"text\":\"a\"}]}\n\n");
    let usage = "{\"prompt_tokens\":12,\"completion_tokens\":30}";
    let usage = chunk(&format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n"));
    let (saw, mut codings) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let (piece, usage, saw) = (piece.clone(), usage.clone(), saw.clone());
        async move {
            let request = read_until(&mut stream, "}").await;
            saw.send(request.contains("accept-encoding: identity\r\n")).unwrap();
            let rest = match request.rsplit_once("\r\n\r\n").unwrap().1 {
                "{reported}" => [&piece[..], &usage, LAST_CHUNK].concat(),
                "{estimated}" => [&piece[..], LAST_CHUNK].concat(),
                _ => [&piece[..], &usage].concat(),
            };
            stream.write_all(format!("{CHUNKED}{rest}").as_bytes()).await.unwrap();
        }
    })
    .await;
    let configuration = configuration(upstream);
    let metrics = metrics_of(&configuration);
    // Each of an API key and the setting is enough, and together they count once.
    for (has_key, counts_tokens) in [(true, false), (false, true), (true, true), (false, false)] {
        let telemetry = Telemetry { metrics: metrics.clone(), traces: None, counts_tokens };
        let limits = GatewayLimits::default();
        let proxy = Proxy::new(&configuration, true, limits)
            .unwrap()
            .with_telemetry(Some(Arc::new(telemetry)))
            .with_authorizer(has_key.then(|| authorizer_for(&key_table("a", "k", ""))));
        let gateway = serve_proxy(proxy, limits, AdmissionLimits::default()).await;
        let fields = "x-api-key: k\r\naccept-encoding: gzip\r\nconnection: close\r\n";
        for body in ["{reported}", "{estimated}", "{broken}"] {
            exchange(gateway.address, &post("/v1/completions", fields, body)).await;
            let is_plain = finish_in_time(codings.recv()).await.unwrap();
            assert_eq!(is_plain, has_key || counts_tokens, "{body}");
        }
        stop(gateway).await;
    }
    let labels = "gen_ai_operation_name=\"text_completion\",gen_ai_provider_name=\"confide\",\
                  gen_ai_request_model=\"tiny\"";
    assert_lines(
        &metrics.encode(),
        &[
            "vllm:prompt_tokens_total{model_name=\"tiny\"} 36",
            "vllm:generation_tokens_total{model_name=\"tiny\"} 90",
            &format!("gen_ai_client_token_usage_count{{{labels},gen_ai_token_type=\"input\"}} 3"),
            &format!("gen_ai_client_token_usage_sum{{{labels},gen_ai_token_type=\"input\"}} 36.0"),
            &format!("gen_ai_client_token_usage_sum{{{labels},gen_ai_token_type=\"output\"}} 90.0"),
        ],
    );
}

#[tokio::test]
async fn a_running_request_is_shown_and_one_that_its_client_leaves_is_cancelled() {
    let (leave, mut left) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let leave = leave.clone();
        async move {
            read_until(&mut stream, "}").await;
            stream.write_all(CHUNKED.as_bytes()).await.unwrap();
            stream.write_all(b"9\r\ndata: 1\n\n\r\n").await.unwrap();
            read_to_end(&mut stream).await;
            leave.send(()).unwrap();
        }
    })
    .await;
    let configuration = configuration(upstream);
    let metrics = metrics_of(&configuration);
    let gateway = observed_gateway(&configuration, &metrics, None).await;
    let mut client = ask(gateway.address, &post("/v1/completions", "", "{}")).await;
    read_until(&mut client, "data: 1").await;
    assert_lines(&metrics.encode(), &["vllm:num_requests_running{model_name=\"tiny\"} 1"]);
    drop(client);
    finish_in_time(left.recv()).await.unwrap();
    stop(gateway).await;
    let text = metrics.encode();
    assert_lines(
        &text,
        &[
            "vllm:num_requests_running{model_name=\"tiny\"} 0",
            "vllm:request_success_total{model_name=\"tiny\",finished_reason=\"abort\"} 1",
        ],
    );
    assert!(text.contains("error_type=\"cancelled\"} 1"), "{text}");
}

#[tokio::test]
async fn an_upstream_that_fails_is_counted_by_reason() {
    let broken = format!("{CHUNKED}9\r\ndata: 1\n\n\r\n");
    let upstream = upstream(move |mut stream| {
        let broken = broken.clone();
        async move {
            if read_until(&mut stream, "}").await.contains("break") {
                stream.write_all(broken.as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    let configuration = configuration(upstream);
    let metrics = metrics_of(&configuration);
    let gateway = observed_gateway(&configuration, &metrics, None).await;
    for body in ["{break}", "{}"] {
        exchange(gateway.address, &post("/v1/messages", "connection: close\r\n", body)).await;
    }
    stop(gateway).await;
    let text = metrics.encode();
    assert_lines(
        &text,
        &[
            "confide_gateway_upstream_failures_total{reason=\"upstream_answer_broken\"} 1",
            "confide_gateway_upstream_failures_total{reason=\"upstream_broke_off\"} 1",
        ],
    );
    assert!(text.contains("error_type=\"answer_broken\"} 1"), "{text}");
    assert!(text.contains("error_type=\"server_error\"} 1"), "{text}");
}

#[tokio::test]
async fn ten_thousand_paths_models_and_keys_make_no_new_series() {
    let upstream = repeating_upstream("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".into()).await;
    let configuration = configuration(upstream);
    let metrics = metrics_of(&configuration);
    let gateway = observed_gateway(&configuration, &metrics, None).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let mut series = Vec::new();
    for round in 0..10 {
        let mut requests = String::new();
        for number in 0..1000 {
            let key = format!("authorization: Bearer sk-{round}-{number}\r\n");
            let path = format!("/{round}/{number}?model=m{round}-{number}");
            requests += &format!("GET {path} HTTP/1.1\r\nhost: h\r\n{key}\r\n");
            if number % 100 == 0 {
                let body = format!("{{\"model\":\"m{round}-{number}\"}}");
                requests += &post(&format!("/v1/responses/{round}-{number}/cancel"), &key, &body);
                requests += &post("/v1/chat/completions", &key, &body);
            }
        }
        let (mut reading, mut writing) = client.split();
        let read = async {
            let mut answers = 0;
            let mut piece = vec![0; 64 * 1024];
            let mut text = String::new();
            while answers < 1020 {
                let length = reading.read(&mut piece).await.unwrap();
                text += std::str::from_utf8(&piece[..length]).unwrap();
                answers = text.matches("HTTP/1.1 ").count();
                assert!(length > 0, "{answers} answers");
            }
        };
        let (written, ()) =
            finish_in_time(async { tokio::join!(writing.write_all(requests.as_bytes()), read) })
                .await;
        written.unwrap();
        let text = metrics.encode();
        series.push(text.lines().filter(|line| !line.starts_with('#')).count());
    }
    assert!(series.iter().all(|count| *count == series[0]), "{series:?}");
    let refused = "confide_gateway_requests_total{route=\"other\",status_class=\"4xx\"} 10000";
    drop(client);
    stop(gateway).await;
    assert_lines(&metrics.encode(), &[refused]);
}

/// A collector that answers each request with `answer` and passes on its head and its body.
async fn collector(
    answer: &'static str,
) -> (SocketAddr, mpsc::UnboundedReceiver<(String, String)>) {
    let (saw, seen) = mpsc::unbounded_channel();
    let address = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            let head = read_until(&mut stream, "\r\n\r\n").await.to_ascii_lowercase();
            let length = head.split_once("content-length: ").unwrap().1;
            let length = length.split_once("\r\n").unwrap().0.parse().unwrap();
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            let _ = saw.send((head, String::from_utf8(body).unwrap()));
            // It keeps the connection open, as collectors do.
            read_to_end(&mut stream).await;
        }
    })
    .await;
    (address, seen)
}

const ACCEPTED: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// The parts of OTLP's JSON that the gateway may send. Any other field fails the test.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExportRequest {
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourceSpans {
    resource: Resource,
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resource {
    attributes: Vec<Attribute>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeSpans {
    scope: Scope,
    spans: Vec<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scope {
    name: String,
    version: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Span {
    trace_id: String,
    span_id: String,
    parent_span_id: Option<String>,
    flags: u32,
    name: String,
    kind: u32,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute>,
    events: Vec<Event>,
    status: Status,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attribute {
    key: String,
    value: AttributeValue,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum AttributeValue {
    StringValue(String),
    IntValue(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Event {
    time_unix_nano: String,
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Status {
    code: Option<u32>,
}

fn parse_spans(body: &str) -> Vec<Span> {
    let request: ExportRequest = serde_json::from_str(body).unwrap();
    let [resource] = <[_; 1]>::try_from(request.resource_spans).unwrap();
    assert_eq!(resource.resource.attributes[0].key, "service.name");
    let [scope] = <[_; 1]>::try_from(resource.scope_spans).unwrap();
    assert_eq!(scope.scope.name, "confide-gateway");
    assert!(!scope.scope.version.is_empty());
    scope.spans
}

fn is_lower_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Sends requests one after another through a traced gateway; returns the heads that the upstream
/// received, and the spans.
async fn trace(requests: &[String]) -> (Vec<String>, Vec<Span>) {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            loop {
                let request = read_until(&mut stream, "}").await;
                if !request.ends_with('}') {
                    break;
                }
                saw.send(request).unwrap();
                stream.write_all(format!("{CHUNKED}{STREAM}").as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    let (collector, mut bodies) = collector(ACCEPTED).await;
    let configuration = configuration(upstream);
    let metrics = metrics_of(&configuration);
    let url = format!("http://{collector}");
    let (traces, task) = TraceExporter::start(&url, 1.0, metrics.clone(), || NOW_NS).unwrap();
    let gateway = observed_gateway(&configuration, &metrics, Some(traces)).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let mut forwarded = Vec::new();
    for request in requests {
        client.write_all(request.as_bytes()).await.unwrap();
        read_until(&mut client, LAST_CHUNK).await;
        forwarded.push(seen.recv().await.unwrap());
    }
    drop(client);
    stop(gateway).await;
    finish_in_time(task.finish()).await;
    let (head, body) = finish_in_time(bodies.recv()).await.unwrap();
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json\r\n"), "{head}");
    let spans = parse_spans(&body);
    let exported = format!("confide_gateway_spans_exported_total {}", spans.len());
    assert_lines(&metrics.encode(), &[&exported]);
    (forwarded, spans)
}

fn traceparent_of(head: &str) -> Option<&str> {
    let (_, rest) = head.split_once("traceparent: ")?;
    rest.split_once("\r\n").map(|(value, _)| value)
}

#[tokio::test]
async fn a_span_continues_the_trace_of_the_client_and_the_upstream_continues_the_span() {
    let fields = format!("traceparent: {PARENT}\r\ntracestate: a=b\r\n");
    let (forwarded, spans) = trace(&[post("/v1/chat/completions", &fields, "{}")]).await;
    let [span] = <[_; 1]>::try_from(spans).unwrap();
    assert_eq!(span.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(span.parent_span_id.as_deref(), Some("00f067aa0ba902b7"));
    assert!(is_lower_hex(&span.span_id, 16) && span.span_id != "00f067aa0ba902b7", "{span:?}");
    let next = format!("00-{}-{}-01", span.trace_id, span.span_id);
    assert_eq!(traceparent_of(&forwarded[0]), Some(next.as_str()));
    assert!(forwarded[0].contains("tracestate: a=b\r\n"), "{forwarded:?}");
    assert_eq!((span.name.as_str(), span.kind), ("POST /v1/chat/completions", 2));
    assert_eq!((span.flags, span.status.code), (1, None));
    assert_eq!(span.start_time_unix_nano, NOW_NS.to_string());
    let times: Vec<u64> = [&span.start_time_unix_nano]
        .into_iter()
        .chain(span.events.iter().map(|event| &event.time_unix_nano))
        .chain([&span.end_time_unix_nano])
        .map(|time| time.parse().unwrap())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    let events: Vec<&str> = span.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(events, ["request_sent", "answer_head", "first_frame"]);
    let attributes: Vec<(&str, &str)> = (span.attributes.iter())
        .map(|attribute| match &attribute.value {
            AttributeValue::StringValue(text) | AttributeValue::IntValue(text) => {
                (attribute.key.as_str(), text.as_str())
            }
        })
        .collect();
    assert_eq!(
        attributes,
        [
            ("http.request.method", "POST"),
            ("http.route", "/v1/chat/completions"),
            ("http.response.status_code", "200"),
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.provider.name", "confide"),
            ("gen_ai.request.model", "tiny"),
        ]
    );
}

#[tokio::test]
async fn a_malformed_context_starts_a_trace_and_an_unsampled_one_is_followed() {
    let malformed = "traceparent: 00-MARK-00f067aa0ba902b7-01\r\ntracestate: a=MARK\r\n";
    let unsampled = format!("traceparent: {}\r\n", PARENT.replace("-01", "-00"));
    let path = "/v1/completions";
    let requests =
        [post(path, malformed, "{}"), post(path, &unsampled, "{}"), post(path, "", "{}")];
    let (forwarded, spans) = trace(&requests).await;
    assert!(!forwarded[0].contains("MARK"), "{forwarded:?}");
    let unchanged = PARENT.replace("-01", "-00");
    assert_eq!(traceparent_of(&forwarded[1]), Some(unchanged.as_str()));
    let [first, third] = <[_; 2]>::try_from(spans).unwrap();
    for (span, head) in [(&first, &forwarded[0]), (&third, &forwarded[2])] {
        assert!(is_lower_hex(&span.trace_id, 32), "{span:?}");
        assert_eq!(span.parent_span_id, None);
        let next = format!("00-{}-{}-01", span.trace_id, span.span_id);
        assert_eq!(traceparent_of(head), Some(next.as_str()));
    }
    assert_ne!(first.trace_id, third.trace_id);
    assert_ne!(first.span_id, third.span_id);
}

#[tokio::test]
async fn no_metric_and_no_span_contains_a_word_of_a_request() {
    let answer = "{\"model\":\"MARKmodel\",\"usage\":{\"prompt_tokens\":7}}";
    let head = "HTTP/1.1 200 OK\r\nx-MARKanswer: MARK\r\ncontent-type: application/json\r\n";
    let length = answer.len();
    let answer = format!("{head}content-length: {length}\r\n\r\n{answer}");
    let upstream = repeating_upstream(answer).await;
    let (collector, mut bodies) = collector(ACCEPTED).await;
    let configuration = configuration(upstream);
    let metrics = metrics_of(&configuration);
    let url = format!("http://{collector}");
    let (traces, task) = TraceExporter::start(&url, 1.0, metrics.clone(), || NOW_NS).unwrap();
    let gateway = observed_gateway(&configuration, &metrics, Some(traces)).await;
    let fields = "authorization: Bearer sk-MARKkey\r\nx-api-key: MARKkey\r\nuser-agent: MARKagent\r\n\
                  x-forwarded-for: 203.0.113.77\r\ntracestate: v=MARKstate\r\nbaggage: MARK=MARK\r\n\
                  connection: close\r\n";
    let body = "{\"model\":\"MARKmodel\",\"prompt\":\"MARKprompt\"}";
    for path in ["/v1/chat/completions?MARKquery=MARK", "/v1/responses/MARKid/cancel", "/MARKpath"]
    {
        exchange(gateway.address, &post(path, fields, body)).await;
    }
    let odd = format!("MARK /v1/models HTTP/1.1\r\nhost: MARKhost\r\n{fields}\r\n");
    assert!(exchange(gateway.address, &odd).await.contains("method_not_allowed"));
    stop(gateway).await;
    finish_in_time(task.finish()).await;
    let (_, spans) = finish_in_time(bodies.recv()).await.unwrap();
    assert_eq!(parse_spans(&spans).len(), 4);
    assert_lines(&metrics.encode(), &["vllm:prompt_tokens_total{model_name=\"tiny\"} 7"]);
    for text in [metrics.encode(), spans] {
        for secret in ["MARK", "mark", "203.0.113.77", "127.0.0.1", "Bearer"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}

#[tokio::test]
async fn a_collector_that_refuses_costs_spans_and_no_requests() {
    let upstream = repeating_upstream(format!("{CHUNKED}{STREAM}")).await;
    let refusal = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
    let (collector, _bodies) = collector(refusal).await;
    let configuration = configuration(upstream);
    let metrics = metrics_of(&configuration);
    let url = format!("http://{collector}/otel/");
    let (traces, task) = TraceExporter::start(&url, 1.0, metrics.clone(), || NOW_NS).unwrap();
    let gateway = observed_gateway(&configuration, &metrics, Some(traces)).await;
    let request = post("/v1/completions", "connection: close\r\n", "{}");
    assert!(exchange(gateway.address, &request).await.ends_with(LAST_CHUNK));
    stop(gateway).await;
    finish_in_time(task.finish()).await;
    assert_lines(
        &metrics.encode(),
        &[
            "confide_gateway_spans_exported_total 0",
            "confide_gateway_spans_lost_total{reason=\"export_failed\"} 1",
        ],
    );
}

#[tokio::test]
async fn a_collector_must_be_on_loopback_and_a_ratio_above_zero() {
    let configuration = configuration(([127, 0, 0, 1], 1).into());
    let metrics = metrics_of(&configuration);
    let start = |url: &str, ratio| {
        TraceExporter::start(url, ratio, metrics.clone(), || NOW_NS).err().map(|e| e.to_string())
    };
    for (url, wanted) in [
        ("http://10.0.0.1:4318", "loopback"),
        ("http://collector.example:4318", "loopback"),
        ("https://127.0.0.1:4318", "https"),
        ("http://127.0.0.1:4318/?key=1", "a query"),
        ("127.0.0.1:4318", "wanted"),
    ] {
        let error = start(url, 1.0).unwrap();
        assert!(error.contains(wanted) && error.contains(url), "{error}");
    }
    for ratio in [0.0, -0.1, 1.1, f64::NAN] {
        assert!(start("http://localhost:4318", ratio).unwrap().contains("ratio"));
    }
    assert_eq!(start("http://localhost:4318/otel", 0.5), None);
}

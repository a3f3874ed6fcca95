//! Answers in a shape: the sizes of what leaves do not depend on what the engine made.

use std::sync::Mutex;

use confide_receipt::RETURNED_EVENT;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::{
    http2::{curl, has_curl_with_http2},
    receipts::{body, fetch_receipt, field, gateway_of_configuration, post},
    *,
};
use crate::{Gateway, GatewayOptions, UsageScanner};

/// Slots of 1,024 bytes every 10 ms, 16 or a multiple of them.
const SHAPE: &str = "1024/10/16";
const SLOT_BYTES: usize = 1024;
const SLOTS: usize = 16;
/// The length of the record of an alert.
const ALERT_BYTES: usize = 2 + 1 + 16;

const EVENTS: &str = "data: {\"id\":\"chatcmpl-3\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5}}\n\n\
    data: [DONE]\n\n";

fn shaped_configuration(upstream: SocketAddr, binding: Binding) -> GatewayConfiguration {
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let mut configuration = GatewayConfiguration::with_upstream(binding, upstream);
    configuration.routes = vec![Route::dangerous_everything(DEFAULT_GROUP)];
    configuration.answer_shape = Some(SHAPE.parse().unwrap());
    configuration
}

async fn shaped_gateway(upstream: SocketAddr) -> RunningGateway {
    let configuration = shaped_configuration(upstream, Binding::Key);
    gateway_with(configuration, GatewayLimits::default()).await
}

/// A streamed answer of these pieces.
fn encode_stream(pieces: &[&str]) -> String {
    let chunks = pieces.iter().map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len()));
    format!("{CHUNKED}{}{LAST_CHUNK}", chunks.collect::<String>())
}

/// An upstream that gives this answer to each request, whatever it is.
async fn upstream_of(answer: String) -> SocketAddr {
    let answer: Arc<str> = answer.into();
    upstream(move |mut stream| {
        let answer = answer.clone();
        async move {
            read_until(&mut stream, "\r\n\r\n").await;
            let _ = stream.write_all(answer.as_bytes()).await;
            // What a client sends with its request is still read.
            read_to_end(&mut stream).await;
        }
    })
    .await
}

/// The chunks of an answer's body.
fn chunks_of(answer: &str) -> Vec<&str> {
    let (mut chunks, mut rest) = (Vec::new(), body(answer));
    loop {
        let (length, after) = rest.split_once("\r\n").expect("a chunk begins with its length");
        let length = usize::from_str_radix(length, 16).unwrap();
        let (chunk, after) = after.split_at(length);
        if length == 0 {
            return chunks;
        }
        chunks.push(chunk);
        rest = after.strip_prefix("\r\n").unwrap();
    }
}

/// The events of a stream, without comments.
fn events_of(stream: &str) -> Vec<&str> {
    let blocks = stream.split("\n\n").map(str::trim_start);
    blocks.filter(|block| !block.is_empty() && !block.starts_with(':')).collect()
}

#[tokio::test]
async fn a_stream_leaves_in_slots_of_one_size_with_all_its_events() {
    let pieces: Vec<&str> = EVENTS.split_inclusive("\"").collect();
    let gateway = shaped_gateway(upstream_of(encode_stream(&pieces)).await).await;
    let got = exchange(gateway.address, GET_CLOSE).await;
    let chunks = chunks_of(&got);
    assert_eq!(chunks.len() % SLOTS, 0, "{got}");
    assert!(chunks.iter().all(|chunk| chunk.len() == SLOT_BYTES), "{got}");
    assert_eq!(events_of(&chunks.concat()), events_of(EVENTS));
    assert!(chunks.last().unwrap().ends_with("data: [DONE]\n\n"), "{got}");
    // A counter of tokens reads the same.
    let count = |stream: &str| {
        let mut scanner = UsageScanner::for_events();
        scanner.read_piece(stream.as_bytes());
        scanner.finish(true)
    };
    assert_eq!(count(&chunks.concat()), count(EVENTS));
}

/// Passes one connection on, and records the bytes that the server sends.
async fn recording_proxy(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    async fn pass(
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        record: Option<Arc<Mutex<Vec<u8>>>>,
    ) {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            if let Some(record) = &record {
                record.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
            if to.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    }
    let recorded = Arc::<Mutex<Vec<u8>>>::default();
    let record = recorded.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let (from_client, to_client) = client.into_split();
        let server = TcpStream::connect(server).await.unwrap();
        let (from_server, to_server) = server.into_split();
        tokio::spawn(pass(from_client, to_server, None));
        pass(from_server, to_client, Some(record)).await;
    });
    (address, recorded)
}

/// The lengths of the records of application data (RFC 8446 section 5.1), without their headers.
fn record_lengths(mut bytes: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let [kind, _, _, high, low, rest @ ..] = bytes {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if *kind == 23 {
            lengths.push(length);
        }
        bytes = rest.get(length..).unwrap_or_default();
    }
    lengths
}

/// The lengths of the records in which a gateway of TLS sends a stream of these pieces.
async fn observe_stream(pieces: &[&str], version: &str) -> Vec<usize> {
    let upstream = upstream_of(encode_stream(pieces)).await;
    let options = GatewayOptions {
        configuration: shaped_configuration(upstream, Binding::None),
        key_validity: Duration::from_secs(3600),
        limits: GatewayLimits::default(),
        names: vec!["localhost".into()],
        session_tickets: false,
    };
    let gateway = Gateway::new(options, None, || 1_800_000_000).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, recorded) = recording_proxy(listener.local_addr().unwrap()).await;
    tokio::spawn(gateway.serve(listener, std::future::pending()));
    let url = format!("https://{address}/v1/models");
    let mut command = curl(&["--silent", "--insecure", version, "--no-buffer", &url]);
    let output = finish_in_time(command.output()).await.unwrap();
    let stream = String::from_utf8(output.stdout).unwrap();
    assert_eq!(events_of(&stream), events_of(&pieces.concat()), "{version}");
    let recorded = recorded.lock().unwrap().clone();
    record_lengths(&recorded)
}

#[tokio::test]
async fn each_slot_is_one_record_and_the_records_are_the_same_for_every_stream() {
    if !has_curl_with_http2().await {
        return eprintln!("skipped: no curl with HTTP/2");
    }
    let long = format!("data: {}\n\n", "x".repeat(1500));
    for (version, framing) in [("--http1.1", "400\r\n\r\n".len()), ("--http2", 9)] {
        // A byte for the type of the content, and the tag.
        let slot = SLOT_BYTES + framing + 1 + 16;
        // What comes before is the handshake, and an alert may come after.
        let of_answer = |lengths: Vec<usize>| -> Vec<usize> {
            let lengths = lengths.into_iter().skip_while(|&length| length < slot);
            lengths.filter(|&length| length != ALERT_BYTES).collect()
        };
        let first = of_answer(observe_stream(&[EVENTS], version).await);
        let pieces = [&long, "data: 1\n", "\nda", "ta: [DONE]\n\n"];
        let second = of_answer(observe_stream(&pieces, version).await);
        assert_eq!(first, second, "{version}");
        let count = first.iter().filter(|&&length| length == slot).count();
        // The first slot may be in one record with the head, and the last one with the last chunk.
        assert!((SLOTS - 2..=SLOTS).contains(&count), "{version}: {first:?}");
    }
}

#[tokio::test]
async fn a_document_is_filled_up_with_white_space() {
    let document = format!("{{\"id\":\"{}\"}}", "y".repeat(20_000));
    let fields = "content-type: application/json; charset=utf-8\r\netag: \"1\"\r\n";
    let known = format!("content-length: {}\r\n\r\n{document}", document.len());
    let (one, other) = document.split_at(5000);
    let pieces = [one, other].map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len()));
    let unknown = format!("transfer-encoding: chunked\r\n\r\n{}{LAST_CHUNK}", pieces.concat());
    for framed in [known, unknown] {
        let answer = format!("HTTP/1.1 200 OK\r\n{fields}{framed}");
        let gateway = shaped_gateway(upstream_of(answer).await).await;
        let got = exchange(gateway.address, GET_CLOSE).await;
        let body = match field(&got, "content-length") {
            Some(length) => {
                assert_eq!(length.parse::<usize>().unwrap(), body(&got).len());
                body(&got).to_owned()
            }
            None => chunks_of(&got).concat(),
        };
        assert_eq!(body.len(), 2 * SLOTS * SLOT_BYTES);
        assert_eq!(body.trim_end_matches(' '), document);
        assert_eq!(field(&got, "etag"), None, "{got}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_filled_up_is_refused() {
    for fields in [
        "content-type: text/event-stream\r\ncontent-encoding: gzip\r\n",
        "content-type: application/json\r\ncontent-encoding: br\r\n",
        "content-type: audio/wav\r\n",
        "",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{fields}content-length: 2\r\n\r\nok");
        let gateway = shaped_gateway(upstream_of(answer).await).await;
        let got = exchange(gateway.address, GET_CLOSE).await;
        assert!(got.starts_with("HTTP/1.1 502 "), "{got}");
        assert!(got.contains("upstream_unshapeable"), "{got}");
    }
}

#[tokio::test]
async fn a_length_that_leaves_no_room_for_filling_is_refused() {
    let fields = format!("content-type: application/json\r\ncontent-length: {}", u64::MAX);
    let answer = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{{");
    let gateway = shaped_gateway(upstream_of(answer).await).await;
    let got = exchange(gateway.address, GET_CLOSE).await;
    assert!(got.starts_with("HTTP/1.1 502 ") && got.contains("upstream_unshapeable"), "{got}");
}

#[tokio::test]
async fn an_answer_without_a_body_has_no_shape() {
    let answer = "HTTP/1.1 204 No Content\r\n\r\n".to_owned();
    let gateway = shaped_gateway(upstream_of(answer).await).await;
    assert!(exchange(gateway.address, GET_CLOSE).await.starts_with("HTTP/1.1 204 "));
}

#[tokio::test]
async fn the_answer_to_a_head_has_the_fields_of_the_one_to_a_get() {
    for (fields, wanted) in [
        ("content-type: text/plain\r\ncontent-length: 9\r\n", None),
        ("content-type: application/json\r\ncontent-length: 9\r\n", Some("16384")),
        ("content-type: application/json\r\ncontent-length: 16385\r\n", Some("32768")),
        ("content-type: application/json\r\ncontent-length: 18446744073709551615\r\n", None),
        ("content-type: text/event-stream\r\n", None),
        ("content-length: 0\r\n", Some("0")),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{fields}accept-ranges: bytes\r\n\r\n");
        let gateway = shaped_gateway(upstream_of(answer).await).await;
        let got = exchange(gateway.address, &GET_CLOSE.replace("GET", "HEAD")).await;
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
        assert_eq!(field(&got, "content-length"), wanted, "{got}");
        assert_eq!(field(&got, "accept-ranges").is_some(), wanted == Some("0"), "{got}");
    }
}

#[tokio::test]
async fn a_document_that_waits_for_its_time_leaves_the_place_at_the_server_to_the_next() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            let fields = "content-type: application/json\r\ncontent-length: 2";
            let answer = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{{}}");
            while !read_until(&mut stream, "\r\n\r\n").await.is_empty() {
                let _ = saw.send(());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    let mut configuration = shaped_configuration(upstream, Binding::Key);
    // The time of the first answer does not come while this test runs.
    configuration.answer_shape = Some("128/1000/4096".parse().unwrap());
    configuration.servers[0].requests_max = 1;
    let gateway = gateway_with(configuration, GatewayLimits::default()).await;
    let _clients = [ask(gateway.address, GET).await, ask(gateway.address, GET).await];
    for _ in 0..2 {
        finish_in_time(seen.recv()).await.unwrap();
    }
}

#[tokio::test]
async fn the_server_is_asked_for_answers_without_coding_and_trailers_are_dropped() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            saw.send(read_until(&mut stream, "\r\n\r\n").await).unwrap();
            let answer = encode_stream(&["data: 1\n\n"]);
            let answer = answer.replace("content-type", "trailer: x-a\r\ncontent-type");
            let answer = answer.replace(LAST_CHUNK, "0\r\nx-a: 1\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let gateway = shaped_gateway(upstream).await;
    let fields = "host: gateway\r\nte: trailers\r\naccept-encoding: gzip";
    let got = exchange(gateway.address, &GET_CLOSE.replace("host: gateway", fields)).await;
    assert!(!got.contains("x-a") && got.ends_with(LAST_CHUNK), "{got}");
    let forwarded = seen.recv().await.unwrap();
    assert!(forwarded.contains("accept-encoding: identity\r\n"), "{forwarded}");
    assert!(!forwarded.contains("gzip"), "{forwarded}");
}

#[tokio::test]
async fn a_receipt_covers_the_bytes_with_what_fills_them_up() {
    let configuration =
        shaped_configuration(upstream_of(encode_stream(&[EVENTS])).await, Binding::Key);
    let gateway = gateway_of_configuration(configuration).await;
    let got = exchange(gateway.address, &post("")).await;
    let receipt = fetch_receipt(gateway.address, field(&got, "x-receipt-id").unwrap()).await;
    receipt.check_body(RETURNED_EVENT, chunks_of(&got).concat().as_bytes()).unwrap();
    assert!(receipt.check_body(RETURNED_EVENT, EVENTS.as_bytes()).is_err());
    assert_eq!(receipt.document().get_text("chat_id"), Some("chatcmpl-3"));
    assert!(!receipt.is_cut(RETURNED_EVENT));
}

#[tokio::test]
async fn what_came_before_a_break_arrives_and_the_break_shows() {
    let answer = format!("{CHUNKED}9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n");
    let gateway = shaped_gateway(upstream_saying(answer.leak()).await).await;
    let got = exchange(gateway.address, GET).await;
    assert!(got.contains("data: 1\n\n") && !got.ends_with(LAST_CHUNK), "{got}");
}

#[tokio::test]
async fn the_last_event_arrives_although_the_stream_breaks_after_it() {
    let last = "data: 1\n\ndata: [DONE]\n\n";
    let answer = format!("{CHUNKED}{:x}\r\n{last}\r\n", last.len());
    let gateway = shaped_gateway(upstream_saying(answer.leak()).await).await;
    let got = exchange(gateway.address, GET).await;
    assert!(got.contains("data: [DONE]\n\n") && !got.ends_with(LAST_CHUNK), "{got}");
}

#[tokio::test]
async fn an_event_of_more_than_can_wait_breaks_the_stream_after_what_came_before() {
    let long = format!("data: {}\n\n", "x".repeat(300_000));
    // In pieces, so that the end of the event is not there when the bound is reached.
    let pieces = long.as_bytes().chunks(1000).map(|piece| str::from_utf8(piece).unwrap());
    let pieces: Vec<_> = pieces.collect();
    let answer = encode_stream(&[&["data: 1\n\n"][..], &pieces].concat());
    let gateway = shaped_gateway(upstream_of(answer).await).await;
    let got = exchange(gateway.address, GET_CLOSE).await;
    assert!(got.contains("data: 1\n\n") && !got.ends_with(LAST_CHUNK), "{}", got.len());
    assert!(!got.contains("xxx"), "{}", got.len());
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_work() {
    let (left, mut has_left) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let left = left.clone();
        async move {
            read_until(&mut stream, "\r\n\r\n").await;
            stream.write_all(CHUNKED.as_bytes()).await.unwrap();
            read_to_end(&mut stream).await;
            left.send(()).unwrap();
        }
    })
    .await;
    let gateway = shaped_gateway(upstream).await;
    let mut client = ask(gateway.address, GET).await;
    // An engine that is silent leaves comments.
    assert!(read_until(&mut client, "\n\n").await.contains("400\r\n:  "));
    drop(client);
    finish_in_time(has_left.recv()).await.unwrap();
}

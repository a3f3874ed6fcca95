//! The loopback proxy: raw bytes in, raw bytes out, attested servers behind it.

mod local;
mod site;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use confide_client::{AllowedOrigins, Binding, BodyPace, ClientLimits, DrainOutcome};
use confide_fake_attester::{FakeAttester, FakeAttesterOptions};
use local::{LocalOptions, ask, loopback, loopback_with, read_to_end, read_until};
use site::{
    CHUNKED, OK_AND_CLOSE, attester, finish_in_time, now, options, read_head, server,
    server_claiming, site,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    sync::mpsc,
};

const GET: &str = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n";
const GET_CLOSE: &str = "GET /v1/models?a=b HTTP/1.1\r\nhost: localhost\r\n\
                         connection: close, x-hop\r\nx-hop: 1\r\n\r\n";
const LAST_CHUNK: &str = "0\r\n\r\n";

#[tokio::test]
async fn a_request_is_forwarded_with_the_name_of_the_attested_end() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let address = site(vec![server(Binding::Key, Some(attester()), now)], move |mut stream| {
        let saw = saw.clone();
        async move {
            saw.send(read_head(&mut stream).await.unwrap()).unwrap();
            stream.write_all(site::OK).await.unwrap();
            stream.flush().await.unwrap();
        }
    })
    .await;
    let local = loopback(address, ClientLimits::default()).await;
    let got = read_to_end(&mut ask(local.address, GET_CLOSE).await).await;
    assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\nok"), "{got}");
    let forwarded = seen.recv().await.unwrap();
    assert!(forwarded.starts_with("get /v1/models?a=b http/1.1\r\n"), "{forwarded}");
    assert!(forwarded.contains(&format!("host: {address}\r\n")), "{forwarded}");
    assert!(!forwarded.contains("x-hop"), "{forwarded}");
    // Nothing is added: request line, host, the two line ends.
    assert_eq!(forwarded.lines().count(), 3, "{forwarded}");
}

/// Starts a server that sends a piece, waits for a signal, and then goes on or breaks off.
async fn streaming() -> (SocketAddr, mpsc::UnboundedSender<bool>) {
    let (word, words) = mpsc::unbounded_channel::<bool>();
    let words = Arc::new(tokio::sync::Mutex::new(words));
    let servers = vec![server(Binding::Key, Some(attester()), now)];
    let address = site(servers, move |mut stream| {
        let words = words.clone();
        async move {
            read_head(&mut stream).await;
            stream.write_all(CHUNKED).await.unwrap();
            for piece in ["9\r\ndata: 1\n\n\r\n", "9\r\ndata: 2\n\n\r\n", LAST_CHUNK] {
                stream.write_all(piece.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
                if words.lock().await.recv().await != Some(true) {
                    return;
                }
            }
        }
    })
    .await;
    (address, word)
}

#[tokio::test]
async fn pieces_pass_as_they_come() {
    let (address, word) = streaming().await;
    let local = loopback(address, ClientLimits::default()).await;
    let mut client = ask(local.address, GET_CLOSE).await;
    let first = read_until(&mut client, "data: 1\n\n\r\n").await;
    assert!(!first.contains("data: 2"), "{first}");
    word.send(true).unwrap();
    assert!(read_until(&mut client, "data: 2\n\n\r\n").await.ends_with("data: 2\n\n\r\n"));
    word.send(true).unwrap();
    assert_eq!(read_to_end(&mut client).await, LAST_CHUNK);
}

#[tokio::test]
async fn a_stream_that_breaks_behind_the_proxy_is_broken_before_it() {
    let (address, word) = streaming().await;
    let local = loopback(address, ClientLimits::default()).await;
    let mut client = ask(local.address, GET).await;
    read_until(&mut client, "data: 1\n\n\r\n").await;
    word.send(false).unwrap();
    let rest = read_to_end(&mut client).await;
    assert!(!rest.ends_with(LAST_CHUNK), "the broken stream looks complete: {rest}");
}

#[tokio::test]
async fn a_client_that_could_not_see_a_break_gets_no_stream() {
    let (address, _word) = streaming().await;
    let local = loopback(address, ClientLimits::default()).await;
    let request = "GET / HTTP/1.0\r\nhost: localhost\r\n\r\n";
    let got = read_to_end(&mut ask(local.address, request).await).await;
    assert!(got.contains(" 505 ") && got.contains("http_1_1_needed"), "{got}");
}

#[tokio::test]
async fn evidence_that_is_refused_later_is_a_502_that_names_the_check() {
    let debug = FakeAttester::new(FakeAttesterOptions { debug: true, ..options() }).unwrap();
    let servers =
        vec![server(Binding::Key, Some(attester()), now), server(Binding::Key, Some(debug), now)];
    let address = site(servers, |mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(OK_AND_CLOSE).await.unwrap();
        stream.shutdown().await.unwrap();
    })
    .await;
    let local = loopback(address, ClientLimits::default()).await;
    let first = read_to_end(&mut ask(local.address, GET_CLOSE).await).await;
    assert!(first.ends_with("\r\n\r\nok"), "{first}");
    let second = read_to_end(&mut ask(local.address, GET_CLOSE).await).await;
    let (head, body) = second.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["error"]["code"], "evidence_rejected");
    assert!(body["error"]["message"].as_str().unwrap().contains("`debug`"), "{body}");
}

#[tokio::test]
async fn a_request_for_another_host_is_refused() {
    let address = site(vec![server(Binding::Key, Some(attester()), now)], site::answering).await;
    let local = loopback(address, ClientLimits::default()).await;
    let request = "GET / HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    let got = read_to_end(&mut ask(local.address, request).await).await;
    assert!(got.starts_with("HTTP/1.1 421 "), "{got}");
}

#[tokio::test]
async fn a_running_answer_is_finished_before_the_end_or_cut_at_the_deadline() {
    for finish in [true, false] {
        let (address, word) = streaming().await;
        let limits = match finish {
            true => ClientLimits::default(),
            false => ClientLimits { drain: Duration::from_millis(50), ..ClientLimits::default() },
        };
        let local = loopback(address, limits).await;
        let mut client = ask(local.address, GET).await;
        read_until(&mut client, "data: 1\n\n\r\n").await;
        local.stop.send(()).unwrap();
        if finish {
            word.send(true).unwrap();
            word.send(true).unwrap();
            assert!(read_to_end(&mut client).await.ends_with(LAST_CHUNK));
            assert_eq!(finish_in_time(local.ended).await.unwrap(), DrainOutcome::Completely);
        } else {
            assert_eq!(finish_in_time(local.ended).await.unwrap(), DrainOutcome::Cut(1));
            assert!(!read_to_end(&mut client).await.ends_with(LAST_CHUNK));
        }
    }
}

/// Starts a server that gives every request this answer and then ends its stream as TLS demands.
async fn saying(answer: &'static str) -> SocketAddr {
    site(vec![server(Binding::Key, Some(attester()), now)], move |mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    })
    .await
}

#[tokio::test]
async fn an_answer_whose_end_is_not_marked_is_not_passed_on() {
    for answer in [
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ] {
        let local = loopback(saying(answer).await, ClientLimits::default()).await;
        let got = read_to_end(&mut ask(local.address, GET_CLOSE).await).await;
        assert!(got.starts_with("HTTP/1.1 502 "), "{got}");
        assert!(got.contains("attested_end_unframed"), "{got}");
    }
}

#[tokio::test]
async fn an_answer_shorter_than_its_length_stays_short() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\ncontent-encoding: gzip\r\n\r\nhalf";
    let local = loopback(saying(answer).await, ClientLimits::default()).await;
    let got = read_to_end(&mut ask(local.address, GET_CLOSE).await).await;
    assert!(got.contains("content-length: 100\r\n") && got.ends_with("\r\n\r\nhalf"), "{got}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_at_once_is_a_broken_one() {
    for framing in ["content-length: 100", "transfer-encoding: chunked"] {
        let answer = format!("HTTP/1.1 200 OK\r\n{framing}\r\ncontent-encoding: gzip\r\n\r\n");
        let local = loopback(saying(answer.leak()).await, ClientLimits::default()).await;
        let got = read_to_end(&mut ask(local.address, GET_CLOSE).await).await;
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{framing}: {got}");
        assert!(got.contains(framing) && got.ends_with("\r\n\r\n"), "{framing}: {got}");
        assert!(!got.ends_with(LAST_CHUNK), "{framing}: {got}");
    }
}

#[tokio::test]
async fn what_would_echo_keys_or_cannot_be_read_is_refused() {
    let address = site(vec![server(Binding::Key, Some(attester()), now)], site::answering).await;
    let local = loopback(address, ClientLimits::default()).await;
    for (request, wanted) in [
        ("TRACE / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", "405"),
        (
            "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "501",
        ),
    ] {
        let got = read_to_end(&mut ask(local.address, request).await).await;
        assert!(got.starts_with(&format!("HTTP/1.1 {wanted} ")), "{got}");
    }
}

#[tokio::test]
async fn a_web_page_does_not_reach_the_address_unless_its_origin_is_allowed() {
    let address = site(vec![server(Binding::Key, Some(attester()), now)], site::answering).await;
    let origins = AllowedOrigins::new(&["https://chat.example"]).unwrap();
    let local = loopback_with(LocalOptions { origins, ..LocalOptions::default() }, address).await;
    // What a form or `fetch` without preflight sends: any page may, to any address.
    let simple = |field: &str| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:1\r\n{field}\
             content-type: text/plain\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
        )
    };
    for (field, wanted) in [
        ("", "200"),
        ("sec-fetch-site: none\r\n", "200"),
        ("origin: https://chat.example\r\nsec-fetch-site: cross-site\r\n", "200"),
        ("origin: https://evil.example\r\n", "403"),
        ("origin: null\r\n", "403"),
        ("origin: https://chat.example\r\norigin: https://evil.example\r\n", "403"),
        ("sec-fetch-site: cross-site\r\n", "403"),
        ("sec-fetch-site: same-site\r\n", "403"),
    ] {
        let got = read_to_end(&mut ask(local.address, &simple(field)).await).await;
        assert!(got.starts_with(&format!("HTTP/1.1 {wanted} ")), "{field}: {got}");
        let readable = got.contains("access-control-allow-origin: https://chat.example\r\n");
        assert_eq!(readable, field.contains("chat.example") && wanted == "200", "{field}: {got}");
    }
}

#[tokio::test]
async fn an_attested_end_cannot_open_the_address_to_every_page() {
    let open = "HTTP/1.1 200 OK\r\naccess-control-allow-origin: *\r\ncontent-length: 2\r\n\r\nok";
    let local = loopback(saying(open).await, ClientLimits::default()).await;
    let got = read_to_end(&mut ask(local.address, GET_CLOSE).await).await;
    assert!(got.ends_with("ok") && !got.contains("access-control"), "{got}");
}

#[tokio::test]
async fn a_local_client_that_does_not_read_is_let_go() {
    const FLOOD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n";
    let (over, mut ended) = mpsc::unbounded_channel::<()>();
    let servers = vec![server(Binding::Key, Some(attester()), now)];
    let address = site(servers, move |mut stream| {
        let over = over.clone();
        async move {
            read_head(&mut stream).await;
            stream.write_all(FLOOD.as_bytes()).await.unwrap();
            let piece = vec![b'x'; 64 * 1024];
            while stream.write_all(&piece).await.is_ok() {}
            let _ = over.send(());
        }
    })
    .await;
    let limits = ClientLimits { write_stall: Duration::from_millis(50), ..ClientLimits::default() };
    let local = loopback(address, limits).await;
    let _client = ask(local.address, GET).await;
    finish_in_time(ended.recv()).await.unwrap();
}

#[tokio::test]
async fn a_later_connection_that_promises_something_else_is_not_used() {
    let servers = vec![
        server(Binding::Key, Some(attester()), now),
        server_claiming("gateway only", Binding::Key, Some(attester()), now),
    ];
    let address = site(servers, |mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(OK_AND_CLOSE).await;
        let _ = stream.shutdown().await;
    })
    .await;
    let local = loopback(address, ClientLimits::default()).await;
    let first = read_to_end(&mut ask(local.address, GET_CLOSE).await).await;
    assert!(first.ends_with("\r\n\r\nok"), "{first}");
    let second = read_to_end(&mut ask(local.address, GET_CLOSE).await).await;
    assert!(second.starts_with("HTTP/1.1 502 "), "{second}");
    assert!(second.contains("evidence_rejected") && second.contains("`guarantee`"), "{second}");
    assert!(second.contains("gateway only"), "{second}");
}

#[tokio::test]
async fn a_redirect_away_from_the_attested_end_is_not_passed_on() {
    for (location, wanted) in [
        ("/v1/models", "307"),
        ("http://127.0.0.1:8000/v1/models", "502"),
        ("https://elsewhere.example/", "502"),
        ("//elsewhere.example/", "502"),
        ("/\\elsewhere.example/", "502"),
    ] {
        let answer = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\n\
             content-length: 0\r\n\r\n"
        );
        let address = saying(Box::leak(answer.into_boxed_str())).await;
        let local = loopback(address, ClientLimits::default()).await;
        let got = read_to_end(&mut ask(local.address, GET_CLOSE).await).await;
        assert!(got.starts_with(&format!("HTTP/1.1 {wanted} ")), "{location}: {got}");
        assert_eq!(got.contains("redirect_elsewhere"), wanted == "502", "{location}: {got}");
    }
}

#[tokio::test]
async fn a_request_beyond_the_queue_is_told_so_at_once_and_others_are_served() {
    let (address, word) = streaming().await;
    let limits = ClientLimits { connections: 1, requests_waiting: 1, ..ClientLimits::default() };
    let local = loopback(address, limits).await;
    let mut runs = ask(local.address, GET_CLOSE).await;
    read_until(&mut runs, "data: 1\n\n\r\n").await;
    let mut waits = ask(local.address, GET_CLOSE).await;
    // Whichever of the two came second is told that there is no room.
    let mut full = ask(local.address, GET_CLOSE).await;
    let (mut first, mut second) = (String::new(), String::new());
    let told = tokio::select! {
        () = read_into(&mut waits, &mut first) => { waits = full; first }
        () = read_into(&mut full, &mut second) => second,
    };
    assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
    assert!(told.contains("retry-after: 1\r\n") && told.contains("connect_busy"), "{told}");
    for _ in 0..5 {
        word.send(true).unwrap();
    }
    assert!(read_to_end(&mut runs).await.ends_with(LAST_CHUNK));
    assert!(read_to_end(&mut waits).await.ends_with(LAST_CHUNK));
}

async fn read_into(stream: &mut TcpStream, seen: &mut String) {
    stream.read_to_string(seen).await.unwrap();
}

#[tokio::test]
async fn idle_local_connections_give_way_to_a_new_one() {
    let address = site(vec![server(Binding::Key, Some(attester()), now)], site::answering).await;
    let limits = ClientLimits { local_connections: 2, ..ClientLimits::default() };
    let local = loopback(address, limits).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        let mut client = ask(local.address, GET).await;
        assert!(read_until(&mut client, "\r\n\r\nok").await.ends_with("ok"));
        held.push(client);
    }
    assert_eq!(read_to_end(&mut held[0]).await, "", "the one that was idle longest is closed");
}

#[tokio::test]
async fn a_local_body_that_drips_for_ever_is_a_408() {
    let address =
        site(vec![server(Binding::Key, Some(attester()), now)], |mut stream| async move {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        })
        .await;
    let request_body_pace = BodyPace {
        pause: Duration::from_secs(60),
        grace: Duration::from_millis(200),
        bytes_per_s: 1000,
    };
    let local =
        loopback(address, ClientLimits { request_body_pace, ..ClientLimits::default() }).await;
    let head = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n";
    let (mut answer, mut body) = ask(local.address, head).await.into_split();
    let dripping = tokio::spawn(async move {
        while body.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut seen = vec![0; 4096];
    let length = finish_in_time(answer.read(&mut seen)).await.unwrap();
    let got = String::from_utf8_lossy(&seen[..length]);
    assert!(got.starts_with("HTTP/1.1 408 ") && got.contains("too slowly"), "{got}");
    dripping.abort();
}

/// Regression: a 502 was sent before the body was read, and the connection then ended without
/// notice: the next request on it was a broken pipe.
#[tokio::test]
async fn an_answer_before_the_body_leaves_a_connection_that_takes_the_next_request() {
    // Bound and not listening: nobody else can take the port meanwhile.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let local = loopback(closed.local_addr().unwrap(), ClientLimits::default()).await;
    let body = vec![b'x'; 512 * 1024];
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut client = ask(local.address, &head).await;
    for _ in 0..2 {
        // The answer is there before the first byte of the body is sent.
        let answer = read_answer(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
        finish_in_time(client.write_all(&body)).await.expect("the rest of the body is read");
        finish_in_time(client.write_all(head.as_bytes())).await.expect("the connection is kept");
    }
}

#[tokio::test]
async fn a_client_that_waits_for_a_word_before_its_body_is_told_that_the_connection_ends() {
    // Bound and not listening: nobody else can take the port meanwhile.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let local = loopback(closed.local_addr().unwrap(), ClientLimits::default()).await;
    let head = "POST / HTTP/1.1\r\nhost: evil.example\r\nexpect: 100-continue\r\n\
                content-length: 5\r\n\r\n";
    let mut client = ask(local.address, head).await;
    let answer = read_answer(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
}

/// Regression: a bad chunk of the local client was reported as `attested_end_unavailable`.
#[tokio::test]
async fn a_bad_chunk_of_the_local_client_is_not_blamed_on_the_attested_end() {
    let servers = vec![server(Binding::Key, Some(attester()), now)];
    // It waits for a body that never becomes whole.
    let address = site(servers, |mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let local = loopback(address, ClientLimits::default()).await;
    let head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n\
                transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n";
    for bad in ["xyz\r\n", "-1\r\n", "fffffffffffffffff\r\n"] {
        let mut client = ask(local.address, &format!("{head}{bad}")).await;
        let got = read_to_end(&mut client).await;
        assert!(got.starts_with("HTTP/1.1 400 "), "{bad:?}: {got}");
        assert!(got.contains("local_body_malformed"), "{bad:?}: {got}");
    }
}

/// Reads one answer with its body, whose length it announces.
async fn read_answer(stream: &mut TcpStream) -> String {
    let head = read_until(stream, "\r\n\r\n").await;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap_or("0").parse().unwrap()];
    finish_in_time(stream.read_exact(&mut body)).await.unwrap();
    head + &String::from_utf8(body).unwrap()
}

//! Servers that lie about lengths, never end, or are none: no statement, no harm.

use std::{io::Write, sync::Arc, time::Duration};

use confide_notary::NotaryLimits;
use flate2::{Compression, write::GzEncoder};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket},
};

use crate::site::{Ca, Stream, notary, notary_of, request_of, says, server, short, small};

/// The code with which a notary refuses the answer of a server that sends these bytes and closes.
async fn code_of(answer: Vec<u8>) -> String {
    let ca = Ca::new();
    let answer = Arc::new(answer);
    let acceptor = ca.acceptor(&["localhost"], &["http/1.1"]);
    let port = server(acceptor, move |stream| says(stream, answer.clone())).await;
    let site = notary(&ca, port, small()).await;
    let client = site.client().await;
    client.fetch_refusal(&client.get(&format!("https://localhost:{port}/"))).await
}

fn answer(fields: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes(), body].concat()
}

#[tokio::test]
async fn answers_whose_end_is_not_marked_or_marked_twice_are_refused() {
    for (fields, body) in [
        ("", &b"until the end of the connection"[..]),
        ("content-length: 2\r\ncontent-length: 2\r\n", b"ok"),
        ("content-length: 2\r\ntransfer-encoding: chunked\r\n", b"2\r\nok\r\n0\r\n\r\n"),
        ("transfer-encoding: gzip\r\n", b"ok"),
        ("transfer-encoding: gzip, chunked\r\n", b"2\r\nok\r\n0\r\n\r\n"),
    ] {
        assert_eq!(code_of(answer(fields, body)).await, "answer_unframed", "{fields}");
    }
    let upgrade = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n";
    assert_eq!(code_of(upgrade.to_vec()).await, "answer_unframed");
}

#[tokio::test]
async fn broken_messages_are_refused() {
    let bomb = format!("x: {}\r\n", "a".repeat(1 << 20));
    let many: String = (0..101).map(|number| format!("x-{number}: 1\r\n")).collect();
    for (fields, body) in [
        ("content-length: 2\r\ncontent-length: 3\r\n", &b"ok"[..]),
        ("content-length: 5\r\n", b"ok"),
        ("content-length: -1\r\n", b"ok"),
        ("content-length: 99999999999999999999\r\n", b"ok"),
        ("transfer-encoding: chunked\r\n", b"2\r\nok\r\n"),
        ("transfer-encoding: chunked\r\n", b"zz\r\nok\r\n0\r\n\r\n"),
        ("transfer-encoding: chunked\r\n", b"fffffffffffffffff\r\nok"),
        ("content-length: 0\r\nx: a\0b\r\n", b""),
        ("content-length: 0\r\nx y: 1\r\n", b""),
        (&bomb, b""),
        (&many, b""),
    ] {
        let code = code_of(answer(fields, body)).await;
        assert_eq!(code, "answer_broken", "{}", &fields[..fields.len().min(60)]);
    }
    for whole in [&b""[..], b"hello\r\n\r\n", b"HTTP/9.9 200 OK\r\n\r\n", b"\0\0\0\0"] {
        assert_eq!(code_of(whole.to_vec()).await, "answer_broken");
    }
}

#[tokio::test]
async fn bombs_and_endless_answers_are_cut_at_the_limit() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&vec![0; 8 << 20]).unwrap();
    let gzip = gzip.finish().unwrap();
    let coded = format!("content-encoding: gzip\r\ncontent-length: {}\r\n", gzip.len());
    assert_eq!(code_of(answer(&coded, &gzip)).await, "answer_too_large");
    let long = "content-length: 70000\r\n";
    assert_eq!(code_of(answer(long, &[b'x'; 70_000])).await, "answer_too_large");
    let endless = [&b"8000\r\n"[..], &[b'x'; 0x8000], b"\r\n"].concat().repeat(4);
    let code = code_of(answer("transfer-encoding: chunked\r\n", &endless)).await;
    assert_eq!(code, "answer_too_large");
}

#[tokio::test]
async fn codings_that_nobody_undoes_are_refused() {
    for coding in ["br", "zstd", "deflate", "gzip, gzip"] {
        let fields = format!("content-encoding: {coding}\r\ncontent-length: 2\r\n");
        assert_eq!(code_of(answer(&fields, b"ok")).await, "answer_coding", "{coding}");
    }
    let twice = "content-encoding: gzip\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n";
    assert_eq!(code_of(answer(twice, b"ok")).await, "answer_coding");
    let none = "content-encoding: gzip\r\ncontent-length: 2\r\n";
    assert_eq!(code_of(answer(none, b"ok")).await, "answer_coding");
}

/// A server that speaks HTTP/2 by hand: answers with these frames, whatever is asked.
async fn says_frames(mut stream: Stream, frames: Arc<Vec<u8>>) {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const HEADERS: u8 = 1;
    stream.write_all(&SETTINGS).await.unwrap();
    stream.read_exact(&mut [0; 24]).await.unwrap();
    let mut kind = None;
    while kind != Some(HEADERS) {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        stream.read_exact(&mut vec![0; length]).await.unwrap();
        kind = Some(head[3]);
    }
    stream.write_all(&frames).await.unwrap();
    let _ = stream.read(&mut [0; 64]).await;
    std::future::pending::<()>().await;
}

/// A frame of the first stream.
fn frame(kind: u8, flags: u8, content: &[u8]) -> Vec<u8> {
    [&[0, 0, content.len() as u8, kind, flags, 0, 0, 0, 1][..], content].concat()
}

#[tokio::test]
async fn a_stream_of_http_2_that_was_reset_is_no_whole_answer() {
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;
    // `:status: 200`, and with it `content-length: 5` (RFC 7541, appendix A: 8 and 28).
    let (plain, of_five) = (&[0x88][..], &[0x88, 0x0f, 0x0d, 1, b'5'][..]);
    let data = |flags: u8| frame(0, flags, b"whole");
    let reset = |code: u8| frame(3, 0, &[0, 0, 0, code]);
    for (head, rest, wanted) in [
        (plain, data(END_STREAM), None),
        (of_five, data(END_STREAM), None),
        // The answer is whole before its stream is reset: the server does not read the request.
        (of_five, [data(0), reset(0)].concat(), None),
        (plain, [data(0), reset(0)].concat(), Some("answer_unframed")),
        (plain, reset(0), Some("answer_unframed")),
        (plain, [data(0), reset(8)].concat(), Some("answer_broken")),
        (of_five, frame(0, END_STREAM, b"cut"), Some("answer_broken")),
        (of_five, [frame(0, 0, b"cut"), reset(0)].concat(), Some("answer_unframed")),
    ] {
        let ca = Ca::new();
        let frames = Arc::new([frame(1, END_HEADERS, head), rest].concat());
        let shown = format!("{frames:?}");
        let acceptor = ca.acceptor(&["localhost"], &["h2"]);
        let port = server(acceptor, move |stream| says_frames(stream, frames.clone())).await;
        let site = notary(&ca, port, short()).await;
        let client = site.client().await;
        let request = client.get(&format!("https://localhost:{port}/"));
        match wanted {
            Some(code) => assert_eq!(client.fetch_refusal(&request).await, code, "{shown}"),
            None => {
                let notarised = client.fetch(&request).await.unwrap();
                assert!(notarised.received.ends_with(b"whole"));
            }
        }
    }
}

#[tokio::test]
async fn an_exchange_ends_in_its_time_whatever_its_steps_may_take() {
    let ca = Ca::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let hours = Duration::from_secs(3600);
    let limits = NotaryLimits { tls: hours, response_start: hours, ..short() };
    let site = notary(&ca, port, limits).await;
    let client = site.client().await;
    // Connected, and silent for ever.
    let code = client.fetch_refusal(&client.get(&format!("https://localhost:{port}/"))).await;
    assert_eq!(code, "host_timeout");
    drop(listener);
}

#[tokio::test]
async fn silent_and_dripping_servers_are_given_up() {
    let ca = Ca::new();
    for (begins, goes_on) in [
        // Nothing; informational answers for ever; a head and nothing; a body drop by drop.
        ("", ""),
        ("", "HTTP/1.1 103 Early Hints\r\n\r\n"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", ""),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n", "x"),
    ] {
        let port = server(ca.acceptor(&["localhost"], &[]), move |mut stream| async move {
            request_of(&mut stream).await;
            let mut wrote = stream.write_all(begins.as_bytes()).await;
            while wrote.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                wrote = stream.write_all(goes_on.as_bytes()).await;
            }
        })
        .await;
        let site = notary(&ca, port, short()).await;
        let client = site.client().await;
        let code = client.fetch_refusal(&client.get(&format!("https://localhost:{port}/"))).await;
        assert_eq!(code, "host_timeout", "{begins:?} {goes_on:?}");
    }
}

#[tokio::test]
async fn servers_without_a_believed_certificate_are_refused() {
    let ca = Ca::new();
    let ended = ca.acceptor_of(&["localhost"], &[], |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    let other_root = Ca::new().acceptor(&["localhost"], &[]);
    let other_name = ca.acceptor(&["elsewhere.example"], &[]);
    for acceptor in [ended, other_root, other_name] {
        let port = server(acceptor, |_| async {}).await;
        let site = notary(&ca, port, small()).await;
        let client = site.client().await;
        let code = client.fetch_refusal(&client.get(&format!("https://localhost:{port}/"))).await;
        assert_eq!(code, "certificate_refused");
    }
}

#[tokio::test]
async fn servers_that_speak_no_tls_are_refused() {
    let ca = Ca::new();
    for (answer, limits, wanted) in
        [(&b"HTTP/1.1 200 OK\r\n\r\n"[..], small(), "tls_failed"), (b"", short(), "host_timeout")]
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let site = notary(&ca, port, limits).await;
        let client = site.client().await;
        let request = client.get(&format!("https://localhost:{port}/"));
        let plain = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(answer).await.unwrap();
            std::future::pending::<()>().await;
        });
        assert_eq!(client.fetch_refusal(&request).await, wanted);
        plain.abort();
    }
    // Bound and not listening: nobody else can take the port meanwhile.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = socket.local_addr().unwrap().port();
    let site = notary(&ca, closed, small()).await;
    let client = site.client().await;
    let code = client.fetch_refusal(&client.get(&format!("https://localhost:{closed}/"))).await;
    assert_eq!(code, "host_unreachable");
}

#[tokio::test]
async fn private_addresses_are_not_dialled_unless_the_policy_names_them() {
    let ca = Ca::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let policy = format!(
        "hosts = [\"localhost:{port}\", \"127.0.0.1:{port}\", \"[::ffff:127.0.0.1]:{port}\"]\n\
         roots = \"-\"\nprivate_addresses = [\"10.0.0.0/8\"]"
    );
    let site = notary_of(&policy, &ca, small()).await;
    let client = site.client().await;
    for host in ["localhost", "127.0.0.1", "[::ffff:7f00:1]"] {
        let code = client.fetch_refusal(&client.get(&format!("https://{host}:{port}/"))).await;
        assert_eq!(code, "address_refused", "{host}");
    }
    let dialled = tokio::time::timeout(Duration::from_millis(50), listener.accept());
    assert!(dialled.await.is_err(), "an address was dialled that is not allowed");
}

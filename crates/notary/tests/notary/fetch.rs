//! Honest servers.

use std::{io::Write, sync::Arc};

use confide_disclosure::{BodyView, HttpVersion, TlsVersion, certificate_chain_hash};
use confide_notary::{AnswerReader, FETCH_PATH, NotaryLimits};
use flate2::{Compression, write::GzEncoder};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{io::AsyncWriteExt, sync::mpsc};

use crate::site::{Ca, GENEROUS, NOW, notary, request_of, says, server, value};

const CHAT: &str =
    r#"{"model":"m","choices":[{"message":{"content":"hi"}}],"usage":{"total_tokens":7}}"#;

#[tokio::test]
async fn what_was_sent_and_received_is_signed_and_checked() {
    let ca = Ca::new();
    let (sent, mut seen) = mpsc::unbounded_channel();
    let port = server(ca.acceptor(&["localhost"], &["http/1.1"]), move |mut stream| {
        let sent = sent.clone();
        async move {
            sent.send(request_of(&mut stream).await).unwrap();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{CHAT}",
                CHAT.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    })
    .await;
    let site = notary(&ca, port, NotaryLimits::default()).await;
    let client = site.client().await;
    let url = format!("https://localhost:{port}/v1/chat?x=1");
    let request = client.post(&url, br#"{"model":"m"}"#);
    // Two fetches over one attested connection.
    for _ in 0..2 {
        let notarised = client.fetch(&request).await.unwrap();
        let statement = &notarised.statement;
        assert_eq!((statement.host.as_str(), statement.port), ("localhost", port));
        assert_eq!((statement.time, statement.tls.version()), (NOW, TlsVersion::V13));
        assert_eq!(statement.tls.group().as_str(), "X25519MLKEM768");
        assert_eq!(statement.tls.suite().as_str(), "TLS_AES_256_GCM_SHA384");
        assert_eq!(statement.http, HttpVersion::V11);
        assert_eq!(
            (statement.request_view, statement.response_view),
            (BodyView::Json, BodyView::Json)
        );
        assert_eq!(value(&notarised, "response./choices/0/message/content"), "hi");
        assert_eq!(value(&notarised, "request.header:authorization"), "Bearer made-up");
        assert_eq!(value(&notarised, "request.target"), "/v1/chat?x=1");
        // The transcript's bytes are those that the server read.
        assert_eq!(notarised.sent, seen.recv().await.unwrap());
        assert!(notarised.received.ends_with(CHAT.as_bytes()));
        let again = confide_disclosure::NotarisedSession::decode(&notarised.encode()).unwrap();
        again.check().unwrap();
    }
    assert_eq!(client.http.idle_connections(), 1);
}

#[tokio::test]
async fn chunks_are_joined_gzip_is_undone_and_redirects_are_not_followed() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(CHAT.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let (one, two) = gzip.split_at(11);
    let mut chunked = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
        content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n"
        .to_vec();
    for chunk in [one, two] {
        chunked.extend(format!("{:x}\r\n", chunk.len()).bytes());
        chunked.extend(chunk);
        chunked.extend(b"\r\n");
    }
    chunked.extend(b"0\r\nx-trailer: 1\r\n\r\n");
    let ca = Ca::new();
    let acceptor = ca.acceptor(&["localhost"], &[]);
    let chunked = Arc::new(chunked);
    let port = server(acceptor, move |stream| says(stream, chunked.clone())).await;
    let site = notary(&ca, port, NotaryLimits::default()).await;
    let client = site.client().await;
    let url = format!("https://localhost:{port}/");
    let notarised = client.fetch(&client.get(&url)).await.unwrap();
    assert!(notarised.received.ends_with(CHAT.as_bytes()));
    assert_eq!(value(&notarised, "response./usage/total_tokens"), "7");
    assert_eq!(value(&notarised, "response.header:content-encoding"), "gzip");

    let elsewhere =
        b"HTTP/1.1 302 Found\r\nlocation: https://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n";
    let elsewhere = Arc::new(elsewhere.to_vec());
    let acceptor = ca.acceptor(&["localhost"], &["h2", "http/1.1"].map(|_| "http/1.1"));
    let port = server(acceptor, move |stream| says(stream, elsewhere.clone())).await;
    let site = notary(&ca, port, NotaryLimits::default()).await;
    let client = site.client().await;
    let url = format!("https://localhost:{port}/");
    let notarised = client.fetch(&client.get(&url)).await.unwrap();
    assert_eq!(value(&notarised, "response.status"), "302");
    assert_eq!(notarised.statement.response_view, BodyView::None);
}

#[tokio::test]
async fn http_2_is_spoken_where_the_server_prefers_it() {
    let ca = Ca::new();
    let port = server(ca.acceptor(&["localhost"], &["h2", "http/1.1"]), |stream| async {
        let service = service_fn(|request: Request<hyper::body::Incoming>| async {
            let authority = request.uri().authority().unwrap().to_string();
            assert!(!request.headers().contains_key("host"));
            let body = request.into_body().collect().await?.to_bytes();
            assert_eq!(body, "{}");
            let json = format!("{{\"host\":\"{authority}\"}}");
            let answer = Response::builder().header("content-type", "application/json");
            Ok::<_, hyper::Error>(answer.body(Full::new(bytes::Bytes::from(json))).unwrap())
        });
        let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    })
    .await;
    let site = notary(&ca, port, NotaryLimits::default()).await;
    let client = site.client().await;
    let url = format!("https://localhost:{port}/v1");
    let notarised = client.fetch(&client.post(&url, b"{}")).await.unwrap();
    assert_eq!(notarised.statement.http, HttpVersion::V2);
    assert_eq!(value(&notarised, "response./host"), format!("localhost:{port}"));
    assert_eq!(value(&notarised, "request.header:host"), format!("localhost:{port}"));
    assert!(notarised.sent.starts_with(b"POST /v1 HTTP/1.1\r\nhost: localhost:"));
    assert!(notarised.received.starts_with(b"HTTP/2 200\r\n"));
    let none = certificate_chain_hash([]);
    assert_ne!(notarised.statement.certificate_chain_hash, none);
}

#[tokio::test]
async fn a_stream_of_events_comes_through_before_it_is_signed() {
    let event = |text: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let (first, second) = (event("hel"), event("lo") + "data: [DONE]\n\n");
    let (go, gone) = tokio::sync::watch::channel(false);
    let ca = Ca::new();
    let whole = format!("{first}{second}");
    let port = server(ca.acceptor(&["localhost"], &[]), move |mut stream| {
        let (first, second, mut gone) = (first.clone(), second.clone(), gone.clone());
        async move {
            request_of(&mut stream).await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
            let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
            stream.write_all((head.to_owned() + &chunk(&first)).as_bytes()).await.unwrap();
            // The rest only after the client has seen the beginning.
            gone.wait_for(|go| *go).await.unwrap();
            stream.write_all((chunk(&second) + "0\r\n\r\n").as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    })
    .await;
    let site = notary(&ca, port, NotaryLimits::default()).await;
    let client = site.client().await;
    let request = client.post(&format!("https://localhost:{port}/v1"), b"{\"stream\":true}");
    let body = confide_client::whole_body(request.encode().unwrap());
    let post = Request::post(FETCH_PATH).body(body).unwrap();
    let mut answer = client.http.request(post).await.unwrap().response.into_body();
    let mut reader = AnswerReader::default();
    let mut seen = Vec::new();
    while let Some(frame) = tokio::time::timeout(GENEROUS, answer.frame()).await.unwrap() {
        seen.extend_from_slice(reader.push(frame.unwrap().data_ref().unwrap()).unwrap());
        if !seen.is_empty() {
            go.send_replace(true);
        }
    }
    assert_eq!(String::from_utf8(seen).unwrap(), whole);
    let received = reader.finish().unwrap();
    let notarised = received.check(&request, client.key.clone(), &client.validity).unwrap();
    assert_eq!(notarised.statement.response_view, BodyView::Events);
    assert_eq!(value(&notarised, "response./choices/0/message/content"), "hello");
}

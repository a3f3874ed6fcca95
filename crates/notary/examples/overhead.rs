//! What notarising adds to a fetch: a plain one and a notarised one in turn, each with a TLS
//! session of its own to the same server on loopback, the notary verified before. Evidence is
//! simulated; what is timed does not depend on it. Not a record: no A/A row, no machine state.
//!
//! `cargo run --release -p confide-notary --example overhead -- [PAIRS]`

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/notary/site.rs"]
mod site;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use confide_notary::Limits;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use site::{Ca, notary, says, server};

#[tokio::main]
async fn main() {
    let pairs: usize = std::env::args().nth(1).map_or(50, |text| text.parse().unwrap_or(50));
    for body_bytes in [1024, 64 * 1024] {
        let ca = Ca::new();
        let answer = Arc::new(answer(body_bytes));
        let acceptor = ca.acceptor(&["localhost"], &["http/1.1"]);
        let port = server(acceptor, move |stream| says(stream, answer.clone())).await;
        let site = notary(&ca, port, Limits::default()).await;
        let client = site.client().await;
        let plain = connector(&ca);
        let request = client.get(&format!("https://localhost:{port}/"));
        let mut taken: [Vec<Duration>; 2] = [Vec::new(), Vec::new()];
        for pair in 0..pairs {
            for arm in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
                let began = Instant::now();
                match arm {
                    0 => plain_fetch(&plain, port).await,
                    _ => drop(client.fetch(&request).await.expect("an honest server")),
                }
                taken[arm].push(began.elapsed());
            }
        }
        let [plain, notarised] = taken.map(|mut all| {
            all.sort_unstable();
            all[all.len() / 2].as_secs_f64() * 1000.0
        });
        println!(
            "answer of {body_bytes} bytes, {pairs} pairs: plain {plain:.2} ms, notarised \
             {notarised:.2} ms, difference of the medians {:.2} ms",
            notarised - plain
        );
    }
}

/// A JSON answer of about this length, as a model gives it.
fn answer(bytes: usize) -> Vec<u8> {
    let text = "a ".repeat(bytes / 2);
    let json = format!(
        "{{\"model\":\"m\",\"choices\":[{{\"message\":{{\"content\":\"{text}\"}}}}],\
         \"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":9,\"total_tokens\":14}}}}"
    );
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
    format!("{head}{}\r\n\r\n{json}", json.len()).into_bytes()
}

fn connector(ca: &Ca) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem.as_bytes()).expect("PEM")).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    TlsConnector::from(Arc::new(config))
}

async fn plain_fetch(connector: &TlsConnector, port: u16) {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the server listens");
    stream.set_nodelay(true).expect("a socket");
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = connector.connect(name, stream).await.expect("TLS");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    let driver = tokio::spawn(connection);
    let request = Request::get("/").header("host", format!("localhost:{port}"));
    let request = request.header("accept", "*/*").body(Empty::<bytes::Bytes>::new());
    let answer = sender.send_request(request.expect("a request")).await.expect("an answer");
    answer.into_body().collect().await.expect("a whole answer");
    drop(sender);
    driver.abort();
}

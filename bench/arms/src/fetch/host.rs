//! `confide-arm fetch-host`: an HTTPS server whose answers have the length that the path names (a
//! service, not an arm).

use std::{convert::Infallible, path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use confide_arm_line::Outcome;
use confide_channel::{Binding, Server, ServerOptions};
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
};

use super::answer::{BODY_BYTES_MAX, DEADLINE};
use crate::clock::unix_now;

/// How long the host's key is valid: longer than any run.
const KEY_VALIDITY: Duration = Duration::from_secs(86_400);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder for the certificate, and for a notary's policy that serves this host
    #[arg(long)]
    out: PathBuf,
}

pub(crate) fn run(args: Args) -> Outcome {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: Args) -> Outcome {
    let options = ServerOptions {
        binding: Binding::None,
        config_digest: [0; 32],
        guarantee: "none".into(),
        key_validity: KEY_VALIDITY,
        deadline: DEADLINE,
        names: vec!["127.0.0.1".into()],
        weights: None,
    };
    let server = Arc::new(Server::new(options, None, unix_now)?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let listen = listener.local_addr()?.to_string();
    let rules = format!(
        "hosts = [\"{listen}\"]\nroots = \"host.pem\"\nprivate_addresses = [\"127.0.0.1\"]\n"
    );
    let certificate = write_file(&args, "host.pem", &pem(&server.certificate_der()))?;
    let policy = write_file(&args, "notary.toml", &rules)?;
    let id = std::process::id();
    println!(
        "{}",
        json!({ "ready": true, "listen": listen, "pid": id, "certificate": certificate,
            "policy": policy })
    );
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve_connection(server.clone(), stream));
    }
}

async fn serve_connection(server: Arc<Server>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    // A client whose connection broke reports it; this end has nobody to tell.
    let Ok(accepted) = server.accept(stream).await else { return };
    let service =
        service_fn(
            |request: Request<Incoming>| async move { Ok::<_, Infallible>(respond(&request)) },
        );
    let _ = http1::Builder::new().serve_connection(TokioIo::new(accepted.stream), service).await;
}

fn respond(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let wanted = request.uri().path().trim_start_matches('/').parse().unwrap_or(0);
    let (status, body) = if (BODY_BYTES_MIN..=BODY_BYTES_MAX).contains(&wanted) {
        (StatusCode::OK, completion_body(wanted))
    } else {
        (StatusCode::NOT_FOUND, "{}".into())
    };
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// The JSON before and after the text of an answer.
const BEFORE: &str =
    r#"{"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":""#;
const AFTER: &str = concat!(
    r#""},"finish_reason":"stop"}],"#,
    r#""usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14}}"#
);

/// Below this there is no room for the rest of an answer.
pub(super) const BODY_BYTES_MIN: u64 = (BEFORE.len() + AFTER.len()) as u64;

/// A chat completion of exactly this length, as a model gives it: one long text and five numbers.
fn completion_body(bytes: u64) -> String {
    let text = (bytes - BODY_BYTES_MIN) as usize;
    let words = "and so on ".repeat(text / 10 + 1);
    [BEFORE, &words[..text], AFTER].concat()
}

fn write_file(args: &Args, name: &str, text: &str) -> Outcome<String> {
    let path = args.out.join(name);
    std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    Ok(path.display().to_string())
}

fn pem(der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let lines: Vec<&str> =
        (0..base64.len()).step_by(64).map(|at| &base64[at..base64.len().min(at + 64)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_json_of_the_length_that_was_asked_for() {
        for bytes in [BODY_BYTES_MIN, 1024, 65_536] {
            let body = completion_body(bytes);
            assert_eq!(body.len() as u64, bytes);
            let json: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(json["usage"]["total_tokens"], 14);
        }
    }
}

//! The versions of HTTP that a client may speak to `confide gateway`.

use std::process::Command;

use confide_tests::{ANY_PORT, Program};

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));

/// Runs curl without checking the certificate.
fn curl(arguments: &[&str]) -> Option<String> {
    let common = ["--silent", "--show-error", "--insecure", "--max-time", "60"];
    let output = Command::new("curl").args(common).args(arguments).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn curl_streams_an_answer_over_http2_and_over_http_1_1() {
    if !curl(&["--version"]).is_some_and(|version| version.contains("HTTP2")) {
        return eprintln!("skipped: no curl with HTTP/2");
    }
    let serve = ["serve", "--engine", "sim", "--model-name", "m", "--listen", ANY_PORT];
    let serve = CONFIDE.start(&serve);
    let upstream = format!("http://{}", serve.address());
    let gateway = ["gateway", "--listen", ANY_PORT, "--upstream", &upstream, "--binding", "none"];
    let gateway = CONFIDE.start(&gateway);
    let url = format!("https://{}/v1/chat/completions", gateway.address());
    let prompt =
        r#"{"model":"m","stream":true,"max_tokens":4,"messages":[{"role":"user","content":"Hi"}]}"#;
    for (version, wanted) in [("--http2", "2 200"), ("--http1.1", "1.1 200")] {
        let body = ["--header", "content-type: application/json", "--data", prompt];
        let more = ["--write-out", "%{http_version} %{http_code}", version, &url];
        let got = curl(&[&body[..], &more[..]].concat()).unwrap();
        assert!(got.ends_with(&format!("data: [DONE]\n\n{wanted}")), "{version}: {got}");
    }
    assert!(gateway.terminate().success());
}

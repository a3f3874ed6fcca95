//! The protocols of the clients of `confide gateway`, and the evidence that it may demand of them.
//!
//! All evidence here is simulated.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use confide_tests::{ANY_PORT, Folder, Program};

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

/// Makes a simulated attester and returns its folder.
fn simulate(folder: &Folder, name: &str, more: &[&str]) -> String {
    let attester = folder.argument(name);
    let made = CONFIDE.run(&[&["attest", "--simulate", "tdx", "--out", &attester], more].concat());
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    attester
}

#[test]
fn a_gateway_serves_only_attested_clients_and_shows_them_fresh_evidence() {
    let folder = Folder::new("gateway-mutual");
    let machine = simulate(&folder, "machine", &["--dangerous-platform-scope"]);
    let own = simulate(&folder, "own", &[]);
    let client_policy = format!("{own}/policy.toml");
    // A client has no configuration: its digest is zero.
    let pinned = CONFIDE.run(&["policy", "pin", &client_policy, "--digest", &"0".repeat(64)]);
    assert_eq!(pinned.status, Some(0), "{}", pinned.stderr);
    let serve = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
    let (upstream, log) = (format!("http://{}", serve.address()), folder.argument("log"));
    let common = ["gateway", "--listen", ANY_PORT, "--upstream", &upstream];
    let demanding = ["--simulate", &machine, "--client-policy", &client_policy];
    let keyed = CONFIDE.run(&[&common[..], &demanding].concat());
    assert!(keyed.stderr.contains("--binding session"), "{}", keyed.stderr);
    let logging = ["--binding", "session", "--access-log", &log];
    let gateway = CONFIDE.start(&[&common[..], &demanding, &logging].concat());
    let (url, policy) =
        (format!("https://{}", gateway.address()), format!("{machine}/policy.toml"));
    let connect = ["connect", &url, "--policy", &policy, "--listen", ANY_PORT];
    let session = ["--binding", "session"];
    let stranger = CONFIDE.run(&[&connect[..], &session].concat());
    assert_ne!(stranger.status, Some(0));
    assert!(stranger.stderr.contains("--simulate"), "{}", stranger.stderr);
    let other = CONFIDE.run(&[&connect[..], &["--simulate", &machine]].concat());
    assert_ne!(other.status, Some(0), "{}", other.stdout);
    let fresh = ["--simulate", &own, "--evidence-age-s", "1"];
    let client = CONFIDE.start(&[&connect[..], &fresh].concat());
    let models = format!("http://{}/v1/models", client.address());
    let ask = || curl(&["--output", "/dev/null", "--write-out", "%{http_code}", &models]).unwrap();
    assert_eq!(ask(), "200");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(ask(), "200");
    assert!(client.terminate().success());
    assert!(gateway.terminate().success());
    let log = std::fs::read_to_string(log).unwrap();
    let path = |line: &str| {
        line.split("\"path\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    };
    let paths: Vec<_> = log.lines().map(path).collect();
    assert_eq!(paths, ["/v1/models/*", "/.well-known/confide/evidence", "/v1/models/*"], "{log}");
}

#[test]
fn sessions_are_resumed_only_by_a_gateway_that_gives_tickets() {
    let folder = Folder::new("gateway-tickets");
    let serve = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
    let upstream = format!("http://{}", serve.address());
    let common = ["gateway", "--listen", ANY_PORT, "--upstream", &upstream];
    let attester = simulate(&folder, "attester", &[]);
    let refused =
        CONFIDE.run(&[&common[..], &["--simulate", &attester, "--session-tickets"]].concat());
    assert!(refused.stderr.contains("--binding none"), "{}", refused.stderr);
    if Command::new("openssl").arg("version").output().is_err() {
        return eprintln!("skipped: no openssl");
    }
    for (tickets, wanted) in
        [(&["--session-tickets"][..], "Reused, TLSv1.3"), (&[], "New, TLSv1.3")]
    {
        let gateway = CONFIDE.start(&[&common[..], &["--binding", "none"], tickets].concat());
        let (address, kept) = (gateway.address(), folder.argument("session.pem"));
        let shake = |option: &str| {
            let request =
                "printf 'GET /v1/models HTTP/1.1\\r\\nhost: h\\r\\nconnection: close\\r\\n\\r\\n'";
            let line = format!(
                "({request}; sleep 1) | openssl s_client -connect {address} -alpn http/1.1 {option} {kept}"
            );
            let output =
                Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let first = shake("-sess_out");
        assert!(first.contains("New, TLSv1.3") && first.contains("200 OK"), "{first}");
        if tickets.is_empty() {
            // The session of the other gateway is of no use here.
            assert!(shake("-sess_in").contains(wanted));
            continue;
        }
        let second = shake("-sess_in");
        assert!(second.contains(wanted) && second.contains("200 OK"), "{second}");
    }
}

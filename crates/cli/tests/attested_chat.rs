//! The whole way with the real program: serve, gateway, tunnel, connect, each a process.
//!
//! All evidence here is simulated.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use confide_tests::{ANY_PORT, Folder, Process, Program, text};
use serde_json::Value;

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));
/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);
/// Two addresses on which no test listens (RFC 863 discard, and one without a service).
const NOBODY: &str = "127.0.0.1:9";
const NOBODY_ELSE: &str = "127.0.0.1:10";
/// The arguments of a gateway whose upstream never comes.
const AT_ONCE: [&str; 2] = ["--upstream-wait-s", "0"];
const SEED: &str = "0101010101010101010101010101010101010101010101010101010101010101";

#[test]
fn a_chat_passes_with_either_binding_with_and_without_a_tunnel() {
    let folder = Folder::new("chat");
    let attester = simulate(&folder, "attester", &[]);
    let serve = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
    let direct = chat(&serve.address(), false);
    assert!(!direct.is_empty());
    let exported: &[&str] = &["--session-version", "3"];
    for (binding, version) in [("key", &[][..]), ("session", &[]), ("session", exported)] {
        let gateway = gateway(&serve, &attester, binding);
        assert_eq!(gateway.ready["guarantee"], "none (simulated)");
        assert_eq!(gateway.ready["simulated"], true);
        let tunnel =
            CONFIDE.start(&["tunnel", "--listen", ANY_PORT, "--allow", &gateway.address()]);
        let via = format!("ws://{}", tunnel.address());
        for more in [version.to_vec(), [version, &["--via", &via]].concat()] {
            let connect = connect(&gateway, &attester.join("policy.toml"), binding, &more);
            assert_eq!(connect.ready["guarantee"], "none (simulated)");
            assert_eq!(connect.ready["claimed_guarantee"], "operator is outside the TEE");
            assert_eq!(connect.ready["config_digest"], gateway.ready["config_digest"]);
            assert_eq!(connect.ready["tcb_status"], "UpToDate");
            assert_eq!(chat(&connect.address(), false), direct, "{binding} {more:?}");
            assert_eq!(chat(&connect.address(), true), direct, "{binding} {more:?}");
            assert!(connect.terminate().success());
        }
        assert!(tunnel.terminate().success());
        assert!(gateway.terminate().success());
    }
    assert!(serve.terminate().success());
}

/// Asks for the list of models at the address in the environment, and prints the first.
const ASKS: &str = "import json, os, urllib.request; \
                    models = urllib.request.urlopen(os.environ['OPENAI_BASE_URL'] + '/models'); \
                    print(json.load(models)['data'][0]['id'], os.environ['OPENAI_API_KEY']); \
                    raise SystemExit(7)";

#[test]
fn a_command_uses_the_address_while_it_runs() {
    let folder = Folder::new("command");
    let attester = simulate(&folder, "attester", &[]);
    let serve = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
    let gateway = gateway(&serve, &attester, "key");
    let (url, policy) = (format!("https://{}", gateway.address()), attester.join("policy.toml"));
    let connect = ["connect", &url, "--policy", text(&policy)];
    let run = |command: &[&str]| CONFIDE.run(&[&connect[..], &["--"], command].concat());
    let done = run(&["env", "-u", "OPENAI_API_KEY", "OPENAI_API_KEY=k", "python3", "-c", ASKS]);
    assert_eq!(done.status, Some(7), "{}", done.stderr);
    assert_eq!(done.stdout, "sim k\n", "standard output is the command's");
    let verified = format!("confide: {url} is verified; guarantee: none (simulated)\n");
    assert!(done.stderr.contains(&verified), "{}", done.stderr);
    let exempt = run(&["sh", "-c", "echo $no_proxy"]);
    assert!(exempt.stdout.contains("127.0.0.1,localhost"), "{}", exempt.stdout);
    let base_url = run(&["sh", "-c", "echo $OPENAI_BASE_URL"]);
    assert!(base_url.stdout.starts_with("http://127.0.0.1:"), "{}", base_url.stdout);
    assert_eq!(run(&["sh", "-c", "kill -9 $$"]).status, Some(128 + 9));
    let refused = run(&["/no/such/program"]);
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("/no/such/program: No such file"), "{}", refused.stderr);
    // A policy that refuses the gateway runs nothing.
    let production = write(&folder, "production.toml", "roots = [\"intel-production\"]\n");
    let connect = ["connect", &url, "--policy", text(&production), "--", "echo", "ran"];
    let refused = CONFIDE.run(&connect);
    assert_eq!((refused.status, &*refused.stdout), (Some(1), ""), "{}", refused.stderr);
}

#[test]
fn an_agent_gets_a_configuration_with_the_address_and_the_models() {
    let folder = Folder::new("agent");
    let attester = simulate(&folder, "attester", &[]);
    let serve = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
    let gateway = gateway(&serve, &attester, "key");
    let policy = attester.join("policy.toml");
    let file = folder.join("codex.toml");
    let more = ["--for", "codex", "--agent-file", text(&file)];
    let connect = connect(&gateway, &policy, "key", &more);
    let written = std::fs::read_to_string(&file).unwrap();
    let base_url = format!("base_url = \"http://{}/v1\"\n", connect.address());
    assert!(written.contains("model = \"sim\"\n") && written.contains(&base_url), "{written}");
    let url = format!("https://{}", gateway.address());
    let start = ["connect", &url, "--policy", text(&policy), "--binding", "key"];
    let refused = CONFIDE.run(&[&start[..], &more].concat());
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("exists already; nothing was written"), "{}", refused.stderr);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), written, "a file is never overwritten");
    let shows = ["--", "sh", "-c", "echo $ANTHROPIC_BASE_URL $ANTHROPIC_MODEL"];
    let shown = CONFIDE.run(&[&start[..], &["--for", "claude-code"], &shows].concat());
    assert!(shown.stdout.starts_with("http://127.0.0.1:"), "{}", shown.stdout);
    assert!(shown.stdout.ends_with(" sim\n") && !shown.stdout.contains("/v1"), "{}", shown.stdout);
    let refused = CONFIDE.run(&[&start[..], &["--for", "codex"], &shows].concat());
    assert_eq!((refused.status, &*refused.stdout), (Some(2), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("reads no configuration"), "{}", refused.stderr);
}

#[test]
fn a_server_is_reached_through_the_proxy_of_the_environment() {
    let folder = Folder::new("proxy");
    let attester = simulate(&folder, "attester", &[]);
    let serve = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
    let gateway = gateway(&serve, &attester, "key");
    let (proxy, asked) = http_proxy(gateway.address());
    let policy = attester.join("policy.toml");
    // Only the proxy knows this name.
    let far = ["connect", "https://far.example", "--policy", text(&policy), "--listen", ANY_PORT];
    let command = |exempt: &str| {
        let mut command = CONFIDE.command(&far);
        command.env("HTTPS_PROXY", format!("http://u:p@{proxy}")).env("NO_PROXY", exempt);
        command
    };
    let connect = Process::start(&mut command(""));
    assert!(!chat(&connect.address(), true).is_empty());
    let request = asked.recv_timeout(GENEROUS).unwrap();
    assert!(request.starts_with("CONNECT far.example:443 HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("Proxy-Authorization: Basic dTpw\r\n"), "{request}");
    let exempted = Process::try_start(&mut command("far.example"));
    assert!(exempted.is_err_and(|error| error.contains("far.example")));
    assert!(asked.try_recv().is_err(), "nothing went through the proxy");
}

/// A proxy that opens one connection to `target`, whatever it is asked for, and reports the head.
fn http_proxy(target: String) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (saw, asked) = mpsc::channel();
    thread::spawn(move || {
        let (mut near, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            near.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        saw.send(String::from_utf8(head).unwrap()).unwrap();
        let mut far = TcpStream::connect(target).unwrap();
        near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
        let (mut from_near, mut to_far) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from_near, &mut to_far));
        let _ = std::io::copy(&mut far, &mut near);
    });
    (address, asked)
}

#[test]
fn programs_at_the_address_can_ask_what_was_verified() {
    let folder = Folder::new("verification");
    let attester = simulate(&folder, "attester", &[]);
    let gateway = gateway_before(NOBODY, &attester, "key");
    let connect = connect(&gateway, &attester.join("policy.toml"), "key", &[]);
    let ask = |method: &str, more: &str| {
        let mut stream = TcpStream::connect(connect.address()).unwrap();
        stream.set_read_timeout(Some(GENEROUS)).unwrap();
        let request = format!(
            "{method} /.well-known/confide/verification HTTP/1.1\r\nhost: {}\r\n{more}\
             connection: close\r\n\r\n",
            connect.address()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask("GET", "");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
    let document: Value = serde_json::from_str(body).unwrap();
    for name in ["endpoint", "guarantee", "simulated", "scope", "config_digest", "not_after"] {
        assert_eq!(document[name], connect.ready[name], "{name}");
    }
    assert!(document["checks"].as_array().is_some_and(|checks| !checks.is_empty()), "{document}");
    assert!(ask("POST", "content-length: 0\r\n").starts_with("HTTP/1.1 405 "));
    let page = ask("GET", "origin: https://page.example\r\n");
    assert!(page.starts_with("HTTP/1.1 403 "), "web pages learn nothing: {page}");
}

#[test]
fn a_production_policy_refuses_the_simulated_root() {
    let folder = Folder::new("root");
    let attester = simulate(&folder, "attester", &[]);
    let gateway = gateway_before(NOBODY, &attester, "key");
    let production = write(
        &folder,
        "production.toml",
        "roots = [\"intel-production\"]\ndangerous_scope = \"platform\"\n",
    );
    let url = format!("https://{}", gateway.address());
    let refused = CONFIDE.run(&["connect", &url, "--policy", text(&production)]);
    assert_eq!(refused.status, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("check `root` failed"), "{}", refused.stderr);
    assert!(refused.stdout.is_empty(), "{}", refused.stdout);
    // The same policy with the simulated root next to: accepted, and said to protect nothing.
    let root = attester.join("root.der");
    let connect = connect(&gateway, &production, "key", &["--root", text(&root)]);
    assert_eq!(connect.ready["guarantee"], "none (simulated)");
}

/// Issue: `connect` opened its address for a policy that names no program or no configuration.
#[test]
fn a_policy_that_names_no_program_or_no_configuration_opens_no_address() {
    let folder = Folder::new("scope");
    let attester = simulate_unpinned(&folder, "attester", &[]);
    let gateway = gateway_before(NOBODY, &attester, "key");
    let url = format!("https://{}", gateway.address());
    let unpinned = std::fs::read_to_string(attester.join("policy.toml")).unwrap();
    let roots = unpinned.lines().find(|line| line.starts_with("roots")).unwrap();
    let roots_only = write(&folder, "roots.toml", &format!("{roots}\n"));
    let empty = write(&folder, "empty.toml", "");
    let root = attester.join("root.der");
    for (policy, missing) in [
        (&attester.join("policy.toml"), "without config_digest"),
        (&roots_only, "without workload and config_digest"),
        (&empty, "without workload and config_digest"),
    ] {
        let with_root = ["--root", text(&root)];
        let arguments = ["connect", &url, "--policy", text(policy), "--json"];
        let refused = CONFIDE.run(&[&arguments[..], &with_root].concat());
        assert_eq!(refused.status, Some(1), "{}", refused.stderr);
        assert!(refused.stderr.contains("check `scope` failed"), "{}", refused.stderr);
        assert!(refused.stderr.contains(missing), "{}", refused.stderr);
        assert!(refused.stderr.contains("confide policy pin"), "{}", refused.stderr);
        // One object and nothing else: no ready line, and the failure for a program to read.
        let object: Value = serde_json::from_str(&refused.stdout).unwrap();
        assert_eq!(object["outcome"], "error");
        assert!(object["hint"].as_str().unwrap().contains("confide policy pin"));
    }
    // Asked for by name, it opens, and says so.
    let content = format!("{roots}\ndangerous_scope = \"platform\"\n");
    let content = write(&folder, "content.toml", &content);
    assert_eq!(connect(&gateway, &content, "key", &[]).ready["scope"], "platform");
}

#[test]
fn an_own_source_of_endorsements_that_gives_none_is_no_verdict() {
    let folder = Folder::new("unfetched");
    let attester = simulate(&folder, "attester", &[]);
    let gateway = gateway_before(NOBODY, &attester, "key");
    let url = format!("https://{}", gateway.address());
    let policy = attester.join("policy.toml");
    let service = format!("http://{NOBODY}");
    let arguments = ["connect", &url, "--policy", text(&policy)];
    let unjudged = CONFIDE.run(&[&arguments[..], &["--collateral-service", &service]].concat());
    assert_eq!(unjudged.status, Some(2), "{}", unjudged.stderr);
    assert!(unjudged.stderr.contains("could not be judged"), "{}", unjudged.stderr);
    assert!(unjudged.stderr.contains("check --collateral-service"), "{}", unjudged.stderr);
}

#[test]
fn a_policy_that_demands_the_session_needs_no_flag_for_it() {
    let folder = Folder::new("binding");
    let attester = simulate(&folder, "attester", &[]);
    let simulated = std::fs::read_to_string(attester.join("policy.toml")).unwrap();
    let policy = write(&folder, "session.toml", &format!("binding = \"session\"\n{simulated}"));
    let gateway = gateway_before(NOBODY, &attester, "session");
    let url = format!("https://{}", gateway.address());
    let connect = CONFIDE.start(&["connect", &url, "--policy", text(&policy)]);
    assert_eq!(connect.ready["binding"], "session");
    let by_key = gateway_before(NOBODY, &attester, "key");
    let url = format!("https://{}", by_key.address());
    let refused = CONFIDE.run(&["connect", &url, "--policy", text(&policy), "--binding", "key"]);
    assert_eq!(refused.status, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("--binding session"), "{}", refused.stderr);
}

#[test]
fn one_version_of_session_binding_can_be_asked_for() {
    let folder = Folder::new("session-version");
    let attester = simulate(&folder, "attester", &[]);
    let serve = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
    let gateway = gateway(&serve, &attester, "session");
    let direct = chat(&serve.address(), false);
    let policy = attester.join("policy.toml");
    for version in ["1", "2", "3"] {
        let connect = connect(&gateway, &policy, "session", &["--session-version", version]);
        assert_eq!(chat(&connect.address(), false), direct, "{version}");
    }
    let url = format!("https://{}", gateway.address());
    let refused = ["connect", &url, "--policy", text(&policy), "--session-version", "4"];
    assert_eq!(CONFIDE.run(&refused).status, Some(2));
}

#[test]
fn an_existing_attester_is_replaced_only_when_that_is_asked_for() {
    let folder = Folder::new("replace");
    let attester = simulate_unpinned(&folder, "attester", &[]);
    let root = std::fs::read(attester.join("root.der")).unwrap();
    let again = ["attest", "--simulate", "tdx", "--out", text(&attester)];
    let refused = CONFIDE.run(&again);
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("exists and is not empty"), "{}", refused.stderr);
    assert_eq!(std::fs::read(attester.join("root.der")).unwrap(), root);
    assert_eq!(CONFIDE.run(&[&again[..], &["--replace"]].concat()).status, Some(0));
    assert_ne!(std::fs::read(attester.join("root.der")).unwrap(), root);
    // Only an attester is replaced, whatever else a folder holds.
    let other = folder.join("elsewhere");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("root.der"), "kept").unwrap();
    let into = ["attest", "--simulate", "tdx", "--replace", "--out", text(&other)];
    assert_eq!(CONFIDE.run(&into).status, Some(2));
    assert_eq!(std::fs::read(other.join("root.der")).unwrap(), b"kept");
    let device = CONFIDE.run(&["attest", "--tsm-root", "nowhere", "--out", text(&other)]);
    assert!(device.stderr.contains("exists and is not empty"), "{}", device.stderr);
}

/// Issue: the command printed after `attest --simulate snp` was refused.
#[test]
fn the_command_printed_after_a_simulation_runs_as_it_is_printed() {
    let folder = Folder::new("next");
    for (tee, more) in [("tdx", None), ("tdx-v5", None), ("sgx", None), ("snp", Some("ab"))] {
        let out = folder.join(tee);
        let mut arguments = vec!["attest", "--simulate", tee, "--out", text(&out)];
        arguments.extend(more.iter().flat_map(|data| ["--report-data", data]));
        let made = CONFIDE.run(&arguments);
        let line = made.stdout.lines().find_map(|line| line.strip_prefix("next: confide "));
        let arguments: Vec<&str> = line.expect(&made.stdout).split(' ').collect();
        let verified = CONFIDE.run(&arguments);
        assert_eq!(verified.status, Some(0), "{tee}: {line:?}: {}", verified.stderr);
        assert!(verified.stdout.contains("accepted "), "{}", verified.stdout);
    }
}

#[test]
fn evidence_of_a_debug_td_is_refused() {
    let folder = Folder::new("debug");
    let honest = simulate(&folder, "honest", &["--seed", SEED]);
    let debug = simulate(&folder, "debug", &["--seed", SEED, "--debug"]);
    for binding in ["key", "session"] {
        let gateway = gateway_before(NOBODY, &debug, binding);
        let url = format!("https://{}", gateway.address());
        let policy = honest.join("policy.toml");
        let refused =
            CONFIDE.run(&["connect", &url, "--policy", text(&policy), "--binding", binding]);
        assert_eq!(refused.status, Some(1), "{}", refused.stderr);
        assert!(refused.stderr.contains("check `debug` failed"), "{}", refused.stderr);
    }
}

#[test]
fn a_genuine_gateway_before_another_upstream_is_refused() {
    let folder = Folder::new("swap");
    let attester = simulate_unpinned(&folder, "attester", &[]);
    let gateway = gateway_before(NOBODY, &attester, "key");
    let digest = gateway.ready["config_digest"].as_str().unwrap();
    let pinned = attester.join("policy.toml");
    let done = CONFIDE.run(&["policy", "pin", text(&pinned), "--digest", digest]);
    assert_eq!(done.status, Some(0), "{}", done.stderr);
    connect(&gateway, &pinned, "key", &[]);
    let swapped = gateway_before(NOBODY_ELSE, &attester, "key");
    let url = format!("https://{}", swapped.address());
    let refused = CONFIDE.run(&["connect", &url, "--policy", text(&pinned)]);
    assert_eq!(refused.status, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("check `config_digest` failed"), "{}", refused.stderr);
    assert!(refused.stderr.contains(digest), "what was wanted: {}", refused.stderr);
}

#[test]
fn an_upstream_elsewhere_is_only_a_gateway_and_claims_so() {
    let folder = Folder::new("elsewhere");
    let attester = simulate(&folder, "attester", &[]);
    // A documentation address (RFC 5737): nothing answers there, and nothing has to.
    let gateway = gateway_before("192.0.2.1:80", &attester, "key");
    let connect = connect(&gateway, &attester.join("policy.toml"), "key", &[]);
    assert_eq!(connect.ready["claimed_guarantee"], "gateway only");
}

#[test]
fn an_upstream_killed_in_mid_stream_leaves_a_broken_stream() {
    let folder = Folder::new("killed");
    let attester = simulate(&folder, "attester", &[]);
    let slow = ["--ttft-ms", "1", "--tokens-per-second", "20"];
    let serve =
        CONFIDE.start(&[&["serve", "--engine", "sim", "--listen", ANY_PORT], &slow[..]].concat());
    let gateway = gateway(&serve, &attester, "key");
    let connect = connect(&gateway, &attester.join("policy.toml"), "key", &[]);
    let mut stream = ask(&connect.address(), "/v1/chat/completions", &chat_body(true, 10_000));
    let mut seen = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&seen).contains("data: ") {
        stream.read_exact(&mut byte).expect("the stream never began");
        seen.push(byte[0]);
    }
    drop(serve);
    let _ = stream.read_to_end(&mut seen);
    let seen = String::from_utf8_lossy(&seen);
    assert!(!seen.contains("[DONE]") && !seen.ends_with("0\r\n\r\n"), "looks complete: {seen}");
    // What is behind is gone, and the next request says so.
    let answer = exchange(&connect.address(), "/v1/chat/completions", &chat_body(false, 1));
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("upstream_unreachable"), "{answer}");
}

#[test]
fn a_gateway_that_says_nothing_and_one_that_is_not_there_end_with_status_2() {
    let folder = Folder::new("stalled");
    let attester = simulate(&folder, "attester", &[]);
    let policy = attester.join("policy.toml");
    let stalled = silent();
    let closed = TcpListener::bind(ANY_PORT).unwrap().local_addr().unwrap().to_string();
    for address in [&stalled.address, &closed] {
        let url = format!("https://{address}");
        let ended =
            CONFIDE.run(&["connect", &url, "--policy", text(&policy), "--deadline-ms", "300"]);
        assert_eq!(ended.status, Some(2), "{}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{}", ended.stdout);
    }
}

#[test]
fn what_would_weaken_protection_has_to_be_asked_for() {
    let folder = Folder::new("weaken");
    let policy = write(&folder, "production.toml", "");
    let beyond = ["--listen", "0.0.0.0:0", "--policy", text(&policy)];
    let refused = CONFIDE.run(&[&["connect", "https://127.0.0.1:1"], &beyond[..]].concat());
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains("--dangerous-listen-beyond-loopback"), "{}", refused.stderr);
    let bare = ["gateway", "--listen", ANY_PORT, "--upstream", "http://127.0.0.1:1"];
    for binding in ["key", "session"] {
        let refused = CONFIDE.run(&[&bare[..], &["--binding", binding]].concat());
        assert_eq!(refused.status, Some(2));
        assert!(refused.stderr.contains("hint: "), "{}", refused.stderr);
    }
}

#[test]
fn plain_tls_says_that_it_guarantees_nothing_and_writes_its_certificate() {
    let folder = Folder::new("plain");
    let certificate = folder.join("certificate.pem");
    let url = format!("http://{NOBODY}");
    let plain = ["gateway", "--listen", ANY_PORT, "--binding", "none", "--upstream", &url];
    let out = ["--certificate-out", text(&certificate)];
    let gateway = CONFIDE.start(&[&plain[..], &out[..], &AT_ONCE].concat());
    assert_eq!(gateway.ready["guarantee"], "none");
    let pem = std::fs::read_to_string(&certificate).unwrap();
    assert!(pem.starts_with("-----BEGIN CERTIFICATE-----\n"), "{pem}");
    let printed = CONFIDE.run(&[&plain[..], &["--print-config-digest"], &AT_ONCE[..]].concat());
    assert_eq!(printed.status, Some(0), "{}", printed.stderr);
    assert_eq!(printed.stdout.trim(), gateway.ready["config_digest"]);
}

#[test]
fn a_gateway_started_before_its_model_server_has_the_same_digest() {
    let folder = Folder::new("order");
    let attester = simulate(&folder, "attester", &[]);
    let manifest = "ab".repeat(32);
    // No other test connects from this address, so that its port stays free until it is bound again.
    let free = TcpListener::bind("127.0.0.86:0").unwrap().local_addr().unwrap();
    let listing = listing(format!(r#"{{"data":[{{"confide_manifest_sha256":"{manifest}"}}]}}"#));
    let (answered, first_try) = mpsc::channel();
    let server = thread::spawn(move || {
        // It still loads: the first answer is an error, and only then does it know its models.
        let listener = TcpListener::bind(free).unwrap();
        for answer in ["HTTP/1.1 503 Loading\r\ncontent-length: 0\r\n\r\n", &listing] {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            let _ = answered.send(());
        }
    });
    let upstream = format!("http://{free}");
    let arguments = ["gateway", "--listen", ANY_PORT, "--upstream", &upstream];
    let evidence = ["--simulate", text(&attester), "--binding", "key"];
    let gateway = CONFIDE.start(&[&arguments[..], &evidence].concat());
    first_try.try_recv().unwrap();
    server.join().unwrap();
    assert_eq!(gateway.ready["model_manifest_sha256"], manifest.as_str());
}

#[test]
fn a_gateway_that_waits_for_its_model_server_can_be_stopped() {
    let silent = silent();
    let upstream = format!("http://{}", silent.address);
    let arguments = ["gateway", "--listen", ANY_PORT, "--upstream", &upstream];
    let mut command = CONFIDE.command(&[&arguments[..], &["--binding", "none"]].concat());
    let waiting = Process::spawn(&mut command);
    silent.connections.recv_timeout(GENEROUS).expect("it does not ask for the models");
    assert_eq!(waiting.terminate().code(), Some(0));
}

#[test]
fn every_thread_has_a_socket_and_a_second_gateway_gets_none() {
    let upstream = format!("http://{NOBODY}");
    let arguments = ["--upstream", &upstream, "--binding", "none", "--threads", "3"];
    let start = |listen: &str| {
        let listen = ["gateway", "--listen", listen];
        CONFIDE.command(&[&listen[..], &arguments, &AT_ONCE].concat())
    };
    let gateway = Process::start(&mut start(ANY_PORT));
    let address = gateway.address();
    let port: u16 = address.rsplit(':').next().unwrap().parse().unwrap();
    // Listening sockets have the state 0A in the kernel's table (proc(5)).
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let sockets = table.lines().filter(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "0A"
    });
    assert_eq!(sockets.count(), 3);
    let refused = Process::try_start(&mut start(&address)).unwrap_err();
    assert!(refused.contains("another program listens there"), "{refused}");
    assert!(gateway.terminate().success());
}

#[test]
fn a_port_that_is_taken_is_named_with_a_way_out() {
    let taken = TcpListener::bind(ANY_PORT).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let at = ["--listen", address.as_str()];
    for arguments in [
        &["serve", "--engine", "sim"][..],
        &["tunnel", "--allow", NOBODY],
        &["gateway", "--upstream", "http://127.0.0.1:9", "--binding", "none"],
    ] {
        let ended = CONFIDE.run(&[arguments, &at].concat());
        assert_eq!(ended.status, Some(2));
        let stderr = ended.stderr;
        assert!(stderr.contains(&address) && stderr.contains("hint: another program"), "{stderr}");
    }
}

#[test]
fn files_of_another_kind_are_named_and_not_taken() {
    let folder = Folder::new("files");
    let attester = simulate(&folder, "attester", &[]);
    let file = |name: &str| text(&attester.join(name)).to_owned();
    let (policy, collateral) = (file("policy.toml"), file("collateral.json"));
    for (arguments, named, hint) in [
        (["--policy", &collateral, "--root", &file("root.der")], &collateral, "docs/policy.md"),
        (["--policy", &policy, "--root", &policy], &policy, "DER"),
        (["--policy", &policy, "--collateral", &policy], &policy, "collateral.json"),
    ] {
        let ended = CONFIDE.run(&[&["connect", "https://127.0.0.1:1"], &arguments[..]].concat());
        assert_eq!(ended.status, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(named.as_str()), "{}", ended.stderr);
        assert!(ended.stderr.contains("hint: ") && ended.stderr.contains(hint), "{}", ended.stderr);
        assert!(ended.stderr.len() < 1000, "{}", ended.stderr);
    }
}

#[test]
fn a_web_page_needs_an_explicit_choice() {
    let folder = Folder::new("page");
    let attester = simulate(&folder, "attester", &[]);
    let gateway = gateway_before(NOBODY, &attester, "key");
    let policy = attester.join("policy.toml");
    let page = "https://chat.example";
    for (more, wanted) in [(&[][..], " 403 "), (&["--allow-origin", page], " 204 ")] {
        let connect = connect(&gateway, &policy, "key", more);
        let mut stream = TcpStream::connect(connect.address()).unwrap();
        let request = format!(
            "OPTIONS /v1/models HTTP/1.1\r\nhost: localhost\r\norigin: {page}\r\n\
             access-control-request-method: POST\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.lines().next().unwrap().contains(wanted), "{answer}");
    }
    let every = ["--policy", text(&policy), "--allow-origin", "*"];
    let refused = CONFIDE.run(&[&["connect", "https://127.0.0.1:1"], &every[..]].concat());
    assert_eq!(refused.status, Some(2));
}

/// An attester whose policy is content with any configuration: most tests here are about something
/// else.
fn simulate(folder: &Folder, name: &str, more: &[&str]) -> PathBuf {
    simulate_unpinned(folder, name, &[more, &["--dangerous-platform-scope"]].concat())
}

fn simulate_unpinned(folder: &Folder, name: &str, more: &[&str]) -> PathBuf {
    let out = folder.argument(name);
    let made = CONFIDE.run(&[&["attest", "--simulate", "tdx", "--out", &out], more].concat());
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    out.into()
}

fn write(folder: &Folder, name: &str, content: &str) -> PathBuf {
    folder.write(name, content).into()
}

fn gateway(serve: &Process, attester: &Path, binding: &str) -> Process {
    gateway_before(&serve.address(), attester, binding)
}

/// A gateway that does not wait for its upstream.
fn gateway_before(upstream: &str, attester: &Path, binding: &str) -> Process {
    let upstream = format!("http://{upstream}");
    let where_to = ["gateway", "--listen", ANY_PORT, "--upstream", &upstream];
    let evidence = ["--simulate", text(attester), "--binding", binding];
    CONFIDE.start(&[&where_to[..], &evidence[..], &AT_ONCE].concat())
}

fn connect(gateway: &Process, policy: &Path, binding: &str, more: &[&str]) -> Process {
    let url = format!("https://{}", gateway.address());
    let arguments = ["connect", &url, "--policy", text(policy), "--binding", binding];
    CONFIDE.start(&[&arguments[..], more, &["--listen", ANY_PORT]].concat())
}

/// A listener that accepts and never says a word.
struct Silent {
    address: String,
    connections: mpsc::Receiver<()>,
}

fn silent() -> Silent {
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (connected, connections) = mpsc::channel();
    thread::spawn(move || {
        let mut streams = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            let _ = connected.send(());
            streams.push(stream);
        }
    });
    Silent { address, connections }
}

/// A whole answer with this list of models.
fn listing(json: String) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{json}", json.len())
}

fn chat_body(stream: bool, max_tokens: u32) -> String {
    let messages = r#"[{"role":"user","content":"Tell me of the house."}]"#;
    format!(
        r#"{{"model":"sim","stream":{stream},"max_tokens":{max_tokens},"messages":{messages}}}"#
    )
}

/// The text of one short chat.
fn chat(address: &str, stream: bool) -> String {
    let answer = exchange(address, "/v1/chat/completions", &chat_body(stream, 16));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
    if !stream {
        let body: Value = serde_json::from_str(&decode_chunks(head, body)).unwrap();
        return body["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    }
    let body = decode_chunks(head, body);
    let events: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (last, events) = events.split_last().unwrap();
    assert_eq!(*last, "[DONE]");
    let mut content = String::new();
    for event in events {
        let event: Value = serde_json::from_str(event).unwrap();
        content += event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
    }
    content
}

fn decode_chunks(head: &str, body: &str) -> String {
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return body.to_owned();
    }
    let (mut whole, mut rest) = (String::new(), body);
    loop {
        let (length, after) = rest.split_once("\r\n").expect("a chunk has a length");
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return whole;
        }
        whole += &after[..length];
        rest = &after[length + 2..];
    }
}

fn exchange(address: &str, path: &str, body: &str) -> String {
    let mut stream = ask(address, path, body);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn ask(address: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

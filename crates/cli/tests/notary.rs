//! The attested notary through the real program: host, notary, holder and third party are processes
//! of their own. All evidence here is simulated.

use std::{net::TcpListener, os::unix::fs::PermissionsExt};

use confide_tests::{ANY_PORT, CommandOutput, Folder, Process, Program};
use serde_json::Value;
use sha2::{Digest, Sha256};

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));

/// No test listens here (RFC 863 discard).
const NOBODY: &str = "127.0.0.1:9";
/// What every simulated machine has measured, and what none has.
const MEASURED: &str = "mrtd = \"8b8aabbb";
const OTHERWISE: &str = "mrtd = \"9b8aabbb";
const CONTENT: &str = "response./choices/0/message/content";

/// A notary for one host under `host.pem`, its attester, and a policy that pins both.
struct Site {
    folder: Folder,
    notary: Process,
}

impl Site {
    /// `more` is added to the notary's policy.
    fn new(folder: Folder, host: &str, more: &str) -> Self {
        Self::serving(folder, host, more, &[])
    }

    /// The same with more arguments of `notary serve`.
    fn serving(folder: Folder, host: &str, more: &str, options: &[&str]) -> Self {
        let attester = folder.argument("attester");
        let made = CONFIDE.run(&["attest", "--simulate", "tdx", "--out", &attester]);
        assert_eq!(made.status, Some(0), "{}", made.stderr);
        let rules = format!("hosts = [\"{host}\"]\nroots = \"host.pem\"\n{more}");
        let rules = folder.write("notary.toml", rules);
        let arguments = ["notary", "serve", "--listen", ANY_PORT, "--policy", &rules];
        let arguments = [&arguments[..], &["--simulate", &attester], options].concat();
        let notary = CONFIDE.start(&arguments);
        let told = ["notary", "serve", "--policy", &rules, "--print-config-digest"];
        let digest = CONFIDE.run(&[&told[..], options].concat()).stdout;
        assert_eq!(notary.ready["config_digest"], digest.trim());
        let demanded = String::from_utf8(folder.read("attester/policy.toml")).unwrap();
        let demanded = demanded.replace("\"dangerous-any\"", &format!("\"{}\"", digest.trim()));
        folder.write("policy.toml", format!("{demanded}\n[disclosure]\nhosts = [\"{host}\"]\n"));
        Self { folder, notary }
    }

    /// The policy with one text in place of another.
    fn policy_with(&self, name: &str, from: &str, to: &str) -> String {
        let policy = String::from_utf8(self.folder.read("policy.toml")).unwrap();
        assert!(policy.contains(from), "{policy}");
        self.folder.write(name, policy.replacen(from, to, 1))
    }

    fn fetch(&self, url: &str, policy: &str, more: &[&str]) -> CommandOutput {
        let (via, out) =
            (format!("https://{}", self.notary.address()), self.folder.argument("session"));
        // None is ever written over.
        let _ = std::fs::remove_file(&out);
        let arguments = ["notary", "fetch", url, "--via", &via, "--policy", policy, "--out", &out];
        CONFIDE.run(&[&arguments[..], more].concat())
    }

    fn verify(&self, file: &str, policy: &str, more: &[&str]) -> (Option<i32>, Value) {
        let arguments = ["verify", "disclosure", file, "--policy", policy, "--json"];
        let ended = CONFIDE.run(&[&arguments[..], more].concat());
        (ended.status, ended.json())
    }
}

/// Ordinary TLS before a server, whose certificate is `host.pem` from then on.
fn tls(folder: &Folder, upstream: &str) -> Process {
    let (upstream, pem) = (format!("http://{upstream}"), folder.argument("host.pem"));
    let gateway = ["gateway", "--listen", ANY_PORT, "--binding", "none", "--upstream-wait-s", "0"];
    CONFIDE.start(&[&gateway[..], &["--upstream", &upstream, "--certificate-out", &pem]].concat())
}

/// Issue line 11: it served anybody.
#[test]
fn a_notary_that_demands_evidence_of_its_clients_serves_nobody_without() {
    let folder = Folder::new("notary-attested");
    let server = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
    let host = tls(&folder, &server.address());
    let client = folder.argument("client");
    let made = CONFIDE.run(&["attest", "--simulate", "tdx", "--out", &client]);
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    let client_policy = format!("{client}/policy.toml");
    // A client has no configuration: its digest is zero.
    let pinned = CONFIDE.run(&["policy", "pin", &client_policy, "--digest", &"0".repeat(64)]);
    assert_eq!(pinned.status, Some(0), "{}", pinned.stderr);
    let options = ["--binding", "session", "--client-policy", &client_policy];
    let private = "private_addresses = [\"127.0.0.1\"]\n";
    let site = Site::serving(folder, &host.address(), private, &options);
    assert_eq!(site.notary.ready["clients"], "attested");
    let (url, policy) =
        (format!("https://{}/v1/models", host.address()), site.folder.argument("policy.toml"));
    let stranger = site.fetch(&url, &policy, &["--binding", "session"]);
    assert_ne!(stranger.status, Some(0), "{}", stranger.stdout);
    assert!(!site.folder.has("session"));
    // The notary's own attester is not one that the policy for clients accepts.
    let other = site.folder.argument("attester");
    let other = site.fetch(&url, &policy, &["--simulate", &other]);
    assert_ne!(other.status, Some(0), "{}", other.stdout);
    let served = site.fetch(&url, &policy, &["--simulate", &client]);
    assert_eq!(served.status, Some(0), "{}", served.stderr);
    assert!(site.folder.has("session"));
}

#[test]
fn clients_cannot_be_demanded_to_attest_over_a_key() {
    let folder = Folder::new("notary-key-clients");
    let attester = folder.argument("attester");
    assert_eq!(CONFIDE.run(&["attest", "--simulate", "tdx", "--out", &attester]).status, Some(0));
    let rules = folder.write("notary.toml", "hosts = [\"a.example\"]\nroots = \"system\"\n");
    let policy = format!("{attester}/policy.toml");
    let arguments = ["notary", "serve", "--listen", ANY_PORT, "--policy", &rules];
    let own = ["--binding", "key", "--simulate", &attester, "--client-policy", &policy];
    let refused = CONFIDE.run(&[&arguments[..], &own[..]].concat());
    assert_eq!(refused.status, Some(2), "{}", refused.stdout);
    assert!(refused.stderr.contains("add --binding session"), "{}", refused.stderr);
}

#[test]
fn what_a_host_answered_is_shown_to_a_third_party_and_every_change_is_refused_by_name() {
    let folder = Folder::new("notary-shown");
    let model = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
    let host = tls(&folder, &model.address());
    let site = Site::new(folder, &host.address(), "private_addresses = [\"127.0.0.1\"]");
    let (folder, policy) = (&site.folder, site.folder.argument("policy.toml"));
    let question =
        r#"{"model":"sim","messages":[{"role":"user","content":"Who?"}],"max_tokens":8}"#;
    let (question, secret) =
        (folder.write("question", question), folder.write("secret", "authorization: made-up\n"));
    let url = format!("https://{}/v1/chat/completions", host.address());
    let fetched = site.fetch(&url, &policy, &["--data", &question, "--header-file", &secret]);
    assert_eq!(fetched.status, Some(0), "{}", fetched.stderr);
    let summary = fetched.json();
    assert_eq!((&summary["status"], &summary["simulated"]), (&200.into(), &true.into()));
    assert_eq!(summary["key_exchange"], "X25519MLKEM768");
    let mode = std::fs::metadata(folder.argument("session")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it holds secrets");

    let (session, file) = (folder.argument("session"), folder.argument("shown"));
    let disclosed = ["disclose", &session, "--show", CONTENT, "--show", "request./model"];
    let bound = ["--prove", "response./usage/total_tokens <= 4096", "--out", &file];
    let disclosed = CONFIDE.run(&[&disclosed[..], &bound].concat());
    assert_eq!(disclosed.status, Some(0), "{}", disclosed.stderr);
    let (status, judged) = site.verify(&file, &policy, &[]);
    assert_eq!((status, &judged["outcome"]), (Some(0), &"accepted".into()), "{judged}");
    assert_eq!(judged["simulated"], true);
    assert_eq!(judged["statement"]["key_exchange_is_post_quantum"], true);
    let shown = folder.read("shown");
    let position = |text: &str| shown.windows(text.len()).position(|it| it == text.as_bytes());
    assert!(position("made-up").is_none() && position("Who?").is_none());

    let content = judged["shown"].as_array().unwrap().iter().find(|it| it["name"] == CONTENT);
    let content = content.unwrap()["value"].as_str().unwrap();
    let edited = |name: &str, at: usize| {
        let mut bytes = shown.clone();
        bytes[at] ^= 1;
        folder.write(name, bytes)
    };
    let answer = edited("answer", position(content).unwrap());
    // The port stands after the host's name, the time after hash, version, group and suite.
    let host_at = position("127.0.0.1").unwrap();
    let time = edited("time", host_at + 9 + 2 + 32 + 6 + 7);
    let port = edited("port", host_at + 9 + 1);
    let forger = CONFIDE.run(&["attest", "--simulate", "tdx", "--out", &folder.argument("forger")]);
    assert_eq!(forger.status, Some(0), "{}", forger.stderr);
    let root = folder.argument("forger/root.der");
    let hosts = format!("hosts = [\"{}\"]", host.address());
    let other_host = site.policy_with("other-host", &hosts, "hosts = [\"h\"]");
    let other_program = site.policy_with("other-program", MEASURED, OTHERWISE);
    let pinned = format!("\"{}\"", site.notary.ready["config_digest"].as_str().unwrap());
    let unpinned = site.policy_with("unpinned", &pinned, "\"dangerous-any\"");
    for (file, policy, more, refused) in [
        (&answer, &policy, vec![], "opening"),
        (&time, &policy, vec![], "signature"),
        (&port, &policy, vec![], "signature"),
        (&file, &policy, vec!["--root", &root], "evidence"),
        (&file, &policy, vec!["--at", "4102444800"], "time"),
        (&file, &other_host, vec![], "host"),
        (&file, &other_program, vec![], "evidence"),
        (&file, &unpinned, vec![], "notary_unpinned"),
    ] {
        let (status, judged) = site.verify(file, policy, &more);
        assert_eq!((status, &judged["refused"]), (Some(1), &refused.into()), "{judged}");
    }
    let (status, _) = site.verify(&session, &policy, &[]);
    assert_eq!(status, Some(2), "it is no disclosure");
}

#[test]
fn a_session_that_is_there_is_not_written_over_and_nothing_is_asked_for_it() {
    let host_listener = TcpListener::bind(ANY_PORT).unwrap();
    host_listener.set_nonblocking(true).unwrap();
    let folder = Folder::new("notary-kept");
    let (policy, out) = (folder.write("policy.toml", ""), folder.write("session", "the only copy"));
    let url = format!("https://{}/", host_listener.local_addr().unwrap());
    for out in [&out, &folder.argument(".")] {
        let words = ["notary", "fetch", &url, "--via", &url, "--policy", &policy, "--out", out];
        let refused = CONFIDE.run(&words);
        assert_eq!(refused.status, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains("exists already"), "{}", refused.stderr);
    }
    assert_eq!(folder.read("session"), b"the only copy");
    assert!(host_listener.accept().is_err(), "somebody was asked");
}

#[test]
fn a_notary_serves_any_client_unless_a_list_says_which_and_says_so() {
    let host = TcpListener::bind(ANY_PORT).unwrap();
    host.set_nonblocking(true).unwrap();
    let address = host.local_addr().unwrap().to_string();
    let folder = Folder::new("notary-clients");
    drop(tls(&folder, NOBODY));
    let digest = hex::encode(Sha256::digest(b"alice's own"));
    let clients = folder.write("clients", format!("alice {digest}\n"));
    let private = "private_addresses = [\"127.0.0.1\"]\nlimits.exchange_s = 5";
    let site = Site::serving(folder, &address, private, &["--clients", &clients]);
    assert_eq!(site.notary.ready["clients"], "listed");
    let (policy, url) = (site.folder.argument("policy.toml"), format!("https://{address}/"));
    let other = site.folder.write("other", "somebody else's\n");
    for more in [vec![], vec!["--credential", &other]] {
        let refused = site.fetch(&url, &policy, &more);
        assert_eq!(refused.status, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains("client_unknown"), "{}", refused.stderr);
        assert!(!refused.stderr.contains("somebody else"), "{}", refused.stderr);
        assert!(host.accept().is_err(), "the host was dialled for a stranger");
    }
    let own = site.folder.write("own", "alice's own\n");
    // It goes as far as the host, which is none: that is what was wanted here.
    let known = site.fetch(&url, &policy, &["--credential", &own]);
    assert!(
        known.stderr.contains("tls_failed") || known.stderr.contains("host_"),
        "{}",
        known.stderr
    );
    assert!(host.accept().is_ok(), "the host was not dialled for a listed client");
}

#[test]
fn nothing_is_sent_to_a_host_that_is_not_listed_or_private_or_by_a_notary_of_another_program() {
    let host_listener = TcpListener::bind(ANY_PORT).unwrap();
    host_listener.set_nonblocking(true).unwrap();
    let host = host_listener.local_addr().unwrap().to_string();
    let folder = Folder::new("notary-refused");
    drop(tls(&folder, NOBODY));
    let site = Site::new(folder, &host, "");
    let policy = site.folder.argument("policy.toml");
    let other_program = site.policy_with("other-program", MEASURED, OTHERWISE);
    let pinned = format!("\"{}\"", site.notary.ready["config_digest"].as_str().unwrap());
    let unpinned = site.policy_with("unpinned", &pinned, "\"dangerous-any\"");
    for (url, policy, status, wanted) in [
        (format!("https://{host}/"), &policy, 2, "the policy allows none of its private addresses"),
        (format!("https://{NOBODY}/"), &policy, 2, "not on this notary's list"),
        (format!("https://user@{host}/"), &policy, 2, "URL is not usable"),
        (format!("https://{host}/"), &other_program, 1, "another program than the policy"),
        (format!("https://{host}/"), &unpinned, 1, "check `scope` failed"),
    ] {
        let refused = site.fetch(&url, policy, &[]);
        assert_eq!(refused.status, Some(status), "{}", refused.stderr);
        assert!(refused.stderr.contains(wanted), "{}", refused.stderr);
        assert!(!site.folder.has("session"), "something was saved");
    }
    assert!(host_listener.accept().is_err(), "the host was dialled");
}

#[test]
fn a_notary_whose_statements_nobody_could_judge_does_not_start() {
    let folder = Folder::new("notary-start");
    let attester = folder.argument("attester");
    assert_eq!(CONFIDE.run(&["attest", "--simulate", "tdx", "--out", &attester]).status, Some(0));
    let rules = folder.write("notary.toml", "hosts = [\"h\"]\nroots = \"host.pem\"\n");
    let nothing = folder.write("nothing", "");
    drop(tls(&folder, NOBODY));
    let arguments = ["notary", "serve", "--listen", ANY_PORT, "--policy", &rules];
    let arguments = [&arguments[..], &["--simulate", &attester]].concat();
    for (more, wanted) in [
        (["--collateral", &nothing], "wanted a set of endorsements"),
        (["--key-validity-s", "300"], "twice the longest exchange"),
    ] {
        let refused = CONFIDE.run(&[&arguments[..], &more].concat());
        assert_eq!(refused.status, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(wanted), "{}", refused.stderr);
    }
}

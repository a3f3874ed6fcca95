//! `confide gateway --config`: listeners that terminate TLS or carry tunnels, and their reload.
//!
//! All evidence here is simulated.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use confide_channel::{Binding, ClientOptions, PlainClient, tunnel};
use confide_tests::{ANY_PORT, Folder, Process, Program, text};
use futures_util::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::tungstenite::{Error, Message};

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));
/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);

fn serve_model(name: &str) -> Process {
    CONFIDE.start(&["serve", "--engine", "sim", "--model-name", name, "--listen", ANY_PORT])
}

/// The file of a listener that terminates TLS in front of `model`, with further keys.
fn terminating(model: &Process, keys: &str) -> String {
    format!(
        "[[listener]]\nkind = \"terminate\"\nlisten = \"{ANY_PORT}\"\n{keys}\n\
         [[listener.upstream]]\nurl = \"http://{}\"\n",
        model.address()
    )
}

/// Starts a gateway outside of the machine at `target`. Returns it with the addresses of a listener that
/// carries tunnels there and of one that passes TLS there.
fn start_outside(folder: &Folder, target: &str) -> (Process, [String; 2]) {
    let file = format!(
        "[[listener]]\nkind = \"tunnel\"\nlisten = \"{ANY_PORT}\"\nallow = [\"{target}\"]\n\
         [[listener]]\nkind = \"pass\"\nlisten = \"{ANY_PORT}\"\n\
         [[listener.route]]\nnames = [\"localhost\"]\ntargets = [\"{target}\"]\n"
    );
    let file = folder.write("outside.toml", file);
    let outside = CONFIDE.start(&["gateway", "--config", &file]);
    let at =
        |index: usize| outside.ready["listeners"][index]["listen"].as_str().unwrap().to_owned();
    let addresses = [at(0), at(1)];
    (outside, addresses)
}

fn port_of(address: &str) -> &str {
    address.rsplit(':').next().unwrap()
}

/// Runs curl with `arguments` for the models at `address`, and returns its output and error together.
fn curl_models(address: &str, arguments: &[&str]) -> String {
    let url = format!("https://localhost:{}/v1/models", port_of(address));
    let fixed = ["--silent", "--show-error", "--max-time", "60", &url];
    let output = Command::new("curl").args(fixed).args(arguments).output().expect("curl runs");
    [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat()
}

fn hang_up(process: &Process) {
    let id = process.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &id]).status().expect("kill runs").success());
}

fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let until = Instant::now() + GENEROUS;
    while !is_true() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_reload_whose_line_nobody_reads_keeps_no_gateway_from_stopping() {
    let folder = Folder::new("unread");
    let file = format!(
        "[[listener]]\nkind = \"pass\"\nlisten = \"{ANY_PORT}\"\n\
         [[listener.route]]\nnames = [\"localhost\"]\ntargets = [\"127.0.0.1:9\"]\n"
    );
    let file = folder.write("unread.toml", file);
    let (output, writer) = std::io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    let mut gateway =
        CONFIDE.command(&["gateway", "--config", &file]).stdout(writer).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(&output).read_line(&mut ready).unwrap();
    assert!(ready.contains("\"ready\":true"), "{ready}");
    // The pipe is full once nothing more has gone into it for a while.
    let written = Arc::new(AtomicUsize::new(0));
    let count = written.clone();
    std::thread::spawn(move || {
        while filler.write_all(b"x").is_ok() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let mut seen = 0;
    while seen == 0 || seen != written.load(Ordering::SeqCst) {
        seen = written.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(200));
    }
    let send = |signal: &str| {
        let id = gateway.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    };
    send("-HUP");
    // Until its line blocks.
    std::thread::sleep(Duration::from_millis(500));
    send("-TERM");
    let mut status = None;
    wait_until("it does not stop", || {
        status = gateway.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success());
}

#[test]
fn a_model_behind_terminating_tunnelling_and_passing_listeners_is_verified_through_each() {
    let folder = Folder::new("listeners");
    let attester = folder.argument("attester");
    let simulate =
        ["attest", "--simulate", "tdx", "--out", &attester, "--dangerous-platform-scope"];
    let made = CONFIDE.run(&simulate);
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    let model = serve_model("model-one");
    let attested = format!("simulate = \"{attester}\"");
    let bindings = ["key", "session"]
        .map(|binding| terminating(&model, &format!("{attested}\nbinding = \"{binding}\"")));
    let file = folder.write("machine.toml", bindings.concat());
    let machine = CONFIDE.start(&["gateway", "--config", &file]);
    assert_eq!(machine.ready["guarantee"], "none (simulated)");
    let digests = CONFIDE.run(&["gateway", "--config", &file, "--print-config-digest"]);
    for (index, binding) in ["key", "session"].into_iter().enumerate() {
        let listener = &machine.ready["listeners"][index];
        assert_eq!(listener["binding"], binding);
        assert_eq!(listener["config_digest"], digests.stdout.lines().nth(index).unwrap());
        let target = format!("localhost:{}", port_of(listener["listen"].as_str().unwrap()));
        let (outside, [tunnel, pass]) = start_outside(&folder, &target);
        assert_eq!(outside.ready["guarantee"], "none (the listeners differ)");
        let direct = format!("https://{target}");
        let passed = format!("https://localhost:{}", port_of(&pass));
        let tunnel = format!("ws://{tunnel}");
        let policy = Path::new(&attester).join("policy.toml");
        let by_policy = ["--policy", text(&policy), "--binding", binding, "--listen", ANY_PORT];
        for way in [&[&direct[..]][..], &[&direct, "--via", &tunnel], &[&passed]] {
            let connect = CONFIDE.start(&[&["connect"], way, &by_policy].concat());
            assert_eq!(connect.ready["config_digest"], listener["config_digest"], "{way:?}");
        }
        assert!(outside.terminate().success());
    }
    assert!(machine.terminate().success());
}

#[test]
fn a_reload_replaces_model_server_and_certificate_and_a_wrong_file_changes_nothing() {
    let folder = Folder::new("listeners-reload");
    let (one, two) = (serve_model("model-one"), serve_model("model-two"));
    let write_certificate = |name: &str| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        folder.write("key.pem", made.signing_key.serialize_pem());
        folder.write("chain.pem", made.cert.pem());
        folder.write(name, made.cert.pem())
    };
    let keys = format!(
        "binding = \"none\"\ncertificate = \"{}\"\ncertificate_key = \"{}\"",
        folder.argument("chain.pem"),
        folder.argument("key.pem")
    );
    let first = write_certificate("first.pem");
    let file = folder.write("gateway.toml", terminating(&one, &keys));
    let gateway = CONFIDE.start(&["gateway", "--config", &file]);
    let asked = |root: &str| curl_models(&gateway.address(), &["--cacert", root]);
    assert!(asked(&first).contains("model-one"), "{}", asked(&first));
    let second = write_certificate("second.pem");
    folder
        .write("gateway.toml", terminating(&two, "binding = \"none\"\ncertificate = \"missing\""));
    hang_up(&gateway);
    // Nothing shows that a refused reload has ended: the next one follows it.
    folder.write("gateway.toml", terminating(&two, &keys));
    wait_until("the new configuration does not apply", || {
        hang_up(&gateway);
        asked(&second).contains("model-two")
    });
    let refused = asked(&first);
    assert!(refused.contains("certificate"), "{refused}");
    assert!(gateway.terminate().success());
}

#[test]
fn a_gateway_of_flags_reads_its_certificate_again_and_rotates_its_log() {
    let folder = Folder::new("flags-reload");
    let model = serve_model("model-one");
    let upstream = format!("http://{}", model.address());
    let (root, log) = (folder.argument("root.pem"), folder.argument("access.jsonl"));
    let gateway = CONFIDE.start(&[
        "gateway",
        "--listen",
        ANY_PORT,
        "--upstream",
        &upstream,
        "--binding",
        "none",
        "--certificate-out",
        &root,
        "--access-log",
        &log,
    ]);
    let first = folder.read("root.pem");
    let asked = || curl_models(&gateway.address(), &["--cacert", &root]);
    assert!(asked().contains("model-one"));
    wait_until("no line is written", || !folder.read("access.jsonl").is_empty());
    std::fs::rename(&log, folder.join("rotated.jsonl")).unwrap();
    hang_up(&gateway);
    wait_until("the log is not opened anew", || folder.has("access.jsonl"));
    wait_until("the certificate is not new", || folder.read("root.pem") != first);
    wait_until("the new certificate is not used", || asked().contains("model-one"));
    assert!(gateway.terminate().success());
    assert!(!folder.read("access.jsonl").is_empty());
}

/// Asks the administrator's socket, and returns the answer's body.
fn ask_socket(socket: &str, path: &str, method: &str) -> String {
    let url = format!("http://gateway{path}");
    let arguments = ["--silent", "--show-error", "--max-time", "60", "--request", method];
    let output = Command::new("curl")
        .args(arguments)
        .args(["--unix-socket", socket, &url])
        .output()
        .expect("curl runs");
    String::from_utf8(output.stdout).unwrap()
}

/// Makes an API key, and returns it with its table.
fn make_key(name: &str) -> (String, String) {
    let made = CONFIDE.run(&["gateway", "key", "new", "--name", name]);
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    let (key, table) = made.stdout.split_once("\n\n").expect("a key and its table");
    (key.to_owned(), table.to_owned())
}

/// Sends a chat with an API key to a gateway whose certificate is in the file `root`.
fn chat_with_key(gateway: &Process, root: &str, model: &str, key: &str) -> String {
    let url = format!("https://localhost:{}/v1/chat/completions", port_of(&gateway.address()));
    let message = "{\"role\":\"user\",\"content\":\"s3cret\"}";
    let body = format!("{{\"model\":\"{model}\",\"max_tokens\":4,\"messages\":[{message}]}}");
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "60", "--cacert", root, &url])
        .args(["--header", &format!("authorization: Bearer {key}")])
        .args(["--header", "content-type: application/json", "--data", &body])
        .output()
        .expect("curl runs");
    String::from_utf8(output.stdout).unwrap()
}

/// Writes a file that only its owner may read.
fn write_private(folder: &Folder, name: &str, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.write(name, text);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn a_fleet_with_api_keys_is_counted_and_its_keys_are_reloaded() {
    let folder = Folder::new("listeners-fleet");
    let (one, two) = (serve_model("model-one"), serve_model("model-two"));
    let ((first, first_table), (second, second_table)) = (make_key("team-a"), make_key("team-b"));
    let private = |name: &str, text: &str| write_private(&folder, name, text);
    let keys = private("keys.toml", &first_table);
    let (usage, root) = (folder.argument("usage.jsonl"), folder.argument("root.pem"));
    let socket = folder.argument("admin.sock");
    let file = folder.write(
        "gateway.toml",
        format!(
            "[admin]\nsocket = \"{socket}\"\n[[listener]]\nkind = \"terminate\"\nlisten = \"{ANY_PORT}\"\n\
             binding = \"none\"\ncertificate_out = \"{root}\"\napi_keys = \"{keys}\"\nusage_file = \"{usage}\"\n\
             [[listener.upstream]]\nurl = \"http://{}\"\nmodels = [\"model-one\"]\n\
             [[listener.upstream]]\nurl = \"http://{}\"\nmodels = [\"model-two\"]\n",
            one.address(),
            two.address()
        ),
    );
    let gateway = CONFIDE.start(&["gateway", "--config", &file]);
    let chat = |model: &str, key: &str| chat_with_key(&gateway, &root, model, key);
    for model in ["model-one", "model-two"] {
        let answer = chat(model, &first);
        assert!(answer.contains(&format!("\"model\":\"{model}\"")), "{answer}");
    }
    assert!(chat("model-three", &first).contains("model_not_found"));
    assert!(chat("model-one", &second).contains("invalid_api_key"));
    private("keys.toml", &second_table);
    let reloaded = ask_socket(&socket, "/reload", "POST");
    assert!(reloaded.contains("\"reloaded\":true"), "{reloaded}");
    assert!(chat("model-one", &first).contains("invalid_api_key"));
    assert!(chat("model-one", &second).contains("\"model\":\"model-one\""));
    let status: serde_json::Value =
        serde_json::from_str(&ask_socket(&socket, "/status", "GET")).unwrap();
    assert_eq!(status["listeners"][0]["servers"][1]["healthy"], true, "{status}");
    let metrics = ask_socket(&socket, "/metrics", "GET");
    for line in [
        "confide_gateway_requests_total{route=\"/v1/chat/completions\",status_class=\"2xx\"} 3",
        "vllm:generation_tokens_total{model_name=\"model-one\"} 8",
        "confide_gateway_refusals_total{code=\"invalid_api_key\"} 2",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
    let digest = gateway.ready["listeners"][0]["config_digest"].as_str().unwrap();
    assert!(metrics.contains(digest), "{metrics}");
    assert!(gateway.terminate().success());
    let counted = String::from_utf8(folder.read("usage.jsonl")).unwrap();
    assert!(
        counted.contains("\"key\":\"team-b\",\"model\":\"model-one\",\"requests\":1"),
        "{counted}"
    );
    for text in [&counted, &metrics] {
        for secret in ["s3cret", &first, &second] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[test]
fn a_listener_that_cannot_be_reloaded_is_named_and_leaves_the_others_as_they_were() {
    let folder = Folder::new("listeners-refused");
    let model = serve_model("model-one");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = folder.write("key.pem", made.signing_key.serialize_pem());
    let chain = folder.write("chain.pem", made.cert.pem());
    let (root, socket) = (folder.argument("root.pem"), folder.argument("admin.sock"));
    let first = terminating(&model, &format!("binding = \"none\"\ncertificate_out = \"{root}\""));
    let keys =
        format!("binding = \"none\"\ncertificate = \"{chain}\"\ncertificate_key = \"{key}\"");
    let second = terminating(&model, &keys);
    let admin = format!("[admin]\nsocket = \"{socket}\"\n");
    let file = folder.write("gateway.toml", [&admin[..], &first, &second].concat());
    let gateway = CONFIDE.start(&["gateway", "--config", &file]);
    let certificate = folder.read("root.pem");
    folder.write("chain.pem", "not a certificate");
    let refused = ask_socket(&socket, "/reload", "POST");
    assert!(refused.contains("listener 2: certificate is not usable"), "{refused}");
    assert_eq!(folder.read("root.pem"), certificate);
    assert!(
        curl_models(&gateway.address(), &["--cacert", &root]).contains("model-one"),
        "the first listener still serves with its certificate"
    );
    folder.write("gateway.toml", [&admin[..], &first].concat());
    let refused = ask_socket(&socket, "/reload", "POST");
    assert!(refused.contains("the number of listeners (wanted 2, got 1)"), "{refused}");
    folder.write("gateway.toml", [&admin[..], &first, &first].concat());
    assert!(ask_socket(&socket, "/reload", "POST").contains("\"reloaded\":true"));
    folder.write("gateway.toml", [&first[..], &second].concat());
    let refused = ask_socket(&socket, "/reload", "POST");
    assert!(
        refused.contains("[admin], [traces], metrics_listen and metrics_tokens cannot"),
        "{refused}"
    );
    assert!(gateway.terminate().success());
}

/// The flags of a gateway of ordinary TLS.
const ORDINARY_TLS: [&str; 5] = ["gateway", "--binding", "none", "--listen", ANY_PORT];

/// Starts a gateway that stands for the TLS terminator of a model server. Returns it with its URL;
/// the certificate is in `terminator.pem`.
fn start_terminator(folder: &Folder, model: &Process) -> (Process, String) {
    let plain = format!("http://{}", model.address());
    let root = folder.argument("terminator.pem");
    let more = ["--upstream", &plain, "--certificate-out", &root];
    let terminator = CONFIDE.start(&[&ORDINARY_TLS[..], &more].concat());
    let url = format!("https://localhost:{}", port_of(&terminator.address()));
    (terminator, url)
}

#[test]
fn a_server_that_is_said_to_speak_http2_is_sent_nothing_else() {
    let folder = Folder::new("http2-upstream");
    let model = serve_model("model-one");
    let (_terminator, speaker) = start_terminator(&folder, &model);
    let (roots, root) = (folder.argument("terminator.pem"), folder.argument("root.pem"));
    let silent = format!("http://{}", model.address());
    // The terminator chooses HTTP/2 in its handshake; the model server speaks HTTP/1.1 only.
    let verified = (format!("upstream_ca = \"{roots}\"\n"), vec!["--upstream-ca", &roots]);
    for (upstream, (of_file, ca), wanted) in
        [(&speaker, verified, "model-one"), (&silent, Default::default(), "upstream_unreachable")]
    {
        let file = folder.write(
            "gateway.toml",
            format!(
                "[[listener]]\nkind = \"terminate\"\nlisten = \"{ANY_PORT}\"\nbinding = \"none\"\n\
                 certificate_out = \"{root}\"\nupstream_wait_s = 0\n\
                 [[listener.upstream]]\nurl = \"{upstream}\"\nhttp2 = true\n{of_file}"
            ),
        );
        let flags = ["--upstream", upstream, "--upstream-http2", "--certificate-out", &root];
        let flags = [&ORDINARY_TLS[..], &["--upstream-wait-s", "0"], &flags, &ca].concat();
        for arguments in [&["gateway", "--config", &file][..], &flags] {
            let gateway = CONFIDE.start(arguments);
            let got = curl_models(&gateway.address(), &["--cacert", &root]);
            assert!(got.contains(wanted), "{arguments:?}: {got}");
        }
    }
}

#[test]
fn an_https_upstream_is_verified_by_the_file_of_its_server_which_a_reload_reads_again() {
    let folder = Folder::new("https-upstream");
    let model = serve_model("model-one");
    let (terminator, upstream) = start_terminator(&folder, &model);
    let roots = String::from_utf8(folder.read("terminator.pem")).unwrap();
    let ca = write_private(&folder, "ca.pem", "no certificate");
    let (root, socket) = (folder.argument("root.pem"), folder.argument("admin.sock"));
    let file = folder.write(
        "gateway.toml",
        format!(
            "[admin]\nsocket = \"{socket}\"\n[[listener]]\nkind = \"terminate\"\nlisten = \"{ANY_PORT}\"\n\
             binding = \"none\"\ncertificate_out = \"{root}\"\n\
             [[listener.upstream]]\nurl = \"{upstream}\"\nupstream_ca = \"{ca}\"\n"
        ),
    );
    let of_file = ["gateway", "--config", &file, "--print-config-digest"];
    let by_flags = [&ORDINARY_TLS[..], &["--upstream", &upstream, "--upstream-ca", &ca]].concat();
    let refused = CONFIDE.run(&of_file);
    let canonical = upstream.replace("localhost", "127.0.0.1");
    let wanted = format!("listener 1: root certificates for upstream `{canonical}`");
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    for part in [&wanted, &ca, "got no certificate"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    assert!(CONFIDE.run(&by_flags).stderr.contains(&ca));

    write_private(&folder, "ca.pem", &roots);
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let gateway = Process::start(CONFIDE.command(&of_file[..3]).stderr(log));
    let digest = CONFIDE.run(&of_file).stdout;
    assert_eq!(gateway.ready["listeners"][0]["config_digest"], digest.trim_end());
    let flags = [&by_flags[..], &["--print-config-digest"]].concat();
    assert_eq!(CONFIDE.run(&flags).stdout, digest, "flags and file say the same");
    let fetch_models = || curl_models(&gateway.address(), &["--cacert", &root]);
    assert!(fetch_models().contains("model-one"), "{}", fetch_models());

    write_private(&folder, "ca.pem", "");
    let refused = ask_socket(&socket, "/reload", "POST");
    assert!(refused.contains("listener 1: root certificates for upstream"), "{refused}");
    assert!(fetch_models().contains("model-one"));
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    write_private(&folder, "ca.pem", &other.cert.pem());
    let other_digest = CONFIDE.run(&of_file).stdout;
    assert_ne!(digest, other_digest, "the digest does not hold the roots");
    let reloaded = ask_socket(&socket, "/reload", "POST");
    assert!(reloaded.contains("\"reloaded\":true"), "{reloaded}");
    assert!(reloaded.contains(other_digest.trim_end()), "{reloaded}");
    let answer = fetch_models();
    assert!(answer.contains("upstream_unreachable") && !answer.contains("ssuer"), "{answer}");
    let logged = String::from_utf8(folder.read("log")).unwrap();
    assert!(logged.contains("UnknownIssuer"), "{logged}");
    assert!(gateway.terminate().success());
    assert!(terminator.terminate().success());
}

#[test]
fn an_https_upstream_without_a_file_is_verified_by_the_roots_of_the_system() {
    let folder = Folder::new("https-upstream-system");
    let model = serve_model("model-one");
    let (terminator, upstream) = start_terminator(&folder, &model);
    let root = folder.argument("root.pem");
    // The roots of the system are those of this variable where it is set.
    let with_roots = |roots: &str| {
        let more = ["--upstream", &upstream, "--certificate-out", &root];
        let mut command = CONFIDE.command(&[&ORDINARY_TLS[..], &more].concat());
        command.env("SSL_CERT_FILE", roots).env_remove("SSL_CERT_DIR");
        command
    };
    let gateway = Process::start(&mut with_roots(&folder.argument("terminator.pem")));
    let answer = curl_models(&gateway.address(), &["--cacert", &root]);
    assert!(answer.contains("model-one"), "{answer}");
    assert!(gateway.terminate().success());
    let refused = with_roots(&folder.write("empty.pem", "")).output().unwrap();
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.contains("this system has none"), "{refused}");
    assert!(terminator.terminate().success());
}

/// A model server that returns the messages of each WebSocket.
async fn echo_messages() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                // The question for the model is no WebSocket.
                let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
                while let Some(Ok(message)) = socket.next().await {
                    if message.is_text() {
                        socket.send(message).await.unwrap();
                    }
                }
            });
        }
    });
    address
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Sends a message over a WebSocket in TLS, and returns the answer.
async fn exchange_message<S>(root_der: &[u8], stream: S) -> String
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let options = ClientOptions { binding: Binding::None, deadline: GENEROUS };
    let client = PlainClient::new(options, root_der, unix_now).unwrap();
    let connected = client.connect("localhost", stream).await.unwrap();
    exchange_message_at("wss://localhost/v1/realtime", connected.stream).await
}

/// Opens a WebSocket, sends a message, and returns the answer after the closing handshake.
async fn exchange_message_at<S>(url: &str, stream: S) -> String
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (mut socket, _answer) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    socket.send(Message::text("hello")).await.unwrap();
    let answer = socket.next().await.unwrap().unwrap().into_text().unwrap().to_string();
    socket.close(None).await.unwrap();
    while let Some(Ok(message)) = socket.next().await {
        assert!(message.is_close(), "{message:?}");
    }
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websockets_pass_through_terminating_tunnelling_and_passing_listeners() {
    let folder = Folder::new("listeners-websocket");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = folder.write("key.pem", made.signing_key.serialize_pem());
    let chain = folder.write("chain.pem", made.cert.pem());
    let upstream = format!("http://{}", echo_messages().await);
    let gateway = ["gateway", "--listen", ANY_PORT, "--upstream", &upstream, "--binding", "none"];
    let served = ["--certificate", &chain, "--certificate-key", &key, "--upstream-wait-s", "0"];
    let route = ["--route", "WEBSOCKET /v1/realtime"];
    let machine = CONFIDE.start(&[&gateway[..], &served, &route].concat());
    let target = format!("localhost:{}", port_of(&machine.address()));
    let (outside, [tunnel, pass]) = start_outside(&folder, &target);
    let root = made.cert.der();
    for address in [machine.address(), pass] {
        let stream = TcpStream::connect(&address).await.unwrap();
        assert_eq!(exchange_message(root, stream).await, "hello", "{address}");
    }
    let carried = tunnel::dial(&format!("ws://{tunnel}"), &target, GENEROUS).await.unwrap();
    assert_eq!(exchange_message(root, carried).await, "hello");
    assert!(outside.terminate().success());
    assert!(machine.terminate().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websockets_pass_through_connect_and_an_attested_gateway() {
    let folder = Folder::new("connect-websocket");
    let attester = folder.argument("attester");
    let simulate =
        ["attest", "--simulate", "tdx", "--out", &attester, "--dangerous-platform-scope"];
    assert_eq!(CONFIDE.run(&simulate).status, Some(0));
    let policy = Path::new(&attester).join("policy.toml");
    let upstream = format!("http://{}", echo_messages().await);
    let served =
        ["gateway", "--listen", ANY_PORT, "--upstream", &upstream, "--upstream-wait-s", "0"];
    let attested = ["--simulate", &attester, "--route", "WEBSOCKET /v1/realtime"];
    for binding in ["key", "session"] {
        let bound = ["--binding", binding];
        let mut gateway = CONFIDE.start(&[&served[..], &attested, &bound].concat());
        let url = format!("https://{}", gateway.address());
        let connect = ["connect", &url, "--policy", text(&policy), "--listen", ANY_PORT];
        let connect = CONFIDE.start(&[&connect[..], &bound].concat());
        let local = async || TcpStream::connect(connect.address()).await.unwrap();
        let realtime = format!("ws://{}/v1/realtime", connect.address());
        assert_eq!(exchange_message_at(&realtime, local().await).await, "hello", "{binding}");
        let other = format!("ws://{}/v1/other", connect.address());
        let refused = tokio_tungstenite::client_async(other, local().await).await;
        assert!(
            matches!(&refused, Err(Error::Http(answer)) if answer.status() == 404),
            "{refused:?}"
        );
        let opened = tokio_tungstenite::client_async(&realtime, local().await).await;
        let (mut socket, _answer) = opened.unwrap();
        gateway.kill();
        let end = tokio::time::timeout(GENEROUS, socket.next()).await.expect("it stays open");
        assert!(matches!(end, None | Some(Err(_))), "{end:?}");
        assert!(connect.terminate().success());
    }
}

#[test]
fn h2load_gets_every_answer_through_terminating_and_passing_listeners() {
    if Command::new("h2load").arg("--version").output().is_err() {
        return eprintln!("skipped: no h2load (Debian package nghttp2-client)");
    }
    let folder = Folder::new("listeners-h2load");
    let model = serve_model("model-one");
    let file = folder.write("machine.toml", terminating(&model, "binding = \"none\""));
    let machine = CONFIDE.start(&["gateway", "--config", &file]);
    let target = format!("localhost:{}", port_of(&machine.address()));
    let (outside, [_, pass]) = start_outside(&folder, &target);
    for address in [machine.address(), pass] {
        let connect = format!("--connect-to={address}");
        let url = "https://localhost/v1/models";
        let load = ["-n", "400", "-c", "4", "-m", "10", &connect, url];
        let output = Command::new("h2load").args(load).output().unwrap();
        let report = String::from_utf8(output.stdout).unwrap();
        let wanted = "400 succeeded, 0 failed, 0 errored, 0 timeout";
        assert!(report.contains("protocol: h2\n") && report.contains(wanted), "{report}");
    }
    assert!(outside.terminate().success());
    assert!(machine.terminate().success());
}

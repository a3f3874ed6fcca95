//! The administrator's socket: who may open it, what it answers, and its limits.

use std::{
    fs::{self, DirBuilder, Permissions},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use confide_channel::{ClientOptions, PlainClient};
use serde_json::{Map, json};
use tokio::net::UnixStream;

use super::*;
use crate::{
    AdminRoutes, AdminSocket, Gateway, GatewayMetrics, GatewayOptions, MetricsListener,
    ReloadOutcome, Telemetry, TelemetryError,
};

/// A folder of one test that only its owner may use.
struct PrivateFolder(PathBuf);

impl PrivateFolder {
    fn new(name: &str) -> Self {
        let name = format!("confide-admin-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("gateway.sock")
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn metrics() -> Arc<GatewayMetrics> {
    let upstream = Upstream::parse("http://127.0.0.1:1").unwrap();
    let configuration = GatewayConfiguration::with_upstream(Binding::None, upstream);
    Arc::new(GatewayMetrics::new([&configuration], []))
}

async fn reload_nothing() -> ReloadOutcome {
    Ok(json!({ "reloaded": true }))
}

fn routes() -> AdminRoutes {
    let status = || Map::from_iter([("servers".to_owned(), json!([]))]);
    AdminRoutes::new(metrics(), status, reload_nothing)
}

async fn exchange_at(path: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    // A connection that is closed before its request was read is reset.
    let _ = finish_in_time(stream.read_to_string(&mut answer)).await;
    answer
}

fn request(line: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: h\r\n\r\n")
}

#[tokio::test]
async fn the_socket_is_its_owners_and_leaves_no_other_file_reachable() {
    let folder = PrivateFolder::new("mode");
    let socket = AdminSocket::bind(&folder.socket()).unwrap();
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.socket()), 0o600);
    let mut names: Vec<_> =
        fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["gateway.sock", "gateway.sock.lock"]);
    assert_eq!(mode(&folder.0.join("gateway.sock.lock")), 0o600);
    drop(socket);
    assert!(!folder.socket().exists());
}

#[tokio::test]
async fn a_dead_process_socket_is_replaced_and_a_live_one_is_not() {
    let folder = PrivateFolder::new("stale");
    let path = folder.socket();
    // What a killed process leaves: a socket that nobody serves, and a folder of its start.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    fs::create_dir(folder.0.join("gateway.sock.new")).unwrap();
    fs::write(folder.0.join("gateway.sock.new/s"), "").unwrap();
    let socket = AdminSocket::bind(&path).unwrap();
    let in_use = |error| matches!(error, TelemetryError::SocketInUse { .. });
    assert!(in_use(AdminSocket::bind(&path).unwrap_err()));
    drop(socket);
    // Another program's, which takes no lock.
    let foreign = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert!(in_use(AdminSocket::bind(&path).unwrap_err()));
    drop(foreign);
    drop(AdminSocket::bind(&path).unwrap());
}

#[tokio::test]
async fn a_path_that_others_could_replace_is_refused() {
    let folder = PrivateFolder::new("folder");
    let refused = |path: &Path| {
        let error = AdminSocket::bind(path).unwrap_err();
        assert!(matches!(error, TelemetryError::SocketPath { .. }), "{error}");
        error.to_string()
    };
    fs::set_permissions(&folder.0, Permissions::from_mode(0o770)).unwrap();
    assert!(refused(&folder.socket()).contains("mode 0770"));
    fs::set_permissions(&folder.0, Permissions::from_mode(0o700)).unwrap();
    fs::write(folder.socket(), "text").unwrap();
    assert!(refused(&folder.socket()).contains("another kind of file"));
    assert_eq!(fs::read(folder.socket()).unwrap(), b"text");
    refused(Path::new("gateway.sock"));
    refused(&folder.0.join("a".repeat(90)));
}

#[tokio::test]
async fn it_answers_metrics_status_and_reload_and_nothing_else() {
    let folder = PrivateFolder::new("answers");
    let path = folder.socket();
    let socket = AdminSocket::bind(&path).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(socket.serve(routes(), async { drop(stopped.await) }));
    let metrics = exchange_at(&path, &request("GET /metrics")).await;
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.contains("content-type: application/openmetrics-text"), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    let status = exchange_at(&path, &request("GET /status")).await;
    let (_, status) = status.split_once("\r\n\r\n").unwrap();
    let status: Map<String, serde_json::Value> = serde_json::from_str(status).unwrap();
    let mut names: Vec<&str> = status.keys().map(String::as_str).collect();
    names.sort_unstable();
    let wanted = ["connections", "key_not_after", "model_changed", "servers", "uptime_s"];
    assert_eq!(names, wanted);
    let reloaded = exchange_at(&path, &request("POST /reload")).await;
    assert!(reloaded.ends_with("{\"reloaded\":true}"), "{reloaded}");
    for (line, wanted) in [
        ("GET /reload", "HTTP/1.1 405 "),
        ("POST /metrics", "HTTP/1.1 405 "),
        ("DELETE /status", "HTTP/1.1 405 "),
        ("GET /", "HTTP/1.1 404 "),
        ("GET /metrics/", "HTTP/1.1 404 "),
    ] {
        let answer = exchange_at(&path, &request(line)).await;
        assert!(answer.starts_with(wanted), "{line}: {answer}");
    }
    let long = format!("GET /metrics HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n", "a".repeat(9000));
    assert!(!exchange_at(&path, &long).await.contains("200 OK"));
    stop.send(()).unwrap();
    finish_in_time(served).await.unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn a_reload_runs_once_at_a_time_and_says_whether_it_was_applied() {
    let folder = PrivateFolder::new("reload");
    let path = folder.socket();
    let socket = AdminSocket::bind(&path).unwrap();
    let (begin, mut begun) = mpsc::unbounded_channel();
    let (refuse, refusal) = mpsc::unbounded_channel::<()>();
    let refusal = Arc::new(tokio::sync::Mutex::new(refusal));
    let reload = move || {
        let (begin, refusal) = (begin.clone(), refusal.clone());
        async move {
            begin.send(()).unwrap();
            refusal.lock().await.recv().await;
            Err(json!({ "reloaded": false }))
        }
    };
    let routes = AdminRoutes::new(metrics(), Map::new, reload);
    tokio::spawn(async move { socket.serve(routes, std::future::pending()).await });
    let first = tokio::spawn({
        let path = path.clone();
        async move { exchange_at(&path, &request("POST /reload")).await }
    });
    finish_in_time(begun.recv()).await.unwrap();
    let second = exchange_at(&path, &request("POST /reload")).await;
    assert!(second.starts_with("HTTP/1.1 409 "), "{second}");
    refuse.send(()).unwrap();
    let first = finish_in_time(first).await.unwrap();
    assert!(first.starts_with("HTTP/1.1 422 "), "{first}");
    assert!(first.ends_with("{\"reloaded\":false}"), "{first}");
}

#[tokio::test(start_paused = true)]
async fn silent_connections_do_not_lock_the_administrator_out() {
    let folder = PrivateFolder::new("silent");
    let path = folder.socket();
    let socket = AdminSocket::bind(&path).unwrap();
    tokio::spawn(async move { socket.serve(routes(), std::future::pending()).await });
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(UnixStream::connect(&path).await.unwrap());
    }
    let answer = exchange_at(&path, &request("GET /status")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[tokio::test]
async fn metrics_are_served_on_loopback_only_and_nothing_else_with_them() {
    let beyond = MetricsListener::bind("0.0.0.0:0".parse().unwrap()).await;
    assert!(matches!(beyond, Err(TelemetryError::MetricsAddress { .. })));
    let listener = MetricsListener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(listener.serve(metrics(), async { drop(stopped.await) }));
    let answer = exchange(address, &request("GET /metrics")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("# EOF\n"), "{answer}");
    for line in ["GET /status", "POST /reload"] {
        let answer = exchange(address, &request(line)).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    }
    stop.send(()).unwrap();
    finish_in_time(served).await.unwrap();
}

#[tokio::test]
async fn handshakes_are_counted_by_outcome_and_the_keys_expiry_is_shown() {
    let upstream = Upstream::parse("http://127.0.0.1:1").unwrap();
    let options = GatewayOptions {
        configuration: GatewayConfiguration::with_upstream(Binding::None, upstream),
        key_validity: Duration::from_secs(60),
        limits: GatewayLimits::default(),
        names: vec!["gateway.test".into()],
        session_tickets: false,
    };
    let now = || 1_700_000_000;
    let metrics = metrics();
    let telemetry = Telemetry { metrics: metrics.clone(), traces: None, counts_tokens: false };
    let gateway = Gateway::new(options, None, now).unwrap().with_telemetry(telemetry);
    let root = gateway.certificate_der();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(gateway.serve(listener, async { drop(stopped.await) }));
    let not_tls = exchange(address, &request("GET /metrics")).await;
    assert!(!not_tls.contains("HTTP"), "{not_tls}");
    let options = ClientOptions { binding: Binding::None, deadline: GENEROUS };
    let client = PlainClient::new(options, &root, now).unwrap();
    let tcp = TcpStream::connect(address).await.unwrap();
    let mut connection = finish_in_time(client.connect("gateway.test", tcp)).await.unwrap();
    let line = "GET /.well-known/confide";
    connection.stream.write_all(request(line).as_bytes()).await.unwrap();
    let mut status = [0; 12];
    finish_in_time(connection.stream.read_exact(&mut status)).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    drop(connection);
    stop.send(()).unwrap();
    finish_in_time(served).await.unwrap();
    let text = metrics.encode();
    for line in [
        "confide_gateway_handshakes_total{outcome=\"completed\"} 1",
        "confide_gateway_handshakes_total{outcome=\"failed_peer\"} 1",
        "confide_gateway_handshake_seconds_count 1",
        "confide_gateway_quote_seconds_count 0",
        "confide_gateway_key_not_after_seconds 1731535940",
        "confide_gateway_requests_total{route=\"/.well-known/confide\",status_class=\"2xx\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

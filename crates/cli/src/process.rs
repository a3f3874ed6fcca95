//! What every long-running command shares: the ready line, the log, the wall clock, the end.

use std::{
    io::{ErrorKind, IsTerminal, Write},
    net::SocketAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::{Map, Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::error::CliError;

/// Seconds since 1970, read once per call; libraries receive it as a value or as this function.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Logs go to standard error, so that standard output carries answers only. In colour on a terminal.
pub(crate) fn log_to_stderr() {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = std::io::stderr().is_terminal() && !plain;
    let wanted = std::env::var("CONFIDE_LOG").ok().map(|text| text.parse::<Targets>());
    let (filter, error) = match wanted {
        Some(Ok(filter)) => (filter, None),
        None => (Targets::new().with_default(LevelFilter::WARN), None),
        Some(Err(error)) => (Targets::new().with_default(LevelFilter::WARN), Some(error)),
    };
    let lines = tracing_subscriber::fmt::layer().with_ansi(colour).with_writer(std::io::stderr);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    if let Some(error) = error {
        tracing::warn!(%error, "CONFIDE_LOG: wanted levels for targets, such as info,confide_gateway=debug");
    }
}

/// Connections that the kernel holds until they are accepted; it takes `net.core.somaxconn` where
/// that is less. A burst of clients should not have to send their first packet again.
const BACKLOG: u32 = 4096;

/// Listens, and gives the address with the port that was taken.
pub(crate) async fn listen(wanted: SocketAddr) -> Result<(TcpListener, SocketAddr), CliError> {
    let cannot = |error: std::io::Error| {
        let failure = CliError::new(format!("cannot listen on {wanted}: {error}"));
        match error.kind() {
            ErrorKind::AddrInUse => failure
                .hint("another program listens there: give another port, or 0 for any free one"),
            ErrorKind::AddrNotAvailable => {
                failure.hint("this machine has no such address: 127.0.0.1 is its own")
            }
            ErrorKind::PermissionDenied => {
                failure.hint("ports below 1024 need a privilege: give a higher one")
            }
            _ => failure,
        }
    };
    raise_descriptor_limit();
    let bind = || {
        let socket = match wanted {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        // As `TcpListener::bind` does: a restarted server finds its port.
        socket.set_reuseaddr(true)?;
        socket.bind(wanted)?;
        socket.listen(BACKLOG)
    };
    let listener = bind().map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    Ok((listener, address))
}

/// Every connection is a descriptor, and with its upstream two: the soft limit of many systems,
/// 1,024, would be met before `--connections` is. Where it cannot be raised, the old one stays.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    if setrlimit(Resource::Nofile, raised).is_err() {
        tracing::debug!("the limit of open files stays at its soft value");
    }
}

/// What a client on this machine may call an attested server, and what its operator adds.
pub(crate) fn names(listen: SocketAddr, more: &[String]) -> Vec<String> {
    let mut names = vec!["localhost".to_owned()];
    if !listen.ip().is_unspecified() {
        names.push(listen.ip().to_string());
    }
    names.extend(more.iter().cloned());
    names.dedup();
    names
}

/// Runs a long-running command's work to its end.
pub(crate) fn run_to_end<T>(work: impl Future<Output = T>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| CliError::new(format!("cannot start the event loop: {error}")))?;
    let outcome = runtime.block_on(work);
    // A blocking call that never returns (a device, a resolver) must not keep the program alive.
    runtime.shutdown_timeout(STUCK_CALL_DEADLINE);
    Ok(outcome)
}

/// How long a blocking call may still run after everything else has ended.
const STUCK_CALL_DEADLINE: Duration = Duration::from_secs(2);

/// Prints the one JSON line that says a long-running command accepts connections.
pub(crate) fn print_ready(listen: SocketAddr, guarantee: &str, more: Map<String, Value>) {
    let mut line = json!({
        "ready": true, "listen": listen.to_string(), "guarantee": guarantee,
        "pid": std::process::id(),
    });
    if let Value::Object(fields) = &mut line {
        fields.extend(more);
    }
    let mut out = std::io::stdout().lock();
    // A closed standard output is no reason to stop serving.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Prints a command's answer; a reader that went away did not get it, and that is no success.
pub(crate) fn print_whole(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| CliError::new(format!("cannot write the answer: {error}")))
}

/// Resolves at SIGTERM or SIGINT, after which a server drains and ends with status 0.
///
/// The handlers stand when this returns, not when the future is first polled: a signal right after
/// the ready line finds them. Has to be called inside a runtime.
pub(crate) fn asked_to_stop() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let handlers = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async move {
        let (Ok(mut term), Ok(mut int)) = handlers else {
            return std::future::pending().await;
        };
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
    }
}

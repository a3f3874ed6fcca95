//! What long-running commands share: the listener, the ready line, the log, the wall clock, the end.

use std::{
    io::{ErrorKind, IsTerminal, Write},
    net::SocketAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use confide_http::{DrainOutcome, available_cores, bind_listener};
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Builder};
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::{
    error::CliError,
    os::{self, StopSignals},
    printable::escape_terminal,
};

/// Seconds since 1970, read once per call; libraries receive it as a value or as this function.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Logs go to standard error, so that standard output carries answers only. In colour on a terminal.
pub(crate) fn log_to_stderr() {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = os::LOGS_IN_COLOUR && std::io::stderr().is_terminal() && !plain;
    let wanted = std::env::var("CONFIDE_LOG").ok().map(|text| text.parse::<Targets>());
    let (filter, error) = match wanted {
        // The libraries below would log malformed requests with their queries.
        Some(Ok(filter)) => {
            (filter.with_targets([("h2", LevelFilter::OFF), ("hyper", LevelFilter::OFF)]), None)
        }
        None => (Targets::new().with_default(LevelFilter::WARN), None),
        Some(Err(error)) => (Targets::new().with_default(LevelFilter::WARN), Some(error)),
    };
    let lines = tracing_subscriber::fmt::layer().with_ansi(colour).with_writer(std::io::stderr);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    if let Some(error) = error {
        tracing::warn!(%error, "CONFIDE_LOG: wanted levels for targets, such as info,confide_gateway=debug");
    }
}

/// Listens, and gives the address with the port that was taken.
pub(crate) async fn listen(wanted: SocketAddr) -> Result<(TcpListener, SocketAddr), CliError> {
    os::raise_descriptor_limit();
    let bind = || {
        let listener = bind_listener(wanted)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bind().map_err(|error| explain_unusable_address(wanted, &error))
}

/// Explains why a server cannot listen on an address.
pub(crate) fn explain_unusable_address(wanted: SocketAddr, error: &std::io::Error) -> CliError {
    let failure = CliError::new(format!("cannot listen on {wanted}: {error}"));
    match error.kind() {
        ErrorKind::AddrInUse => failure
            .with_hint("another program listens there: give another port, or 0 for any free one"),
        ErrorKind::AddrNotAvailable => {
            failure.with_hint("give an address of this machine, such as 127.0.0.1")
        }
        ErrorKind::PermissionDenied => {
            failure.with_hint("ports below 1024 need a privilege: give a higher port")
        }
        _ => failure,
    }
}

/// Runs a future to its end on an event loop of its own.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, CliError> {
    // On one core, a second thread would only have to be woken for each connection.
    match available_cores() {
        1 => block_on_event_loop(Builder::new_current_thread(), work),
        _ => block_on_event_loop(Builder::new_multi_thread(), work),
    }
}

/// Runs a server to its end on an event loop of the calling thread; its connections may have threads of their own.
pub(crate) fn block_on_this_thread<T>(serve: impl Future<Output = T>) -> Result<T, CliError> {
    block_on_event_loop(Builder::new_current_thread(), serve)
}

/// Runs a future to its end on the event loop that `builder` makes.
fn block_on_event_loop<T>(
    mut builder: Builder,
    work: impl Future<Output = T>,
) -> Result<T, CliError> {
    let runtime = builder.enable_all().build().map_err(cannot_start)?;
    let outcome = runtime.block_on(work);
    // A blocking call that never returns (a device, a resolver) must not keep the program alive.
    runtime.shutdown_timeout(STUCK_CALL_DEADLINE);
    Ok(outcome)
}

/// The failure of an operating system that gives no thread or no event loop.
pub(crate) fn cannot_start(error: std::io::Error) -> CliError {
    CliError::new(format!("cannot start the event loop: {error}"))
}

/// How long a blocking call may still run after everything else has ended.
const STUCK_CALL_DEADLINE: Duration = Duration::from_secs(2);

/// Prints the ready line of a command that accepts connections, which is one JSON object; `more` is
/// an object with further fields.
pub(crate) fn print_ready(listen: SocketAddr, guarantee: &str, more: Value) {
    let fields = json!({
        "listen": listen.to_string(),
        "guarantee": guarantee,
        "pid": std::process::id(),
    });
    print_ready_line(merge_objects(fields, more));
}

/// Prints the ready line itself. A closed standard output does not stop the serving.
pub(crate) fn print_ready_line(fields: Value) {
    print_line(&merge_objects(json!({ "ready": true }), fields));
}

/// Prints one line of JSON on standard output, after the ready line. A closed one does not stop the serving.
pub(crate) fn print_line(line: &Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The fields of both objects; those of `more` win.
pub(crate) fn merge_objects(mut object: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut object, more) {
        fields.extend(more);
    }
    object
}

/// Logs connections that a server cut at the end of its drain. It was asked to stop and it stopped,
/// so this is not a failure.
pub(crate) fn warn_of_cut_connections(drained: DrainOutcome) {
    if let DrainOutcome::Cut(connections) = drained {
        tracing::warn!(connections, "open connections were cut at the drain deadline");
    }
}

/// Prints a command's answer, in which nothing acts on the terminal. A reader that closes early, such
/// as `head`, is not a failure.
pub(crate) fn print_text(text: &str) -> Result<(), CliError> {
    print_painted_text(&escape_terminal(text))
}

/// Prints a text that paints itself. What others wrote in it has been escaped.
pub(crate) fn print_painted_text(text: &str) -> Result<(), CliError> {
    print_bytes(text.as_bytes()).map(|_| ())
}

/// Prints part of an answer; false if the reader has closed standard output.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<bool, CliError> {
    write_bytes(std::io::stdout().lock(), bytes)
}

fn write_bytes(mut out: impl Write, bytes: &[u8]) -> Result<bool, CliError> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CliError::new(format!("cannot write the answer: {error}"))),
    }
}

/// Resolves at SIGTERM or SIGINT (on Windows at Ctrl-C, Ctrl-Break or the end of the console), after which a
/// server drains and ends with status 0. One is taken for the whole life of a command: a signal between two of
/// them would reach neither.
///
/// The handlers are installed when this returns, not when the future is first polled: a signal
/// right after the ready line reaches them. Must be called inside a runtime.
pub(crate) fn stop_signal() -> impl Future<Output = ()> {
    let signals = StopSignals::catch();
    async move {
        match signals {
            Ok(mut signals) => signals.recv().await,
            Err(_) => std::future::pending().await,
        }
    }
}

/// Calls `stop` on a thread of its own at SIGTERM or SIGINT. The signals are caught from now on.
#[cfg(any(feature = "native", feature = "prove"))]
pub(crate) fn run_on_stop_signal(stop: impl FnOnce() + Send + 'static) -> Result<(), CliError> {
    let runtime = local_runtime()?;
    let signal = {
        let _context = runtime.enter();
        stop_signal()
    };
    std::thread::spawn(move || {
        runtime.block_on(signal);
        stop();
    });
    Ok(())
}

/// Makes an event loop that runs on the calling thread.
#[cfg(any(feature = "native", feature = "prove"))]
pub(crate) fn local_runtime() -> Result<tokio::runtime::Runtime, CliError> {
    Builder::new_current_thread().enable_all().build().map_err(cannot_start)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Standard output whose writes fail with this kind of error.
    struct FailingOutput(ErrorKind);

    impl Write for FailingOutput {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_closes_early_is_not_a_failure_and_a_full_disk_is() {
        assert!(write_bytes(Vec::new(), b"answer").unwrap());
        assert!(!write_bytes(FailingOutput(ErrorKind::BrokenPipe), b"answer").unwrap());
        assert!(write_bytes(FailingOutput(ErrorKind::StorageFull), b"answer").is_err());
    }
}

//! Serves one HTTP connection until it ends or the server stops.

use std::{
    error::Error,
    fmt::Display,
    future::Future,
    pin::{Pin, pin},
    time::Duration,
};

use http_body::Body;
use hyper::{
    body::Incoming,
    rt::{Read, Write},
    server::conn::http1::UpgradeableConnection,
    service::HttpService,
};
use hyper_util::server::graceful::GracefulConnection;

use crate::{admission::ConnectionPlace, interrupt::interrupt};

/// An unlimited grace, for exchanges that have deadlines of their own.
pub const UNBOUNDED: Duration = Duration::MAX;

/// The deadlines of one HTTP connection that hyper does not enforce in every version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionDeadlines {
    /// The longest time from the start of HTTP on the connection to the end of its first request's
    /// head, even if bytes arrive. hyper's own timeout for heads runs neither before the version of
    /// HTTP is known nor in HTTP/2, and has to be as long as the idle timeout.
    pub first_request: Duration,
    /// The longest time from the end of one exchange to the complete head of the next request, even
    /// if bytes arrive. [`UNBOUNDED`] leaves it to a timer of hyper, which costs more.
    pub idle: Duration,
    /// The longest time from the stop of the server to the end of the running exchange.
    pub grace: Duration,
}

/// Serves `connection` until it ends. Its exchanges have to run through
/// [`ConnectionPlace::run_exchange`] of `place`; a connection without one by the deadline is
/// dropped. Once `stop` resolves, no further exchange begins, and the running one may last for the
/// grace.
pub fn serve_connection<C>(
    connection: C,
    place: &ConnectionPlace,
    deadlines: ConnectionDeadlines,
    stop: impl Future<Output = ()>,
) -> impl Future<Output = ()>
where
    C: GracefulConnection,
    C::Error: Display,
{
    // Boxed once: every async function that takes it by value would hold it twice.
    let connection = Box::pin(connection);
    serve_hyper(connection, C::graceful_shutdown, place, deadlines, stop)
}

/// Serves as [`serve_connection`] does, for HTTP/1 only and with upgrades. (hyper-util's builder
/// that detects the version also allows HTTP/2 if it allows upgrades.)
pub fn serve_upgradeable<I, S, B>(
    connection: UpgradeableConnection<I, S>,
    place: &ConnectionPlace,
    deadlines: ConnectionDeadlines,
    stop: impl Future<Output = ()>,
) -> impl Future<Output = ()>
where
    I: Read + Write + Unpin + Send + 'static,
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let shut_down = UpgradeableConnection::graceful_shutdown;
    serve_hyper(Box::pin(connection), shut_down, place, deadlines, stop)
}

async fn serve_hyper<C, E>(
    connection: Pin<Box<C>>,
    shut_down: impl FnOnce(Pin<&mut C>),
    place: &ConnectionPlace,
    deadlines: ConnectionDeadlines,
    stop: impl Future<Output = ()>,
) where
    C: Future<Output = Result<(), E>>,
    E: Display,
{
    let outcome = serve_with_deadlines(connection, shut_down, place, deadlines, stop).await;
    if let Some(Err(error)) = outcome {
        tracing::debug!(%error, "connection ended early");
    }
}

/// Runs a connection of any implementation until it ends, and returns its output; `None` if a
/// deadline was reached and it was left. Its exchanges have to run through
/// [`ConnectionPlace::run_exchange`] of `place`. Once `stop` resolves, `shut_down` is called, after
/// which the connection has to begin no further exchange and to end with the running one.
pub async fn serve_with_deadlines<C: Future>(
    mut connection: Pin<Box<C>>,
    shut_down: impl FnOnce(Pin<&mut C>),
    place: &ConnectionPlace,
    deadlines: ConnectionDeadlines,
    stop: impl Future<Output = ()>,
) -> Option<C::Output> {
    // Boxed, so that it is not held again by each future that it is moved into.
    let silent = Box::pin(async {
        let until = tokio::time::Instant::now() + deadlines.first_request;
        while !place.has_run_exchange() {
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(deadlines.idle)).await;
        }
        place.wait_for_idle_time(deadlines.idle).await;
    });
    let served = serve_until_stop(connection.as_mut(), shut_down, stop, deadlines.grace);
    let served = interrupt(pin!(served), silent).await;
    if served.is_none() {
        tracing::debug!(peer = %place.peer(), "no request arrived in time");
    }
    served.flatten()
}

async fn serve_until_stop<C: Future>(
    mut connection: Pin<&mut C>,
    shut_down: impl FnOnce(Pin<&mut C>),
    stop: impl Future<Output = ()>,
    grace: Duration,
) -> Option<C::Output> {
    let ended = interrupt(connection.as_mut(), stop).await;
    if ended.is_some() {
        return ended;
    }
    shut_down(connection.as_mut());
    tokio::time::timeout(grace, connection).await.ok()
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        net::{IpAddr, Ipv4Addr},
    };

    use hyper::{Request, Response, body::Incoming, service::service_fn};
    use hyper_util::{
        rt::{TokioExecutor, TokioIo},
        server::conn::auto,
    };
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
        sync::watch,
        task::JoinHandle,
        time::timeout,
    };

    use super::*;
    use crate::{Admission, AdmissionLimits, wait_until_closing};

    const GENEROUS: Duration = Duration::from_secs(20);
    const FIRST_REQUEST: Duration = Duration::from_secs(5);
    const IDLE: Duration = Duration::from_secs(60);

    /// A connection whose answers take `answer_time`, its client's end, and what tells it to stop.
    fn start(
        answer_time: Duration,
        grace: Duration,
    ) -> (DuplexStream, watch::Sender<bool>, JoinHandle<()>) {
        let (client, server) = tokio::io::duplex(4096);
        let (closing, closed) = watch::channel(false);
        let admission = Admission::new(AdmissionLimits::default());
        let place = admission.admit(IpAddr::from(Ipv4Addr::LOCALHOST).into()).expect("a place");
        let serve = async move {
            let service = service_fn(|_: Request<Incoming>| {
                place.run_exchange(async move {
                    tokio::time::sleep(answer_time).await;
                    Ok::<_, Infallible>(Response::new(String::from("ok")))
                })
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection(TokioIo::new(server), service);
            let deadlines = ConnectionDeadlines { first_request: FIRST_REQUEST, idle: IDLE, grace };
            serve_connection(connection, &place, deadlines, wait_until_closing(closed)).await;
        };
        (client, closing, tokio::spawn(serve))
    }

    async fn ask(client: &mut DuplexStream) {
        client.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        // It has begun once its bytes are taken.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    async fn read_rest(client: &mut DuplexStream) -> String {
        let mut text = String::new();
        timeout(GENEROUS, client.read_to_string(&mut text)).await.unwrap().unwrap();
        text
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_exchange_ends_and_no_other_begins_after_the_stop() {
        let (mut client, closing, ended) = start(Duration::from_millis(100), UNBOUNDED);
        ask(&mut client).await;
        closing.send_replace(true);
        client.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        let answers = read_rest(&mut client).await;
        assert_eq!(answers.matches("200 OK").count(), 1, "{answers}");
        assert!(answers.ends_with("ok"), "{answers}");
        timeout(GENEROUS, ended).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_exchange_that_outlasts_its_grace_is_dropped() {
        let (mut client, closing, ended) = start(GENEROUS * 2, Duration::from_millis(100));
        ask(&mut client).await;
        closing.send_replace(true);
        timeout(GENEROUS, ended).await.unwrap().unwrap();
        assert_eq!(read_rest(&mut client).await, "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_at_once_where_nothing_runs_or_the_server_is_gone() {
        for is_dropped in [false, true] {
            let (mut client, closing, ended) = start(Duration::ZERO, UNBOUNDED);
            if is_dropped {
                drop(closing);
            } else {
                closing.send_replace(true);
            }
            assert_eq!(read_rest(&mut client).await, "");
            timeout(GENEROUS, ended).await.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_whole_request_is_dropped_in_time_however_it_drips() {
        let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        for sent in ["", "GET / HTTP/1.1\r\nhost: hhhhhhhhhh", preface] {
            let (mut client, _closing, ended) = start(Duration::ZERO, UNBOUNDED);
            let began = tokio::time::Instant::now();
            for byte in sent.bytes() {
                tokio::time::sleep(Duration::from_millis(100)).await;
                client.write_all(&[byte]).await.unwrap();
            }
            timeout(GENEROUS, ended).await.unwrap().unwrap();
            let lasted = began.elapsed();
            assert!(lasted >= FIRST_REQUEST && lasted < FIRST_REQUEST * 2, "{sent}: {lasted:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_has_had_a_request_is_kept_and_a_slow_answer_ends() {
        let (mut client, _closing, ended) = start(FIRST_REQUEST * 2, UNBOUNDED);
        for _ in 0..2 {
            ask(&mut client).await;
            let mut answer = [0; 12];
            timeout(GENEROUS, client.read_exact(&mut answer)).await.unwrap().unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200");
            while timeout(GENEROUS, client.read_u8()).await.unwrap().unwrap() != b'k' {}
            tokio::time::sleep(FIRST_REQUEST * 2).await;
        }
        assert!(!ended.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_further_request_ends_after_the_idle_time_however_it_drips() {
        for drips in [false, true] {
            let (mut client, _closing, ended) = start(FIRST_REQUEST * 2, UNBOUNDED);
            let mut answered = tokio::time::Instant::now();
            for wait in [Duration::ZERO, IDLE / 2, IDLE / 2] {
                tokio::time::sleep(wait).await;
                ask(&mut client).await;
                while timeout(GENEROUS, client.read_u8()).await.unwrap().unwrap() != b'k' {}
                answered = tokio::time::Instant::now();
            }
            if drips {
                client.write_all(b"GET / HTTP/1.1\r\nx:").await.unwrap();
                while client.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            timeout(IDLE * 2, ended).await.unwrap().unwrap();
            let lasted = answered.elapsed();
            assert!(lasted >= IDLE && lasted <= IDLE + GENEROUS / 4, "{drips}: {lasted:?}");
        }
    }
}

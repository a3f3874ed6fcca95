//! One HTTP connection, served until it ends or until the server stops.

use std::{fmt::Display, future::Future, pin::pin, time::Duration};

use hyper_util::server::graceful::GracefulConnection;

use crate::Closing;

/// A grace without a limit, for exchanges that deadlines of their own end.
pub const UNBOUNDED: Duration = Duration::MAX;

/// Serves `connection` until it ends. Once `stop` resolves, no further exchange begins on it, and
/// the running one has `grace` to end before the connection is dropped.
pub async fn serve_connection<C>(connection: C, stop: impl Future<Output = ()>, grace: Duration)
where
    C: GracefulConnection,
    C::Error: Display,
{
    let mut connection = pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = stop => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(grace, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "connection ended early");
    }
}

/// Waits until the server stops. A sender that is gone means that the server is gone, too.
pub async fn wait_until_closing(mut closing: Closing) {
    let _ = closing.wait_for(|is_closing| *is_closing).await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
        sync::watch,
        task::JoinHandle,
        time::timeout,
    };

    use super::*;

    const GENEROUS: Duration = Duration::from_secs(20);

    /// A connection whose answers take `answer_time`, its client's end, and what tells it to stop.
    fn start(
        answer_time: Duration,
        grace: Duration,
    ) -> (DuplexStream, watch::Sender<bool>, JoinHandle<()>) {
        let (client, server) = tokio::io::duplex(4096);
        let (closing, closed) = watch::channel(false);
        let service = service_fn(move |_: Request<Incoming>| async move {
            tokio::time::sleep(answer_time).await;
            Ok::<_, Infallible>(Response::new(String::from("ok")))
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(server), service);
        let stop = wait_until_closing(closed);
        (client, closing, tokio::spawn(serve_connection(connection, stop, grace)))
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
}

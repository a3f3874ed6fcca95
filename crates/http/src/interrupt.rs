//! Ends a future early when another one resolves.

use std::future::Future;

use futures_util::stream::{FuturesUnordered, StreamExt};

/// Runs `work` to its end, or until `event` resolves, in which case it returns `None`.
///
/// `event` is polled only when it has been woken itself. A connection is polled twice for each
/// request, while its deadlines, its eviction and the stop of the server happen once or never.
pub async fn interrupt<T>(
    work: impl Future<Output = T> + Unpin,
    event: impl Future<Output = ()>,
) -> Option<T> {
    let mut events = FuturesUnordered::new();
    events.push(event);
    tokio::select! {
        biased;
        outcome = work => Some(outcome),
        _ = events.next() => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, poll_fn},
        pin::pin,
        sync::atomic::{AtomicU32, Ordering},
        task::Poll,
    };

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn an_event_ends_the_work_and_the_end_of_the_work_wins() {
        let (send, receive) = oneshot::channel();
        let event = async { receive.await.expect("it is sent") };
        let work = async {
            send.send(()).expect("it is awaited");
            pending::<()>().await;
        };
        assert_eq!(interrupt(pin!(work), event).await, None);
        assert_eq!(interrupt(pin!(async { 7 }), async {}).await, Some(7));
    }

    #[tokio::test]
    async fn an_event_that_is_not_woken_is_polled_once() {
        let polls = AtomicU32::new(0);
        let event = poll_fn(|_| {
            polls.fetch_add(1, Ordering::Relaxed);
            Poll::<()>::Pending
        });
        let work = async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(interrupt(pin!(work), event).await, Some(()));
        assert_eq!(polls.load(Ordering::Relaxed), 1);
    }
}

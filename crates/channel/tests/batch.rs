//! The queue before an attester: who shares a quote, who waits, and who is refused.

mod fakes;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use confide_channel::{
    BatchCounts, BatchError, BatchLimits, BatchedQuote, ChannelError, QuoteBatcher,
};
use confide_evidence::ReportData;
use fakes::*;
use futures_util::{FutureExt, future::join_all};
use tokio::runtime::Runtime;

type Answers = tokio::task::JoinHandle<Vec<Result<BatchedQuote, BatchError>>>;

#[tokio::test]
async fn a_lone_session_is_served_at_once_over_its_own_binder() {
    let (device, batcher) = gated_batcher(BatchLimits::default());
    device.let_through(1);
    let batched = batcher.attest(binder(1)).await.unwrap();
    assert_eq!(*batched.quote, quote(&binder(1)));
    assert_eq!(batched.path, None);
    assert_eq!(batched.sessions(), 1);
    assert_eq!(batched.collateral.as_deref(), Some(b"{}".as_slice()));
}

#[tokio::test]
async fn sessions_that_come_while_a_quote_is_made_share_the_next() {
    for size in [1, 2, 3, 7, 128, 1024] {
        let (device, batcher) = gated_batcher(BatchLimits::default());
        let first = wait(&batcher, 0..1);
        device.until_asked(1).await;
        let others = wait(&batcher, 1..size + 1);
        until_waiting(&batcher, size).await;
        device.let_through(2);
        assert_eq!(first.await.unwrap()[0].as_ref().unwrap().path, None);
        let others = others.await.unwrap();
        let asked = device.requests();
        assert_eq!(asked.len(), 2, "{size}");
        for (n, batched) in (1..).zip(&others) {
            let batched = batched.as_ref().unwrap();
            let root = batched.path.as_ref().map(|path| path.root_report_data(&binder(n)));
            assert_eq!(root.unwrap_or(binder(n)), asked[1], "{n} of {size}");
            assert_eq!(*batched.quote, quote(&asked[1]));
            assert_eq!(batched.sessions() as u64, size);
        }
        let counts = BatchCounts { quotes: 2, sessions: size + 1, largest: size, ..zero() };
        assert_eq!(batcher.counts(), counts);
    }
}

#[tokio::test]
async fn a_batch_is_bounded_and_the_rest_comes_next_in_order() {
    let (device, batcher) = gated_batcher(BatchLimits { sessions: 3, ..Default::default() });
    let first = wait(&batcher, 0..1);
    device.until_asked(1).await;
    let others = wait(&batcher, 1..8);
    until_waiting(&batcher, 7).await;
    device.let_through(4);
    first.await.unwrap();
    let sizes: Vec<_> =
        others.await.unwrap().iter().map(|batched| batched.as_ref().unwrap().sessions()).collect();
    assert_eq!(sizes, [3, 3, 3, 3, 3, 3, 1]);
    assert_eq!(device.requests().len(), 4);
}

#[tokio::test]
async fn a_full_queue_refuses_and_whoever_gives_up_leaves_a_place() {
    let limits = BatchLimits { waiting: 2, waiting_alone: 1, ..Default::default() };
    let (device, batcher) = gated_batcher(limits);
    let first = wait(&batcher, 0..1);
    device.until_asked(1).await;
    let one = wait(&batcher, 1..2);
    until_waiting(&batcher, 1).await;
    let two = wait(&batcher, 2..3);
    until_waiting(&batcher, 2).await;
    let refused = batcher.attest(binder(3)).await;
    assert!(matches!(refused, Err(BatchError::Full { wanted: 2 })), "{refused:?}");
    let error = ChannelError::from(refused.unwrap_err());
    assert!(matches!(error, ChannelError::QuoteQueue(_)), "{error:?}");
    // Alone there is a place of its own.
    let alone = tokio::spawn(batcher.attest_alone(binder(4)));
    until_waiting(&batcher, 3).await;
    let refused = batcher.attest_alone(binder(5)).await;
    assert!(matches!(refused, Err(BatchError::Full { wanted: 1 })), "{refused:?}");
    one.abort();
    alone.abort();
    until_waiting(&batcher, 1).await;
    let three = wait(&batcher, 3..4);
    until_waiting(&batcher, 2).await;
    device.let_through(2);
    first.await.unwrap();
    for (n, answers) in [(2, two), (3, three)] {
        let batched = answers.await.unwrap().remove(0).unwrap();
        assert_eq!(batched.sessions(), 2);
        let root = batched.path.unwrap().root_report_data(&binder(n));
        assert_eq!(root, device.requests()[1]);
    }
    let counts = batcher.counts();
    assert_eq!((counts.refused, counts.abandoned, counts.waiting), (2, 2, 0));
}

#[tokio::test]
async fn a_failing_attester_fails_one_batch_only() {
    let (device, batcher) = gated_batcher(BatchLimits::default());
    for panics in [false, true] {
        let flag = if panics { &device.panicking } else { &device.failing };
        let before = device.requests().len();
        let first = wait(&batcher, 0..1);
        device.until_asked(before + 1).await;
        let others = wait(&batcher, 1..4);
        until_waiting(&batcher, 3).await;
        flag.store(true, Ordering::SeqCst);
        device.let_through(1);
        let failed = first.await.unwrap().remove(0).unwrap_err();
        match panics {
            true => assert!(matches!(failed, BatchError::WorkerEnded), "{failed:?}"),
            false => assert!(matches!(failed, BatchError::Attester(_)), "{failed:?}"),
        }
        flag.store(false, Ordering::SeqCst);
        device.let_through(1);
        for batched in others.await.unwrap() {
            assert_eq!(batched.unwrap().sessions(), 3);
        }
    }
    assert_eq!(batcher.counts().failed, 2);
}

#[tokio::test]
async fn a_failure_is_every_session_s_of_the_batch() {
    let (device, batcher) = gated_batcher(BatchLimits::default());
    let first = wait(&batcher, 0..1);
    device.until_asked(1).await;
    let others = wait(&batcher, 1..4);
    until_waiting(&batcher, 3).await;
    device.let_through(1);
    first.await.unwrap().remove(0).unwrap();
    device.until_asked(2).await;
    device.failing.store(true, Ordering::SeqCst);
    device.let_through(1);
    for answer in others.await.unwrap() {
        assert!(matches!(answer, Err(BatchError::Attester(_))), "{answer:?}");
    }
}

#[tokio::test]
async fn nobody_waits_longer_than_the_limit() {
    let (device, batcher) = gated_batcher(BatchLimits { wait: LONG, ..Default::default() });
    for _ in 0..2 {
        let passing = async {
            device.until_asked(1).await;
            tokio::time::pause();
            tokio::time::advance(LONG).await;
            tokio::time::resume();
        };
        let (late, ()) = tokio::join!(batcher.attest(binder(1)), passing);
        assert!(matches!(late, Err(BatchError::Late { wanted: LONG })), "{late:?}");
    }
    // The device comes back; only its first caller is still in its hands, and takes nothing.
    device.let_through(2);
    assert!(batcher.attest(binder(2)).await.is_ok());
    assert_eq!(device.requests(), [binder(1), binder(2)]);
}

#[tokio::test]
async fn sessions_alone_and_together_take_turns() {
    let (device, batcher) = gated_batcher(BatchLimits::default());
    let first = wait(&batcher, 0..1);
    device.until_asked(1).await;
    let mut alone = Vec::new();
    for n in 10..13 {
        alone.push(tokio::spawn(batcher.attest_alone(binder(n))));
        until_waiting(&batcher, n - 9).await;
    }
    let together = wait(&batcher, 1..4);
    until_waiting(&batcher, 6).await;
    device.let_through(5);
    first.await.unwrap();
    let root = together.await.unwrap().remove(0).unwrap();
    let root = root.path.unwrap().root_report_data(&binder(1));
    for waiting in alone {
        assert_eq!(waiting.await.unwrap().unwrap().path, None);
    }
    // Nobody of the lane with the longer queue is served twice while the other lane waits.
    assert_eq!(device.requests(), [binder(0), binder(10), root, binder(11), binder(12)]);
}

#[test]
fn a_runtime_that_shuts_down_leaves_nobody_waiting() {
    let (device, batcher) = gated_batcher(BatchLimits::default());
    let going = Runtime::new().unwrap();
    let gone = going.handle().clone();
    going.shutdown_background();
    // Its worker is dropped before it begins.
    let entered = gone.enter();
    let left = batcher.attest(binder(1)).now_or_never();
    assert!(matches!(left, Some(Err(BatchError::WorkerEnded))), "{left:?}");
    drop(entered);
    device.let_through(1);
    let next = Runtime::new().unwrap().block_on(batcher.attest(binder(2)));
    assert!(next.is_ok(), "the next one finds a worker");
    let without = batcher.attest(binder(3)).now_or_never();
    assert!(matches!(without, Some(Err(BatchError::WorkerEnded))), "there is no runtime here");
}

#[test]
fn limits_out_of_bounds_are_named() {
    let good = BatchLimits::default();
    for limits in [
        BatchLimits { sessions: 0, ..good },
        BatchLimits { sessions: 1025, ..good },
        BatchLimits { waiting: 0, ..good },
        BatchLimits { waiting_alone: 0, ..good },
    ] {
        let result = QuoteBatcher::with_limits(Arc::new(GatedAttester::default()), limits);
        assert!(matches!(result, Err(ChannelError::Option { .. })), "{limits:?}");
    }
}

#[tokio::test]
async fn a_lone_session_after_a_shared_quote_is_served_when_no_other_comes() {
    let (device, batcher) = gated_batcher(BatchLimits::default());
    let first = wait(&batcher, 0..1);
    device.until_asked(1).await;
    let others = wait(&batcher, 1..4);
    until_waiting(&batcher, 3).await;
    device.let_through(3);
    first.await.unwrap();
    assert_eq!(others.await.unwrap().remove(0).unwrap().sessions(), 3);
    assert_eq!(batcher.attest(binder(9)).await.unwrap().path, None);
}

fn gated_batcher(limits: BatchLimits) -> (Arc<GatedAttester>, QuoteBatcher) {
    let device = Arc::new(GatedAttester::default());
    (device.clone(), QuoteBatcher::with_limits(device, limits).unwrap())
}

fn binder(n: u64) -> ReportData {
    let mut bytes = [7; 64];
    bytes[..8].copy_from_slice(&n.to_be_bytes());
    ReportData(bytes)
}

/// A task with one session per number.
fn wait(batcher: &QuoteBatcher, numbers: std::ops::Range<u64>) -> Answers {
    let waiting: Vec<_> = numbers.map(|n| batcher.attest(binder(n))).collect();
    tokio::spawn(join_all(waiting))
}

async fn until_waiting(batcher: &QuoteBatcher, sessions: u64) {
    while batcher.counts().waiting != sessions {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn zero() -> BatchCounts {
    BatchCounts::default()
}

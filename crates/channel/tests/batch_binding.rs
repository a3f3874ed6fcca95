//! Batches on real sessions: what a path proves, and what it does not.

mod fakes;

use std::{sync::Arc, time::Duration};

use confide_channel::{BatchLimits, Binding, ChannelError, ChannelPhase, QuoteBatcher, Server};
use confide_evidence::{
    ReportData,
    batch::{BatchPath, BatchPathError, BatchTree, Leaf},
    binder::{Role, session_report_data},
    session_message::SessionMessage,
};
use fakes::{cheat::*, *};
use futures_util::future::join_all;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn a_hundred_and_twenty_eight_sessions_take_two_quotes() {
    let (device, batcher) = gated_batcher();
    // Two servers of one device share its queue.
    let servers = [shared_server(&device, &batcher), shared_server(&device, &batcher)];
    let servers = servers.map(Arc::new);
    let client = Arc::new(client(Binding::Session));
    let open = |n: usize| {
        let (server, client) = (servers[n % 2].clone(), client.clone());
        tokio::spawn(async move {
            let (near, far) = wire();
            let (attested, accepted) =
                tokio::join!(client.connect("localhost", near), server.accept(far));
            let (attested, accepted) = (attested.unwrap(), accepted.unwrap());
            let shares = (attested.timings().batch, accepted.timings.batch);
            echo_a_little(attested.into_parts().0, accepted.stream).await;
            shares
        })
    };
    let first = open(0);
    device.until_asked(1).await;
    let others: Vec<_> = (1..128).map(open).collect();
    while batcher.counts().waiting < 127 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    device.let_through(2);
    assert_eq!(first.await.unwrap(), (1, 1));
    for shares in join_all(others).await {
        assert_eq!(shares.unwrap(), (127, 127));
    }
    assert_eq!(device.requests().len(), 2);
}

#[tokio::test]
async fn a_client_of_version_1_gets_a_quote_of_its_own() {
    let (device, batcher) = gated_batcher();
    let server = shared_server(&device, &batcher);
    let asking = async |n: u8| {
        let (near, far) = wire();
        let asking = async {
            let mut stream = raw_client(near).await;
            send(&mut stream, &SessionMessage::Request { context: Some([n; 32]) }).await;
            read_frame(&mut stream).await
        };
        let (reply, accepted) = tokio::join!(asking, server.accept(far));
        assert_eq!(accepted.unwrap().timings.batch, 1);
        let SessionMessage::Reply { evidence: Some(evidence), .. } =
            SessionMessage::decode(&reply).unwrap()
        else {
            panic!("no evidence");
        };
        assert!(!evidence.needs_version_2());
    };
    device.let_through(3);
    tokio::join!(asking(1), asking(2), asking(3));
    assert_eq!(device.requests().len(), 3);
}

#[tokio::test]
async fn a_path_from_the_binder_of_this_session_is_accepted() {
    for size in [2, 3, 7, 128, 1024] {
        let result = cheat_with(|own| {
            let batch = batch(own, size / 2, size);
            (quote(&batch.tree.report_data()), batch.path(size / 2))
        });
        let attested = result.await.unwrap();
        assert_eq!(attested.timings().batch, size as u32);
    }
}

#[tokio::test]
async fn a_path_of_another_session_is_rejected() {
    // The other session of the same batch, under the very same quote.
    let error = error_of(|own| {
        let batch = batch(own, 0, 8);
        (quote(&batch.tree.report_data()), batch.path(1))
    });
    assert_report_data_rejected(error.await);
}

#[tokio::test]
async fn a_batch_quote_is_worth_nothing_in_a_later_session() {
    let earlier = batch(ReportData([1; 64]), 3, 7);
    let recorded = (quote(&earlier.tree.report_data()), earlier.path(3));
    assert_report_data_rejected(error_of(|_own| recorded).await);
}

#[tokio::test]
async fn a_path_grafted_on_another_quote_is_rejected() {
    assert_report_data_rejected(error_of(|own| (quote(&own), batch(own, 0, 2).path(0))).await);
    let quote_of_another = |own: ReportData| {
        let other = batch(ReportData([1; 64]), 0, 2);
        (quote(&other.tree.report_data()), batch(own, 0, 2).path(0))
    };
    assert_report_data_rejected(error_of(quote_of_another).await);
    // And the batch's quote without the path.
    let bare = cheat_saying(|own| (quote(&batch(own, 0, 2).tree.report_data()), None)).await;
    assert_report_data_rejected(bare.unwrap_err());
}

#[tokio::test]
async fn index_size_and_every_sibling_count() {
    for at in [4, 2, 5, 37, 69] {
        let error = error_of(|own| {
            let batch = batch(own, 2, 8);
            let mut path = batch.path(2);
            // Index 3, size 9, salt, two siblings.
            path[at] ^= 1;
            (quote(&batch.tree.report_data()), path)
        });
        match (at, error.await) {
            (2, error) => {
                let length = BatchPathError::Length { wanted: 37 + 4 * 32, got: 37 + 3 * 32 };
                assert!(matches!(error, ChannelError::BatchPath(got) if got == length));
            }
            (_, error) => assert_report_data_rejected(error),
        }
    }
}

#[tokio::test]
async fn a_path_that_cannot_be_read_is_named_and_nothing_is_appraised() {
    let truncated = error_of(|own| {
        let batch = batch(own, 0, 2);
        let mut path = batch.path(0);
        path.pop();
        (quote(&batch.tree.report_data()), path)
    });
    let wanted = BatchPathError::Length { wanted: 69, got: 68 };
    assert!(matches!(truncated.await, ChannelError::BatchPath(got) if got == wanted));
    let other_version = error_of(|own| {
        let batch = batch(own, 0, 2);
        let mut path = batch.path(0);
        path[0] = 2;
        (quote(&batch.tree.report_data()), path)
    });
    let wanted = BatchPathError::Version { wanted: 1, got: 2 };
    assert!(matches!(other_version.await, ChannelError::BatchPath(got) if got == wanted));
}

#[tokio::test]
async fn a_path_in_a_session_of_version_1_is_refused() {
    let cheat = Cheat::new();
    let error = cheat.answer(|cheat, exporter, context| {
        let own = own_binder(cheat, exporter, context);
        let batch = batch(own, 0, 2);
        let quote = quote(&batch.tree.report_data());
        ShownEvidence { batch: Some(batch.path(0)), ..(quote, cheat.claims()).into() }
    });
    let error = error.await;
    let phase = ChannelPhase::Evidence;
    assert!(matches!(error, ChannelError::MessageKind { phase: got, .. } if got == phase));
}

#[tokio::test]
async fn a_batch_of_clients_is_judged_by_the_server() {
    let server = Arc::new(server(Binding::Session));
    let (device, _) = gated_batcher();
    let mut evidence = client_evidence();
    evidence.attester = device.clone();
    let client = Arc::new(client(Binding::Session).with_evidence(evidence).unwrap());
    let open = || {
        let (server, client) = (server.clone(), client.clone());
        tokio::spawn(async move {
            let appraiser = FakeAppraiser::default();
            let (near, far) = wire();
            let accepting = server.accept_attested(&appraiser, far);
            let (attested, accepted) = tokio::join!(client.connect("localhost", near), accepting);
            attested.unwrap();
            accepted.unwrap();
            let seen = appraiser.seen.lock().unwrap();
            seen[0].clone()
        })
    };
    let first = open();
    device.until_asked(1).await;
    let others: Vec<_> = (0..5).map(|_| open()).collect();
    device.let_through(6);
    first.await.unwrap();
    for other in join_all(others).await {
        other.unwrap();
    }
    assert!(device.requests().len() <= 6);
}

struct Batch {
    tree: BatchTree,
}

impl Batch {
    fn path(&self, index: usize) -> Vec<u8> {
        self.tree.path(index).as_ref().map(BatchPath::encode).unwrap()
    }
}

/// A batch of `size` with `own` at `index`.
fn batch(own: ReportData, index: usize, size: usize) -> Batch {
    let leaf = |n: usize| Leaf {
        binder: if n == index { own } else { ReportData([n as u8; 64]) },
        salt: [n as u8; 32],
    };
    let leaves: Vec<Leaf> = (0..size).map(leaf).collect();
    Batch { tree: BatchTree::new(&leaves).unwrap() }
}

fn own_binder(cheat: &Cheat, exporter: Exporter<'_>, context: [u8; 32]) -> ReportData {
    session_report_data(Role::Server, &cheat.hash(), &exporter(&context), &cheat.claims())
}

/// A session whose server shows the quote and path that `says` makes for its true binder.
async fn cheat_with(
    says: impl FnOnce(ReportData) -> (Vec<u8>, Vec<u8>),
) -> Result<FakeAttested, ChannelError> {
    cheat_saying(|own| {
        let (quote, path) = says(own);
        (quote, Some(path))
    })
    .await
}

async fn cheat_saying(
    says: impl FnOnce(ReportData) -> (Vec<u8>, Option<Vec<u8>>),
) -> Result<FakeAttested, ChannelError> {
    let client = client(Binding::Session);
    let answer = Cheat::version_2().try_answer(client, |cheat, exporter, context| {
        let (quote, batch) = says(own_binder(cheat, exporter, context));
        ShownEvidence { batch, ..(quote, cheat.claims()).into() }
    });
    answer.await
}

async fn error_of(says: impl FnOnce(ReportData) -> (Vec<u8>, Vec<u8>)) -> ChannelError {
    cheat_with(says).await.unwrap_err()
}

fn assert_report_data_rejected(error: ChannelError) {
    assert_eq!(error.rejection(), Some(&FakeRejection::ReportData), "{error:?}");
}

fn gated_batcher() -> (Arc<GatedAttester>, QuoteBatcher) {
    let device = Arc::new(GatedAttester::default());
    // A busy machine takes seconds for the handshakes of a whole batch.
    let limits = BatchLimits { wait: LONG, ..BatchLimits::default() };
    (device.clone(), QuoteBatcher::with_limits(device, limits).unwrap())
}

fn shared_server(device: &Arc<GatedAttester>, batcher: &QuoteBatcher) -> Server {
    let server = Server::new(server_options(Binding::Session), Some(device.clone()), clock);
    server.unwrap().with_batcher(batcher.clone()).unwrap()
}

async fn echo_a_little<A, B>(mut a: A, mut b: B)
where
    A: AsyncWriteExt + Unpin,
    B: tokio::io::AsyncReadExt + Unpin,
{
    a.write_all(b"hello").await.unwrap();
    a.flush().await.unwrap();
    let mut got = [0; 5];
    b.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"hello");
}

//! A signing key that takes the place of another while an exchange runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use confide_notary::NotaryLimits;
use tokio::{
    io::AsyncWriteExt,
    sync::{mpsc, watch},
    time::timeout,
};

use crate::site::{Ca, Client, Failure, GENEROUS, NOW, Site, notary_at, request_of, server};

/// A host that says when it was asked, and answers when it is told to.
struct Rig {
    site: Site,
    url: String,
    requested: mpsc::UnboundedReceiver<()>,
    go: watch::Sender<bool>,
}

async fn rig(clock: fn() -> u64) -> Rig {
    let ca = Ca::new();
    let (requested, seen) = mpsc::unbounded_channel();
    let (go, gone) = watch::channel(false);
    let port = server(ca.acceptor(&["localhost"], &[]), move |mut stream| {
        let (requested, mut gone) = (requested.clone(), gone.clone());
        async move {
            request_of(&mut stream).await;
            requested.send(()).unwrap();
            gone.wait_for(|go| *go).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npaid").await.unwrap();
            stream.shutdown().await.unwrap();
        }
    })
    .await;
    let policy = format!(
        "hosts = [\"localhost:{port}\"]\nroots = \"-\"\nprivate_addresses = [\"127.0.0.1\"]"
    );
    let site = notary_at(&policy, &ca, NotaryLimits::default(), clock).await;
    Rig { site, url: format!("https://localhost:{port}/"), requested: seen, go }
}

impl Rig {
    /// Begins an exchange, and lets `meanwhile` happen before the host answers.
    async fn fetch(
        &mut self,
        client: &Arc<Client>,
        meanwhile: impl AsyncFnOnce(&Site),
    ) -> Result<confide_disclosure::NotarisedSession, Failure> {
        let (fetching, request) = (client.clone(), client.get(&self.url));
        let fetched = tokio::spawn(async move { fetching.fetch(&request).await });
        timeout(GENEROUS, self.requested.recv()).await.unwrap().unwrap();
        meanwhile(&self.site).await;
        self.go.send_replace(true);
        timeout(GENEROUS, fetched).await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn an_exchange_ends_with_the_key_with_which_it_began() {
    static CLOCK: AtomicU64 = AtomicU64::new(NOW);
    let mut rig = rig(|| CLOCK.load(Ordering::SeqCst)).await;
    let client = Arc::new(rig.site.client().await);
    let first = client.key.key;
    let paid = rig.fetch(&client, async |site| {
        // Two thirds of its time to begin are over: the next request has a new one made.
        CLOCK.fetch_add(2400, Ordering::SeqCst);
        let renewed = async {
            while site.client().await.key.key == first {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(GENEROUS, renewed).await.unwrap();
    });
    let paid = paid.await.unwrap();
    assert_eq!((paid.statement.key, paid.statement.time), (first, NOW + 2400));
    assert!(paid.received.ends_with(b"paid"));
    // What begins now begins with the new one, and nothing is sent before the client knows it.
    assert_eq!(client.fetch_refusal(&client.get(&rig.url)).await, "key_renewed");
    let other = rig.site.client().await;
    assert_eq!(other.fetch(&other.get(&rig.url)).await.unwrap().statement.key, other.key.key);
}

#[tokio::test]
async fn a_key_signs_nothing_after_its_claims_although_the_exchange_began_within_them() {
    static CLOCK: AtomicU64 = AtomicU64::new(NOW);
    let mut rig = rig(|| CLOCK.load(Ordering::SeqCst)).await;
    let client = Arc::new(rig.site.client().await);
    let ended = rig.fetch(&client, async |_| _ = CLOCK.fetch_add(7200, Ordering::SeqCst));
    let ended = ended.await;
    assert!(matches!(ended, Err(Failure::Refused(code)) if code == "key_ended"));
}

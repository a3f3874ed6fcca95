//! Documents from vendors: one fetch for many requests, old documents while new ones are fetched,
//! no rollback.

mod served;

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use confide_fake_attester::Fault;
use confide_pccs::{
    Database, DatabaseFuture, Document, DocumentKind, DocumentRequest, DocumentSource,
    DocumentStore, PccsLimits, Upstream, UpstreamError, WriteOutcome, open_database,
};
use http::StatusCode;
use served::{Folder, ISSUED_AT, Served, clock, documents, serve};
use tokio::sync::Semaphore;

const ROOT_CRL: &str = "/sgx/certification/v4/rootcacrl";

#[tokio::test]
async fn many_clients_cause_one_fetch() {
    let vendor = Vendor::new(documents(None));
    let world = World::new(&vendor, |_| {}).await;
    let asked: Vec<_> = (0..20).map(|_| world.service.get(ROOT_CRL)).collect();
    for got in join_all(asked).await {
        assert_eq!(got.status, StatusCode::OK);
        assert_eq!(got.header("warning"), "");
    }
    assert_eq!(vendor.fetches(), 1);
    // And it is kept.
    assert_eq!(world.service.get(ROOT_CRL).await.status, StatusCode::OK);
    assert_eq!(vendor.fetches(), 1);
}

#[tokio::test]
async fn who_looked_before_the_fetch_landed_causes_no_second_one() {
    let vendor = Vendor::new(documents(None));
    let folder = Folder::new("looked");
    let database = open_database(folder.0.join("pccs.sqlite").to_str().unwrap()).await.unwrap();
    let held =
        Arc::new(GatedDatabase { database, reads: AtomicUsize::new(0), let_go: Semaphore::new(0) });
    let upstream: Arc<dyn Upstream> = Arc::clone(&vendor) as _;
    let kept = DocumentStore::new(Arc::clone(&held) as _, Some(upstream), &PccsLimits::default());
    let service = Arc::new(serve(DocumentSource::Store(Arc::new(kept)), |_| {}).await);
    let late = tokio::spawn({
        let service = Arc::clone(&service);
        async move { service.get(ROOT_CRL).await.status }
    });
    while held.reads.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(service.get(ROOT_CRL).await.status, StatusCode::OK);
    held.let_go.add_permits(1);
    assert_eq!(late.await.unwrap(), StatusCode::OK);
    assert_eq!(vendor.fetches(), 1);
}

#[tokio::test]
async fn an_aged_document_is_served_while_it_is_fetched_anew() {
    let vendor = Vendor::new(documents(None));
    let world = World::new(&vendor, |_| {}).await;
    let mut aged = list(None);
    aged.fetched_at = clock() - 4000;
    let _ = world.database.write(aged).await.unwrap();
    let got = world.service.get(ROOT_CRL).await;
    assert_eq!((got.status, got.header("warning")), (StatusCode::OK, STALE));
    while vendor.fetches() == 0 || world.stored_root_crl().await.fetched_at != clock() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(world.service.get(ROOT_CRL).await.header("warning"), "");
    assert_eq!(vendor.fetches(), 1);
}

#[tokio::test]
async fn aged_documents_are_fetched_anew_without_being_asked_for() {
    let vendor = Vendor::new(documents(None));
    let world = World::with_root_crl(
        &vendor,
        |limits| limits.refresh_every = Duration::from_millis(10),
        |aged| {
            aged.fetched_at = clock() - 4000;
        },
    )
    .await;
    while world.stored_root_crl().await.fetched_at != clock() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(vendor.fetches(), 1);
}

#[tokio::test]
async fn an_overdue_document_waits_for_the_new_one() {
    let vendor = Vendor::new(documents(None));
    let world = World::new(&vendor, |_| {}).await;
    let _ = world.database.write(list(Some(Fault::ExpiredCrl))).await.unwrap();
    let got = world.service.get(ROOT_CRL).await;
    assert_eq!(hex::decode(&got.body).unwrap(), list(None).body);
    assert_eq!(got.header("warning"), "");
}

#[tokio::test]
async fn an_overdue_document_is_served_and_called_so_while_the_vendor_fails() {
    let vendor = Vendor::new(documents(None));
    vendor.fail(true);
    let world = World::new(&vendor, |limits| limits.retry_after = Duration::from_millis(50)).await;
    let _ = world.database.write(list(Some(Fault::ExpiredCrl))).await.unwrap();
    let got = world.service.get(ROOT_CRL).await;
    assert_eq!((got.status, got.header("warning")), (StatusCode::OK, OVERDUE));
    assert_eq!(vendor.fetches(), 1);
    // It recovers by itself.
    vendor.fail(false);
    while !world.service.get(ROOT_CRL).await.header("warning").is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_vendor_that_fails_is_left_in_peace_for_a_moment() {
    let vendor = Vendor::new(documents(None));
    vendor.fail(true);
    let world = World::new(&vendor, |limits| limits.retry_after = Duration::from_secs(3600)).await;
    assert_eq!(world.service.get(ROOT_CRL).await.status, StatusCode::BAD_GATEWAY);
    let resting = world.service.get(ROOT_CRL).await;
    assert_eq!(resting.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(resting.header("retry-after"), "3600");
    assert_eq!(vendor.fetches(), 1);
}

#[tokio::test]
async fn a_rollback_is_refused_and_counted() {
    let vendor = Vendor::new(documents(Some(Fault::RolledBackCrl)));
    let world = World::with_root_crl(
        &vendor,
        |limits| limits.refresh_every = Duration::from_millis(10),
        |aged| {
            aged.fetched_at = clock() - 4000;
        },
    )
    .await;
    loop {
        let metrics = world.service.get("/metrics").await;
        let text = String::from_utf8(metrics.body.to_vec()).unwrap();
        if !text.contains("confide_pccs_rollbacks_refused_total 0") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let got = world.service.get(ROOT_CRL).await;
    assert_eq!(hex::decode(&got.body).unwrap(), list(None).body);
}

#[tokio::test]
async fn what_would_poison_the_cache_is_refused() {
    // Issued ten days from now: every honest list after it would be a rollback.
    let vendor = Vendor::new(documents(Some(Fault::FutureCrl)));
    let world = World::new(&vendor, |_| {}).await;
    assert_eq!(world.service.get(ROOT_CRL).await.status, StatusCode::BAD_GATEWAY);
    assert_eq!(world.database.count().await.unwrap(), 0);
    // Another platform's TCB info under the key that was asked for.
    let mut foreign = documents(None);
    for document in &mut foreign {
        document.key = document.key.replace(&served::fmspc(&documents(None)), "FFFFFFFFFFFF");
    }
    let vendor = Vendor::new(foreign);
    let world = World::new(&vendor, |_| {}).await;
    let got = world.service.get("/tdx/certification/v4/tcb?fmspc=ffffffffffff").await;
    assert_eq!(got.status, StatusCode::BAD_GATEWAY);
    assert_eq!(vendor.fetches(), 1);
    assert_eq!(world.database.count().await.unwrap(), 0);
}

#[tokio::test]
async fn what_the_vendor_does_not_have_is_not_found() {
    let vendor = Vendor::new(Vec::new());
    let world = World::new(&vendor, |_| {}).await;
    assert_eq!(world.service.get(ROOT_CRL).await.status, StatusCode::NOT_FOUND);
    // Nor is the vendor asked for it again at once.
    assert_eq!(world.service.get(ROOT_CRL).await.status, StatusCode::NOT_FOUND);
    assert_eq!(vendor.fetches(), 1);
}

#[tokio::test]
async fn a_vendor_that_still_gives_what_is_overdue_is_not_asked_for_each_client() {
    let vendor = Vendor::new(documents(Some(Fault::ExpiredCrl)));
    let world = World::new(&vendor, |limits| limits.retry_after = Duration::from_secs(3600)).await;
    let _ = world.database.write(list(Some(Fault::ExpiredCrl))).await.unwrap();
    for _ in 0..3 {
        let got = world.service.get(ROOT_CRL).await;
        assert_eq!((got.status, got.header("warning")), (StatusCode::OK, OVERDUE));
    }
    assert_eq!(vendor.fetches(), 1);
}

#[tokio::test]
async fn what_came_before_the_clock_went_back_is_fetched_anew() {
    let vendor = Vendor::new(documents(None));
    let year = 365 * 24 * 3600;
    let world =
        World::with_root_crl(&vendor, |_| {}, |early| early.fetched_at = clock() + year).await;
    assert_eq!(world.service.get(ROOT_CRL).await.header("warning"), STALE);
    while world.stored_root_crl().await.fetched_at != clock() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn clients_cannot_fill_the_database_beyond_its_bound() {
    let vendor = Vendor::new(documents(None));
    let world = World::new(&vendor, |limits| limits.documents = 0).await;
    assert_eq!(world.service.get(ROOT_CRL).await.status, StatusCode::OK);
    assert_eq!(world.database.count().await.unwrap(), 0);
}

const STALE: &str = "110 confide \"Response is Stale\"";
const OVERDUE: &str = "111 confide \"Revalidation Failed\"";

fn list(fault: Option<Fault>) -> Document {
    documents(fault).into_iter().find(|document| document.kind == DocumentKind::RootCrl).unwrap()
}

/// A service over SQLite with a vendor behind it.
struct World {
    service: Served,
    database: Arc<dyn Database>,
    _folder: Folder,
}

impl World {
    async fn new(vendor: &Arc<Vendor>, adjust: impl FnOnce(&mut PccsLimits)) -> Self {
        Self::build(vendor, adjust, None).await
    }

    /// A world whose database holds the root's list, changed.
    async fn with_root_crl(
        vendor: &Arc<Vendor>,
        adjust: impl FnOnce(&mut PccsLimits),
        change: impl FnOnce(&mut Document),
    ) -> Self {
        let mut kept = list(None);
        change(&mut kept);
        Self::build(vendor, adjust, Some(kept)).await
    }

    async fn build(
        vendor: &Arc<Vendor>,
        adjust: impl FnOnce(&mut PccsLimits),
        kept: Option<Document>,
    ) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let folder = Folder::new(&format!("up{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let database = open_database(folder.0.join("pccs.sqlite").to_str().unwrap()).await.unwrap();
        if let Some(document) = kept {
            let _ = database.write(document).await.unwrap();
        }
        let upstream: Arc<dyn Upstream> = Arc::clone(vendor) as _;
        let kept =
            DocumentStore::new(Arc::clone(&database), Some(upstream), &PccsLimits::default());
        let service = serve(DocumentSource::Store(Arc::new(kept)), adjust).await;
        Self { service, database, _folder: folder }
    }

    async fn stored_root_crl(&self) -> Document {
        self.database.read(DocumentKind::RootCrl, "").await.unwrap().unwrap()
    }
}

/// A database whose first reader gets its answer when it is let.
struct GatedDatabase {
    database: Arc<dyn Database>,
    reads: AtomicUsize,
    let_go: Semaphore,
}

impl Database for GatedDatabase {
    fn name(&self) -> &'static str {
        self.database.name()
    }

    fn read(&self, kind: DocumentKind, key: &str) -> DatabaseFuture<'_, Option<Document>> {
        let key = key.to_owned();
        Box::pin(async move {
            let found = self.database.read(kind, &key).await;
            if self.reads.fetch_add(1, Ordering::SeqCst) == 0 {
                self.let_go.acquire().await.unwrap().forget();
            }
            found
        })
    }

    fn write(&self, document: Document) -> DatabaseFuture<'_, WriteOutcome> {
        self.database.write(document)
    }

    fn list_due(
        &self,
        fetched_before: u64,
        limit: usize,
    ) -> DatabaseFuture<'_, Vec<(DocumentKind, String)>> {
        self.database.list_due(fetched_before, limit)
    }

    fn count(&self) -> DatabaseFuture<'_, u64> {
        self.database.count()
    }
}

struct Vendor {
    documents: Vec<Document>,
    fetches: AtomicUsize,
    fails: Mutex<bool>,
}

impl Vendor {
    fn new(documents: Vec<Document>) -> Arc<Self> {
        Arc::new(Self { documents, fetches: AtomicUsize::new(0), fails: Mutex::new(false) })
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }

    fn fail(&self, fails: bool) {
        *self.fails.lock().unwrap() = fails;
    }
}

impl Upstream for Vendor {
    fn fetch(
        &self,
        wanted: DocumentRequest,
        now: u64,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Document>, UpstreamError>> + Send + '_>> {
        Box::pin(async move {
            assert!(now >= ISSUED_AT);
            self.fetches.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            if *self.fails.lock().unwrap() {
                return Err(UpstreamError::Failed("it fails".into()));
            }
            let (kind, key) = (wanted.kind(), wanted.key());
            let found = self.documents.iter().find(|it| it.kind == kind && it.key == key);
            Ok(found.cloned().map(|it| Document { fetched_at: now, ..it }))
        })
    }
}

async fn join_all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = all.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, done) in all.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(cx)
            {
                *done = Some(value);
            }
        }
        if done.iter().all(Option::is_some) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

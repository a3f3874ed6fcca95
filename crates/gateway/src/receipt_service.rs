//! Receipts and attestation reports of one version of the configuration: `/v1/aci/…`, and their
//! forms for the verifiers of other projects.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use confide_channel::DocumentKey;
use confide_evidence::{Attest, EvidenceKind};
use confide_http::{Peer, SingleFlight};
use confide_receipt::{API_VERSION, Keyset, Nonce, ReportContent};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request,
    uri::PathAndQuery,
};
use tokio::{runtime::Handle, time::Instant};

use crate::{
    answer::{self, AnswerBody},
    api_key::find_credential,
    evidence_source::{EvidenceSource, ReportEvidence},
    foreign_forms::{
        self, DSTACK_REPORT_PATH, DSTACK_SIGNATURE_PATHS, DSTACK_SIGNATURE_ROUTE, TINFOIL_PATH,
    },
    openable_receipt::OpenableRequest,
    operation::Operation,
    receipt_book::{ReceiptOwner, ShareHolder},
    receipt_client::ReceiptClient,
    receipt_fault::ReceiptFault,
    receipt_signer::ReceiptSigner,
    refusal::RequestRefusal,
    report_query::{DstackQuery, ReportQuery, check_dstack_algorithm, parse_wanted_nonce},
};

/// The beginning of the paths of aci/1.
const ACI_PATHS: &str = "/v1/aci/";
/// The pattern of these paths in logs and metrics.
const ACI_ROUTE: &str = "/v1/aci/**";
const REPORT_PATH: &str = "/v1/aci/attestation";
const RECEIPT_PATHS: &str = "/v1/aci/receipts/";
/// The end of the path of a receipt whose bodies can be shown in parts.
const OPENABLE_SUFFIX: &str = "/openable";

const VERSION_FIELD: HeaderName = HeaderName::from_static("x-aci-version");
const DIGEST_FIELD: HeaderName = HeaderName::from_static("x-aci-keyset-digest");

/// The time after which a report that could not be made is tried again.
const REPORT_RETRY: Duration = Duration::from_secs(5);

/// Gives the current TLS key for documents that it signs.
pub(crate) type DocumentKeySource = Arc<dyn Fn() -> DocumentKey + Send + Sync>;

/// The pattern of a path that this service answers, for logs and metrics; `None` for other paths.
pub(crate) fn find_route(path: &str) -> Option<&'static str> {
    match path {
        DSTACK_REPORT_PATH => Some(DSTACK_REPORT_PATH),
        TINFOIL_PATH => Some(TINFOIL_PATH),
        path if path.starts_with(ACI_PATHS) => Some(ACI_ROUTE),
        path if path.starts_with(DSTACK_SIGNATURE_PATHS) => Some(DSTACK_SIGNATURE_ROUTE),
        _ => None,
    }
}

/// Answers requests for receipts and reports.
pub(crate) struct ReceiptService {
    signer: Arc<ReceiptSigner>,
    evidence: EvidenceSource,
    /// The TLS key for documents that it signs, if there are any.
    document_key: Option<DocumentKeySource>,
    /// The report without a nonce, and the digest of its keyset.
    unchallenged: Mutex<Option<(String, Bytes)>>,
    /// The making of that report.
    making: Arc<SingleFlight<String, Result<Bytes, ReceiptFault>>>,
    /// The time at which it last failed.
    failed: Mutex<Option<Instant>>,
}

impl ReceiptService {
    pub(crate) fn new(signer: Arc<ReceiptSigner>, attester: Arc<dyn Attest>) -> Self {
        let evidence = EvidenceSource::new(attester, signer.context().limits);
        let making = SingleFlight::new();
        let (document_key, unchallenged, failed) = Default::default();
        Self { signer, evidence, document_key, unchallenged, making, failed }
    }

    /// Returns the service, which now also signs documents with the TLS key.
    pub(crate) fn with_document_key(mut self, source: DocumentKeySource) -> Self {
        self.document_key = Some(source);
        self
    }

    /// The signer of this service's receipts.
    pub(crate) fn signer(&self) -> &Arc<ReceiptSigner> {
        &self.signer
    }

    /// Marks an answer with the version and the current keyset, in place of what a model server wrote.
    pub(crate) fn mark_answer(&self, headers: &mut HeaderMap) {
        headers.insert(VERSION_FIELD, HeaderValue::from_static(API_VERSION));
        // Without a keyset of its own, the gateway must not pass on that of somebody else.
        headers.remove(DIGEST_FIELD);
        if let Ok(keyset) = self.current_keyset()
            && let Ok(digest) = HeaderValue::from_str(keyset.digest())
        {
            headers.insert(DIGEST_FIELD, digest);
        }
    }

    /// Answers a request for one of the paths that [`find_route`] knows.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        method: &Method,
        headers: &HeaderMap,
        target: &PathAndQuery,
        peer: Peer,
    ) -> Result<Response<AnswerBody>, RequestRefusal> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(RequestRefusal::Method("GET, HEAD".into()));
        }
        let document = match target.path() {
            REPORT_PATH => self.report(ReportQuery::parse(target.query())?, peer).await?,
            DSTACK_REPORT_PATH => {
                let query = DstackQuery::parse(target.query())?;
                foreign_forms::dstack_report(&self.signer, &self.evidence, query, peer).await?
            }
            TINFOIL_PATH => self.tinfoil_document(target, peer).await?,
            path => {
                let asker = self.find_owner(headers, peer);
                if let Some(id) = path.strip_prefix(RECEIPT_PATHS) {
                    self.find_receipt(id, &asker)?
                } else if let Some(id) = path.strip_prefix(DSTACK_SIGNATURE_PATHS) {
                    check_dstack_algorithm(target.query())?;
                    foreign_forms::dstack_signature(&self.signer, id, &asker)?
                } else {
                    return Err(RequestRefusal::NoRoute);
                }
            }
        };
        let mut response = answer::json_response(StatusCode::OK, document);
        let no_store = HeaderValue::from_static("no-store");
        response.headers_mut().insert(header::CACHE_CONTROL, no_store);
        Ok(response)
    }

    /// Finds a receipt by the rest of its path.
    fn find_receipt(&self, rest: &str, asker: &ReceiptOwner) -> Result<Bytes, ReceiptFault> {
        let (book, age) = (self.signer.book(), self.signer.context().limits.receipts.age);
        let found = match rest.strip_suffix(OPENABLE_SUFFIX) {
            Some(id) => book.find_openable(id, asker, age),
            None => book.find(rest, asker, age),
        };
        found.into_result()
    }

    async fn report(
        self: &Arc<Self>,
        query: ReportQuery,
        peer: Peer,
    ) -> Result<Bytes, ReceiptFault> {
        let current = self.current_keyset()?;
        let keyset = match query.keyset {
            Some(digest) if digest != current.digest() => self.signer.book().find_keyset(&digest),
            _ => Some(current.clone()),
        };
        let keyset = keyset.ok_or(ReceiptFault::KeysetNotFound)?;
        if query.nonce.is_none() && keyset == current {
            return self.find_unchallenged(current).await;
        }
        let nonce = query.nonce.as_ref();
        let evidence = self.evidence.obtain_for_peer(peer, keyset.report_data(nonce)).await?;
        Ok(self.write_report(&keyset, nonce, &evidence))
    }

    fn current_keyset(&self) -> Result<Arc<Keyset>, ReceiptFault> {
        let signing = self.signer.current().map_err(|_| ReceiptFault::Unavailable)?;
        Ok(signing.keyset.clone())
    }

    /// The report of the current keyset without a nonce. It is made once, for all who ask meanwhile,
    /// and also if they leave.
    async fn find_unchallenged(
        self: &Arc<Self>,
        keyset: Arc<Keyset>,
    ) -> Result<Bytes, ReceiptFault> {
        if let Some((digest, report)) = &*lock(&self.unchallenged)
            && digest == keyset.digest()
        {
            return Ok(report.clone());
        }
        if lock(&self.failed).is_some_and(|failed| failed.elapsed() < REPORT_RETRY) {
            return Err(ReceiptFault::Unavailable);
        }
        let (service, digest) = (self.clone(), keyset.digest().to_owned());
        let work = move || async move { service.make_unchallenged(keyset).await };
        let admit = |_| Ok::<_, Infallible>(());
        let Ok(making) = self.making.start_if_admitted(&Handle::current(), &digest, admit, work);
        making.outcome().await.unwrap_or(Err(ReceiptFault::Unavailable))
    }

    async fn make_unchallenged(&self, keyset: Arc<Keyset>) -> Result<Bytes, ReceiptFault> {
        match self.evidence.obtain(keyset.report_data(None)).await {
            Ok(evidence) => {
                let report = self.write_report(&keyset, None, &evidence);
                let known = (keyset.digest().to_owned(), report.clone());
                *lock(&self.unchallenged) = Some(known);
                Ok(report)
            }
            Err(fault) => {
                *lock(&self.failed) = Some(Instant::now());
                Err(fault)
            }
        }
    }

    /// The document of the report of a keyset.
    fn write_report(
        &self,
        keyset: &Keyset,
        nonce: Option<&Nonce>,
        evidence: &ReportEvidence,
    ) -> Bytes {
        let content = ReportContent {
            keyset,
            nonce,
            tee_type: name_tee(evidence.kind),
            quote: &evidence.quote,
            collateral: evidence.collateral.as_deref(),
            is_simulated: evidence.is_simulated,
            is_direct: self.signer.context().is_direct,
        };
        content.to_json().into()
    }

    /// The document in Tinfoil's form, if there are keys for encrypted bodies, which it names.
    async fn tinfoil_document(
        &self,
        target: &PathAndQuery,
        peer: Peer,
    ) -> Result<Bytes, ReceiptFault> {
        let signing = self.signer.current().map_err(|_| ReceiptFault::Unavailable)?;
        let (Some(_), Some(source)) = (&signing.body_keys, &self.document_key) else {
            return Err(ReceiptFault::BodyKeyMissing);
        };
        let nonce = parse_wanted_nonce(target.query())?;
        foreign_forms::tinfoil_document(&signing, &self.evidence, &source(), &nonce, peer).await
    }

    /// Notes to whom the receipt of a request belongs, if the request runs a model, and whether its
    /// client wants to show parts of the answer later.
    pub(crate) fn note_client(
        &self,
        head: &mut request::Parts,
        path: &str,
        peer: Peer,
        openable: Option<OpenableRequest>,
    ) {
        if Operation::from_request(&head.method, path).is_some() {
            let owner = self.find_owner(&head.headers, peer);
            head.extensions.insert(ReceiptClient { owner, openable });
        }
    }

    /// The client of a request, by its credential and its address.
    fn find_owner(&self, headers: &HeaderMap, peer: Peer) -> ReceiptOwner {
        let key = find_credential(headers);
        let holder = match key {
            Some(key) if self.signer.context().checks_keys => ShareHolder::Key(key),
            _ => ShareHolder::Peer(peer),
        };
        ReceiptOwner { key, holder }
    }
}

/// The kind of the TEE in the words of aci/1, which has two; others need a verifier's extension.
fn name_tee(kind: Option<EvidenceKind>) -> &'static str {
    match kind {
        Some(EvidenceKind::TdxQuote) => "tdx",
        Some(EvidenceKind::SnpReport) => "sev_snp",
        Some(EvidenceKind::SgxQuote) => "sgx",
        _ => "unknown",
    }
}

/// Locks what a panic elsewhere leaves valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Receipts and attestation reports of one version of the configuration: `/v1/aci/…`.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use confide_evidence::{Attest, EvidenceKind, detect_kind};
use confide_http::{AdmissionQueue, Peer, QueueLimits, SingleFlight, decode_percent};
use confide_receipt::{API_VERSION, Keyset, Nonce, ReportContent, parse_nonce};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request,
    uri::PathAndQuery,
};
use tokio::{runtime::Handle, time::Instant};

use crate::{
    answer::{self, AnswerBody},
    api_key::find_credential,
    failure_log::FailureLog,
    limits::GatewayLimits,
    openable_receipt::{OpenableRequest, ReceiptForm},
    operation::Operation,
    receipt_book::{FoundReceipt, ReceiptOwner, ShareHolder},
    receipt_fault::ReceiptFault,
    receipt_signer::ReceiptSigner,
    refusal::RequestRefusal,
};

/// The beginning of every path of this service.
pub(crate) const ACI_PATHS: &str = "/v1/aci/";
/// The pattern of these paths in logs and metrics.
pub(crate) const ACI_ROUTE: &str = "/v1/aci/**";
const REPORT_PATH: &str = "/v1/aci/attestation";
const RECEIPT_PATHS: &str = "/v1/aci/receipts/";
/// The end of the path of a receipt whose bodies can be shown in parts.
const OPENABLE_SUFFIX: &str = "/openable";

const VERSION_FIELD: HeaderName = HeaderName::from_static("x-aci-version");
const DIGEST_FIELD: HeaderName = HeaderName::from_static("x-aci-keyset-digest");

/// The time after which a report that could not be made is tried again.
const REPORT_RETRY: Duration = Duration::from_secs(5);
/// The largest number of reports that wait for the attester.
const QUEUED_REPORTS: usize = 16;
/// The largest number of networks whose last report is remembered, at some 50 bytes each.
const PEERS_MAX: usize = 4096;

/// Answers requests for receipts and reports.
pub(crate) struct ReceiptService {
    signer: Arc<ReceiptSigner>,
    attester: Arc<dyn Attest>,
    /// The report without a nonce, and the digest of its keyset.
    unchallenged: Mutex<Option<(String, Bytes)>>,
    /// The making of that report.
    making: Arc<SingleFlight<String, Result<Bytes, ReceiptFault>>>,
    /// The time at which it last failed.
    failed: Mutex<Option<Instant>>,
    failures: FailureLog,
    reports: AdmissionQueue,
    /// The time of each network's last report with a nonce.
    reported: Mutex<HashMap<Peer, Instant>>,
}

impl ReceiptService {
    pub(crate) fn new(signer: Arc<ReceiptSigner>, attester: Arc<dyn Attest>) -> Self {
        let wait = signer.context().limits.handshake;
        let queue = QueueLimits { concurrent: 1, queued: QUEUED_REPORTS, wait };
        let reports = AdmissionQueue::new(queue);
        let making = SingleFlight::new();
        let (unchallenged, failed, failures, reported) = Default::default();
        Self { signer, attester, unchallenged, making, failed, failures, reports, reported }
    }

    /// The signer of this service's receipts.
    pub(crate) fn signer(&self) -> &Arc<ReceiptSigner> {
        &self.signer
    }

    fn limits(&self) -> &GatewayLimits {
        &self.signer.context().limits
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

    /// Answers a request below [`ACI_PATHS`].
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
            path => match path.strip_prefix(RECEIPT_PATHS) {
                Some(rest) => {
                    let openable = rest.strip_suffix(OPENABLE_SUFFIX);
                    match openable {
                        Some(id) => self.find_receipt(id, ReceiptForm::Openable, headers, peer)?,
                        None => self.find_receipt(rest, ReceiptForm::Whole, headers, peer)?,
                    }
                }
                None => return Err(RequestRefusal::NoRoute),
            },
        };
        let mut response = answer::json_response(StatusCode::OK, document);
        let no_store = HeaderValue::from_static("no-store");
        response.headers_mut().insert(header::CACHE_CONTROL, no_store);
        Ok(response)
    }

    fn find_receipt(
        &self,
        id: &str,
        form: ReceiptForm,
        headers: &HeaderMap,
        peer: Peer,
    ) -> Result<Bytes, ReceiptFault> {
        let asker = self.find_owner(headers, peer);
        match self.signer.book().find(id, form, &asker, self.limits().receipts.age) {
            FoundReceipt::Document(document) => Ok(document),
            FoundReceipt::KeyMissing => Err(ReceiptFault::KeyMissing),
            FoundReceipt::None => Err(ReceiptFault::NotFound),
        }
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
        self.take_turn(peer)?;
        let made = self.make_report(keyset, query.nonce).await;
        // No quote was made.
        if made == Err(ReceiptFault::Busy) {
            lock(&self.reported).remove(&peer);
        }
        made
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
        let made = self.make_report(keyset.clone(), None).await;
        match &made {
            Ok(report) => {
                let known = (keyset.digest().to_owned(), report.clone());
                *lock(&self.unchallenged) = Some(known);
            }
            Err(_) => *lock(&self.failed) = Some(Instant::now()),
        }
        made
    }

    /// Takes the one report of the network's interval. A full table forgets nobody: whoever is not
    /// in it waits until an interval has passed.
    fn take_turn(&self, peer: Peer) -> Result<(), ReceiptFault> {
        let interval = self.limits().evidence_interval;
        let now = Instant::now();
        let mut reported = lock(&self.reported);
        let is_recent = |time: &Instant| now.duration_since(*time) < interval;
        if reported.len() >= PEERS_MAX {
            reported.retain(|_, time| is_recent(time));
        }
        if reported.len() >= PEERS_MAX || reported.get(&peer).is_some_and(is_recent) {
            return Err(ReceiptFault::TooSoon);
        }
        reported.insert(peer, now);
        Ok(())
    }

    async fn make_report(
        &self,
        keyset: Arc<Keyset>,
        nonce: Option<Nonce>,
    ) -> Result<Bytes, ReceiptFault> {
        let permit = self.reports.enter().await.map_err(|_| ReceiptFault::Busy)?;
        let attester = self.attester.clone();
        let is_direct = self.signer.context().is_direct;
        let making = tokio::task::spawn_blocking(move || {
            // The device is busy until it answers, even if nobody waits any more.
            let _permit = permit;
            let quote = attester.attest(&keyset.report_data(nonce.as_ref()))?;
            let collateral = attester.collateral().and_then(|json| String::from_utf8(json).ok());
            let content = ReportContent {
                keyset: &keyset,
                nonce: nonce.as_ref(),
                tee_type: name_tee(&quote),
                quote: &quote,
                collateral: collateral.as_deref(),
                is_simulated: attester.is_simulated(),
                is_direct,
            };
            Ok::<_, confide_evidence::AttestError>(Bytes::from(content.to_json()))
        });
        let deadline = self.limits().handshake;
        let reason = match tokio::time::timeout(deadline, making).await {
            Ok(Ok(Ok(report))) => return Ok(report),
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(error)) => format!("the attester broke off: {error}"),
            Err(_) => format!("the attester gave nothing within {deadline:?}"),
        };
        if let Some(failures) = self.failures.record(Instant::now()) {
            tracing::warn!(%reason, failures, "no attestation report");
        }
        Err(ReceiptFault::Unavailable)
    }

    /// Notes to whom the receipt of a request belongs, if the request runs a model, and whether its
    /// client wants to show parts of the answer later.
    pub(crate) fn note_client(
        &self,
        head: &mut request::Parts,
        path: &str,
        peer: Peer,
    ) -> Result<(), ReceiptFault> {
        let openable = OpenableRequest::take_from(&mut head.headers)?;
        if Operation::from_request(&head.method, path).is_some() {
            let owner = self.find_owner(&head.headers, peer);
            head.extensions.insert(ReceiptClient { owner, openable });
        }
        Ok(())
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

/// The client of a request, as its receipts need it.
#[derive(Clone)]
pub(crate) struct ReceiptClient {
    pub(crate) owner: ReceiptOwner,
    /// What it wants an openable receipt with, if it wants one.
    pub(crate) openable: Option<OpenableRequest>,
}

/// The kind of the TEE in the words of aci/1, which has two; others need a verifier's extension.
fn name_tee(quote: &[u8]) -> &'static str {
    match detect_kind(quote) {
        Some(EvidenceKind::TdxQuote) => "tdx",
        Some(EvidenceKind::SnpReport) => "sev_snp",
        Some(EvidenceKind::SgxQuote) => "sgx",
        _ => "unknown",
    }
}

/// The parameters of a request for a report.
#[derive(Debug, PartialEq, Eq)]
struct ReportQuery {
    nonce: Option<Nonce>,
    /// The digest of a keyset, which may be an earlier one whose receipts are still kept.
    keyset: Option<String>,
}

impl ReportQuery {
    /// Reads the query of a request; unknown parameters are left out.
    fn parse(query: Option<&str>) -> Result<Self, ReceiptFault> {
        let [nonce, keyset] = ["nonce", "keyset"].map(|name| find_parameter(query, name));
        let nonce = nonce.map_err(|()| ReceiptFault::Nonce)?;
        let nonce = nonce.map(|nonce| parse_nonce(&nonce).ok_or(ReceiptFault::Nonce));
        let keyset = keyset.map_err(|()| ReceiptFault::KeysetNotFound)?;
        Ok(Self { nonce: nonce.transpose()?, keyset })
    }
}

/// The decoded value of a parameter, if the query has it. Two of one name are an error, as is a value
/// that cannot be decoded.
fn find_parameter(query: Option<&str>, name: &str) -> Result<Option<String>, ()> {
    let parameters = query.unwrap_or_default().split('&');
    let mut values =
        parameters.filter_map(|parameter| parameter.strip_prefix(name)?.strip_prefix('='));
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => decode_percent(value).map(Some).ok_or(()),
        (Some(_), Some(_)) => Err(()),
    }
}

/// Locks what a panic elsewhere leaves valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_one_parameter_of_64_digits() {
        let nonce = "0a".repeat(32);
        for query in [None, Some(""), Some("x=1")] {
            assert_eq!(ReportQuery::parse(query), Ok(ReportQuery { nonce: None, keyset: None }));
        }
        for digest in ["sha256:00", "sha256%3A00"] {
            let query = format!("x=1&nonce={nonce}&keyset={digest}");
            let wanted = ReportQuery { nonce: Some([10; 32]), keyset: Some("sha256:00".into()) };
            assert_eq!(ReportQuery::parse(Some(&query)), Ok(wanted));
        }
        let twice = ReportQuery::parse(Some("keyset=a&keyset=a"));
        assert_eq!(twice, Err(ReceiptFault::KeysetNotFound));
        for query in [
            "nonce=".to_owned(),
            format!("nonce={}", nonce.to_uppercase()),
            format!("nonce={nonce}00"),
            format!("nonce={nonce}&nonce={nonce}"),
        ] {
            assert_eq!(ReportQuery::parse(Some(&query)), Err(ReceiptFault::Nonce), "{query}");
        }
    }
}

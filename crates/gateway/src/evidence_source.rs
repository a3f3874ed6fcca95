//! The evidence of reports, whatever their form.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use confide_evidence::{Attest, AttestError, EvidenceKind, ReportData, detect_kind};
use confide_http::{AdmissionQueue, Peer, QueueLimits};
use tokio::time::Instant;

use crate::{failure_log::FailureLog, limits::GatewayLimits, receipt_fault::ReceiptFault};

/// The largest number of reports that wait for the attester.
const QUEUED_REPORTS: usize = 16;
/// The largest number of networks whose last report is remembered, at some 50 bytes each.
const PEERS_MAX: usize = 4096;

/// Evidence that the attester made for one report.
#[derive(Debug)]
pub(crate) struct ReportEvidence {
    pub(crate) quote: Vec<u8>,
    /// The kind of the quote; `None` for one that this program does not know.
    pub(crate) kind: Option<EvidenceKind>,
    /// The endorsements that the attester has for it, JSON.
    pub(crate) collateral: Option<String>,
    /// Whether software made the quote that only imitates a TEE.
    pub(crate) is_simulated: bool,
}

/// Obtains evidence for reports: one quote at a time, and one for a network in an interval.
pub(crate) struct EvidenceSource {
    attester: Arc<dyn Attest>,
    limits: GatewayLimits,
    queue: AdmissionQueue,
    failures: FailureLog,
    /// The time of each network's last report.
    reported: Mutex<HashMap<Peer, Instant>>,
    /// The kind of all quotes of this machine, once there was one.
    kind: OnceLock<Option<EvidenceKind>>,
}

impl EvidenceSource {
    pub(crate) fn new(attester: Arc<dyn Attest>, limits: GatewayLimits) -> Self {
        let wait = limits.handshake;
        let queue = QueueLimits { concurrent: 1, queued: QUEUED_REPORTS, wait };
        let queue = AdmissionQueue::new(queue);
        let (failures, reported, kind) = Default::default();
        Self { attester, limits, queue, failures, reported, kind }
    }

    /// Obtains evidence for a report that a client asked for, as its network's one of the interval.
    pub(crate) async fn obtain_for_peer(
        &self,
        peer: Peer,
        report_data: ReportData,
    ) -> Result<ReportEvidence, ReceiptFault> {
        self.take_turn(peer)?;
        let obtained = self.obtain(report_data).await;
        // No quote was made.
        if matches!(obtained, Err(ReceiptFault::Busy)) {
            lock(&self.reported).remove(&peer);
        }
        obtained
    }

    /// The same for a form that has a place for some kinds of evidence only. Once the kind is
    /// known, no quote is made in vain.
    pub(crate) async fn obtain_of_kinds(
        &self,
        kinds: &[EvidenceKind],
        peer: Peer,
        report_data: ReportData,
    ) -> Result<ReportEvidence, ReceiptFault> {
        let check = |kind: Option<EvidenceKind>| match kind {
            Some(kind) if kinds.contains(&kind) => Ok(()),
            _ => Err(ReceiptFault::EvidenceKind),
        };
        if let Some(kind) = self.kind.get() {
            check(*kind)?;
        }
        let evidence = self.obtain_for_peer(peer, report_data).await?;
        check(evidence.kind)?;
        Ok(evidence)
    }

    /// Obtains evidence in its turn.
    pub(crate) async fn obtain(
        &self,
        report_data: ReportData,
    ) -> Result<ReportEvidence, ReceiptFault> {
        let permit = self.queue.enter().await.map_err(|_| ReceiptFault::Busy)?;
        let attester = self.attester.clone();
        let making = tokio::task::spawn_blocking(move || {
            // The device is busy until it answers, even if nobody waits any more.
            let _permit = permit;
            let quote = attester.attest(&report_data)?;
            // Read after the quote, with which some devices return it.
            let collateral = attester.collateral().and_then(|json| String::from_utf8(json).ok());
            let (kind, is_simulated) = (detect_kind(&quote), attester.is_simulated());
            Ok::<_, AttestError>(ReportEvidence { quote, kind, collateral, is_simulated })
        });
        let deadline = self.limits.handshake;
        let reason = match tokio::time::timeout(deadline, making).await {
            Ok(Ok(Ok(evidence))) => {
                self.kind.get_or_init(|| evidence.kind);
                return Ok(evidence);
            }
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(error)) => format!("the attester broke off: {error}"),
            Err(_) => format!("the attester gave nothing within {deadline:?}"),
        };
        if let Some(failures) = self.failures.record(Instant::now()) {
            tracing::warn!(%reason, failures, "no attestation report");
        }
        Err(ReceiptFault::Unavailable)
    }

    /// Takes the one report of the network's interval. A full table forgets nobody: whoever is not
    /// in it waits until an interval has passed.
    fn take_turn(&self, peer: Peer) -> Result<(), ReceiptFault> {
        let interval = self.limits.evidence_interval;
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
}

/// Locks what a panic elsewhere leaves valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

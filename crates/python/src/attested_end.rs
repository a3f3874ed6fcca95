//! One attested end: its connections, and the report of its keys that was fetched last.

use std::sync::{Mutex, PoisonError};

use confide_client::{HttpClient, PeerAppraisal};
use confide_verification::{ConnectionFacts, describe_connection};
use serde_json::Value;

use crate::kept_report::KeptReport;

/// An attested end and its connections.
pub(crate) struct AttestedEnd {
    url: String,
    via: Option<String>,
    binding: &'static str,
    http: HttpClient,
    report: Mutex<Option<KeptReport>>,
}

impl AttestedEnd {
    pub(crate) fn new(
        url: String,
        via: Option<String>,
        binding: &'static str,
        http: HttpClient,
    ) -> Self {
        Self { url, via, binding, http, report: Mutex::new(None) }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn http(&self) -> &HttpClient {
        &self.http
    }

    /// The verification document of one of its connections.
    pub(crate) fn describe(&self, appraisal: &PeerAppraisal) -> Value {
        let facts =
            ConnectionFacts { url: &self.url, via: self.via.as_deref(), binding: self.binding };
        let mut document =
            describe_connection(&facts, appraisal.verdict(), appraisal.is_simulated());
        document["guarantee"] = appraisal.guarantee().into();
        document
    }

    /// The report that was fetched last, if it is of this keyset.
    pub(crate) fn find_report(&self, keyset_digest: &str) -> Option<KeptReport> {
        let kept = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        kept.as_ref().filter(|report| report.keyset_digest == keyset_digest).cloned()
    }

    pub(crate) fn keep_report(&self, report: KeptReport) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }
}

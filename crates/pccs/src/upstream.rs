//! The sources of documents behind the service: a vendor's service or another PCCS.

use std::pin::Pin;

use crate::{document::Document, request::DocumentRequest};

/// Fetches one document from whoever issues it.
pub trait Upstream: Send + Sync + 'static {
    /// The document; `None` if the vendor answers that it has none. The key is that of
    /// [`DocumentRequest::key`], the body is as [`crate::Kind`] says, and `fetched_at` is `now`.
    fn fetch(
        &self,
        wanted: DocumentRequest,
        now: u64,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Document>, UpstreamError>> + Send + '_>>;
}

/// The reason for which nothing was fetched.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// The vendor's service failed; the text is its client's error.
    #[error("cannot fetch from the vendor: {0}")]
    Failed(String),
    /// The vendor's answer is malformed, another document, or from the future.
    #[error("refused what the vendor sent: {0}")]
    Unfit(String),
    /// The queue of fetches is full.
    #[error("too many fetches are waiting")]
    Busy,
    /// The last fetch failed a moment ago.
    #[error("the last fetch failed less than {retry_after_s} s ago")]
    Resting {
        /// The number of seconds for which no new fetch is tried.
        retry_after_s: u64,
    },
}

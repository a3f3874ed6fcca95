//! The upstream from which the service fetches documents: a vendor's service or another PCCS.

use std::pin::Pin;

use crate::{document::Document, request::DocumentRequest};

/// A source from which documents are fetched.
pub trait Upstream: Send + Sync + 'static {
    /// Fetches a document; `None` if the vendor answers that it has none. The key is that of
    /// [`DocumentRequest::key`], the format of the body that of [`crate::DocumentKind`], and
    /// `fetched_at` is `now`.
    fn fetch(
        &self,
        wanted: DocumentRequest,
        now: u64,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Document>, UpstreamError>> + Send + '_>>;
}

/// The reason for which a fetch failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// The vendor's service failed; the text is the error of the HTTP client.
    #[error("cannot fetch from the vendor: {0}")]
    Failed(String),
    /// The vendor's answer is malformed, another document, or from the future.
    #[error("the vendor's document is refused: {0}")]
    Unusable(String),
    /// The queue of fetches is full.
    #[error("too many fetches are waiting")]
    Busy,
    /// The last fetch of this document failed a moment ago.
    #[error("the last fetch failed less than {retry_after_s} s ago")]
    RecentFailure {
        /// The time in seconds for which a failed fetch is not repeated.
        retry_after_s: u64,
    },
}

//! Where documents come from: a vendor's service or another PCCS.

use std::pin::Pin;

use crate::{document::Document, request::DocumentRequest};

/// Fetches one document from whoever issues it.
pub trait Upstream: Send + Sync + 'static {
    /// The document, `None` where the vendor says that it has none. The key is that of
    /// [`Wanted::key`], the body as [`crate::Kind`] says, `fetched_at` is `now`.
    fn fetch(
        &self,
        wanted: DocumentRequest,
        now: u64,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Document>, UpstreamError>> + Send + '_>>;
}

/// Why nothing was fetched.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// The vendor's service failed; its client says how.
    #[error("cannot fetch from the vendor: {0}")]
    Failed(String),
    /// What came is malformed, another document, or from the future.
    #[error("refused what the vendor sent: {0}")]
    Unfit(String),
    /// Too many fetches wait already.
    #[error("too many fetches wait already")]
    Busy,
    /// It failed a moment ago.
    #[error("the last fetch failed less than {retry_after_s} s ago")]
    Resting {
        /// How long it rests.
        retry_after_s: u64,
    },
}

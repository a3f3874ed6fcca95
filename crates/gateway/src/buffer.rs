//! Request bodies that are read whole before the request is sent, within one bound for all of them.

use std::sync::Arc;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    body::{LimitedBody, LingeringBody},
    choice_error::ChoiceError,
    limits::GatewayLimits,
    refusal::RequestRefusal,
};

/// Reads bodies into memory, as far as all of them together keep within a bound.
pub(crate) struct BodyBuffers {
    /// A permit for each byte.
    budget: Arc<Semaphore>,
    limits: GatewayLimits,
}

/// The bytes of a body and their share of the budget, which is returned when they are dropped.
struct BufferedBytes {
    bytes: Vec<u8>,
    share: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for BufferedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl BodyBuffers {
    pub(crate) fn new(limits: GatewayLimits) -> Self {
        let budget = limits.buffered_bytes.min(Semaphore::MAX_PERMITS);
        Self { budget: Arc::new(Semaphore::new(budget)), limits }
    }

    /// Reads the whole body. The bytes count against the bound until the last clone is dropped.
    pub(crate) async fn read_whole(
        &self,
        body: LimitedBody<LingeringBody>,
    ) -> Result<Bytes, RequestRefusal> {
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        let deadline = self.limits.buffered_body;
        let buffered = tokio::time::timeout(deadline, self.collect(body)).await;
        let buffered = buffered.map_err(|_| ChoiceError::BodyLate { deadline })??;
        Ok(Bytes::from_owner(buffered))
    }

    async fn collect(
        &self,
        mut body: LimitedBody<LingeringBody>,
    ) -> Result<BufferedBytes, RequestRefusal> {
        let longest = body.size_hint().upper().unwrap_or(self.limits.request_body_bytes);
        let longest = usize::try_from(longest).unwrap_or(usize::MAX);
        let mut buffered = BufferedBytes { bytes: Vec::new(), share: None };
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|fault| RequestRefusal::from_body_fault(&fault))?;
            let Ok(data) = frame.into_data() else { continue };
            self.reserve(&mut buffered, data.len(), longest)?;
            buffered.bytes.extend_from_slice(&data);
        }
        Ok(buffered)
    }

    /// Makes space for `more` bytes. The capacity is counted, and not only what is in use. It
    /// doubles, up to the longest body; nothing is reserved for bytes that are only announced.
    fn reserve(
        &self,
        buffered: &mut BufferedBytes,
        more: usize,
        longest: usize,
    ) -> Result<(), ChoiceError> {
        let (length, capacity) = (buffered.bytes.len(), buffered.bytes.capacity());
        let needed = length + more;
        if needed <= capacity {
            return Ok(());
        }
        let grown = needed.max(longest.min(2 * capacity));
        let added = u32::try_from(grown - capacity).map_err(|_| ChoiceError::BuffersFull)?;
        let added = self.budget.clone().try_acquire_many_owned(added);
        let added = added.map_err(|_| ChoiceError::BuffersFull)?;
        match &mut buffered.share {
            Some(share) => share.merge(added),
            None => buffered.share = Some(added),
        }
        buffered.bytes.reserve_exact(grown - length);
        Ok(())
    }
}

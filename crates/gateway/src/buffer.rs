//! Request bodies that are read whole before the request is sent, within one bound for all of them
//! and one for those of each peer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use confide_http::Peer;
use http_body::Body;
use http_body_util::BodyExt;

use crate::{
    body::LimitedBody, choice_error::ChoiceError, client_body::ClientBody, limits::GatewayLimits,
    refusal::RequestRefusal,
};

/// Reads bodies into memory, as far as all of them, and those of their peer, keep within their
/// bounds.
pub(crate) struct BodyBuffers {
    budget: Arc<BufferBudget>,
    limits: GatewayLimits,
}

/// The bounds of the memory, and the bytes that are reserved.
struct BufferBudget {
    bytes_max: usize,
    bytes_max_per_peer: usize,
    reserved: Mutex<ReservedBytes>,
}

#[derive(Default)]
struct ReservedBytes {
    total: usize,
    /// The bytes of each peer that has any.
    peers: HashMap<Peer, usize>,
}

/// The part of the budget that one body has, which is returned when it is dropped.
pub(crate) struct BudgetShare {
    budget: Arc<BufferBudget>,
    peer: Peer,
    bytes: usize,
}

/// The bytes of a body and their share of the budget.
struct BufferedBytes {
    bytes: Vec<u8>,
    share: BudgetShare,
}

impl AsRef<[u8]> for BufferedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl BodyBuffers {
    pub(crate) fn new(limits: GatewayLimits) -> Self {
        let budget = BufferBudget {
            bytes_max: limits.buffered_bytes,
            bytes_max_per_peer: limits.buffered_bytes_per_peer.min(limits.buffered_bytes),
            reserved: Mutex::default(),
        };
        Self { budget: Arc::new(budget), limits }
    }

    /// A share for bytes that somebody else reads.
    pub(crate) fn open_share(&self, peer: Peer) -> BudgetShare {
        BudgetShare { budget: self.budget.clone(), peer, bytes: 0 }
    }

    /// Reads the whole body of a request of `peer`. The bytes count against the bounds until the
    /// last clone is dropped.
    pub(crate) async fn read_whole(
        &self,
        body: LimitedBody<ClientBody>,
        peer: Peer,
    ) -> Result<Bytes, RequestRefusal> {
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        let deadline = self.limits.buffered_body;
        let buffered = tokio::time::timeout(deadline, self.collect(body, peer)).await;
        let buffered = buffered.map_err(|_| ChoiceError::BodyLate { deadline })??;
        Ok(Bytes::from_owner(buffered))
    }

    async fn collect(
        &self,
        mut body: LimitedBody<ClientBody>,
        peer: Peer,
    ) -> Result<BufferedBytes, RequestRefusal> {
        let announced = body.size_hint().upper().unwrap_or(self.limits.request_body_bytes);
        let bytes_max = self.budget.bytes_max_per_peer;
        let longest = usize::try_from(announced).unwrap_or(usize::MAX).min(bytes_max);
        // A body that is longer than its peer's share would be refused at any time.
        let too_long = || RequestRefusal::TooLong { limit: bytes_max as u64 };
        if body.size_hint().lower() > bytes_max as u64 {
            return Err(too_long());
        }
        let share = self.open_share(peer);
        let mut buffered = BufferedBytes { bytes: Vec::new(), share };
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|fault| RequestRefusal::from_body_fault(&fault))?;
            let Ok(data) = frame.into_data() else { continue };
            if buffered.bytes.len() + data.len() > bytes_max {
                return Err(too_long());
            }
            buffered.reserve(data.len(), longest)?;
            buffered.bytes.extend_from_slice(&data);
        }
        Ok(buffered)
    }
}

impl BufferedBytes {
    /// Makes space for `more` bytes. The capacity is counted, and not only what is in use. It
    /// doubles, up to the longest body; nothing is reserved for bytes that are only announced.
    fn reserve(&mut self, more: usize, longest: usize) -> Result<(), ChoiceError> {
        let (length, capacity) = (self.bytes.len(), self.bytes.capacity());
        let needed = length + more;
        if needed <= capacity {
            return Ok(());
        }
        let grown = needed.max(longest.min(2 * capacity));
        self.share.grow(grown - capacity)?;
        self.bytes.reserve_exact(grown - length);
        Ok(())
    }
}

impl BudgetShare {
    /// Reserves as many bytes as are missing to `bytes`.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), ChoiceError> {
        match bytes.checked_sub(self.bytes) {
            None | Some(0) => Ok(()),
            Some(more) => self.grow(more),
        }
    }

    /// An empty share of the same peer.
    pub(crate) fn begin_next(&self) -> Self {
        Self { budget: self.budget.clone(), peer: self.peer, bytes: 0 }
    }

    /// Reserves `more` bytes.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), ChoiceError> {
        let BufferBudget { bytes_max, bytes_max_per_peer, .. } = *self.budget;
        let mut reserved = self.budget.lock();
        let of_peer = reserved.peers.get(&self.peer).copied().unwrap_or_default();
        if reserved.total + more > bytes_max || of_peer + more > bytes_max_per_peer {
            return Err(ChoiceError::BuffersFull);
        }
        reserved.total += more;
        reserved.peers.insert(self.peer, of_peer + more);
        drop(reserved);
        self.bytes += more;
        Ok(())
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        let mut reserved = self.budget.lock();
        reserved.total -= self.bytes;
        if let Some(of_peer) = reserved.peers.get_mut(&self.peer) {
            *of_peer -= self.bytes;
            if *of_peer == 0 {
                reserved.peers.remove(&self.peer);
            }
        }
    }
}

impl BufferBudget {
    /// Locks the counts, which every holder of the lock leaves valid.
    fn lock(&self) -> MutexGuard<'_, ReservedBytes> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

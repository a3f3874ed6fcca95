//! Takes the place of `session_attester` in a client that cannot attest: its types have no values.

use std::{convert::Infallible, marker::PhantomData};

use confide_evidence::binder::EXPORTER_BYTES;

use crate::{
    deadline::Deadline,
    error::ChannelError,
    exchange_message::{EvidenceDemand, ShownEvidence},
    session_terms::SessionTerms,
};

/// An attester that no such client has.
pub(crate) struct SessionAttester(Infallible);

/// Evidence that no such client obtains.
pub(crate) struct ObtainedEvidence<'a>(Infallible, PhantomData<&'a ()>);

impl SessionAttester {
    pub(crate) fn spki_hash(&self) -> [u8; 32] {
        match self.0 {}
    }

    pub(crate) async fn obtain(
        &self,
        _terms: &SessionTerms,
        _demand: &EvidenceDemand,
        _exporter: &[u8; EXPORTER_BYTES],
        _deadline: Deadline,
    ) -> Result<ObtainedEvidence<'_>, ChannelError> {
        match self.0 {}
    }
}

impl ObtainedEvidence<'_> {
    pub(crate) fn sessions(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn to_shown(&self) -> ShownEvidence<'_> {
        match self.0 {}
    }
}

//! Makes this end's evidence for one session.

use std::{borrow::Cow, sync::Arc};

use confide_evidence::{
    batch::BatchPath,
    binder::{EXPORTER_BYTES, authenticator_report_data, session_gpu_nonce, session_report_data},
    claims::Claims,
    evidence_wrapper::EvidenceWrapper,
    session_message::SessionEvidence,
    session_message_3::AuthenticatedEvidence,
};

use crate::{
    authenticator::AuthenticatorSigner,
    batch::{BatchedQuote, QuoteBatcher},
    certificate::sha256,
    deadline::Deadline,
    error::{ChannelError, ChannelPhase},
    exchange_message::{EvidenceDemand, ShownEvidence},
    identity::Identity,
    options::SessionVersion,
    session_terms::SessionTerms,
};

/// The queue and the identity with which an end attests.
pub(crate) struct SessionAttester {
    pub(crate) batcher: QuoteBatcher,
    pub(crate) identity: Arc<Identity>,
}

pub(crate) struct ObtainedEvidence<'a> {
    batched: BatchedQuote,
    claims: Cow<'a, [u8]>,
    gpu: Option<Vec<u8>>,
    path: Option<Vec<u8>>,
    /// The authenticator that holds quote, claims and path (version 3 only).
    authenticator: Option<Vec<u8>>,
}

impl ObtainedEvidence<'_> {
    /// The number of sessions that share the quote.
    pub(crate) fn sessions(&self) -> usize {
        self.batched.sessions()
    }

    /// The evidence as it travels.
    pub(crate) fn to_shown(&self) -> ShownEvidence<'_> {
        let (collateral, gpu) = (self.batched.collateral.as_deref(), self.gpu.as_deref());
        match &self.authenticator {
            Some(authenticator) => ShownEvidence::Authenticated(AuthenticatedEvidence {
                authenticator,
                collateral,
                gpu,
            }),
            None => ShownEvidence::Bare(SessionEvidence {
                quote: &self.batched.quote,
                claims: &self.claims,
                collateral,
                batch: self.path.as_deref(),
                gpu,
            }),
        }
    }
}

impl SessionAttester {
    /// The hash of this end's own key.
    pub(crate) fn spki_hash(&self) -> [u8; 32] {
        self.identity.spki_hash
    }

    /// Obtains evidence from the attester: in a batch with other sessions unless the peer speaks
    /// version 1 of the exchange, which knows neither batch paths nor a GPU's evidence. In version 3
    /// the signature scheme is chosen first, so that no quote is spent on a peer that verifies none.
    pub(crate) async fn obtain(
        &self,
        terms: &SessionTerms,
        demand: &EvidenceDemand,
        exporter: &[u8; EXPORTER_BYTES],
        deadline: Deadline,
    ) -> Result<ObtainedEvidence<'_>, ChannelError> {
        let Identity { claims, spki_hash, certified, .. } = &*self.identity;
        let authenticating = match (&terms.keys, demand) {
            (None, EvidenceDemand::Context(_)) => None,
            (Some(keys), EvidenceDemand::Authenticator { request, bytes }) => {
                Some((keys, request, bytes, AuthenticatorSigner::choose(request, certified)?))
            }
            _ => {
                let version = terms.version.number();
                return Err(ChannelError::OwnEvidenceVersion { version });
            }
        };
        let (batcher, role) = (&self.batcher, terms.attester);
        let mut claims = Cow::Borrowed(claims.as_slice());
        let mut gpu = None;
        if terms.version != SessionVersion::V1 {
            let nonce = session_gpu_nonce(role, spki_hash, exporter);
            gpu = deadline.limit(ChannelPhase::Quote, batcher.obtain_gpu_evidence(nonce)).await??;
            if let Some(evidence) = &gpu {
                claims = Cow::Owned(claims_with_gpu(&claims, evidence)?);
            }
        }
        let binder = match &terms.keys {
            Some(keys) => {
                let spki = self.identity.spki()?;
                authenticator_report_data(role, keys.hash, &spki, exporter, &claims)
            }
            None => session_report_data(role, spki_hash, exporter, &claims),
        };
        let batched = match terms.version {
            SessionVersion::V1 => {
                deadline.limit(ChannelPhase::Quote, batcher.attest_alone(binder)).await??
            }
            _ => deadline.limit(ChannelPhase::Quote, batcher.attest(binder)).await??,
        };
        let path = batched.path.as_ref().map(BatchPath::encode);
        let mut obtained = ObtainedEvidence { batched, claims, gpu, path, authenticator: None };
        if let Some((keys, request, bytes, signer)) = authenticating {
            let cmw = obtained.to_wrapper().to_cmw().encode();
            obtained.authenticator = Some(keys.make(request, bytes, &signer, &cmw)?);
        }
        Ok(obtained)
    }
}

impl ObtainedEvidence<'_> {
    fn to_wrapper(&self) -> EvidenceWrapper {
        EvidenceWrapper {
            quote: self.batched.quote.to_vec(),
            claims: self.claims.to_vec(),
            batch: self.path.clone(),
            collateral: self.batched.collateral.as_deref().map(sha256),
            gpu: self.gpu.as_deref().map(sha256),
        }
    }
}

/// Adds the hash of the GPU evidence to this end's claims, for one session.
fn claims_with_gpu(claims: &[u8], evidence: &[u8]) -> Result<Vec<u8>, ChannelError> {
    let claims = Claims::decode(claims).map_err(ChannelError::OwnClaims)?;
    Ok(Claims { gpu_evidence_hash: Some(sha256(evidence)), ..claims }.encode())
}

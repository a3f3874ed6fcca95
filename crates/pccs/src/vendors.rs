//! The vendors' services behind ours, through the client of `collateral`.

use std::pin::Pin;

use base64::{Engine, engine::general_purpose::STANDARD};
use confide_collateral::{AmdKey, Client, CollateralError, DocumentKey, Product, Signer};
use sha2::{Digest, Sha256};

use crate::{
    document::Document,
    request::{DocumentRequest, EndorsementKey},
    upstream::{Upstream, UpstreamError},
};

/// Fetches from the services that the client knows; a document without a service is not found.
pub struct Vendors(Client);

impl Vendors {
    /// Fetches through `client`.
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    async fn document(
        &self,
        wanted: &DocumentRequest,
        now: u64,
    ) -> Result<Option<Document>, Failure> {
        if let DocumentRequest::Rim { id } = wanted {
            let manifest = self.0.rim(id).await?;
            return Ok(Some(Document::new(wanted, None, rim_answer(id, &manifest), now)?));
        }
        let Some(key) = key(wanted) else { return Ok(None) };
        let fetched = self.0.document(&key, now).await?;
        let body = if fetched.signature.is_empty() {
            fetched.content
        } else {
            let json = String::from_utf8(fetched.content)
                .map_err(|_| Failure::Unfit("a document that is no text".into()))?;
            Document::signed_body(wanted.kind(), &json, &fetched.signature)
        };
        let chain = Some(fetched.chain.as_str()).filter(|chain| !chain.is_empty());
        Ok(Some(Document::new(wanted, chain, body, now)?))
    }
}

impl Upstream for Vendors {
    fn fetch(
        &self,
        wanted: DocumentRequest,
        now: u64,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Document>, UpstreamError>> + Send + '_>> {
        Box::pin(async move {
            match self.document(&wanted, now).await {
                Ok(document) => Ok(document),
                Err(Failure::Fetch(
                    CollateralError::Status { status: 404, .. } | CollateralError::NoService { .. },
                )) => Ok(None),
                Err(Failure::Fetch(error)) => Err(UpstreamError::Failed(error.to_string())),
                Err(Failure::Unfit(reason)) => Err(UpstreamError::Unfit(reason)),
            }
        })
    }
}

enum Failure {
    Fetch(CollateralError),
    Unfit(String),
}

impl From<CollateralError> for Failure {
    fn from(error: CollateralError) -> Self {
        Self::Fetch(error)
    }
}

impl From<confide_evidence::ParseError> for Failure {
    fn from(error: confide_evidence::ParseError) -> Self {
        Self::Unfit(error.to_string())
    }
}

/// The client's key of the document; `None` for documents that the client does not fetch.
fn key(wanted: &DocumentRequest) -> Option<DocumentKey> {
    Some(match wanted {
        DocumentRequest::Tcb { tee, fmspc, set } => {
            DocumentKey::TcbInfo { tee: (*tee).into(), fmspc: *fmspc, evaluation: *set }
        }
        DocumentRequest::QeIdentity { tee, set } => {
            DocumentKey::QeIdentity { tee: (*tee).into(), evaluation: *set }
        }
        DocumentRequest::PckCrl { ca, .. } => DocumentKey::IntelPckCrl(*ca),
        DocumentRequest::RootCrl { .. } => DocumentKey::IntelRootCrl,
        DocumentRequest::Vcek { product, hwid, tcb } => {
            let signer = Signer::Vcek(hex::decode(hwid).ok()?);
            let tcb = report_tcb(*product, *tcb);
            DocumentKey::AmdKey(AmdKey { product: *product, signer, tcb })
        }
        DocumentRequest::AmdChain { key, product } => {
            DocumentKey::AmdChain { product: *product, vlek: *key == EndorsementKey::Vlek }
        }
        DocumentRequest::AmdCrl { key, product } => {
            DocumentKey::AmdCrl { product: *product, vlek: *key == EndorsementKey::Vlek }
        }
        _ => return None,
    })
}

/// The versions as a report holds them (AMD 56860, TCB_VERSION); Turin's begin with the FMC.
fn report_tcb(product: Product, [bl, tee, snp, ucode, fmc]: [u8; 5]) -> [u8; 8] {
    match product {
        Product::Milan | Product::Genoa => [bl, tee, 0, 0, 0, 0, snp, ucode],
        Product::Turin => [fmc, bl, tee, snp, 0, 0, 0, ucode],
    }
}

/// The JSON of the service around a manifest, which the client has removed.
fn rim_answer(id: &str, manifest: &[u8]) -> Vec<u8> {
    let answer = serde_json::json!({
        "id": id,
        "sha256": hex::encode(Sha256::digest(manifest)),
        "rim": STANDARD.encode(manifest),
        "rim_format": "TCG RIM",
    });
    answer.to_string().into_bytes()
}

//! The vendors' services as upstream, through the client of `confide-collateral`.

use std::pin::Pin;

use base64::{Engine, engine::general_purpose::STANDARD};
use confide_collateral::{AmdKey, AmdSigner, Client, CollateralError, DocumentKey, Product};
use sha2::{Digest, Sha256};

use crate::{
    document::Document,
    request::{AmdKeyKind, DocumentRequest},
    upstream::{Upstream, UpstreamError},
};

/// Fetches from the services of a client; a document for which no service is set is not found.
pub struct VendorUpstream(Client);

impl VendorUpstream {
    /// Fetches through `client`.
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    async fn fetch_document(
        &self,
        wanted: &DocumentRequest,
        now: u64,
    ) -> Result<Option<Document>, FetchFailure> {
        if let DocumentRequest::Rim { id } = wanted {
            let manifest = self.0.fetch_rim(id).await?;
            return Ok(Some(Document::new(wanted, None, rim_answer(id, &manifest), now)?));
        }
        let Some(key) = collateral_key(wanted) else { return Ok(None) };
        let fetched = self.0.fetch_document(&key, now).await?;
        let body = if fetched.signature.is_empty() {
            fetched.content
        } else {
            let json = String::from_utf8(fetched.content)
                .map_err(|_| FetchFailure::Unusable("the document is not text".into()))?;
            Document::signed_body(wanted.kind(), &json, &fetched.signature)
        };
        let chain = Some(fetched.chain.as_str()).filter(|chain| !chain.is_empty());
        Ok(Some(Document::new(wanted, chain, body, now)?))
    }
}

impl Upstream for VendorUpstream {
    fn fetch(
        &self,
        wanted: DocumentRequest,
        now: u64,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Document>, UpstreamError>> + Send + '_>> {
        Box::pin(async move {
            match self.fetch_document(&wanted, now).await {
                Ok(document) => Ok(document),
                Err(FetchFailure::Client(
                    CollateralError::Status { status: 404, .. } | CollateralError::NoService { .. },
                )) => Ok(None),
                Err(FetchFailure::Client(error)) => Err(UpstreamError::Failed(error.to_string())),
                Err(FetchFailure::Unusable(reason)) => Err(UpstreamError::Unusable(reason)),
            }
        })
    }
}

enum FetchFailure {
    Client(CollateralError),
    Unusable(String),
}

impl From<CollateralError> for FetchFailure {
    fn from(error: CollateralError) -> Self {
        Self::Client(error)
    }
}

impl From<confide_evidence::ParseError> for FetchFailure {
    fn from(error: confide_evidence::ParseError) -> Self {
        Self::Unusable(error.to_string())
    }
}

/// The document's key in `confide-collateral`; `None` for documents that its client cannot fetch.
fn collateral_key(wanted: &DocumentRequest) -> Option<DocumentKey> {
    Some(match wanted {
        DocumentRequest::Tcb { tee, fmspc, evaluation } => {
            DocumentKey::TcbInfo { tee: (*tee).into(), fmspc: *fmspc, evaluation: *evaluation }
        }
        DocumentRequest::QeIdentity { tee, evaluation } => {
            DocumentKey::QeIdentity { tee: (*tee).into(), evaluation: *evaluation }
        }
        DocumentRequest::PckCrl { ca, .. } => DocumentKey::IntelPckCrl(*ca),
        DocumentRequest::RootCrl { .. } => DocumentKey::IntelRootCrl,
        DocumentRequest::Vcek { product, hwid, tcb } => {
            let signer = AmdSigner::Vcek(hex::decode(hwid).ok()?);
            let tcb = encode_report_tcb(*product, *tcb);
            DocumentKey::AmdKey(AmdKey { product: *product, signer, tcb })
        }
        DocumentRequest::AmdChain { key, product } => {
            DocumentKey::AmdChain { product: *product, vlek: *key == AmdKeyKind::Vlek }
        }
        DocumentRequest::AmdCrl { key, product } => {
            DocumentKey::AmdCrl { product: *product, vlek: *key == AmdKeyKind::Vlek }
        }
        _ => return None,
    })
}

/// The versions in the order of a report (AMD 56860, TCB_VERSION); Turin's begin with the FMC.
fn encode_report_tcb(product: Product, [bl, tee, snp, ucode, fmc]: [u8; 5]) -> [u8; 8] {
    match product {
        Product::Milan | Product::Genoa => [bl, tee, 0, 0, 0, 0, snp, ucode],
        Product::Turin => [fmc, bl, tee, snp, 0, 0, 0, ucode],
    }
}

/// Encodes a manifest in the JSON of NVIDIA's service, which the client has decoded.
fn rim_answer(id: &str, manifest: &[u8]) -> Vec<u8> {
    let answer = serde_json::json!({
        "id": id,
        "sha256": hex::encode(Sha256::digest(manifest)),
        "rim": STANDARD.encode(manifest),
        "rim_format": "TCG RIM",
    });
    answer.to_string().into_bytes()
}

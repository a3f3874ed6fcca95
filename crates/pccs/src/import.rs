//! Splits endorsement files into documents, for a service without access to the vendors.

use confide_collateral::{PckIssuer, TcbEvaluation};
use confide_evidence::{
    ParseError,
    certificate::Certificate,
    collateral::Collateral,
    pem,
    qe_identity::QeIdentity,
    snp::{AmdCertificate, Product},
    snp_endorsements::SnpEndorsements,
    tcb_info::TcbInfo,
};

use crate::{
    document::Document,
    request::{AmdKeyKind, CrlEncoding, DocumentRequest},
};

/// The reason for which a file cannot be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A part of the file is malformed.
    #[error("{0}")]
    Parse(#[from] ParseError),
    /// The issuer of the revocation list is not one of Intel's two.
    #[error("issuer of the PCK CRL: wanted a platform or a processor CA, got {got}")]
    Issuer {
        /// The common name of the issuer.
        got: String,
    },
    /// The certificate does not identify its chip.
    #[error("certificate of the endorsement key: wanted {wanted}, got none")]
    Chip {
        /// The part of the certificate that is missing.
        wanted: &'static str,
    },
}

/// Splits endorsements (a QuoteCollateralV3, or an SNP chip's key with its chain and list) into the
/// documents that the vendors' services would have sent. Signatures are not verified.
///
/// # Errors
/// An [`ImportError`] if a part is malformed or missing.
pub fn split_endorsements(file: &[u8], fetched_at: u64) -> Result<Vec<Document>, ImportError> {
    if SnpEndorsements::is_snp_endorsements(file) {
        return split_snp(&SnpEndorsements::parse(file)?, fetched_at);
    }
    split_dcap(&Collateral::parse(file)?, fetched_at)
}

/// Splits the endorsements of an SNP chip. A VCEK is stored by chip and versions, which its
/// certificate names. A VLEK is left out, as AMD's service has no route for it.
fn split_snp(
    endorsements: &SnpEndorsements,
    fetched_at: u64,
) -> Result<Vec<Document>, ImportError> {
    let SnpEndorsements { endorsement_key, chain, crl } = endorsements;
    let certificate = AmdCertificate::parse("endorsement key", endorsement_key)?;
    let names = &certificate.extensions;
    let line = names.product_name.and_then(|name| name.split('-').next());
    let product = line.and_then(Product::from_name);
    let product = product.ok_or(ImportError::Chip { wanted: "a product name" })?;
    let key = if names.hwid.is_some() { AmdKeyKind::Vcek } else { AmdKeyKind::Vlek };
    let above = DocumentRequest::AmdChain { key, product };
    let mut documents = vec![Document::new(&above, None, chain.clone().into(), fetched_at)?];
    if let Some(list) = crl {
        let wanted = DocumentRequest::AmdCrl { key, product };
        documents.push(Document::new(&wanted, None, list.clone(), fetched_at)?);
    }
    if let Some(hwid) = names.hwid {
        let tcb = names.tcb(product);
        let tcb = product.tcb(&tcb.ok_or(ImportError::Chip { wanted: "all its versions" })?);
        let fmc = tcb.fmc.unwrap_or(0);
        let versions = [tcb.bootloader, tcb.tee, tcb.snp, tcb.microcode, fmc];
        let wanted = DocumentRequest::Vcek { product, hwid: hex::encode(hwid), tcb: versions };
        documents.push(Document::new(&wanted, None, endorsement_key.clone(), fetched_at)?);
    }
    Ok(documents)
}

fn split_dcap(collateral: &Collateral, fetched_at: u64) -> Result<Vec<Document>, ImportError> {
    let info = TcbInfo::parse(&collateral.tcb_info)?;
    let identity = QeIdentity::parse(&collateral.qe_identity)?;
    let signed = |wanted: &DocumentRequest, json: &str, signature: &[u8]| {
        Document::signed_body(wanted.kind(), json, &hex::encode(signature))
    };
    let evaluation = TcbEvaluation::Standard;
    let tcb = DocumentRequest::Tcb { tee: info.tee.try_into()?, fmspc: info.fmspc, evaluation };
    let tcb_body = signed(&tcb, &collateral.tcb_info, &collateral.tcb_info_signature);
    let qe = DocumentRequest::QeIdentity { tee: identity.tee.try_into()?, evaluation };
    let qe_body = signed(&qe, &collateral.qe_identity, &collateral.qe_identity_signature);
    let ca = parse_issuer(&collateral.pck_crl_issuer_chain)?;
    let pck_crl = DocumentRequest::PckCrl { ca, encoding: CrlEncoding::Der };
    let root_crl = DocumentRequest::RootCrl { encoding: CrlEncoding::Der };
    let chain = |chain: &String| Some(chain.clone());
    let documents = [
        (tcb, chain(&collateral.tcb_info_issuer_chain), tcb_body),
        (qe, chain(&collateral.qe_identity_issuer_chain), qe_body),
        (pck_crl, chain(&collateral.pck_crl_issuer_chain), collateral.pck_crl.clone()),
        (root_crl, None, collateral.root_ca_crl.clone()),
    ]
    .into_iter()
    .map(|(wanted, chain, body)| Document::new(&wanted, chain.as_deref(), body, fetched_at));
    Ok(documents.collect::<Result<_, _>>()?)
}

/// Parses which of Intel's CAs is the first certificate of a chain, from its common name.
fn parse_issuer(chain: &str) -> Result<PckIssuer, ImportError> {
    const SUBJECT: &str = "issuer chain of the PCK CRL";
    let chain = pem::decode_chain(SUBJECT, chain.as_bytes())?;
    let first = chain.first().ok_or(ParseError::Missing { subject: SUBJECT })?;
    let name = Certificate::parse(SUBJECT, first)?.common_name;
    if name.contains("Platform CA") {
        Ok(PckIssuer::Platform)
    } else if name.contains("Processor CA") {
        Ok(PckIssuer::Processor)
    } else {
        Err(ImportError::Issuer { got: confide_evidence::escape_untrusted(name) })
    }
}

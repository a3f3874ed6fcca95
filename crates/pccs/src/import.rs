//! Imports files into a service that reaches no vendor.

use confide_collateral::{Ca, Evaluation};
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
    request::{DocumentRequest, Encoding, EndorsementKey},
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
    /// The certificate does not say which chip it is for.
    #[error("endorsement key: wanted {wanted}")]
    Chip {
        /// The part of the certificate that is missing.
        wanted: &'static str,
    },
}

/// Splits endorsements into the documents that the vendors' services would have given: a
/// QuoteCollateralV3, or an SNP chip's key with its chain and list.
///
/// # Errors
/// An [`ImportError`] if a part is malformed or missing. Signatures are not verified.
pub fn import(file: &[u8], fetched_at: u64) -> Result<Vec<Document>, ImportError> {
    if SnpEndorsements::is_object(file) {
        return snp(&SnpEndorsements::parse(file)?, fetched_at);
    }
    dcap(&Collateral::parse(file)?, fetched_at)
}

/// Splits the endorsements of an SNP chip. AMD's service gives a VCEK by chip and versions, which
/// stand in its certificate. It gives a VLEK to its provider only, so that one is left out.
fn snp(endorsements: &SnpEndorsements, fetched_at: u64) -> Result<Vec<Document>, ImportError> {
    let SnpEndorsements { endorsement_key, chain, crl } = endorsements;
    let certificate = AmdCertificate::parse("endorsement key", endorsement_key)?;
    let names = &certificate.extensions;
    let line = names.product_name.and_then(|name| name.split('-').next());
    let product = line.and_then(Product::from_name);
    let product = product.ok_or(ImportError::Chip { wanted: "a product name" })?;
    let key = if names.hwid.is_some() { EndorsementKey::Vcek } else { EndorsementKey::Vlek };
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

fn dcap(collateral: &Collateral, fetched_at: u64) -> Result<Vec<Document>, ImportError> {
    let info = TcbInfo::parse(&collateral.tcb_info)?;
    let identity = QeIdentity::parse(&collateral.qe_identity)?;
    let signed = |wanted: &DocumentRequest, json: &str, signature: &[u8]| {
        Document::signed_body(wanted.kind(), json, &hex::encode(signature))
    };
    let set = Evaluation::Standard;
    let tcb = DocumentRequest::Tcb { tee: info.tee.try_into()?, fmspc: info.fmspc, set };
    let tcb_body = signed(&tcb, &collateral.tcb_info, &collateral.tcb_info_signature);
    let qe = DocumentRequest::QeIdentity { tee: identity.tee.try_into()?, set };
    let qe_body = signed(&qe, &collateral.qe_identity, &collateral.qe_identity_signature);
    let ca = issuer(&collateral.pck_crl_issuer_chain)?;
    let pck_crl = DocumentRequest::PckCrl { ca, encoding: Encoding::Der };
    let root_crl = DocumentRequest::RootCrl { encoding: Encoding::Der };
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

/// The CA of Intel's that heads a chain, by its common name.
fn issuer(chain: &str) -> Result<Ca, ImportError> {
    const SUBJECT: &str = "issuer chain of the PCK CRL";
    let chain = pem::decode_chain(SUBJECT, chain.as_bytes())?;
    let first = chain.first().ok_or(ParseError::Missing { subject: SUBJECT })?;
    let name = Certificate::parse(SUBJECT, first)?.common_name;
    if name.contains("Platform CA") {
        Ok(Ca::Platform)
    } else if name.contains("Processor CA") {
        Ok(Ca::Processor)
    } else {
        Err(ImportError::Issuer { got: confide_evidence::foreign_text(name) })
    }
}

//! Files that feed a service which reaches no vendor.

use confide_evidence::{
    ParseError, certificate::Certificate, collateral::Collateral, pem, qe_identity::QeIdentity,
    tcb_info::TcbInfo,
};

use crate::{Document, Wanted, request};
use request::{Ca, Encoding, Set};

/// Why a file cannot be taken in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A part of it is malformed.
    #[error("{0}")]
    Parse(#[from] ParseError),
    /// It is neither kind of endorsements.
    #[error("endorsements: wanted QuoteCollateralV3 or SNP endorsements, got another document")]
    Unknown,
    /// The issuer of the revocation list is not one of Intel's two.
    #[error("issuer of the PCK CRL: wanted a platform or a processor CA, got {got}")]
    Issuer {
        /// Its common name.
        got: String,
    },
    /// The certificate does not say which chip it is for.
    #[error("endorsement key: wanted {wanted}")]
    Chip {
        /// What is missing.
        wanted: &'static str,
    },
}

/// Takes endorsements apart into the documents that the vendors' services would have given: a
/// QuoteCollateralV3, or an SNP chip's key with its chain and list.
///
/// # Errors
/// [`ImportError`]. Signatures are not looked at.
pub fn import(file: &[u8], fetched_at: u64) -> Result<Vec<Document>, ImportError> {
    dcap(&Collateral::parse(file)?, fetched_at)
}

fn dcap(collateral: &Collateral, fetched_at: u64) -> Result<Vec<Document>, ImportError> {
    let info = TcbInfo::parse(&collateral.tcb_info)?;
    let identity = QeIdentity::parse(&collateral.qe_identity)?;
    let signed = |wanted: &Wanted, json: &str, signature: &[u8]| {
        Document::signed_body(wanted.kind(), json, &hex::encode(signature))
    };
    let set = Set::Standard;
    let tcb = Wanted::Tcb { tee: tee(info.tee), fmspc: info.fmspc, set };
    let tcb_body = signed(&tcb, &collateral.tcb_info, &collateral.tcb_info_signature);
    let qe = Wanted::QeIdentity { tee: tee(identity.tee), set };
    let qe_body = signed(&qe, &collateral.qe_identity, &collateral.qe_identity_signature);
    let ca = issuer(&collateral.pck_crl_issuer_chain)?;
    let pck_crl = Wanted::PckCrl { ca, encoding: Encoding::Der };
    let root_crl = Wanted::RootCrl { encoding: Encoding::Der };
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

/// The document's own parser lets only Intel's two through.
fn tee(tee: confide_evidence::quote::Tee) -> request::Tee {
    match tee {
        confide_evidence::quote::Tee::Tdx => request::Tee::Tdx,
        _ => request::Tee::Sgx,
    }
}

/// Which of Intel's CAs heads a chain, by the name that Intel gave it.
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

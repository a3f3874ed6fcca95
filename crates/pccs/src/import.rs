//! Files that feed a service which reaches no vendor.

use confide_evidence::{
    ParseError, certificate::Certificate, collateral::Collateral, pem, qe_identity::QeIdentity,
    tcb_info::TcbInfo,
};

use crate::{Document, Kind, Wanted, edition, request, url_text};
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
    let signed = |name: &str, text: &str, signature: &[u8]| {
        format!("{{\"{name}\":{text},\"signature\":\"{}\"}}", hex::encode(signature)).into_bytes()
    };
    let tee = |tee| match tee {
        confide_evidence::quote::Tee::Sgx => request::Tee::Sgx,
        confide_evidence::quote::Tee::Tdx => request::Tee::Tdx,
    };
    let set = Set::Standard;
    let parts = [
        (
            Wanted::Tcb { tee: tee(info.tee), fmspc: info.fmspc, set },
            Some(collateral.tcb_info_issuer_chain.as_str()),
            signed("tcbInfo", &collateral.tcb_info, &collateral.tcb_info_signature),
        ),
        (
            Wanted::QeIdentity { tee: tee(identity.tee), set },
            Some(collateral.qe_identity_issuer_chain.as_str()),
            signed("enclaveIdentity", &collateral.qe_identity, &collateral.qe_identity_signature),
        ),
        (
            Wanted::PckCrl {
                ca: issuer(&collateral.pck_crl_issuer_chain)?,
                encoding: Encoding::Der,
            },
            Some(collateral.pck_crl_issuer_chain.as_str()),
            collateral.pck_crl.clone(),
        ),
        (Wanted::RootCrl { encoding: Encoding::Der }, None, collateral.root_ca_crl.clone()),
    ];
    let documents =
        parts.into_iter().map(|(wanted, chain, body)| document(&wanted, chain, body, fetched_at));
    Ok(documents.collect::<Result<_, _>>()?)
}

/// One document with its chain in PEM, as a service gave it.
pub(crate) fn document(
    wanted: &Wanted,
    chain: Option<&str>,
    body: Vec<u8>,
    fetched_at: u64,
) -> Result<Document, ParseError> {
    let kind = wanted.kind();
    let field = kind.chain_header().zip(chain);
    let headers = field.map(|(name, chain)| (name.into(), url_text::encode(chain)));
    Ok(Document {
        kind,
        key: wanted.key(),
        dates: edition::dates(kind, &body)?,
        headers: headers.into_iter().collect(),
        body,
        fetched_at,
    })
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
        Err(ImportError::Issuer { got: confide_evidence::foreign_text(name).to_string() })
    }
}

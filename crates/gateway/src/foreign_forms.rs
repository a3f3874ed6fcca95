//! Reports and signatures in the forms of other projects' verifiers, from the evidence and the
//! digests that also make the documents of aci/1. `docs/receipts.md` says what each form shows.
//!
//! The module `foreign_report_data` of `confide_receipt` argues why no quote of one form passes for
//! that of another.

use std::sync::Arc;

use bytes::Bytes;
use confide_channel::DocumentKey;
use confide_encrypted_body::BodyKem;
use confide_evidence::EvidenceKind;
use confide_http::Peer;
use confide_receipt::{
    DstackReport, Nonce, TinfoilDocument, TinfoilPlatform, dstack_report_data, tinfoil_report_data,
};

use crate::{
    certificate_pem::encode_certificate,
    evidence_source::EvidenceSource,
    receipt_book::ReceiptOwner,
    receipt_fault::ReceiptFault,
    receipt_signer::{ReceiptSigner, SigningIdentity},
    report_query::DstackQuery,
};

/// The path of reports in dstack's form.
pub(crate) const DSTACK_REPORT_PATH: &str = "/v1/attestation/report";
/// The beginning of the paths of signatures in dstack's form.
pub(crate) const DSTACK_SIGNATURE_PATHS: &str = "/v1/signature/";
/// The pattern of these paths in logs and metrics.
pub(crate) const DSTACK_SIGNATURE_ROUTE: &str = "/v1/signature/**";
/// The path of documents in Tinfoil's form.
pub(crate) const TINFOIL_PATH: &str = "/.well-known/tinfoil-attestation";

/// The report in dstack's form, which has a place for TDX quotes only.
pub(crate) async fn dstack_report(
    signer: &ReceiptSigner,
    evidence: &EvidenceSource,
    query: DstackQuery,
    peer: Peer,
) -> Result<Bytes, ReceiptFault> {
    let signing = current_identity(signer)?;
    let current = (*signing.dstack_key.address(), signing.tls_key.spki_sha256);
    let (address, spki_sha256) = match query.signing_address {
        None => current,
        Some(address) if address == current.0 => current,
        // Of an earlier key, whose signatures clients may still have.
        Some(address) => {
            let spki_sha256 = signer.book().find_dstack_address(&address);
            (address, spki_sha256.ok_or(ReceiptFault::AddressNotFound)?)
        }
    };
    let spki_sha256 = query.has_tls_key.then_some(&spki_sha256);
    let report_data = dstack_report_data(&address, spki_sha256, &query.nonce);
    let kinds = [EvidenceKind::TdxQuote];
    let evidence = evidence.obtain_of_kinds(&kinds, peer, report_data).await?;
    let report = DstackReport {
        signing_address: &address,
        spki_sha256,
        nonce: &query.nonce,
        quote: &evidence.quote,
        is_simulated: evidence.is_simulated,
    };
    Ok(report.to_json().into())
}

/// The signature in dstack's form over the digests of an answer and its request, for the client to
/// whom the receipt belongs. It is made when it is asked for, so that an answer costs one
/// signature; by the current key, so that no key outlives its keyset.
pub(crate) fn dstack_signature(
    signer: &ReceiptSigner,
    id: &str,
    asker: &ReceiptOwner,
) -> Result<Bytes, ReceiptFault> {
    let age_max = signer.context().limits.receipts.age;
    let exchange = signer.book().find_exchange(id, asker, age_max).into_result()?;
    // The form has no word for an answer that was cut.
    let exchange = exchange.ok_or(ReceiptFault::AnswerCut)?;
    Ok(current_identity(signer)?.dstack_key.sign(&exchange).into())
}

/// The document in Tinfoil's form. `key` is the TLS key, which signs it.
pub(crate) async fn tinfoil_document(
    signing: &SigningIdentity,
    evidence: &EvidenceSource,
    key: &DocumentKey,
    nonce: &Nonce,
    peer: Peer,
) -> Result<Bytes, ReceiptFault> {
    let hpke_key = find_hpke_key(signing).ok_or(ReceiptFault::BodyKeyMissing)?;
    // The key was renewed a moment ago.
    if key.key_identity() != signing.tls_key {
        return Err(ReceiptFault::Unavailable);
    }
    let certificate = key.certificate_der().map_err(|_| ReceiptFault::Unavailable)?;
    let spki_sha256 = &signing.tls_key.spki_sha256;
    let report_data = tinfoil_report_data(spki_sha256, &hpke_key, nonce);
    let kinds = [EvidenceKind::TdxQuote, EvidenceKind::SnpReport];
    let evidence = evidence.obtain_of_kinds(&kinds, peer, report_data).await?;
    let document = TinfoilDocument {
        spki_sha256,
        hpke_key: &hpke_key,
        nonce,
        platform: match evidence.kind {
            Some(EvidenceKind::SnpReport) => TinfoilPlatform::SevSnp,
            _ => TinfoilPlatform::Tdx,
        },
        report: &evidence.quote,
        certificate_pem: &encode_certificate(certificate),
    };
    let signed = document.to_json(|text| key.sign_document(text));
    signed.map(Bytes::from).map_err(|_| ReceiptFault::Unavailable)
}

/// The X25519 key to which clients encrypt bodies, if there is one.
fn find_hpke_key(signing: &SigningIdentity) -> Option<[u8; 32]> {
    let key = signing.body_keys.as_ref()?.find_key(BodyKem::X25519)?;
    key.public_key().as_bytes().try_into().ok()
}

fn current_identity(signer: &ReceiptSigner) -> Result<Arc<SigningIdentity>, ReceiptFault> {
    signer.current().map_err(|_| ReceiptFault::Unavailable)
}

//! The endorsements as one JSON object: the fields of Intel's `sgx_ql_qve_collateral_t` version 3.

use serde::Serialize;

use crate::{FakeError, Tee, pki::Pki, plan::Plan, tcb};

#[derive(Serialize)]
struct Collateral {
    pck_crl: String,
    pck_crl_issuer_chain: String,
    qe_identity: String,
    qe_identity_issuer_chain: String,
    qe_identity_signature: String,
    root_ca_crl: String,
    tcb_info: String,
    tcb_info_issuer_chain: String,
    tcb_info_signature: String,
}

/// Signs TCB info and QE identity and puts them beside chains and CRLs; binary fields are hex.
pub(crate) fn sign(tee: Tee, plan: &Plan, pki: &Pki) -> Result<String, FakeError> {
    let tcb_info = tcb::tcb_info(tee, plan)?;
    let qe_identity = tcb::qe_identity(tee, plan)?;
    let signer_chain = [pki.tcb_signer_pem.as_str(), &pki.root_pem].concat();
    let collateral = Collateral {
        pck_crl: hex::encode(&pki.pck_crl),
        pck_crl_issuer_chain: [pki.platform_ca_pem.as_str(), &pki.root_pem].concat(),
        qe_identity_issuer_chain: signer_chain.clone(),
        qe_identity_signature: hex::encode(pki.tcb_signer.sign_raw(qe_identity.as_bytes())),
        qe_identity,
        root_ca_crl: hex::encode(&pki.root_crl),
        tcb_info_issuer_chain: signer_chain,
        tcb_info_signature: hex::encode(pki.tcb_signer.sign_raw(tcb_info.as_bytes())),
        tcb_info,
    };
    Ok(serde_json::to_string(&collateral)?)
}

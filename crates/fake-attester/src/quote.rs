//! The bytes of a quote, little-endian throughout.
//!
//! v4 and v5 (TDX): Intel TDX DCAP Quoting Library API, appendix A.3. v3 (SGX): Intel SGX ECDSA
//! QuoteLibReference DCAP API, appendix A. Everything that does not depend on the report data is
//! laid out once, when the simulated quoting enclave starts, as the hardware's is.

use confide_evidence::ReportData;
use sha2::{Digest, Sha256};

use crate::{
    keys::{Key, SimulatedKey},
    measurements::{enclave_measurement, trust_domain_measurement},
    options::{FakeAttesterOptions, Tee},
    plan::{Fault, SimulationPlan},
    tcb::{QuotingEnclave, tee_tcb_svn},
    variant::{SimulatedPlatform, TdBody},
};

/// The vendor identifier of Intel's quoting enclave, 939a7233-f79c-4ca9-940a-0db3957f0607.
const QE_VENDOR_ID: [u8; 16] = [
    0x93, 0x9a, 0x72, 0x33, 0xf7, 0x9c, 0x4c, 0xa9, 0x94, 0x0a, 0x0d, 0xb3, 0x95, 0x7f, 0x06, 0x07,
];
/// The header's user data and the QE's authentication data are free text to verifiers.
const USER_DATA: &[u8; 20] = b"SIMULATED by confide";
const QE_AUTHENTICATION_DATA: &[u8; 32] = b"SIMULATED QE authentication data";

const ECDSA_P256: u16 = 2;
const TEE_SGX: u32 = 0;
const TEE_TDX: u32 = 0x81;
const CERTIFICATION_PCK_CHAIN: u16 = 5;
const CERTIFICATION_QE_REPORT: u16 = 6;

const REPORT_DATA_BYTES: usize = 64;

/// The TD attributes: bit 0 is DEBUG, bit 28 SEPT_VE_DISABLE.
const TD_DEBUG: u64 = 1;
const TD_SEPT_VE_DISABLE: u64 = 1 << 28;
/// The features x87, SSE, AVX, AVX-512, PKRU and AMX, which a Sapphire Rapids guest is given.
const TD_XFAM: u64 = 0x0006_02e7;

/// The enclave attributes: INIT, DEBUG, MODE64BIT, PROVISION_KEY.
const SGX_INIT: u64 = 1;
const SGX_DEBUG: u64 = 1 << 1;
const SGX_MODE64: u64 = 1 << 2;
const SGX_PROVISION_KEY: u64 = 1 << 4;
/// The features x87, SSE, AVX and AVX-512.
const SGX_XFRM: u64 = 0xe7;

/// Signs quotes with its attestation key.
pub(crate) struct Quoter {
    attestation_key: Key,
    /// The header and the report with zero report data.
    unsigned: Vec<u8>,
    report_data_at: usize,
    /// The certification data behind the signature.
    certification: Vec<u8>,
}

impl Quoter {
    /// `chain` is the PCK certificate and its issuers, PEM.
    pub(crate) fn new(
        options: &FakeAttesterOptions,
        variant: &SimulatedPlatform,
        plan: &SimulationPlan,
        pck: &Key,
        chain: &str,
    ) -> Self {
        let attestation_key =
            Key::derive(&options.seed, SimulatedKey::AttestationKey(variant.platform));
        let enclave = QuotingEnclave::for_plan(options.tee, plan);
        let debug = options.debug || plan.has_fault(Fault::Debug);
        let mut unsigned = header(options.tee, &enclave, plan);
        let mut after_report_data = Vec::new();
        match (options.tee, variant.td_body) {
            (Tee::Sgx, _) => unsigned.extend(workload_report(debug, plan)),
            (Tee::Tdx | Tee::Snp, _) => unsigned.extend(trust_domain_report(debug, plan)),
            (Tee::TdxV5, body) => {
                if body == TdBody::Td15 {
                    after_report_data = trust_domain_15_fields(plan);
                }
                let report = trust_domain_report(debug, plan);
                unsigned.extend(body_type(body).to_le_bytes());
                unsigned.extend(encode_length(report.len() + after_report_data.len()));
                unsigned.extend(report);
            }
        }
        let report_data_at = unsigned.len() - REPORT_DATA_BYTES;
        unsigned.extend(after_report_data);
        let certification =
            encode_certification_data(options.tee, &attestation_key, &enclave, plan, pck, chain);
        Self { attestation_key, unsigned, report_data_at, certification }
    }

    pub(crate) fn quote(&self, report_data: &ReportData) -> Vec<u8> {
        let mut quote = self.unsigned.clone();
        quote[self.report_data_at..][..REPORT_DATA_BYTES].copy_from_slice(&report_data.0);
        let signature = self.attestation_key.sign_raw(&quote);
        quote.extend(encode_length(signature.len() + self.certification.len()));
        quote.extend(signature);
        quote.extend(&self.certification);
        quote
    }
}

/// The header, 48 bytes. Version 3 holds the SVNs of QE and PCE where version 4 has reserved zeros.
fn header(tee: Tee, enclave: &QuotingEnclave, plan: &SimulationPlan) -> Vec<u8> {
    let (version, tee_type, qe_svn, pce_svn) = match tee {
        Tee::Tdx | Tee::Snp => (4_u16, TEE_TDX, 0, 0),
        Tee::TdxV5 => (5, TEE_TDX, 0, 0),
        Tee::Sgx => (3, TEE_SGX, enclave.isv_svn, plan.level.pce_svn()),
    };
    [
        &version.to_le_bytes()[..],
        &ECDSA_P256.to_le_bytes(),
        &tee_type.to_le_bytes(),
        &qe_svn.to_le_bytes(),
        &pce_svn.to_le_bytes(),
        &QE_VENDOR_ID,
        USER_DATA,
    ]
    .concat()
}

/// The TD report of TDX 1.0, 584 bytes.
fn trust_domain_report(debug: bool, plan: &SimulationPlan) -> Vec<u8> {
    let sept = if plan.has_fault(Fault::SeptVeEnabled) { 0 } else { TD_SEPT_VE_DISABLE };
    let attributes = if debug { sept | TD_DEBUG } else { sept };
    let zero = [0; 48];
    [
        &tee_tcb_svn(plan)[..],
        &trust_domain_measurement("mrseam"),
        &zero,   // MRSIGNERSEAM: zero for a module that Intel signed
        &[0; 8], // SEAMATTRIBUTES
        &attributes.to_le_bytes(),
        &TD_XFAM.to_le_bytes(),
        &trust_domain_measurement("mrtd"),
        &zero, // MRCONFIGID
        &zero, // MROWNER
        &zero, // MROWNERCONFIG
        &trust_domain_measurement("rtmr0"),
        &trust_domain_measurement("rtmr1"),
        &trust_domain_measurement("rtmr2"),
        &trust_domain_measurement("rtmr3"),
        &[0; REPORT_DATA_BYTES],
    ]
    .concat()
}

fn body_type(body: TdBody) -> u16 {
    match body {
        TdBody::Td10 => 2,
        TdBody::Td15 => 3,
    }
}

/// The fields that TDX 1.5 adds behind the report data: TEE_TCB_SVN_2 and MRSERVICETD, 64 bytes.
fn trust_domain_15_fields(plan: &SimulationPlan) -> Vec<u8> {
    let service = if plan.has_fault(Fault::ServiceTdBound) {
        trust_domain_measurement("service td")
    } else {
        [0; 48]
    };
    [&tee_tcb_svn(plan)[..], &service].concat()
}

/// The report of the simulated application enclave.
fn workload_report(debug: bool, plan: &SimulationPlan) -> Vec<u8> {
    let attributes = SGX_INIT | SGX_MODE64 | if debug { SGX_DEBUG } else { 0 };
    enclave_report(&EnclaveReport {
        cpu_svn: plan.level.cpu_svn(),
        attributes,
        mr_enclave: enclave_measurement("mrenclave"),
        mr_signer: enclave_measurement("mrsigner"),
        isv_prod_id: WORKLOAD_PROD_ID,
        isv_svn: WORKLOAD_SVN,
        report_data: [0; REPORT_DATA_BYTES],
    })
}

/// The product number of the simulated application enclave.
pub(crate) const WORKLOAD_PROD_ID: u16 = 1;
/// The security version of the simulated application enclave.
pub(crate) const WORKLOAD_SVN: u16 = 1;

/// The attestation key, the QE report and its signature, the authentication data and the PCK chain.
fn encode_certification_data(
    tee: Tee,
    attestation_key: &Key,
    enclave: &QuotingEnclave,
    plan: &SimulationPlan,
    pck: &Key,
    chain: &str,
) -> Vec<u8> {
    let mut vouched = Sha256::new().chain_update(attestation_key.point());
    if !plan.has_fault(Fault::UnboundAttestationKey) {
        vouched = vouched.chain_update(QE_AUTHENTICATION_DATA);
    }
    let report = enclave_report(&EnclaveReport {
        cpu_svn: plan.level.cpu_svn(),
        attributes: SGX_INIT | SGX_MODE64 | SGX_PROVISION_KEY,
        mr_enclave: enclave_measurement("quoting enclave mrenclave"),
        mr_signer: enclave.mr_signer(),
        isv_prod_id: enclave.isv_prod_id,
        isv_svn: enclave.isv_svn,
        report_data: ReportData::from_digest(vouched.finalize().into()).0,
    });
    // Intel's chain ends with a zero byte that counts as part of it.
    let chain = [chain, "\0"].concat();
    let qe_certification = [
        &report[..],
        &pck.sign_raw(&report),
        &encode_short_length(QE_AUTHENTICATION_DATA.len()),
        QE_AUTHENTICATION_DATA,
        &CERTIFICATION_PCK_CHAIN.to_le_bytes(),
        &encode_length(chain.len()),
        chain.as_bytes(),
    ]
    .concat();
    match tee {
        Tee::Sgx => [attestation_key.point(), &qe_certification].concat(),
        Tee::Tdx | Tee::TdxV5 | Tee::Snp => [
            attestation_key.point(),
            &CERTIFICATION_QE_REPORT.to_le_bytes(),
            &encode_length(qe_certification.len()),
            &qe_certification,
        ]
        .concat(),
    }
}

struct EnclaveReport {
    cpu_svn: [u8; 16],
    attributes: u64,
    mr_enclave: [u8; 32],
    mr_signer: [u8; 32],
    isv_prod_id: u16,
    isv_svn: u16,
    report_data: [u8; REPORT_DATA_BYTES],
}

/// An enclave report, 384 bytes (`sgx_report_body_t`).
fn enclave_report(report: &EnclaveReport) -> Vec<u8> {
    [
        &report.cpu_svn[..],
        &[0; 4],  // MISCSELECT
        &[0; 28], // reserved
        &report.attributes.to_le_bytes(),
        &SGX_XFRM.to_le_bytes(),
        &report.mr_enclave,
        &[0; 32], // reserved
        &report.mr_signer,
        &[0; 96], // reserved
        &report.isv_prod_id.to_le_bytes(),
        &report.isv_svn.to_le_bytes(),
        &[0; 60], // reserved
        &report.report_data,
    ]
    .concat()
}

/// A length in little-endian. All are those of a few certificates, far below 4 GiB.
fn encode_length(bytes: usize) -> [u8; 4] {
    (bytes as u32).to_le_bytes()
}

fn encode_short_length(bytes: usize) -> [u8; 2] {
    (bytes as u16).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_the_length_of_its_specification() {
        let plan = SimulationPlan::new(1_780_000_000, None);
        let enclave = QuotingEnclave::for_tee(Tee::Tdx);
        assert_eq!(header(Tee::Tdx, &enclave, &plan).len(), 48);
        assert_eq!(header(Tee::Sgx, &enclave, &plan).len(), 48);
        assert_eq!(trust_domain_report(false, &plan).len(), 584);
        assert_eq!(workload_report(false, &plan).len(), 384);
    }
}

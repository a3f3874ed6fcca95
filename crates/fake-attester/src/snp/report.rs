//! The 1,184 bytes of an attestation report, little-endian.
//!
//! AMD SEV Secure Nested Paging Firmware ABI Specification, table "ATTESTATION_REPORT Structure".

use confide_evidence::ReportData;

use crate::snp::{
    key::ChipKey,
    product::{Product, SnpSigner, SnpTcb},
};
use crate::{
    measurements::{enclave_measurement, report_identifier, trust_domain_measurement},
    variant::ReportVersion,
};

const REPORT_BYTES: usize = 1184;
const SIGNED_BYTES: usize = 0x2a0;
const REPORT_DATA_AT: usize = 0x50;

/// The guest policy: bit 17 is always one, bit 16 allows SMT, bit 18 a migration agent, bit 19
/// debugging.
pub(crate) const POLICY: u64 = 1 << 17 | 1 << 16;
const POLICY_DEBUG: u64 = 1 << 19;
const POLICY_MIGRATION_AGENT: u64 = 1 << 18;
/// The least privileged VMPL: the highest number is the lowest privilege.
const LEAST_PRIVILEGE: u32 = 3;
/// The number of ECDSA P-384 with SHA-384.
const SIGNATURE_ALGORITHM: u32 = 1;
/// The platform info of a machine on which SMT is on.
const PLATFORM_INFO: u64 = 1;

/// Signs reports with the chip's or the loaded key.
pub(crate) struct Reporter {
    key: ChipKey,
    unsigned: [u8; SIGNED_BYTES],
}

/// The fields of a report that depend on the machine.
pub(crate) struct ReportFields<'a> {
    pub(crate) version: ReportVersion,
    pub(crate) product: Product,
    pub(crate) signer: SnpSigner,
    pub(crate) chip_id: &'a [u8; 64],
    pub(crate) tcb: SnpTcb,
    pub(crate) debug: bool,
    pub(crate) low_privilege: bool,
    pub(crate) migration_agent: bool,
}

impl Reporter {
    pub(crate) fn new(key: ChipKey, fields: &ReportFields<'_>) -> Self {
        Self { key, unsigned: unsigned_report(fields) }
    }

    pub(crate) fn report(&self, report_data: &ReportData) -> Vec<u8> {
        let mut report = self.unsigned.to_vec();
        report[REPORT_DATA_AT..][..64].copy_from_slice(&report_data.0);
        let signature = self.key.sign(&report);
        report.extend(signature);
        report.resize(REPORT_BYTES, 0);
        report
    }
}

fn unsigned_report(fields: &ReportFields<'_>) -> [u8; SIGNED_BYTES] {
    let mut out = [0; SIGNED_BYTES];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    let tcb = fields.tcb.to_bytes(fields.product);
    let mut policy = POLICY;
    if fields.debug {
        policy |= POLICY_DEBUG;
    }
    if fields.migration_agent {
        policy |= POLICY_MIGRATION_AGENT;
    }
    let privilege = if fields.low_privilege { LEAST_PRIVILEGE } else { 0 };
    let signer = match fields.signer {
        SnpSigner::Vcek => 0_u32,
        SnpSigner::Vlek => 1 << 2,
    };
    put(0x00, &fields.version.number().to_le_bytes());
    put(0x08, &policy.to_le_bytes());
    put(0x10, &report_identifier("family id"));
    put(0x20, &report_identifier("image id"));
    put(0x30, &privilege.to_le_bytes());
    put(0x34, &SIGNATURE_ALGORITHM.to_le_bytes());
    put(0x38, &tcb);
    put(0x40, &PLATFORM_INFO.to_le_bytes());
    put(0x48, &signer.to_le_bytes());
    put(0x90, &trust_domain_measurement("snp measurement"));
    put(0x140, &enclave_measurement("report id"));
    put(0x160, &[0xff; 32]); // REPORT_ID_MA: no migration agent
    put(0x180, &tcb);
    if fields.version != ReportVersion::V2 {
        put(0x188, &fields.product.cpuid());
    }
    // A chip whose identifier is masked would sign with a loaded key only; here it is shown.
    put(0x1a0, fields.chip_id);
    put(0x1e0, &tcb);
    put(0x1e8, &FIRMWARE); // running
    put(0x1ec, &FIRMWARE); // committed
    put(0x1f0, &tcb);
    out
}

/// The version of the firmware, 1.55: build, minor, major and a reserved byte.
const FIRMWARE: [u8; 4] = [1, 55, 1, 0];

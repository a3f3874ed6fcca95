//! The claim about an Intel SGX or TDX quote.

use alloc::{string::String, vec::Vec};

use crate::{
    encoding::{DIGEST_BYTES, Reader, Writer},
    error::StatementError,
};

/// The largest number of advisories that apply to a platform at once: Intel's lists have had a dozen.
pub const ADVISORIES_MAX: usize = 64;

/// The longest name of an advisory: `INTEL-SA-01234` is 14 bytes.
pub const ADVISORY_BYTES_MAX: usize = 64;

/// The longest TCB status: `OutOfDateConfigurationNeeded` is 28 bytes.
pub const TCB_STATUS_BYTES_MAX: usize = 64;

/// Intel's word for a platform that misses nothing.
const UP_TO_DATE: &str = "UpToDate";

/// Which advisory names and TCB statuses are taken: printable ASCII.
const PRINTABLE: core::ops::RangeInclusive<u8> = 0x21..=0x7e;

/// The project's verifier read a quote and its endorsements and came to this verdict.
///
/// Evidence that is refused whatever the policy has no statement. Nothing here names the platform:
/// no PPID, FMSPC, PCK certificate or serial number, no security versions, not the hash of the TDX
/// module, no key and nothing of the quoting enclave. What remains narrows it down where it is
/// rare: advisories, and instants to the second, which the prover may cut at both ends.
///
/// There is no clock inside: the appraisal is the same at every instant from `valid_from` to
/// `valid_until`. The checker holds these against its own time, and `root_sha256` against the root
/// that it trusts, for a prover may bring a root of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(deny_unknown_fields))]
pub struct Dcap {
    /// The verifier's verdict.
    pub verdict: Verdict,
    /// SHA-256 of the DER of the root certificate under which everything was verified.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub root_sha256: [u8; DIGEST_BYTES],
    /// The 64 bytes that the attested program chose.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub report_data: [u8; 64],
    /// Hashes of the attested program.
    pub measurements: Measurements,
    /// Whether the host can read the memory of the attested program.
    pub debug: bool,
    /// Intel's status of platform, TDX module and quoting enclave together, in Intel's word.
    pub tcb_status: String,
    /// Advisories that apply, ascending, each once. Rare combinations narrow down the platform.
    pub advisories: Vec<String>,
    /// Number of the TCB recovery that the endorsements belong to; the lower of TCB info's and QE
    /// identity's.
    pub tcb_evaluation_data_number: u32,
    /// Unix seconds at which the root's revocation list was issued.
    pub root_crl_issued: u64,
    /// Unix seconds at which the revocation list of the platform or processor CA was issued.
    pub pck_crl_issued: u64,
    /// Unix seconds at which the last certificate, list or document begins, or later.
    pub valid_from: u64,
    /// Unix seconds at which the first certificate, list or document ends, or earlier.
    pub valid_until: u64,
}

/// The verdict of the project's verifier on a quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "lowercase"))]
pub enum Verdict {
    /// The verifier's default policy says yes, but for the root: the platform is `UpToDate`, no
    /// advisory applies, and the host cannot read the memory.
    Accepted,
    /// Every signature holds and nothing is revoked, but only a policy that names the status, the
    /// advisories or debug says yes.
    Conditional,
}

/// Hashes of the attested program, by the kind of TEE.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(tag = "tee", rename_all = "lowercase"))]
pub enum Measurements {
    /// Measurements of an SGX enclave.
    Sgx(SgxMeasurements),
    /// Measurements of a TDX trust domain.
    Tdx(TdxMeasurements),
}

/// Identity of an SGX enclave.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(deny_unknown_fields))]
pub struct SgxMeasurements {
    /// Hash of the enclave.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub mrenclave: [u8; 32],
    /// Hash of the signer's public key.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub mrsigner: [u8; 32],
    /// The signer's number for the product.
    pub isv_prod_id: u16,
    /// The enclave's security version.
    pub isv_svn: u16,
    /// Configuration identifier given at launch.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub config_id: [u8; 64],
}

/// Identity of a TDX trust domain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(deny_unknown_fields))]
pub struct TdxMeasurements {
    /// Hash of the initial memory: the firmware.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub mrtd: [u8; 48],
    /// Run-time measurement 0.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub rtmr0: [u8; 48],
    /// Run-time measurement 1.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub rtmr1: [u8; 48],
    /// Run-time measurement 2.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub rtmr2: [u8; 48],
    /// Run-time measurement 3.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub rtmr3: [u8; 48],
    /// Identifier of the configuration that is not the owner's own, given at launch.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub mrconfigid: [u8; 48],
    /// Identifier of the owner, given at launch.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub mrowner: [u8; 48],
    /// Identifier of the owner's own configuration, given at launch.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub mrownerconfig: [u8; 48],
}

impl Dcap {
    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u8(match self.verdict {
            Verdict::Accepted => 0,
            Verdict::Conditional => 1,
        });
        writer.field(&self.root_sha256);
        writer.field(&self.report_data);
        self.measurements.write(writer);
        writer.bool(self.debug);
        writer.field(self.tcb_status.as_bytes());
        let mut advisories = Writer::default();
        for advisory in &self.advisories {
            advisories.field(advisory.as_bytes());
        }
        writer.field(&advisories.into_bytes());
        writer.u32(self.tcb_evaluation_data_number);
        writer.u64(self.root_crl_issued);
        writer.u64(self.pck_crl_issued);
        writer.u64(self.valid_from);
        writer.u64(self.valid_until);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, StatementError> {
        let verdict = match reader.u8("verdict")? {
            0 => Verdict::Accepted,
            1 => Verdict::Conditional,
            _ => return Err(StatementError::Value { subject: "verdict", wanted: "0 or 1" }),
        };
        Ok(Self {
            verdict,
            root_sha256: reader.array("root_sha256")?,
            report_data: reader.array("report_data")?,
            measurements: Measurements::read(reader)?,
            debug: reader.bool("debug")?,
            tcb_status: reader.text("tcb_status", TCB_STATUS_BYTES_MAX)?,
            advisories: read_advisories(reader)?,
            tcb_evaluation_data_number: reader.u32("tcb_evaluation_data_number")?,
            root_crl_issued: reader.u64("root_crl_issued")?,
            pck_crl_issued: reader.u64("pck_crl_issued")?,
            valid_from: reader.u64("valid_from")?,
            valid_until: reader.u64("valid_until")?,
        })
    }

    pub(crate) fn check(&self) -> Result<(), StatementError> {
        check_name("tcb_status", &self.tcb_status, TCB_STATUS_BYTES_MAX)?;
        if self.advisories.len() > ADVISORIES_MAX {
            let (limit, got) = (ADVISORIES_MAX, self.advisories.len());
            return Err(StatementError::TooLong { subject: "advisories", limit, got });
        }
        for advisory in &self.advisories {
            check_name("advisories", advisory, ADVISORY_BYTES_MAX)?;
        }
        if !self.advisories.is_sorted_by(|a, b| a < b) {
            let wanted = "ascending order, each once";
            return Err(StatementError::Value { subject: "advisories", wanted });
        }
        let is_good = self.tcb_status == UP_TO_DATE && self.advisories.is_empty() && !self.debug;
        if is_good != (self.verdict == Verdict::Accepted) {
            let wanted = "accepted where the status is UpToDate, without advisories and debug";
            return Err(StatementError::Value { subject: "verdict", wanted });
        }
        if self.valid_from > self.valid_until {
            let wanted = "not before valid_from";
            return Err(StatementError::Value { subject: "valid_until", wanted });
        }
        Ok(())
    }
}

impl Measurements {
    fn write(&self, writer: &mut Writer) {
        match self {
            Measurements::Sgx(enclave) => {
                writer.u8(0);
                writer.field(&enclave.mrenclave);
                writer.field(&enclave.mrsigner);
                writer.u16(enclave.isv_prod_id);
                writer.u16(enclave.isv_svn);
                writer.field(&enclave.config_id);
            }
            Measurements::Tdx(domain) => {
                writer.u8(1);
                for hash in domain.hashes() {
                    writer.field(hash);
                }
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, StatementError> {
        match reader.u8("tee")? {
            0 => Ok(Measurements::Sgx(SgxMeasurements {
                mrenclave: reader.array("mrenclave")?,
                mrsigner: reader.array("mrsigner")?,
                isv_prod_id: reader.u16("isv_prod_id")?,
                isv_svn: reader.u16("isv_svn")?,
                config_id: reader.array("config_id")?,
            })),
            1 => Ok(Measurements::Tdx(TdxMeasurements {
                mrtd: reader.array("mrtd")?,
                rtmr0: reader.array("rtmr0")?,
                rtmr1: reader.array("rtmr1")?,
                rtmr2: reader.array("rtmr2")?,
                rtmr3: reader.array("rtmr3")?,
                mrconfigid: reader.array("mrconfigid")?,
                mrowner: reader.array("mrowner")?,
                mrownerconfig: reader.array("mrownerconfig")?,
            })),
            _ => Err(StatementError::Value { subject: "tee", wanted: "0 or 1" }),
        }
    }
}

impl TdxMeasurements {
    fn hashes(&self) -> [&[u8; 48]; 8] {
        [
            &self.mrtd,
            &self.rtmr0,
            &self.rtmr1,
            &self.rtmr2,
            &self.rtmr3,
            &self.mrconfigid,
            &self.mrowner,
            &self.mrownerconfig,
        ]
    }
}

fn read_advisories(reader: &mut Reader<'_>) -> Result<Vec<String>, StatementError> {
    let mut list = Reader::new(reader.field("advisories")?);
    let mut advisories = Vec::new();
    while !list.is_at_end() {
        if advisories.len() == ADVISORIES_MAX {
            let (limit, got) = (ADVISORIES_MAX, ADVISORIES_MAX + 1);
            return Err(StatementError::TooLong { subject: "advisories", limit, got });
        }
        advisories.push(list.text("advisories", ADVISORY_BYTES_MAX)?);
    }
    Ok(advisories)
}

/// Checks a name of one to `limit` printable characters.
fn check_name(subject: &'static str, text: &str, limit: usize) -> Result<(), StatementError> {
    if text.len() > limit {
        return Err(StatementError::TooLong { subject, limit, got: text.len() });
    }
    if text.is_empty() || !text.bytes().all(|byte| PRINTABLE.contains(&byte)) {
        return Err(StatementError::Value { subject, wanted: "printable ASCII without spaces" });
    }
    Ok(())
}

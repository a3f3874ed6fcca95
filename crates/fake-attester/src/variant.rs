//! What a simulated machine may be beyond its TEE.

use serde::{Deserialize, Serialize};

use crate::snp::product::{Product, SnpSigner};

/// Which of the simulated machines, and what it is made of. The default is the first of them, in
/// the shape that is most common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Variant {
    /// Number of the machine: each has keys, certificates and identifiers of its own.
    pub platform: u32,
    /// Who certified the PCK (SGX and TDX).
    pub pck_ca: PckCa,
    /// Body of a TDX quote of version 5.
    pub td_body: TdBody,
    /// Line of the processor (SNP).
    pub product: Product,
    /// Which key signs reports (SNP).
    pub signer: SnpSigner,
    /// Version of the report (SNP).
    pub report_version: ReportVersion,
}

/// The two CAs that certify PCKs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PckCa {
    /// Machines with several packages.
    #[default]
    Platform,
    /// Machines with one package.
    Processor,
}

impl PckCa {
    /// As the services name it in `ca=`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::Processor => "processor",
        }
    }
}

/// Body types of version 5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TdBody {
    /// Type 2, 584 bytes.
    #[serde(rename = "1.0")]
    Td10,
    /// Type 3, 648 bytes: with the second TEE_TCB_SVN and the service TD.
    #[default]
    #[serde(rename = "1.5")]
    Td15,
}

/// Versions of an SNP report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportVersion {
    /// Without the processor's family.
    V2,
    /// With family, model and stepping.
    #[default]
    V3,
    /// With mitigation vectors.
    V5,
}

impl ReportVersion {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::V2 => 2,
            Self::V3 => 3,
            Self::V5 => 5,
        }
    }
}

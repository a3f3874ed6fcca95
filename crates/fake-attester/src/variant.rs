//! The properties of a simulated machine beyond its TEE.

use serde::{Deserialize, Serialize};

use crate::snp::product::{Product, SnpSigner};

/// The number and the make of a simulated machine. The default is the first machine, in the most
/// common form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimulatedPlatform {
    /// The number of the machine: each has keys, certificates and identifiers of its own.
    pub platform: u32,
    /// The CA that certified the PCK (SGX and TDX).
    pub pck_ca: PckCa,
    /// The body of a TDX quote of version 5.
    pub td_body: TdBody,
    /// The product line of the processor (SNP).
    pub product: Product,
    /// The key that signs reports (SNP).
    pub signer: SnpSigner,
    /// The version of the report (SNP).
    pub report_version: ReportVersion,
}

/// The two CAs that certify PCKs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PckCa {
    /// The CA of machines with several packages.
    #[default]
    Platform,
    /// The CA of machines with one package.
    Processor,
}

impl PckCa {
    /// The value of `ca=` in requests to the services.
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
    /// The body of type 2, 584 bytes.
    #[serde(rename = "1.0")]
    Td10,
    /// The body of type 3, 648 bytes: with the second TEE_TCB_SVN and the service TD.
    #[default]
    #[serde(rename = "1.5")]
    Td15,
}

/// Versions of an SNP report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportVersion {
    /// Version 2, which does not hold the processor's family.
    V2,
    /// Version 3, which holds family, model and stepping.
    #[default]
    V3,
    /// Version 5, which holds mitigation vectors.
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

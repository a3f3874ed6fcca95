//! Evidence of an NVIDIA GPU: an SPDM measurement report and the certificate chain of its signer.
//!
//! The report is the driver's: a GET_MEASUREMENTS request and the MEASUREMENTS response to it
//! (DMTF DSP0274 version 1.1, sections 10.11.1 and 10.11.2), signed over both. A channel carries
//! it as [`GpuEvidence`], together with the endorsements that the attester staples.

mod certificate;
mod container;
mod ocsp;
mod opaque;
mod report;
mod rim;
mod xml;

pub use certificate::DeviceCertificate;
pub use container::{
    CHAIN_BYTES_MAX, GPU_EVIDENCE_BYTES_MAX, GpuEvidence, GpuEvidenceError, OCSP_BYTES_MAX,
    OCSP_MAX, RIM_BYTES_MAX, RIMS_MAX, decode_chain,
};
pub use ocsp::{CertificateId, CertificateStatus, HashAlgorithm, OcspResponse, SingleResponse};
pub use opaque::{FeatureFlag, OpaqueData, OpaqueField};
pub(crate) use report::is_report;
pub use report::{GpuReport, Measurement, NONCE_BYTES, report_bytes};
pub use rim::{ReferenceMeasurement, Rim, RimComponent, RimSignature};

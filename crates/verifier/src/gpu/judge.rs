//! The checks of a GPU's evidence, and the inputs that all of them share.

use rustls_pki_types::UnixTime;

use crate::{checks::steps, crypto::Crypto, policy::Policy};

steps! {
    /// The checks of a GPU's evidence.
    GpuStep:
    Format = "gpu_report_format",
    Root = "gpu_root",
    Chain = "gpu_chain",
    Revocation = "gpu_revocation",
    Firmware = "gpu_firmware_id",
    Nonce = "gpu_nonce",
    Signature = "gpu_signature",
    Mode = "gpu_confidential_computing",
    Driver = "gpu_driver",
    Vbios = "gpu_vbios",
    DriverManifest = "gpu_driver_rim",
    VbiosManifest = "gpu_vbios_rim",
    ManifestRevocation = "gpu_rim_revocation",
    Measurements = "gpu_measurements",
    Debug = "gpu_debug",
    Required = "gpu_required",
}

/// The inputs that all checks of one appraisal share.
pub(super) struct Judge<'a> {
    pub(super) policy: &'a Policy,
    pub(super) now: UnixTime,
    pub(super) crypto: &'a dyn Crypto,
    pub(super) answers: &'a [&'a [u8]],
}

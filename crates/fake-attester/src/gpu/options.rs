//! The options of a simulated GPU, and its faults.

/// Everything that a simulated GPU is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuOptions {
    /// The seed of all keys.
    pub seed: [u8; 32],
    /// The time at which certificates and answers are issued, in Unix seconds.
    pub issued_at: u64,
    /// The feature flag: 0 SPT, 1 MPT, 2 PPCIE. `None` as on a Hopper, whose reports have no flag.
    pub feature_flag: Option<u8>,
    /// The version of the driver.
    pub driver: String,
    /// The eight bytes of the VBIOS's version.
    pub vbios: [u8; 8],
    /// Whether both reference manifests are stapled.
    pub rims: bool,
    /// Whether revocation answers for all certificates are stapled.
    pub ocsp: bool,
    /// One fault, for tests of verifiers.
    pub fault: Option<GpuFault>,
}

/// One fault of a simulated GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuFault {
    /// The report holds another nonce than the one that was given.
    Nonce,
    /// The report is signed by another key.
    ReportSignature,
    /// The report names another firmware than the certificate.
    FirmwareId,
    /// The certificate names no firmware.
    NoFirmwareId,
    /// One measurement is not that of the manifests, as with debugging on.
    Measurement,
    /// The attestation key's certificate says that it is a CA.
    LeafIsCa,
    /// The device's certificate says that it is not a CA.
    DeviceIsNoCa,
    /// The attestation key's certificate has expired.
    LeafEnded,
    /// The device's certificate is not the one that signed the leaf's.
    OtherDevice,
    /// A certificate is left out of the chain.
    ChainGap,
    /// A value of a manifest was changed after it was signed.
    ManifestChanged,
    /// The manifest is signed by a key that its certificates do not name.
    ManifestSignature,
    /// The manifests are for another driver.
    ManifestVersion,
    /// Both manifests have a value for the same measurement.
    ManifestOverlap,
    /// Only the driver's manifest is stapled.
    OneManifest,
    /// The device is revoked.
    DeviceRevoked,
    /// The signer of the manifests is revoked.
    ManifestRevoked,
    /// The answers have expired.
    OcspEnded,
    /// The answers are signed by another key than the responder's.
    OcspSignature,
    /// The responder's certificate does not say that it may sign answers.
    OcspResponder,
}

impl GpuOptions {
    /// A GPU in single-passthrough mode with all endorsements stapled, and without a fault.
    pub fn new(seed: [u8; 32], issued_at: u64) -> Self {
        Self {
            seed,
            issued_at,
            feature_flag: Some(0),
            driver: "590.48.01".into(),
            vbios: [0, 0x51, 0, 0x97, 0x99, 0, 0, 0],
            rims: true,
            ocsp: true,
            fault: None,
        }
    }
}

//! What a simulated GPU is, and what is wrong with it.

/// What is simulated, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuOptions {
    /// Where all keys come from.
    pub seed: [u8; 32],
    /// When certificates and answers are issued, in unix seconds.
    pub issued_at: u64,
    /// `None`: as a Hopper, whose reports have no feature flag. 0 SPT, 1 MPT, 2 PPCIE.
    pub feature_flag: Option<u8>,
    /// Version of the driver.
    pub driver: String,
    /// The eight bytes of the VBIOS's version.
    pub vbios: [u8; 8],
    /// Whether both reference manifests are stapled.
    pub rims: bool,
    /// Whether revocation answers for all certificates are stapled.
    pub ocsp: bool,
    /// One thing wrong, for tests of verifiers.
    pub fault: Option<GpuFault>,
}

/// One thing wrong with a simulated GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuFault {
    /// The report holds another nonce than was asked for.
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
    /// The device's certificate says that it is no CA.
    DeviceIsNoCa,
    /// The attestation key's certificate has ended.
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
    /// Both manifests speak of the same measurement.
    ManifestOverlap,
    /// Only the driver's manifest is stapled.
    OneManifest,
    /// The device is revoked.
    DeviceRevoked,
    /// The signer of the manifests is revoked.
    ManifestRevoked,
    /// The answers have ended.
    OcspEnded,
    /// The answers are signed by another key than the responder's.
    OcspSignature,
    /// The responder's certificate does not say that it may sign answers.
    OcspResponder,
}

impl GpuOptions {
    /// A GPU in single-passthrough mode with all endorsements stapled, and nothing wrong.
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

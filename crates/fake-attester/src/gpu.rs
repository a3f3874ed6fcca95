//! A *simulated* GPU: SPDM reports, certificates, reference manifests and revocation answers in
//! NVIDIA's formats, under roots of its own.
//!
//! The five certificates of the device and the four of the manifests have the shapes, key usages
//! and extensions of a Hopper's; every name says `SIMULATED`. Keys are a function of the seed,
//! signatures are those of RFC 6979.

mod certificates;
mod keys;
mod manifest;
mod ocsp;
mod report;

use confide_evidence::{Attest, AttestError, ReportData, gpu::GpuEvidence};

use self::{certificates::Chains, keys::GpuKey};
use crate::error::FakeError;

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

/// Makes *simulated* evidence of a GPU.
pub struct FakeGpu {
    options: GpuOptions,
    chains: Chains,
    rims: Vec<Vec<u8>>,
    ocsp: Vec<Vec<u8>>,
}

impl FakeGpu {
    /// A GPU whose evidence a verifier accepts that trusts both of [`Self::root_ders`].
    pub fn new(options: GpuOptions) -> Result<Self, FakeError> {
        let chains = Chains::issue(&options)?;
        let rims = match options.rims {
            true => manifest::both(&options, &chains),
            false => Vec::new(),
        };
        let ocsp = match options.ocsp {
            true => ocsp::answers(&options, &chains),
            false => Vec::new(),
        };
        Ok(Self { options, chains, rims, ocsp })
    }

    /// The report over `nonce`, as a driver gives it.
    pub fn report(&self, nonce: &[u8; 32]) -> Vec<u8> {
        report::sign(&self.options, &self.chains, nonce)
    }

    /// The certificates in PEM, attestation key first, as a driver gives them.
    pub fn chain_pem(&self) -> &str {
        &self.chains.device_pem
    }

    /// Reference manifests: the driver's, then the VBIOS's.
    pub fn rims(&self) -> &[Vec<u8>] {
        &self.rims
    }

    /// Revocation answers, one for each certificate.
    pub fn ocsp(&self) -> &[Vec<u8>] {
        &self.ocsp
    }

    /// The container of [`confide_evidence::gpu::GpuEvidence`] over `nonce`.
    pub fn evidence(&self, nonce: &[u8; 32]) -> Vec<u8> {
        let report = self.report(nonce);
        let evidence = GpuEvidence {
            report: &report,
            chain: self.chain_pem().as_bytes(),
            rims: self.rims.iter().map(Vec::as_slice).collect(),
            ocsp: self.ocsp.iter().map(Vec::as_slice).collect(),
        };
        evidence.encode()
    }

    /// The roots that a verifier has to trust: of devices, and of manifests.
    pub fn root_ders(&self) -> [&[u8]; 2] {
        [&self.chains.device_root, &self.chains.manifest_root]
    }
}

/// A CPU's attester with a *simulated* GPU beside it.
pub struct WithFakeGpu<A> {
    attester: A,
    gpu: FakeGpu,
}

impl<A> WithFakeGpu<A> {
    /// Answers [`Attest::gpu`] by `gpu` and everything else by `attester`.
    pub fn new(attester: A, gpu: FakeGpu) -> Self {
        Self { attester, gpu }
    }
}

impl<A: Attest> Attest for WithFakeGpu<A> {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        self.attester.attest(report_data)
    }

    fn collateral(&self) -> Option<Vec<u8>> {
        self.attester.collateral()
    }

    fn gpu(&self, nonce: &[u8; 32]) -> Result<Option<Vec<u8>>, AttestError> {
        Ok(Some(self.gpu.evidence(nonce)))
    }

    fn simulated(&self) -> bool {
        true
    }
}

/// The SHA-384 that stands for a measurement: nothing was measured.
fn simulated_digest(label: &str) -> [u8; 48] {
    use sha2::{Digest, Sha384};
    Sha384::new()
        .chain_update(b"confide SIMULATED GPU measurement v1\0")
        .chain_update(label.as_bytes())
        .finalize()
        .into()
}

/// Which key signs what.
fn key(options: &GpuOptions, label: &str) -> GpuKey {
    GpuKey::derive(&options.seed, label)
}

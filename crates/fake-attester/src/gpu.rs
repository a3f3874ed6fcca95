//! A *simulated* GPU: SPDM reports, certificates, reference manifests and revocation answers in
//! NVIDIA's formats, under roots of its own.
//!
//! The five certificates of the device and the four of the manifests have the shapes, key usages
//! and extensions of a Hopper's; every name says `SIMULATED`. Keys are a function of the seed,
//! signatures are those of RFC 6979.

mod certificates;
mod keys;
mod manifest;
mod measurement;
mod ocsp;
mod options;
mod report;

use confide_evidence::{Attest, AttestError, ReportData, gpu::GpuEvidence};

use self::certificates::Chains;
pub use self::options::{GpuFault, GpuOptions};
use crate::error::FakeError;

/// Makes *simulated* evidence of a GPU.
pub struct FakeGpu {
    options: GpuOptions,
    chains: Chains,
    rims: Vec<Vec<u8>>,
    ocsp: Vec<Vec<u8>>,
}

impl FakeGpu {
    /// A GPU whose evidence is accepted by a verifier that trusts both of [`Self::root_ders`].
    ///
    /// # Errors
    /// [`FakeError`] if a certificate cannot be encoded.
    pub fn new(options: GpuOptions) -> Result<Self, FakeError> {
        let chains = Chains::issue(&options)?;
        let rims =
            if options.rims { manifest::issue_manifests(&options, &chains) } else { Vec::new() };
        let ocsp = if options.ocsp { ocsp::issue_responses(&options, &chains) } else { Vec::new() };
        Ok(Self { options, chains, rims, ocsp })
    }

    /// The report over `nonce`, as a driver gives it.
    pub fn report(&self, nonce: &[u8; 32]) -> Vec<u8> {
        report::sign_report(&self.options, &self.chains, nonce)
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

    /// The roots that a verifier has to trust: that of devices, and that of manifests.
    pub fn root_ders(&self) -> [&[u8]; 2] {
        [&self.chains.device_root, &self.chains.manifest_root]
    }
}

/// The attester of a CPU and of a *simulated* GPU next to it.
pub struct FakeAttesterWithGpu<A> {
    attester: A,
    gpu: FakeGpu,
}

impl<A> FakeAttesterWithGpu<A> {
    /// Answers [`Attest::gpu_evidence`] by `gpu` and everything else by `attester`.
    pub fn new(attester: A, gpu: FakeGpu) -> Self {
        Self { attester, gpu }
    }
}

impl<A: Attest> Attest for FakeAttesterWithGpu<A> {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        self.attester.attest(report_data)
    }

    fn collateral(&self) -> Option<Vec<u8>> {
        self.attester.collateral()
    }

    fn gpu_evidence(&self, nonce: &[u8; 32]) -> Result<Option<Vec<u8>>, AttestError> {
        Ok(Some(self.gpu.evidence(nonce)))
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

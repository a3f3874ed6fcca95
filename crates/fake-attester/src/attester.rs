//! The simulated attester: a quoting enclave and the endorsements for what it signs.

use std::{fs, path::Path};

use confide_evidence::{Attest, AttestError, ReportData};
use serde::Serialize;

use crate::{
    device,
    edition::{COLLATERAL_DAYS, EndorsementEdition},
    endorsements::FakeEndorsements,
    error::FakeError,
    gpu::{FakeGpu, GpuOptions},
    machine::SimulatedMachine,
    options::{FakeAttesterOptions, Mode, Tee},
    plan::{Fault, SimulationPlan},
    policy::{self, ConfigurationLines},
    state,
    time::DAY,
    variant::SimulatedPlatform,
};

/// Makes *simulated* evidence; see the crate's documentation for what that is worth.
pub struct FakeAttester {
    options: FakeAttesterOptions,
    variant: SimulatedPlatform,
    machine: SimulatedMachine,
    vendors: FakeEndorsements,
    collateral: String,
    snp: Option<SnpFiles>,
    gpu: Option<FakeGpu>,
}

/// The endorsements of an SNP report, one file each.
struct SnpFiles {
    endorsement_key: Vec<u8>,
    chain: String,
    crl: Vec<u8>,
}

impl FakeAttester {
    /// An attester whose evidence is accepted by a verifier that trusts [`Self::root_der`].
    ///
    /// # Errors
    /// [`FakeError`] if `options.issued_at` lies outside of the certificates' lifetime, or an encoder fails.
    pub fn new(options: FakeAttesterOptions) -> Result<Self, FakeError> {
        Self::with_variant(options, SimulatedPlatform::default(), None)
    }

    /// The same attester with one fault, for tests of verifiers.
    ///
    /// # Errors
    /// As those of [`Self::new`].
    pub fn with_fault(options: FakeAttesterOptions, fault: Fault) -> Result<Self, FakeError> {
        Self::with_variant(options, SimulatedPlatform::default(), Some(fault))
    }

    /// An attester of the given variant, with or without one fault.
    ///
    /// # Errors
    /// As those of [`Self::new`].
    pub fn with_variant(
        options: FakeAttesterOptions,
        variant: SimulatedPlatform,
        fault: Option<Fault>,
    ) -> Result<Self, FakeError> {
        let vendors = FakeEndorsements::new(options.seed, options.issued_at)?;
        Self::with_vendors(&vendors, options, variant, fault)
    }

    /// The attester that [`Self::save`] wrote into `dir`.
    ///
    /// # Errors
    /// [`FakeError`] if a file cannot be read, or was not written by [`Self::save`].
    pub fn load(dir: &Path) -> Result<Self, FakeError> {
        let (options, variant, has_gpu) = state::load(dir)?;
        let attester = Self::with_variant(options, variant, None)?;
        if has_gpu { attester.with_gpu() } else { Ok(attester) }
    }

    /// The same attester with a simulated GPU, which its policy then requires.
    ///
    /// # Errors
    /// [`FakeError`] if a certificate cannot be encoded.
    pub fn with_gpu(mut self) -> Result<Self, FakeError> {
        let FakeAttesterOptions { seed, issued_at, .. } = &self.options;
        self.gpu = Some(FakeGpu::new(GpuOptions::new(*seed, *issued_at))?);
        Ok(self)
    }

    /// Writes `collateral.json`, `root.der`, `policy.toml` and [`crate::STATE_FILE`] into `dir`,
    /// which is made where it is missing; for SNP also `endorsement-key.der`, `chain.pem` and
    /// `crl.der`. A fault is not saved.
    ///
    /// # Errors
    /// [`FakeError::File`] if a file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<(), FakeError> {
        fs::create_dir_all(dir).map_err(|source| FakeError::File {
            action: "write",
            path: dir.into(),
            source,
        })?;
        write_file(dir, "collateral.json", self.collateral.as_bytes())?;
        write_file(dir, "root.der", self.root_der())?;
        write_file(dir, "policy.toml", self.policy_toml().as_bytes())?;
        if let Some(files) = &self.snp {
            write_file(dir, "endorsement-key.der", &files.endorsement_key)?;
            write_file(dir, "chain.pem", files.chain.as_bytes())?;
            write_file(dir, "crl.der", &files.crl)?;
        }
        state::save(dir, &self.options, &self.variant, self.gpu.is_some())
    }

    /// Evidence over `report_data`; in [`Mode::Device`] the caller waits for its turn first.
    pub fn quote(&self, report_data: &ReportData) -> Vec<u8> {
        match self.options.mode {
            Mode::Raw => self.machine.quote(report_data),
            Mode::Device => {
                device::run_in_queue(device::SERVICE_TIME, || self.machine.quote(report_data))
            }
        }
    }

    /// The endorsements as one JSON object: what dcap-qvl reads as `QuoteCollateralV3`, or for SNP
    /// `{"endorsement_key": hex, "chain": PEM, "crl": hex}`.
    pub fn collateral_json(&self) -> String {
        self.collateral.clone()
    }

    /// The vendors who endorse this attester, for other editions of what they give.
    pub fn endorsements(&self) -> FakeEndorsements {
        self.vendors.clone()
    }

    /// The root certificate that a verifier has to trust.
    pub fn root_der(&self) -> &[u8] {
        match self.options.tee {
            Tee::Snp => self.vendors.amd_root_der(self.variant.product),
            Tee::Tdx | Tee::TdxV5 | Tee::Sgx => self.vendors.intel_root_der(),
        }
    }

    /// A policy for `confide verify` that accepts exactly this attester. It pins no configuration,
    /// so clients refuse it (check `scope`).
    pub fn policy_toml(&self) -> String {
        self.render_policy(ConfigurationLines::Unpinned)
    }

    /// The same policy with the configuration pinned, for clients.
    pub fn policy_toml_pinning(&self, config_digest: [u8; 32]) -> String {
        self.render_policy(ConfigurationLines::Pinned(config_digest))
    }

    /// The same policy for clients that accept this attester in any configuration.
    pub fn dangerous_policy_toml(&self) -> String {
        self.render_policy(ConfigurationLines::DangerousAny)
    }

    fn render_policy(&self, configuration: ConfigurationLines) -> String {
        let gpu_roots = self.gpu.as_ref().map(FakeGpu::root_ders);
        policy::write_policy(&self.options, self.root_der(), gpu_roots, configuration)
    }

    /// The kind of quote that this attester makes.
    pub fn tee(&self) -> Tee {
        self.options.tee
    }

    /// The machine that this attester simulates.
    pub fn variant(&self) -> SimulatedPlatform {
        self.variant
    }

    /// The time that its quotes take.
    pub fn mode(&self) -> Mode {
        self.options.mode
    }

    /// The time at which its collateral was issued, in Unix seconds.
    pub fn issued_at(&self) -> u64 {
        self.options.issued_at
    }

    /// The last second at which its collateral holds; make it again with the same seed after that.
    pub fn collateral_valid_until(&self) -> u64 {
        // A revocation list ends at its nextUpdate, one second before the documents do.
        self.options.issued_at + COLLATERAL_DAYS * DAY - 1
    }

    /// The certificate of the VCEK or VLEK, in DER (SNP only).
    pub fn endorsement_key_der(&self) -> Option<&[u8]> {
        self.snp.as_ref().map(|files| files.endorsement_key.as_slice())
    }

    /// The certificates of ASK or ASVK and ARK, in PEM (SNP only).
    pub fn chain_pem(&self) -> Option<&str> {
        self.snp.as_ref().map(|files| files.chain.as_str())
    }

    /// The ARK's revocation list, in DER (SNP only).
    pub fn crl_der(&self) -> Option<&[u8]> {
        self.snp.as_ref().map(|files| files.crl.as_slice())
    }

    /// An attester of vendors that exist already: as [`Self::with_variant`], without making their
    /// keys again. `options.seed` and `options.issued_at` have to be those of the vendors.
    ///
    /// # Errors
    /// As those of [`Self::new`].
    pub fn with_vendors(
        vendors: &FakeEndorsements,
        options: FakeAttesterOptions,
        variant: SimulatedPlatform,
        fault: Option<Fault>,
    ) -> Result<Self, FakeError> {
        let plan = SimulationPlan::new(options.issued_at, fault);
        let vendors = vendors.clone();
        let (machine, collateral, snp) = match options.tee {
            Tee::Snp => {
                let (machine, files) = make_snp_machine(&vendors, &options, &variant, &plan);
                (machine, files.to_json()?, Some(files))
            }
            Tee::Tdx | Tee::TdxV5 | Tee::Sgx => {
                let (machine, collateral) = make_dcap_machine(&vendors, &options, &variant, plan)?;
                (machine, collateral, None)
            }
        };
        Ok(Self { options, variant, machine, vendors, collateral, snp, gpu: None })
    }
}

/// Makes a machine with a quoting enclave, and its collateral.
fn make_dcap_machine(
    vendors: &FakeEndorsements,
    options: &FakeAttesterOptions,
    variant: &SimulatedPlatform,
    mut plan: SimulationPlan,
) -> Result<(SimulatedMachine, String), FakeError> {
    let pki = vendors.intel_issuer();
    let pck = pki.issue_pck(variant.pck_ca, variant.platform, &plan, 0)?;
    if plan.has_fault(Fault::RevokedPck) {
        plan.edition.revoked_pck.push(pck.serial.clone());
    }
    if plan.has_fault(Fault::RevokedPlatformCa) {
        plan.edition.revoked_ca.push(pki.ca_serial(variant.pck_ca));
    }
    let issuers = pki.pck_issuers_pem(variant.pck_ca);
    let other_chain = match plan.has_fault(Fault::OtherPckChain) {
        true => Some(pki.issue_pck(variant.pck_ca, variant.platform, &plan, 1)?.pem + &issuers),
        false => None,
    };
    let intel = vendors.issue_intel_with_plan(&plan)?;
    let collateral = intel.collateral_with_chain(options.tee, variant.pck_ca, other_chain)?;
    let chain = [pck.pem.as_str(), &issuers].concat();
    Ok((
        SimulatedMachine::with_quoting_enclave(options, variant, &plan, &pck.key, &chain),
        collateral,
    ))
}

/// Makes a machine with a secure processor, and its endorsements.
fn make_snp_machine(
    vendors: &FakeEndorsements,
    options: &FakeAttesterOptions,
    variant: &SimulatedPlatform,
    plan: &SimulationPlan,
) -> (SimulatedMachine, SnpFiles) {
    let SimulatedPlatform { product, signer, .. } = *variant;
    let machine = SimulatedMachine::with_secure_processor(vendors, options, variant, plan);
    let mut edition: EndorsementEdition = plan.edition.clone();
    if plan.has_fault(Fault::RevokedPck) {
        // Chip keys are all certified under number zero.
        edition.revoked_amd.push(vec![0]);
    }
    let amd = vendors.amd_issuer(product);
    if plan.has_fault(Fault::RevokedPlatformCa) {
        edition.revoked_amd.push(amd.intermediate_serial(signer));
    }
    let files = SnpFiles {
        endorsement_key: SimulatedMachine::endorsement_key_certificate(
            vendors, options, variant, plan,
        ),
        chain: amd.chain_pem(signer),
        crl: amd.crl(&edition.revocation_list(edition.revoked_amd.clone())),
    };
    (machine, files)
}

impl SnpFiles {
    fn to_json(&self) -> Result<String, FakeError> {
        #[derive(Serialize)]
        struct Endorsements<'a> {
            endorsement_key: String,
            chain: &'a str,
            crl: String,
        }
        Ok(serde_json::to_string(&Endorsements {
            endorsement_key: hex::encode(&self.endorsement_key),
            chain: &self.chain,
            crl: hex::encode(&self.crl),
        })?)
    }
}

impl Attest for FakeAttester {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        Ok(self.quote(report_data))
    }

    fn collateral(&self) -> Option<Vec<u8>> {
        Some(self.collateral.clone().into_bytes())
    }

    fn gpu_evidence(&self, nonce: &[u8; 32]) -> Result<Option<Vec<u8>>, AttestError> {
        Ok(self.gpu.as_ref().map(|gpu| gpu.evidence(nonce)))
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

fn write_file(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), FakeError> {
    let path = dir.join(name);
    fs::write(&path, bytes).map_err(|source| FakeError::File { action: "write", path, source })
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
        time::Duration,
    };

    use super::*;

    #[test]
    fn device_mode_waits_for_the_device() {
        let attester = FakeAttester::new(FakeAttesterOptions {
            seed: [1; 32],
            tee: Tee::Tdx,
            debug: false,
            issued_at: 1_780_272_000,
            mode: Mode::Device,
        })
        .unwrap();
        let free = AtomicBool::new(false);
        thread::scope(|scope| {
            let caller = device::run_in_queue(Duration::ZERO, || {
                let caller = scope.spawn(|| {
                    attester.quote(&ReportData::ZERO);
                    free.load(Ordering::SeqCst)
                });
                while device::waiting_count() == 0 && !caller.is_finished() {
                    thread::yield_now();
                }
                free.store(true, Ordering::SeqCst);
                caller
            });
            assert!(caller.join().unwrap(), "a quote was made while the device was taken");
        });
    }
}

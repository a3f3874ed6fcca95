//! The simulated attester: a quoting enclave and the endorsements for what it signs.

use std::{fs, path::Path};

use confide_evidence::{Attest, AttestError, ReportData};

use crate::{
    FakeError, Fault, Mode, Options, Tee, collateral, device,
    pki::Pki,
    plan::{COLLATERAL_DAYS, Plan},
    policy,
    quote::Quoter,
    state,
    time::{DAY, FIRST_ISSUE, LAST_ISSUE},
};

/// Makes *simulated* evidence; see the crate's documentation for what that is worth.
pub struct FakeAttester {
    options: Options,
    quoter: Quoter,
    collateral: String,
    root: Vec<u8>,
}

impl FakeAttester {
    /// An attester whose evidence a verifier accepts that trusts [`Self::root_der`].
    pub fn new(options: Options) -> Result<Self, FakeError> {
        Self::build(options, None)
    }

    /// The same attester with one thing wrong, for tests of verifiers.
    pub fn with_fault(options: Options, fault: Fault) -> Result<Self, FakeError> {
        Self::build(options, Some(fault))
    }

    /// The attester that [`Self::save`] wrote into `dir`.
    pub fn load(dir: &Path) -> Result<Self, FakeError> {
        Self::new(state::load(dir)?)
    }

    /// Writes `collateral.json`, `root.der`, `policy.toml` and [`crate::STATE_FILE`] into `dir`,
    /// which is made where it is missing. A fault is not saved.
    pub fn save(&self, dir: &Path) -> Result<(), FakeError> {
        fs::create_dir_all(dir).map_err(|source| FakeError::File {
            action: "write",
            path: dir.into(),
            source,
        })?;
        write(dir, "collateral.json", self.collateral.as_bytes())?;
        write(dir, "root.der", &self.root)?;
        write(dir, "policy.toml", self.policy_toml().as_bytes())?;
        state::save(dir, &self.options)
    }

    /// A quote over `report_data`; in [`Mode::Device`] the caller waits for its turn first.
    pub fn quote(&self, report_data: &ReportData) -> Vec<u8> {
        match self.options.mode {
            Mode::Raw => self.quoter.quote(report_data),
            Mode::Device => device::serve(device::SERVICE_TIME, || self.quoter.quote(report_data)),
        }
    }

    /// The endorsements, as dcap-qvl reads `QuoteCollateralV3`.
    pub fn collateral_json(&self) -> String {
        self.collateral.clone()
    }

    /// The root certificate that a verifier has to trust.
    pub fn root_der(&self) -> &[u8] {
        &self.root
    }

    /// A policy for `confide verify` and `confide connect` that accepts exactly this attester.
    pub fn policy_toml(&self) -> String {
        policy::toml(&self.options, &self.root)
    }

    /// Which kind of quote this attester makes.
    pub fn tee(&self) -> Tee {
        self.options.tee
    }

    /// How long its quotes take.
    pub fn mode(&self) -> Mode {
        self.options.mode
    }

    /// When its collateral was issued, in unix seconds.
    pub fn issued_at(&self) -> u64 {
        self.options.issued_at
    }

    /// The last second at which its collateral holds; make it anew with the same seed after that.
    pub fn collateral_until(&self) -> u64 {
        // A revocation list ends at its nextUpdate, one second before the documents do.
        self.options.issued_at + COLLATERAL_DAYS * DAY - 1
    }

    fn build(options: Options, fault: Option<Fault>) -> Result<Self, FakeError> {
        let (first, last, got) = (FIRST_ISSUE, LAST_ISSUE, options.issued_at);
        if !(first..=last).contains(&got) {
            return Err(FakeError::IssuedAt { first, last, got });
        }
        let plan = Plan::new(options.issued_at, fault);
        let pki = Pki::issue(&options.seed, options.issued_at, &plan)?;
        let collateral = collateral::sign(options.tee, &plan, &pki)?;
        let quoter = Quoter::new(&options, &plan, &pki);
        Ok(Self { options, quoter, collateral, root: pki.root_der })
    }
}

impl Attest for FakeAttester {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        Ok(self.quote(report_data))
    }

    fn collateral(&self) -> Option<Vec<u8>> {
        Some(self.collateral.clone().into_bytes())
    }

    fn simulated(&self) -> bool {
        true
    }
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), FakeError> {
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
        let attester = FakeAttester::new(Options {
            seed: [1; 32],
            tee: Tee::Tdx,
            debug: false,
            issued_at: 1_780_272_000,
            mode: Mode::Device,
        })
        .unwrap();
        let free = AtomicBool::new(false);
        thread::scope(|scope| {
            let caller = device::serve(Duration::ZERO, || {
                let caller = scope.spawn(|| {
                    attester.quote(&ReportData::ZERO);
                    free.load(Ordering::SeqCst)
                });
                while device::waiting() == 0 && !caller.is_finished() {
                    thread::yield_now();
                }
                free.store(true, Ordering::SeqCst);
                caller
            });
            assert!(caller.join().unwrap(), "a quote was made while the device was taken");
        });
    }
}

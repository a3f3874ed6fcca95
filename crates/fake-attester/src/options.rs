//! The options of a simulated attester.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::error::FakeError;

/// The kind of quote that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tee {
    /// An Intel TDX quote, version 4, with a TD report of 584 bytes.
    Tdx,
    /// An Intel TDX quote, version 5; [`crate::SimulatedPlatform`] chooses the body.
    #[serde(rename = "tdx-v5")]
    TdxV5,
    /// An Intel SGX quote, version 3, with an enclave report of 384 bytes.
    Sgx,
    /// An AMD SEV-SNP report of 1,184 bytes; [`crate::SimulatedPlatform`] chooses product and version.
    Snp,
}

/// The time that a quote takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A quote takes as long as software needs to sign it.
    Raw,
    /// Quotes are made as by the hardware: one at a time in the whole process,
    /// [`crate::SERVICE_TIME`] each.
    Device,
}

/// Everything that a simulated attester is made from.
///
/// The same options give byte-identical keys, certificates and collateral. The root certificate
/// depends on the seed alone, so a policy that names it outlives the 30 days of the collateral.
#[derive(Clone, PartialEq, Eq)]
pub struct FakeAttesterOptions {
    /// The seed of all keys. Anyone who knows it can sign such evidence.
    pub seed: [u8; 32],
    /// The kind of quote that is made.
    pub tee: Tee,
    /// Whether the simulated enclave or trust domain runs in debug mode.
    pub debug: bool,
    /// The time at which certificates and collateral are issued, in Unix seconds.
    pub issued_at: u64,
    /// The time that a quote takes.
    pub mode: Mode,
}

impl FakeAttesterOptions {
    /// A seed that nobody else has, from the operating system.
    ///
    /// # Errors
    /// [`FakeError::Random`] if the operating system has no random bytes.
    pub fn random_seed() -> Result<[u8; 32], FakeError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(FakeError::Random)?;
        Ok(seed)
    }
}

impl fmt::Debug for FakeAttesterOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeAttesterOptions")
            .field("seed", &"…")
            .field("tee", &self.tee)
            .field("debug", &self.debug)
            .field("issued_at", &self.issued_at)
            .field("mode", &self.mode)
            .finish()
    }
}

impl Drop for FakeAttesterOptions {
    fn drop(&mut self) {
        self.seed.zeroize();
    }
}

//! What to simulate.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::error::FakeError;

/// Which kind of quote is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tee {
    /// An Intel TDX quote, version 4, with a TD report of 584 bytes.
    Tdx,
    /// An Intel TDX quote, version 5; [`crate::Variant`] chooses the body.
    #[serde(rename = "tdx-v5")]
    TdxV5,
    /// An Intel SGX quote, version 3, with an enclave report of 384 bytes.
    Sgx,
    /// An AMD SEV-SNP report of 1,184 bytes; [`crate::Variant`] chooses product and version.
    Snp,
}

/// How long a quote takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// As fast as software signs.
    Raw,
    /// As the hardware does it: one at a time in the whole process, [`crate::SERVICE_TIME`] each.
    Device,
}

/// Everything that a simulated attester is made from.
///
/// The same options give byte-identical keys, certificates and collateral. The root certificate
/// depends on the seed alone, so a policy that names it outlives the 30 days of the collateral.
#[derive(Clone, PartialEq, Eq)]
pub struct FakeAttesterOptions {
    /// Where all keys come from. Whoever knows it can sign such evidence.
    pub seed: [u8; 32],
    /// Which kind of quote.
    pub tee: Tee,
    /// Whether the simulated enclave or trust domain runs in debug mode.
    pub debug: bool,
    /// When certificates and collateral are issued, in unix seconds.
    pub issued_at: u64,
    /// How long a quote takes.
    pub mode: Mode,
}

impl FakeAttesterOptions {
    /// A seed that nobody else has, from the operating system.
    pub fn random_seed() -> Result<[u8; 32], FakeError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(FakeError::Random)?;
        Ok(seed)
    }
}

impl fmt::Debug for FakeAttesterOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
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

//! The policy keys for a GPU.

use alloc::string::{String, ToString};

use serde::Deserialize;

use crate::expect::{Expect, ReferenceValue};

/// The table `[gpu]`. The default requires no GPU, and appraises one that is presented.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuPolicy {
    /// Refuses evidence without a GPU's, and a GPU whose reference manifests, debug state or
    /// revocation were not evaluated.
    pub required: bool,
    /// Version of the driver, as the report says it.
    pub driver: Option<Expect<GpuVersion>>,
    /// Version of the VBIOS, in lower case.
    pub vbios: Option<Expect<GpuVersion>>,
    /// SHA-256 of each reference manifest, as the file is; with it, manifests have to be there.
    pub rim_sha256: Option<Expect<[u8; 32]>>,
    /// Accepts a required GPU whose measurements were not compared with reference manifests.
    pub dangerous_accept_rim_not_evaluated: bool,
    /// Accepts a required GPU whose debug state was not evaluated.
    pub dangerous_accept_debug: bool,
    /// Accepts a required GPU without revocation answers for its certificates and its manifests'.
    pub dangerous_accept_revocation_not_evaluated: bool,
    /// Accepts protected-PCIe mode, in which traffic between GPUs is in clear.
    pub dangerous_accept_protected_pcie: bool,
}

/// A version such as `550.90.07` or `96.00.9f.00.01`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuVersion(pub String);

impl ReferenceValue for GpuVersion {
    fn expected_form() -> String {
        "a version such as 550.90.07".to_string()
    }

    fn from_text(text: &str) -> Option<Self> {
        let is_version = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase() || c == '.';
        let is_version = !text.is_empty() && text.len() <= 64 && text.chars().all(is_version);
        is_version.then(|| Self(text.to_string()))
    }

    fn to_text(&self) -> String {
        self.0.clone()
    }
}

//! Signs of a confidential VM: several signals, their raw values, and which of them agree.
//!
//! A sign is no proof: a host can show a guest any of them. An arm is protected where its evidence
//! was verified, and nothing here says "protected".

mod signals;
mod summary;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{cpuid::Leaves, kernel_log::KernelLog, root::Root};

/// What kinds of protection a signal can speak of.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema, Serialize,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Tdx,
    SevSnp,
    SevEs,
    Sev,
    /// Hyper-V's own isolation, without encrypted memory.
    Vbs,
    /// An AWS Nitro enclave.
    Nitro,
    Sgx,
}

impl Kind {
    /// As its maker writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tdx => "Intel TDX",
            Self::SevSnp => "AMD SEV-SNP",
            Self::SevEs => "AMD SEV-ES",
            Self::Sev => "AMD SEV",
            Self::Vbs => "Hyper-V VBS",
            Self::Nitro => "AWS Nitro enclave",
            Self::Sgx => "Intel SGX",
        }
    }

    /// Whether a guest of this kind also shows the signs of the other one.
    pub(crate) fn includes(self, other: Self) -> bool {
        use Kind::{Sev, SevEs, SevSnp};
        self == other || matches!((self, other), (SevSnp, SevEs | Sev) | (SevEs, Sev))
    }
}

/// What one signal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Says {
    /// This is a guest of one of `kinds`.
    Guest,
    /// Looked for and not there, though a guest of `kinds` shows it.
    Absent,
    /// The processor or host is able to; nothing says that it does.
    Able,
    /// It could not be read: it says nothing either way.
    Unread,
    /// Where this runs; neither for nor against.
    Context,
}

/// One place that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct Signal {
    pub(crate) source: String,
    /// Raw, at most 160 characters.
    pub(crate) value: String,
    pub(crate) says: Says,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) kinds: Vec<Kind>,
}

/// What the signals come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reading {
    /// Nothing was looked at: an old record.
    #[default]
    NotRead,
    /// No signal says that this is a guest of any kind.
    NoSign,
    /// Some do, and none of those that could be read speaks against it.
    Signs,
    /// Some do, and some speak against it.
    Contradiction,
}

/// All signals and their summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub(crate) struct Tee {
    pub(crate) reading: Reading,
    /// The strongest kind that a signal names.
    pub(crate) kind: Option<Kind>,
    /// A paravisor stands between this system and the hardware, so that devices and leaves of the
    /// hardware are not shown to it.
    pub(crate) paravisor: bool,
    /// Sources that say so.
    pub(crate) agree: Vec<String>,
    /// Sources that say otherwise.
    pub(crate) disagree: Vec<String>,
    /// Sources that could not be read.
    pub(crate) unread: Vec<String>,
    pub(crate) signals: Vec<Signal>,
}

impl Tee {
    /// Looks everywhere.
    pub(crate) fn read(root: &Root, cpuid: Option<&Leaves>, log: &KernelLog) -> Self {
        Self::of(signals::all(root, cpuid, log))
    }
}

/// For the fuzzer.
pub(super) fn fuzz(text: &str) {
    signals::fuzz(text);
}

#[cfg(test)]
mod tests;

//! One signal of a confidential VM: where it was looked for, and what it says.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kinds of protection that a signal can indicate.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema, Serialize,
)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Kind")]
pub(crate) enum TeeKind {
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

impl TeeKind {
    /// Returns the name as its maker writes it.
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

    /// True where a guest of this kind also shows the signs of the other one.
    pub(crate) fn includes(self, other: Self) -> bool {
        use TeeKind::{Sev, SevEs, SevSnp};
        self == other || matches!((self, other), (SevSnp, SevEs | Sev) | (SevEs, Sev))
    }
}

/// The statement of one signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SignalMeaning {
    /// The signal says that this is a guest of one of `kinds`.
    Guest,
    /// The sign was looked for and not found, though a guest of `kinds` shows it.
    Absent,
    /// The processor or host is able to protect; nothing says that it does.
    Able,
    /// It could not be read: it says nothing either way.
    Unread,
    /// It says where this runs, which is neither for nor against.
    Context,
}

/// A place that was looked at, and what it says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct Signal {
    pub(crate) source: String,
    /// The raw value, at most 160 characters.
    pub(crate) value: String,
    pub(crate) says: SignalMeaning,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) kinds: Vec<TeeKind>,
}

/// The word by which the value of a signal tells of a paravisor.
pub(super) const PARAVISOR: &str = "paravisor";

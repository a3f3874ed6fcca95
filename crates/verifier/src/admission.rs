//! The policy keys that restrict which peers are looked at: kinds of evidence, scope and binding level.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use confide_evidence::{BindingKind, quote::Tee};
use serde::{Deserialize, Deserializer, de};

use crate::reason::Reason;

/// Kinds of evidence, by the TEE that makes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedTees(Vec<Tee>);

impl AdmittedTees {
    const ALL: [Tee; 3] = [Tee::Sgx, Tee::Snp, Tee::Tdx];

    /// Checks that the policy looks at evidence of this TEE.
    pub(crate) fn check_admitted(&self, tee: Tee) -> Result<(), Reason> {
        if self.0.contains(&tee) {
            return Ok(());
        }
        let got = tee.as_str().to_string();
        Err(Reason::Value { field: "kind of evidence", wanted: self.to_string(), got })
    }

    /// Whether no kind is left out.
    pub fn is_all(&self) -> bool {
        Self::ALL.iter().all(|tee| self.0.contains(tee))
    }
}

impl Default for AdmittedTees {
    fn default() -> Self {
        Self(Self::ALL.to_vec())
    }
}

impl core::fmt::Display for AdmittedTees {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|tee| tee.as_str()).collect();
        f.write_str(&names.join(" or "))
    }
}

impl<'de> Deserialize<'de> for AdmittedTees {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        let mut formats = Vec::new();
        for name in &names {
            let known = Self::ALL.into_iter().find(|tee| tee.as_str() == name);
            let Some(tee) = known.filter(|tee| !formats.contains(tee)) else {
                return Err(de::Error::custom(format!(
                    "formats: wanted `sgx`, `snp` and `tdx`, each once at most, got `{name}`"
                )));
            };
            formats.push(tee);
        }
        match formats.is_empty() {
            true => Err(de::Error::custom("formats: wanted one at least")),
            false => Ok(Self(formats)),
        }
    }
}

/// The scope that a live client accepts although it says nothing about the program that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DangerousScope {
    /// The platform: it may run any program, or the named one in any configuration.
    Platform,
}

/// The weakest accepted tie between evidence and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BindingLevel {
    /// The TLS key, or more.
    Key,
    /// The TLS session itself.
    Session,
}

impl BindingLevel {
    /// `key` or `session`, as policies spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            BindingLevel::Key => "key",
            BindingLevel::Session => "session",
        }
    }

    pub(crate) fn is_met(self, binding: Option<BindingKind>) -> bool {
        match (self, binding) {
            (_, None) | (Self::Session, Some(BindingKind::TlsSpki)) => false,
            (_, Some(BindingKind::TlsExporter)) | (Self::Key, Some(BindingKind::TlsSpki)) => true,
        }
    }
}

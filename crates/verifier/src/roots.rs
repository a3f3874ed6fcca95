//! Which root certificates are trusted, by the SHA-256 of their DER.

use alloc::{
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};

use sha2::{Digest, Sha256};

use crate::{Detail, detail};

/// Intel's production root (`data/README.md` says where it is from).
pub const INTEL_ROOT_DER: &[u8] = include_bytes!("../data/intel-sgx-root-ca.der");
/// SHA-256 of [`INTEL_ROOT_DER`].
pub const INTEL_ROOT_SHA256: [u8; 32] = [
    0x44, 0xa0, 0x19, 0x6b, 0x2b, 0x99, 0xf8, 0x89, 0xb8, 0xe1, 0x49, 0xe9, 0x5b, 0x80, 0x7a, 0x35,
    0x0e, 0x74, 0x24, 0x96, 0x43, 0x99, 0xe8, 0x85, 0xa7, 0xcb, 0xb8, 0xcc, 0xfa, 0xb6, 0x74, 0xd3,
];
/// How a policy names Intel's production root.
pub const INTEL_PRODUCTION: &str = "intel-production";

/// Most roots in one policy.
const ROOTS_MAX: usize = 16;

/// The trust anchors of a policy.
///
/// The certificate itself comes with the evidence; it is the anchor when its hash is listed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots(Vec<[u8; 32]>);

impl Roots {
    /// Intel's production root only.
    pub fn production() -> Self {
        Self(vec![INTEL_ROOT_SHA256])
    }

    /// One root of one's own, given as DER; simulated evidence has such a root.
    pub fn custom(der: &[u8]) -> Self {
        Self(vec![Sha256::digest(der).into()])
    }

    /// `intel-production` or `sha256:` and 64 hexadecimal digits each.
    pub fn from_names(names: &[String]) -> Result<Self, String> {
        if names.is_empty() || names.len() > ROOTS_MAX {
            return Err(format!("roots: wanted 1 to {ROOTS_MAX}, got {}", names.len()));
        }
        names.iter().map(|name| fingerprint(name)).collect::<Result<Vec<_>, _>>().map(Self)
    }

    /// What the root with this hash is to the policy, if anything.
    pub fn find(&self, sha256: &[u8; 32]) -> Option<RootKind> {
        self.0.contains(sha256).then_some(if *sha256 == INTEL_ROOT_SHA256 {
            RootKind::Production
        } else {
            RootKind::Custom
        })
    }
}

/// Whose root a chain ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootKind {
    /// Intel's.
    Production,
    /// Any other: a test root, or that of a simulated attester.
    Custom,
}

impl RootKind {
    /// `production` or `custom`.
    pub fn as_str(self) -> &'static str {
        match self {
            RootKind::Production => "production",
            RootKind::Custom => "custom",
        }
    }

    /// `production sha256:…`, the detail of the check of the root.
    pub(crate) fn detail(self, sha256: &[u8; 32]) -> Detail {
        let write: detail::Write = match self {
            RootKind::Production => {
                |it, f| write!(f, "production sha256:{}", hex::encode(detail::bytes(it)))
            }
            RootKind::Custom => {
                |it, f| write!(f, "custom sha256:{}", hex::encode(detail::bytes(it)))
            }
        };
        Detail::bytes(sha256, write)
    }
}

/// The root that evidence was accepted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// Whose it is.
    pub kind: RootKind,
    /// SHA-256 of its DER.
    pub sha256: [u8; 32],
}

fn fingerprint(name: &str) -> Result<[u8; 32], String> {
    if name == INTEL_PRODUCTION {
        return Ok(INTEL_ROOT_SHA256);
    }
    let mut sha256 = [0; 32];
    let digits = name.strip_prefix("sha256:").unwrap_or_default();
    hex::decode_to_slice(digits, &mut sha256)
        .map_err(|_| format!("roots: wanted `{INTEL_PRODUCTION}` or `sha256:…`, got `{name}`"))?;
    Ok(sha256)
}

impl core::fmt::Display for Roots {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let names: Vec<String> = self.0.iter().map(name).collect();
        f.write_str(&names.join(" or "))
    }
}

fn name(sha256: &[u8; 32]) -> String {
    if *sha256 == INTEL_ROOT_SHA256 {
        return INTEL_PRODUCTION.to_string();
    }
    format!("sha256:{}", hex::encode(sha256))
}

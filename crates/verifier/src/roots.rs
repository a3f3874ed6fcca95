//! Which root certificates are trusted, by the SHA-256 of their DER.

use alloc::{
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    detail::{self, Detail},
    reason::Reason,
};

/// Intel's production root (`data/README.md` says where it is from).
pub const INTEL_ROOT_DER: &[u8] = include_bytes!("../data/intel-sgx-root-ca.der");
/// SHA-256 of [`INTEL_ROOT_DER`].
pub const INTEL_ROOT_SHA256: [u8; 32] = [
    0x44, 0xa0, 0x19, 0x6b, 0x2b, 0x99, 0xf8, 0x89, 0xb8, 0xe1, 0x49, 0xe9, 0x5b, 0x80, 0x7a, 0x35,
    0x0e, 0x74, 0x24, 0x96, 0x43, 0x99, 0xe8, 0x85, 0xa7, 0xcb, 0xb8, 0xcc, 0xfa, 0xb6, 0x74, 0xd3,
];
/// The name of Intel's production root in a policy.
const INTEL_PRODUCTION: &str = "intel-production";

/// NVIDIA's root of devices: the certificate chains of GPUs end in it.
pub const NVIDIA_DEVICE_ROOT_DER: &[u8] = include_bytes!("../data/nvidia-device-identity-ca.der");
/// SHA-256 of [`NVIDIA_DEVICE_ROOT_DER`].
pub const NVIDIA_DEVICE_ROOT_SHA256: [u8; 32] = [
    0x10, 0x2b, 0xf6, 0x59, 0xd5, 0x41, 0x96, 0x14, 0xc9, 0xd8, 0xe6, 0xae, 0xce, 0xbc, 0x80, 0x45,
    0x4e, 0xb2, 0x6b, 0x1d, 0xf6, 0xa7, 0x69, 0xac, 0x72, 0x0b, 0x9a, 0x69, 0x0b, 0x16, 0x7b, 0x48,
];
/// NVIDIA's root of reference manifests.
pub const NVIDIA_RIM_ROOT_DER: &[u8] = include_bytes!("../data/nvidia-corim-signing-root-ca.der");
/// SHA-256 of [`NVIDIA_RIM_ROOT_DER`].
pub const NVIDIA_RIM_ROOT_SHA256: [u8; 32] = [
    0x12, 0x97, 0x7b, 0x51, 0x15, 0xac, 0xb0, 0x38, 0x11, 0x79, 0x27, 0x9f, 0xff, 0xeb, 0x5a, 0x8c,
    0x4d, 0x26, 0x49, 0x71, 0xeb, 0xb3, 0x22, 0x98, 0x02, 0x3a, 0x46, 0x5f, 0xa4, 0x1d, 0xf5, 0xd1,
];
/// The name of NVIDIA's two production roots in a policy.
const NVIDIA_PRODUCTION: &str = "nvidia-production";

/// SHA-256 of the DER of AMD's roots (ARK) for Milan, Genoa and Turin (`data/README.md` says where
/// they are from).
pub const AMD_ROOTS_SHA256: [[u8; 32]; 3] = [
    [
        0x69, 0xd0, 0x63, 0xb4, 0x53, 0x44, 0xd2, 0x6a, 0x2e, 0x94, 0xe1, 0xf4, 0x21, 0x0d, 0xe4,
        0x9e, 0xf5, 0x55, 0x30, 0x82, 0x87, 0xd4, 0xc1, 0x74, 0x44, 0x5c, 0x95, 0x63, 0x9a, 0x54,
        0x0b, 0xcd,
    ],
    [
        0x4c, 0x65, 0x98, 0xd1, 0x9c, 0x18, 0x71, 0x9c, 0x5d, 0xfd, 0x4a, 0x7d, 0x33, 0x5f, 0x67,
        0x4e, 0x5b, 0xfe, 0x1d, 0x8f, 0x80, 0x0c, 0xea, 0x2c, 0xf2, 0x70, 0xc1, 0x0d, 0x10, 0x3d,
        0xb2, 0xf1,
    ],
    [
        0x1f, 0x08, 0x41, 0x61, 0xa4, 0x4b, 0xb6, 0xd9, 0x37, 0x78, 0xa9, 0x04, 0x87, 0x7d, 0x48,
        0x19, 0xca, 0xfa, 0x5d, 0x05, 0xef, 0x41, 0x93, 0xb2, 0xde, 0xd9, 0xdd, 0x9c, 0x73, 0xdd,
        0x3f, 0x6a,
    ],
];
/// The name of AMD's three production roots in a policy.
const AMD_PRODUCTION: &str = "amd-production";

/// The kind of evidence that a vendor's root vouches for. It counts for this and for nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// SGX and TDX platforms.
    Intel,
    /// SEV-SNP platforms.
    Amd,
    /// GPUs.
    NvidiaDevice,
    /// Reference manifests of GPUs.
    NvidiaRim,
}

/// The vendors' roots: the evidence each is for, its name in a policy, its SHA-256.
const PRODUCTION: [(Anchor, &str, [u8; 32]); 6] = [
    (Anchor::Intel, INTEL_PRODUCTION, INTEL_ROOT_SHA256),
    (Anchor::Amd, AMD_PRODUCTION, AMD_ROOTS_SHA256[0]),
    (Anchor::Amd, AMD_PRODUCTION, AMD_ROOTS_SHA256[1]),
    (Anchor::Amd, AMD_PRODUCTION, AMD_ROOTS_SHA256[2]),
    (Anchor::NvidiaDevice, NVIDIA_PRODUCTION, NVIDIA_DEVICE_ROOT_SHA256),
    (Anchor::NvidiaRim, NVIDIA_PRODUCTION, NVIDIA_RIM_ROOT_SHA256),
];

/// The largest number of roots in one policy.
const ROOTS_MAX: usize = 16;

/// The trust anchors of a policy.
///
/// The certificate itself comes with the evidence; it is the anchor when its hash is listed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots(Vec<[u8; 32]>);

impl Roots {
    /// The production roots of all vendors, each for its own kind of evidence.
    pub fn production() -> Self {
        Self(PRODUCTION.iter().map(|(_, _, sha256)| *sha256).collect())
    }

    /// Trusts one custom root, given as DER; simulated evidence has such a root.
    pub fn from_der(der: &[u8]) -> Self {
        Self(vec![Sha256::digest(der).into()])
    }

    /// Trusts one root, given as the SHA-256 of its DER.
    pub fn from_sha256(sha256: [u8; 32]) -> Self {
        Self(vec![sha256])
    }

    /// Trusts the named roots: `intel-production` and the like, or `sha256:` and 64 hexadecimal digits.
    ///
    /// # Errors
    /// A sentence that says what was wanted and what came: none or too many names, or one that is
    /// neither a vendor nor `sha256:` with 64 hexadecimal digits.
    pub fn from_names(names: &[String]) -> Result<Self, String> {
        if names.is_empty() || names.len() > ROOTS_MAX {
            return Err(format!("roots: wanted 1 to {ROOTS_MAX}, got {}", names.len()));
        }
        let mut roots = Vec::new();
        for name in names {
            add_named(&mut roots, name)?;
        }
        Ok(Self(roots))
    }

    /// Whether each of these roots is one of `others`.
    pub(crate) fn are_among(&self, others: &Roots) -> bool {
        self.0.iter().all(|root| others.0.contains(root))
    }

    /// Whether a vendor's root is among them.
    pub fn has_production(&self) -> bool {
        self.0.iter().any(|root| PRODUCTION.iter().any(|(_, _, known)| known == root))
    }

    /// Whether the root with this hash is listed, whatever it is for.
    pub fn contains(&self, sha256: &[u8; 32]) -> bool {
        self.0.contains(sha256)
    }

    /// SHA-256 of a certificate's DER, by which it is known here.
    pub(crate) fn fingerprint_of(der: &[u8]) -> [u8; 32] {
        Sha256::digest(der).into()
    }

    /// Returns the kind of the root with this hash; `None` if the policy does not trust it for `anchor`.
    ///
    /// A vendor's root counts for what it is for; a root named by its hash for everything.
    pub fn find(&self, anchor: Anchor, sha256: &[u8; 32]) -> Option<RootKind> {
        if !self.0.contains(sha256) {
            return None;
        }
        match PRODUCTION.iter().find(|(_, _, known)| known == sha256) {
            None => Some(RootKind::Custom),
            Some((for_what, ..)) => (*for_what == anchor).then_some(RootKind::Production),
        }
    }
}

impl Roots {
    /// Returns the kind of a root as [`Roots::find`] does.
    ///
    /// # Errors
    /// [`Reason::UntrustedRoot`] if the policy does not trust it for `anchor`.
    pub(crate) fn require(&self, anchor: Anchor, sha256: &[u8; 32]) -> Result<RootKind, Reason> {
        self.find(anchor, sha256).ok_or_else(|| Reason::UntrustedRoot {
            wanted: self.to_string(),
            got: hex::encode(sha256),
        })
    }
}

/// The owner of the root that a chain ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootKind {
    /// A vendor's root.
    Production,
    /// Any other root: a custom one, a test's, or a simulated attester's.
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
        let write: detail::WriteNumbers = match self {
            RootKind::Production => {
                |it, f| write!(f, "production sha256:{}", hex::encode(detail::unpack_bytes(it)))
            }
            RootKind::Custom => {
                |it, f| write!(f, "custom sha256:{}", hex::encode(detail::unpack_bytes(it)))
            }
        };
        Detail::bytes(sha256, write)
    }
}

/// The root that evidence was accepted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// Whether it is a vendor's root or another.
    pub kind: RootKind,
    /// SHA-256 of its DER.
    pub sha256: [u8; 32],
}

impl Root {
    pub(crate) fn to_json(self) -> Value {
        json!({ "kind": self.kind.as_str(), "sha256": hex::encode(self.sha256) })
    }
}

fn add_named(roots: &mut Vec<[u8; 32]>, name: &str) -> Result<(), String> {
    let vendors = PRODUCTION.iter().filter(|(_, known, _)| *known == name);
    let before = roots.len();
    roots.extend(vendors.map(|(_, _, sha256)| *sha256));
    if roots.len() > before {
        return Ok(());
    }
    let mut sha256 = [0; 32];
    let digits = name.strip_prefix("sha256:").unwrap_or_default();
    hex::decode_to_slice(digits, &mut sha256).map_err(|_| {
        format!("roots: wanted a vendor as `{INTEL_PRODUCTION}` or `sha256:…`, got `{name}`")
    })?;
    roots.push(sha256);
    Ok(())
}

impl core::fmt::Display for Roots {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut names: Vec<String> = self.0.iter().map(root_name).collect();
        names.dedup();
        f.write_str(&names.join(" or "))
    }
}

fn root_name(sha256: &[u8; 32]) -> String {
    match PRODUCTION.iter().find(|(_, _, known)| known == sha256) {
        Some((_, name, _)) => name.to_string(),
        None => format!("sha256:{}", hex::encode(sha256)),
    }
}

//! The policy keys for a SEV-SNP platform and guest (`docs/policy.md`).

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

use confide_evidence::snp::{PlatformInfo, Tcb};
use serde::{Deserialize, Deserializer, de};

use crate::{
    crl::CrlMinimum,
    expect::{DANGEROUS_ANY, Expect},
    explanation::Explanation,
};

/// The table `[snp]`: requirements on the platform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SnpPlatform {
    /// Least security versions. AMD publishes no verdict on them, so that the policy has to have
    /// one: without this, no report is accepted.
    pub tcb_min: Option<TcbMinimum>,
    /// The oldest revocation list of the root that is accepted.
    pub crl: CrlMinimum,
    /// The chips that are accepted; absent: any.
    pub chip_ids: Option<Expect<[u8; 64]>>,
    /// Accepts a report that hides its chip although the chip's own key signed it. Which chip it
    /// is then follows from the certificate.
    pub accept_masked_chip_id: bool,
}

/// The least security versions of a platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcbMinimum {
    /// Each version has to be as high as this.
    AtLeast(Tcb),
    /// Any security versions are accepted.
    DangerousAny,
}

/// `[workload.snp]`: the guest. The measurement has to be written down, if only as
/// `"dangerous-any"`; what is left out has to be zero, or is refused.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnpWorkload {
    /// Initial contents.
    pub measurement: Expect<[u8; 48]>,
    /// Data that the host gave at launch.
    #[serde(default = "Expect::zero")]
    pub host_data: Expect<[u8; 32]>,
    /// Family identifier, from the ID block.
    #[serde(default = "Expect::zero")]
    pub family_id: Expect<[u8; 16]>,
    /// Image identifier, from the ID block.
    #[serde(default = "Expect::zero")]
    pub image_id: Expect<[u8; 16]>,
    /// SHA-384 of the key that signed the ID block.
    #[serde(default = "Expect::zero")]
    pub id_key_digest: Expect<[u8; 48]>,
    /// SHA-384 of the key that certified that key.
    #[serde(default = "Expect::zero")]
    pub author_key_digest: Expect<[u8; 48]>,
    /// Least security version, from the ID block.
    #[serde(default)]
    pub guest_svn_min: u32,
    /// The lowest privilege (highest number) that may ask for a report.
    #[serde(default)]
    pub vmpl_max: u32,
    /// Accepts a guest that may run where simultaneous multithreading is on.
    #[serde(default)]
    pub smt: bool,
    /// Accepts a guest that may have a migration agent.
    #[serde(default)]
    pub migrate_ma: bool,
    /// Bits of the platform information that have to be set.
    #[serde(default)]
    pub platform_info: PlatformBits,
}

/// Bits of the platform information, named in a policy as a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlatformBits(pub u64);

impl SnpPlatform {
    pub(crate) fn explain(&self, explanation: &mut Explanation) {
        let Self { tcb_min, crl, chip_ids, accept_masked_chip_id } = self;
        match tcb_min {
            None => explanation.add_checked("snp.tcb_min", "no SEV-SNP report is accepted"),
            Some(TcbMinimum::AtLeast(tcb)) => {
                explanation.add_checked(
                    "snp.tcb_min",
                    format!("the security versions are at least {tcb}"),
                );
            }
            Some(TcbMinimum::DangerousAny) => {
                explanation.add_dangerous("snp.tcb_min", "the security versions may be any");
            }
        }
        explanation.add_revocation_list("snp.crl", "AMD's revocation list", *crl);
        explanation.add_optional("snp.chip_ids", "the chip", chip_ids.as_ref(), "any chip");
        match accept_masked_chip_id {
            false => {
                explanation.add_checked("snp.accept_masked_chip_id", "the report names its chip")
            }
            true => {
                explanation.add_unchecked("snp.accept_masked_chip_id", "the chip may be hidden")
            }
        }
    }
}

impl SnpWorkload {
    pub(crate) fn explain(&self, explanation: &mut Explanation) {
        let Self { measurement, host_data, family_id, image_id, .. } = self;
        let Self { id_key_digest, author_key_digest, guest_svn_min, vmpl_max, .. } = self;
        let Self { smt, migrate_ma, platform_info, .. } = self;
        explanation.add_expect("workload.snp.measurement", "measurement", measurement);
        explanation.add_expect("workload.snp.host_data", "host_data", host_data);
        explanation.add_expect("workload.snp.family_id", "family_id", family_id);
        explanation.add_expect("workload.snp.image_id", "image_id", image_id);
        explanation.add_expect("workload.snp.id_key_digest", "id_key_digest", id_key_digest);
        explanation.add_expect(
            "workload.snp.author_key_digest",
            "author_key_digest",
            author_key_digest,
        );
        explanation.add_minimum(
            "workload.snp.guest_svn_min",
            "the guest's version",
            *guest_svn_min,
        );
        explanation
            .add_checked("workload.snp.vmpl_max", format!("requested from VMPL 0 to {vmpl_max}"));
        for (field, allowed, subject) in [
            ("workload.snp.smt", *smt, "multithreading"),
            ("workload.snp.migrate_ma", *migrate_ma, "a migration agent"),
        ] {
            match allowed {
                true => explanation.add_unchecked(field, format!("{subject} may be allowed")),
                false => explanation.add_checked(field, format!("{subject} is not allowed")),
            }
        }
        match platform_info.0 {
            0 => explanation.add_unchecked("workload.snp.platform_info", "any configuration"),
            _ => explanation
                .add_checked("workload.snp.platform_info", format!("{platform_info} are set")),
        }
    }
}

impl fmt::Display for PlatformBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = PlatformInfo::NAMES.iter().filter(|(_, bit)| self.0 >> bit & 1 == 1);
        f.write_str(&set.map(|(name, _)| *name).collect::<Vec<_>>().join(", "))
    }
}

impl<'de> Deserialize<'de> for PlatformBits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut bits = 0;
        for wanted in Vec::<String>::deserialize(deserializer)? {
            let known = PlatformInfo::NAMES.iter().find(|(name, _)| *name == wanted);
            let Some((_, bit)) = known else {
                let all = PlatformInfo::NAMES.map(|(name, _)| name).join(", ");
                return Err(de::Error::custom(format!("wanted some of {all}, got `{wanted}`")));
            };
            bits |= 1 << bit;
        }
        Ok(Self(bits))
    }
}

/// The versions in TOML. Four are required; only Turin and later have an FMC.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Versions {
    #[serde(default)]
    fmc: Option<u8>,
    bootloader: u8,
    tee: u8,
    snp: u8,
    microcode: u8,
}

impl<'de> Deserialize<'de> for TcbMinimum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MinimumVisitor)
    }
}

struct MinimumVisitor;

impl<'de> de::Visitor<'de> for MinimumVisitor {
    type Value = TcbMinimum;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a table of bootloader, tee, snp, microcode and fmc, or \"{DANGEROUS_ANY}\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<TcbMinimum, E> {
        match text == DANGEROUS_ANY {
            true => Ok(TcbMinimum::DangerousAny),
            false => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<TcbMinimum, A::Error> {
        let wire = Versions::deserialize(de::value::MapAccessDeserializer::new(map))?;
        let Versions { fmc, bootloader, tee, snp, microcode } = wire;
        Ok(TcbMinimum::AtLeast(Tcb { fmc, bootloader, tee, snp, microcode }))
    }
}

impl fmt::Display for TcbMinimum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TcbMinimum::AtLeast(tcb) => f.write_str(&tcb.to_string()),
            TcbMinimum::DangerousAny => f.write_str(DANGEROUS_ANY),
        }
    }
}

//! The product lines, and how each of them writes its security versions.

use serde::{Deserialize, Serialize};

/// A line of AMD processors; each has its own root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Product {
    /// EPYC 7003.
    #[default]
    Milan,
    /// EPYC 9004.
    Genoa,
    /// EPYC 9005: chip identifiers of 8 bytes, and a security version of the FMC.
    Turin,
}

impl Product {
    /// Every line that can be simulated.
    pub const ALL: [Self; 3] = [Self::Milan, Self::Genoa, Self::Turin];

    /// The name in certificates and in the paths of the Key Distribution Service.
    pub fn name(self) -> &'static str {
        match self {
            Self::Milan => "Milan",
            Self::Genoa => "Genoa",
            Self::Turin => "Turin",
        }
    }

    /// The line with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|product| product.name() == name)
    }

    /// The number of bytes of the chip identifier that count; the rest of the report's field is
    /// zero.
    pub fn chip_id_length(self) -> usize {
        match self {
            Self::Milan | Self::Genoa => 64,
            Self::Turin => 8,
        }
    }

    /// Family, model and stepping, as CPUID gives them and reports from version 3 on hold them.
    pub(crate) fn cpuid(self) -> [u8; 3] {
        match self {
            Self::Milan => [0x19, 0x01, 1],
            Self::Genoa => [0x19, 0x11, 1],
            Self::Turin => [0x1a, 0x02, 1],
        }
    }

    /// The security versions of the simulated chip.
    pub(crate) fn tcb(self) -> SnpTcb {
        let (fmc, bootloader, snp, microcode) = match self {
            Self::Milan => (0, 4, 24, 219),
            Self::Genoa => (0, 10, 23, 84),
            Self::Turin => (1, 1, 4, 88),
        };
        SnpTcb { fmc, bootloader, tee: 0, snp, microcode }
    }
}

/// The key that signs reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SnpSigner {
    /// The chip's own key, under the ASK.
    #[default]
    Vcek,
    /// A key that a cloud provider loaded, under the ASVK.
    Vlek,
}

/// The security versions of a platform (TCB_VERSION).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnpTcb {
    /// The first mutable code (FMC); from Turin on.
    pub fmc: u8,
    /// The boot loader of the secure processor.
    pub bootloader: u8,
    /// The operating system of the secure processor.
    pub tee: u8,
    /// The SNP firmware.
    pub snp: u8,
    /// The microcode.
    pub microcode: u8,
}

impl SnpTcb {
    /// The 8 bytes of a report's field.
    pub fn to_bytes(self, product: Product) -> [u8; 8] {
        let Self { fmc, bootloader, tee, snp, microcode } = self;
        match product {
            Product::Milan | Product::Genoa => [bootloader, tee, 0, 0, 0, 0, snp, microcode],
            Product::Turin => [fmc, bootloader, tee, snp, 0, 0, 0, microcode],
        }
    }
}

//! AMD's product lines, and how each writes its security versions.

use core::fmt;

/// A line of processors; each has a root of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Product {
    /// EPYC 7003.
    Milan,
    /// EPYC 9004 and 8004.
    Genoa,
    /// EPYC 9005.
    Turin,
}

impl Product {
    /// Every line.
    pub const ALL: [Product; 3] = [Product::Milan, Product::Genoa, Product::Turin];

    /// The name of the line as AMD's certificates and Key Distribution Service spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Product::Milan => "Milan",
            Product::Genoa => "Genoa",
            Product::Turin => "Turin",
        }
    }

    /// The line of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|product| product.as_str() == name)
    }

    /// The line of a processor with this family and model (CPUID leaf 1, extended fields added).
    pub fn from_cpuid(family: u8, model: u8) -> Option<Self> {
        match (family, model) {
            (0x19, 0x00..=0x0f) => Some(Product::Milan),
            (0x19, 0x10..=0x1f | 0xa0..=0xaf) => Some(Product::Genoa),
            (0x1a, 0x00..=0x11) => Some(Product::Turin),
            _ => None,
        }
    }

    /// Bytes of a chip identifier that count; the rest of a report's field is zero.
    pub fn chip_id_length(self) -> usize {
        match self {
            Product::Milan | Product::Genoa => 64,
            Product::Turin => 8,
        }
    }

    /// Splits the 8 bytes of a `TCB_VERSION`.
    pub fn tcb(self, bytes: &[u8; 8]) -> Tcb {
        match (self, *bytes) {
            (Product::Milan | Product::Genoa, [bootloader, tee, _, _, _, _, snp, microcode]) => {
                Tcb { fmc: None, bootloader, tee, snp, microcode }
            }
            (Product::Turin, [fmc, bootloader, tee, snp, _, _, _, microcode]) => {
                Tcb { fmc: Some(fmc), bootloader, tee, snp, microcode }
            }
        }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Security versions of a platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcb {
    /// Version of the first mutable code; from Turin on.
    pub fmc: Option<u8>,
    /// Version of the secure processor's boot loader.
    pub bootloader: u8,
    /// Version of the secure processor's operating system.
    pub tee: u8,
    /// Version of the SNP firmware.
    pub snp: u8,
    /// Version of the lowest microcode of all cores.
    pub microcode: u8,
}

impl fmt::Display for Tcb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fmc, bootloader, tee, snp, microcode } = self;
        if let Some(fmc) = fmc {
            write!(f, "fmc {fmc}, ")?;
        }
        write!(f, "bootloader {bootloader}, tee {tee}, snp {snp}, microcode {microcode}")
    }
}

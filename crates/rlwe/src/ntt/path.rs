//! The implementations of a transform, chosen by the machine's instructions.

use std::fmt;

use crate::modulus::Modulus;

/// An implementation of the transforms. All of them compute the same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NttPath {
    /// 64-bit integers, on every machine.
    Portable,
    /// AVX-512 with products of 64 bits: any modulus.
    Avx512,
    /// AVX-512 with `vpmadd52`: moduli below 2^50.
    Ifma,
}

impl NttPath {
    /// The paths that this machine supports for a modulus, fastest last.
    pub fn available(modulus: Modulus) -> Vec<NttPath> {
        let mut paths = vec![NttPath::Portable, NttPath::Avx512, NttPath::Ifma];
        paths.retain(|path| path.supports_modulus(modulus) && path.is_supported());
        paths
    }

    /// The name of the path.
    pub fn name(self) -> &'static str {
        match self {
            NttPath::Portable => "portable",
            NttPath::Avx512 => "avx512",
            NttPath::Ifma => "avx512-ifma",
        }
    }
}

impl fmt::Display for NttPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl NttPath {
    /// Returns whether values below 4q fit this path's words.
    fn supports_modulus(self, modulus: Modulus) -> bool {
        match self {
            NttPath::Portable | NttPath::Avx512 => true,
            NttPath::Ifma => modulus.bits() <= 50,
        }
    }

    /// Returns whether this machine has the instructions of this path.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn is_supported(self) -> bool {
        let both = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq");
        match self {
            NttPath::Portable => true,
            NttPath::Avx512 => both,
            NttPath::Ifma => both && is_x86_feature_detected!("avx512ifma"),
        }
    }

    /// Returns whether this machine has the instructions of this path.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn is_supported(self) -> bool {
        self == NttPath::Portable
    }

    /// Converts floor(w·2^64 / q) to the quotient that this path multiplies with. `vpmadd52` works
    /// on halves of 52 bits, so its path needs floor(w·2^52 / q).
    pub(super) fn convert_quotient(self, quotient: u64) -> u64 {
        match self {
            NttPath::Portable | NttPath::Avx512 => quotient,
            NttPath::Ifma => quotient >> 12,
        }
    }
}

//! The code that runs a transform, by what the machine has.

use std::fmt;

use crate::modulus::Modulus;

/// The code that runs the transforms. All paths give the same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// 64-bit integers, on every machine.
    Portable,
    /// AVX-512 with products of 64 bits: any modulus.
    Avx512,
    /// AVX-512 with `vpmadd52`: moduli below 2^50.
    Ifma,
}

impl Path {
    /// The paths that this machine has for a modulus, fastest last.
    pub fn available(modulus: Modulus) -> Vec<Path> {
        let mut paths = vec![Path::Portable, Path::Avx512, Path::Ifma];
        paths.retain(|path| path.takes(modulus) && path.is_here());
        paths
    }

    /// The name of the path.
    pub fn name(self) -> &'static str {
        match self {
            Path::Portable => "portable",
            Path::Avx512 => "avx512",
            Path::Ifma => "avx512-ifma",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl Path {
    /// Returns whether values below 4q fit the words of this path.
    fn takes(self, modulus: Modulus) -> bool {
        match self {
            Path::Portable | Path::Avx512 => true,
            Path::Ifma => modulus.bits() <= 50,
        }
    }

    /// Returns whether this machine has the instructions of this path.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn is_here(self) -> bool {
        let both = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq");
        match self {
            Path::Portable => true,
            Path::Avx512 => both,
            Path::Ifma => both && is_x86_feature_detected!("avx512ifma"),
        }
    }

    /// Returns whether this machine has the instructions of this path.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn is_here(self) -> bool {
        self == Path::Portable
    }

    /// The quotient that this path multiplies with, from floor(w·2^64 / q): `vpmadd52` gives the
    /// upper of 52-bit halves, so that path needs floor(w·2^52 / q).
    pub(super) fn quotient(self, quotient: u64) -> u64 {
        match self {
            Path::Portable | Path::Avx512 => quotient,
            Path::Ifma => quotient >> 12,
        }
    }
}

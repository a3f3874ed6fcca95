//! The constants of a transform: powers of its root and the factors of its last stage.

use super::path::NttPath;
use crate::modulus::{Modulus, ShoupFactor};

/// The constants of the transforms of one degree and modulus.
#[derive(Clone)]
pub(super) struct StageConstants {
    pub(super) n: usize,
    pub(super) modulus: Modulus,
    pub(super) path: NttPath,
    pub(super) forward: RootPowers,
    pub(super) inverse: RootPowers,
    /// n^−1, and n^−1 times the root of the last inverse stage.
    pub(super) scale: [ScaleFactor; 2],
}

/// Powers of a root in bit-reversed order, with the quotients that the path multiplies with.
#[derive(Clone)]
pub(super) struct RootPowers {
    pub(super) values: Vec<u64>,
    pub(super) quotients: Vec<u64>,
}

/// A factor and the quotient that the path multiplies with.
#[derive(Clone, Copy)]
pub(super) struct ScaleFactor {
    pub(super) value: u64,
    pub(super) quotient: u64,
}

impl RootPowers {
    pub(super) fn new(n: usize, modulus: Modulus, root: u64, path: NttPath) -> RootPowers {
        let mut values = vec![0; n];
        let mut power = 1;
        for i in 0..n {
            values[reverse_bits(i, n)] = power;
            power = modulus.mul(power, root);
        }
        let quotient = |&value: &u64| path.convert_quotient(modulus.shoup_factor(value).quotient);
        let quotients = values.iter().map(quotient).collect();
        RootPowers { values, quotients }
    }

    /// The root at `index` with its quotient, as a factor of Shoup's product.
    pub(super) fn root(&self, index: usize) -> ShoupFactor {
        ShoupFactor { value: self.values[index], quotient: self.quotients[index] }
    }
}

/// i with its log2(n) bits in reverse order.
pub(super) fn reverse_bits(i: usize, n: usize) -> usize {
    i.reverse_bits() >> (usize::BITS - n.trailing_zeros())
}

//! Many numbers in one register, and tables over the hypercube.
//!
//! Packed tables are in *lane order*: of `W·m` values the one at `x` is in lane `x / m` of register `x mod m`.
//! Neighbours `2y` and `2y + 1`, which every round of a sumcheck joins, are then in the same lane of
//! neighbouring registers, until one register is left; its lanes are the values in plain order.

use std::{
    iter::Sum,
    ops::{Add, AddAssign, Mul, Sub},
};

use openvm_stark_sdk::config::baby_bear_poseidon2::{EF, F};
use p3_field::{
    Field, PackedFieldExtension, PackedValue, PrimeCharacteristicRing,
    extension::PackedBinomialExtensionField,
};

/// Numbers of the base field, one in each lane.
pub(crate) type P = <F as Field>::Packing;
/// Numbers of the extension field, one in each lane.
pub(crate) type PE = PackedBinomialExtensionField<F, P, 4>;
/// Lanes of a register; a power of two.
pub(crate) const W: usize = <P as PackedValue>::WIDTH;
/// Logarithm of [`W`] to base 2.
pub(crate) const LOG_W: usize = W.trailing_zeros() as usize;

/// One number of the extension field, or a register of them: sumchecks run on both.
pub(crate) trait SumcheckValue:
    Copy
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Mul<EF, Output = Self>
    + AddAssign
    + Sum
    + PrimeCharacteristicRing
    + From<EF>
{
    /// The sum over the lanes.
    fn sum_lanes(self) -> EF;

    /// Makes a constant of the base field.
    fn from_base(value: F) -> Self;
}

impl SumcheckValue for EF {
    fn sum_lanes(self) -> EF {
        self
    }

    fn from_base(value: F) -> Self {
        value.into()
    }
}

impl SumcheckValue for PE {
    fn sum_lanes(self) -> EF {
        (0..W).map(|lane| self.extract(lane)).sum()
    }

    fn from_base(value: F) -> Self {
        PE::from(P::from(value))
    }
}

/// Interpolates at `r` between `a`, where the variable is 0, and `b`, where it is 1.
pub(crate) fn interpolate<V: SumcheckValue>(a: V, b: V, r: EF) -> V {
    a + (b - a) * r
}

/// `eq(xs, y)` for every `y` of the hypercube, bit `i` of `y` standing next to `xs[i]`.
pub(crate) fn eq_table(xs: &[EF]) -> Vec<EF> {
    let mut table = Vec::with_capacity(1 << xs.len());
    table.push(EF::ONE);
    for &x in xs {
        let high: Vec<EF> = table.iter().map(|value| *value * x).collect();
        for (low, high) in table.iter_mut().zip(&high) {
            *low -= *high;
        }
        table.extend(high);
    }
    table
}

/// Returns the table without its lowest variable.
pub(crate) fn drop_lowest_variable(table: &[EF]) -> Vec<EF> {
    table.as_chunks::<2>().0.iter().map(|[low, high]| *low + *high).collect()
}

/// `eq(xs, lane)` for each lane; there are `LOG_W` of them.
pub(crate) fn eq_over_lanes(xs: &[EF]) -> PE {
    PE::from_ext_slice(&eq_table(xs))
}

/// `eq(x, y)` of one variable.
pub(crate) fn eq_single(x: EF, y: EF) -> EF {
    let both = x * y;
    both + both - x - y + EF::ONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_sums_to_one_and_loses_its_lowest_variable() {
        let xs: Vec<EF> = (3..8).map(EF::from_u32).collect();
        let table = eq_table(&xs);
        assert_eq!(table.iter().copied().sum::<EF>(), EF::ONE);
        assert_eq!(drop_lowest_variable(&table), eq_table(&xs[1..]));
        assert_eq!(table[1], xs[0] * xs[1..].iter().map(|x| EF::ONE - *x).product::<EF>());
    }
}

//! The identity a * b = q * n + r, column by column.

use super::number::{LIMBS, Number};
use crate::machine::{Int256, U256};

/// Columns of a product.
const COLUMNS: usize = 2 * LIMBS - 1;

/// Whether `a * b` is `q * n + r` over the integers.
pub(super) fn product_is<M: Int256>(
    a: &Number,
    b: &Number,
    q: &Number,
    n: &Number,
    r: &Number,
) -> bool {
    let mut sum = Sum::<M>::new();
    for column in 0..COLUMNS {
        let (low, high) = span(column);
        sum.add_products(&a.0[low..high], &b.0[column + 1 - high..column + 1 - low]);
        if !sum.finish_column(column, q, n, r) {
            return false;
        }
    }
    sum.is_zero()
}

/// Whether `a * a` is `q * n + r` over the integers; half the products of [`product_is`].
pub(super) fn square_is<M: Int256>(a: &Number, q: &Number, n: &Number, r: &Number) -> bool {
    let mut doubles = Number::ZERO;
    for (double, limb) in doubles.0.iter_mut().zip(&a.0) {
        M::double(double, limb);
    }
    let mut sum = Sum::<M>::new();
    for column in 0..COLUMNS {
        let (low, high) = span(column);
        // The pairs of which the first limb is the lower one; the others are their mirror image.
        let half = column.div_ceil(2);
        sum.add_products(&doubles.0[low..half], &a.0[column + 1 - half..high]);
        if column % 2 == 0 {
            sum.add_products(&a.0[half..half + 1], &a.0[half..half + 1]);
        }
        if !sum.finish_column(column, q, n, r) {
            return false;
        }
    }
    sum.is_zero()
}

/// The limbs that have a partner in this column: from the first, up to the second.
fn span(column: usize) -> (usize, usize) {
    (column.saturating_sub(LIMBS - 1), LIMBS.min(column + 1))
}

/// The running sum of a column, signed; a carry between columns.
struct Sum<M> {
    sum: U256,
    term: U256,
    machine: core::marker::PhantomData<M>,
}

impl<M: Int256> Sum<M> {
    fn new() -> Self {
        Self { sum: U256::ZERO, term: U256::ZERO, machine: core::marker::PhantomData }
    }

    /// Adds `a[0] * b[last] + … + a[last] * b[0]`.
    #[inline(always)]
    fn add_products(&mut self, a: &[U256], b: &[U256]) {
        for (a, b) in a.iter().zip(b.iter().rev()) {
            M::mul(&mut self.term, a, b);
            M::add(&mut self.sum, &self.term);
        }
    }

    #[inline(always)]
    fn sub_products(&mut self, a: &[U256], b: &[U256]) {
        for (a, b) in a.iter().zip(b.iter().rev()) {
            M::mul(&mut self.term, a, b);
            M::sub(&mut self.sum, &self.term);
        }
    }

    /// Takes away this column of q * n + r; true where a multiple of 2^124 is left, which becomes
    /// the carry.
    #[inline(always)]
    fn finish_column(&mut self, column: usize, q: &Number, n: &Number, r: &Number) -> bool {
        let (low, high) = span(column);
        self.sub_products(&q.0[low..high], &n.0[column + 1 - high..column + 1 - low]);
        if let Some(limb) = r.0.get(column) {
            M::sub(&mut self.sum, limb);
        }
        let [w0, w1, w2, w3, ..] = self.sum.0;
        M::shift_right_124(&mut self.sum);
        w0 | w1 | w2 | w3 << 4 == 0
    }

    fn is_zero(&self) -> bool {
        self.sum == U256::ZERO
    }
}

//! The identity a * b = q * n + r, column by column.
//!
//! Each column is a function of its own with constant bounds, so that the compiler unrolls it: in the
//! zkVM a counter and a branch cost as much as the product that they count.

use super::number::{LIMBS, Number};
use crate::machine::{Int256, U256};

/// Columns of a product.
const COLUMNS: usize = 2 * LIMBS - 1;

/// The numbers of the identity. For a square, `b` is twice `a`, limb by limb.
pub(super) struct Identity<'a> {
    pub(super) a: &'a Number,
    pub(super) b: &'a Number,
    pub(super) q: &'a Number,
    pub(super) n: &'a Number,
    pub(super) r: &'a Number,
}

/// What every column leaves below its carry, or-ed.
macro_rules! columns {
    ($numbers:expr, $sum:expr, $machine:ident, $factors:ident) => {
        columns!($numbers, $sum, $machine, $factors:
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
    };
    ($numbers:expr, $sum:expr, $machine:ident, $factors:ident: $($column:literal)*) => {{
        const _: () = assert!(COLUMNS == [$($column),*].len());
        let mut rest = 0;
        $(rest |= column::<$machine, $factors, $column>($numbers, $sum);)*
        rest
    }};
}

/// Whether `a * b` is `q * n + r` over the integers.
pub(super) fn product_is<M: Int256>(numbers: &Identity<'_>) -> bool {
    let mut sum = Sum::new();
    let rest = columns!(numbers, &mut sum, M, Product);
    rest == 0 && sum.is_zero()
}

/// Whether `a * a` is `q * n + r` over the integers, where `b` is the double of `a`; half the
/// products of [`product_is`].
pub(super) fn square_is<M: Int256>(numbers: &Identity<'_>) -> bool {
    let mut sum = Sum::new();
    let rest = columns!(numbers, &mut sum, M, Square);
    rest == 0 && sum.is_zero()
}

/// The pairs of limbs of `a` and `b` that meet in a column.
trait Factors {
    /// Adds the products of the pairs.
    fn add<M: Int256, const COLUMN: usize>(numbers: &Identity<'_>, sum: &mut Sum);
}

struct Product;

impl Factors for Product {
    #[inline(always)]
    fn add<M: Int256, const COLUMN: usize>(numbers: &Identity<'_>, sum: &mut Sum) {
        let (low, high) = limb_range(COLUMN);
        for at in low..high {
            sum.add_product::<M>(
                at == 0 && COLUMN == 0,
                &numbers.a.0[at],
                &numbers.b.0[COLUMN - at],
            );
        }
    }
}

struct Square;

impl Factors for Square {
    #[inline(always)]
    fn add<M: Int256, const COLUMN: usize>(numbers: &Identity<'_>, sum: &mut Sum) {
        let (low, _) = limb_range(COLUMN);
        // The pairs of which the first limb is the lower one, doubled for their mirror image.
        for at in low..COLUMN.div_ceil(2) {
            sum.add_product::<M>(false, &numbers.b.0[at], &numbers.a.0[COLUMN - at]);
        }
        if COLUMN.is_multiple_of(2) {
            let middle = &numbers.a.0[COLUMN / 2];
            sum.add_product::<M>(COLUMN == 0, middle, middle);
        }
    }
}

/// The limbs that have a partner in this column: from the first, up to the second.
const fn limb_range(column: usize) -> (usize, usize) {
    let low = column.saturating_sub(LIMBS - 1);
    (low, column + 1 - low)
}

/// Adds a column of a * b, takes away that of q * n and r. What is left must be a multiple of 2^124:
/// it becomes the carry, and the low 124 bits, which must be zero, are returned, or-ed.
#[inline(always)]
fn column<M: Int256, F: Factors, const COLUMN: usize>(
    numbers: &Identity<'_>,
    sum: &mut Sum,
) -> u32 {
    F::add::<M, COLUMN>(numbers, sum);
    let (low, high) = limb_range(COLUMN);
    for at in low..high {
        M::mul(&mut sum.term, &numbers.q.0[at], &numbers.n.0[COLUMN - at]);
        M::sub(&mut sum.sum, &sum.term);
    }
    if COLUMN < LIMBS {
        M::sub(&mut sum.sum, &numbers.r.0[COLUMN]);
    }
    let [w0, w1, w2, w3, ..] = sum.sum.0;
    M::shift_right_124(&mut sum.sum);
    w0 | w1 | w2 | w3 << 4
}

/// The running sum of a column, signed; a carry between columns.
struct Sum {
    sum: U256,
    term: U256,
}

impl Sum {
    fn new() -> Self {
        Self { sum: U256::ZERO, term: U256::ZERO }
    }

    #[inline(always)]
    fn add_product<M: Int256>(&mut self, first: bool, a: &U256, b: &U256) {
        if first {
            M::mul(&mut self.sum, a, b);
        } else {
            M::mul(&mut self.term, a, b);
            M::add(&mut self.sum, &self.term);
        }
    }

    /// Whether nothing is left above the last column.
    fn is_zero(&self) -> bool {
        self.sum == U256::ZERO
    }
}

//! The rounds after the first: each halves the blocks of every table that has any left.

use openvm_stark_sdk::config::baby_bear_poseidon2::{EF, F};
use p3_field::{
    Field, PackedFieldExtension, PackedValue, PrimeCharacteristicRing, TwoAdicField,
    batch_multiplicative_inverse,
};
use rayon::prelude::*;

use crate::{
    forms::TableForms,
    lanes::{LOG_W, P, PE, SumcheckValue, W, eq_over_lanes, eq_table, interpolate},
    table::{SELECTORS, TraceTable},
};

/// Fewer rows than these are not shared out among threads.
const ROWS_MIN: usize = 16;

/// A table whose blocks were joined: rows of all columns, then the selectors.
pub(crate) struct FoldedTable {
    rows: FoldedRows,
    /// Number of columns and selectors.
    width: usize,
}

enum FoldedRows {
    /// Rows in lane order.
    Packed(Vec<PE>),
    Plain(Vec<EF>),
}

/// Weights of the rows of a block at the first challenge: Lagrange's, for the subgroup.
fn lagrange_weights(l_skip: usize, r: EF) -> Vec<EF> {
    let points: Vec<F> = F::two_adic_generator(l_skip).powers().take(1 << l_skip).collect();
    let distances: Vec<EF> = points.iter().map(|point| r - EF::from(*point)).collect();
    let size = EF::from_usize(1 << l_skip);
    let all = (r.exp_power_of_2(l_skip) - EF::ONE) * size.inverse();
    let inverses = batch_multiplicative_inverse(&distances);
    inverses.iter().zip(points).map(|(inverse, point)| all * *inverse * point).collect()
}

impl FoldedTable {
    /// Joins the `2^l_skip` rows of each block at `r`.
    pub(crate) fn new(table: &TraceTable<'_>, l_skip: usize, r: EF) -> Self {
        let weights = lagrange_weights(l_skip, r);
        let blocks = 1usize << (table.log_lifted - l_skip);
        let width = table.width + SELECTORS;
        let rows = match blocks >= 2 * W {
            true => FoldedRows::Packed(fold_blocks_packed(table, l_skip, &weights, blocks / W)),
            false => FoldedRows::Plain(
                (0..blocks).flat_map(|block| fold_block(table, l_skip, &weights, block)).collect(),
            ),
        };
        Self { rows, width }
    }

    /// For `X` from 1 to `degree` the sums of the three forms over what is left, weighted by `eq` at `xs`, the
    /// variables after this round's: numerators, denominators, constraints.
    pub(crate) fn round_sums(
        &self,
        table: &TraceTable<'_>,
        forms: &TableForms,
        xs: &[EF],
        degree: usize,
    ) -> Vec<[EF; 3]> {
        match &self.rows {
            FoldedRows::Packed(rows) => {
                let (lows, tops) = xs.split_at(xs.len() - LOG_W);
                let tops = eq_over_lanes(tops);
                let sums = sum_row_pairs(rows, self.width, table, forms, &eq_table(lows), degree);
                sums.into_iter().map(|sums| sums.map(|sum| (sum * tops).sum_lanes())).collect()
            }
            FoldedRows::Plain(rows) => {
                sum_row_pairs(rows, self.width, table, forms, &eq_table(xs), degree)
            }
        }
    }

    /// Returns the three forms of the last row.
    pub(crate) fn evaluate_forms(&self, table: &TraceTable<'_>, forms: &TableForms) -> [EF; 3] {
        evaluate_row(self.last_row(), table, forms, &mut Vec::new(), &mut Vec::new())
    }

    /// The last row: one number for each column, and the selectors.
    pub(crate) fn last_row(&self) -> &[EF] {
        match &self.rows {
            FoldedRows::Plain(row) if row.len() == self.width => row,
            _ => unreachable!("rows are left to be joined"),
        }
    }

    /// Joins pairs of rows at `r`; the last row stays.
    pub(crate) fn fold_pairs(&mut self, r: EF) {
        let width = self.width;
        let rows = match &self.rows {
            FoldedRows::Plain(rows) if rows.len() == width => return,
            FoldedRows::Plain(rows) => FoldedRows::Plain(fold_rows(rows, width, r)),
            FoldedRows::Packed(rows) => {
                let rows = fold_rows(rows, width, r);
                match rows.len() == width {
                    true => FoldedRows::Plain(
                        (0..W).flat_map(|lane| rows.iter().map(move |n| n.extract(lane))).collect(),
                    ),
                    false => FoldedRows::Packed(rows),
                }
            }
        };
        self.rows = rows;
    }
}

fn fold_block(table: &TraceTable<'_>, l_skip: usize, weights: &[EF], block: usize) -> Vec<EF> {
    let joined = |at: &dyn Fn(usize) -> F| -> EF {
        weights.iter().enumerate().map(|(row, weight)| *weight * at((block << l_skip) + row)).sum()
    };
    let columns = table.views.iter().flat_map(|view| {
        (0..view.matrix.width).map(move |column| joined(&|row| view.value_at(row, column)))
    });
    let selectors = (0..SELECTORS).map(|which| joined(&|row| table.selector_value(which, row)));
    columns.chain(selectors).collect()
}

/// Joins blocks in lane order: gives `each` rows of registers.
fn fold_blocks_packed(
    table: &TraceTable<'_>,
    l_skip: usize,
    weights: &[EF],
    each: usize,
) -> Vec<PE> {
    let weights: Vec<PE> = weights.iter().map(|weight| PE::from(*weight)).collect();
    let width = table.width + SELECTORS;
    let mut rows = vec![PE::ZERO; each * width];
    rows.par_chunks_exact_mut(width).enumerate().with_min_len(ROWS_MIN).for_each(|(at, into)| {
        for (row, weight) in weights.iter().enumerate() {
            let of = |lane: usize| ((lane * each + at) << l_skip) + row;
            for view in &table.views {
                let into = &mut into[view.first..][..view.matrix.width];
                for (column, sum) in into.iter_mut().enumerate() {
                    *sum += *weight * P::from_fn(|lane| view.value_at(of(lane), column));
                }
            }
            for (which, sum) in into[table.width..].iter_mut().enumerate() {
                *sum += *weight * P::from_fn(|lane| table.selector_value(which, of(lane)));
            }
        }
    });
    rows
}

fn fold_rows<V: SumcheckValue>(rows: &[V], width: usize, r: EF) -> Vec<V> {
    let mut joined = vec![V::ZERO; rows.len() / 2];
    let pairs = rows.par_chunks_exact(2 * width).with_min_len(ROWS_MIN);
    joined.par_chunks_exact_mut(width).zip(pairs).for_each(|(to, pair)| {
        let (zero, one) = pair.split_at(width);
        for (to, (zero, one)) in to.iter_mut().zip(zero.iter().zip(one)) {
            *to = interpolate(*zero, *one, r);
        }
    });
    joined
}

/// Returns numerators, denominators and constraints of one row.
fn evaluate_row<V: SumcheckValue>(
    row: &[V],
    table: &TraceTable<'_>,
    forms: &TableForms,
    numbers: &mut Vec<V>,
    steps: &mut Vec<V>,
) -> [V; 3] {
    numbers.clear();
    numbers.extend(table.program.columns.iter().map(|place| row[*place]));
    table.program.run(numbers, &row[table.width..], V::from_base, steps);
    let lookups = match table.lookups.is_empty() {
        true => [V::ZERO; 2],
        false => [forms.numerators.evaluate(steps), forms.denominators.evaluate(steps)],
    };
    [lookups[0], lookups[1], forms.constraints.evaluate(steps)]
}

fn sum_row_pairs<V: SumcheckValue>(
    rows: &[V],
    width: usize,
    table: &TraceTable<'_>,
    forms: &TableForms,
    weights: &[EF],
    degree: usize,
) -> Vec<[V; 3]> {
    struct SumScratch<V> {
        row: Vec<V>,
        numbers: Vec<V>,
        steps: Vec<V>,
        sums: Vec<[V; 3]>,
    }
    let work = || SumScratch {
        row: vec![V::ZERO; width],
        numbers: Vec::new(),
        steps: Vec::new(),
        sums: vec![[V::ZERO; 3]; degree],
    };
    let add = |mut work: SumScratch<V>, (pair, weight): (&[V], &EF)| {
        let (zero, one) = pair.split_at(width);
        work.row.copy_from_slice(one);
        for at in 0..degree {
            if at > 0 {
                let slopes = zero.iter().zip(one).map(|(zero, one)| *one - *zero);
                work.row.iter_mut().zip(slopes).for_each(|(number, slope)| *number += slope);
            }
            let SumScratch { row, numbers, steps, sums } = &mut work;
            let values = evaluate_row(row, table, forms, numbers, steps);
            for (sum, value) in sums[at].iter_mut().zip(values) {
                *sum += value * *weight;
            }
        }
        work
    };
    let none = || vec![[V::ZERO; 3]; degree];
    let pairs = rows.par_chunks_exact(2 * width).zip(weights).with_min_len(ROWS_MIN);
    pairs.fold(work, add).map(|work| work.sums).reduce(none, |mut left, right| {
        for (left, right) in left.iter_mut().zip(right) {
            left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
        }
        left
    })
}

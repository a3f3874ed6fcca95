//! The fractions of all lookups: `count / (alpha + message)`, one for each row and lookup.

use openvm_stark_backend::prover::stacked_pcs::StackedLayout;
use openvm_stark_sdk::config::baby_bear_poseidon2::{EF, F};
use p3_field::{BasedVectorSpace, Field, PackedValue, PrimeCharacteristicRing};
use rayon::prelude::*;

use crate::{
    lanes::{P, PE, W},
    table::{SELECTORS, TraceTable},
};

/// Coefficients of an element of the extension field.
const D: usize = 4;
/// Rows that are worked on at once.
const ROWS: usize = 1024;

/// Numerators and denominators, in plain order; what no lookup fills is `0 / alpha`.
pub(crate) struct LookupFractions {
    pub(crate) numerators: Vec<F>,
    /// One vector for each coefficient of an element.
    pub(crate) denominators: [Vec<F>; D],
}

/// Part of a table's leaves: for each lookup numerators, then denominators, of the rows from `row` on.
struct FractionTask<'l, 't> {
    table: &'l TraceTable<'t>,
    row: usize,
    out: Vec<[&'l mut [F]; 1 + D]>,
}

impl LookupFractions {
    /// Fills `2^log_leaves` of them. `beta_powers` reach as far as the longest message and one further.
    pub(crate) fn new(
        tables: &[TraceTable<'_>],
        layout: &StackedLayout,
        log_leaves: usize,
        alpha: EF,
        beta_powers: &[EF],
    ) -> Self {
        let count = 1 << log_leaves;
        let mut numerators = vec![F::ZERO; count];
        let parts: &[F] = alpha.as_basis_coefficients_slice();
        let mut denominators: [Vec<F>; D] = std::array::from_fn(|part| vec![parts[part]; count]);
        let [d0, d1, d2, d3] = &mut denominators;
        let mut rest: [&mut [F]; 1 + D] = [&mut numerators, d0, d1, d2, d3];
        let mut jobs = Vec::new();
        let mut slices: Vec<Vec<[&mut [F]; 1 + D]>> = tables.iter().map(|_| Vec::new()).collect();
        for (table, _, slice) in &layout.sorted_cols {
            // The layout leaves no gap: each slice begins where the last one ended.
            let length = slice.len(0);
            let taken = rest.each_mut().map(|part| {
                let (head, tail) = std::mem::take(part).split_at_mut(length);
                *part = tail;
                head
            });
            slices[*table].push(taken);
        }
        for (table, lookups) in tables.iter().zip(slices) {
            let length = lookups.first().map_or(0, |parts| parts[0].len());
            let mut chunks: Vec<FractionTask<'_, '_>> = (0..length.div_ceil(ROWS))
                .map(|chunk| FractionTask { table, row: chunk * ROWS, out: Vec::new() })
                .collect();
            for parts in lookups {
                let [n, d0, d1, d2, d3] = parts.map(|part| part.chunks_mut(ROWS));
                let all = n.zip(d0).zip(d1).zip(d2).zip(d3);
                for (job, ((((n, d0), d1), d2), d3)) in chunks.iter_mut().zip(all) {
                    job.out.push([n, d0, d1, d2, d3]);
                }
            }
            jobs.extend(chunks);
        }
        jobs.into_par_iter().for_each(|job| job.compute_rows(alpha, beta_powers));
        Self { numerators, denominators }
    }
}

impl FractionTask<'_, '_> {
    fn compute_rows(mut self, alpha: EF, beta_powers: &[EF]) {
        let table = self.table;
        let packed_powers: Vec<PE> = beta_powers.iter().map(|power| PE::from(*power)).collect();
        // A table of fewer rows than are skipped at once stands there several times.
        let rows = self.out.first().map_or(0, |parts| parts[0].len());
        let times = (1 << table.log_lifted) / table.height;
        let weight = P::from(F::from_usize(times).inverse());
        let columns: Vec<_> =
            table.lookup_program.columns.iter().map(|place| table.locate_column(*place)).collect();
        let (mut numbers, mut values) = (vec![P::ZERO; columns.len()], Vec::new());
        for at in (0..rows).step_by(W) {
            let row = self.row + at;
            for (number, (view, column)) in numbers.iter_mut().zip(&columns) {
                *number = P::from_fn(|lane| view.value_at(row + lane, *column));
            }
            let selectors: [P; SELECTORS] = std::array::from_fn(|which| {
                P::from_fn(|lane| table.selector_value(which, row + lane))
            });
            table.lookup_program.run(&numbers, &selectors, P::from, &mut values);
            let width = W.min(rows - at);
            for (lookup, out) in table.lookups_alone.iter().zip(&mut self.out) {
                let numerator = values[lookup.count as usize] * weight;
                let bus = beta_powers[lookup.message.len()] * lookup.bus;
                let mut denominator = PE::from(alpha + bus);
                for (step, power) in lookup.message.iter().zip(&packed_powers) {
                    denominator += *power * values[*step as usize];
                }
                out[0][at..at + width].copy_from_slice(&numerator.as_slice()[..width]);
                let parts: &[P] = denominator.as_basis_coefficients_slice();
                for (out, part) in out[1..].iter_mut().zip(parts) {
                    out[at..at + width].copy_from_slice(&part.as_slice()[..width]);
                }
            }
        }
    }
}

impl LookupFractions {
    /// Returns numerators and denominators in registers, in lane order.
    pub(crate) fn pack_lanes(&self) -> (Vec<P>, Vec<PE>) {
        let each = self.numerators.len() / W;
        let numerators = (0..each).into_par_iter().map(|at| self.pack_register(0, at, each));
        let denominators = (0..each).into_par_iter().map(|at| {
            PE::from_basis_coefficients_fn(|part| self.pack_register(1 + part, at, each))
        });
        (numerators.collect(), denominators.collect())
    }

    fn pack_register(&self, part: usize, at: usize, each: usize) -> P {
        let from = if part == 0 { &self.numerators } else { &self.denominators[part - 1] };
        P::from_fn(|lane| from[lane * each + at])
    }

    /// Returns numerator and denominator at one place.
    pub(crate) fn fraction_at(&self, at: usize) -> [EF; 2] {
        let denominator = EF::from_basis_coefficients_fn(|part| self.denominators[part][at]);
        [self.numerators[at].into(), denominator]
    }
}

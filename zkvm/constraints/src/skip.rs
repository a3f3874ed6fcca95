//! The first round, over `2^l_skip` rows at once: a polynomial in one variable for each sum.
//!
//! The rows of a block are values of a polynomial on the subgroup of `2^l_skip` elements. It is evaluated on
//! cosets of it, the program is run at each of their points, and the sums over all blocks are interpolated.
//! Lanes are blocks.

use openvm_stark_backend::{poly_common::UnivariatePoly, prover::sumcheck::sumcheck_round0_deg};
use openvm_stark_sdk::config::baby_bear_poseidon2::{EF, F};
use p3_field::{Field, PackedFieldExtension, PackedValue, PrimeCharacteristicRing, TwoAdicField};
use p3_matrix::dense::RowMajorMatrix;
use rayon::prelude::*;

use crate::{
    forms::TableForms,
    lanes::{P, PE, SumcheckValue, W, eq_table},
    table::{MatrixView, SELECTORS, TraceTable},
};

/// The polynomials of one table: numerators, denominators, constraints.
pub(crate) struct FirstRoundPolynomials {
    pub(crate) lookups: [UnivariatePoly<EF>; 2],
    pub(crate) constraints: UnivariatePoly<EF>,
}

/// Powers of the roots that a transform multiplies with, and of the shifts to its cosets.
struct CosetDomain {
    l_skip: usize,
    roots: Vec<F>,
    inverse_roots: Vec<F>,
    /// For each coset the factors of the coefficients, in bit-reversed order.
    shifts: Vec<Vec<F>>,
    cosets: Vec<F>,
}

impl CosetDomain {
    fn new(l_skip: usize, degree: usize) -> Self {
        let size = 1 << l_skip;
        let root = F::two_adic_generator(l_skip);
        let cosets: Vec<F> = F::GENERATOR.powers().skip(1).take(degree).collect();
        let scale = F::from_usize(size).inverse();
        let shifts = cosets.iter().map(|shift| {
            let powers: Vec<F> = shift.shifted_powers(scale).take(size).collect();
            (0..size).map(|at| powers[reverse_bits(at, l_skip)]).collect()
        });
        Self {
            l_skip,
            roots: root.powers().take(size / 2).collect(),
            inverse_roots: root.inverse().powers().take(size / 2).collect(),
            shifts: shifts.collect(),
            cosets,
        }
    }

    /// Transforms values to coefficients times their number, in bit-reversed order. Rows of
    /// `width`.
    fn to_coefficients(&self, rows: &mut [P], width: usize) {
        for log in (1..=self.l_skip).rev() {
            self.butterfly_layer(rows, width, log, &self.inverse_roots, |a, b, root| {
                (a + b, (a - b) * root)
            });
        }
    }

    /// Transforms coefficients in bit-reversed order to values.
    fn to_values(&self, rows: &mut [P], width: usize) {
        for log in 1..=self.l_skip {
            self.butterfly_layer(rows, width, log, &self.roots, |a, b, root| {
                (a + b * root, a - b * root)
            });
        }
    }

    fn butterfly_layer(
        &self,
        rows: &mut [P],
        width: usize,
        log: usize,
        roots: &[F],
        butterfly: impl Fn(P, P, P) -> (P, P),
    ) {
        let half = 1 << (log - 1);
        for block in rows.chunks_exact_mut(2 * half * width) {
            let (low, high) = block.split_at_mut(half * width);
            let pairs = low.chunks_exact_mut(width).zip(high.chunks_exact_mut(width));
            for (at, (low, high)) in pairs.enumerate() {
                let root = P::from(roots[at << (self.l_skip - log)]);
                for (a, b) in low.iter_mut().zip(high) {
                    (*a, *b) = butterfly(*a, *b, root);
                }
            }
        }
    }
}

fn reverse_bits(at: usize, bits: usize) -> usize {
    if bits == 0 { 0 } else { at.reverse_bits() >> (usize::BITS as usize - bits) }
}

/// The work of one task, and its sums: for each coset and point numerators, denominators,
/// constraints.
struct TaskSums {
    coefficients: Vec<P>,
    values: Vec<P>,
    steps: Vec<P>,
    sums: Vec<[PE; 3]>,
}

/// The first round of one table at the point `xs` of its blocks.
pub(crate) fn first_round_polynomials(
    table: &TraceTable<'_>,
    forms: &TableForms,
    l_skip: usize,
    xs: &[EF],
) -> FirstRoundPolynomials {
    let degree = table.degree;
    let has_lookups = !table.lookups.is_empty();
    if degree == 0 {
        let none = || UnivariatePoly::new(vec![]);
        return FirstRoundPolynomials { lookups: [none(), none()], constraints: none() };
    }
    let domain = CosetDomain::new(l_skip, degree);
    let sums = sum_over_blocks(table, forms, &domain, l_skip, xs);
    let of = |which: usize, cosets: usize| -> Vec<EF> {
        let at = |point: usize, coset: usize| sums[(coset << l_skip) + point][which].sum_lanes();
        (0..1 << l_skip)
            .flat_map(|point| (0..cosets).map(move |coset| (point, coset)))
            .map(|(point, coset)| at(point, coset))
            .collect()
    };
    let lookups = [0, 1].map(|which| match has_lookups {
        true => interpolate_cosets(of(which, degree), degree),
        false => UnivariatePoly::new(vec![]),
    });
    let constraints = interpolate_constraints(&domain, of(2, degree - 1), degree);
    FirstRoundPolynomials { lookups, constraints }
}

/// Sums over all blocks: for each coset and point numerators, denominators, constraints.
fn sum_over_blocks(
    table: &TraceTable<'_>,
    forms: &TableForms,
    domain: &CosetDomain,
    l_skip: usize,
    xs: &[EF],
) -> Vec<[PE; 3]> {
    let degree = table.degree;
    let has_lookups = !table.lookups.is_empty();
    let mut weights = eq_table(xs);
    let blocks = weights.len();
    // Lanes without a block weigh nothing.
    weights.resize(blocks.next_multiple_of(W), EF::ZERO);
    let columns: Vec<(MatrixView<'_>, usize)> =
        table.program.columns.iter().map(|place| table.locate_column(*place)).collect();
    let width = columns.len() + SELECTORS;
    let numbers = width << l_skip;
    let work = || TaskSums {
        coefficients: vec![P::ZERO; numbers],
        values: vec![P::ZERO; numbers],
        steps: Vec::new(),
        sums: vec![[PE::ZERO; 3]; degree << l_skip],
    };
    let add = |mut work: TaskSums, (group, weights): (usize, &[EF])| {
        let weight = PE::from_ext_slice(weights);
        fill_block_rows(table, &columns, group * W, l_skip, &mut work.coefficients);
        domain.to_coefficients(&mut work.coefficients, width);
        for (coset, factors) in domain.shifts.iter().enumerate() {
            let rows = work.coefficients.chunks_exact(width).zip(factors);
            for (to, (from, factor)) in work.values.chunks_exact_mut(width).zip(rows) {
                let factor = P::from(*factor);
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from * factor);
            }
            domain.to_values(&mut work.values, width);
            for (point, row) in work.values.chunks_exact(width).enumerate() {
                let (selectors, numbers) = row.split_at(SELECTORS);
                table.program.run(numbers, selectors, P::from, &mut work.steps);
                let sums = &mut work.sums[(coset << l_skip) + point];
                if has_lookups {
                    sums[0] += weight * forms.numerators.evaluate_base(&work.steps);
                    sums[1] += weight * forms.denominators.evaluate_base(&work.steps);
                }
                // On so many cosets the quotient by the subgroup's polynomial is determined.
                if coset + 1 < degree {
                    sums[2] += weight * forms.constraints.evaluate_base(&work.steps);
                }
            }
        }
        work
    };
    let groups = weights.par_chunks(W).enumerate().fold(work, add);
    let none = || vec![[PE::ZERO; 3]; degree << l_skip];
    groups.map(|work| work.sums).reduce(none, |mut left, right| {
        for (left, right) in left.iter_mut().zip(right) {
            left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
        }
        left
    })
}

/// Fills a block of rows for each lane, columns next to each other: selectors first.
fn fill_block_rows(
    table: &TraceTable<'_>,
    columns: &[(MatrixView<'_>, usize)],
    block: usize,
    l_skip: usize,
    into: &mut [P],
) {
    for (row, to) in into.chunks_exact_mut(SELECTORS + columns.len()).enumerate() {
        let at = |lane: usize| ((block + lane) << l_skip) + row;
        for (which, selector) in to[..SELECTORS].iter_mut().enumerate() {
            *selector = P::from_fn(|lane| table.selector_value(which, at(lane)));
        }
        for (number, (view, column)) in to[SELECTORS..].iter_mut().zip(columns) {
            *number = P::from_fn(|lane| view.value_at(at(lane), *column));
        }
    }
}

fn interpolate_cosets(values: Vec<EF>, cosets: usize) -> UnivariatePoly<EF> {
    let values = RowMajorMatrix::new(values, cosets);
    UnivariatePoly::from_geometric_cosets_evals_idft(values, F::GENERATOR, F::GENERATOR)
}

/// The sum of constraints is zero on the subgroup: its quotient is interpolated and multiplied out.
fn interpolate_constraints(
    domain: &CosetDomain,
    mut values: Vec<EF>,
    degree: usize,
) -> UnivariatePoly<EF> {
    let (l_skip, cosets) = (domain.l_skip, degree - 1);
    let size = 1 << l_skip;
    if cosets == 0 {
        let zeros = sumcheck_round0_deg(l_skip, degree) + 1;
        return UnivariatePoly::new(vec![EF::ZERO; zeros]);
    }
    let inverses: Vec<F> = domain.cosets[..cosets]
        .iter()
        .map(|shift| (shift.exp_power_of_2(l_skip) - F::ONE).inverse())
        .collect();
    for row in values.chunks_exact_mut(cosets) {
        row.iter_mut().zip(&inverses).for_each(|(value, inverse)| *value *= *inverse);
    }
    let quotient = interpolate_cosets(values, cosets).into_coeffs();
    let of = |at: usize| quotient.get(at).copied().unwrap_or(EF::ZERO);
    let coefficient = |at: usize| match at.checked_sub(size) {
        Some(lower) => of(lower) - of(at),
        None => -of(at),
    };
    let degree = sumcheck_round0_deg(l_skip, degree);
    UnivariatePoly::new((0..=degree).map(coefficient).collect())
}

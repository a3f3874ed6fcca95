//! The proof that constraints hold and lookups meet, in the order of the protocol.

use openvm_cpu_backend::CpuBackend;
use openvm_stark_backend::{
    FiatShamirTranscript, calculate_n_logup,
    poly_common::{UnivariatePoly, eq_uni_poly, eval_eq_mle, eval_eq_sharp_uni, eval_eq_uni},
    proof::{BatchConstraintProof, GkrProof, column_openings_by_rot},
    prover::{
        DeviceMultiStarkProvingKey, LogupZerocheckError, ProvingContext, poly::eq_sharp_uni_poly,
        stacked_pcs::StackedLayout, sumcheck::sumcheck_round0_deg,
    },
};
use openvm_stark_sdk::config::baby_bear_poseidon2::{BabyBearPoseidon2Config as SC, EF, F};
use p3_field::{Field, PrimeCharacteristicRing, TwoAdicField};

use crate::{
    forms::TableForms,
    gkr::{self, FractionSumProof},
    lanes,
    leaves::LookupFractions,
    rounds::FoldedTable,
    skip::{self, FirstRoundPolynomials},
    table::TraceTable,
};

type Backend = CpuBackend<SC>;

/// Proofs of the lookups and of the constraints, and the point at which all columns are claimed.
type Proofs = (GkrProof<SC>, BatchConstraintProof<SC>, Vec<EF>);

/// The columns of each table and each of its matrices at the point.
type Openings = Vec<Vec<Vec<EF>>>;

/// Makes both proofs; gives them with the point.
pub(crate) fn prove_constraints<TS: FiatShamirTranscript<SC>>(
    transcript: &mut TS,
    key: &DeviceMultiStarkProvingKey<Backend>,
    traces: &ProvingContext<Backend>,
) -> Result<Proofs, LogupZerocheckError> {
    let l_skip = key.params.l_skip;
    let tables: Vec<TraceTable<'_>> = traces
        .per_trace
        .iter()
        .map(|(at, trace)| TraceTable::new(&key.per_air[*at], trace, l_skip))
        .collect();
    let lookups = tables.iter().map(|table| (table.lookups.len() as u64) << table.log_lifted);
    let n_logup = calculate_n_logup(l_skip, lookups.sum());
    let sorted = tables.iter().map(|table| (table.lookups.len(), table.log_lifted)).collect();
    let layout = StackedLayout::new(0, l_skip + n_logup, sorted)?;

    let logup_pow_witness = transcript.grind(key.params.logup.pow_bits);
    let alpha = transcript.sample_ext();
    let beta: EF = transcript.sample_ext();
    let longest = tables.iter().flat_map(|table| &table.lookups).map(|it| it.message.len()).max();
    let beta_powers: Vec<EF> = beta.powers().take(longest.unwrap_or(0) + 1).collect();

    let FractionSumProof { denominator, claims, polynomials, point } =
        match layout.sorted_cols.is_empty() {
            true => FractionSumProof {
                denominator: EF::ONE,
                claims: vec![],
                polynomials: vec![],
                point: vec![],
            },
            false => {
                let leaves =
                    LookupFractions::new(&tables, &layout, l_skip + n_logup, alpha, &beta_powers);
                gkr::prove(transcript, leaves)?
            }
        };
    let gkr_proof = GkrProof::<SC> {
        logup_pow_witness,
        q0_claim: denominator,
        claims_per_layer: claims,
        sumcheck_polys: polynomials,
    };

    let n_max = tables[0].log_height.saturating_sub(l_skip);
    let mut xi = point;
    while xi.len() < l_skip + n_max.max(n_logup) {
        xi.push(transcript.sample_ext());
    }
    let lambda = transcript.sample_ext();
    let forms: Vec<TableForms> = (0..tables.len())
        .map(|at| {
            let weights = lookup_eq_weights(&tables[at], at, &layout, &xi[..l_skip + n_logup]);
            TableForms::new(&tables[at], lambda, &beta_powers, &weights)
        })
        .collect();
    let batch = BatchSumcheck {
        tables: &tables,
        forms: &forms,
        l_skip,
        xi: &xi,
        degree: key.max_constraint_degree,
    };
    let (proof, point) = batch.prove(transcript);
    Ok((gkr_proof, proof, point))
}

/// `eq` of the place of each lookup among the leaves.
fn lookup_eq_weights(
    table: &TraceTable<'_>,
    at: usize,
    layout: &StackedLayout,
    xi: &[EF],
) -> Vec<EF> {
    let of = |lookup: usize| {
        let place = layout.get(at, lookup).expect("laid out").row_idx >> table.log_lifted;
        let xs = &xi[table.log_lifted..];
        let bits: Vec<F> = (0..xs.len()).map(|bit| F::from_bool(place >> bit & 1 == 1)).collect();
        eval_eq_mle(xs, &bits)
    };
    (0..table.lookups.len()).map(of).collect()
}

/// Runs one sumcheck over all sums of all tables.
struct BatchSumcheck<'a> {
    tables: &'a [TraceTable<'a>],
    forms: &'a [TableForms],
    l_skip: usize,
    xi: &'a [EF],
    /// Greatest degree of any constraint of the machine.
    degree: usize,
}

/// Products of `eq` over the variables of earlier rounds: for constraints and for lookups.
#[derive(Clone, Copy)]
struct EqFactors {
    constraints: EF,
    lookups: EF,
}

impl BatchSumcheck<'_> {
    fn prove<TS: FiatShamirTranscript<SC>>(
        &self,
        transcript: &mut TS,
    ) -> (BatchConstraintProof<SC>, Vec<EF>) {
        let first: Vec<FirstRoundPolynomials> = self
            .tables
            .iter()
            .zip(self.forms)
            .map(|(table, forms)| {
                let xs = &self.xi[self.l_skip..table.log_lifted];
                let mut polynomials = skip::first_round_polynomials(table, forms, self.l_skip, xs);
                let weight = numerator_weight(table, self.l_skip);
                polynomials.lookups[0].coeffs_mut().iter_mut().for_each(|it| *it *= weight);
                polynomials
            })
            .collect();
        let eq_lookups = eq_sharp_uni_poly(&self.xi[..self.l_skip]).into_coeffs();
        let eq_constraints = eq_uni_poly::<F, _>(self.l_skip, self.xi[0]).into_coeffs();
        let size = sumcheck_round0_deg(self.l_skip, self.degree + 1) + 1;
        let whole: Vec<[Vec<EF>; 2]> = first
            .iter()
            .map(|it| {
                it.lookups.each_ref().map(|it| truncated_product(it.coeffs(), &eq_lookups, size))
            })
            .collect();
        let subgroup = EF::from_usize(1 << self.l_skip);
        let (mut numerator_term_per_air, mut denominator_term_per_air) = (vec![], vec![]);
        for lookups in &whole {
            let [numerator, denominator] = lookups.each_ref().map(|coefficients| {
                coefficients.iter().step_by(1 << self.l_skip).copied().sum::<EF>() * subgroup
            });
            transcript.observe_ext(numerator);
            transcript.observe_ext(denominator);
            numerator_term_per_air.push(numerator);
            denominator_term_per_air.push(denominator);
        }
        let mu: EF = transcript.sample_ext();
        let mus: Vec<EF> = mu.powers().take(3 * self.tables.len()).collect();
        let (mu_lookups, mu_constraints) = mus.split_at(2 * self.tables.len());

        let mut sum = vec![EF::ZERO; size];
        for (polynomials, mu) in first.iter().zip(mu_constraints) {
            for (sum, value) in sum.iter_mut().zip(polynomials.constraints.coeffs()) {
                *sum += *mu * *value;
            }
        }
        let mut coefficients = truncated_product(&sum, &eq_constraints, size);
        for (coefficients_of, mu) in whole.iter().flatten().zip(mu_lookups) {
            for (sum, value) in coefficients.iter_mut().zip(coefficients_of) {
                *sum += *mu * *value;
            }
        }
        coefficients.iter().for_each(|value| transcript.observe_ext(*value));
        let first = UnivariatePoly::new(coefficients);
        let r: EF = transcript.sample_ext();

        let (rounds, point, column_openings) =
            self.prove_later_rounds(transcript, r, first.eval_at_point(r), &mus);
        let proof = BatchConstraintProof::<SC> {
            numerator_term_per_air,
            denominator_term_per_air,
            univariate_round_coeffs: first.into_coeffs(),
            sumcheck_round_polys: rounds,
            column_openings,
        };
        (proof, point)
    }

    /// All rounds after the first, whose challenge was `r` and whose claim is `claim`.
    fn prove_later_rounds<TS: FiatShamirTranscript<SC>>(
        &self,
        transcript: &mut TS,
        r: EF,
        mut claim: EF,
        mus: &[EF],
    ) -> (Vec<Vec<EF>>, Vec<EF>, Openings) {
        let l_skip = self.l_skip;
        let mut folded: Vec<FoldedTable> =
            self.tables.iter().map(|table| FoldedTable::new(table, l_skip, r)).collect();
        let roots: Vec<F> = F::two_adic_generator(l_skip).powers().take(1 << l_skip).collect();
        let mut behind = EqFactors {
            constraints: eval_eq_uni(l_skip, self.xi[0], r),
            lookups: eval_eq_sharp_uni(&roots, &self.xi[..l_skip], r),
        };
        let mut ended = vec![None; self.tables.len()];
        let (mut polynomials, mut point) = (Vec::new(), vec![r]);
        for round in 1..=self.tables[0].log_lifted - l_skip {
            let (head, tail) =
                self.round_sums(round, point[round - 1], &folded, behind, &mut ended, mus);
            let x = self.xi[l_skip + round - 1];
            let (polynomial, values) = round_polynomial(x, head, tail, claim);
            values.iter().for_each(|value| transcript.observe_ext(*value));
            polynomials.push(values);
            let r: EF = transcript.sample_ext();
            claim = polynomial.eval_at_point(r);
            folded.iter_mut().for_each(|table| table.fold_pairs(r));
            let eq = lanes::eq_single(x, r);
            behind =
                EqFactors { constraints: behind.constraints * eq, lookups: behind.lookups * eq };
            point.push(r);
        }
        let openings = self.open_columns(transcript, &folded);
        (polynomials, point, openings)
    }

    /// Sums of the tables that have rows to join, at 1 and on, and the constant of those that have none.
    fn round_sums(
        &self,
        round: usize,
        r: EF,
        folded: &[FoldedTable],
        behind: EqFactors,
        ended: &mut [Option<[EF; 3]>],
        mus: &[EF],
    ) -> (Vec<EF>, EF) {
        let (mut head, mut tail) = (vec![EF::ZERO; self.degree], EF::ZERO);
        for (at, (table, forms)) in self.tables.iter().zip(self.forms).enumerate() {
            let batched = |[numerator, denominator, constraints]: [EF; 3]| {
                (
                    mus[2 * at] * numerator + mus[2 * at + 1] * denominator,
                    mus[2 * self.tables.len() + at] * constraints,
                )
            };
            let weight = numerator_weight(table, self.l_skip);
            let rounds = table.log_lifted - self.l_skip;
            if round <= rounds {
                let xs = &self.xi[self.l_skip + round..self.l_skip + rounds];
                let sums = folded[at].round_sums(table, forms, xs, self.degree);
                for (head, [numerator, denominator, constraints]) in head.iter_mut().zip(sums) {
                    let sums = [numerator * weight, denominator, constraints];
                    let (lookups, constraints) = batched(sums);
                    *head += behind.constraints * constraints + behind.lookups * lookups;
                }
                continue;
            }
            let now = match ended[at] {
                Some(values) => values.map(|value: EF| value * r),
                None => {
                    let [numerator, denominator, constraints] =
                        folded[at].evaluate_forms(table, forms);
                    let lookups = [numerator * weight, denominator].map(|it| it * behind.lookups);
                    [lookups[0], lookups[1], constraints * behind.constraints]
                }
            };
            ended[at] = Some(now);
            let (lookups, constraints) = batched(now);
            tail += lookups + constraints;
        }
        (head, tail)
    }

    /// The columns at the point, common matrices of all tables before the others.
    fn open_columns<TS: FiatShamirTranscript<SC>>(
        &self,
        transcript: &mut TS,
        folded: &[FoldedTable],
    ) -> Openings {
        let openings: Openings = self
            .tables
            .iter()
            .zip(folded)
            .map(|(table, folded)| openings_by_matrix(table, folded.last_row()))
            .collect();
        let mut observe = |part: &[EF], table: &TraceTable<'_>| {
            for (value, next) in column_openings_by_rot(part, table.reads_next) {
                transcript.observe_ext(value);
                transcript.observe_ext(next);
            }
        };
        for (table, parts) in self.tables.iter().zip(&openings) {
            observe(&parts[0], table);
        }
        for (table, parts) in self.tables.iter().zip(&openings) {
            parts[1..].iter().for_each(|part| observe(part, table));
        }
        openings
    }
}

/// Columns of each matrix, each before its next one's where next rows are read; the common matrix first.
fn openings_by_matrix(table: &TraceTable<'_>, row: &[EF]) -> Vec<Vec<EF>> {
    let of = |at: usize| &row[table.views[at].first..][..table.views[at].matrix.width];
    let step = 1 + usize::from(table.reads_next);
    let part = |at: usize| match table.reads_next {
        true => of(at).iter().zip(of(at + 1)).flat_map(|(now, next)| [*now, *next]).collect(),
        false => of(at).to_vec(),
    };
    let last = table.views.len() - step;
    let others = (0..last).step_by(step);
    std::iter::once(last).chain(others).map(part).collect()
}

/// A table of fewer rows than are skipped at once stands there several times.
fn numerator_weight(table: &TraceTable<'_>, l_skip: usize) -> F {
    F::from_usize(1 << l_skip.saturating_sub(table.log_height)).inverse()
}

/// The first coefficients of a product.
fn truncated_product(left: &[EF], right: &[EF], size: usize) -> Vec<EF> {
    let mut product = vec![EF::ZERO; size];
    for (at, left) in left.iter().enumerate() {
        for (sum, right) in product[at.min(size)..].iter_mut().zip(right) {
            *sum += *left * *right;
        }
    }
    product
}

/// `eq(x, X)·head(X) + X·tail`, where `head` is known at 1 and on and the whole sums to `claim` over 0 and 1; and its
/// values at 1 and on.
fn round_polynomial(x: EF, head: Vec<EF>, tail: EF, claim: EF) -> (UnivariatePoly<EF>, Vec<EF>) {
    let zero = (claim - x * head[0] - tail) * (EF::ONE - x).inverse();
    let degree = head.len() + 1;
    let points: Vec<F> = (0..degree).map(F::from_usize).collect();
    let values: Vec<EF> = std::iter::once(zero).chain(head).collect();
    let head = UnivariatePoly::lagrange_interpolate(&points, &values).into_coeffs();
    // eq(x, X) = (1 - x) + (2x - 1)·X
    let eq = [EF::ONE - x, x + x - EF::ONE];
    let mut coefficients = truncated_product(&head, &eq, degree + 1);
    coefficients[1] += tail;
    let whole = UnivariatePoly::new(coefficients);
    let values = (1..=degree).map(|at| whole.eval_at_point(EF::from_usize(at))).collect();
    (whole, values)
}

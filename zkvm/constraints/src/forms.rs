//! What is summed over the rows of a table: constraints, numerators and denominators, each one form over the
//! values of its program.

use openvm_stark_sdk::config::baby_bear_poseidon2::EF;
use p3_field::PrimeCharacteristicRing;

use crate::{program::LinearForm, table::TraceTable};

/// The three sums of one table.
pub(crate) struct TableForms {
    pub(crate) constraints: LinearForm,
    pub(crate) numerators: LinearForm,
    pub(crate) denominators: LinearForm,
}

impl TableForms {
    /// `weights` has one for each lookup: `eq` of its place among the leaves.
    pub(crate) fn new(
        table: &TraceTable<'_>,
        lambda: EF,
        beta_powers: &[EF],
        weights: &[EF],
    ) -> Self {
        let mut forms = Self {
            constraints: LinearForm::default(),
            numerators: LinearForm::default(),
            denominators: LinearForm::default(),
        };
        for (step, power) in table.constraints.iter().zip(lambda.powers()) {
            forms.constraints.add_term(*step, power);
        }
        for (lookup, weight) in table.lookups.iter().zip(weights) {
            forms.numerators.add_term(lookup.count, *weight);
            let bus = beta_powers[lookup.message.len()] * lookup.bus;
            forms.denominators.add_constant(*weight * bus);
            for (step, power) in lookup.message.iter().zip(beta_powers) {
                forms.denominators.add_term(*step, *weight * *power);
            }
        }
        forms
    }
}

//! A simple evaluator of constraints for tests, which stores every row and value and can change
//! them.

use bellpepper_core::{ConstraintSystem, Index, LinearCombination, SynthesisError, Variable};
use ff::Field;
use spartan2::traits::circuit::SpartanCircuit;

use crate::{
    circuit::{CircuitClaim, ContextCircuit},
    curve::Scalar,
};

type SparseRow = Vec<(usize, Scalar)>;

/// Constraints with an assignment of values: the constant one, the public values, and the hidden
/// ones.
#[derive(Default)]
pub(crate) struct ConstraintRows {
    pub(crate) public: Vec<Scalar>,
    pub(crate) hidden: Vec<Scalar>,
    rows: Vec<[SparseRow; 3]>,
    /// The rows in which each value occurs, by [`use_index`].
    uses: Option<Vec<Vec<u32>>>,
}

/// The index of a public or hidden value in the assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VariableIndex {
    Public(usize),
    Hidden(usize),
}

/// The index of a value in `uses`; its lowest bit is one for hidden values.
fn use_index(index: Index) -> usize {
    match index {
        Index::Input(place) => 2 * place,
        Index::Aux(place) => 2 * place + 1,
    }
}

impl ConstraintRows {
    /// Collects all constraints of a circuit with its witness.
    pub(crate) fn from_circuit<C: CircuitClaim>(
        circuit: &ContextCircuit<C>,
    ) -> Result<Self, SynthesisError> {
        Self::from_synthesis(|rows| {
            let held = circuit.precommitted(rows, &[])?;
            circuit.synthesize(rows, &[], &held, None)
        })
    }

    pub(crate) fn from_synthesis(
        make: impl FnOnce(&mut Self) -> Result<(), SynthesisError>,
    ) -> Result<Self, SynthesisError> {
        let mut rows = Self { public: vec![Scalar::ONE], ..Self::default() };
        make(&mut rows)?;
        rows.index_uses();
        Ok(rows)
    }

    fn index_uses(&mut self) {
        let mut uses = vec![Vec::new(); 2 * self.public.len().max(self.hidden.len())];
        for (number, row) in self.rows.iter().enumerate() {
            let mut places: Vec<usize> = row.iter().flatten().map(|(place, _)| *place).collect();
            places.sort_unstable();
            places.dedup();
            for place in places {
                uses[place].push(number as u32);
            }
        }
        self.uses = Some(uses);
    }

    pub(crate) fn row_count(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn nonzero_count(&self) -> usize {
        self.rows.iter().flatten().map(Vec::len).sum()
    }

    /// Whether every constraint is satisfied.
    pub(crate) fn are_satisfied(&self) -> bool {
        (0..self.rows.len()).all(|row| self.is_row_satisfied(row))
    }

    /// Whether every constraint is still satisfied if `value` replaces the one at `place`. Only the
    /// constraints with that value are evaluated.
    pub(crate) fn are_satisfied_with(&mut self, place: VariableIndex, value: Scalar) -> bool {
        let before = std::mem::replace(self.value_mut(place), value);
        let rows = &self.uses.as_ref().expect("indexed")[self.use_index(place)];
        let hold = rows.iter().all(|row| self.is_row_satisfied(*row as usize));
        *self.value_mut(place) = before;
        hold
    }

    pub(crate) fn value_mut(&mut self, place: VariableIndex) -> &mut Scalar {
        match place {
            VariableIndex::Public(place) => &mut self.public[place],
            VariableIndex::Hidden(place) => &mut self.hidden[place],
        }
    }

    /// The hidden values that the constraints do not determine.
    ///
    /// A row determines a value if its other values are public or determined, and its derivative by
    /// the value is not zero. Each row determines at most one value.
    pub(crate) fn unconstrained_values(&self) -> Vec<usize> {
        let uses = self.uses.as_ref().expect("indexed");
        let mut pinned = vec![false; self.hidden.len()];
        let mut open: Vec<usize> = Vec::with_capacity(self.rows.len());
        let hidden = |row: &[SparseRow; 3]| {
            let mut places: Vec<usize> = row
                .iter()
                .flatten()
                .map(|(place, _)| *place)
                .filter(|place| place & 1 == 1)
                .collect();
            places.sort_unstable();
            places.dedup();
            places
        };
        let places: Vec<Vec<usize>> = self.rows.iter().map(hidden).collect();
        open.extend(places.iter().map(Vec::len));
        let mut ready: Vec<usize> = (0..open.len()).filter(|row| open[*row] == 1).collect();
        while let Some(row) = ready.pop() {
            let Some(place) = places[row].iter().copied().find(|place| !pinned[place / 2]) else {
                continue;
            };
            if self.derivative(row, place) == Scalar::ZERO {
                continue;
            }
            pinned[place / 2] = true;
            for other in &uses[place] {
                open[*other as usize] -= 1;
                if open[*other as usize] == 1 {
                    ready.push(*other as usize);
                }
            }
        }
        (0..pinned.len()).filter(|place| !pinned[*place]).collect()
    }

    fn derivative(&self, row: usize, place: usize) -> Scalar {
        let [a, b, c] = &self.rows[row];
        let of = |form: &SparseRow| {
            form.iter()
                .filter(|(at, _)| *at == place)
                .fold(Scalar::ZERO, |sum, (_, times)| sum + times)
        };
        of(a) * self.evaluate(b) + of(b) * self.evaluate(a) - of(c)
    }

    fn is_row_satisfied(&self, row: usize) -> bool {
        let [a, b, c] = &self.rows[row];
        self.evaluate(a) * self.evaluate(b) == self.evaluate(c)
    }

    fn evaluate(&self, form: &SparseRow) -> Scalar {
        form.iter().fold(Scalar::ZERO, |sum, (place, times)| {
            let values = if place & 1 == 0 { &self.public } else { &self.hidden };
            sum + values[place / 2] * times
        })
    }

    fn use_index(&self, place: VariableIndex) -> usize {
        match place {
            VariableIndex::Public(place) => 2 * place,
            VariableIndex::Hidden(place) => 2 * place + 1,
        }
    }
}

impl ConstraintSystem<Scalar> for ConstraintRows {
    type Root = Self;

    fn alloc<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.hidden.push(value()?);
        Ok(Variable::new_unchecked(Index::Aux(self.hidden.len() - 1)))
    }

    fn alloc_input<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.public.push(value()?);
        Ok(Variable::new_unchecked(Index::Input(self.public.len() - 1)))
    }

    fn enforce<A, AR, LA, LB, LC>(&mut self, _: A, a: LA, b: LB, c: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
        let row = |form: LinearCombination<Scalar>| {
            let terms = form.iter().filter(|(_, times)| **times != Scalar::ZERO);
            terms.map(|(variable, times)| (use_index(variable.get_unchecked()), *times)).collect()
        };
        let empty = LinearCombination::zero;
        self.rows.push([row(a(empty())), row(b(empty())), row(c(empty()))]);
    }

    fn push_namespace<NR: Into<String>, N: FnOnce() -> NR>(&mut self, _: N) {}

    fn pop_namespace(&mut self) {}

    fn get_root(&mut self) -> &mut Self {
        self
    }
}

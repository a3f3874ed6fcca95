//! A plain evaluator of constraints: keeps every row and every value, and can change them.

use bellpepper_core::{ConstraintSystem, Index, LinearCombination, SynthesisError, Variable};
use ff::Field;
use spartan2::traits::circuit::SpartanCircuit;

use crate::{
    circuit::{Claim, InContext},
    curve::Scalar,
};

type Row = Vec<(usize, Scalar)>;

/// Constraints with an assignment of values: the constant one, the public values, then the hidden
/// ones.
#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) public: Vec<Scalar>,
    pub(crate) hidden: Vec<Scalar>,
    rows: Vec<[Row; 3]>,
    /// The rows that each value occurs in: public values first.
    uses: Option<Vec<Vec<u32>>>,
}

/// A value of the assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VariableIndex {
    Public(usize),
    Hidden(usize),
}

/// The index of a value in `uses`: its lowest bit tells hidden values from public ones.
fn key(index: Index) -> usize {
    match index {
        Index::Input(place) => 2 * place,
        Index::Aux(place) => 2 * place + 1,
    }
}

impl Rows {
    /// Collects all constraints of a circuit with its witness.
    pub(crate) fn from_circuit<C: Claim>(circuit: &InContext<C>) -> Result<Self, SynthesisError> {
        Self::collect(|rows| {
            let held = circuit.precommitted(rows, &[])?;
            circuit.synthesize(rows, &[], &held, None)
        })
    }

    pub(crate) fn collect(
        make: impl FnOnce(&mut Self) -> Result<(), SynthesisError>,
    ) -> Result<Self, SynthesisError> {
        let mut rows = Self { public: vec![Scalar::ONE], ..Self::default() };
        make(&mut rows)?;
        rows.index();
        Ok(rows)
    }

    fn index(&mut self) {
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

    pub(crate) fn count(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn nonzeros(&self) -> usize {
        self.rows.iter().flatten().map(Vec::len).sum()
    }

    /// Returns whether every constraint holds.
    pub(crate) fn are_satisfied(&self) -> bool {
        (0..self.rows.len()).all(|row| self.row_holds(row))
    }

    /// Returns whether every constraint with the value at `place` still holds if another value
    /// stands there. The other constraints do not change.
    pub(crate) fn hold_with(&mut self, place: VariableIndex, value: Scalar) -> bool {
        let before = std::mem::replace(self.value_mut(place), value);
        let rows = &self.uses.as_ref().expect("indexed")[self.key(place)];
        let hold = rows.iter().all(|row| self.row_holds(*row as usize));
        *self.value_mut(place) = before;
        hold
    }

    pub(crate) fn value_mut(&mut self, place: VariableIndex) -> &mut Scalar {
        match place {
            VariableIndex::Public(place) => &mut self.public[place],
            VariableIndex::Hidden(place) => &mut self.hidden[place],
        }
    }

    /// The hidden values that no constraint pins, given those that others pin.
    ///
    /// A value is pinned by a row whose other values are known or pinned, and whose derivative by
    /// it is not zero: then it cannot be moved. Rows are used up one value at a time.
    pub(crate) fn loose_values(&self) -> Vec<usize> {
        let uses = self.uses.as_ref().expect("indexed");
        let mut pinned = vec![false; self.hidden.len()];
        let mut open: Vec<usize> = Vec::with_capacity(self.rows.len());
        let hidden = |row: &[Row; 3]| {
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
        let of = |form: &Row| {
            form.iter()
                .filter(|(at, _)| *at == place)
                .fold(Scalar::ZERO, |sum, (_, times)| sum + times)
        };
        of(a) * self.value(b) + of(b) * self.value(a) - of(c)
    }

    fn row_holds(&self, row: usize) -> bool {
        let [a, b, c] = &self.rows[row];
        self.value(a) * self.value(b) == self.value(c)
    }

    fn value(&self, form: &Row) -> Scalar {
        form.iter().fold(Scalar::ZERO, |sum, (place, times)| {
            let values = if place & 1 == 0 { &self.public } else { &self.hidden };
            sum + values[place / 2] * times
        })
    }

    fn key(&self, place: VariableIndex) -> usize {
        match place {
            VariableIndex::Public(place) => 2 * place,
            VariableIndex::Hidden(place) => 2 * place + 1,
        }
    }
}

impl ConstraintSystem<Scalar> for Rows {
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
            terms.map(|(variable, times)| (key(variable.get_unchecked()), *times)).collect()
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

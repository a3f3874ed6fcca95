//! The expressions of one table, as a list of steps.

use openvm_stark_backend::air_builders::symbolic::{
    SymbolicConstraintsDag, SymbolicExpressionNode as Node, symbolic_variable::Entry,
};
use openvm_stark_sdk::config::baby_bear_poseidon2::{EF, F};
use p3_field::PrimeCharacteristicRing;

use crate::lanes::{P, PE, SumcheckValue};

/// One step of a program. Each names earlier steps by their number.
#[derive(Clone, Copy)]
enum ProgramStep {
    /// One of the columns that [`ExpressionProgram::columns`] lists.
    Column(u32),
    /// First row, transition, last row.
    Selector(u32),
    Constant(F),
    Add(u32, u32),
    Sub(u32, u32),
    Neg(u32),
    Mul(u32, u32),
}

/// Steps to the values that are asked for, and no others.
pub(crate) struct ExpressionProgram {
    steps: Vec<ProgramStep>,
    /// Places of the columns that it reads, as its table numbers them.
    pub(crate) columns: Vec<usize>,
    /// The step of each value that was asked for.
    pub(crate) wanted: Vec<u32>,
}

impl ExpressionProgram {
    /// A program without steps.
    pub(crate) fn empty() -> Self {
        Self { steps: Vec::new(), columns: Vec::new(), wanted: Vec::new() }
    }

    /// Lists the steps to `wanted`, nodes of `dag`. Public values become constants; `place` numbers
    /// the column of a part (none is the preprocessed one), an offset and an index.
    pub(crate) fn new(
        dag: &SymbolicConstraintsDag<F>,
        public_values: &[F],
        place: impl Fn(Option<usize>, usize, usize) -> usize,
        wanted: &[usize],
    ) -> Self {
        let nodes = &dag.constraints.nodes;
        let mut is_needed = vec![false; nodes.len()];
        wanted.iter().for_each(|at| is_needed[*at] = true);
        for at in (0..nodes.len()).rev().filter(|at| is_needed[*at]).collect::<Vec<_>>() {
            mark_operands(nodes, at, &mut is_needed);
        }
        let mut program = Self::empty();
        let mut step_of = vec![0; nodes.len()];
        for (at, node) in nodes.iter().enumerate().filter(|(at, _)| is_needed[*at]) {
            step_of[at] = program.steps.len() as u32;
            let step = program.translate_node(node, &step_of, public_values, &place);
            program.steps.push(step);
        }
        program.wanted = wanted.iter().map(|at| step_of[*at]).collect();
        program
    }

    fn translate_node(
        &mut self,
        node: &Node<F>,
        step_of: &[u32],
        public_values: &[F],
        place: impl Fn(Option<usize>, usize, usize) -> usize,
    ) -> ProgramStep {
        match *node {
            Node::Constant(value) => ProgramStep::Constant(value),
            Node::IsFirstRow => ProgramStep::Selector(0),
            Node::IsTransition => ProgramStep::Selector(1),
            Node::IsLastRow => ProgramStep::Selector(2),
            Node::Add { left_idx, right_idx, .. } => {
                ProgramStep::Add(step_of[left_idx], step_of[right_idx])
            }
            Node::Sub { left_idx, right_idx, .. } => {
                ProgramStep::Sub(step_of[left_idx], step_of[right_idx])
            }
            Node::Mul { left_idx, right_idx, .. } => {
                ProgramStep::Mul(step_of[left_idx], step_of[right_idx])
            }
            Node::Neg { idx, .. } => ProgramStep::Neg(step_of[idx]),
            Node::Variable(variable) => match variable.entry {
                Entry::Public => ProgramStep::Constant(public_values[variable.index]),
                Entry::Preprocessed { offset } => {
                    self.column_step(place(None, offset, variable.index))
                }
                Entry::Main { part_index, offset } => {
                    self.column_step(place(Some(part_index), offset, variable.index))
                }
                Entry::Challenge => unreachable!("the back end makes no such variable"),
            },
        }
    }

    fn column_step(&mut self, place: usize) -> ProgramStep {
        let known = self.columns.iter().position(|column| *column == place);
        ProgramStep::Column(known.unwrap_or_else(|| {
            self.columns.push(place);
            self.columns.len() - 1
        }) as u32)
    }

    /// Takes all steps. `columns` has the numbers of [`ExpressionProgram::columns`] in their order.
    pub(crate) fn run<V>(
        &self,
        columns: &[V],
        selectors: &[V],
        constant: impl Fn(F) -> V,
        values: &mut Vec<V>,
    ) where
        V: Copy + PrimeCharacteristicRing,
    {
        values.clear();
        for step in &self.steps {
            let value = match *step {
                ProgramStep::Column(at) => columns[at as usize],
                ProgramStep::Selector(at) => selectors[at as usize],
                ProgramStep::Constant(value) => constant(value),
                ProgramStep::Add(left, right) => values[left as usize] + values[right as usize],
                ProgramStep::Sub(left, right) => values[left as usize] - values[right as usize],
                ProgramStep::Neg(at) => -values[at as usize],
                ProgramStep::Mul(left, right) => values[left as usize] * values[right as usize],
            };
            values.push(value);
        }
    }
}

fn mark_operands(nodes: &[Node<F>], at: usize, is_needed: &mut [bool]) {
    let mut pending = vec![at];
    let mut need = |at: usize, pending: &mut Vec<usize>| {
        if !is_needed[at] {
            is_needed[at] = true;
            pending.push(at);
        }
    };
    while let Some(at) = pending.pop() {
        match nodes[at] {
            Node::Add { left_idx, right_idx, .. }
            | Node::Sub { left_idx, right_idx, .. }
            | Node::Mul { left_idx, right_idx, .. } => {
                need(left_idx, &mut pending);
                need(right_idx, &mut pending);
            }
            Node::Neg { idx, .. } => need(idx, &mut pending),
            _ => {}
        }
    }
}

/// `constant + Σ factor · value`, with each value of a program once, however often it is asked for.
#[derive(Default)]
pub(crate) struct LinearForm {
    constant: EF,
    terms: Vec<(u32, EF, PE)>,
}

impl LinearForm {
    pub(crate) fn add_constant(&mut self, constant: EF) {
        self.constant += constant;
    }

    /// Adds `factor` times the value of `step`.
    pub(crate) fn add_term(&mut self, step: u32, factor: EF) {
        match self.terms.iter_mut().find(|(known, ..)| *known == step) {
            Some((_, known, packed)) => {
                *known += factor;
                *packed = PE::from(*known);
            }
            None => self.terms.push((step, factor, PE::from(factor))),
        }
    }

    /// Evaluates the form from values of the base field.
    pub(crate) fn evaluate_base(&self, values: &[P]) -> PE {
        let mut sum = PE::from(self.constant);
        for (step, _, factor) in &self.terms {
            sum += *factor * values[*step as usize];
        }
        sum
    }

    /// Evaluates the form from values of the extension field.
    pub(crate) fn evaluate<V: SumcheckValue>(&self, values: &[V]) -> V {
        let mut sum = V::from(self.constant);
        for (step, factor, _) in &self.terms {
            sum += values[*step as usize] * *factor;
        }
        sum
    }
}

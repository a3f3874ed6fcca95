//! One table of a proof: its matrices, its expressions, and where its columns are.

use openvm_cpu_backend::CpuBackend;
use openvm_stark_backend::prover::{AirProvingContext, DeviceStarkProvingKey};
use openvm_stark_sdk::config::baby_bear_poseidon2::{BabyBearPoseidon2Config as SC, F};
use p3_field::PrimeCharacteristicRing;
use p3_matrix::dense::RowMajorMatrix;

use crate::program::ExpressionProgram;

/// Selectors: first row, transition, last row.
pub(crate) const SELECTORS: usize = 3;

/// A matrix as it is read: its rows, or each row's next one, cyclically.
#[derive(Clone, Copy)]
pub(crate) struct MatrixView<'a> {
    pub(crate) matrix: &'a RowMajorMatrix<F>,
    /// 1 for the next row, else 0.
    pub(crate) offset: usize,
    /// Place of the matrix's first column.
    pub(crate) first: usize,
}

/// A lookup: the steps of its count and of its message, and its bus.
pub(crate) struct Lookup {
    pub(crate) count: u32,
    pub(crate) message: Vec<u32>,
    pub(crate) bus: F,
}

/// One table with the expressions that are asked of it.
pub(crate) struct TraceTable<'a> {
    /// Preprocessed, cached and common matrices, each before its next rows.
    pub(crate) views: Vec<MatrixView<'a>>,
    /// Columns of all views.
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) log_height: usize,
    /// Logarithm of the rows, at least as many as are skipped at once.
    pub(crate) log_lifted: usize,
    pub(crate) public_values: &'a [F],
    /// Whether next rows are read.
    pub(crate) reads_next: bool,
    pub(crate) has_preprocessed: bool,
    /// Greatest degree of the table's constraints.
    pub(crate) degree: usize,
    /// The program of all expressions; in its steps are constraints and lookups.
    pub(crate) program: ExpressionProgram,
    pub(crate) constraints: Vec<u32>,
    pub(crate) lookups: Vec<Lookup>,
    /// The program of the lookups alone.
    pub(crate) lookup_program: ExpressionProgram,
    pub(crate) lookups_alone: Vec<Lookup>,
}

impl<'a> TraceTable<'a> {
    pub(crate) fn new(
        key: &'a DeviceStarkProvingKey<CpuBackend<SC>>,
        trace: &'a AirProvingContext<CpuBackend<SC>>,
        l_skip: usize,
    ) -> Self {
        let reads_next = key.vk.params.need_rot;
        let preprocessed = key.preprocessed_data.as_ref().map(|data| &data.trace);
        let cached = trace.cached_mains.iter().map(|data| &data.trace);
        let matrices = preprocessed.into_iter().chain(cached).chain([&trace.common_main]);
        let (mut views, mut width) = (Vec::new(), 0);
        for matrix in matrices {
            for offset in 0..=usize::from(reads_next) {
                views.push(MatrixView { matrix, offset, first: width });
                width += matrix.width;
            }
        }
        let height = trace.common_main.values.len() / trace.common_main.width;
        let mut table = Self {
            views,
            width,
            height,
            log_height: height.trailing_zeros() as usize,
            log_lifted: l_skip.max(height.trailing_zeros() as usize),
            public_values: &trace.public_values,
            reads_next,
            has_preprocessed: preprocessed.is_some(),
            degree: key.vk.max_constraint_degree.into(),
            program: ExpressionProgram::empty(),
            constraints: vec![],
            lookups: vec![],
            lookup_program: ExpressionProgram::empty(),
            lookups_alone: vec![],
        };
        let dag = &key.vk.symbolic_constraints;
        let lookups: Vec<usize> = dag
            .interactions
            .iter()
            .flat_map(|lookup| lookup.message.iter().chain([&lookup.count]).copied())
            .collect();
        let constraints = &dag.constraints.constraint_idx;
        let both: Vec<usize> = constraints.iter().chain(&lookups).copied().collect();
        let build = |wanted: &[usize]| {
            let place = |part, offset, index| table.column_place(part, offset, index);
            ExpressionProgram::new(dag, table.public_values, place, wanted)
        };
        let (program, lookup_program) = (build(&both), build(&lookups));
        (table.program, table.lookup_program) = (program, lookup_program);
        let sorted = |steps: &[u32]| {
            let mut steps = steps.iter().copied();
            let each = dag.interactions.iter().map(|lookup| Lookup {
                message: steps.by_ref().take(lookup.message.len()).collect(),
                count: steps.next().expect("as many as there were nodes"),
                bus: F::from_u32(u32::from(lookup.bus_index) + 1),
            });
            each.collect::<Vec<_>>()
        };
        table.constraints = table.program.wanted[..constraints.len()].to_vec();
        table.lookups = sorted(&table.program.wanted[constraints.len()..]);
        table.lookups_alone = sorted(&table.lookup_program.wanted);
        table
    }

    /// Returns the place of a column among those of all views; no part is the preprocessed one.
    pub(crate) fn column_place(&self, part: Option<usize>, offset: usize, index: usize) -> usize {
        let matrix = part.map_or(0, |part| part + usize::from(self.has_preprocessed));
        let view = &self.views[matrix * (1 + usize::from(self.reads_next)) + offset];
        assert!(view.offset == offset && index < view.matrix.width, "a variable beyond its matrix");
        view.first + index
    }

    /// Returns the view of the column at a place, and the column's index in it.
    pub(crate) fn locate_column(&self, place: usize) -> (MatrixView<'a>, usize) {
        let after = self.views.partition_point(|view| view.first <= place);
        let view = self.views[after - 1];
        (view, place - view.first)
    }

    /// Returns the selector of a row: 0 first row, 1 transition, 2 last row.
    pub(crate) fn selector_value(&self, which: usize, row: usize) -> F {
        let row = row % self.height;
        F::from_bool(match which {
            0 => row == 0,
            1 => row != self.height - 1,
            _ => row == self.height - 1,
        })
    }
}

impl MatrixView<'_> {
    /// Returns the number of a column in a row; rows are counted cyclically.
    pub(crate) fn value_at(&self, row: usize, column: usize) -> F {
        let height = self.matrix.values.len() / self.matrix.width;
        self.matrix.values[((row + self.offset) & (height - 1)) * self.matrix.width + column]
    }
}

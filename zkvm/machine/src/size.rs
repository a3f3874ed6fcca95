//! How much memory the proof of a segment takes: a model, fitted to measured runs.
//!
//! Two counts rule it, both over the rows that are proved, which are padded to powers of two: *cells* of the tables
//! (each 4 bytes, of which several copies live at the same time: as made, stacked, and encoded twice as long), and
//! *interactions*, one for each row and lookup (each two extension-field elements, in a tree of partial sums).
//! The figures are peaks of resident memory (`wait4`) of whole processes; docs in `zkvm/MEMORY.md` say which runs.

use openvm_circuit::arch::execution_mode::Segment;

/// Memory of a run where the caller gives none.
pub const MEMORY_DEFAULT: u64 = 4 << 30;
/// Memory below which no machine proves its smallest segment.
pub const MEMORY_LEAST: u64 = 1 << 30;

/// Bytes of a process that proves, before the first segment.
const FIXED_BYTES: u64 = 200 << 20;
const BYTES_PER_CELL: u64 = 26;
const BYTES_PER_INTERACTION: u64 = 80;

/// What one segment weighs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Cells of all tables, padded.
    pub cells: u64,
    /// Lookups of all rows, padded.
    pub interactions: u64,
}

impl Load {
    /// Peak of resident memory while the segment is proved, by the model, in bytes.
    pub fn bytes(&self) -> u64 {
        FIXED_BYTES + self.cells * BYTES_PER_CELL + self.interactions * BYTES_PER_INTERACTION
    }
}

/// Width and lookups of each table of a machine.
pub(crate) struct Tables {
    pub widths: Vec<u64>,
    pub interactions: Vec<u64>,
}

impl Tables {
    pub fn load(&self, segment: &Segment) -> Load {
        let mut load = Load::default();
        let tables = self.widths.iter().zip(&self.interactions);
        for (&height, (width, interactions)) in segment.trace_heights.iter().zip(tables) {
            let rows = if height == 0 { 0 } else { u64::from(height).next_power_of_two() };
            load.cells += rows * width;
            load.interactions += rows * interactions;
        }
        load
    }
}

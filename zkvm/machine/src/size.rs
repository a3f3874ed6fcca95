//! How much memory the proof of a segment takes, and how long: models, fitted to measured runs.
//!
//! Two counts rule both, over the rows that are proved, which are padded to powers of two: *cells*
//! of the tables (4 bytes each, of which several copies live at the same time: as made, stacked, and
//! encoded twice as long), and *interactions*, one for each row and lookup. The fractions of all
//! interactions are summed in a tree whose leaves are padded to a power of two once more (20 bytes
//! each; the tree above them and what folds it live at the same time). README.md says which
//! runs they were fitted to. Memory is rounded up, so that what is measured lies below it.

use openvm_circuit::arch::execution_mode::Segment;

/// Memory of a run where the caller gives none.
pub const MEMORY_DEFAULT: u64 = 4 << 30;

/// The back end's own limit, in its own bytes, which are those of a graphics card: the greatest, and
/// one at which its fixed part alone fills a segment.
pub(crate) const LIMIT_MAX: usize = 1 << 40;
pub(crate) const LIMIT_MIN: usize = 420 << 20;
/// The first cut that is tried however little memory there is, above the least limit: no run fits into
/// so little, and the need that is reported is that of a cut.
const ABOVE_MIN: u64 = 50 << 20;

/// Memory of a process that proves, without its segments: program, keys, the guest's memory, the
/// allocator.
const FIXED_BYTES: u64 = 320 << 20;
/// Memory for each row that traces are stacked to: hash trees, whatever they are over.
const BYTES_PER_STACKED_ROW: u64 = 384;
const BYTES_PER_CELL: u64 = 13;
const BYTES_PER_LEAF: u64 = 62;
/// Smaller trees were not measured: a segment is not said to take less than this one does.
const LEAVES_MIN: u64 = 1 << 21;
/// What segments leave behind that the next one does not use again, and a proof of each.
const BYTES_LEFT: u64 = 320 << 20;
const BYTES_PER_PROOF: u64 = 512 << 10;

/// A need that is reported is rounded up to this, after a margin: cuts of about one size differ by
/// some megabytes, and what is reported has to suffice.
const REPORTED_STEP: u64 = 64 << 20;
const REPORTED_MARGIN: u64 = 16 << 20;

const FIXED_S: f64 = 3.0;
const S_PER_CELL: f64 = 0.125e-6;
const S_PER_LEAF: f64 = 0.12e-6;

/// A limit that is too high for so much memory, but not by much: the back end's bytes are fewer.
pub(crate) fn first_segment_limit(memory: u64) -> usize {
    LIMIT_MIN + (memory / 2).clamp(ABOVE_MIN, LIMIT_MAX as u64) as usize
}

/// The limit to try after one that gave segments of `needed` bytes: further down, the more that is
/// too much.
pub(crate) fn next_segment_limit(limit: usize, memory: u64, needed: u64) -> usize {
    let excess = memory as f64 / needed.max(1) as f64;
    let above = limit.saturating_sub(LIMIT_MIN) as f64;
    LIMIT_MIN + (above * excess.clamp(0.5, 0.85)) as usize
}

/// The least memory to report in the refusal where none of the cuts fits.
pub(crate) fn least_memory_to_report(least: u64) -> u64 {
    least.saturating_add(REPORTED_MARGIN).next_multiple_of(REPORTED_STEP)
}

/// The size of one segment, in cells and lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentSize {
    /// Cells of all tables, padded.
    pub cells: u64,
    /// Lookups of all rows, padded.
    pub interactions: u64,
}

impl SegmentSize {
    /// Resident memory in bytes that proving the segment adds to a process.
    pub fn memory_bytes(&self) -> u64 {
        self.cells * BYTES_PER_CELL + self.padded_leaves() * BYTES_PER_LEAF
    }

    /// CPU seconds that proving the segment takes.
    fn proving_seconds(&self) -> f64 {
        FIXED_S + self.cells as f64 * S_PER_CELL + self.padded_leaves() as f64 * S_PER_LEAF
    }

    fn padded_leaves(&self) -> u64 {
        self.interactions.next_power_of_two().max(LEAVES_MIN)
    }

    /// Whether a smaller segment would take about as much, by the model.
    pub(crate) fn is_smallest(&self) -> bool {
        self.padded_leaves() == LEAVES_MIN
    }
}

/// CPU seconds of a run. Good enough to tell which of two cuts is the faster one.
pub(crate) fn run_seconds(loads: &[SegmentSize]) -> f64 {
    loads.iter().map(SegmentSize::proving_seconds).sum()
}

/// Width and lookups of each table of a machine.
pub(crate) struct TableShapes {
    pub log_height: usize,
    pub widths: Vec<u64>,
    pub interactions: Vec<u64>,
}

impl TableShapes {
    /// Peak of resident memory of a run, of which one segment at a time is in memory.
    pub fn peak_bytes(&self, loads: &[SegmentSize]) -> u64 {
        let segment = loads.iter().map(SegmentSize::memory_bytes).max().unwrap_or(0);
        let left = match loads.len() as u64 {
            0 | 1 => 0,
            several => BYTES_LEFT + several * BYTES_PER_PROOF,
        };
        FIXED_BYTES + (BYTES_PER_STACKED_ROW << self.log_height) + segment + left
    }

    pub fn segment_size(&self, segment: &Segment) -> SegmentSize {
        let mut load = SegmentSize::default();
        let tables = self.widths.iter().zip(&self.interactions);
        for (&height, (width, interactions)) in segment.trace_heights.iter().zip(tables) {
            let rows = if height == 0 { 0 } else { u64::from(height).next_power_of_two() };
            load.cells += rows * width;
            load.interactions += rows * interactions;
        }
        load
    }
}

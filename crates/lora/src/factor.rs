use std::fmt;

#[cfg(target_arch = "x86_64")]
mod simd;

/// Outputs that are summed side by side.
const PANEL: usize = 64;

/// A matrix of `width x rank` in 32-bit floating point that is added onto outputs: B, with the scale
/// of the adapter and of the rows of A in it. Kept in panels of 64 outputs, column after column, so
/// that a product reads it once from front to back.
#[derive(Clone, PartialEq)]
pub struct Factor {
    width: usize,
    rank: usize,
    panels: Vec<Panel>,
}

#[derive(Clone, Copy, PartialEq)]
#[repr(align(64))]
struct Panel([f32; PANEL]);

impl Factor {
    /// From `entry(output, column)`.
    pub fn new(width: usize, rank: usize, entry: impl Fn(usize, usize) -> f32) -> Self {
        let mut panels = Vec::with_capacity(width.div_ceil(PANEL) * rank);
        for first in (0..width).step_by(PANEL) {
            for column in 0..rank {
                let mut panel = Panel([0.0; PANEL]);
                for (at, output) in (first..width.min(first + PANEL)).enumerate() {
                    panel.0[at] = entry(output, column);
                }
                panels.push(panel);
            }
        }
        Factor { width, rank, panels }
    }

    /// Outputs.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Columns.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The entry of an output and a column.
    pub fn entry(&self, output: usize, column: usize) -> f32 {
        self.panels[output / PANEL * self.rank + column].0[output % PANEL]
    }

    /// Adds the product with each of several vectors, one after the other, to as many outputs. The
    /// order of the sums is the same on every machine.
    ///
    /// # Panics
    /// Where the lengths do not fit.
    pub fn add(&self, vectors: &[f32], outputs: &mut [f32]) {
        assert_eq!(vectors.len() * self.width, outputs.len() * self.rank, "vectors and outputs");
        if vectors.is_empty() {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if simd::add(self, vectors, outputs) {
            return;
        }
        add_panels(self, vectors, outputs);
    }
}

#[inline(always)]
fn add_panels(factor: &Factor, vectors: &[f32], outputs: &mut [f32]) {
    for (index, panels) in factor.panels.chunks_exact(factor.rank).enumerate() {
        let first = index * PANEL;
        let count = PANEL.min(factor.width - first);
        let rows = vectors.chunks_exact(factor.rank).zip(outputs.chunks_exact_mut(factor.width));
        for (vector, output) in rows {
            let mut sums = [0f32; PANEL];
            for (panel, value) in panels.iter().zip(vector) {
                for (sum, entry) in sums.iter_mut().zip(&panel.0) {
                    *sum += entry * value;
                }
            }
            for (output, sum) in output[first..first + count].iter_mut().zip(sums) {
                *output += sum;
            }
        }
    }
}

impl fmt::Debug for Factor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Factor {} x {}", self.width, self.rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_adds_the_same_product() {
        for (width, rank, rows) in [(1, 1, 1), (64, 3, 2), (100, 32, 3), (1536, 32, 1)] {
            let entry = |output: usize, column: usize| (output * 7 + column * 3) as f32 - 50.0;
            let factor = Factor::new(width, rank, entry);
            assert_eq!(factor.entry(width - 1, rank - 1), entry(width - 1, rank - 1));
            let vectors: Vec<f32> = (0..rows * rank).map(|at| at as f32 * 0.25 - 1.0).collect();
            let mut slow = vec![0.5; rows * width];
            add_panels(&factor, &vectors, &mut slow);
            let mut fast = vec![0.5; rows * width];
            factor.add(&vectors, &mut fast);
            assert_eq!(fast, slow);
            let row: f32 = (0..rank).map(|c| entry(width - 1, c) * vectors[c]).sum();
            assert!((slow[width - 1] - 0.5 - row).abs() <= 1e-5 * row.abs());
        }
    }
}

//! A matrix in 32-bit floating point whose products are added to outputs.

mod panels;
#[cfg(target_arch = "x86_64")]
mod simd;

use std::fmt;

pub use panels::ScaledB;
use panels::{PANEL, Panel, add_panel_products};

impl ScaledB {
    /// Makes a matrix of `width x rank` whose entries are `entry(output, column)`.
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
        ScaledB { width, rank, panels }
    }

    /// The number of outputs, which is the number of rows.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of columns.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The entry of an output and a column.
    pub fn entry(&self, output: usize, column: usize) -> f32 {
        self.panels[output / PANEL * self.rank + column].0[output % PANEL]
    }

    /// Multiplies the matrix with each of several consecutive vectors and adds the products to as many
    /// outputs. The order of the sums is the same on every machine.
    ///
    /// # Panics
    /// If the lengths do not match.
    pub fn add_products(&self, vectors: &[f32], outputs: &mut [f32]) {
        assert_eq!(vectors.len() * self.width, outputs.len() * self.rank, "vectors and outputs");
        if vectors.is_empty() {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if simd::add_products(self, vectors, outputs) {
            return;
        }
        add_panel_products(self, vectors, outputs);
    }
}

impl fmt::Debug for ScaledB {
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
            let factor = ScaledB::new(width, rank, entry);
            assert_eq!(factor.entry(width - 1, rank - 1), entry(width - 1, rank - 1));
            let vectors: Vec<f32> = (0..rows * rank).map(|at| at as f32 * 0.25 - 1.0).collect();
            let mut slow = vec![0.5; rows * width];
            add_panel_products(&factor, &vectors, &mut slow);
            let mut fast = vec![0.5; rows * width];
            factor.add_products(&vectors, &mut fast);
            assert_eq!(fast, slow);
            let row: f32 = (0..rank).map(|c| entry(width - 1, c) * vectors[c]).sum();
            assert!((slow[width - 1] - 0.5 - row).abs() <= 1e-5 * row.abs());
        }
    }
}

//! The layout of a matrix in panels of 64 outputs, and the loop over them.

/// The number of outputs whose sums are computed together.
pub(super) const PANEL: usize = 64;

/// A matrix of `width x rank` in 32-bit floating point whose products are added to outputs: B times
/// the scales of the adapter and of the rows of A. It is stored in panels of 64 outputs, column after
/// column, so that a product reads it once from front to back.
#[derive(Clone, PartialEq)]
pub struct ScaledB {
    pub(super) width: usize,
    pub(super) rank: usize,
    pub(super) panels: Vec<Panel>,
}

#[derive(Clone, Copy, PartialEq)]
#[repr(align(64))]
pub(super) struct Panel(pub(super) [f32; PANEL]);

#[inline(always)]
pub(super) fn add_panel_products(factor: &ScaledB, vectors: &[f32], outputs: &mut [f32]) {
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

//! LoRA in the clear: the reference for every scheme, and the mode `local-parity`, which protects
//! nothing.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use crate::{
    adapt_error::AdaptError,
    adapter::{Adapter, LoraPair, Matrix},
    deltas::{DeltaProvider, DeltaReport, DeltaSession},
    guarantee::Guarantee,
    site::{LayerInput, Projection, ProjectionSite, ProjectionWidth},
};

/// The delta of `pair` for `input`, in 64-bit floats: `scale · B · (A · input)`.
///
/// # Panics
/// If the length of `input` is not the width of A.
pub fn delta(pair: &LoraPair, input: &[f64]) -> Vec<f64> {
    let inner = multiply_vector(&pair.a, input);
    multiply_vector(&pair.b, &inner).into_iter().map(|value| pair.scale * value).collect()
}

fn multiply_vector(matrix: &Matrix, vector: &[f64]) -> Vec<f64> {
    assert_eq!(matrix.columns, vector.len(), "width of the matrix and length of the vector");
    let row = |row: &[f32]| row.iter().zip(vector).map(|(a, x)| f64::from(*a) * x).sum();
    matrix.values.chunks_exact(matrix.columns).map(row).collect()
}

/// The mode `local-parity`: adapter and activations are in one process, in the clear.
#[derive(Clone, Debug)]
pub struct LocalAdapter {
    adapter: Arc<Adapter>,
    sites: Arc<BTreeMap<ProjectionSite, ProjectionWidth>>,
}

impl LocalAdapter {
    /// Makes an adapter that is applied in this process.
    pub fn new(adapter: Arc<Adapter>) -> LocalAdapter {
        let sites = Arc::new(adapter.sites());
        LocalAdapter { adapter, sites }
    }

    /// The adapter.
    pub fn adapter(&self) -> &Adapter {
        &self.adapter
    }
}

impl DeltaProvider for LocalAdapter {
    fn sites(&self) -> &BTreeMap<ProjectionSite, ProjectionWidth> {
        &self.sites
    }

    /// Returns [`Guarantee::NONE`]: this process holds the activations and both matrices.
    fn guarantee(&self) -> Guarantee {
        Guarantee::NONE
    }

    fn open_session(&self) -> Result<Box<dyn DeltaSession>, AdaptError> {
        Ok(Box::new(LocalDeltas {
            adapter: Arc::clone(&self.adapter),
            report: DeltaReport::default(),
        }))
    }
}

struct LocalDeltas {
    adapter: Arc<Adapter>,
    report: DeltaReport,
}

impl DeltaSession for LocalDeltas {
    fn add_deltas(
        &mut self,
        layer: u32,
        input: LayerInput,
        rows: &[f32],
        outputs: &mut [(Projection, &mut [f32])],
    ) -> Result<(), AdaptError> {
        for (projection, output) in outputs.iter() {
            check_widths(&self.adapter, layer, input, rows, *projection, output.len())?;
        }
        for (projection, output) in outputs.iter_mut() {
            let site = ProjectionSite { layer, projection: *projection };
            let Some(pair) = self.adapter.modules.get(&site) else { continue };
            let width = pair.width();
            for (row, out) in
                rows.chunks_exact(width.input).zip(output.chunks_exact_mut(width.output))
            {
                self.report.add_pair_delta(pair, row, out);
            }
        }
        Ok(())
    }

    fn report(&self) -> DeltaReport {
        self.report.clone()
    }
}

impl DeltaReport {
    fn add_pair_delta(&mut self, pair: &LoraPair, row: &[f32], out: &mut [f32]) {
        let start = Instant::now();
        let scale = pair.scale as f32;
        let inner: Vec<f32> =
            pair.a.values.chunks_exact(pair.a.columns).map(|a| scale * dot(a, row)).collect();
        let between = Instant::now();
        for (out, b) in out.iter_mut().zip(pair.b.values.chunks_exact(pair.b.columns)) {
            *out += dot(b, &inner);
        }
        let milliseconds = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e3;
        *self.steps_ms.entry("product_ms").or_default() += milliseconds(start, between);
        *self.steps_ms.entry("b_ms").or_default() += milliseconds(between, Instant::now());
    }
}

/// Checks the widths before anything is written.
fn check_widths(
    adapter: &Adapter,
    layer: u32,
    input: LayerInput,
    rows: &[f32],
    projection: Projection,
    output: usize,
) -> Result<(), AdaptError> {
    let refuse = |reason: String| Err(AdaptError::Activation { reason });
    let site = ProjectionSite { layer, projection };
    let Some(pair) = adapter.modules.get(&site) else { return Ok(()) };
    let width = pair.width();
    if projection.input() != input {
        return refuse(format!("{site} reads {:?}, not {input:?}", projection.input()));
    }
    if !rows.len().is_multiple_of(width.input) {
        let (wanted, got) = (width.input, rows.len());
        return refuse(format!("{site}: wanted vectors of {wanted}, got {got} elements"));
    }
    let wanted = rows.len() / width.input * width.output;
    if wanted != output {
        return refuse(format!("{site}: wanted room for {wanted} elements, got {output}"));
    }
    Ok(())
}

// The number of independent partial sums. The compiler can keep them in one register, and the
// rounding error grows with a sixteenth of the length.
const LANES: usize = 16;

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    let mut sums = [0.0_f32; LANES];
    for (a, b) in a.zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: usize, columns: usize, seed: u32) -> Matrix {
        let value = |index: usize| {
            let mixed = (index as u32 + 1).wrapping_mul(2_654_435_761).wrapping_add(seed);
            (mixed.wrapping_mul(0x9E37_79B9) >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        Matrix { rows, columns, values: (0..rows * columns).map(value).collect() }
    }

    fn adapter() -> Adapter {
        let mut modules = BTreeMap::new();
        for (seed, projection) in (0..).zip(Projection::ALL) {
            let (input, output) =
                if projection == Projection::MlpDown { (40, 24) } else { (24, 40) };
            let pair =
                LoraPair { a: matrix(3, input, seed), b: matrix(output, 3, 7 + seed), scale: 2.0 };
            modules.insert(ProjectionSite { layer: 1, projection }, pair);
        }
        Adapter { name: "test".into(), base_model: None, modules }
    }

    #[test]
    fn a_delta_is_scale_times_b_times_a_times_x() {
        let a = Matrix { rows: 1, columns: 2, values: vec![3.0, 5.0] };
        let b = Matrix { rows: 2, columns: 1, values: vec![1.0, -2.0] };
        let pair = LoraPair { a, b, scale: 0.5 };
        assert_eq!(delta(&pair, &[1.0, 10.0]), [26.5, -53.0]);
    }

    #[test]
    fn local_adds_what_the_reference_gives_to_every_row() {
        let adapter = Arc::new(adapter());
        let mut deltas = LocalAdapter::new(Arc::clone(&adapter)).open_session().unwrap();
        for projection in Projection::ALL {
            let pair = &adapter.modules[&ProjectionSite { layer: 1, projection }];
            let width = pair.width();
            let rows = matrix(2, width.input, 99).values;
            let mut output = vec![1.0_f32; 2 * width.output];
            deltas
                .add_deltas(1, projection.input(), &rows, &mut [(projection, &mut output)])
                .unwrap();
            for (row, out) in rows.chunks(width.input).zip(output.chunks(width.output)) {
                let row: Vec<f64> = row.iter().map(|value| f64::from(*value)).collect();
                for (got, wanted) in out.iter().zip(delta(pair, &row)) {
                    assert!((f64::from(*got) - 1.0 - wanted).abs() < 1e-5, "{projection}");
                }
            }
        }
        let report = deltas.report();
        assert_eq!((report.he_operations, report.answered_vectors), (0, 0));
        assert!(report.steps_ms.contains_key("product_ms") && report.steps_ms.contains_key("b_ms"));
    }

    #[test]
    fn a_projection_without_a_pair_is_left_as_it_is() {
        let mut deltas = LocalAdapter::new(Arc::new(adapter())).open_session().unwrap();
        let mut output = [1.0_f32; 3];
        deltas
            .add_deltas(
                0,
                LayerInput::Attention,
                &[2.0; 5],
                &mut [(Projection::Query, &mut output)],
            )
            .unwrap();
        assert_eq!(output, [1.0; 3]);
    }

    #[test]
    fn what_does_not_fit_is_refused_before_anything_is_written() {
        let mut deltas = LocalAdapter::new(Arc::new(adapter())).open_session().unwrap();
        let (mut key, mut query) = ([0.0_f32; 40], [0.0_f32; 39]);
        let mut outputs = [(Projection::Key, &mut key[..]), (Projection::Query, &mut query[..])];
        let got = deltas.add_deltas(1, LayerInput::Attention, &[1.0; 24], &mut outputs);
        assert!(matches!(got, Err(AdaptError::Activation { .. })));
        assert_eq!(key, [0.0; 40]);
        let got = deltas.add_deltas(
            1,
            LayerInput::Attention,
            &[1.0; 25],
            &mut [(Projection::Key, &mut key)],
        );
        assert!(matches!(got, Err(AdaptError::Activation { .. })));
        let got = deltas.add_deltas(
            1,
            LayerInput::FeedForward,
            &[1.0; 24],
            &mut [(Projection::Key, &mut key)],
        );
        assert!(matches!(got, Err(AdaptError::Activation { .. })));
    }

    #[test]
    fn local_parity_says_that_nobody_is_protected() {
        assert_eq!(LocalAdapter::new(Arc::new(adapter())).guarantee().to_string(), "none");
    }
}

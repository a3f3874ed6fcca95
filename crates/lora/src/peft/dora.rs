//! DoRA's magnitudes, folded into a pair.

use super::{base::BaseWeights, error::PeftError, limits::ELEMENTS_MAX};
use crate::{
    adapter::{LoraPair, Matrix},
    site::ProjectionSite,
};

/// DoRA's output is `m / |W + sBA| · (W + sBA)x`, with the norm and one magnitude `m` of
/// each row (arXiv 2402.09353, equation 5). Its difference from `Wx` is a matrix of full rank.
pub(super) fn fold_magnitudes(
    site: ProjectionSite,
    pair: &LoraPair,
    magnitude: &[f32],
    base: &dyn BaseWeights,
) -> Result<LoraPair, PeftError> {
    let base = base.weight(site)?;
    let (rows, columns) = (pair.b.rows, pair.a.columns);
    if (base.rows, base.columns) != (rows, columns) {
        return Err(PeftError::Shape {
            tensor: format!("base model's weight of {site}"),
            wanted: format!("[{rows}, {columns}]"),
            got: vec![base.rows, base.columns],
        });
    }
    // The check comes before the allocation: the identity of a wide output is larger than all
    // other matrices.
    let elements = (rows * (rows + columns)) as u64;
    if elements > ELEMENTS_MAX {
        let what = format!("elements of the folded pair of {site}");
        return Err(PeftError::Limit { what, limit: ELEMENTS_MAX, got: elements });
    }
    let mut difference = Vec::with_capacity(rows * columns);
    let mut adapted = vec![0.0_f64; columns];
    for (row, magnitude) in magnitude.iter().enumerate() {
        let old = base.row(row);
        adapted.iter_mut().zip(old).for_each(|(new, old)| *new = f64::from(*old));
        for (b, k) in pair.b.row(row).iter().zip(0..) {
            let factor = pair.scale * f64::from(*b);
            let a = pair.a.row(k);
            adapted.iter_mut().zip(a).for_each(|(new, a)| *new += factor * f64::from(*a));
        }
        let norm = adapted.iter().map(|value| value * value).sum::<f64>().sqrt();
        let gain = f64::from(*magnitude) / norm;
        let changes = adapted.iter().zip(old).map(|(new, old)| gain * new - f64::from(*old));
        difference.extend(changes.map(|value| value as f32));
    }
    if let Some(index) = difference.iter().position(|value| !value.is_finite()) {
        let (tensor, got) = (format!("folded weight of {site}"), difference[index].to_string());
        return Err(PeftError::NotFinite { tensor, index, got });
    }
    let a = Matrix { rows, columns, values: difference };
    Ok(LoraPair { a, b: identity_matrix(rows), scale: 1.0 })
}

fn identity_matrix(size: usize) -> Matrix {
    let mut matrix = Matrix::zeroes(size, size);
    matrix.values.iter_mut().step_by(size + 1).for_each(|value| *value = 1.0);
    matrix
}

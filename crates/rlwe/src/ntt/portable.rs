//! The transforms in 64-bit integers, for every machine and modulus.

use super::stages::StageConstants;
use crate::modulus::{Modulus, ShoupFactor, conditional_subtract};

/// Runs Cooley-Tukey butterflies from natural to bit-reversed order; values stay below 4q until the end.
pub(super) fn forward(table: &StageConstants, values: &mut [u64]) {
    let (q, roots) = (table.modulus, &table.forward);
    let two_q = 2 * q.value();
    let mut half = values.len() / 2;
    let mut groups = 1;
    while half > 0 {
        for (group, block) in values.chunks_exact_mut(2 * half).enumerate() {
            let root = roots.root(groups + group);
            let (left, right) = block.split_at_mut(half);
            for (x, y) in left.iter_mut().zip(right) {
                let base = conditional_subtract(*x, two_q);
                let turned = q.mul_shoup_lazy(*y, root);
                *x = base + turned;
                *y = base + two_q - turned;
            }
        }
        groups *= 2;
        half /= 2;
    }
    for value in values {
        *value = conditional_subtract(conditional_subtract(*value, two_q), q.value());
    }
}

/// Runs Gentleman-Sande butterflies from bit-reversed to natural order; values stay below 2q until
/// the end. The last stage also multiplies by n^−1.
pub(super) fn inverse(table: &StageConstants, values: &mut [u64]) {
    let (q, roots) = (table.modulus, &table.inverse);
    let two_q = 2 * q.value();
    let mut half = 1;
    let mut groups = values.len() / 2;
    while groups > 1 {
        for (group, block) in values.chunks_exact_mut(2 * half).enumerate() {
            let root = roots.root(groups + group);
            let (left, right) = block.split_at_mut(half);
            for (x, y) in left.iter_mut().zip(right) {
                let difference = *x + two_q - *y;
                *x = conditional_subtract(*x + *y, two_q);
                *y = q.mul_shoup_lazy(difference, root);
            }
        }
        groups /= 2;
        half *= 2;
    }
    run_last_inverse_stage(q, table, values);
}

fn run_last_inverse_stage(q: Modulus, table: &StageConstants, values: &mut [u64]) {
    let two_q = 2 * q.value();
    let [scale, turn] = table.scale.map(|f| ShoupFactor { value: f.value, quotient: f.quotient });
    let (left, right) = values.split_at_mut(table.n / 2);
    for (x, y) in left.iter_mut().zip(right) {
        let (sum, difference) = (*x + *y, *x + two_q - *y);
        *x = q.mul_shoup(sum, scale);
        *y = q.mul_shoup(difference, turn);
    }
}

use std::time::Instant;

use confide_lora::{Guarantee, Matrix};

use super::{problem::Problem, spans::Spans, step::Step};
use crate::Outcome;

/// Sums that run side by side, so that the compiler can use wide registers.
const LANES: usize = 16;

/// `A·x` in 32-bit floats: nobody is protected from anybody.
pub(crate) struct Plain {
    a: Matrix,
}

impl Plain {
    pub(crate) fn new(problem: &Problem) -> Self {
        Self { a: problem.a.clone() }
    }
}

impl Step for Plain {
    fn name(&self) -> String {
        "plain LoRA, 32-bit floats".into()
    }

    fn guarantee(&self) -> String {
        Guarantee::NONE.to_string()
    }

    fn a_times(&mut self, input: &[f32], spans: &mut Spans) -> Outcome<Vec<f32>> {
        let low = (0..self.a.rows).map(|row| dot(self.a.row(row), input)).collect();
        spans.lap("product_ms");
        Ok(low)
    }

    fn error_max(&self) -> f64 {
        1e-5
    }

    fn floor(&self) -> Option<(String, String, f64)> {
        Some(("a copy of A".into(), "step_ms".into(), copy_ms(&self.a.values)))
    }
}

pub(crate) fn dot(row: &[f32], vector: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (rows, vectors) = (row.chunks_exact(LANES), vector.chunks_exact(LANES));
    let rest = rows.remainder().iter().zip(vectors.remainder()).map(|(a, x)| a * x).sum::<f32>();
    for (row, vector) in rows.zip(vectors) {
        for ((sum, a), x) in sums.iter_mut().zip(row).zip(vector) {
            *sum += a * x;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// The least of some copies of these values within the memory of this thread.
pub(crate) fn copy_ms<T: Copy + Default>(values: &[T]) -> f64 {
    const COPIES: usize = 200;
    let mut to = vec![T::default(); values.len()];
    let once = || {
        let began = Instant::now();
        to.copy_from_slice(std::hint::black_box(values));
        std::hint::black_box(&mut to);
        began.elapsed().as_secs_f64() * 1e3
    };
    std::iter::repeat_with(once).take(COPIES).fold(f64::INFINITY, f64::min)
}

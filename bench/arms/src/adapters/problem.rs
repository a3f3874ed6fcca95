//! The projection of report 003 with random values, and the error of an answer to it.

use confide_lora::Matrix;

/// Widths of one projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProjectionShape {
    pub(crate) width: usize,
    pub(crate) rank: usize,
    pub(crate) output: usize,
}

impl ProjectionShape {
    /// The shape that report 003 measures: the hidden width of Qwen2.5-1.5B to rank 32 and back.
    pub(crate) const PUBLISHED: Self = Self { width: 1536, rank: 32, output: 1536 };
}

/// Channels of an activation that are far larger than the rest, as in real models (he-lora.md 3.4).
const OUTLIERS: usize = 8;
const OUTLIER_SIZE: f32 = 60.0;

/// A projection with random A and B, and vectors for it. The same on every machine.
pub(crate) struct RandomProjection {
    pub(crate) shape: ProjectionShape,
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
}

impl RandomProjection {
    pub(crate) fn new(shape: ProjectionShape) -> Self {
        let mut random = Random(7);
        let a = random.matrix(shape.rank, shape.width, 0.02);
        let b = random.matrix(shape.output, shape.rank, 0.02);
        Self { shape, a, b }
    }

    /// The vector of request `number` of a block.
    pub(crate) fn input(&self, seed: u64, number: u64) -> Vec<f32> {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
        let mut input: Vec<f32> = (0..self.shape.width).map(|_| random.normal()).collect();
        let stride = self.shape.width / OUTLIERS;
        input.iter_mut().step_by(stride).for_each(|value| *value *= OUTLIER_SIZE);
        input
    }

    /// Relative distance from `B·A·x` in float64.
    pub(crate) fn relative_error(&self, input: &[f32], delta: &[f32]) -> f64 {
        let input: Vec<f64> = input.iter().copied().map(f64::from).collect();
        let exact = multiply(&self.b, &multiply(&self.a, &input));
        let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
        let apart =
            square(&mut exact.iter().zip(delta).map(|(right, got)| right - f64::from(*got)));
        (apart / square(&mut exact.iter().copied())).sqrt()
    }
}

fn multiply(matrix: &Matrix, vector: &[f64]) -> Vec<f64> {
    let row = |at| matrix.row(at).iter().zip(vector).map(|(a, x)| f64::from(*a) * x).sum();
    (0..matrix.rows).map(row).collect()
}

/// SplitMix64 (Steele, Lea, Flood 2014): a bench's numbers, never a secret's.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn matrix(&mut self, rows: usize, columns: usize, spread: f32) -> Matrix {
        let values = (0..rows * columns).map(|_| self.normal() * spread).collect();
        Matrix { rows, columns, values }
    }

    /// A number of about the normal distribution: the sum of twelve uniform numbers, less six.
    pub(crate) fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }

    fn uniform(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u64 << 24) as f32
    }

    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_problem_and_another_seed_another_vector() {
        let (one, two) = (
            RandomProjection::new(ProjectionShape::PUBLISHED),
            RandomProjection::new(ProjectionShape::PUBLISHED),
        );
        assert!(one.a == two.a && one.b == two.b);
        assert_eq!(one.input(5, 0), two.input(5, 0));
        assert_ne!(one.input(5, 0), one.input(5, 1));
        assert_ne!(one.input(5, 0), one.input(6, 0));
    }

    #[test]
    fn the_error_of_a_wrong_delta_is_seen() {
        let problem = RandomProjection::new(ProjectionShape { width: 64, rank: 4, output: 16 });
        let input = problem.input(1, 0);
        let exact: Vec<f64> = input.iter().copied().map(f64::from).collect();
        let delta = multiply(&problem.b, &multiply(&problem.a, &exact));
        let mut delta: Vec<f32> = delta.into_iter().map(|value| value as f32).collect();
        assert!(problem.relative_error(&input, &delta) < 1e-5);
        delta[3] += delta.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        assert!(problem.relative_error(&input, &delta) > 0.05);
    }
}

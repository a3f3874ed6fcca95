//! LoRA adapters: a pair of small matrices for each projection.

use std::{collections::BTreeMap, fmt};

use crate::site::{ProjectionSite, ProjectionWidth};

/// A LoRA adapter: for each projection that it changes, a pair of small matrices.
#[derive(Clone, PartialEq)]
pub struct Adapter {
    /// The name: that of its folder, or one that the caller chose.
    pub name: String,
    /// The base model that it was trained on, from its configuration.
    pub base_model: Option<String>,
    /// The pairs of matrices, by the projection that each of them adapts.
    pub modules: BTreeMap<ProjectionSite, LoraPair>,
}

/// `delta(x) = scale · B · (A · x)`, for `A` of `rank × input` and `B` of `output × rank`.
#[derive(Clone, PartialEq)]
pub struct LoraPair {
    /// The matrix A, `rank × input`.
    pub a: Matrix,
    /// The matrix B, `output × rank`.
    pub b: Matrix,
    /// The scale: alpha over rank, or over its square root (rsLoRA).
    pub scale: f64,
}

/// A matrix, row by row.
#[derive(Clone, PartialEq)]
pub struct Matrix {
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// `rows · columns` values, one row after the other.
    pub values: Vec<f32>,
}

impl Adapter {
    /// The projections that the adapter changes, with their widths.
    pub fn sites(&self) -> BTreeMap<ProjectionSite, ProjectionWidth> {
        self.modules.iter().map(|(site, pair)| (*site, pair.width())).collect()
    }

    /// The number of elements of all matrices.
    pub fn parameter_count(&self) -> u64 {
        let elements = |pair: &LoraPair| (pair.a.values.len() + pair.b.values.len()) as u64;
        self.modules.values().map(elements).sum()
    }
}

impl LoraPair {
    /// The rank: the number of rows of A, which is the number of columns of B.
    pub fn rank(&self) -> usize {
        self.a.rows
    }

    /// The widths of the pair's input and output vectors.
    pub fn width(&self) -> ProjectionWidth {
        ProjectionWidth { input: self.a.columns, output: self.b.rows }
    }
}

impl Matrix {
    /// A matrix of zeroes.
    pub fn zeroes(rows: usize, columns: usize) -> Matrix {
        Matrix { rows, columns, values: vec![0.0; rows * columns] }
    }

    /// Row `index`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.columns..(index + 1) * self.columns]
    }
}

// The values of an adapter are secret, so they are never printed.
impl fmt::Debug for Adapter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Adapter")
            .field("name", &self.name)
            .field("base_model", &self.base_model)
            .field("modules", &self.modules)
            .finish()
    }
}

impl fmt::Debug for LoraPair {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pair({:?}, {:?}, scale {})", self.a, self.b, self.scale)
    }
}

impl fmt::Debug for Matrix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Matrix({}x{})", self.rows, self.columns)
    }
}

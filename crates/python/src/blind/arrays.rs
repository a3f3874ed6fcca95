//! Arrays of numbers as Python's buffers: numpy reads and writes both without a copy.

use pyo3::{
    buffer::{Element, PyBuffer},
    prelude::*,
    types::PyByteArray,
};

use super::errors::value_error;

/// The values of a buffer of two dimensions, row after row, and its shape.
pub(crate) fn read_matrix<T: Element>(
    py: Python<'_>,
    name: &str,
    buffer: &PyBuffer<T>,
) -> PyResult<(Vec<T>, [usize; 2])> {
    if buffer.dimensions() != 2 {
        let dimensions = buffer.dimensions();
        return Err(value_error(format!("{name}: wanted two dimensions, got {dimensions}")));
    }
    let shape = [buffer.shape()[0], buffer.shape()[1]];
    Ok((buffer.to_vec(py)?, shape))
}

/// A byte array of little-endian numbers.
pub(crate) fn to_byte_array<const N: usize>(
    py: Python<'_>,
    count: usize,
    values: impl Iterator<Item = [u8; N]>,
) -> PyResult<Bound<'_, PyByteArray>> {
    PyByteArray::new_with(py, count * N, |bytes| {
        for (place, value) in bytes.as_chunks_mut::<N>().0.iter_mut().zip(values) {
            *place = value;
        }
        Ok(())
    })
}

//! Arrays of numbers as Python's buffers, which numpy takes without a copy.

use pyo3::{prelude::*, types::PyByteArray};

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

//! Integers modulo 2^k in k bits each: several vectors at a time.

use confide_lora::protocol;
use pyo3::{
    buffer::PyBuffer,
    prelude::*,
    types::{PyByteArray, PyBytes},
};

use super::{
    arrays::{read_matrix, to_byte_array},
    errors::value_error,
};

/// Gives the number of bytes of `count` values of `bits` bits.
#[pyfunction]
pub(crate) fn packed_bytes(count: usize, bits: u32) -> usize {
    protocol::packed_bytes(count, bits)
}

/// Packs uint64 [vectors, count], each below 2^`bits`: each vector by itself into whole bytes.
#[pyfunction]
pub(crate) fn pack<'py>(
    py: Python<'py>,
    values: PyBuffer<u64>,
    bits: u32,
) -> PyResult<Bound<'py, PyBytes>> {
    check_bits(bits)?;
    let (values, [vectors, count]) = read_matrix(py, "values", &values)?;
    let packed = py.detach(|| {
        let mut out = Vec::with_capacity(vectors * protocol::packed_bytes(count, bits));
        for vector in values.chunks(count.max(1)) {
            protocol::pack(vector, bits, &mut out);
        }
        out
    });
    Ok(PyBytes::new(py, &packed))
}

/// Unpacks `vectors` vectors of `count` values to uint64 [vectors, count]; `None` if `is_packed` refuses the bytes.
#[pyfunction]
pub(crate) fn unpack<'py>(
    py: Python<'py>,
    packed: &[u8],
    bits: u32,
    vectors: usize,
    count: usize,
) -> PyResult<Option<Bound<'py, PyByteArray>>> {
    if !is_packed(packed, bits, vectors, count) {
        return Ok(None);
    }
    let each = protocol::packed_bytes(count, bits).max(1);
    let values: Option<Vec<Vec<u64>>> = py.detach(|| {
        packed.chunks(each).map(|vector| protocol::unpack(vector, bits, count)).collect()
    });
    let Some(values) = values else { return Ok(None) };
    let words = values.iter().flatten().map(|value| value.to_le_bytes());
    to_byte_array(py, vectors * count, words).map(Some)
}

/// Whether bytes are `vectors` vectors of `count` values of `bits` bits, each packed by itself: whether they have this
/// length, and no bit after the last value of a vector is set.
#[pyfunction]
pub(crate) fn is_packed(packed: &[u8], bits: u32, vectors: usize, count: usize) -> bool {
    let each = protocol::packed_bytes(count, bits);
    (1..=64).contains(&bits)
        && vectors.checked_mul(each) == Some(packed.len())
        && packed.chunks(each.max(1)).all(|vector| protocol::is_packed(vector, bits, count))
}

fn check_bits(bits: u32) -> PyResult<()> {
    match bits {
        1..=64 => Ok(()),
        _ => Err(value_error(format!("bits: wanted 1 to 64, got {bits}"))),
    }
}

//! Adapters in PEFT's files.

use std::path::PathBuf;

use confide_lora::{Adapter, Matrix};
use pyo3::{prelude::*, types::PyByteArray};

use super::{arrays::to_byte_array, errors::adapter_error};

/// An adapter: its name, and a pair for each projection that it changes, in the order of layers and projections.
#[pyclass(frozen, get_all, module = "confide._native")]
pub(crate) struct PeftAdapter {
    name: String,
    pairs: Vec<Py<LoraPair>>,
}

/// delta(x) = scale · B · (A · x): `a` float32 [rank, input], `b` float32 [output, rank]. `projection` is its number on
/// the wire.
#[pyclass(frozen, get_all, module = "confide._native")]
pub(crate) struct LoraPair {
    layer: u32,
    projection: u8,
    rank: usize,
    input: usize,
    output: usize,
    a: Py<PyByteArray>,
    b: Py<PyByteArray>,
    scale: f64,
}

/// Reads the adapter in a folder as PEFT writes it; with `final_hidden`, only the pair of `q_proj` in layer 0, for the
/// last hidden state. Raises `AdapterRefused`.
#[pyfunction]
pub(crate) fn read_peft_adapter(
    py: Python<'_>,
    folder: PathBuf,
    final_hidden: bool,
) -> PyResult<PeftAdapter> {
    let read = py.detach(|| {
        let adapter = Adapter::load(folder)?;
        if final_hidden { adapter.into_final_hidden_adapter() } else { Ok(adapter) }
    });
    let adapter = read.map_err(|error| match error.hint() {
        Some(hint) => adapter_error(py, &format_args!("{error}; hint: {hint}")),
        None => adapter_error(py, &error),
    })?;
    // Each pair is dropped when Python has its copy.
    let pairs = adapter.modules.into_iter().map(|(site, pair)| {
        let width = pair.width();
        let copied = LoraPair {
            layer: site.layer,
            projection: site.projection as u8,
            rank: pair.rank(),
            input: width.input,
            output: width.output,
            a: copy_matrix(py, &pair.a)?,
            b: copy_matrix(py, &pair.b)?,
            scale: pair.scale,
        };
        Py::new(py, copied)
    });
    Ok(PeftAdapter { name: adapter.name, pairs: pairs.collect::<PyResult<_>>()? })
}

fn copy_matrix(py: Python<'_>, matrix: &Matrix) -> PyResult<Py<PyByteArray>> {
    let values = matrix.values.iter().map(|value| value.to_le_bytes());
    Ok(to_byte_array(py, matrix.values.len(), values)?.unbind())
}

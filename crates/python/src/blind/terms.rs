//! The integers of an adapter's projections, and the terms that a key holder receives.

use confide_lora::{
    Guarantee, LoraPair, Matrix, OutputTransform, Projection, ProtectedMatrices, WeightRounding,
    host::weights_digest, protocol,
};
use confide_rlwe::ParameterSet;
use pyo3::{
    buffer::PyBuffer,
    prelude::*,
    types::{PyByteArray, PyBytes},
};

use super::{
    arrays::{read_matrix, to_byte_array},
    errors::{adapter_error, protocol_error, value_error},
};

/// The terms of one input for a key holder. `source` is its number on the wire.
#[pyclass(frozen, get_all, module = "confide._native")]
pub(crate) struct InputTerms {
    layer: u32,
    source: u8,
    columns: usize,
    bits: u32,
    norm_limit: u64,
    noise_sigma: f64,
    outputs_max: usize,
    parts: Vec<Py<ProjectionTerms>>,
}

/// One projection of an input: its number on the wire, its rows in the product, the width of its output, and either
/// `factor`, float32 [outputs, rows], or `scale`.
#[pyclass(frozen, get_all, module = "confide._native")]
pub(crate) struct ProjectionTerms {
    projection: u8,
    rows: usize,
    outputs: usize,
    scale: f64,
    factor: Option<Py<PyByteArray>>,
}

/// The projections that read one input: `matrix`, int16 [rows, columns], the terms and their encoding, and the digest
/// for which answers are counted.
#[pyclass(frozen, get_all, module = "confide._native")]
pub(crate) struct QuantisedWeights {
    matrix: Py<PyByteArray>,
    terms: Py<InputTerms>,
    terms_bytes: Py<PyBytes>,
    weights_digest: [u8; 32],
}

/// A projection's number on the wire, A float32 [rank, input], B float32 [output, rank], and the scale.
type PairBuffers = (u8, PyBuffer<f32>, PyBuffer<f32>, f64);

/// Stacks and rounds the projections that read one input. Raises `AdapterRefused`.
///
/// Any parameter set will do: it decides the integers, and only where keys are made does its security matter.
#[pyfunction]
pub(crate) fn quantise_weights(
    py: Python<'_>,
    layer: u32,
    pairs: Vec<PairBuffers>,
    protect: &str,
    parameters: &str,
    noise_sigma: f64,
) -> PyResult<QuantisedWeights> {
    let protect = parse_protect(protect)?;
    let set = ParameterSet::dangerous_from_name(parameters)
        .map_err(|error| value_error(error.to_string()))?;
    let pairs = pairs.iter().map(|pair| read_pair(py, pair)).collect::<PyResult<Vec<_>>>()?;
    let (weights, digest) = py.detach(|| {
        let pairs: Vec<(Projection, &LoraPair)> =
            pairs.iter().map(|(projection, pair)| (*projection, pair)).collect();
        let rounding = WeightRounding { entry_max: confide_lora::ENTRY_MAX, noise_sigma };
        let weights =
            confide_lora::QuantisedWeights::with_rounding(layer, &pairs, protect, &set, rounding);
        (weights, weights_digest(&pairs))
    });
    let weights = weights.map_err(|error| adapter_error(py, &error))?;
    let matrix = &weights.matrix;
    let entries = (0..matrix.rows()).flat_map(|row| matrix.row(row)).map(i16::to_le_bytes);
    let count = matrix.rows() * matrix.columns();
    Ok(QuantisedWeights {
        matrix: to_byte_array(py, count, entries)?.unbind(),
        terms: Py::new(py, describe_terms(py, &weights.terms)?)?,
        terms_bytes: PyBytes::new(py, &protocol::encode_terms(&weights.terms)).unbind(),
        weights_digest: digest,
    })
}

/// Decodes the terms in a `GroupTerms`. Raises `FieldError`.
#[pyfunction]
pub(crate) fn decode_terms(py: Python<'_>, payload: &[u8]) -> PyResult<InputTerms> {
    let terms = py.detach(|| protocol::decode_terms(payload));
    let terms = terms.map_err(|error| protocol_error(py, &error))?;
    describe_terms(py, &terms)
}

/// Describes in words who is protected from whom.
#[pyfunction]
#[pyo3(signature = (host_is_blind, adapter_stays, b_is_handed_over, adapter_can_be_learned, simulated=false))]
pub(crate) fn describe_guarantee(
    host_is_blind: bool,
    adapter_stays: bool,
    b_is_handed_over: bool,
    adapter_can_be_learned: bool,
    simulated: bool,
) -> String {
    let guarantee = Guarantee {
        host_is_blind,
        adapter_stays,
        b_is_handed_over,
        adapter_can_be_learned,
        simulated,
    };
    guarantee.to_string()
}

/// The names of the choices of what stays at the host.
#[pyfunction]
pub(crate) fn protect_names() -> [&'static str; 2] {
    ProtectedMatrices::ALL.map(ProtectedMatrices::name)
}

/// The greatest magnitude of the noise on an answer.
#[pyfunction]
pub(crate) fn noise_headroom(sigma: f64) -> u64 {
    confide_lora::noise_headroom(sigma)
}

pub(crate) fn parse_protect(name: &str) -> PyResult<ProtectedMatrices> {
    let protect = ProtectedMatrices::ALL.into_iter().find(|protect| protect.name() == name);
    protect.ok_or_else(|| value_error(format!("protect: wanted a or ba, got {name:?}")))
}

pub(crate) fn protect_name(protect: ProtectedMatrices) -> String {
    protect.name().to_owned()
}

fn read_pair(py: Python<'_>, pair: &PairBuffers) -> PyResult<(Projection, LoraPair)> {
    let (number, a, b, scale) = pair;
    let mut projections = Projection::ALL.into_iter().chain([Projection::FinalHidden]);
    let projection = projections
        .find(|projection| *projection as u8 == *number)
        .ok_or_else(|| value_error(format!("projection: wanted 0 to 7, got {number}")))?;
    let matrix = |name, buffer| {
        let (values, [rows, columns]) = read_matrix(py, name, buffer)?;
        Ok::<_, PyErr>(Matrix { rows, columns, values })
    };
    Ok((projection, LoraPair { a: matrix("a", a)?, b: matrix("b", b)?, scale: *scale }))
}

fn describe_terms(py: Python<'_>, terms: &confide_lora::InputTerms) -> PyResult<InputTerms> {
    let part = |part: &confide_lora::ProjectionTerms| {
        let (outputs, scale, factor) = match &part.effect {
            OutputTransform::Scale(scale) => (part.rows, *scale, None),
            OutputTransform::Factor(factor) => {
                let (width, rank) = (factor.width(), factor.rank());
                let entries = (0..width)
                    .flat_map(|output| (0..rank).map(move |column| factor.entry(output, column)));
                let bytes = entries.map(f32::to_le_bytes);
                (width, 0.0, Some(to_byte_array(py, width * rank, bytes)?.unbind()))
            }
        };
        let (projection, rows) = (part.projection as u8, part.rows);
        Py::new(py, ProjectionTerms { projection, rows, outputs, scale, factor })
    };
    Ok(InputTerms {
        layer: terms.layer,
        source: terms.input as u8,
        columns: terms.columns,
        bits: terms.bits,
        norm_limit: terms.norm_limit,
        noise_sigma: terms.noise_sigma,
        outputs_max: terms.outputs_max,
        parts: terms.parts.iter().map(part).collect::<PyResult<_>>()?,
    })
}

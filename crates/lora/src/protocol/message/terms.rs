//! The encoding of [`InputTerms`].

use super::codes::{encode_enum, take_enum};
use crate::protocol::{error::ProtocolError, fields::FieldReader};
use crate::{
    factor::ScaledB,
    int_matrix::VECTOR_BITS_MAX,
    site::{LayerInput, Projection},
    terms::{InputTerms, OutputTransform, ProjectionTerms, RANK_MAX, WIDTH_MAX},
};

/// The greatest number of projections that read one input.
const PARTS_MAX: u8 = 8;

/// The greatest norm limit; no vector of 16-bit integers has this norm.
const NORM_LIMIT_MAX: u64 = 1 << 62;

const PROJECTIONS: [Projection; 8] = [
    Projection::Query,
    Projection::Key,
    Projection::Value,
    Projection::Output,
    Projection::MlpGate,
    Projection::MlpUp,
    Projection::MlpDown,
    Projection::FinalHidden,
];

/// Encodes the terms of one input, which a key holder receives.
pub fn encode_terms(terms: &InputTerms) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&terms.layer.to_le_bytes());
    out.push(encode_enum(&LayerInput::ALL, &terms.input, 0));
    out.extend_from_slice(&(terms.columns as u32).to_le_bytes());
    out.push(terms.bits as u8);
    out.extend_from_slice(&terms.norm_limit.to_le_bytes());
    out.extend_from_slice(&terms.noise_sigma.to_le_bytes());
    out.extend_from_slice(&(terms.outputs_max as u32).to_le_bytes());
    out.push(terms.parts.len() as u8);
    for part in &terms.parts {
        out.push(encode_enum(&PROJECTIONS, &part.projection, 0));
        out.extend_from_slice(&(part.rows as u32).to_le_bytes());
        match &part.effect {
            OutputTransform::Scale(scale) => {
                out.push(0);
                out.extend_from_slice(&scale.to_le_bytes());
            }
            OutputTransform::Factor(factor) => {
                out.push(1);
                out.extend_from_slice(&(factor.width() as u32).to_le_bytes());
                for output in 0..factor.width() {
                    for column in 0..factor.rank() {
                        out.extend_from_slice(&factor.entry(output, column).to_le_bytes());
                    }
                }
            }
        }
    }
    out
}

/// Decodes the bytes that [`encode_terms`] returns.
///
/// # Errors
/// If a field is missing or has a value that is not allowed.
pub fn decode_terms(bytes: &[u8]) -> Result<InputTerms, ProtocolError> {
    let mut fields = FieldReader::new("terms", bytes);
    let layer = fields.take_u32("layer")?;
    let input = take_enum(&mut fields, "input", &LayerInput::ALL, 0)?;
    let columns = take_dimension(&mut fields, "width", WIDTH_MAX)?;
    let bits = u32::from(fields.take_u8("bits")?);
    if !(2..=VECTOR_BITS_MAX).contains(&bits) {
        return Err(fields.field_error("bits", "2 to 33"));
    }
    let norm_limit = fields.take_u64("norm limit")?;
    if !(1..=NORM_LIMIT_MAX).contains(&norm_limit) {
        return Err(fields.field_error("norm limit", "1 to 2^62"));
    }
    let noise_sigma = fields.take_non_negative("noise sigma")?;
    let outputs_max = fields.take_u32("rows of a tile")? as usize;
    let count = fields.take_u8("parts")?;
    if !(1..=PARTS_MAX).contains(&count) {
        return Err(fields.field_error("parts", "1 to 8"));
    }
    let mut parts: Vec<ProjectionTerms> = Vec::with_capacity(count.into());
    for _ in 0..count {
        let part = take_projection(&mut fields)?;
        if part.projection.input() != input {
            return Err(fields.field_error("projection", "one that reads the input"));
        }
        if parts.iter().any(|other| other.projection == part.projection) {
            return Err(fields.field_error("projection", "each once"));
        }
        parts.push(part);
    }
    fields.expect_end()?;
    Ok(InputTerms { layer, input, columns, bits, norm_limit, noise_sigma, outputs_max, parts })
}

fn take_projection(fields: &mut FieldReader<'_>) -> Result<ProjectionTerms, ProtocolError> {
    let projection = take_enum(fields, "projection", &PROJECTIONS, 0)?;
    let rows = take_dimension(fields, "rows", WIDTH_MAX)?;
    let effect = match fields.take_u8("effect")? {
        0 => OutputTransform::Scale(fields.take_non_negative("scale")?),
        1 if rows <= RANK_MAX => {
            let width = take_dimension(fields, "outputs", WIDTH_MAX)?;
            let entries = fields.take_bytes("factor", width * rows * 4)?;
            let (entries, _) = entries.as_chunks::<4>();
            if !entries.iter().all(|entry| f32::from_le_bytes(*entry).is_finite()) {
                return Err(fields.field_error("factor", "finite numbers"));
            }
            let entry =
                |output: usize, column: usize| f32::from_le_bytes(entries[output * rows + column]);
            OutputTransform::Factor(ScaledB::new(width, rows, entry))
        }
        _ => return Err(fields.field_error("effect", "0, or 1 with at most 1024 rows")),
    };
    Ok(ProjectionTerms { projection, rows, effect })
}

fn take_dimension(
    fields: &mut FieldReader<'_>,
    field: &'static str,
    limit: usize,
) -> Result<usize, ProtocolError> {
    match fields.take_u32(field)? as usize {
        side if (1..=limit).contains(&side) => Ok(side),
        _ => Err(fields.field_error(field, "1 to its limit")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> InputTerms {
        let factor = ScaledB::new(3, 2, |output, column| (output * 2 + column) as f32 - 2.5);
        let parts = vec![
            ProjectionTerms {
                projection: Projection::Query,
                rows: 2,
                effect: OutputTransform::Factor(factor),
            },
            ProjectionTerms {
                projection: Projection::Value,
                rows: 4,
                effect: OutputTransform::Scale(0.25),
            },
        ];
        InputTerms {
            layer: 7,
            input: LayerInput::Attention,
            columns: 64,
            bits: 33,
            norm_limit: 1 << 20,
            noise_sigma: 0.5,
            outputs_max: 9,
            parts,
        }
    }

    #[test]
    fn terms_come_back_as_they_were_and_no_cut_of_them_does() {
        let bytes = encode_terms(&terms());
        assert_eq!(decode_terms(&bytes).unwrap(), terms());
        for end in 0..bytes.len() {
            assert!(decode_terms(&bytes[..end]).is_err(), "{end}");
        }
        assert!(decode_terms(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn terms_of_which_parts_do_not_fit_together_are_refused() {
        type Change = fn(&mut InputTerms);
        let cases: [(&str, Change); 7] = [
            ("bits", |t| t.bits = 37),
            ("norm limit", |t| t.norm_limit = 0),
            ("noise sigma", |t| t.noise_sigma = f64::NAN),
            ("parts", |t| t.parts.clear()),
            ("projection", |t| t.input = LayerInput::FeedForward),
            ("projection", |t| t.parts[1].projection = Projection::Query),
            ("width", |t| t.columns = WIDTH_MAX + 1),
        ];
        for (wanted, change) in cases {
            let mut changed = terms();
            change(&mut changed);
            match decode_terms(&encode_terms(&changed)) {
                Err(ProtocolError::Field { field, .. }) => assert_eq!(field, wanted),
                other => panic!("{wanted}: {other:?}"),
            }
        }
    }
}

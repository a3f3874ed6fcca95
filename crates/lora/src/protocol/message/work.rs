//! Messages of requests and their answers.

use super::codes::{encode_enum, take_enum};
use crate::protocol::{error::ProtocolError, fields::FieldReader};
use crate::{protocol::refusal::Refusal, site::LayerInput};

/// The greatest number of vectors in one [`MaskedRequest`]: a longer prompt is sent in several.
const VECTORS_MAX: u16 = 64;

/// Starts a batch of masks for one input; its ciphertexts follow in [`CiphertextBlock`]s of the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareRequest {
    /// The layer, from 0.
    pub layer: u32,
    /// The vector of the layer that the masks are for.
    pub input: LayerInput,
}

/// Consecutive ciphertexts of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CiphertextBlock<'a> {
    /// The element of the vector that the first ciphertext masks.
    pub first: u32,
    /// The number of ciphertexts.
    pub count: u16,
    /// The ciphertexts in the encoding of `confide-rlwe`, all of one length.
    pub ciphertexts: &'a [u8],
}

/// Consecutive ciphertexts of the answer to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparedRows<'a> {
    /// The row that the first ciphertext belongs to.
    pub first: u32,
    /// The number of ciphertexts.
    pub count: u16,
    /// The ciphertexts in the encoding of `confide-rlwe`, all of one length.
    pub ciphertexts: &'a [u8],
}

/// Credits further blocks of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCredit {
    /// The number of further blocks that the host accepts.
    pub blocks: u16,
    /// The index of the batch in this session and input, from 0. Its first counter is this times
    /// the ring's degree.
    pub batch: u64,
}

/// Masked vectors to be multiplied with the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedRequest<'a> {
    /// The layer, from 0.
    pub layer: u32,
    /// The vector of the layer.
    pub input: LayerInput,
    /// The counter of the first vector; each further one has the next.
    pub counter: u64,
    /// The number of vectors, 1 to 64.
    pub vectors: u16,
    /// The vectors, each packed by itself into whole bytes.
    pub packed: &'a [u8],
}

/// Answers an [`MaskedRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedAnswer<'a> {
    /// The number of answers left for this input; `None` if there is no budget.
    pub budget_left: Option<u64>,
    /// The number of products: one for each vector of the request.
    pub vectors: u16,
    /// The products, each packed by itself into whole bytes.
    pub packed: &'a [u8],
}

/// One vector as ciphertexts, to be multiplied with the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CiphertextRequest<'a> {
    /// The layer, from 0.
    pub layer: u32,
    /// The vector of the layer.
    pub input: LayerInput,
    /// The number of elements of the vector in one ciphertext.
    pub tile_inputs: u32,
    /// The number of rows whose products one ciphertext answers.
    pub tile_rows: u32,
    /// The ciphertexts in the encoding of `confide-rlwe`, all of one length.
    pub ciphertexts: &'a [u8],
}

/// Answers a [`CiphertextRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CiphertextAnswer<'a> {
    /// The number of answers left for this input; `None` if there is no budget.
    pub budget_left: Option<u64>,
    /// The ciphertexts in the encoding of `confide-rlwe`, each after its length (u32).
    pub ciphertexts: &'a [u8],
}

/// Ends a connection, or a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goodbye {
    /// Whether the session ends as well, so that the host forgets its batches.
    pub session: bool,
}

impl PrepareRequest {
    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_layer_input(out, self.layer, self.input);
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If a field is missing or has a value that is not allowed.
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = FieldReader::new("prepare", payload);
        let (layer, input) = take_layer_input(&mut fields)?;
        fields.expect_end()?;
        Ok(Self { layer, input })
    }
}

impl<'a> CiphertextBlock<'a> {
    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_ciphertexts(out, self.first, self.count, self.ciphertexts);
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If a field is missing or has a value that is not allowed.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let (first, count, ciphertexts) = decode_ciphertexts("block", payload)?;
        Ok(Self { first, count, ciphertexts })
    }
}

impl<'a> PreparedRows<'a> {
    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_ciphertexts(out, self.first, self.count, self.ciphertexts);
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If a field is missing or has a value that is not allowed.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let (first, count, ciphertexts) = decode_ciphertexts("prepared", payload)?;
        Ok(Self { first, count, ciphertexts })
    }
}

impl BlockCredit {
    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.blocks.to_le_bytes());
        out.extend_from_slice(&self.batch.to_le_bytes());
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If a field is missing or has a value that is not allowed.
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = FieldReader::new("credit", payload);
        let credit = Self { blocks: fields.take_u16("blocks")?, batch: fields.take_u64("batch")? };
        fields.expect_end()?;
        Ok(credit)
    }
}

impl<'a> MaskedRequest<'a> {
    /// The greatest number of vectors in one message.
    pub const VECTORS_MAX: u16 = VECTORS_MAX;

    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_head(out);
        out.extend_from_slice(self.packed);
    }

    /// Appends all but the packed vectors.
    pub(crate) fn encode_head(&self, out: &mut Vec<u8>) {
        put_layer_input(out, self.layer, self.input);
        out.extend_from_slice(&self.counter.to_le_bytes());
        out.extend_from_slice(&self.vectors.to_le_bytes());
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If a field is missing or has a value that is not allowed.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut fields = FieldReader::new("apply", payload);
        let (layer, input) = take_layer_input(&mut fields)?;
        let counter = fields.take_u64("counter")?;
        let vectors = fields.take_u16("vectors")?;
        if !(1..=VECTORS_MAX).contains(&vectors) {
            return Err(fields.field_error("vectors", "1 to 64"));
        }
        if counter.checked_add(vectors.into()).is_none() {
            return Err(fields.field_error("counter", "a counter whose successors fit 64 bits"));
        }
        Ok(Self { layer, input, counter, vectors, packed: fields.take_rest() })
    }
}

impl<'a> MaskedAnswer<'a> {
    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_head(out);
        out.extend_from_slice(self.packed);
    }

    /// Appends all but the packed vectors.
    pub(crate) fn encode_head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.budget_left.unwrap_or(u64::MAX).to_le_bytes());
        out.extend_from_slice(&self.vectors.to_le_bytes());
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If a field is missing or has a value that is not allowed.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut fields = FieldReader::new("products", payload);
        let left = fields.take_u64("budget left")?;
        let vectors = fields.take_u16("vectors")?;
        let budget_left = (left != u64::MAX).then_some(left);
        Ok(Self { budget_left, vectors, packed: fields.take_rest() })
    }
}

impl<'a> CiphertextRequest<'a> {
    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_layer_input(out, self.layer, self.input);
        out.extend_from_slice(&self.tile_inputs.to_le_bytes());
        out.extend_from_slice(&self.tile_rows.to_le_bytes());
        out.extend_from_slice(self.ciphertexts);
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If a field is missing or has a value that is not allowed.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut fields = FieldReader::new("direct", payload);
        let (layer, input) = take_layer_input(&mut fields)?;
        let (tile_inputs, tile_rows) =
            (fields.take_u32("tile inputs")?, fields.take_u32("tile rows")?);
        Ok(Self { layer, input, tile_inputs, tile_rows, ciphertexts: fields.take_rest() })
    }
}

impl<'a> CiphertextAnswer<'a> {
    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.budget_left.unwrap_or(u64::MAX).to_le_bytes());
        out.extend_from_slice(self.ciphertexts);
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If a field is missing or has a value that is not allowed.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut fields = FieldReader::new("direct answer", payload);
        let left = fields.take_u64("budget left")?;
        Ok(Self {
            budget_left: (left != u64::MAX).then_some(left),
            ciphertexts: fields.take_rest(),
        })
    }
}

impl<'a> CiphertextAnswer<'a> {
    /// Splits the ciphertexts at their lengths.
    ///
    /// # Errors
    /// If a length exceeds the remaining bytes.
    pub fn split_ciphertexts(&self) -> Result<Vec<&'a [u8]>, ProtocolError> {
        let mut parts = Vec::new();
        let mut rest = self.ciphertexts;
        while !rest.is_empty() {
            let mut fields = FieldReader::new("direct answer", rest);
            let length = fields.take_u32("length")? as usize;
            parts.push(fields.take_bytes("ciphertext", length)?);
            rest = fields.take_rest();
        }
        Ok(parts)
    }
}

impl Goodbye {
    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.session.into());
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If a field is missing or has a value that is not allowed.
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = FieldReader::new("goodbye", payload);
        let session = match fields.take_u8("session")? {
            0 => false,
            1 => true,
            _ => return Err(fields.field_error("session", "0 or 1")),
        };
        fields.expect_end()?;
        Ok(Self { session })
    }
}

impl Refusal {
    /// Appends the encoded message to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        let (code, detail) = self.code_and_detail();
        out.push(code);
        out.extend_from_slice(&detail.to_le_bytes());
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If a field is missing or has a value that is not allowed.
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = FieldReader::new("error", payload);
        let (code, detail) = (fields.take_u8("code")?, fields.take_u64("detail")?);
        let refusal = Refusal::from_code_and_detail(code, detail);
        let refusal = refusal.ok_or_else(|| fields.field_error("code", "a known one"))?;
        fields.expect_end()?;
        Ok(refusal)
    }
}

fn put_layer_input(out: &mut Vec<u8>, layer: u32, input: LayerInput) {
    out.extend_from_slice(&layer.to_le_bytes());
    out.push(encode_enum(&LayerInput::ALL, &input, 0));
}

fn take_layer_input(fields: &mut FieldReader<'_>) -> Result<(u32, LayerInput), ProtocolError> {
    Ok((fields.take_u32("layer")?, take_enum(fields, "input", &LayerInput::ALL, 0)?))
}

fn put_ciphertexts(out: &mut Vec<u8>, first: u32, count: u16, ciphertexts: &[u8]) {
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(ciphertexts);
}

fn decode_ciphertexts<'a>(
    message: &'static str,
    payload: &'a [u8],
) -> Result<(u32, u16, &'a [u8]), ProtocolError> {
    let mut fields = FieldReader::new(message, payload);
    let (first, count) = (fields.take_u32("first")?, fields.take_u16("count")?);
    let ciphertexts = fields.take_rest();
    if count == 0 || ciphertexts.is_empty() || !ciphertexts.len().is_multiple_of(count.into()) {
        return Err(fields.field_error("ciphertexts", "at least one, all of one length"));
    }
    Ok((first, count, ciphertexts))
}

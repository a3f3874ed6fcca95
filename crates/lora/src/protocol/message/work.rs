//! Messages of requests and their answers.

use super::codes::{code, word};
use crate::protocol::{error::ProtocolError, fields::Fields};
use crate::{protocol::refusal::Refusal, site::Input};

/// The greatest number of vectors in one [`Apply`]: a longer prompt is sent in several.
const VECTORS_MAX: u16 = 64;

/// Begins a batch of masks for one input; its ciphertexts follow in [`Block`]s of the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepare {
    /// The layer, from 0.
    pub layer: u32,
    /// The vector of the layer that the masks are for.
    pub input: Input,
}

/// Some ciphertexts of a batch, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The element of the vector that the first ciphertext masks.
    pub first: u32,
    /// The number of ciphertexts.
    pub count: u16,
    /// The ciphertexts in the encoding of `confide-rlwe`, all of one length.
    pub ciphertexts: &'a [u8],
}

/// Some ciphertexts of a batch's answer, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared<'a> {
    /// The row that the first ciphertext belongs to.
    pub first: u32,
    /// The number of ciphertexts.
    pub count: u16,
    /// The ciphertexts in the encoding of `confide-rlwe`, all of one length.
    pub ciphertexts: &'a [u8],
}

/// Credits further blocks of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The number of further blocks that the host takes in.
    pub blocks: u16,
    /// The index of the batch in this session and input, from 0. Its first counter is this times
    /// the ring's degree.
    pub batch: u64,
}

/// Masked vectors to be multiplied with the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apply<'a> {
    /// The layer, from 0.
    pub layer: u32,
    /// The vector of the layer.
    pub input: Input,
    /// The counter of the first vector; each further one has the next.
    pub counter: u64,
    /// The number of vectors, 1 to 64.
    pub vectors: u16,
    /// The vectors, each packed by itself into whole bytes.
    pub packed: &'a [u8],
}

/// Answers an [`Apply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Products<'a> {
    /// The number of answers left for this input; `None` if there is no budget.
    pub budget_left: Option<u64>,
    /// The number of products: one for each vector of the request.
    pub vectors: u16,
    /// The products, each packed by itself into whole bytes.
    pub packed: &'a [u8],
}

/// One vector as ciphertexts, to be multiplied with the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct<'a> {
    /// The layer, from 0.
    pub layer: u32,
    /// The vector of the layer.
    pub input: Input,
    /// The number of elements of the vector in one ciphertext.
    pub tile_inputs: u32,
    /// The number of rows that are answered in one ciphertext.
    pub tile_rows: u32,
    /// The ciphertexts in the encoding of `confide-rlwe`, all of one length.
    pub ciphertexts: &'a [u8],
}

/// Answers a [`Direct`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectAnswer<'a> {
    /// The number of answers left for this input; `None` if there is no budget.
    pub budget_left: Option<u64>,
    /// The ciphertexts in the encoding of `confide-rlwe`, each after its length (u32).
    pub ciphertexts: &'a [u8],
}

/// Ends a connection, or a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goodbye {
    /// Whether the session ends too, so that the host forgets its batches.
    pub session: bool,
}

impl Prepare {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_place(out, self.layer, self.input);
    }

    /// Reads the message.
    ///
    /// # Errors
    /// If a field is not as it must be.
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields::new("prepare", payload);
        let (layer, input) = place(&mut fields)?;
        fields.end()?;
        Ok(Self { layer, input })
    }
}

impl<'a> Block<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_part(out, self.first, self.count, self.ciphertexts);
    }

    /// Reads the message.
    ///
    /// # Errors
    /// If a field is not as it must be.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let (first, count, ciphertexts) = part("block", payload)?;
        Ok(Self { first, count, ciphertexts })
    }
}

impl<'a> Prepared<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_part(out, self.first, self.count, self.ciphertexts);
    }

    /// Reads the message.
    ///
    /// # Errors
    /// If a field is not as it must be.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let (first, count, ciphertexts) = part("prepared", payload)?;
        Ok(Self { first, count, ciphertexts })
    }
}

impl Credit {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.blocks.to_le_bytes());
        out.extend_from_slice(&self.batch.to_le_bytes());
    }

    /// Reads the message.
    ///
    /// # Errors
    /// If a field is not as it must be.
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields::new("credit", payload);
        let credit = Self { blocks: fields.u16("blocks")?, batch: fields.u64("batch")? };
        fields.end()?;
        Ok(credit)
    }
}

impl<'a> Apply<'a> {
    /// The greatest number of vectors in one message.
    pub const VECTORS_MAX: u16 = VECTORS_MAX;

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_head(out);
        out.extend_from_slice(self.packed);
    }

    /// Appends all but the packed vectors.
    pub(crate) fn encode_head(&self, out: &mut Vec<u8>) {
        put_place(out, self.layer, self.input);
        out.extend_from_slice(&self.counter.to_le_bytes());
        out.extend_from_slice(&self.vectors.to_le_bytes());
    }

    /// Reads the message.
    ///
    /// # Errors
    /// If a field is not as it must be.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields::new("apply", payload);
        let (layer, input) = place(&mut fields)?;
        let counter = fields.u64("counter")?;
        let vectors = fields.u16("vectors")?;
        if !(1..=VECTORS_MAX).contains(&vectors) {
            return Err(fields.field_error("vectors", "1 to 64"));
        }
        if counter.checked_add(vectors.into()).is_none() {
            return Err(fields.field_error("counter", "one that can be counted on from"));
        }
        Ok(Self { layer, input, counter, vectors, packed: fields.take_rest() })
    }
}

impl<'a> Products<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_head(out);
        out.extend_from_slice(self.packed);
    }

    /// Appends all but the packed vectors.
    pub(crate) fn encode_head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.budget_left.unwrap_or(u64::MAX).to_le_bytes());
        out.extend_from_slice(&self.vectors.to_le_bytes());
    }

    /// Reads the message.
    ///
    /// # Errors
    /// If a field is not as it must be.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields::new("products", payload);
        let left = fields.u64("budget left")?;
        let vectors = fields.u16("vectors")?;
        let budget_left = (left != u64::MAX).then_some(left);
        Ok(Self { budget_left, vectors, packed: fields.take_rest() })
    }
}

impl<'a> Direct<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_place(out, self.layer, self.input);
        out.extend_from_slice(&self.tile_inputs.to_le_bytes());
        out.extend_from_slice(&self.tile_rows.to_le_bytes());
        out.extend_from_slice(self.ciphertexts);
    }

    /// Reads the message.
    ///
    /// # Errors
    /// If a field is not as it must be.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields::new("direct", payload);
        let (layer, input) = place(&mut fields)?;
        let (tile_inputs, tile_rows) = (fields.u32("tile inputs")?, fields.u32("tile rows")?);
        Ok(Self { layer, input, tile_inputs, tile_rows, ciphertexts: fields.take_rest() })
    }
}

impl<'a> DirectAnswer<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.budget_left.unwrap_or(u64::MAX).to_le_bytes());
        out.extend_from_slice(self.ciphertexts);
    }

    /// Reads the message.
    ///
    /// # Errors
    /// If a field is not as it must be.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields::new("direct answer", payload);
        let left = fields.u64("budget left")?;
        Ok(Self {
            budget_left: (left != u64::MAX).then_some(left),
            ciphertexts: fields.take_rest(),
        })
    }
}

impl<'a> DirectAnswer<'a> {
    /// Splits the ciphertexts at their lengths.
    ///
    /// # Errors
    /// If a length goes beyond the end.
    pub fn split(&self) -> Result<Vec<&'a [u8]>, ProtocolError> {
        let mut parts = Vec::new();
        let mut rest = self.ciphertexts;
        while !rest.is_empty() {
            let mut fields = Fields::new("direct answer", rest);
            let length = fields.u32("length")? as usize;
            parts.push(fields.bytes("ciphertext", length)?);
            rest = fields.take_rest();
        }
        Ok(parts)
    }
}

impl Goodbye {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.session.into());
    }

    /// Reads the message.
    ///
    /// # Errors
    /// If a field is not as it must be.
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields::new("goodbye", payload);
        let session = match fields.u8("session")? {
            0 => false,
            1 => true,
            _ => return Err(fields.field_error("session", "0 or 1")),
        };
        fields.end()?;
        Ok(Self { session })
    }
}

impl Refusal {
    /// Appends the message.
    pub fn encode(self, out: &mut Vec<u8>) {
        let (code, detail) = self.parts();
        out.push(code);
        out.extend_from_slice(&detail.to_le_bytes());
    }

    /// Reads the message.
    ///
    /// # Errors
    /// If a field is not as it must be.
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields::new("error", payload);
        let (code, detail) = (fields.u8("code")?, fields.u64("detail")?);
        let refusal = Refusal::from_parts(code, detail);
        let refusal = refusal.ok_or_else(|| fields.field_error("code", "a known one"))?;
        fields.end()?;
        Ok(refusal)
    }
}

fn put_place(out: &mut Vec<u8>, layer: u32, input: Input) {
    out.extend_from_slice(&layer.to_le_bytes());
    out.push(code(&Input::ALL, &input, 0));
}

fn place(fields: &mut Fields<'_>) -> Result<(u32, Input), ProtocolError> {
    Ok((fields.u32("layer")?, word(fields, "input", &Input::ALL, 0)?))
}

fn put_part(out: &mut Vec<u8>, first: u32, count: u16, ciphertexts: &[u8]) {
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(ciphertexts);
}

fn part<'a>(
    message: &'static str,
    payload: &'a [u8],
) -> Result<(u32, u16, &'a [u8]), ProtocolError> {
    let mut fields = Fields::new(message, payload);
    let (first, count) = (fields.u32("first")?, fields.u16("count")?);
    let ciphertexts = fields.take_rest();
    if count == 0 || ciphertexts.is_empty() || !ciphertexts.len().is_multiple_of(count.into()) {
        return Err(fields.field_error("ciphertexts", "at least one, all of one length"));
    }
    Ok((first, count, ciphertexts))
}

//! Parts of the bodies of a receipt, whose other parts stay hidden (`docs/receipts.md`, "Excerpts").

use crate::{
    codec::{FormatError, Reader, Writer},
    seed::SALT_BYTES,
    transcript::{
        Direction, DirectionCommitment, LengthOpening, OpeningError, ShownBytes, TranscriptOpening,
    },
};

/// The first bytes of every excerpt.
pub const EXCERPT_MAGIC: &[u8] = b"confide excerpt v1\n";

/// The greatest length of an excerpt: every chunk of two bodies of 16 MiB, with salts and nodes.
pub const EXCERPT_BYTES_MAX: usize = 64 << 20;

/// The greatest length of the receipt in an excerpt.
const RECEIPT_BYTES_MAX: usize = 64 << 10;

const FORMAT: &str = "an excerpt, version 1";

/// A receipt that commits to two bodies, and openings of parts of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// The receipt with its signature, as the gateway gave it.
    pub receipt: Vec<u8>,
    /// The parts of the request's body.
    pub request: OpenedBody,
    /// The parts of the answer's body.
    pub response: OpenedBody,
}

/// The parts of a body that are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenedBody {
    /// The shown bytes, if there are any.
    pub bytes: Option<TranscriptOpening>,
    /// The true length, if it is shown.
    pub length: Option<LengthOpening>,
}

impl OpenedBody {
    /// Checks the openings against the commitment in the receipt. Returns the shown bytes and the
    /// true length, as far as they are shown.
    ///
    /// # Errors
    ///
    /// [`OpeningError`] if a part is not of the body to which the receipt commits.
    pub fn check(
        &self,
        direction: Direction,
        commitment: &DirectionCommitment,
    ) -> Result<(Vec<ShownBytes>, Option<u64>), OpeningError> {
        let bytes = self.bytes.as_ref().map(|opening| opening.check(direction, commitment));
        let length = self.length.map(|opening| opening.check(direction, commitment));
        Ok((bytes.transpose()?.unwrap_or_default(), length.transpose()?))
    }

    /// Whether nothing of the body is shown.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_none() && self.length.is_none()
    }

    fn write(&self, writer: &mut Writer) {
        writer.u8(self.bytes.is_some().into());
        if let Some(opening) = &self.bytes {
            opening.write(writer);
        }
        writer.u8(self.length.is_some().into());
        if let Some(LengthOpening { length, salt }) = &self.length {
            writer.u64(*length).raw(salt);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let bytes = match reader.presence_flag("opened bytes")? {
            true => Some(TranscriptOpening::read(reader)?),
            false => None,
        };
        let length = match reader.presence_flag("opened length")? {
            true => {
                let length = reader.u64("opened length")?;
                let salt: [u8; SALT_BYTES] = reader.array("salt of a length")?;
                Some(LengthOpening { length, salt })
            }
            false => None,
        };
        Ok(Self { bytes, length })
    }
}

impl Excerpt {
    /// Encodes the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::starting_with(EXCERPT_MAGIC);
        writer.u32_prefixed(&self.receipt);
        self.request.write(&mut writer);
        self.response.write(&mut writer);
        writer.finish()
    }

    /// Decodes the bytes of [`Excerpt::encode`].
    ///
    /// # Errors
    ///
    /// [`FormatError`] if the bytes are not exactly one file of this version within its limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes, EXCERPT_MAGIC, FORMAT)?;
        let receipt = reader.u32_prefixed(RECEIPT_BYTES_MAX, "receipt")?.to_vec();
        let request = OpenedBody::read(&mut reader)?;
        let excerpt = Self { receipt, request, response: OpenedBody::read(&mut reader)? };
        reader.expect_end(FORMAT)?;
        Ok(excerpt)
    }
}

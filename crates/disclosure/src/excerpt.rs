//! Parts of the bodies of a receipt, whose other parts stay hidden (`docs/receipts.md`, "Excerpts").

use confide_transcript::{
    CommittedDirection, Direction, DirectionCommitment, FormatError, LengthOpening, OpeningError,
    Reader, SALT_BYTES, Seed, ShownBytes, TranscriptError, TranscriptOpening, Writer,
};

use crate::name::Selector;

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

/// The reason why parts of a body cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ExcerptError {
    /// A wish names what a receipt does not commit to.
    #[error("{name} cannot be shown: a receipt commits to bytes and lengths of bodies only")]
    Field {
        /// The name that was wanted.
        name: String,
    },
    /// A range is not within the body, or the body is too long.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// Body or secret are not those of the receipt.
    #[error("the {} is not the one to which the receipt commits, or the secret is another one", .direction.as_str())]
    Differs {
        /// The direction of the body.
        direction: Direction,
    },
}

impl OpenedBody {
    /// Opens what `wishes` name of one body.
    ///
    /// # Errors
    ///
    /// [`ExcerptError::Differs`] if `commitment` is not to this body under this seed;
    /// [`ExcerptError::Transcript`] for a range beyond the body; [`ExcerptError::Field`] for a wish
    /// that is neither a range nor a length.
    pub fn open(
        seed: &Seed,
        direction: Direction,
        body: &[u8],
        commitment: &DirectionCommitment,
        wishes: &[Selector],
    ) -> Result<Self, ExcerptError> {
        let committed = CommittedDirection::new(seed, direction, body)?;
        if committed.commitment() != *commitment {
            return Err(ExcerptError::Differs { direction });
        }
        let (mut ranges, mut length) = (Vec::new(), None);
        for wish in wishes {
            match wish {
                Selector::Bytes(of, range) if *of == direction => ranges.push(range.clone()),
                Selector::Length(of) if *of == direction => length = Some(committed.open_length()),
                Selector::Bytes(..) | Selector::Length(_) => {}
                Selector::Field(name) => return Err(ExcerptError::Field { name: name.clone() }),
            }
        }
        let bytes = match ranges.is_empty() {
            true => None,
            false => Some(committed.open(&ranges)?),
        };
        Ok(Self { bytes, length })
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = &[b'x'; 300];

    fn excerpt(wishes: &[&str]) -> (Excerpt, DirectionCommitment) {
        let seed = Seed::of_receipt(&[1; 32], "rcpt-1");
        let wishes: Vec<_> = wishes.iter().map(|wish| Selector::parse(wish).unwrap()).collect();
        let committed = CommittedDirection::new(&seed, Direction::Response, BODY).unwrap();
        let commitment = committed.commitment();
        let response = OpenedBody::open(&seed, Direction::Response, BODY, &commitment, &wishes);
        let response = response.unwrap();
        (Excerpt { receipt: b"{}".to_vec(), response, ..Excerpt::default() }, commitment)
    }

    #[test]
    fn shown_parts_are_those_of_the_committed_body_and_of_no_other() {
        let (excerpt, commitment) =
            excerpt(&["response.bytes:70-80", "response.length", "request.length"]);
        let read = Excerpt::decode(&excerpt.encode()).unwrap();
        assert_eq!(read, excerpt);
        let (shown, length) = read.response.check(Direction::Response, &commitment).unwrap();
        assert_eq!(shown, [ShownBytes { start: 64, bytes: vec![b'x'; 64] }]);
        assert_eq!((length, read.request.is_empty()), (Some(300), true));
        let mut changed = read.clone();
        changed.response.bytes.as_mut().unwrap().leaves[0].chunk[3] = b'y';
        let refused = changed.response.check(Direction::Response, &commitment);
        assert_eq!(refused, Err(OpeningError::Root { what: "response bytes" }));
        let mut changed = read.clone();
        changed.response.length.as_mut().unwrap().length = 301;
        let refused = changed.response.check(Direction::Response, &commitment);
        assert_eq!(refused, Err(OpeningError::Length { what: "response" }));
        assert!(read.response.check(Direction::Request, &commitment).is_err());
    }

    #[test]
    fn another_body_secret_or_receipt_opens_nothing() {
        let (_, commitment) = excerpt(&["response.length"]);
        for (secret, id, body) in
            [([2; 32], "rcpt-1", BODY), ([1; 32], "rcpt-2", BODY), ([1; 32], "rcpt-1", &BODY[1..])]
        {
            let seed = Seed::of_receipt(&secret, id);
            let opened = OpenedBody::open(&seed, Direction::Response, body, &commitment, &[]);
            assert!(matches!(opened, Err(ExcerptError::Differs { .. })));
        }
        let seed = Seed::of_receipt(&[1; 32], "rcpt-1");
        for (wish, is_field) in [("response./choices", true), ("response.bytes:299-301", false)] {
            let wish = [Selector::parse(wish).unwrap()];
            let refused = OpenedBody::open(&seed, Direction::Response, BODY, &commitment, &wish);
            assert_eq!(matches!(refused, Err(ExcerptError::Field { .. })), is_field);
            assert!(refused.is_err());
        }
    }

    #[test]
    fn a_file_has_one_encoding_and_no_other_bytes_are_read() {
        let (excerpt, _) = excerpt(&["response.bytes:0-1", "response.length"]);
        let bytes = excerpt.encode();
        for length in 0..bytes.len() {
            assert!(Excerpt::decode(&bytes[..length]).is_err(), "{length}");
        }
        assert!(Excerpt::decode(&[&bytes[..], b"\0"].concat()).is_err());
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            if let Ok(other) = Excerpt::decode(&changed) {
                assert_eq!(other.encode(), changed);
            }
        }
    }
}

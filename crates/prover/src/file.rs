//! The file that holds a proof: `confide proof v1`.
//!
//! ```text
//! "confide proof v1\n"                       the magic
//! u32, big-endian                            length of the header
//! JSON, one spelling only                    the header
//! u64, big-endian                            length of the body
//! bytes of the back end                      the body
//! ```
//!
//! Nothing in the header is believed because it stands there. What the back end can tell from the
//! body and its own keys is told by it and compared ([`crate::judge()`]); the rest is shown as the
//! prover's word.

use serde::{Deserialize, Serialize};
use serde_json::error::Category;

use crate::line::{Digest, ProofMode, ProofStrength};

/// The first bytes of a proof file.
pub const MAGIC: &[u8] = b"confide proof v1\n";

/// The longest header: a statement of 16 KiB in hexadecimal, and some hundred bytes.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;

/// The longest body, in both modes. `confide-prover` checks no longer one either.
pub const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the proof of one segment takes at most: a full one at the default memory was measured at
/// 1,007,749 bytes, and twice the rows add a few hundredths.
pub const SEGMENT_BYTES_MAX: usize = 1280 * 1024;

/// The largest number of segments whose app proof fits into a body for certain.
pub const APP_SEGMENTS_MAX: u32 = (BODY_BYTES_MAX / SEGMENT_BYTES_MAX) as u32;

/// The longest file.
pub const FILE_BYTES_MAX: usize =
    MAGIC.len() + size_of::<u32>() + HEADER_BYTES_MAX + size_of::<u64>() + BODY_BYTES_MAX;

/// The longest name of a claim, a back end or a version.
const NAME_BYTES_MAX: usize = 64;

/// A proof with what it is said to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofFile {
    /// The header: the prover's unverified word on the proof.
    pub header: Header,
    /// The proof, in the back end's own encoding.
    pub body: Vec<u8>,
}

/// The header of a proof file: what the prover says of the proof.
// Unknown fields are refused by the comparison of spellings, as serde cannot refuse them with
// `flatten`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The statement, in its canonical encoding.
    #[serde(with = "hexadecimal")]
    pub statement: Vec<u8>,
    /// Name of claim and guest.
    pub claim: String,
    /// The back end's commitment to the program.
    pub program_digest: Digest,
    /// Name of the back end.
    pub backend: String,
    /// Version of the back end.
    pub backend_version: String,
    /// Kind of the proof.
    pub mode: ProofMode,
    /// Security of the proof's parameters.
    #[serde(flatten)]
    pub strength: ProofStrength,
    /// Segments that were proved.
    pub segments: u32,
    /// Cycles that the executor counted; no check can tell.
    pub cycles: u64,
}

/// Why bytes are no proof file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofFileError {
    /// The file does not begin with [`MAGIC`].
    #[error("proof file: wanted \"confide proof v1\" at its beginning, got something else")]
    Magic,
    /// The file ends too early.
    #[error("proof file is truncated in its {subject}: wanted {wanted} bytes, got {got}")]
    Truncated {
        /// The part that is cut.
        subject: &'static str,
        /// Bytes that belong to it.
        wanted: u64,
        /// Bytes that are there.
        got: usize,
    },
    /// A part is longer than its limit.
    #[error("{subject} of a proof file is too long: wanted at most {limit} bytes, got {got}")]
    TooLong {
        /// The part.
        subject: &'static str,
        /// The part's limit, in bytes.
        limit: usize,
        /// The part's announced length, in bytes.
        got: u64,
    },
    /// There are bytes behind the body.
    #[error("proof file: wanted its end after the body, got {got} bytes more")]
    Trailing {
        /// Number of bytes after the body.
        got: usize,
    },
    /// The header is not JSON of the wanted shape.
    #[error("header of a proof file is malformed: {reason}")]
    Header {
        /// What is wrong with it, and at which byte.
        reason: String,
    },
    /// A name has other characters: it would be shown to people, and could pretend to be a line of
    /// its own.
    #[error(
        "{subject} in a proof file: wanted only letters, digits and the characters \"-._+\", got another character or \
         an empty name"
    )]
    Name {
        /// What is named: the claim, the back end or its version.
        subject: &'static str,
    },
    /// The header is spelled otherwise than it is written here.
    #[error("header of a proof file: wanted its canonical spelling, got another")]
    Spelling,
}

impl ProofFile {
    /// Encodes the file.
    ///
    /// # Errors
    /// [`ProofFileError::TooLong`] if header or body is beyond its limit, [`ProofFileError::Header`] if the
    /// header is nothing that JSON holds.
    pub fn encode(&self) -> Result<Vec<u8>, ProofFileError> {
        let header = self.header.encode()?;
        check_length("header", HEADER_BYTES_MAX, header.len() as u64)?;
        check_length("body", BODY_BYTES_MAX, self.body.len() as u64)?;
        let mut bytes = Vec::with_capacity(MAGIC.len() + 12 + header.len() + self.body.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&(header.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(&(self.body.len() as u64).to_be_bytes());
        bytes.extend_from_slice(&self.body);
        Ok(bytes)
    }

    /// Reads a file; strict: what [`ProofFile::encode`] would not write is refused.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProofFileError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(ProofFileError::Magic)?;
        let (length, rest) = take_array::<4>("header's length", rest)?;
        let length = u64::from(u32::from_be_bytes(length));
        check_length("header", HEADER_BYTES_MAX, length)?;
        let (header, rest) = take_bytes("header", rest, length)?;
        let (length, rest) = take_array::<8>("body's length", rest)?;
        let length = u64::from_be_bytes(length);
        check_length("body", BODY_BYTES_MAX, length)?;
        let (body, rest) = take_bytes("body", rest, length)?;
        if !rest.is_empty() {
            return Err(ProofFileError::Trailing { got: rest.len() });
        }
        Ok(Self { header: Header::decode(header)?, body: body.to_vec() })
    }
}

impl Header {
    fn encode(&self) -> Result<Vec<u8>, ProofFileError> {
        serde_json::to_vec(self)
            .map_err(|error| ProofFileError::Header { reason: error.to_string() })
    }

    fn decode(bytes: &[u8]) -> Result<Self, ProofFileError> {
        let header: Self = serde_json::from_slice(bytes).map_err(header_error)?;
        for (subject, name) in [
            ("claim", &header.claim),
            ("back end", &header.backend),
            ("version", &header.backend_version),
        ] {
            check_length(subject, NAME_BYTES_MAX, name.len() as u64)?;
            let is_named = |c: char| c.is_ascii_alphanumeric() || "-._+".contains(c);
            if name.is_empty() || !name.chars().all(is_named) {
                return Err(ProofFileError::Name { subject });
            }
        }
        if header.encode()? != bytes { Err(ProofFileError::Spelling) } else { Ok(header) }
    }
}

/// Says where and how the JSON is wrong, without quoting its text.
fn header_error(error: serde_json::Error) -> ProofFileError {
    let how = match error.classify() {
        Category::Io => "it cannot be read",
        Category::Syntax => "it is not JSON",
        Category::Data => "a field is missing, unknown or of the wrong type",
        Category::Eof => "it ends too early",
    };
    ProofFileError::Header { reason: format!("{how}, at byte {}", error.column()) }
}

fn check_length(subject: &'static str, limit: usize, got: u64) -> Result<(), ProofFileError> {
    if got > limit as u64 { Err(ProofFileError::TooLong { subject, limit, got }) } else { Ok(()) }
}

fn take_array<'a, const N: usize>(
    subject: &'static str,
    bytes: &'a [u8],
) -> Result<([u8; N], &'a [u8]), ProofFileError> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or(ProofFileError::Truncated {
        subject,
        wanted: N as u64,
        got: bytes.len(),
    })?;
    Ok((*first, rest))
}

fn take_bytes<'a>(
    subject: &'static str,
    bytes: &'a [u8],
    wanted: u64,
) -> Result<(&'a [u8], &'a [u8]), ProofFileError> {
    let truncated = ProofFileError::Truncated { subject, wanted, got: bytes.len() };
    usize::try_from(wanted).ok().and_then(|at| bytes.split_at_checked(at)).ok_or(truncated)
}

mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        hex::decode(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reads_back_as_it_was_written() {
        let file = sample();
        assert_eq!(ProofFile::decode(&file.encode().unwrap()).unwrap(), file);
    }

    #[test]
    fn every_truncation_and_every_byte_more_is_refused() {
        let bytes = sample().encode().unwrap();
        for end in 0..bytes.len() {
            assert!(ProofFile::decode(&bytes[..end]).is_err(), "{end}");
        }
        let longer = [&bytes[..], b"\0"].concat();
        assert_eq!(ProofFile::decode(&longer), Err(ProofFileError::Trailing { got: 1 }));
    }

    #[test]
    fn a_header_in_another_spelling_is_refused() {
        let bytes = sample().encode().unwrap();
        let text = String::from_utf8(bytes[MAGIC.len() + 4..][..header_length(&bytes)].to_vec());
        let header = text.unwrap();
        let respelled = [
            (header.replacen("{", "{ ", 1), "a blank"),
            (header.replacen("abcdef", "ABCDEF", 1), "capitals"),
            (header.replacen("\"segments\":2", "\"segments\":2,\"segments\":2", 1), "twice"),
            (header.replacen("\"segments\":2", "\"segments\":2,\"more\":2", 1), "one more"),
            (header.replacen("\"app\"", "\"other\"", 1), "another mode"),
            (header.replacen("fibonacci", &"f".repeat(65), 1), "a long name"),
        ];
        for (text, what) in respelled {
            assert_ne!(text, header, "{what}");
            let error = ProofFile::decode(&with_header(&text)).unwrap_err();
            let wanted = matches!(
                error,
                ProofFileError::Spelling
                    | ProofFileError::Header { .. }
                    | ProofFileError::TooLong { .. }
            );
            assert!(wanted, "{what}: {error:?}");
        }
    }

    #[test]
    fn names_are_no_place_for_lines_of_ones_own() {
        let whole = sample();
        let hostile = "b\naccepted           yes";
        for name in ["", " ", "a b", hostile, "\u{1b}[2K", "\u{202e}app", "\u{9b}A"] {
            let mut files = [whole.clone(), whole.clone(), whole.clone()];
            files[0].header.claim = name.to_string();
            files[1].header.backend = name.to_string();
            files[2].header.backend_version = name.to_string();
            for file in files {
                let error = ProofFile::decode(&file.encode().unwrap()).unwrap_err();
                assert!(matches!(error, ProofFileError::Name { .. }), "{name:?}: {error:?}");
            }
        }
        // A mode that does not exist is not repeated either.
        let header = String::from_utf8(whole.header.encode().unwrap()).unwrap();
        let hostile = header.replacen("\"app\"", "\"\\nyes\"", 1);
        let error = ProofFile::decode(&with_header(&hostile)).unwrap_err();
        assert!(!error.to_string().contains("yes"), "{error}");
    }

    #[test]
    fn a_length_beyond_its_limit_is_refused_before_anything_is_read() {
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&u32::MAX.to_be_bytes());
        assert!(matches!(ProofFile::decode(&header), Err(ProofFileError::TooLong { .. })));
        let bytes = sample().encode().unwrap();
        let at = MAGIC.len() + 4 + header_length(&bytes);
        let mut body = bytes[..at].to_vec();
        body.extend_from_slice(&u64::MAX.to_be_bytes());
        assert!(matches!(ProofFile::decode(&body), Err(ProofFileError::TooLong { .. })));
        let long = ProofFile { body: vec![0; BODY_BYTES_MAX + 1], ..sample() };
        assert!(matches!(long.encode(), Err(ProofFileError::TooLong { .. })));
    }

    fn header_length(bytes: &[u8]) -> usize {
        let length: [u8; 4] = bytes[MAGIC.len()..][..4].try_into().unwrap();
        u32::from_be_bytes(length) as usize
    }

    fn with_header(text: &str) -> Vec<u8> {
        let length = (text.len() as u32).to_be_bytes();
        [MAGIC, &length, text.as_bytes(), &1_u64.to_be_bytes(), b"b"].concat()
    }

    fn sample() -> ProofFile {
        let strength =
            ProofStrength { proven_bits: 100, conjectured_bits: 100, zero_knowledge: false };
        let header = Header {
            statement: vec![0xab, 0xcd, 0xef],
            claim: "fibonacci".to_string(),
            program_digest: Digest([7; 32]),
            backend: "openvm".to_string(),
            backend_version: "2.0.2".to_string(),
            mode: ProofMode::App,
            strength,
            segments: 2,
            cycles: 423_373,
        };
        ProofFile { header, body: b"proof".to_vec() }
    }
}

//! Commit to a transcript, open parts of it.
//!
//! A notary commits to both directions of a TLS session and to the JSON fields in them, and signs
//! one [`NotaryStatement`]. The holder opens what he wants to show and proves ranges over what he
//! does not; a third party checks both with nothing but the statement. `docs/disclosure.md` says
//! every byte, so that another implementation can check.
//!
//! Pure: no clock, no network, no file. Time is a value in the statement.

mod codec;
mod evidence;
mod field;
mod moment;
mod number;
mod seed;
mod signature;
mod statement;
mod transcript;
mod tree;

pub use codec::FormatError;
pub use evidence::{CLAIMS_BYTES_MAX, ENDORSEMENTS_BYTES_MAX, NotaryEvidence, QUOTE_BYTES_MAX};
pub use field::{Field, Kind, PATH_BYTES_MAX, VALUE_BYTES_MAX};
pub use moment::micros_of_rfc3339;
pub use number::{Number, NumberError, amount_of_number};
pub use seed::{SALT_BYTES, SEED_BYTES, Seed};
pub use signature::{
    NotaryKey, PUBLIC_KEY_BYTES, SIGNATURE_BYTES, Signature, SignatureError, spki,
};
pub use statement::{
    FieldsRoot, HttpVersion, NotaryStatement, STATEMENT_BYTES_MAX, TlsVersion, View,
    certificate_chain_hash,
};
pub use transcript::{
    CHUNK_BYTES, Commitment, CommittedDirection, Direction, LEAVES_MIN, LengthOpening, OpenedLeaf,
    OpeningError, ShownBytes, TRANSCRIPT_BYTES_MAX, TranscriptError, TranscriptOpening,
    transcript_leaf,
};
pub use tree::{DEPTH_MAX, node};

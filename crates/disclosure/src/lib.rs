//! Commitments to a transcript, and openings of parts of it.
//!
//! A notary commits to both directions of a TLS session and to the JSON fields in them, and signs
//! one [`NotaryStatement`]. The holder, the notary's client, opens the parts that it wishes to
//! show, and proves facts about values that stay hidden; a third party checks both against the
//! statement alone. `docs/disclosure.md` specifies every byte, so that another implementation can
//! check.
//!
//! A gateway commits to the bodies of one exchange in the same way ([`DirectionHasher`]), and its
//! client shows parts of them as an [`Excerpt`].
//!
//! The crate reads no clock, network or file. Time is a value in the statement.

#![deny(missing_docs)]

mod amount;
mod binding;
mod comparison;
mod disclose;
mod disclose_error;
mod disclosure;
mod events;
mod evidence;
mod excerpt;
mod field;
mod fields;
mod json;
mod message;
mod name;
mod number;
mod proven;
mod proving;
mod rfc3339;
mod secrets;
mod session;
mod signature;
mod statement;
mod text;
mod tls;
mod verification;
mod verify_error;

pub use amount::AmountDisplay;
pub use comparison::Comparison;
/// The security of a proof and its assumptions, as its back end states them.
pub use confide_sigma::ProofSecurity;
pub use confide_transcript::{
    CHUNK_BYTES, CommittedDirection, Direction, DirectionCommitment, DirectionHasher,
    EXCERPT_BYTES_MAX, EXCERPT_MAGIC, Excerpt, FormatError, LengthOpening, OpenedBody, OpenedLeaf,
    OpeningError, SALT_BYTES, SEED_BYTES, Seed, ShownBytes, TRANSCRIPT_BYTES_MAX, TranscriptError,
    TranscriptOpening,
};
pub use disclose_error::DiscloseError;
pub use disclosure::{
    CLAIMS_MAX, Claim, DISCLOSURE_BYTES_MAX, DISCLOSURE_MAGIC, Disclosure, OtherField,
};
pub use events::{AssembledStream, EVENTS_MAX, EventsError, assemble_stream};
pub use evidence::{
    CLAIMS_BYTES_MAX, ENDORSEMENTS_BYTES_MAX, NOTARY_GUARANTEE, NotaryEvidence, QUOTE_BYTES_MAX,
};
pub use excerpt::{ExcerptError, open_body};
pub use field::{Field, FieldKind};
pub use fields::{
    CommittedFields, FIELDS_MAX, FieldsOpening, OpenedField, OpenedValue, Reveal, TooManyFields,
};
pub use json::{JSON_DEPTH_MAX, JSON_VALUES_MAX, Json, JsonError};
pub use message::{HEADERS_MAX, HttpMessage, MessageError, StartLine};
pub use name::{NameError, Predicate, Selector};
pub use number::{Number, NumberError, parse_amount};
pub use proven::{ProvenClaim, ProvenFact};
pub use proving::DiscloseOptions;
pub use rfc3339::parse_rfc3339_micros;
pub use session::{
    HOLDER_BYTES_MAX, HOLDER_MAGIC, NotariseError, NotarisedSession, SessionCheckError,
    SessionFacts, SessionTranscript, notarise,
};
pub use signature::{NotaryKey, SIGNATURE_BYTES, Signature, SignatureError, encode_spki};
pub use statement::{
    BodyView, FieldsRoot, HttpVersion, NotaryStatement, PUBLIC_KEY_BYTES, STATEMENT_BYTES_MAX,
    certificate_chain_hash,
};
pub use text::{
    FIELD_TEXT_BYTES_MAX, LeafWitness, SignedTree, TextProofs, TextStatement, TextWitness,
};
pub use tls::{TlsGroup, TlsSession, TlsSuite, TlsVersion};
pub use verification::{ShownField, VerifiedDisclosure};
pub use verify_error::VerifyError;

/// Compiles and runs the example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

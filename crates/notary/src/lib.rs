//! A notary in a TEE: opens TLS to a named host and signs what it saw.
//!
//! - [`Notary`] serves clients that have verified its evidence; [`AnswerReader`] and
//!   [`Received::check`] are the client's side.
//! - [`FetchRequest`] is what a client asks, [`Frame`]s are what it gets: the answer as it comes,
//!   then one signed statement over both.
//! - [`NotaryPolicy`] says whom a notary serves; its digest is in the claims that the evidence
//!   binds.
//!
//! The wire, the transcript and the policy are described in `docs/notary.md`.

mod address;
mod answer;
mod error;
mod exchange;
mod frames;
mod gunzip;
mod head;
mod holder;
mod key;
pub mod limits;
mod notary;
mod places;
mod policy;
mod refusal;
mod request;
mod request_error;
mod serve;
mod signed;
mod target;
mod transcript;
mod upstream;

pub use confide_http::{Admission, AdmissionLimits, Drained};

pub use address::{Block, BlockError, is_public};
pub use error::{ExchangeError, KeyError, NotaryError};
pub use frames::{Frame, FrameError, FrameReader, SIGNED_BYTES_MAX};
pub use head::{AnswerHead, HeadError};
pub use holder::{AnswerReader, HolderError, Received};
pub use limits::Limits;
pub use notary::{GUARANTEE, Notary, Options};
pub use policy::{NotaryPolicy, POLICY_BYTES_MAX, PolicyError, Roots, RootsFrom};
pub use refusal::Refusal;
pub use request::FetchRequest;
pub use request_error::RequestError;
pub use serve::{ClientLookup, FETCH_PATH, KEY_PATH, MEDIA_TYPE, WELL_KNOWN_PATH};
pub use signed::{KEY_EVIDENCE_BYTES_MAX, KeyEvidence, Signed, SignedError};
pub use target::Target;

//! A notary in a TEE: it opens TLS to a named host and signs a statement about the exchange.
//!
//! - [`Notary`] serves clients that have verified its evidence; [`AnswerReader`] and
//!   [`ReceivedAnswer::check`] are the client's side.
//! - A client sends a [`FetchRequest`] and receives [`Frame`]s: the answer as it arrives, then one
//!   signed statement over request and answer.
//! - [`NotaryPolicy`] lists the hosts from which a notary fetches; its digest is in the claims that
//!   the evidence binds.
//!
//! The wire, the transcript and the policy are described in `docs/notary.md`.

mod address;
mod answer;
mod content_coding;
mod error;
mod exchange;
mod exchange_slots;
mod frames;
mod head;
mod holder;
mod key;
pub mod limits;
mod notary;
mod policy;
mod refusal;
mod request;
mod request_error;
mod serve;
mod signed;
mod target;
mod transcript;
mod upstream;

pub use confide_http::{Admission, AdmissionLimits, DrainOutcome};

pub use address::{AddressBlock, AddressBlockError, is_public};
pub use error::{ExchangeError, KeyError, NotaryError};
pub use frames::{Frame, FrameError, FrameReader, SIGNED_BYTES_MAX};
pub use head::{AnswerHead, HeadError};
pub use holder::{AnswerReader, ReceivedAnswer, StatementCheckError};
pub use limits::NotaryLimits;
pub use notary::{GUARANTEE, Notary, NotaryOptions};
pub use policy::{NotaryPolicy, POLICY_BYTES_MAX, PolicyError, RootsSource, ServerRoots};
pub use refusal::Refusal;
pub use request::FetchRequest;
pub use request_error::RequestError;
pub use serve::{ClientLookup, FETCH_PATH, KEY_PATH, MEDIA_TYPE, WELL_KNOWN_PATH};
pub use signed::{KEY_EVIDENCE_BYTES_MAX, KeyEvidence, SignedStatement, SignedStatementError};
pub use target::FetchTarget;

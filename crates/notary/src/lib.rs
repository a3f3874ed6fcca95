//! A notary in a TEE: opens TLS to a named host and signs what it saw.
//!
//! - [`FetchRequest`] is what a client asks, [`Frame`]s are what it gets: the answer as it comes,
//!   then one signed statement over both.
//! - [`NotaryPolicy`] says whom a notary serves; its digest is in the claims that the evidence
//!   binds.
//!
//! The wire, the transcript and the policy are described in `docs/notary.md`.

mod address;
mod fields;
mod frames;
mod gunzip;
pub mod limits;
mod policy;
mod refusal;
mod request;
mod target;

pub use address::{Block, BlockError, is_public};
pub use fields::{SECRET_FIELDS, is_secret};
pub use frames::{Frame, FrameError, FrameReader, SIGNED_BYTES_MAX};
pub use limits::Limits;
pub use policy::{NotaryPolicy, POLICY_BYTES_MAX, PolicyError, Roots, RootsFrom};
pub use refusal::Refusal;
pub use request::{FetchRequest, RequestError};
pub use target::Target;

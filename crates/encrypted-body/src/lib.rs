//! Bodies of HTTP requests and answers, encrypted to a key that evidence vouches for, for proxies in
//! between that terminate TLS. The form is that of EHBP: HPKE (RFC 9180) and frames with a length.
//!
//! A client makes a [`RequestSealer`] for the server's [`BodyPublicKey`] and sends its frames; the
//! server opens them with a [`RequestOpener`] of its [`RecipientKey`]. Both ends then share an
//! [`ExchangeSecret`], from which the answer's [`AnswerSealer`] and [`AnswerOpener`] are made. A
//! [`FrameReader`] finds the frames in the bytes of either direction.
//!
//! EHBP does not notice that a body was cut between two frames. Ends that agree on
//! [`BodyEnd::FinalFrame`] do: their last frame says so, and the keys depend on the agreement, so
//! that nobody in between can take it away. `docs/encrypted-bodies.md` describes the format.

mod answer;
mod context;
mod encapsulated_key;
mod error;
mod fields;
mod frame;
mod kem;
mod key;
mod key_config;
mod public_key;
mod random;
mod request;

pub use answer::{ANSWER_NONCE_BYTES, AnswerNonce, AnswerOpener, AnswerSealer, ExchangeSecret};
pub use encapsulated_key::EncapsulatedKey;
pub use error::EncryptedBodyError;
pub use fields::{
    ANSWER_NONCE_FIELD, BodyEnd, ENCAPSULATED_KEY_FIELD, END_FIELD, KEY_CONFIG_PROBLEM, KEYS_PATH,
    KEYS_TYPE, PROBLEM_TYPE,
};
pub use frame::{
    FRAME_OVERHEAD_BYTES, FrameReader, LENGTH_BYTES, SealedFrame, TAG_BYTES, mark_final_frame,
};
pub use kem::BodyKem;
pub use key::RecipientKey;
pub use key_config::{encode_key_config, parse_key_configs};
pub use public_key::BodyPublicKey;
pub use request::{RequestOpener, RequestSealer};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vector_tests;

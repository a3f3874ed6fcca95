//! HTTP requests and answers, encrypted to a key that evidence vouches for, for proxies in between that
//! terminate TLS. There are two forms over the same keys: EHBP, which encrypts bodies, and OHTTP,
//! which encrypts whole messages for a relay.
//!
//! # EHBP
//! The form is HPKE (RFC 9180) and frames with a length.
//!
//! A client makes a [`RequestSealer`] for the server's [`BodyPublicKey`] and sends its frames; the
//! server opens them with a [`RequestOpener`] of its [`RecipientKey`]. Both ends then share an
//! [`ExchangeSecret`], from which the answer's [`AnswerSealer`] and [`AnswerOpener`] are made. A
//! [`FrameReader`] finds the frames in the bytes of either direction.
//!
//! EHBP does not notice that a body was cut between two frames. Ends that agree on
//! [`BodyEnd::FinalFrame`] do: their last frame says so, and the keys depend on the agreement, so
//! that nobody in between can take it away. `docs/encrypted-bodies.md` describes the format.
//!
//! # OHTTP
//! A client makes an [`OhttpRequestSealer`] and sends its [`OhttpRequestHead`] and chunks; the gateway
//! opens them with an [`OhttpRequestOpener`]. Both share an [`OhttpAnswerSecret`], from which
//! [`OhttpAnswerSealer`] and [`OhttpAnswerOpener`] are made. A [`ChunkReader`] finds the chunks in the
//! bytes of either direction. What is encrypted is a message in binary form (RFC 9292): a
//! [`MessageHead`] and its content, which a [`MessageReader`] reads.

mod answer;
mod answer_cipher;
mod binary_message;
mod chunk;
mod cipher;
mod ciphertext_buffer;
mod context;
mod encapsulated_key;
mod error;
mod fields;
mod frame;
mod kem;
mod key;
mod key_config;
mod key_id;
mod message_reader;
mod ohttp_answer;
mod ohttp_form;
mod ohttp_head;
mod ohttp_request;
mod public_key;
mod random;
mod request;
mod varint;

pub use answer::{ANSWER_NONCE_BYTES, AnswerNonce, AnswerOpener, AnswerSealer, ExchangeSecret};
pub use binary_message::{
    ControlData, MessageField, MessageHead, append_content, append_message_end,
};
pub use chunk::ChunkReader;
pub use cipher::BodyCipher;
pub use encapsulated_key::EncapsulatedKey;
pub use error::EncryptedBodyError;
pub use fields::{
    ANSWER_NONCE_FIELD, BodyEnd, ENCAPSULATED_KEY_FIELD, END_FIELD, KEY_CONFIG_PROBLEM,
    KEY_ID_FIELD, KEYS_PATH, KEYS_TYPE, PROBLEM_TYPE,
};
pub use frame::{
    FRAME_OVERHEAD_BYTES, FrameReader, LENGTH_BYTES, SealedFrame, TAG_BYTES, mark_final_frame,
};
pub use kem::BodyKem;
pub use key::RecipientKey;
pub use key_config::{encode_key_config, encode_ohttp_keys, parse_key_configs};
pub use key_id::BodyKeyId;
pub use message_reader::{MessageKind, MessageLimits, MessagePart, MessageReader};
pub use ohttp_answer::{OhttpAnswerOpener, OhttpAnswerSealer, OhttpAnswerSecret};
pub use ohttp_form::{
    INCREMENTAL, INCREMENTAL_FIELD, OHTTP_GATEWAY_PATH, OHTTP_KEY_PROBLEM, OhttpForm,
};
pub use ohttp_head::OhttpRequestHead;
pub use ohttp_request::{OhttpRequestOpener, OhttpRequestSealer};
pub use public_key::BodyPublicKey;
pub use request::{RequestOpener, RequestSealer};

#[cfg(test)]
mod message_tests;
#[cfg(test)]
mod ohttp_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vector_tests;

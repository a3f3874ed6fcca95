//! The messages of HTTP/1.1 (RFC 9112): heads and bodies are parsed and written. Nothing here reads
//! or writes a stream.

mod answer_encoder;
mod answer_head;
mod body_decoder;
mod body_encoder;
mod error;
mod fields;
mod head_scanner;
mod received_request;
mod request_head;
mod write_queue;

#[cfg(test)]
mod tests;

pub use answer_encoder::{AnswerFraming, encode_answer_head};
pub use answer_head::{AnswerHead, AnswerHeadParser};
pub use body_decoder::{BodyDecoder, BodyFraming, BodyPiece};
pub use body_encoder::BodyEncoder;
pub use error::Http1Error;
pub use head_scanner::HeadLimits;
pub use received_request::{RequestHead, RequestHeadParser};
pub use request_head::encode_request_head;
pub use write_queue::WriteQueue;

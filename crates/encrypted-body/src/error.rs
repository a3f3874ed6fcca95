//! The reason why an encrypted body, or a key for one, is refused.

/// The reason why an encrypted body, or a key for one, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncryptedBodyError {
    /// The encapsulated key is not a key of a known kind in lower-case hexadecimal, or is unusable.
    #[error("encapsulated key: wanted 64 or 2240 lower-case hexadecimal digits of a valid key")]
    EncapsulatedKey,
    /// The public key is not a key of its kind.
    #[error("public key of {got} bytes: wanted a valid key, which has {wanted}")]
    PublicKey {
        /// The length of keys of this kind.
        wanted: usize,
        /// The length that came.
        got: usize,
    },
    /// The private key has another length.
    #[error("private key: wanted 32 bytes")]
    PrivateKey,
    /// No key configuration can be read, or none is of a kind that this package knows.
    #[error("key configuration: wanted one with X25519 or X-Wing, HKDF-SHA256 and AES-256-GCM")]
    KeyConfig,
    /// The nonce of an answer has another form.
    #[error("answer nonce: wanted 64 lower-case hexadecimal digits")]
    AnswerNonce,
    /// The announcement of a final frame has another form.
    #[error("announcement of the end: wanted one field `final-frame`, or none")]
    End,
    /// A frame is longer than the receiver takes.
    #[error("frame of {got} bytes: wanted at most {max}")]
    FrameTooLong {
        /// The announced length.
        got: usize,
        /// The largest length.
        max: usize,
    },
    /// A frame is too short to hold its tag.
    #[error("frame of {got} bytes: wanted at least {}", crate::frame::TAG_BYTES)]
    FrameTooShort {
        /// The announced length.
        got: usize,
    },
    /// A frame is not the next one of this body and key: it was changed, moved or left out, or the
    /// key is another.
    #[error("a frame cannot be decrypted: it was changed or moved, or the key is another")]
    Decryption,
    /// The body ended inside a frame.
    #[error("the body ended inside a frame")]
    CutFrame,
    /// The body ended without the final frame that was announced.
    #[error("the body ended without its final frame")]
    FinalFrameMissing,
    /// Bytes follow the final frame.
    #[error("the body goes on after its final frame")]
    AfterFinalFrame,
    /// The body has no frame at all.
    #[error("the body has no frame")]
    NoFrame,
    /// More frames were sealed or opened than a key allows.
    #[error("too many frames for one key")]
    TooManyFrames,
    /// An encapsulated request names algorithms that this package does not know.
    #[error(
        "suite of the request: wanted X25519 or X-Wing, HKDF-SHA256, AES-256-GCM or AES-128-GCM"
    )]
    OhttpSuite,
    /// A binary message is malformed.
    #[error("binary message: {place} is malformed")]
    MessageMalformed {
        /// The part of the message that is malformed.
        place: &'static str,
    },
    /// A binary message has a longer head than the receiver takes.
    #[error("binary message: wanted at most {max} bytes of head and trailers")]
    MessageTooLong {
        /// The largest number of bytes.
        max: usize,
    },
    /// A binary message has more fields than the receiver takes.
    #[error("binary message: wanted at most {max} fields")]
    TooManyFields {
        /// The largest number of fields.
        max: usize,
    },
    /// A binary message ended before its end.
    #[error("the binary message ended early")]
    MessageCut,
    /// The system has no randomness, or a plaintext is too long for a frame.
    #[error("the body cannot be encrypted")]
    Encryption,
}

impl EncryptedBodyError {
    /// The name of the fault, as vectors and logs have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::EncapsulatedKey => "encapsulated_key",
            Self::PublicKey { .. } => "public_key",
            Self::PrivateKey => "private_key",
            Self::KeyConfig => "key_config",
            Self::AnswerNonce => "answer_nonce",
            Self::End => "end",
            Self::FrameTooLong { .. } => "frame_too_long",
            Self::FrameTooShort { .. } => "frame_too_short",
            Self::Decryption => "decryption",
            Self::CutFrame => "cut_frame",
            Self::FinalFrameMissing => "final_frame_missing",
            Self::AfterFinalFrame => "after_final_frame",
            Self::NoFrame => "no_frame",
            Self::TooManyFrames => "too_many_frames",
            Self::OhttpSuite => "ohttp_suite",
            Self::MessageMalformed { .. } => "message_malformed",
            Self::MessageTooLong { .. } => "message_too_long",
            Self::TooManyFields { .. } => "too_many_fields",
            Self::MessageCut => "message_cut",
            Self::Encryption => "encryption",
        }
    }
}

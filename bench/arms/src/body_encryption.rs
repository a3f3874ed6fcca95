//! The client's side of encrypted bodies (docs/encrypted-bodies.md): a key of the gateway's keyset, one
//! request, and its answer.

use confide_arm_line::Outcome;
use confide_encrypted_body::{
    ANSWER_NONCE_FIELD, AnswerNonce, AnswerOpener, BodyEnd, BodyKem, BodyPublicKey,
    ENCAPSULATED_KEY_FIELD, END_FIELD, ExchangeSecret, FrameReader, RequestSealer,
};
use http::{Response, request::Builder};
use serde_json::Value;

/// The largest frame of an answer, in bytes.
const FRAME_BYTES_MAX: usize = 1024 * 1024;

/// Finds the key of a kind in an attestation report. The connection that it came over is attested, so the
/// report itself is not judged.
pub(crate) fn find_body_key(report: &Value, kem: BodyKem) -> Outcome<BodyPublicKey> {
    let keys = &report["attestation"]["workload_keyset"]["e2ee_public_keys"];
    let keys = keys.as_array().ok_or("the report has no keys for encrypted bodies")?;
    let key = keys.iter().find(|key| key["algo"] == kem.algorithm());
    let key = key.and_then(|key| hex::decode(key["public_key"].as_str()?).ok());
    let key = key.ok_or_else(|| format!("the report has no key {}", kem.algorithm()))?;
    Ok(BodyPublicKey::from_bytes(kem, &key)?)
}

/// Encrypts a body, and adds the fields that say so.
pub(crate) fn seal_body(
    key: &BodyPublicKey,
    text: &str,
    request: Builder,
) -> Outcome<(Builder, Vec<u8>, ExchangeSecret)> {
    let end = BodyEnd::FinalFrame;
    let mut sealer = RequestSealer::new(key, end)?;
    let mut body = Vec::new();
    sealer.seal_final_frame(text.as_bytes(), &mut body)?;
    let request = request
        .header(ENCAPSULATED_KEY_FIELD, sealer.encapsulated_key().to_hex())
        .header(END_FIELD, end.field_value().unwrap_or_default());
    Ok((request, body, sealer.exchange_secret()?))
}

/// The decryption of an answer while it arrives.
pub(crate) struct AnswerDecryption {
    reader: FrameReader,
    opener: AnswerOpener,
}

impl AnswerDecryption {
    pub(crate) fn begin<B>(secret: &ExchangeSecret, answer: &Response<B>) -> Outcome<Self> {
        let nonce = answer.headers().get(ANSWER_NONCE_FIELD);
        let nonce = nonce.ok_or_else(|| {
            format!("wanted an encrypted answer, got one in clear with status {}", answer.status())
        })?;
        let opener = secret.open_answer(AnswerNonce::parse(nonce.as_bytes())?)?;
        Ok(Self { reader: FrameReader::new(BodyEnd::FinalFrame, FRAME_BYTES_MAX), opener })
    }

    /// Decrypts the frames that have arrived.
    pub(crate) fn open_piece(&mut self, mut piece: &[u8]) -> Outcome<Vec<u8>> {
        let mut text = Vec::new();
        while let Some(frame) = self.reader.read(&mut piece)? {
            text.extend(self.opener.open_frame(frame)?);
        }
        Ok(text)
    }

    /// Checks that the answer came whole.
    pub(crate) fn finish(&self) -> Outcome {
        Ok(self.reader.finish()?)
    }
}

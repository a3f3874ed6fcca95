//! Inputs from JSON, as docs/prove.md describes them.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};

use confide_statement::{Direction, MODULUS_BYTES};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    encode::{InputError, NumberField, RsaHints, Words, transcript_contains, transcript_number},
    native::GUESTS,
};

/// Encodes the input of `guest` from its JSON.
///
/// # Errors
/// If the guest is unknown, the JSON is not as docs/prove.md has it, or there is nothing to
/// prove: a signature that does not hold, a text that is not there.
pub fn input_from_json(guest: &str, json: &[u8]) -> Result<Vec<u8>, InputError> {
    match GUESTS.into_iter().find(|known| *known == guest) {
        Some(name @ "fibonacci") => Ok(read::<FibonacciInput>(name, json)?.encode()),
        Some(name @ "sort") => Ok(read::<SortInput>(name, json)?.encode()),
        Some(name @ "rsa2048") => read::<RsaInput>(name, json)?.encode(),
        Some(name @ "sha256") => Ok(read::<MessageInput>(name, json)?.bytes()?.sized_input()),
        Some(name @ "transcript") => read::<TranscriptInput>(name, json)?.encode(),
        _ => Err(InputError::Guest),
    }
}

fn read<T: DeserializeOwned>(guest: &'static str, json: &[u8]) -> Result<T, InputError> {
    serde_json::from_slice(json)
        .map_err(|error| InputError::Json { guest, reason: error.to_string() })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FibonacciInput {
    n: u32,
}

impl FibonacciInput {
    fn encode(&self) -> Vec<u8> {
        Words::default().u32(self.n).0
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum SortInput {
    #[serde(rename = "given")]
    Numbers {
        numbers: Vec<u32>,
        place: u32,
    },
    Fibonacci {
        count: u32,
        place: u32,
    },
}

impl SortInput {
    fn encode(&self) -> Vec<u8> {
        let words = Words::default();
        match self {
            SortInput::Numbers { numbers, place } => {
                words.u32(0).u32(numbers.len() as u32).u32(*place).words(numbers).0
            }
            SortInput::Fibonacci { count, place } => words.u32(1).u32(*count).u32(*place).0,
        }
    }
}

/// A message as text or as hexadecimal.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum MessageInput {
    Message(String),
    MessageHex(String),
}

/// A message.
struct Message(Vec<u8>);

impl MessageInput {
    fn bytes(&self) -> Result<Message, InputError> {
        match self {
            MessageInput::Message(text) => Ok(Message(text.as_bytes().to_vec())),
            MessageInput::MessageHex(digits) => any_hex("message_hex", digits).map(Message),
        }
    }
}

impl Message {
    fn sized_input(&self) -> Vec<u8> {
        Words::default().with_length(&self.0).0
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RsaInput {
    message: Option<String>,
    message_hex: Option<String>,
    modulus: String,
    signature: String,
}

impl RsaInput {
    fn encode(&self) -> Result<Vec<u8>, InputError> {
        let message = match (&self.message, &self.message_hex) {
            (Some(text), None) => text.as_bytes().to_vec(),
            (None, Some(digits)) => any_hex("message_hex", digits)?,
            _ => {
                let (subject, wanted) = ("message", "either message or message_hex");
                return Err(InputError::Value { subject, wanted });
            }
        };
        let modulus: [u8; MODULUS_BYTES] = hex_of("modulus", &self.modulus)?;
        let signature = hex_of("signature", &self.signature)?;
        let hints = RsaHints::new(&message, &modulus, &signature)?;
        if hints.holds() { Ok(hints.encode()) } else { Err(InputError::Signature) }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum TranscriptInput {
    Contains {
        depth: u8,
        direction: Direction,
        text: String,
        index: u32,
        chunks: Vec<ChunkInput>,
        nodes: Vec<String>,
    },
    NumberBetween {
        depth: u8,
        path: String,
        least: i64,
        greatest: i64,
        index: u32,
        value: String,
        salt: String,
        commitment: Option<String>,
        nodes: Vec<String>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChunkInput {
    chunk: String,
    salt: String,
}

impl TranscriptInput {
    fn encode(&self) -> Result<Vec<u8>, InputError> {
        match self {
            TranscriptInput::Contains { depth, direction, text, index, chunks, nodes } => {
                let chunks: Vec<_> =
                    chunks.iter().map(ChunkInput::bytes).collect::<Result<_, _>>()?;
                transcript_contains(*depth, *direction, text, *index, &chunks, &hashes(nodes)?)
                    .ok_or(InputError::Value {
                        subject: "text",
                        wanted: "a text that the chunks contain",
                    })
            }
            TranscriptInput::NumberBetween {
                depth,
                path,
                least,
                greatest,
                index,
                value,
                salt,
                commitment,
                nodes,
            } => {
                let commitment =
                    commitment.as_deref().map(|c| hex_of("commitment", c)).transpose()?;
                let salt = hex_of("salt", salt)?;
                let field = NumberField { path, index: *index, value, salt, commitment };
                Ok(transcript_number(*depth, *least..=*greatest, &field, &hashes(nodes)?))
            }
        }
    }
}

impl ChunkInput {
    fn bytes(&self) -> Result<(Vec<u8>, [u8; 16]), InputError> {
        Ok((any_hex("chunk", &self.chunk)?, hex_of("salt", &self.salt)?))
    }
}

fn hashes(nodes: &[String]) -> Result<Vec<[u8; 32]>, InputError> {
    nodes.iter().map(|node| hex_of("nodes", node)).collect()
}

fn hex_of<const N: usize>(subject: &'static str, digits: &str) -> Result<[u8; N], InputError> {
    let wanted = "hexadecimal of this field's length";
    let bytes = any_hex(subject, digits)?;
    bytes.try_into().map_err(|_| InputError::Value { subject, wanted })
}

fn any_hex(subject: &'static str, digits: &str) -> Result<Vec<u8>, InputError> {
    hex::decode(digits).map_err(|_| InputError::Value { subject, wanted: "hexadecimal digits" })
}

//! Inputs from JSON, as docs/prove.md describes them.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};

use confide_statement::{Direction, MODULUS_BYTES};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    encode::{InputError, NumberLeaf, RsaHints, WordWriter, encode_contains, encode_number_range},
    native::GUESTS,
};

/// Encodes the input of `guest` from its JSON.
///
/// # Errors
/// If the guest is unknown, the JSON is not as docs/prove.md has it, or there is nothing to
/// prove: a signature that does not hold, a text that is not there.
pub fn input_from_json(guest: &str, json: &[u8]) -> Result<Vec<u8>, InputError> {
    match GUESTS.into_iter().find(|known| *known == guest) {
        Some(name @ "fibonacci") => Ok(parse_json::<FibonacciInput>(name, json)?.encode()),
        Some(name @ "sort") => Ok(parse_json::<SortInput>(name, json)?.encode()),
        Some(name @ "rsa2048") => parse_json::<RsaInput>(name, json)?.encode(),
        Some(name @ "sha256") => Ok(parse_json::<MessageInput>(name, json)?.decode()?.encode()),
        Some(name @ "transcript") => parse_json::<TranscriptInput>(name, json)?.encode(),
        _ => Err(InputError::Guest),
    }
}

fn parse_json<T: DeserializeOwned>(guest: &'static str, json: &[u8]) -> Result<T, InputError> {
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
        WordWriter::default().u32(self.n).0
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
        let words = WordWriter::default();
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
    fn decode(&self) -> Result<Message, InputError> {
        match self {
            MessageInput::Message(text) => Ok(Message(text.as_bytes().to_vec())),
            MessageInput::MessageHex(digits) => decode_hex("message_hex", digits).map(Message),
        }
    }
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        WordWriter::default().length_prefixed(&self.0).0
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
            (None, Some(digits)) => decode_hex("message_hex", digits)?,
            _ => {
                let (subject, wanted) = ("message", "either message or message_hex");
                return Err(InputError::Value { subject, wanted });
            }
        };
        let modulus: [u8; MODULUS_BYTES] = hex_array("modulus", &self.modulus)?;
        let signature = hex_array("signature", &self.signature)?;
        let hints = RsaHints::new(&message, &modulus, &signature)?;
        if hints.is_valid() { Ok(hints.encode()) } else { Err(InputError::Signature) }
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
                    chunks.iter().map(ChunkInput::decode).collect::<Result<_, _>>()?;
                encode_contains(*depth, *direction, text, *index, &chunks, &decode_hashes(nodes)?)
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
                    commitment.as_deref().map(|c| hex_array("commitment", c)).transpose()?;
                let salt = hex_array("salt", salt)?;
                let field = NumberLeaf { path, index: *index, value, salt, commitment };
                Ok(encode_number_range(*depth, *least..=*greatest, &field, &decode_hashes(nodes)?))
            }
        }
    }
}

impl ChunkInput {
    fn decode(&self) -> Result<(Vec<u8>, [u8; 16]), InputError> {
        Ok((decode_hex("chunk", &self.chunk)?, hex_array("salt", &self.salt)?))
    }
}

fn decode_hashes(nodes: &[String]) -> Result<Vec<[u8; 32]>, InputError> {
    nodes.iter().map(|node| hex_array("nodes", node)).collect()
}

fn hex_array<const N: usize>(subject: &'static str, digits: &str) -> Result<[u8; N], InputError> {
    let wanted = "hexadecimal of this field's length";
    let bytes = decode_hex(subject, digits)?;
    bytes.try_into().map_err(|_| InputError::Value { subject, wanted })
}

fn decode_hex(subject: &'static str, digits: &str) -> Result<Vec<u8>, InputError> {
    hex::decode(digits).map_err(|_| InputError::Value { subject, wanted: "hexadecimal digits" })
}

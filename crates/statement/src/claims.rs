//! The claims that are a few numbers and digests.

use crate::{
    encoding::{DIGEST_BYTES, Reader, Writer},
    error::StatementError,
};

/// Length of an RSA-2048 modulus.
pub const MODULUS_BYTES: usize = 256;

/// `value` is the `n`-th Fibonacci number modulo 2^64, counted from F(0) = 0, F(1) = 1.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(deny_unknown_fields))]
pub struct Fibonacci {
    /// The index n.
    pub n: u32,
    /// The number modulo 2^64.
    pub value: u64,
}

impl Fibonacci {
    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u32(self.n);
        writer.u64(self.value);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, StatementError> {
        Ok(Self { n: reader.u32("n")?, value: reader.u64("value")? })
    }
}

/// Where the numbers that are sorted come from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "lowercase", deny_unknown_fields))]
pub enum SortSource {
    /// The prover supplied them.
    #[cfg_attr(feature = "json", serde(rename = "given"))]
    Supplied {
        /// SHA-256 of the list as it was given: its numbers, four bytes each, little-endian.
        #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
        input_sha256: [u8; DIGEST_BYTES],
    },
    /// The Fibonacci numbers F(0) to F(count - 1), each modulo 2^32.
    Fibonacci,
}

/// Of `count` numbers of 32 bits without sign, put in ascending order, the one at `place` is
/// `value`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(deny_unknown_fields))]
pub struct Sort {
    /// The source of the numbers.
    pub source: SortSource,
    /// Length of the list, at least 1.
    pub count: u32,
    /// Index of `value` among the sorted numbers, from 0.
    pub place: u32,
    /// The number at `place`.
    pub value: u32,
}

impl Sort {
    pub(crate) fn write(&self, writer: &mut Writer) {
        match &self.source {
            SortSource::Supplied { input_sha256 } => {
                writer.u8(0);
                writer.field(input_sha256);
            }
            SortSource::Fibonacci => writer.u8(1),
        }
        writer.u32(self.count);
        writer.u32(self.place);
        writer.u32(self.value);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, StatementError> {
        let source = match reader.u8("source")? {
            0 => SortSource::Supplied { input_sha256: reader.array("input_sha256")? },
            1 => SortSource::Fibonacci,
            _ => return Err(StatementError::Value { subject: "source", wanted: "0 or 1" }),
        };
        Ok(Self {
            source,
            count: reader.u32("count")?,
            place: reader.u32("place")?,
            value: reader.u32("value")?,
        })
    }

    pub(crate) fn check(&self) -> Result<(), StatementError> {
        if self.place < self.count {
            return Ok(());
        }
        Err(StatementError::Value { subject: "place", wanted: "a place below the count" })
    }
}

/// The prover knows a message whose SHA-256 is `message_sha256` and a signature of it under the
/// RSA key (`modulus`, 65537): RSASSA-PKCS1-v1_5 with SHA-256 (RFC 8017 section 8.2).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(deny_unknown_fields))]
pub struct Rsa2048 {
    /// The modulus, big-endian; odd, and its highest bit is set.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub modulus: [u8; MODULUS_BYTES],
    /// SHA-256 of the message.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub message_sha256: [u8; DIGEST_BYTES],
}

impl Rsa2048 {
    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.field(&self.modulus);
        writer.field(&self.message_sha256);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, StatementError> {
        Ok(Self {
            modulus: reader.array("modulus")?,
            message_sha256: reader.array("message_sha256")?,
        })
    }

    pub(crate) fn check(&self) -> Result<(), StatementError> {
        let odd = self.modulus[MODULUS_BYTES - 1] & 1 == 1;
        let full = self.modulus[0] & 0x80 != 0;
        if odd && full {
            return Ok(());
        }
        Err(StatementError::Value { subject: "modulus", wanted: "an odd number of 2,048 bits" })
    }
}

/// The prover knows a message of `message_bytes` bytes whose SHA-256 is `message_sha256`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(deny_unknown_fields))]
pub struct Sha256 {
    /// Length of the message in bytes.
    pub message_bytes: u32,
    /// SHA-256 of the message.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub message_sha256: [u8; DIGEST_BYTES],
}

impl Sha256 {
    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u32(self.message_bytes);
        writer.field(&self.message_sha256);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, StatementError> {
        Ok(Self {
            message_bytes: reader.u32("message_bytes")?,
            message_sha256: reader.array("message_sha256")?,
        })
    }
}

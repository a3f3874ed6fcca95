//! Statements as JSON, with the names of the fields; bytes are hexadecimal.

use alloc::string::ToString;

use serde_json::Value;

use crate::{
    error::StatementError,
    statement::{ENCODED_BYTES_MAX, Statement},
};

/// The longest JSON text that is read: hexadecimal doubles the bytes, names and quotes come on top.
const JSON_BYTES_MAX: usize = 4 * ENCODED_BYTES_MAX;

impl Statement {
    /// Encodes the statement as JSON: `{"claim": "fibonacci", "n": …, "value": …}`.
    pub fn to_json(&self) -> Value {
        // Maps with text keys and plain values: nothing that serde_json refuses.
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    /// Reads a statement that [`Statement::to_json`] wrote.
    ///
    /// # Errors
    /// If the text is not the JSON of a statement within the limits of its fields.
    pub fn from_json(text: &[u8]) -> Result<Statement, StatementError> {
        if text.len() > JSON_BYTES_MAX {
            let (limit, got) = (JSON_BYTES_MAX, text.len());
            return Err(StatementError::TooLong { subject: "statement", limit, got });
        }
        let statement: Statement = serde_json::from_slice(text)
            .map_err(|error| StatementError::Json { reason: error.to_string() })?;
        statement.check()?;
        Ok(statement)
    }
}

/// Bytes of fixed length as hexadecimal.
pub(crate) mod bytes {
    use alloc::{format, string::String};

    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer, const N: usize>(
        bytes: &[u8; N],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        deserializer: D,
    ) -> Result<[u8; N], D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut bytes = [0; N];
        hex::decode_to_slice(&text, &mut bytes)
            .map_err(|_| D::Error::custom(format!("wanted {} hexadecimal digits", 2 * N)))?;
        Ok(bytes)
    }
}

//! HTTP messages in binary form (RFC 9292), which encapsulated requests and answers hold.
//!
//! The head of a message and its parts are written here; a
//! [`MessageReader`](crate::MessageReader) reads them.

use crate::varint::append_varint;

/// The indicator with which a message begins (RFC 9292 section 3.3).
pub(crate) const KNOWN_REQUEST: u64 = 0;
pub(crate) const KNOWN_ANSWER: u64 = 1;
pub(crate) const INDETERMINATE_REQUEST: u64 = 2;
pub(crate) const INDETERMINATE_ANSWER: u64 = 3;

/// The head of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageHead {
    /// What stands in front of the fields.
    pub control: ControlData,
    /// The header fields in their order.
    pub fields: Vec<MessageField>,
}

/// The control data of a message (RFC 9292 sections 3.4 and 3.5). Only lengths are checked here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlData {
    /// That of a request.
    Request {
        /// The method.
        method: Vec<u8>,
        /// The scheme.
        scheme: Vec<u8>,
        /// The authority, which may be empty.
        authority: Vec<u8>,
        /// The path, with the query.
        path: Vec<u8>,
    },
    /// That of an answer: its final status, 200 to 599.
    Answer {
        /// The status.
        status: u16,
    },
}

/// A field of a message. Its bytes are not checked here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageField {
    /// The name.
    pub name: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

impl MessageHead {
    /// The whole message with this content, in the form of known length.
    pub fn encode_message(&self, content: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        self.append_control(KNOWN_REQUEST, KNOWN_ANSWER, &mut message);
        let mut fields = Vec::new();
        self.append_fields(&mut fields);
        append_bytes(&fields, &mut message);
        append_bytes(content, &mut message);
        // No trailers.
        append_varint(0, &mut message);
        message
    }

    /// The head of a message in the form of indeterminate length. Its content follows by
    /// [`append_content`], and [`append_message_end`] ends it.
    pub fn encode_head(&self) -> Vec<u8> {
        let mut message = Vec::new();
        self.append_control(INDETERMINATE_REQUEST, INDETERMINATE_ANSWER, &mut message);
        self.append_fields(&mut message);
        append_varint(0, &mut message);
        message
    }

    fn append_control(&self, request: u64, answer: u64, message: &mut Vec<u8>) {
        match &self.control {
            ControlData::Request { method, scheme, authority, path } => {
                append_varint(request as usize, message);
                for part in [method, scheme, authority, path] {
                    append_bytes(part, message);
                }
            }
            ControlData::Answer { status } => {
                append_varint(answer as usize, message);
                append_varint((*status).into(), message);
            }
        }
    }

    fn append_fields(&self, message: &mut Vec<u8>) {
        for MessageField { name, value } in &self.fields {
            append_bytes(name, message);
            append_bytes(value, message);
        }
    }
}

/// Appends a piece of the content of a message of indeterminate length; nothing for an empty piece,
/// which would end the content.
pub fn append_content(piece: &[u8], message: &mut Vec<u8>) {
    if !piece.is_empty() {
        append_bytes(piece, message);
    }
}

/// Appends the end of a message of indeterminate length, which has no trailers.
pub fn append_message_end(message: &mut Vec<u8>) {
    append_varint(0, message);
    append_varint(0, message);
}

fn append_bytes(bytes: &[u8], message: &mut Vec<u8>) {
    append_varint(bytes.len(), message);
    message.extend_from_slice(bytes);
}

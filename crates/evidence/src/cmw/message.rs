//! The content of a wrapper, and its one encoding.

use alloc::{string::String, vec::Vec};

use crate::cbor::Writer;

/// The label that names a collection's type, and no member.
pub(super) const COLLECTION_TYPE: &str = "__cmwc_t";

/// The longest media type, label or collection type in bytes.
const TEXT_BYTES_MAX: usize = 255;

/// Bits of a record's indicator: what its value is.
pub mod indicator {
    /// Reference values.
    pub const REFERENCE_VALUES: u8 = 1;
    /// Endorsements.
    pub const ENDORSEMENTS: u8 = 2;
    /// Evidence.
    pub const EVIDENCE: u8 = 4;
    /// Attestation results.
    pub const RESULTS: u8 = 8;
    /// An appraisal policy.
    pub const POLICY: u8 = 16;
    /// All bits that are assigned.
    pub(crate) const ALL: u8 = 31;
}

/// A wrapper: one record or a collection of wrappers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cmw {
    /// One message with its type.
    Record(CmwRecord),
    /// Wrappers under labels.
    Collection(CmwCollection),
}

/// One message with its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmwRecord {
    /// The type of the value.
    pub content: CmwType,
    /// The message, unparsed.
    pub value: Vec<u8>,
    /// Bits of [`indicator`], if any are given; never 0.
    pub indicator: Option<u8>,
}

/// The type of a record's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmwType {
    /// A content format of CoAP (CBOR only).
    ContentFormat(u16),
    /// A media type with its parameters.
    MediaType(String),
}

/// Wrappers under labels, in the order in which they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmwCollection {
    /// The collection's type, an absolute URI or an object identifier.
    pub kind: Option<String>,
    /// At least one member; no label occurs twice.
    pub members: Vec<(CmwLabel, Cmw)>,
}

/// The label of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmwLabel {
    /// A text.
    Text(String),
    /// A number (CBOR only).
    Number(i64),
}

impl Cmw {
    /// The wrapper in CBOR, in the deterministic encoding of RFC 8949 section 4.2.1.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append_to(&mut bytes);
        bytes
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Record(record) => record.append_to(bytes),
            Self::Collection(collection) => collection.append_to(bytes),
        }
    }
}

impl CmwRecord {
    /// A record of a media type.
    pub fn new(media_type: &str, value: &[u8], indicator: u8) -> Self {
        let content = CmwType::MediaType(media_type.into());
        Self { content, value: value.to_vec(), indicator: Some(indicator) }
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        let mut writer = Writer::new();
        writer.array(if self.indicator.is_some() { 3 } else { 2 });
        match &self.content {
            CmwType::ContentFormat(number) => writer.uint(u64::from(*number)),
            CmwType::MediaType(name) => writer.text(name),
        };
        writer.bytes(&self.value);
        if let Some(indicator) = self.indicator {
            writer.uint(u64::from(indicator));
        }
        bytes.extend(writer.finish());
    }
}

impl CmwCollection {
    /// The member under a label of text.
    pub fn member(&self, wanted: &str) -> Option<&Cmw> {
        let is_wanted = |label: &CmwLabel| matches!(label, CmwLabel::Text(text) if text == wanted);
        self.members.iter().find(|(label, _)| is_wanted(label)).map(|(_, member)| member)
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> =
            self.members.iter().map(|(label, member)| (label.encode(), member.encode())).collect();
        if let Some(kind) = &self.kind {
            entries.push((encode_text(COLLECTION_TYPE), encode_text(kind)));
        }
        entries.sort();
        let mut writer = Writer::new();
        writer.map(entries.len() as u64);
        bytes.extend(writer.finish());
        for (label, member) in entries {
            bytes.extend(label);
            bytes.extend(member);
        }
    }
}

impl CmwLabel {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => encode_text(text),
            Self::Number(number) => {
                let mut writer = Writer::new();
                writer.int(*number);
                writer.finish()
            }
        }
    }
}

fn encode_text(text: &str) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.text(text);
    writer.finish()
}

/// Why bytes are not a wrapper.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CmwError {
    /// There are no bytes.
    #[error("CMW is empty")]
    Empty,
    /// The bytes are more than a wrapper may have.
    #[error("CMW is {got} bytes, wanted at most {wanted}")]
    TooLong {
        /// The limit in bytes.
        wanted: usize,
        /// The length that came.
        got: usize,
    },
    /// The bytes are no CBOR or JSON of the wanted shape.
    #[error("CMW is not readable at byte {position}, wanted {wanted}")]
    Malformed {
        /// The byte offset at which reading stopped; in JSON the column.
        position: usize,
        /// What should stand there.
        wanted: &'static str,
    },
    /// Collections are nested too deeply.
    #[error("CMW is nested more than {wanted} deep")]
    TooDeep {
        /// The limit.
        wanted: usize,
    },
    /// A collection has too many members.
    #[error("CMW collection has more than {wanted} members")]
    TooManyMembers {
        /// The limit.
        wanted: usize,
    },
    /// A collection has no members.
    #[error("CMW collection has no members")]
    NoMembers,
    /// A label occurs twice in a collection.
    #[error("CMW collection has a label twice")]
    Duplicate,
    /// A media type is not one.
    #[error("CMW has a media type that is not one, wanted TYPE/SUBTYPE of at most 255 characters")]
    MediaType,
    /// A content format, or the tag that stands for one, is out of range.
    #[error("CMW content format is {got}, wanted 0 to 65535 or a tag of RFC 9277")]
    ContentFormat {
        /// The number that came.
        got: u64,
    },
    /// An indicator is 0 or has bits that are not assigned.
    #[error("CMW indicator is {got}, wanted 1 to 31")]
    Indicator {
        /// The number that came.
        got: u64,
    },
    /// A label is empty, or too long.
    #[error("CMW label is {got} bytes, wanted 1 to 255")]
    Label {
        /// The length that came.
        got: usize,
    },
    /// A collection's type is neither an absolute URI nor an object identifier.
    #[error("CMW collection type is neither an absolute URI nor an object identifier")]
    CollectionType,
    /// There are bytes after the wrapper.
    #[error("CMW ends at byte {position}, but there are bytes after it")]
    TrailingBytes {
        /// The byte offset of the wrapper's end.
        position: usize,
    },
}

pub(super) fn check_media_type(name: &str) -> Result<(), CmwError> {
    let is_printable = name.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    let has_subtype =
        name.split_once('/').is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty());
    match is_printable && has_subtype && name.len() <= TEXT_BYTES_MAX {
        true => Ok(()),
        false => Err(CmwError::MediaType),
    }
}

pub(super) fn check_indicator(got: u64) -> Result<u8, CmwError> {
    match u8::try_from(got) {
        Ok(bits @ 1..=indicator::ALL) => Ok(bits),
        _ => Err(CmwError::Indicator { got }),
    }
}

pub(super) fn check_label(label: &str) -> Result<(), CmwError> {
    match label.len() {
        1..=TEXT_BYTES_MAX => Ok(()),
        got => Err(CmwError::Label { got }),
    }
}

pub(super) fn check_collection_type(kind: &str) -> Result<(), CmwError> {
    let is_oid =
        kind.contains('.') && kind.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit());
    let is_printable = kind.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    let is_uri = kind.split_once(':').is_some_and(|(scheme, rest)| {
        scheme.bytes().next().is_some_and(|first| first.is_ascii_alphabetic()) && !rest.is_empty()
    });
    match is_printable && (is_oid || is_uri) && kind.len() <= TEXT_BYTES_MAX {
        true => Ok(()),
        false => Err(CmwError::CollectionType),
    }
}

/// Adds a member to a collection that is being read.
pub(super) fn add_member(
    collection: &mut CmwCollection,
    label: CmwLabel,
    member: Cmw,
    members_max: usize,
) -> Result<(), CmwError> {
    if collection.members.iter().any(|(other, _)| *other == label) {
        return Err(CmwError::Duplicate);
    }
    if collection.members.len() == members_max {
        return Err(CmwError::TooManyMembers { wanted: members_max });
    }
    collection.members.push((label, member));
    Ok(())
}

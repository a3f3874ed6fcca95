//! Reads a message in binary form (RFC 9292) as its bytes arrive, within bounds.

use crate::{
    binary_message::{
        ControlData, INDETERMINATE_ANSWER, INDETERMINATE_REQUEST, KNOWN_ANSWER, KNOWN_REQUEST,
        MessageField, MessageHead,
    },
    error::EncryptedBodyError,
    varint::read_varint,
};

/// The numbers of method, scheme, authority and path.
const REQUEST_PARTS: usize = 4;

/// The kind of message that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A request.
    Request,
    /// An answer, with any informational ones in front, which are left out.
    Answer,
}

/// Bounds of a message. Its content has none here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// The largest number of bytes of everything but the content: the head, informational answers,
    /// trailers.
    pub head_bytes: usize,
    /// The largest number of fields, those of informational answers and trailers among them.
    pub fields: usize,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessagePart {
    /// The head, which comes first and once.
    Head(MessageHead),
    /// A piece of the content, which is not empty.
    Content(Vec<u8>),
}

/// Reads a message of known or of indeterminate length as its bytes arrive. Trailers are read and left
/// out.
#[derive(Debug)]
pub struct MessageReader {
    kind: MessageKind,
    limits: MessageLimits,
    /// Bytes that were not read yet, from `read` on.
    bytes: Vec<u8>,
    read: usize,
    is_known: bool,
    step: Step,
    head_bytes: usize,
    fields_read: usize,
    control: Vec<Vec<u8>>,
    status: u16,
    fields: Vec<MessageField>,
}

/// What comes next in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Framing,
    RequestPart,
    Status,
    /// The length of a section of fields.
    SectionLength(Section),
    /// A field of a section, which has so many bytes left if they are known.
    Field(Section, Option<usize>),
    /// The length of the content, or of its next piece; whether there was a piece before.
    ContentLength(bool),
    Content(u64),
    Padding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Informational,
    Header,
    Trailer,
}

/// A message is malformed at this place.
fn fault_at(place: &'static str) -> EncryptedBodyError {
    EncryptedBodyError::MessageMalformed { place }
}

impl MessageReader {
    /// A reader of one message.
    pub fn new(kind: MessageKind, limits: MessageLimits) -> Self {
        Self {
            kind,
            limits,
            bytes: Vec::new(),
            read: 0,
            is_known: false,
            step: Step::Framing,
            head_bytes: 0,
            fields_read: 0,
            control: Vec::new(),
            status: 0,
            fields: Vec::new(),
        }
    }

    /// Takes the bytes that have arrived. Those before should have been read, since they are kept
    /// until then.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next part; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`EncryptedBodyError::MessageMalformed`] and [`EncryptedBodyError::MessageTooLong`]. Nothing
    /// more can be read then.
    pub fn next_part(&mut self) -> Result<Option<MessagePart>, EncryptedBodyError> {
        loop {
            let part = match self.step {
                Step::Framing => self.read_framing()?,
                Step::RequestPart => self.read_request_part()?,
                Step::Status => self.read_status()?,
                Step::SectionLength(section) => self.read_section_length(section)?,
                Step::Field(section, left) => self.read_field(section, left)?,
                Step::ContentLength(_) => self.read_content_length()?,
                Step::Content(left) => self.read_content(left),
                Step::Padding => self.read_padding()?,
            };
            match part {
                Progress::Part(part) => return Ok(Some(part)),
                Progress::Incomplete => return Ok(None),
                Progress::Step => {}
            }
        }
    }

    /// Checks at the end of the bytes that the message is complete. Sections at its end that are
    /// empty may be missing (RFC 9292 section 3.8); the head is returned if all of them are.
    ///
    /// # Errors
    /// [`EncryptedBodyError::MessageCut`] for a message that ends anywhere else.
    pub fn finish(&mut self) -> Result<Option<MessageHead>, EncryptedBodyError> {
        let is_empty = self.read == self.bytes.len();
        let has_no_fields = self.fields.is_empty();
        match self.step {
            _ if !is_empty => Err(EncryptedBodyError::MessageCut),
            Step::SectionLength(Section::Header) => Ok(Some(self.take_head())),
            Step::Field(Section::Header, None) if has_no_fields => Ok(Some(self.take_head())),
            Step::SectionLength(Section::Trailer) | Step::ContentLength(false) | Step::Padding => {
                Ok(None)
            }
            // The terminator of the section is missing, but no field of it was read.
            Step::Field(Section::Trailer, None) if has_no_fields => Ok(None),
            _ => Err(EncryptedBodyError::MessageCut),
        }
    }

    fn unread_bytes(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    /// Counts bytes that are not content.
    fn take_head_bytes(&mut self, count: usize) -> Result<(), EncryptedBodyError> {
        self.check_head_bytes(count)?;
        self.read += count;
        self.head_bytes += count;
        Ok(())
    }

    /// Checks that so many more bytes may come, before they are waited for.
    fn check_head_bytes(&self, more: usize) -> Result<(), EncryptedBodyError> {
        let max = self.limits.head_bytes;
        match self.head_bytes.saturating_add(more) > max {
            true => Err(EncryptedBodyError::MessageTooLong { max }),
            false => Ok(()),
        }
    }

    fn read_framing(&mut self) -> Result<Progress, EncryptedBodyError> {
        let Some((framing, count)) = read_varint(self.unread_bytes()) else {
            return Ok(Progress::Incomplete);
        };
        self.take_head_bytes(count)?;
        let (is_known, kind) = match framing {
            KNOWN_REQUEST => (true, MessageKind::Request),
            KNOWN_ANSWER => (true, MessageKind::Answer),
            INDETERMINATE_REQUEST => (false, MessageKind::Request),
            INDETERMINATE_ANSWER => (false, MessageKind::Answer),
            _ => return Err(fault_at("framing indicator")),
        };
        if kind != self.kind {
            return Err(fault_at("framing indicator"));
        }
        self.is_known = is_known;
        self.step = match kind {
            MessageKind::Request => Step::RequestPart,
            MessageKind::Answer => Step::Status,
        };
        Ok(Progress::Step)
    }

    fn read_request_part(&mut self) -> Result<Progress, EncryptedBodyError> {
        let Some((length, count)) = self.find_bytes(0)? else { return Ok(Progress::Incomplete) };
        let part = self.unread_bytes()[count..count + length].to_vec();
        self.take_head_bytes(count + length)?;
        self.control.push(part);
        if self.control.len() == REQUEST_PARTS {
            self.step = self.begin_section(Section::Header);
        }
        Ok(Progress::Step)
    }

    fn read_status(&mut self) -> Result<Progress, EncryptedBodyError> {
        let Some((status, count)) = read_varint(self.unread_bytes()) else {
            return Ok(Progress::Incomplete);
        };
        self.take_head_bytes(count)?;
        let section = match status {
            100..200 => Section::Informational,
            200..600 => Section::Header,
            _ => return Err(fault_at("status")),
        };
        self.status = u16::try_from(status).map_err(|_| fault_at("status"))?;
        self.step = self.begin_section(section);
        Ok(Progress::Step)
    }

    fn begin_section(&self, section: Section) -> Step {
        match self.is_known {
            true => Step::SectionLength(section),
            false => Step::Field(section, None),
        }
    }

    fn read_section_length(&mut self, section: Section) -> Result<Progress, EncryptedBodyError> {
        let Some((length, count)) = read_varint(self.unread_bytes()) else {
            return Ok(Progress::Incomplete);
        };
        self.take_head_bytes(count)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.check_head_bytes(length)?;
        self.step = Step::Field(section, Some(length));
        Ok(Progress::Step)
    }

    fn read_field(
        &mut self,
        section: Section,
        left: Option<usize>,
    ) -> Result<Progress, EncryptedBodyError> {
        if left == Some(0) {
            return Ok(self.end_section(section));
        }
        let Some((name, name_count)) = self.find_bytes(0)? else {
            return Ok(Progress::Incomplete);
        };
        if name == 0 && left.is_none() {
            self.take_head_bytes(name_count)?;
            return Ok(self.end_section(section));
        }
        let value_at = name_count + name;
        let Some((value, value_count)) = self.find_bytes(value_at)? else {
            return Ok(Progress::Incomplete);
        };
        let line = value_at + value_count + value;
        let left = match left {
            Some(left) => Some(left.checked_sub(line).ok_or(fault_at("section of fields"))?),
            None => None,
        };
        if name == 0 {
            return Err(fault_at("name of a field"));
        }
        self.fields_read += 1;
        if self.fields_read > self.limits.fields {
            return Err(EncryptedBodyError::TooManyFields { max: self.limits.fields });
        }
        if section != Section::Informational {
            let name = self.unread_bytes()[name_count..value_at].to_vec();
            let value = self.unread_bytes()[value_at + value_count..line].to_vec();
            self.fields.push(MessageField { name, value });
        }
        self.take_head_bytes(line)?;
        self.step = Step::Field(section, left);
        Ok(Progress::Step)
    }

    fn end_section(&mut self, section: Section) -> Progress {
        match section {
            Section::Informational => {
                self.step = Step::Status;
                Progress::Step
            }
            Section::Header => {
                self.step = Step::ContentLength(false);
                Progress::Part(MessagePart::Head(self.take_head()))
            }
            Section::Trailer => {
                self.fields.clear();
                self.step = Step::Padding;
                Progress::Step
            }
        }
    }

    fn take_head(&mut self) -> MessageHead {
        let mut parts = std::mem::take(&mut self.control).into_iter();
        let mut next = || parts.next().unwrap_or_default();
        let control = match self.kind {
            MessageKind::Request => ControlData::Request {
                method: next(),
                scheme: next(),
                authority: next(),
                path: next(),
            },
            MessageKind::Answer => ControlData::Answer { status: self.status },
        };
        MessageHead { control, fields: std::mem::take(&mut self.fields) }
    }

    fn read_content_length(&mut self) -> Result<Progress, EncryptedBodyError> {
        let Some((length, count)) = read_varint(self.unread_bytes()) else {
            return Ok(Progress::Incomplete);
        };
        // The lengths of pieces are content too: there may be any number of them.
        self.read += count;
        self.step = match length {
            0 => self.begin_section(Section::Trailer),
            _ => Step::Content(length),
        };
        Ok(Progress::Step)
    }

    fn read_content(&mut self, left: u64) -> Progress {
        let available = self.unread_bytes().len();
        if available == 0 {
            return Progress::Incomplete;
        }
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(available);
        let piece = self.unread_bytes()[..taken].to_vec();
        self.read += taken;
        self.step = match left - taken as u64 {
            0 if self.is_known => self.begin_section(Section::Trailer),
            0 => Step::ContentLength(true),
            left => Step::Content(left),
        };
        Progress::Part(MessagePart::Content(piece))
    }

    fn read_padding(&mut self) -> Result<Progress, EncryptedBodyError> {
        if self.unread_bytes().iter().any(|byte| *byte != 0) {
            return Err(fault_at("padding"));
        }
        self.read = self.bytes.len();
        Ok(Progress::Incomplete)
    }

    /// The length of bytes whose length stands at `at`, and the number of bytes of that length; `None`
    /// if not all have arrived. Bytes that may never come are refused at once.
    fn find_bytes(&self, at: usize) -> Result<Option<(usize, usize)>, EncryptedBodyError> {
        let rest = self.unread_bytes().get(at..).unwrap_or_default();
        let Some((length, count)) = read_varint(rest) else {
            self.check_head_bytes(at)?;
            return Ok(None);
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.check_head_bytes((at + count).saturating_add(length))?;
        Ok((rest.len() - count >= length).then_some((length, count)))
    }
}

/// The outcome of a step.
enum Progress {
    Part(MessagePart),
    Step,
    Incomplete,
}

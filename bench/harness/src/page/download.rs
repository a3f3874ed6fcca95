//! The link "Download the record": the whole document, compressed, within the page.

use std::{
    fs,
    io::{Read, Write},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};

use super::view::RecordView;
use crate::{document::html::escape, format::value};

/// The records of a page together, compressed, in bytes: more makes a page that a telephone does not open.
const ATTACHED_BYTES_MAX: usize = 12 << 20;
/// The size of one file in bytes, beyond which a record is sent as a file of its own.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// The level of compression, of ten: beyond it the time grows and the size does not shrink.
const LEVEL: u32 = 7;

/// The document of one record, as far as it is in the page.
pub(super) enum Attached {
    /// The compressed document, and the name of its file.
    Embedded { name: String, bytes: Vec<u8> },
    /// The reason why it is not in the page.
    Omitted(String),
}

/// Attaches every record, or as many as the page can carry.
pub(super) fn attach(views: &[RecordView<'_>]) -> Vec<Attached> {
    let mut room = ATTACHED_BYTES_MAX;
    views.iter().map(|view| attach_record(view, &mut room)).collect()
}

impl Attached {
    /// Returns the link with its size, or the reason why there is none.
    pub(super) fn link(&self) -> String {
        match self {
            Self::Embedded { name, bytes } => format!(
                "<a download=\"{}\" href=\"data:application/gzip;base64,{}\">Download the record</a> \
                 ({}, every sample in it)",
                escape(name),
                STANDARD.encode(bytes),
                escape(&value("_bytes", bytes.len() as f64)),
            ),
            Self::Omitted(why) => escape(why),
        }
    }

    /// Returns the name of the file, or the reason why it is not in the page.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Embedded { name, .. } => name,
            Self::Omitted(why) => why,
        }
    }
}

fn attach_record(view: &RecordView<'_>, room: &mut usize) -> Attached {
    let name = format!("{}.record.json.gz", file_stem(view));
    match pack(view) {
        Some(bytes) if bytes.len() <= *room => {
            *room -= bytes.len();
            Attached::Embedded { name, bytes }
        }
        Some(bytes) => Attached::Omitted(format!(
            "{name} ({} compressed) does not fit into this page; it stays where the page was made",
            value("_bytes", bytes.len() as f64)
        )),
        None => Attached::Omitted(format!("{name} is too large for a page")),
    }
}

/// Returns a file name of suite and second, which no two records of a machine share.
fn file_stem(view: &RecordView<'_>) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = view.record.suite.name.chars().take(40).map(kept).collect();
    format!("{name}-{}", view.record.started_unix_s)
}

/// Returns the whole document with its samples, compressed: the file itself where it is such a
/// document, else one of this version's layout. It holds no time of its making, so that the same
/// record gives the same page.
fn pack(view: &RecordView<'_>) -> Option<Vec<u8>> {
    let text = match read_file(view) {
        Some(bytes) if bytes.starts_with(&[0x1f, 0x8b]) => return Some(bytes),
        Some(bytes) => bytes,
        None => view.record.document(view.samples, view.slices).ok()?.into_bytes(),
    };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
    encoder.write_all(&text).ok()?;
    encoder.finish().ok()
}

/// Reads the record's own file, where it holds its samples. A partial record is not read, because
/// it may be behind its journal.
fn read_file(view: &RecordView<'_>) -> Option<Vec<u8>> {
    if view.record.schema < 2 || view.record.partial.is_some() {
        return None;
    }
    let mut bytes = Vec::new();
    let read = fs::File::open(&view.path).ok()?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    (read.is_ok() && bytes.len() as u64 <= FILE_BYTES_MAX).then_some(bytes)
}

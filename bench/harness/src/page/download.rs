//! "Download the record": the very document, compressed, within the page.

use std::{
    fs,
    io::{Read, Write},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};

use super::{html::escape, view::RecordView};
use crate::format::value;

/// Of all records of a page, compressed: more makes a page that a telephone does not open.
const ATTACHED_BYTES_MAX: usize = 12 << 20;
/// Read of one file: beyond it a record is sent as a file of its own.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Of ten: beyond it the time grows and the size does not shrink.
const LEVEL: u32 = 7;

/// What of one record is in the page.
pub(super) enum Attached {
    Here {
        name: String,
        /// Compressed.
        bytes: Vec<u8>,
    },
    /// Why it is not.
    Elsewhere(String),
}

/// Every record, as many as the page can carry.
pub(super) fn attach(shown: &[RecordView<'_>]) -> Vec<Attached> {
    let mut room = ATTACHED_BYTES_MAX;
    shown.iter().map(|one| of_one(one, &mut room)).collect()
}

impl Attached {
    /// The link with its size.
    pub(super) fn link(&self) -> String {
        match self {
            Self::Here { name, bytes } => format!(
                "<a download=\"{}\" href=\"data:application/gzip;base64,{}\">Download the record</a> \
                 ({}, every sample in it)",
                escape(name),
                STANDARD.encode(bytes),
                escape(&value("_bytes", bytes.len() as f64)),
            ),
            Self::Elsewhere(why) => escape(why),
        }
    }

    /// The same without the data, for the place that only names it.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Here { name, .. } => name,
            Self::Elsewhere(why) => why,
        }
    }
}

fn of_one(shown: &RecordView<'_>, room: &mut usize) -> Attached {
    let name = format!("{}.record.json.gz", stem(shown));
    match packed(shown) {
        Some(bytes) if bytes.len() <= *room => {
            *room -= bytes.len();
            Attached::Here { name, bytes }
        }
        Some(bytes) => Attached::Elsewhere(format!(
            "{name} ({} compressed) has no room in this page; it is where the page was made",
            value("_bytes", bytes.len() as f64)
        )),
        None => Attached::Elsewhere(format!("{name} is too large for a page")),
    }
}

/// Suite and second: no two records of a machine share them.
fn stem(shown: &RecordView<'_>) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = shown.record.suite.name.chars().take(40).map(kept).collect();
    format!("{name}-{}", shown.record.started_unix_s)
}

/// The whole document, samples among it, compressed. The file itself where it is such a document,
/// else one of today's layout. No time stands in it, so that the same record gives the same page.
fn packed(shown: &RecordView<'_>) -> Option<Vec<u8>> {
    let text = match file(shown) {
        Some(bytes) if bytes.starts_with(&[0x1f, 0x8b]) => return Some(bytes),
        Some(bytes) => bytes,
        None => shown.record.document(shown.samples, shown.slices).ok()?.into_bytes(),
    };
    let mut packed = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
    packed.write_all(&text).ok()?;
    packed.finish().ok()
}

/// The bytes of the record's own file, where it holds its samples. A partial record may be behind
/// its journal.
fn file(shown: &RecordView<'_>) -> Option<Vec<u8>> {
    if shown.record.schema < 2 || shown.record.partial.is_some() {
        return None;
    }
    let mut bytes = Vec::new();
    let read = fs::File::open(&shown.path).ok()?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    (read.is_ok() && bytes.len() as u64 <= FILE_BYTES_MAX).then_some(bytes)
}

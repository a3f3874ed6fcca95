//! "Download the record": the very files, compressed, within the page.

use std::{
    fs,
    io::{Read, Write},
    path::Path,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};

use super::{Shown, html::escape};
use crate::{format::value, record::SAMPLES_FILE};

/// Of all records of a page, compressed: more makes a page that a telephone does not open.
const ATTACHED_BYTES_MAX: usize = 12 << 20;
/// Read of one file: beyond it a record is sent as a file of its own.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The files of one record.
pub(super) struct Attached {
    files: Vec<File>,
    /// What is not in the page, and why.
    left_out: Vec<String>,
}

struct File {
    name: String,
    /// Compressed.
    bytes: Vec<u8>,
}

/// The files of every record, as many as the page can carry.
pub(super) fn attach(shown: &[Shown<'_>]) -> Vec<Attached> {
    let mut room = ATTACHED_BYTES_MAX;
    shown.iter().map(|one| of_one(one, &mut room)).collect()
}

impl Attached {
    /// Links with their sizes, and what is missing.
    pub(super) fn link(&self) -> String {
        let link = |file: &File| {
            format!(
                "<a download=\"{}\" href=\"data:application/gzip;base64,{}\">Download {}</a> ({})",
                escape(&file.name),
                STANDARD.encode(&file.bytes),
                escape(&file.name),
                value("_bytes", file.bytes.len() as f64),
            )
        };
        let links: Vec<String> = self.files.iter().map(link).collect();
        let missing: Vec<String> = self.left_out.iter().map(|text| escape(text)).collect();
        [links, missing].concat().join(" · ")
    }

    /// The same without the data, for the place that only names them.
    pub(super) fn names(&self) -> String {
        let named: Vec<&str> = self.files.iter().map(|file| file.name.as_str()).collect();
        [named.join(", "), self.left_out.join("; ")].join(" ").trim().to_owned()
    }
}

fn of_one(shown: &Shown<'_>, room: &mut usize) -> Attached {
    let mut attached = Attached { files: Vec::new(), left_out: Vec::new() };
    let beside = [SAMPLES_FILE.to_owned(), format!("{SAMPLES_FILE}.gz")]
        .map(|name| shown.path.with_file_name(name))
        .into_iter()
        .find(|path| path.exists());
    // A record of the second layout holds its samples; the journal beside it repeats them.
    let beside = beside.filter(|_| shown.record.schema == 1);
    let stem = stem(shown);
    for (path, kind) in [(Some(shown.path.clone()), "record.json"), (beside, SAMPLES_FILE)] {
        let Some(path) = path else { continue };
        let name = format!("{stem}.{kind}.gz");
        match packed(&path) {
            Some(bytes) if bytes.len() <= *room => {
                *room -= bytes.len();
                attached.files.push(File { name, bytes });
            }
            Some(bytes) => attached.left_out.push(format!(
                "{kind} ({} compressed) is beside this page: it has no room for it",
                value("_bytes", bytes.len() as f64)
            )),
            None => attached.left_out.push(format!("{kind} could not be read for this page")),
        }
    }
    attached
}

/// Suite and second: no two records of a machine share them.
fn stem(shown: &Shown<'_>) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = shown.record.suite.name.chars().take(40).map(kept).collect();
    format!("{name}-{}", shown.record.started_unix_s)
}

/// The file's bytes, compressed unless they are; no time stands in them, so that the same record
/// gives the same page.
fn packed(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return None;
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Some(bytes);
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&bytes).ok()?;
    packed.finish().ok()
}

//! The link to the record: small records are embedded in the page, compressed; large ones stay files to which the page
//! links.

use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};

use super::view::RecordView;
use crate::{document::html::escape, format::format_value, record::SAMPLES_FILE};

/// The size of a compressed record in bytes, beyond which the page links to its file.
const EMBEDDED_BYTES_MAX: usize = 1 << 20;
/// The embedded records of a page together, in bytes: more makes a page that a telephone does not open.
const PAGE_BYTES_MAX: usize = 12 << 20;
/// The size of one file in bytes, beyond which a record is not read for a page.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// The level of compression, of ten: beyond it the time grows and the size does not shrink.
const LEVEL: u32 = 7;

/// Where a reader of the page finds the document of one record.
pub(super) enum RecordAttachment {
    /// The compressed document in the page, and the name of its file.
    Embedded { name: String, bytes: Vec<u8> },
    /// Files in the folder of the page or below it, each with its path from there and its size in bytes.
    Linked(Vec<(String, u64)>),
    /// The reason why the page has neither.
    Omitted(String),
}

/// Attaches every record to the page that will be written to `page`: it embeds small ones, as many as
/// the page can carry, and links to the others.
pub(super) fn attach_records(views: &[RecordView<'_>], page: &Path) -> Vec<RecordAttachment> {
    let mut room = PAGE_BYTES_MAX;
    views.iter().map(|view| attach_record(view, page, &mut room)).collect()
}

impl RecordAttachment {
    /// Returns the link with what stands behind it, or the reason why there is none.
    pub(super) fn render_link(&self) -> String {
        match self {
            Self::Embedded { name, bytes } => format!(
                "<a download=\"{}\" href=\"data:application/gzip;base64,{}\">Download the record</a> \
                 ({}, with every sample)",
                escape(name),
                STANDARD.encode(bytes),
                escape(&format_value("_bytes", bytes.len() as f64)),
            ),
            Self::Linked(files) => {
                let link = |(path, bytes): &(String, u64)| {
                    format!(
                        "<a href=\"./{}\">{}</a> ({})",
                        percent_encode_path(path),
                        escape(path),
                        escape(&format_value("_bytes", *bytes as f64)),
                    )
                };
                let links: Vec<String> = files.iter().map(link).collect();
                format!("{}{LINKED}", links.join(", "))
            }
            Self::Omitted(why) => escape(why),
        }
    }

    /// Says in a sentence where the record is.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Embedded { name, .. } => format!(
                "This page contains its record as `{name}`; `confide bench report {name}` makes the page from \
                 it."
            ),
            Self::Linked(files) => {
                let names: Vec<String> =
                    files.iter().map(|(path, _)| format!("`{path}`")).collect();
                format!("The record is not in this page but next to it: {}.", names.join(", "))
            }
            Self::Omitted(why) => format!("{why}."),
        }
    }
}

/// What stands after the link to a record's file.
const LINKED: &str = " next to this page: the record with every sample. It is not embedded, which keeps the page \
    smaller; move both together";

fn attach_record(view: &RecordView<'_>, page: &Path, room: &mut usize) -> RecordAttachment {
    let name = format!("{}.record.json.gz", file_stem(view));
    let packed = compress_record(view);
    let size = match packed {
        Some(bytes) if bytes.len() <= EMBEDDED_BYTES_MAX.min(*room) => {
            *room -= bytes.len();
            return RecordAttachment::Embedded { name, bytes };
        }
        Some(bytes) => format!(" ({} compressed)", format_value("_bytes", bytes.len() as f64)),
        None => String::new(),
    };
    match list_record_files(view, page) {
        Some(files) => RecordAttachment::Linked(files),
        None => RecordAttachment::Omitted(format!(
            "The record, {name}{size}, is not embedded, so that the page stays small; it is where the \
             page was made"
        )),
    }
}

/// Lists the files of a record by their paths from the folder of the page; `None` if one of them
/// lies elsewhere, because a page does not tell the folders of a machine.
fn list_record_files(view: &RecordView<'_>, page: &Path) -> Option<Vec<(String, u64)>> {
    let absolute =
        |path: &Path| fs::canonicalize(if path == Path::new("") { Path::new(".") } else { path });
    let folder = absolute(page.parent()?).ok()?;
    let mut files = vec![view.path.clone()];
    if view.record.schema < 2 {
        // The samples of older records are in a file of their own.
        let samples = view.path.with_file_name(SAMPLES_FILE);
        let packed = samples.with_file_name(format!("{SAMPLES_FILE}.gz"));
        files.push(if samples.exists() { samples } else { packed });
    }
    let from_page = |file: PathBuf| {
        let bytes = fs::metadata(&file).ok()?.len();
        let file = absolute(&file).ok()?;
        Some((file.strip_prefix(&folder).ok()?.to_str()?.to_owned(), bytes))
    };
    files.into_iter().map(from_page).collect()
}

/// Encodes whatever has a meaning in an address.
fn percent_encode_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => {
                out.push(char::from(byte));
            }
            other => out += &format!("%{other:02X}"),
        }
    }
    out
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
fn compress_record(view: &RecordView<'_>) -> Option<Vec<u8>> {
    let text = match read_record_file(view) {
        Some(bytes) if bytes.starts_with(&[0x1f, 0x8b]) => return Some(bytes),
        Some(bytes) => bytes,
        None => view.record.to_json_document(view.samples, view.slices).ok()?.into_bytes(),
    };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
    encoder.write_all(&text).ok()?;
    encoder.finish().ok()
}

/// Reads the record's own file, where it holds its samples. A partial record is not read, because
/// it may be behind its journal.
fn read_record_file(view: &RecordView<'_>) -> Option<Vec<u8>> {
    if view.record.schema < 2 || view.record.partial.is_some() {
        return None;
    }
    let mut bytes = Vec::new();
    let read = fs::File::open(&view.path).ok()?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    (read.is_ok() && bytes.len() as u64 <= FILE_BYTES_MAX).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use confide_tests::Folder;

    use super::*;
    use crate::loaded::LoadedRecord;

    #[test]
    fn a_record_above_the_limit_is_linked_by_its_path_from_the_page_and_a_small_one_embedded() {
        let scratch = Folder::new("attached");
        let below = scratch.path().join("a folder");
        fs::create_dir_all(&below).unwrap();
        let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("../records/2026-11-27-verify");
        let loaded = LoadedRecord::read(&known).unwrap();
        let record = below.join("record.json.gz");
        // A compressed file is taken as it is: this one is large only by its size.
        let mut text = vec![0x1f, 0x8b];
        text.resize(EMBEDDED_BYTES_MAX + 1, 0);
        fs::write(&record, &text).unwrap();
        let view = |path: &Path| {
            RecordView::new(&loaded.record, &loaded.samples, &loaded.slices, path.to_owned())
        };
        let page = scratch.path().join("report.html");
        let mut large = loaded.record.clone();
        (large.schema, large.partial) = (2, None);
        let large = RecordView::new(&large, &loaded.samples, &loaded.slices, record.clone());
        let link = attach_records(&[large], &page)[0].render_link();
        assert!(link.contains("href=\"./a%20folder/record.json.gz\""), "{link}");
        assert!(link.contains("1 MiB") && link.contains("keeps the page smaller"), "{link}");
        let small = attach_records(&[view(&loaded.path)], &page)[0].render_link();
        assert!(small.starts_with("<a download=") && small.contains("data:application/gzip"));
    }

    #[test]
    fn a_record_in_another_folder_is_neither_linked_nor_is_its_folder_told() {
        let scratch = Folder::new("elsewhere");
        let page = scratch.path().join("pages/report.html");
        fs::create_dir_all(scratch.path().join("pages")).unwrap();
        let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records/layout-1");
        let loaded = LoadedRecord::read(&known).unwrap();
        let view =
            RecordView::new(&loaded.record, &loaded.samples, &loaded.slices, loaded.path.clone());
        assert!(list_record_files(&view, &page).is_none());
        let beside = known.join("report.html");
        let files = list_record_files(&view, &beside).unwrap();
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["record.json", "samples.jsonl.gz"]);
    }
}

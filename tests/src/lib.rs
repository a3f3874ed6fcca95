//! What tests share: programs and folders of a test, malformed HTTP messages, and which files the checkout holds.

mod folder;
pub mod framing;
mod program;

use std::path::{Path, PathBuf};

pub use folder::Folder;
pub use program::{ANY_PORT, CommandOutput, Process, Program, text};

/// The root of the checkout.
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the checkout").into()
}

/// Every file under `folder` of the checkout whose name ends in one of `endings`, sorted, without
/// build output.
///
/// `folder` is relative to the checkout; an absent folder gives no files.
pub fn files_under(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&checkout().join(folder), endings, &mut found);
    found.sort();
    found
}

fn collect(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    const NOT_OURS: &[&str] =
        &[".git", "artifacts", "bench-out", "corpus", "dist", "node_modules", "target"];
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if path.is_dir() {
            // Virtual environments: .venv, .venv-seal and the like.
            if !NOT_OURS.contains(&name.as_ref()) && !name.starts_with(".venv") {
                collect(&path, endings, found);
            }
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

/// A path relative to the checkout, for the reader of a failed test.
pub fn relative_path(path: &Path) -> String {
    path.strip_prefix(checkout()).unwrap_or(path).display().to_string()
}

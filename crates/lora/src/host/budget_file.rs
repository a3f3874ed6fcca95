//! Counts of answers on disk, so that a restart does not make budgets new.
//!
//! One JSON object a line, appended. A line is written before the answers that it counts: for some
//! ahead, which a restart then counts as given.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::{Input, Slot};

/// Answers counted ahead by one line.
const AHEAD: u64 = 64;

/// Lines of a file that is read: each sequence has one after every start.
const LINES_MAX: usize = 4_000_000;

pub(crate) struct BudgetFile {
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    written: HashMap<Slot, u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    client: String,
    adapter: String,
    layer: u32,
    input: u8,
    used: u64,
}

impl BudgetFile {
    /// Opens or makes the file; gives the counts that it holds.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, HashMap<Slot, u64>)> {
        let mut counts = HashMap::new();
        match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(text) => {
                for (index, line) in text.lines().enumerate() {
                    let (slot, used) = read_line(line)
                        .filter(|_| index < LINES_MAX)
                        .ok_or_else(|| bad_line(index + 1))?;
                    let count: &mut u64 = counts.entry(slot).or_default();
                    *count = (*count).max(used);
                }
            }
        }
        rewrite(path, &counts)?;
        let file = OpenOptions::new().append(true).open(path)?;
        let inner = Inner { file, written: counts.clone() };
        Ok((Self { inner: Mutex::new(inner) }, counts))
    }

    /// Has a line on disk that counts at least `used`.
    pub(crate) fn reserve(&self, slot: Slot, used: u64) -> io::Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.written.get(&slot).is_some_and(|written| *written >= used) {
            return Ok(());
        }
        let ahead = used.saturating_add(AHEAD);
        let text = line(&slot, ahead);
        inner.file.write_all(text.as_bytes())?;
        inner.written.insert(slot, ahead);
        Ok(())
    }
}

/// One line for each count, in a new file that takes the place of the old one.
fn rewrite(path: &Path, counts: &HashMap<Slot, u64>) -> io::Result<()> {
    let text: String = counts.iter().map(|(slot, used)| line(slot, *used)).collect();
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, text)?;
    std::fs::rename(beside, path)
}

fn line(slot: &Slot, used: u64) -> String {
    let hex = |bytes: &[u8; 32]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let line = Line {
        client: hex(&slot.client),
        adapter: hex(&slot.adapter),
        layer: slot.layer,
        input: slot.input as u8,
        used,
    };
    let text = serde_json::to_string(&line).unwrap_or_default();
    text + "\n"
}

fn read_line(text: &str) -> Option<(Slot, u64)> {
    let line: Line = serde_json::from_str(text).ok()?;
    let input = [
        Input::Attention,
        Input::AttentionOutput,
        Input::FeedForward,
        Input::FeedForwardInner,
        Input::FinalHidden,
    ];
    let slot = Slot {
        client: super::accounts::digest_from_hex(&line.client)?,
        adapter: super::accounts::digest_from_hex(&line.adapter)?,
        layer: line.layer,
        input: *input.get(usize::from(line.input))?,
    };
    Some((slot, line.used))
}

fn bad_line(line: usize) -> io::Error {
    let text =
        format!("line {line} of the budget file is not a count: restore it, do not empty it");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Slot =
        Slot { client: [1; 32], adapter: [2; 32], layer: 3, input: Input::FeedForward };

    #[test]
    fn what_was_answered_is_counted_after_a_restart() {
        let name = format!("confide-budget-{}.jsonl", std::process::id());
        let path = std::env::temp_dir().join(name);
        let (file, counts) = BudgetFile::open(&path).unwrap();
        assert!(counts.is_empty());
        for used in 1..=100 {
            file.reserve(SLOT, used).unwrap();
        }
        drop(file);
        let (_, counts) = BudgetFile::open(&path).unwrap();
        assert!((100..=100 + AHEAD).contains(&counts[&SLOT]), "{}", counts[&SLOT]);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
        std::fs::write(&path, "{}\n").unwrap();
        assert!(BudgetFile::open(&path).is_err());
        std::fs::remove_file(path).unwrap();
    }
}

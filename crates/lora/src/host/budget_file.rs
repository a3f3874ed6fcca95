//! Counts of answers on disk, so that a restart does not renew budgets.
//!
//! The file has one JSON object per line. A line is appended and synchronised before the answers that
//! it counts are sent. It counts some answers in advance, and a restart after a crash treats these as
//! used. A clean shutdown writes the exact counts.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::trusted_file::open_trusted_file;
use crate::{mask::CounterSlot, site::LayerInput};

/// The greatest number of answers that one line counts in advance.
const AHEAD_MAX: u64 = 64;

/// A line counts at most a budget divided by this in advance, so that a crash does not use up a small
/// budget.
const AHEAD_SHARE: u64 = 32;

/// The greatest number of lines of a file.
const LINES_MAX: usize = 4_000_000;

/// The number of appended lines after which the file is rewritten with one line for each count.
const APPENDED_MAX: usize = 1_000_000;

pub(crate) struct BudgetFile {
    path: PathBuf,
    inner: Mutex<OpenBudgetFile>,
    /// The file's lock: two hosts with the same file would each miss the other's answers.
    _lock: File,
}

struct OpenBudgetFile {
    file: File,
    written: HashMap<CounterSlot, u64>,
    appended: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetLine {
    account: String,
    /// The digest of all matrices A that read the input.
    weights: String,
    layer: u32,
    input: u8,
    used: u64,
}

impl BudgetFile {
    /// Opens or creates the file and its folder, and returns the counts that it holds.
    ///
    /// # Errors
    /// If it cannot be read or written, is not a regular file of this user or root, may be written by
    /// others, has a second link, is in use by another host, or has an invalid line.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, HashMap<CounterSlot, u64>)> {
        if let Some(folder) = parent_folder(path) {
            std::fs::create_dir_all(folder)?;
        }
        let path = &resolve_path(path)?;
        // A file that is refused gets no lock file next to it.
        open_existing(path)?;
        let lock_path = with_suffix(path, ".lock");
        let lock =
            open_trusted_file(&lock_path, private_options().create(true)).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", lock_path.display()))
            })?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::other("it is in use by another adapter host"),
            TryLockError::Error(error) => error,
        })?;
        let counts = match open_existing(path)? {
            None => HashMap::new(),
            Some(file) => parse_answer_counts(&io::read_to_string(file)?)?,
        };
        let file = rewrite_file(path, &counts)?;
        let inner = OpenBudgetFile { file, written: counts.clone(), appended: 0 };
        let path = path.to_owned();
        Ok((Self { path, inner: Mutex::new(inner), _lock: lock }, counts))
    }

    /// Returns whether a line on disk counts at least `used`.
    pub(crate) fn has_recorded(&self, slot: &CounterSlot, used: u64) -> bool {
        self.lock().written.get(slot).is_some_and(|written| *written >= used)
    }

    /// Ensures that a line on disk counts at least `used` of a budget of `limit`.
    pub(crate) fn ensure_recorded(
        &self,
        slot: CounterSlot,
        used: u64,
        limit: Option<u64>,
    ) -> io::Result<()> {
        let mut inner = self.lock();
        if inner.written.get(&slot).is_some_and(|written| *written >= used) {
            return Ok(());
        }
        let ahead = limit.map_or(AHEAD_MAX, |limit| (limit / AHEAD_SHARE).min(AHEAD_MAX));
        let ahead = used.saturating_add(ahead);
        inner.file.write_all(format_line(&slot, ahead).as_bytes())?;
        inner.file.sync_data()?;
        inner.written.insert(slot, ahead);
        inner.appended += 1;
        if inner.appended >= APPENDED_MAX {
            inner.file = rewrite_file(&self.path, &inner.written)?;
            inner.appended = 0;
        }
        Ok(())
    }

    /// Replaces the counts, which include answers in advance, by the exact ones.
    pub(crate) fn replace_counts(&self, counts: HashMap<CounterSlot, u64>) -> io::Result<()> {
        let mut inner = self.lock();
        inner.file = rewrite_file(&self.path, &counts)?;
        inner.written = counts;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, OpenBudgetFile> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes one line for each count to a new file, synchronises it, replaces the old file, and
/// synchronises the folder. Returns the file, open for appending.
fn rewrite_file(path: &Path, counts: &HashMap<CounterSlot, u64>) -> io::Result<File> {
    let text = format_answer_counts(counts);
    let new_path = with_suffix(path, ".new");
    // One that a crash left, or that somebody else has put there.
    match std::fs::remove_file(&new_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = open_trusted_file(&new_path, private_options().create_new(true))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(new_path, path)?;
    File::open(parent_folder(path).unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(file)
}

/// Resolves symbolic links. A rewrite replaces the file, so a device or a pipe would be lost, and two
/// links to one file would continue with separate counts.
fn resolve_path(path: &Path) -> io::Result<PathBuf> {
    if let Err(error) = path.symlink_metadata() {
        return match error.kind() {
            io::ErrorKind::NotFound => Ok(path.to_owned()),
            _ => Err(error),
        };
    }
    path.canonicalize()
}

/// Opens a file of counts for reading; `None` if there is none.
fn open_existing(path: &Path) -> io::Result<Option<File>> {
    let file = match open_trusted_file(path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if file.metadata()?.nlink() > 1 {
        return Err(io::Error::other("wanted a file with only one hard link"));
    }
    Ok(Some(file))
}

/// Options that append to a file, and make it for its owner only.
fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).mode(0o600);
    options
}

fn parent_folder(path: &Path) -> Option<&Path> {
    path.parent().filter(|folder| !folder.as_os_str().is_empty())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Parses the counts of a budget file.
///
/// # Errors
/// If a line is not a count of answers, or if there are too many.
pub fn parse_answer_counts(text: &str) -> io::Result<HashMap<CounterSlot, u64>> {
    let mut counts = HashMap::new();
    // A line that a crash truncated was not synchronised, so no answer was sent for it.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (index, line) in whole.lines().enumerate() {
        let (slot, used) = parse_line(line)
            .filter(|_| index < LINES_MAX)
            .ok_or_else(|| line_error(index + 1, line))?;
        let count: &mut u64 = counts.entry(slot).or_default();
        *count = (*count).max(used);
    }
    Ok(counts)
}

/// The text of a budget file with these counts.
pub fn format_answer_counts(counts: &HashMap<CounterSlot, u64>) -> String {
    counts.iter().map(|(slot, used)| format_line(slot, *used)).collect()
}

fn format_line(slot: &CounterSlot, used: u64) -> String {
    let line = BudgetLine {
        account: hex::encode(slot.client),
        weights: hex::encode(slot.adapter),
        layer: slot.layer,
        input: slot.input as u8,
        used,
    };
    let text = serde_json::to_string(&line).unwrap_or_default();
    text + "\n"
}

fn parse_line(text: &str) -> Option<(CounterSlot, u64)> {
    let line: BudgetLine = serde_json::from_str(text).ok()?;
    let slot = CounterSlot {
        client: super::accounts::digest_from_hex(&line.account)?,
        adapter: super::accounts::digest_from_hex(&line.weights)?,
        layer: line.layer,
        input: *LayerInput::ALL.get(usize::from(line.input))?,
    };
    Some((slot, line.used))
}

fn line_error(line: usize, text: &str) -> io::Error {
    let by_name =
        serde_json::from_str::<Value>(text).is_ok_and(|line| line.get("adapter").is_some());
    let text = match by_name {
        true => format!(
            "line {line}: this is a count by the adapter's name, from an earlier version; \
             choose another --budget-file"
        ),
        false => format!("line {line}: not a count of answers"),
    };
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SLOT: CounterSlot =
        CounterSlot { client: [1; 32], adapter: [2; 32], layer: 3, input: LayerInput::FeedForward };

    fn place(name: &str) -> PathBuf {
        let folder = format!("confide-budget-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        folder.join("state/budgets.jsonl")
    }

    #[test]
    fn a_file_that_is_no_ordinary_one_or_has_two_names_is_refused_and_left_as_it_was() {
        let path = place("odd");
        let folder = parent_folder(&path).unwrap();
        std::fs::create_dir_all(folder).unwrap();
        assert!(BudgetFile::open(folder).is_err(), "a folder");
        // A socket is not a regular file, and every user can make one.
        let socket = folder.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(BudgetFile::open(&socket).is_err());
        assert!(!socket.metadata().unwrap().is_file());
        std::fs::write(&path, "").unwrap();
        let (link, second) = (folder.join("link"), folder.join("second"));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let held = BudgetFile::open(&path).unwrap();
        assert!(BudgetFile::open(&link).is_err(), "the same file, where another host counts");
        drop(held);
        drop(BudgetFile::open(&link).unwrap());
        assert!(link.is_symlink());
        std::fs::hard_link(&path, &second).unwrap();
        assert!(BudgetFile::open(&path).is_err(), "it has two names");
        std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_file_that_others_may_write_is_refused_and_its_lock_is_no_link() {
        let path = place("writers");
        drop(BudgetFile::open(&path).unwrap());
        let (lock, elsewhere) = (with_suffix(&path, ".lock"), path.with_file_name("elsewhere"));
        let everyone = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(&path, everyone).unwrap();
        let refused = BudgetFile::open(&path).err().unwrap();
        assert!(refused.to_string().contains("got mode 666"), "{refused}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::remove_file(&lock).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &lock).unwrap();
        assert!(BudgetFile::open(&path).is_err());
        assert!(!elsewhere.exists());
        std::fs::remove_dir_all(path.ancestors().nth(2).unwrap()).unwrap();
    }

    #[test]
    fn what_was_answered_is_counted_after_a_crash_and_exactly_after_a_clean_end() {
        let path = place("crash");
        let (file, counts) = BudgetFile::open(&path).unwrap();
        assert!(counts.is_empty());
        for used in 1..=100 {
            file.ensure_recorded(SLOT, used, Some(127)).unwrap();
            assert!(file.has_recorded(&SLOT, used));
        }
        drop(file);
        let (file, counts) = BudgetFile::open(&path).unwrap();
        assert!((100..=100 + 127 / AHEAD_SHARE).contains(&counts[&SLOT]), "{}", counts[&SLOT]);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
        file.replace_counts(HashMap::from([(SLOT, 100)])).unwrap();
        drop(file);
        // A line that a crash cut short counts nothing.
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"account\":\"01");
        std::fs::write(&path, text).unwrap();
        assert_eq!(BudgetFile::open(&path).unwrap().1[&SLOT], 100);
        std::fs::remove_dir_all(path.ancestors().nth(2).unwrap()).unwrap();
    }

    #[test]
    fn a_file_that_is_not_one_or_counts_by_name_or_is_in_use_is_refused() {
        let path = place("refused");
        let (_held, _) = BudgetFile::open(&path).unwrap();
        let in_use = BudgetFile::open(&path).err().unwrap();
        assert!(in_use.to_string().contains("another adapter host"), "{in_use}");
        let (id, old) = ("ab".repeat(32), place("old"));
        std::fs::create_dir_all(old.parent().unwrap()).unwrap();
        let by_name = format!(
            "{{\"client\":\"{id}\",\"adapter\":\"{id}\",\"layer\":0,\"input\":0,\"used\":5}}\n"
        );
        for (text, wanted) in [(&by_name[..], "by the adapter's name"), ("{}\n", "line 1")] {
            std::fs::write(&old, text).unwrap();
            let refused = BudgetFile::open(&old).err().unwrap();
            assert!(refused.to_string().contains(wanted), "{refused}");
            assert_eq!(std::fs::read_to_string(&old).unwrap(), text, "it is left as it was");
        }
        for path in [path, old] {
            std::fs::remove_dir_all(path.ancestors().nth(2).unwrap()).unwrap();
        }
    }
}

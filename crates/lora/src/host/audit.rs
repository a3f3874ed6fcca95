//! The audit log: the number of answers for each account, one JSON object per line, without any values.

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde_json::{Map, Value, json};

use super::trusted_file::open_trusted_file;

/// The number of lines kept in memory: a day of one line every ten seconds.
pub(crate) const LINES_KEPT: usize = 8640;

/// The size in bytes at which a file is renamed to `FILE.1`, which replaces an earlier `FILE.1`.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The audit log, in memory or in a file.
pub struct AuditLog {
    clock: fn() -> u64,
    sink: Mutex<AuditSink>,
}

enum AuditSink {
    Memory { lines: VecDeque<String>, dropped: u64 },
    File { path: PathBuf, file: File, bytes: u64, limit: u64, lost: u64 },
}

/// The subject of a line. Fields that are `None` are omitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditSubject<'a> {
    /// The session's client id, of which the first 8 bytes are written.
    pub client: Option<&'a [u8; 32]>,
    /// The name under which answers are budgeted.
    pub account: Option<&'a str>,
    /// The name of the adapter.
    pub adapter: Option<&'a str>,
}

impl AuditLog {
    /// Makes a log that keeps the last 8,640 lines in memory. `clock` returns the time in Unix seconds.
    pub fn in_memory(clock: fn() -> u64) -> Self {
        let sink = AuditSink::Memory { lines: VecDeque::new(), dropped: 0 };
        Self { clock, sink: Mutex::new(sink) }
    }

    /// Makes a log that appends lines to a file.
    ///
    /// # Errors
    /// If the file cannot be opened, is not a regular file of this user or root, or if others may write
    /// to it.
    pub fn to_file(path: &Path, clock: fn() -> u64) -> io::Result<Self> {
        Self::to_file_with_limit(path, clock, FILE_BYTES_MAX)
    }

    fn to_file_with_limit(path: &Path, clock: fn() -> u64, limit: u64) -> io::Result<Self> {
        let file = open_log(path)?;
        let bytes = file.metadata()?.len();
        let sink = AuditSink::File { path: path.to_owned(), file, bytes, limit, lost: 0 };
        Ok(Self { clock, sink: Mutex::new(sink) })
    }

    /// Writes one line.
    ///
    /// # Errors
    /// If the line cannot be written. Lost lines are counted, and the next written line contains the
    /// count.
    pub fn write(
        &self,
        event: &str,
        subject: AuditSubject<'_>,
        more: Map<String, Value>,
    ) -> io::Result<()> {
        let mut line = json!({ "time": (self.clock)(), "event": event });
        if let Value::Object(fields) = &mut line {
            let mut put = |name: &str, value: Option<String>| {
                if let Some(value) = value {
                    fields.insert(name.into(), value.into());
                }
            };
            put("client", subject.client.map(short_id));
            put("account", subject.account.map(Into::into));
            put("adapter", subject.adapter.map(Into::into));
            fields.extend(more);
        }
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        sink.append(line)
    }

    /// The lines in memory, the oldest first; empty for a log that goes to a file.
    pub fn lines(&self) -> Vec<String> {
        match &*self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            AuditSink::Memory { lines, .. } => lines.iter().cloned().collect(),
            AuditSink::File { .. } => Vec::new(),
        }
    }
}

impl AuditSink {
    fn append(&mut self, mut line: Value) -> io::Result<()> {
        match self {
            AuditSink::Memory { lines, dropped } => {
                if lines.len() == LINES_KEPT {
                    lines.pop_front();
                    *dropped += 1;
                }
                insert_nonzero_count(&mut line, "lines_dropped", *dropped);
                lines.push_back(line.to_string());
                Ok(())
            }
            AuditSink::File { path, file, bytes, limit, lost } => {
                insert_nonzero_count(&mut line, "lines_lost", *lost);
                let text = format!("{line}\n");
                let written = rotate_if_full(path, file, bytes, *limit)
                    .and_then(|()| file.write_all(text.as_bytes()));
                match written {
                    Ok(()) => (*bytes, *lost) = (*bytes + text.len() as u64, 0),
                    Err(_) => *lost += 1,
                }
                written
            }
        }
    }
}

fn insert_nonzero_count(line: &mut Value, name: &str, count: u64) {
    if count > 0 {
        line[name] = count.into();
    }
}

fn rotate_if_full(path: &Path, file: &mut File, bytes: &mut u64, limit: u64) -> io::Result<()> {
    if *bytes < limit {
        return Ok(());
    }
    let mut old = path.as_os_str().to_owned();
    old.push(".1");
    std::fs::rename(path, old)?;
    *file = open_log(path)?;
    *bytes = 0;
    Ok(())
}

fn open_log(path: &Path) -> io::Result<File> {
    // Programs that collect logs may read it, whatever the umask; nobody else may write to it.
    open_trusted_file(path, OpenOptions::new().create(true).append(true).mode(0o644))
}

fn short_id(client: &[u8; 32]) -> String {
    hex::encode(&client[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> AuditSubject<'static> {
        AuditSubject {
            client: Some(&[0xab; 32]),
            account: Some("everyone"),
            adapter: Some("banking"),
        }
    }

    #[test]
    fn a_line_says_who_and_how_often() {
        let log = AuditLog::in_memory(|| 1_700_000_000);
        let mut more = Map::new();
        more.insert("vectors".into(), 3.into());
        log.write("answered", subject(), more).unwrap();
        let line: Value = serde_json::from_str(&log.lines()[0]).unwrap();
        assert_eq!(line["time"], 1_700_000_000);
        assert_eq!(line["event"], "answered");
        assert_eq!(line["client"], "abababababababab");
        assert_eq!(line["vectors"], 3);
    }

    #[test]
    fn memory_keeps_the_newest_lines_and_says_how_many_went() {
        let log = AuditLog::in_memory(|| 0);
        for _ in 0..LINES_KEPT + 2 {
            log.write("answered", subject(), Map::new()).unwrap();
        }
        let lines = log.lines();
        assert_eq!(lines.len(), LINES_KEPT);
        let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        assert_eq!(last["lines_dropped"], 2);
    }

    #[test]
    fn a_file_is_rotated_before_it_is_too_long() {
        let folder = std::env::temp_dir().join(format!("confide-audit-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("audit.jsonl");
        let log = AuditLog::to_file_with_limit(&path, || 0, 300).unwrap();
        for _ in 0..10 {
            log.write("answered", subject(), Map::new()).unwrap();
        }
        let (new, old) = (std::fs::read(&path).unwrap(), folder.join("audit.jsonl.1"));
        let old = std::fs::read(old).unwrap();
        assert!(new.len() < 450 && old.len() < 450, "{} {}", new.len(), old.len());
        assert!(new.ends_with(b"}\n"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_line_that_cannot_be_written_is_an_error_and_the_next_one_counts_it() {
        let folder =
            std::env::temp_dir().join(format!("confide-audit-lost-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("audit.jsonl");
        let log = AuditLog::to_file_with_limit(&path, || 0, 1).unwrap();
        let write = || log.write("answered", subject(), Map::new());
        write().unwrap();
        // The file is full, and cannot be renamed.
        std::fs::remove_file(&path).unwrap();
        for _ in 0..2 {
            assert_eq!(write().unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        std::fs::write(&path, "").unwrap();
        write().unwrap();
        let line: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(line["lines_lost"], 2);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

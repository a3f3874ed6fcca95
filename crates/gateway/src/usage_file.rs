//! The usage file: one line of JSON for each key and model that was used since the last lines. At
//! the start its lines of the day restore what each key has spent.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    key_account::DAY_S,
    trusted_file::{TrustedFileError, check_trusted},
    usage::{UsageCounts, UsageKey},
};

/// The largest number of bytes that are read at the start, which takes seconds. It is some five
/// million lines: ten keys that are always in use fill it in a year.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// The largest number of bytes of a line; the longest that is written has some 500.
const LINE_BYTES_MAX: u64 = 1024;

/// The file to which usage is appended. It is opened anew for each batch, so that it can be moved
/// away at any time.
#[derive(Debug)]
pub(crate) struct UsageFile(PathBuf);

#[derive(Serialize)]
struct UsageLine<'a> {
    unix_s: u64,
    key: &'a str,
    model: Option<&'a str>,
    requests: u64,
    failed: u64,
    uncounted: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    estimated_tokens: u64,
}

/// The fields of a line that decide what is left of a day's budget.
#[derive(Deserialize)]
struct SpentLine<'a> {
    unix_s: u64,
    key: &'a str,
    prompt_tokens: u64,
    completion_tokens: u64,
    estimated_tokens: u64,
}

impl UsageFile {
    /// Opens or creates the file, and returns the tokens that each key has spent on the day of
    /// `unix_s`.
    pub(crate) fn open(
        path: &Path,
        unix_s: u64,
    ) -> Result<(Self, HashMap<String, u64>), TrustedFileError> {
        let unreadable = |error| TrustedFileError::unreadable(path, &error);
        let file = open_for_append(path).map_err(unreadable)?;
        let bytes = check_trusted(path, &file)?;
        if bytes > FILE_BYTES_MAX {
            let reason =
                format!("wanted at most {FILE_BYTES_MAX} bytes, got {bytes}; move it away");
            return Err(TrustedFileError::content(path, reason));
        }
        let (spent, unreadable_lines) =
            read_spent_tokens(BufReader::new(file.take(bytes)), unix_s / DAY_S)
                .map_err(unreadable)?;
        if unreadable_lines > 0 {
            tracing::warn!(path = %path.display(), unreadable_lines, "lines of the usage file were skipped");
        }
        Ok((Self(path.to_owned()), spent))
    }

    /// Appends a line for each day, key and model. On failure it returns the error, and the counts
    /// without a complete line.
    ///
    /// The line of an earlier day has the last second of that day, so that after a restart its
    /// tokens count against that day's budget.
    pub(crate) fn append(
        &self,
        counts: BTreeMap<UsageKey, UsageCounts>,
        unix_s: u64,
    ) -> Result<(), (io::Error, Vec<(UsageKey, UsageCounts)>)> {
        let mut lines = String::new();
        for ((day, key, model), counts) in &counts {
            let line = UsageLine {
                unix_s: unix_s.min((day + 1) * DAY_S - 1),
                key,
                model: model.as_deref(),
                requests: counts.requests,
                failed: counts.failed,
                uncounted: counts.uncounted,
                prompt_tokens: counts.prompt_tokens,
                cached_tokens: counts.cached_tokens,
                completion_tokens: counts.completion_tokens,
                estimated_tokens: counts.estimated_tokens,
            };
            // It has only strings and integers, so serialising cannot fail.
            lines.push_str(&serde_json::to_string(&line).unwrap_or_default());
            lines.push('\n');
        }
        let mut written_lines = 0;
        let outcome = self.append_lines(lines.as_bytes(), &mut written_lines);
        outcome.map_err(|error| (error, counts.into_iter().skip(written_lines).collect()))
    }

    fn append_lines(&self, lines: &[u8], written_lines: &mut usize) -> io::Result<()> {
        let mut file = open_for_append(&self.0)?;
        if ends_within_line(&mut file)? {
            file.write_all(b"\n")?;
        }
        let mut rest = lines;
        while !rest.is_empty() {
            let (written, unwritten) = rest.split_at(file.write(rest)?);
            if written.is_empty() {
                return Err(io::ErrorKind::WriteZero.into());
            }
            *written_lines += written.iter().filter(|byte| **byte == b'\n').count();
            rest = unwritten;
        }
        // A power failure loses no older batch.
        file.sync_data()
    }
}

fn open_for_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

/// Whether the last line has no end, because a full disk or a crash cut it.
fn ends_within_line(file: &mut File) -> io::Result<bool> {
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    Ok(last != *b"\n")
}

/// Adds up the tokens of each key in the lines of one day, and counts the lines that are not valid.
fn read_spent_tokens(
    mut reader: impl BufRead,
    day: u64,
) -> io::Result<(HashMap<String, u64>, u64)> {
    let (mut spent, mut unreadable_lines) = (HashMap::new(), 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok((spent, unreadable_lines));
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == LINE_BYTES_MAX {
            unreadable_lines += 1;
            reader.skip_until(b'\n')?;
            continue;
        }
        match serde_json::from_slice::<SpentLine<'_>>(&line) {
            Ok(usage) if usage.unix_s / DAY_S == day => {
                let tokens = usage
                    .prompt_tokens
                    .saturating_add(usage.completion_tokens)
                    .saturating_add(usage.estimated_tokens);
                let sum: &mut u64 = spent.entry(usage.key.to_owned()).or_default();
                *sum = sum.saturating_add(tokens);
            }
            Ok(_) => {}
            Err(_) => unreadable_lines += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use super::*;

    fn counts(prompt_tokens: u64) -> UsageCounts {
        UsageCounts {
            requests: 2,
            failed: 1,
            uncounted: 3,
            prompt_tokens,
            estimated_tokens: 1,
            ..Default::default()
        }
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("confide-usage-{name}-{}", std::process::id()))
    }

    #[test]
    fn what_was_written_today_is_read_back_and_the_rest_is_skipped() {
        let path = path("read-back");
        let _ = fs::remove_file(&path);
        let day = 20_000;
        let (file, spent) = UsageFile::open(&path, day * DAY_S).unwrap();
        assert!(spent.is_empty());
        let batch = |day, tokens| {
            BTreeMap::from([
                ((day, "a".into(), Some("m".into())), counts(tokens)),
                ((day, "a".into(), None), counts(0)),
                ((day, "b".into(), Some("m".into())), counts(5)),
            ])
        };
        // The counts of the evening are written after midnight.
        file.append(batch(day - 1, 1000), day * DAY_S + 30).unwrap();
        file.append(batch(day, 10), day * DAY_S).unwrap();
        // A crash cut the last line.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"unix_s\":17").unwrap();
        file.append(batch(day, 20), (day + 1) * DAY_S - 1).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(&[b'x'; 3000]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let wanted = "{\"unix_s\":1727999999,\"key\":\"a\",\"model\":null,\"requests\":2,\"failed\":1,\"uncounted\":3,\
                      \"prompt_tokens\":0,\"cached_tokens\":0,\"completion_tokens\":0,\"estimated_tokens\":1}";
        assert_eq!(text.lines().next(), Some(wanted));
        let spent = read_spent_tokens(text.as_bytes(), day).unwrap();
        assert_eq!(spent, (HashMap::from([("a".into(), 34), ("b".into(), 12)]), 2));
        let (_, again) = UsageFile::open(&path, day * DAY_S).unwrap();
        assert_eq!(again, spent.0);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn counts_that_cannot_be_written_are_returned() {
        let (file, _) = UsageFile::open(&path("lost"), 0).unwrap();
        fs::remove_file(&file.0).unwrap();
        let file = UsageFile(Path::new("/dev/full").into());
        let batch = BTreeMap::from([((0, Arc::from("a"), None), counts(1))]);
        let (_, rest) = file.append(batch.clone(), 0).unwrap_err();
        assert_eq!(rest, Vec::from_iter(batch));
    }
}

//! The access log: one line for each answered request, written by its own thread.
//!
//! A request never waits for the log: if the queue is full, the request's line is lost, and a later
//! line states the number of lost lines. A line contains no prompt, token or identifier: no query,
//! header field or body, and in place of the path the pattern of its route.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use http::{Method, StatusCode};

/// The largest number of lines that wait for the disk: 4 MiB, or half a second at 30,000 requests a
/// second, which is far more than one batch.
const QUEUED_MAX: usize = 16 * 1024;
/// The pause between two batches. Without it the writer would wake for each line, which costs more
/// than the line.
const BATCH_PAUSE: Duration = Duration::from_millis(20);
/// The largest number of bytes of a path; a longer one is cut. The longest route of the OpenAI API
/// has 40 bytes.
const PATH_BYTES_MAX: usize = 128;
/// The largest number of bytes of one segment of a path; a longer one is masked as an identifier.
const SEGMENT_BYTES_MAX: usize = 32;

/// Queues lines for the writing thread. It is cheap to clone; the log ends when all clones are
/// dropped.
#[derive(Clone, Debug)]
pub struct AccessLog {
    queue: SyncSender<AccessLogLine>,
    lost: Arc<AtomicU64>,
    clock: fn() -> u64,
}

/// The writing thread of an [`AccessLog`].
#[derive(Debug)]
pub struct AccessLogThread(JoinHandle<()>);

struct AccessLogLine {
    unix_s: u64,
    method: Method,
    path: String,
    status: StatusCode,
    head: Duration,
}

impl AccessLog {
    /// Starts a thread that writes to `out` and flushes it after each batch. `clock` returns Unix
    /// seconds.
    pub fn start(out: impl Write + Send + 'static, clock: fn() -> u64) -> (Self, AccessLogThread) {
        let (queue, lines) = sync_channel(QUEUED_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        let thread = std::thread::spawn(move || write_lines(out, &lines, &counted));
        (Self { queue, lost, clock }, AccessLogThread(thread))
    }

    /// Queues the line of one answered request by the `pattern` of its route; `head` is the time
    /// from the head of the request to that of its answer.
    pub(crate) fn record_answer(
        &self,
        method: &Method,
        pattern: &str,
        status: StatusCode,
        head: Duration,
    ) {
        let (method, path) = (method.clone(), masked_path(pattern));
        let line = AccessLogLine { unix_s: (self.clock)(), method, path, status, head };
        if self.queue.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl AccessLogThread {
    /// Waits until all lines are written. Every [`AccessLog`] must be dropped before.
    pub fn finish(self) {
        // If the thread panicked, nothing more can be written.
        let _ = self.0.join();
    }
}

/// Masks every segment of a pattern that is not a word by `*`. Words are lower-case letters, `-`, `_`,
/// `.` and a version such as `v1`.
fn masked_path(path: &str) -> String {
    let mut text = String::with_capacity(path.len().min(PATH_BYTES_MAX));
    for segment in path.split('/').skip(1) {
        let word = if is_loggable_segment(segment) { segment } else { "*" };
        if text.len() + 1 + word.len() > PATH_BYTES_MAX {
            text.push_str("/*");
            break;
        }
        text.push('/');
        text.push_str(word);
    }
    if text.is_empty() { "*".into() } else { text }
}

fn is_loggable_segment(segment: &str) -> bool {
    let letters = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b"-_.".contains(&b));
    let version = segment.strip_prefix('v').is_some_and(|number| {
        (1..=2).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit())
    });
    segment.len() <= SEGMENT_BYTES_MAX && (version || letters(segment))
}

fn write_lines(mut out: impl Write, lines: &Receiver<AccessLogLine>, lost: &AtomicU64) {
    let mut broken = false;
    while let Ok(first) = lines.recv() {
        let mut batch = String::new();
        append_line(&mut batch, &first);
        // All waiting lines are written at once, so that a request causes no write call of its own.
        lines.try_iter().take(QUEUED_MAX).for_each(|line| append_line(&mut batch, &line));
        let missed = lost.swap(0, Ordering::Relaxed);
        if missed > 0 {
            batch.push_str(&format!("{{\"unix_s\":{},\"lost_lines\":{missed}}}\n", first.unix_s));
        }
        let written = out.write_all(batch.as_bytes()).and_then(|()| out.flush());
        if let (Err(error), false) = (written, broken) {
            broken = true;
            tracing::warn!(%error, "the access log cannot be written");
        }
        std::thread::sleep(BATCH_PAUSE);
    }
}

/// The name of a known method, otherwise `*`: an unknown method could contain a secret.
fn method_name(method: &Method) -> &str {
    const KNOWN: [Method; 7] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::PATCH,
    ];
    if KNOWN.contains(method) { method.as_str() } else { "*" }
}

/// Appends a line. Its fields need no escapes: the method is a known one, and the path consists of
/// words (see [`is_loggable_segment`]).
fn append_line(batch: &mut String, line: &AccessLogLine) {
    let AccessLogLine { unix_s, method, path, status, head } = line;
    let (method, status, head_us) = (method_name(method), status.as_u16(), head.as_micros());
    batch.push_str(&format!(
        "{{\"unix_s\":{unix_s},\"method\":\"{method}\",\"path\":\"{path}\",\"status\":{status},\
         \"head_us\":{head_us}}}\n"
    ));
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc::channel};

    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn text(kept: &LogBuffer) -> String {
        String::from_utf8(kept.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_request_is_one_line_of_json_without_query_or_identifier() {
        let kept = LogBuffer::default();
        let (log, end) = AccessLog::start(kept.clone(), || 7);
        let head = Duration::from_micros(312);
        log.record_answer(&Method::GET, "/v1/files/file-8Ab3", StatusCode::OK, head);
        drop(log);
        end.finish();
        let line: serde_json::Value = serde_json::from_str(text(&kept).trim_end()).unwrap();
        assert_eq!(line["path"], "/v1/files/*");
        assert_eq!((&line["status"], &line["head_us"]), (&200.into(), &312.into()));
        assert_eq!((&line["unix_s"], &line["method"]), (&7.into(), &"GET".into()));
    }

    #[test]
    fn only_words_of_a_path_are_shown() {
        for (path, wanted) in [
            ("/v1/chat/completions", "/v1/chat/completions"),
            ("/.well-known/confide", "/.well-known/confide"),
            ("/", "/"),
            ("*", "*"),
            ("/v1/models/My%20secret", "/v1/models/*"),
            ("/sk-0123456789", "/*"),
            ("/v123/a\"b", "/*/*"),
            ("/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "/*"),
        ] {
            assert_eq!(masked_path(path), wanted, "{path}");
        }
        assert!(masked_path(&"/a".repeat(500)).len() <= PATH_BYTES_MAX + 2);
    }

    /// Blocks at its first write until told to go on.
    struct Stuck(std::sync::mpsc::Receiver<()>, LogBuffer);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            self.1.write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_hangs_costs_lines_and_not_requests() {
        let (go_on, wait) = channel();
        let kept = LogBuffer::default();
        let (log, end) = AccessLog::start(Stuck(wait, kept.clone()), || 0);
        // One batch in the writer's hands and a full queue behind it; the rest has no place.
        let answered = 3 * QUEUED_MAX;
        for _ in 0..answered {
            log.record_answer(&Method::GET, "/", StatusCode::OK, Duration::ZERO);
        }
        drop((log, go_on));
        end.finish();
        let text = text(&kept);
        let written = text.lines().filter(|line| line.contains("head_us")).count();
        let lost_of = |line: &str| -> Option<usize> {
            line.split_once("\"lost_lines\":")?.1.strip_suffix('}')?.parse().ok()
        };
        let lost: usize = text.lines().filter_map(lost_of).sum();
        assert!(lost > 0 && written >= QUEUED_MAX, "{written} written, {lost} lost");
        assert_eq!(written + lost, answered);
    }
}

//! What `ab` prints, read back.

/// A report longer than this is none: `ab` prints forty lines.
const REPORT_BYTES_MAX: usize = 64 * 1024;

/// One run of `ab`.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// `SSL/TLS Protocol`, as printed: version, suite, key bits, cipher bits.
    pub protocol: Option<String>,
    /// `Server Temp Key`: the group.
    pub group: Option<String>,
    /// `-c`.
    pub concurrency: u64,
    /// Requests that were answered.
    pub complete: u64,
    /// Requests that `ab` calls failed, for whatever reason.
    pub failed: u64,
    /// Of these, answers of another length than the first one's.
    pub failed_by_length: u64,
    /// Answers that are not of status 2xx.
    pub not_2xx: u64,
    /// Completed requests / time taken.
    pub rate_per_s: f64,
    /// `Time per request`, the first of the two: concurrency / rate.
    pub mean_ms: f64,
    /// The slowest connect, TLS handshake included.
    pub connect_most_ms: f64,
    /// 99 % of requests took at most this, in whole milliseconds.
    pub p99_ms: f64,
}

/// Why a text is no report of `ab`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// Longer than any report.
    #[error("wanted at most {REPORT_BYTES_MAX} bytes of ab's output, got {got}")]
    TooLong {
        /// Bytes.
        got: usize,
    },
    /// A line that every report has is not there.
    #[error("ab's output has no line {name}")]
    Missing {
        /// How the line begins.
        name: &'static str,
    },
    /// A line says something that is no number.
    #[error("ab's line {name}: wanted a number, got {got}")]
    NoNumber {
        /// How the line begins.
        name: &'static str,
        /// What stands there.
        got: String,
    },
}

impl Report {
    /// Reads the standard output of `ab` 2.3.
    ///
    /// # Errors
    /// When it is too long, or a line that is read is missing or holds no number.
    pub fn parse(text: &str) -> Result<Self, ReportError> {
        if text.len() > REPORT_BYTES_MAX {
            return Err(ReportError::TooLong { got: text.len() });
        }
        let reasons = text.lines().find(|line| line.trim_start().starts_with("(Connect:"));
        let failed_by_length = reasons
            .and_then(|line| line.split_once("Length:")?.1.split([',', ')']).next())
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(0);
        Ok(Self {
            protocol: after(text, "SSL/TLS Protocol:").map(str::to_owned),
            group: after(text, "Server Temp Key:").map(str::to_owned),
            concurrency: count(text, "Concurrency Level:")?,
            complete: count(text, "Complete requests:")?,
            failed: count(text, "Failed requests:")?,
            failed_by_length,
            not_2xx: match after(text, "Non-2xx responses:") {
                None => 0,
                Some(_) => count(text, "Non-2xx responses:")?,
            },
            rate_per_s: number(text, "Requests per second:")?,
            mean_ms: number(text, "Time per request:")?,
            connect_most_ms: last(text, "Connect:")?,
            p99_ms: number(text, "  99%")?,
        })
    }

    /// Answers that are wrong whoever measures them. One of another length is not: `ab` counts an
    /// answer whose end was not announced as well.
    pub fn bad_answers(&self) -> u64 {
        self.not_2xx.saturating_add(self.failed.saturating_sub(self.failed_by_length))
    }
}

/// What follows `name` at the start of a line.
fn after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn count(text: &str, name: &'static str) -> Result<u64, ReportError> {
    let field = after(text, name).ok_or(ReportError::Missing { name })?;
    field.parse().map_err(|_| ReportError::NoNumber { name, got: cut(field) })
}

fn number(text: &str, name: &'static str) -> Result<f64, ReportError> {
    let field = after(text, name).ok_or(ReportError::Missing { name })?;
    finite(field.split_whitespace().next().unwrap_or_default(), name)
}

/// The last column of a line of connection times: `max`.
fn last(text: &str, name: &'static str) -> Result<f64, ReportError> {
    let field = after(text, name).ok_or(ReportError::Missing { name })?;
    finite(field.split_whitespace().next_back().unwrap_or_default(), name)
}

fn finite(field: &str, name: &'static str) -> Result<f64, ReportError> {
    let read = field.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    read.ok_or_else(|| ReportError::NoNumber { name, got: cut(field) })
}

fn cut(field: &str) -> String {
    field.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTTP: &str = include_str!("../../tests/recorded/ab-http.txt");
    const TLS: &str = include_str!("../../tests/recorded/ab-tls.txt");
    const NOT_2XX: &str = include_str!("../../tests/recorded/ab-not-2xx.txt");

    #[test]
    fn a_report_over_plain_http_is_read() {
        let report = Report::parse(HTTP).unwrap();
        assert_eq!((report.concurrency, report.complete, report.failed), (20, 300, 0));
        assert_eq!((report.rate_per_s, report.mean_ms), (615.98, 32.468));
        assert_eq!((report.protocol, report.group), (None, None));
    }

    #[test]
    fn a_report_over_tls_names_version_and_group() {
        let report = Report::parse(TLS).unwrap();
        let protocol = report.protocol.clone().unwrap();
        assert!(protocol.starts_with("TLSv1.3,"), "{protocol}");
        assert_eq!(report.group.as_deref(), Some("X25519 253 bits"));
        assert_eq!((report.connect_most_ms, report.p99_ms), (95.0, 98.0));
        // The server of this record announces no length to ab: nothing was wrong with its answers.
        assert_eq!((report.failed, report.failed_by_length, report.bad_answers()), (300, 300, 0));
    }

    #[test]
    fn an_answer_with_another_status_is_a_bad_one() {
        let report = Report::parse(NOT_2XX).unwrap();
        assert_eq!((report.failed, report.not_2xx, report.bad_answers()), (0, 100, 100));
    }

    #[test]
    fn the_mean_is_the_concurrency_over_the_rate_and_nothing_else() {
        for text in [HTTP, TLS, NOT_2XX] {
            let report = Report::parse(text).unwrap();
            let law = report.concurrency as f64 / report.rate_per_s * 1e3;
            assert!((report.mean_ms / law - 1.0).abs() < 1e-3, "{report:?}");
        }
    }

    #[test]
    fn a_text_that_is_no_report_is_a_typed_error() {
        assert_eq!(Report::parse(""), Err(ReportError::Missing { name: "Concurrency Level:" }));
        let cut = &HTTP[..HTTP.len() / 2];
        assert!(matches!(Report::parse(cut), Err(ReportError::Missing { .. })));
        let words = HTTP.replace("615.98", "many");
        assert!(matches!(Report::parse(&words), Err(ReportError::NoNumber { .. })));
        let long = "x".repeat(REPORT_BYTES_MAX + 1);
        assert!(matches!(Report::parse(&long), Err(ReportError::TooLong { .. })));
    }
}

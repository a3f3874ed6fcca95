//! The event log as a file of JSON lines: a head, one line per request, and the client's own figures.

use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    bound::ClientFigures,
    definitions::GoodputLimits,
    event::{Attestation, EventError, REQUESTS_MAX, RequestRecord},
};

/// The longest line, in bytes: an answer of a million tokens.
const LINE_BYTES_MAX: usize = 32 << 20;
/// The version of the format.
const VERSION: u32 = 1;

/// The first line of a log: what was run. The instants of all lines count from the run's origin.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct LogHead {
    /// The version of the format: 1.
    pub events: u32,
    /// The kind of arrivals: `poisson`, `constant`, `trace` or `closed`.
    pub arrivals: String,
    /// The seed of arrivals, prompts and lengths.
    pub seed: u64,
    /// The number of requests of the plan.
    pub requests: u64,
    /// The arrivals per second that the plan offers; absent in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_per_s: Option<f64>,
    /// The number of users of a closed loop; absent in an open one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<u32>,
    /// The time within which requests start, in seconds; absent where only their number is planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// The address to which requests went, without credentials.
    pub target: String,
    /// How connections are made: plain TCP, TLS, attested.
    pub transport: String,
    /// The use of connections: `new` for each request, or `kept`.
    pub sessions: String,
    /// The limits of the goodput.
    #[serde(default)]
    pub limits: GoodputLimits,
    /// Further facts of the run, from the program that ran it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub more: Map<String, Value>,
}

/// Writes a log. Every line is whole when the call returns, so that a run that is cut leaves a
/// log that can be read.
pub struct LogWriter<W: Write> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> LogWriter<W> {
    /// Writes the head.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, head: &LogHead) -> io::Result<Self> {
        let mut writer = Self { out, line: Vec::new() };
        writer.write_line(&LogLine {
            head: Some(LogHead { events: VERSION, ..head.clone() }),
            client: None,
        })?;
        Ok(writer)
    }

    /// Writes one request; instants are rounded to a tenth of a microsecond.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_event(&mut self, event: &RequestRecord) -> io::Result<()> {
        self.write_line(&round_instants(event))
    }

    /// Writes the client's own figures, which are the last line, and flushes.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_client(&mut self, client: &ClientFigures) -> io::Result<()> {
        self.write_line(&LogLine { head: None, client: Some(client.clone()) })?;
        self.out.flush()
    }

    fn write_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, value)?;
        self.line.push(b'\n');
        self.out.write_all(&self.line)
    }
}

/// A log that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoggedRun {
    /// The head; absent in a log of events alone.
    pub head: Option<LogHead>,
    /// The events in the order of the lines.
    pub events: Vec<RequestRecord>,
    /// The client's own figures; absent if the run was killed before its end.
    pub client: Option<ClientFigures>,
    /// Whether the last line was cut in the middle; it is then left out.
    pub is_cut: bool,
}

/// Reads a log that [`LogWriter`] wrote, or any file of events.
///
/// # Errors
/// [`EventError`] if a line other than a cut last one cannot be read.
pub fn read_log(mut input: impl BufRead) -> Result<LoggedRun, EventError> {
    let mut logged = LoggedRun::default();
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        number += 1;
        let wrong = |message: String| EventError::Line { line: number, message };
        let mut bounded = Read::take(&mut input, LINE_BYTES_MAX as u64 + 1);
        let length = bounded.read_until(b'\n', &mut line).map_err(|e| wrong(e.to_string()))?;
        if length == 0 {
            return Ok(logged);
        }
        if length > LINE_BYTES_MAX {
            return Err(wrong(format!("wanted at most {LINE_BYTES_MAX} bytes")));
        }
        let whole = line.last() == Some(&b'\n');
        match parse_line(&mut logged, line.trim_ascii()) {
            Ok(()) => {}
            Err(_) if !whole => {
                logged.is_cut = true;
                return Ok(logged);
            }
            Err(error) => return Err(wrong(error)),
        }
    }
}

fn parse_line(logged: &mut LoggedRun, line: &[u8]) -> Result<(), String> {
    if line.is_empty() {
        return Ok(());
    }
    if line.starts_with(b"{\"head\"") || line.starts_with(b"{\"client\"") {
        let line: LogLine = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        if let Some(head) = line.head {
            if head.events != VERSION {
                return Err(format!("version: wanted {VERSION}, got {}", head.events));
            }
            logged.head = Some(head);
        }
        logged.client = line.client.or(logged.client.take());
        return Ok(());
    }
    if logged.events.len() == REQUESTS_MAX {
        return Err(format!("wanted at most {REQUESTS_MAX} events"));
    }
    logged.events.push(serde_json::from_slice(line).map_err(|error| error.to_string())?);
    Ok(())
}

/// A line that holds the head or the client's figures.
#[derive(Deserialize, Serialize)]
struct LogLine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<LogHead>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<ClientFigures>,
}

/// Rounds instants to a tenth of a microsecond: no clock knows seventeen digits.
fn round_instants(event: &RequestRecord) -> RequestRecord {
    let short = |at: f64| (at * 1e7).round() / 1e7;
    let some = |at: Option<f64>| at.map(short);
    RequestRecord {
        scheduled_s: short(event.scheduled_s),
        dispatched_s: short(event.dispatched_s),
        resolved_s: some(event.resolved_s),
        connected_s: some(event.connected_s),
        handshake_s: some(event.handshake_s),
        attested_s: some(event.attested_s),
        attestation: event.attestation.map(|parts| Attestation {
            quote_s: short(parts.quote_s),
            collateral_s: short(parts.collateral_s),
            appraisal_s: short(parts.appraisal_s),
        }),
        sent_s: some(event.sent_s),
        first_byte_s: some(event.first_byte_s),
        chunks_s: event.chunks_s.iter().copied().map(short).collect(),
        last_s: some(event.last_s),
        ended_s: some(event.ended_s),
        verified_s: some(event.verified_s),
        server_queue_s: some(event.server_queue_s),
        ..event.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Summary, definitions::tests::events_of_known_truth};

    fn head() -> LogHead {
        LogHead {
            arrivals: "poisson".into(),
            seed: 7,
            requests: 3,
            events: 1,
            ..LogHead::default()
        }
    }

    fn write_log(events: &[RequestRecord]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = LogWriter::new(&mut out, &head()).unwrap();
        events.iter().for_each(|event| writer.write_event(event).unwrap());
        writer.write_client(&ClientFigures { threads: 2, ..ClientFigures::default() }).unwrap();
        out
    }

    #[test]
    fn a_log_is_read_as_it_was_written_and_gives_the_same_figures() {
        let events = events_of_known_truth(30, 11);
        let logged = read_log(&write_log(&events)[..]).unwrap();
        assert_eq!(logged.head, Some(head()));
        assert_eq!(logged.client.as_ref().map(|client| client.threads), Some(2));
        assert!(!logged.is_cut);
        let [before, after] = [&events, &logged.events].map(|events| {
            Summary::from_events(events, GoodputLimits::default()).ttft.mean_ms.unwrap()
        });
        assert!((before - after).abs() < 1e-4);
    }

    #[test]
    fn a_log_that_was_cut_anywhere_is_read_up_to_there() {
        let whole = write_log(&events_of_known_truth(3, 2));
        for length in 0..whole.len() {
            let logged = read_log(&whole[..length]).unwrap();
            let lines = whole[..length].iter().filter(|byte| **byte == b'\n').count();
            assert!(logged.events.len() + 1 >= lines.min(4), "{length}");
        }
    }

    #[test]
    fn a_line_in_the_middle_that_is_no_event_is_named() {
        let mut bytes = write_log(&events_of_known_truth(1, 1));
        bytes.extend(b"{\"index\":\"x\"}\n");
        assert!(matches!(read_log(&bytes[..]), Err(EventError::Line { line: 4, .. })));
        let version = b"{\"head\":{\"events\":2}}\n";
        assert!(matches!(read_log(&version[..]), Err(EventError::Line { line: 1, .. })));
    }
}

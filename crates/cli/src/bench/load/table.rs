//! The report that `confide bench load` prints.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use confide_load::{ClientBound, ClientFigures, LatencyDistribution, LogHead, Summary};
use serde_json::json;

use super::ceiling::format_thousands;
use crate::error::CliError;

/// The most failures that are named; the others are in the event log.
const ERRORS_MAX: usize = 5;

/// The figures of a load, and the run that gave them.
pub(super) struct LoadReport<'a> {
    pub(super) head: &'a LogHead,
    pub(super) summary: &'a Summary,
    pub(super) client: &'a ClientFigures,
    pub(super) bounds: &'a [ClientBound],
    pub(super) errors: BTreeMap<String, u64>,
    /// The largest share of failed requests that is accepted, in percent.
    pub(super) fail_above: f64,
    pub(super) events: Option<&'a Path>,
}

impl LoadReport<'_> {
    /// The share of requests that failed, in percent; those that the end of the run cut are not counted.
    fn failed_percent(&self) -> f64 {
        let counted = self.summary.requests.saturating_sub(self.summary.cut);
        if counted == 0 { 0.0 } else { self.summary.failed as f64 / counted as f64 * 1e2 }
    }

    /// What is counted in answers: tokens if the server named a plausible number of them each time.
    fn counted_unit(&self) -> &'static str {
        if self.summary.counted_by_chunks > 0 { "chunk" } else { "token" }
    }

    /// Whether more requests failed than are accepted.
    pub(super) fn has_too_many_failures(&self) -> bool {
        self.failed_percent() > self.fail_above
    }

    pub(super) fn to_json(&self) -> Result<String, CliError> {
        let value = json!({
            "run": self.head,
            "summary": self.summary,
            "client": self.client,
            "client_bound": ClientBound::describe_all(self.bounds),
            "bounds": self.bounds,
            "errors": self.errors,
            "failed_percent": self.failed_percent(),
            "fail_above_percent": self.fail_above,
            "events": self.events,
        });
        let text = serde_json::to_string_pretty(&value).map_err(CliError::new)?;
        Ok(text + "\n")
    }

    pub(super) fn render_table(&self) -> String {
        let mut out = String::new();
        self.write_heading(&mut out);
        self.write_latencies(&mut out);
        self.write_rates(&mut out);
        self.write_client_load(&mut out);
        out
    }

    fn write_heading(&self, out: &mut String) {
        let (head, summary) = (self.head, self.summary);
        let load = match (head.offered_per_s, head.users) {
            (_, Some(users)) => {
                format!("closed loop of {users} users (for comparison; not an open load)")
            }
            (Some(rate), None) => {
                format!("{} arrivals, {} /s offered", head.arrivals, format_figure(rate))
            }
            (None, None) => format!("{} arrivals", head.arrivals),
        };
        let (target, transport, sessions) = (&head.target, &head.transport, &head.sessions);
        write_line(out, "target", &format!("{target}, {transport}, {sessions} sessions"));
        write_line(out, "load", &format!("{load}, seed {}", head.seed));
        let mut requests = format!(
            "{}: {} complete, {} failed, {} cut",
            summary.requests, summary.complete, summary.failed, summary.cut
        );
        if summary.other_length > 0 {
            let _ = write!(requests, "; {} not of the requested length", summary.other_length);
        }
        if summary.repeated > 0 {
            let _ = write!(
                requests,
                "; {} sent again because an idle connection had been closed",
                summary.repeated
            );
        }
        write_line(out, "requests", &requests);
        if summary.counted_by_chunks > 0 {
            let text = format!(
                "counted in {} of {} answers: the server reported no plausible number of tokens",
                summary.counted_by_chunks, summary.complete
            );
            write_line(out, "chunks", &text);
        }
        if summary.counted_by_tokenizer > 0 {
            let text = format!(
                "counted by the tokenizer in {} of {} answers: the server reported no plausible number",
                summary.counted_by_tokenizer, summary.complete
            );
            write_line(out, "tokens", &text);
        }
        if summary.implausible_usage > 0 {
            let text = format!(
                "{} answers: more tokens than requested, or more tokens than bytes of text",
                summary.implausible_usage
            );
            write_line(out, "usage", &text);
        }
        if self.has_too_many_failures() {
            let (share, most) = (format_figure(self.failed_percent()), self.fail_above);
            write_line(out, "failed", &format!("{share} % of the requests, more than {most} %"));
        }
        for (error, count) in self.errors.iter().take(ERRORS_MAX) {
            write_line(out, "", &format!("{count} × {error}"));
        }
        if self.errors.len() > ERRORS_MAX {
            let others = self.errors.len() - ERRORS_MAX;
            write_line(out, "", &format!("and {others} other kinds of failure, in the event log"));
        }
    }

    fn write_latencies(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "\n{:<26}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}  definition",
            "milliseconds", "mean", "p50", "p90", "p95", "p99", "longest", "n"
        );
        let (summary, unit) = (self.summary, self.counted_unit());
        for (name, spread) in [
            ("time to first token", &summary.ttft),
            ("gap between chunks", &summary.itl),
            (&format!("time per output {unit}"), &summary.tpot),
            (&format!("whole time per {unit}"), &summary.ntpot),
            ("whole answer", &summary.e2e),
            ("connect", &summary.connect),
            ("server's own queue", &summary.server_queue),
            ("dispatch delay", &summary.dispatch_delay),
            ("loop delay", &self.client.loop_delay),
        ] {
            write_row(out, name, spread, &self.client.unresolved);
        }
        let _ = writeln!(out, "a percentile is printed only if at least ten samples lie beyond it");
        let censored = summary.e2e.censored;
        if censored > 0 {
            let _ = writeln!(out, "≥ marks a lower bound: {censored} requests hit their deadline");
        }
        if !self.client.unresolved.is_empty() {
            let _ =
                writeln!(out, "≈ may be off by more than 2 %: the client's own delays moved it");
        }
        out.push('\n');
    }

    fn write_rates(&self, out: &mut String) {
        let summary = self.summary;
        for (name, value, unit, id) in [
            ("answers", summary.qps, "/s", "llm.qps"),
            (&*format!("output {}s", self.counted_unit()), summary.tps, "/s", "llm.tps"),
            ("prompt tokens", summary.tps_in, "/s", "llm.tps-in"),
            ("good answers", summary.goodput_per_s, "/s", "llm.goodput"),
            ("good of all", summary.good_ratio.map(|r| r * 1e2), "%", "llm.goodput"),
            ("streams, mean", summary.streams_mean, "", "llm.streams"),
        ] {
            let Some(value) = value else { continue };
            let shown = format!("{} {unit}", format_figure(value));
            let _ = writeln!(out, "{name:<26}{shown:>10}   {id}");
        }
        let peak = summary.streams_peak;
        let _ = writeln!(out, "{:<26}{peak:>10}   llm.streams", "streams, most at once");
    }

    fn write_client_load(&self, out: &mut String) {
        let client = self.client;
        let (threads, busiest) = (client.threads, client.busiest_ratio * 1e2);
        let cpu = format!(
            "{threads} thread(s), {:.2} CPU s in {:.2} s, the busiest {busiest:.0} % busy",
            client.cpu_s, client.wall_s
        );
        out.push('\n');
        write_line(out, "client", &cpu);
        if let (Some(requests), Some(tokens), Some(ceiling)) =
            (client.requests_per_cpu_s, client.tokens_per_cpu_s, client.ceiling)
        {
            let [requests, tokens] = [requests, tokens].map(format_thousands);
            let text = format!("{requests} requests and {tokens} separate tokens per CPU s");
            write_line(out, "", &text);
            let [requests, tokens] =
                [ceiling.requests_per_cpu_s, ceiling.tokens_per_cpu_s].map(format_thousands);
            let kind = if ceiling.is_measured { "measured" } else { "stated" };
            let share = client.ceiling_ratio * 1e2;
            let text = format!(
                "{share:.1} % of its {kind} ceiling of {requests} requests or {tokens} tokens per CPU s"
            );
            write_line(out, "", &text);
        }
        match ClientBound::describe_all(self.bounds) {
            Some(reason) => write_line(out, "void", &reason),
            None => write_line(out, "", "not client-bound"),
        }
        if let Some(path) = self.events {
            write_line(out, "events", &path.display().to_string());
        }
    }
}

fn write_line(out: &mut String, name: &str, text: &str) {
    let _ = writeln!(out, "{name:<10}{text}");
}

/// Writes one distribution; `unresolved` names the percentiles that get a mark for it.
fn write_row(out: &mut String, name: &str, spread: &LatencyDistribution, unresolved: &[String]) {
    if spread.count == 0 {
        return;
    }
    let _ = write!(out, "{name:<26}");
    // The names in the summary are those of the definitions: `llm.ttft` is `ttft`.
    let quantity = spread.id.strip_prefix("llm.").unwrap_or(&spread.id);
    for (percentile, value) in [
        ("mean_ms", spread.mean_ms),
        ("p50_ms", spread.p50_ms),
        ("p90_ms", spread.p90_ms),
        ("p95_ms", spread.p95_ms),
        ("p99_ms", spread.p99_ms),
        ("max_ms", spread.max_ms),
    ] {
        let Some(value) = value else {
            let _ = write!(out, "{:>10}", "-");
            continue;
        };
        let is_bound = match percentile {
            "mean_ms" => spread.censored > 0,
            _ => spread.is_lower_bound(value),
        };
        let is_unresolved = unresolved.contains(&format!("{quantity}.{percentile}"));
        let mark = match () {
            () if is_bound => "≥",
            () if is_unresolved => "≈",
            () => "",
        };
        let shown = mark.to_owned() + &format_figure(value);
        let _ = write!(out, "{shown:>10}");
    }
    let _ = writeln!(out, "{:>9}  {}", spread.count, spread.id);
}

/// Formats a figure with four significant digits, at most three of them after the point.
fn format_figure(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.3}"),
        small if small < 100.0 => format!("{value:.2}"),
        small if small < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_that_the_client_moved_is_marked_and_a_lower_bound_first() {
        let spread = LatencyDistribution {
            id: "llm.ttft".into(),
            count: 300,
            mean_ms: Some(41.0),
            p50_ms: Some(40.0),
            p95_ms: Some(70.0),
            max_ms: Some(900.0),
            censored: 1,
            at_least_from_ms: Some(900.0),
            ..LatencyDistribution::default()
        };
        let mut out = String::new();
        write_row(&mut out, "time to first token", &spread, &["ttft.p95_ms".into()]);
        let words: Vec<&str> = out.split_whitespace().skip(4).collect();
        assert_eq!(words, ["≥41.00", "40.00", "-", "≈70.00", "-", "≥900.0", "300", "llm.ttft"]);
    }
}

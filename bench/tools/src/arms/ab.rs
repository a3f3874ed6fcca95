//! ApacheBench as an arm: the commands of report 000, section III, as they stand there.
//!
//! `ab` is one thread and a closed loop: its mean latency is its concurrency divided by its rate
//! (Little's law), whatever the server does, so it says nothing about a service time. The arm
//! therefore gives that ratio next to the figures, and the server's CPU time next to the rate.

use confide_arm_line::{Hello, Outcome, Report, Run, ServerProcesses, serve_runs};
use confide_tools::ToolOutput;
use serde_json::json;

use super::tool::ToolArm;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The URL to request
    #[arg(long)]
    url: String,
    /// A process of the server's side; may be given several times
    #[arg(long = "server-pid", value_name = "PID")]
    server_pids: Vec<u32>,
}

/// Requests from which a p99 is given: ten of them at least lie beyond it.
const P99_REQUESTS_MIN: f64 = 1000.0;
/// `-n` in the commands of report 000.
const REPORTED_N: u64 = 5000;

pub(crate) fn run(args: &Args) -> Outcome {
    let server = ServerProcesses::new(&args.server_pids)?;
    let arm = ToolArm::new("ab", 1)?.with_setting("url", &args.url);
    let note = format!(
        "closed loop: mean latency is concurrency / rate, not a service time; a new \
         connection for each request; all processes of ab share one CPU: {}",
        server.describe_pinning()
    );
    let hello = arm.hello()?;
    let hello = Hello { version: short_version(&hello.version), note: Some(note), ..hello };
    serve_runs(&hello, |run| measure(&arm, &server, run))
}

/// `ab 2.3`, from the line that `ab -V` prints first.
fn short_version(line: &str) -> String {
    let version = line.split_once("Version ").map_or("unknown", |(_, rest)| rest);
    format!("ab {}", version.split(' ').next().unwrap_or("unknown"))
}

fn measure(arm: &ToolArm, server: &ServerProcesses, run: &Run) -> Outcome<Report> {
    let job = arm.prepare_run(run)?;
    let (c, n) = (job.integer_param("c")?, job.integer_param("n")?);
    if c > n {
        return Err(format!("param c: wanted at most n ({n}), as ab does, got {c}").into());
    }
    let arm = arm.clone().with_copies(usize::try_from(job.integer_param("processes")?)?);
    server.pin_threads().map_err(|error| format!("cannot pin the server: {error}"))?;
    let before = server.cpu_s();
    let (mut report, readings) = arm.measure(&job)?;
    let server_s = server.cpu_s().zip(before).map(|(after, before)| after - before);
    fill_report(&mut report, &readings, server_s);
    report.marks.push("closed loop: mean latency = concurrency / rate".to_owned());
    if n != REPORTED_N {
        report.marks.push(format!("-n {n} instead of the seed's {REPORTED_N}"));
    }
    Ok(report)
}

fn fill_report(report: &mut Report, readings: &[ToolOutput], server_s: Option<f64>) {
    let sum = |name: &str| readings.iter().map(|reading| reading.value(name)).sum::<f64>();
    let requests = sum("complete");
    let bad = readings.iter().map(count_bad_answers).sum::<f64>();
    report.answer = json!({ "requests": requests as u64, "bad_answers": bad as u64 });
    report.set("failed_ratio", sum("failed") / requests.max(1.0));
    if let Some(server_s) = server_s.filter(|server_s| *server_s > 0.0) {
        report.set("core_rate_per_s", requests / server_s);
        report.set("server_cpu_ratio", server_s / report.wall_s);
    }
    report.note = readings.first().and_then(describe_tls);
    let [only] = readings else { return };
    let mean_ms = only.value("mean_ms");
    let law = mean_ms / 1e3 * only.figures["rate_per_s"] / only.value("concurrency");
    report.set("closed_mean_ms", mean_ms);
    report.set("littles_law_ratio", law);
    report.set("connect_most_ms", only.value("connect_most_ms"));
    if requests >= P99_REQUESTS_MIN {
        report.set("closed_p99_ms", only.value("p99_ms"));
    }
}

/// The note on TLS, where the report names it: `ab` 2.3 keeps no session, so that each connection
/// has a full handshake.
fn describe_tls(reading: &ToolOutput) -> Option<String> {
    let (protocol, group) = (reading.texts.get("protocol")?, reading.texts.get("group")?);
    Some(format!("{protocol}, {group}, full handshakes; closed loop, one CPU for all of ab"))
}

/// Answers that are wrong for every client. One of another length is not: `ab` counts an answer
/// whose end was not announced as well.
fn count_bad_answers(reading: &ToolOutput) -> f64 {
    let failed = reading.value("failed") - reading.value("failed_by_length");
    reading.value("not_2xx") + failed.max(0.0)
}

#[cfg(test)]
mod tests {
    use confide_tools::{WorkShape, read_output, tool_table};

    use super::*;

    const HTTP: &str = include_str!("../../recorded/ab-http.txt");
    const TLS: &str = include_str!("../../recorded/ab-tls.txt");
    const NOT_2XX: &str = include_str!("../../recorded/ab-not-2xx.txt");

    fn report_of(text: &str) -> Report {
        let reading =
            read_output(&tool_table()["ab"], &WorkShape::default(), 1, text).expect("recorded");
        let mut report = Report { wall_s: 1.0, ..Report::default() };
        fill_report(&mut report, &[reading], Some(0.5));
        report
    }

    #[test]
    fn the_version_is_the_program_and_its_number() {
        let line = "This is ApacheBench, Version 2.3 <$Revision: 1913912 $>";
        assert_eq!(short_version(line), "ab 2.3");
        assert_eq!(short_version("-"), "ab unknown");
    }

    #[test]
    fn requests_are_counted_by_what_the_server_spent_on_them() {
        let report = report_of(HTTP);
        assert_eq!(report.answer, json!({ "requests": 300, "bad_answers": 0 }));
        assert_eq!(report.metrics["core_rate_per_s"], 600.0);
        assert!(!report.metrics.contains_key("closed_p99_ms"));
    }

    #[test]
    fn a_report_over_tls_names_version_and_group() {
        assert_eq!(report_of(HTTP).note, None);
        let note = report_of(TLS).note.expect("TLS");
        assert!(note.starts_with("TLSv1.3,") && note.contains("X25519 253 bits"), "{note}");
    }

    #[test]
    fn an_answer_of_another_length_is_no_bad_one_and_one_with_another_status_is() {
        assert_eq!(report_of(TLS).answer["bad_answers"], 0);
        assert_eq!(report_of(TLS).metrics["failed_ratio"], 1.0);
        assert_eq!(report_of(NOT_2XX).answer["bad_answers"], 100);
    }

    #[test]
    fn the_mean_is_the_concurrency_over_the_rate_and_nothing_else() {
        for text in [HTTP, TLS, NOT_2XX] {
            let law = report_of(text).metrics["littles_law_ratio"].as_f64().expect("a ratio");
            assert!((law - 1.0).abs() < 1e-3, "{law}");
        }
    }
}

//! ApacheBench as an arm: the commands of report 000, section III, as they stand there.
//!
//! `ab` is one thread and a closed loop: its mean latency is its concurrency divided by its rate
//! (Little's law), whatever the server does, so it tells nothing of a service time. The arm
//! therefore gives that ratio beside the figures, and the server's CPU time beside the rate.

pub mod report;

use std::{
    process::{Child, Command, Stdio},
    time::Instant,
};

use confide_arm_line::{Hello, Report as Line, Run, ServerSide, speak};
use serde_json::json;

use self::report::Report;

/// `confide-tool ab`.
#[derive(clap::Args)]
pub struct Args {
    /// What is asked for
    #[arg(long)]
    url: String,
    /// A process of the server's side; may be given several times
    #[arg(long = "server-pid", value_name = "PID")]
    server_pids: Vec<u32>,
}

#[derive(serde::Serialize)]
struct Cold {
    #[serde(flatten)]
    hello: Hello,
    warming: bool,
}

/// Processes at once; the seed's script starts 51.
const PROCESSES_MAX: u64 = 64;
/// `ab` itself takes at most 20,000 connections and a million requests here.
const CONCURRENCY_MAX: u64 = 20_000;
const REQUESTS_MAX: u64 = 1_000_000;
/// A p99 rests on the slowest hundredth: ten requests of it at least.
const P99_REQUESTS_MIN: u64 = 1000;

/// Speaks the line protocol until the harness ends it.
///
/// # Errors
/// A text for the arm's log: no `ab`, or standard output is closed.
pub fn run(args: &Args) -> Result<(), String> {
    let server = ServerSide::new(&args.server_pids).map_err(|error| error.to_string())?;
    let hello = Cold {
        // Every run starts processes of its own: there is nothing to warm.
        warming: false,
        hello: Hello {
            arm: format!("ab, {}", args.url),
            version: version()?,
            simulated: false,
            guarantee: None,
            threads: 1,
            note: Some(format!(
                "closed loop: mean latency is concurrency / rate and holds no service time; a new \
             connection for each request; all processes of ab share one CPU: {}",
                server.describe()
            )),
        },
    };
    speak(&hello, |order| measure(args, &server, order)).map_err(|error| error.to_string())
}

fn version() -> Result<String, String> {
    let out = Command::new("ab").arg("-V").output().map_err(|error| {
        format!("cannot start ab: {error}; hint: apt-get install apache2-utils")
    })?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let version = text.split_once("Version ").map_or("unknown", |(_, rest)| rest);
    Ok(format!("ab {}", version.split(' ').next().unwrap_or("unknown")))
}

fn measure(args: &Args, server: &ServerSide, order: &Run) -> Result<Line, String> {
    order.knows_only(&["c", "n", "processes"])?;
    let within = |name: &str, default, max| match order.number(name, default)? {
        0 => Err(format!("param {name}: wanted at least 1")),
        more if more > max => Err(format!("param {name}: wanted at most {max}, got {more}")),
        number => Ok(number),
    };
    let processes = within("processes", 1, PROCESSES_MAX)?;
    let n = within("n", 5000, REQUESTS_MAX)?;
    let c = within("c", 1, CONCURRENCY_MAX)?;
    if c > n {
        return Err(format!("param c: wanted at most n, as ab does; got {c} of {n}"));
    }
    server.settle().map_err(|error| format!("cannot pin the server: {error}"))?;
    let (server_before, own_before) = (server.cpu_s(), children_cpu_s());
    let began = Instant::now();
    let children: Result<Vec<Child>, String> =
        (0..processes).map(|_| start(&args.url, n, c)).collect();
    let reports: Vec<Report> = children?.into_iter().map(end).collect::<Result<_, _>>()?;
    let wall_s = began.elapsed().as_secs_f64();
    let server_s = server.cpu_s().zip(server_before).map(|(after, before)| after - before);
    let mut line = Line { wall_s, cpu_s: children_cpu_s() - own_before, ..Line::default() };
    line.answer = json!({
        "requests": reports.iter().map(|report| report.complete).sum::<u64>(),
        "bad_answers": reports.iter().map(Report::bad_answers).sum::<u64>(),
    });
    figures(&mut line, &reports, server_s);
    line.marks = marks(n);
    line.note = note(&reports);
    Ok(line)
}

/// The seed's `-n`.
const SEED_N: u64 = 5000;

fn marks(n: u64) -> Vec<String> {
    let mut marks = vec!["closed loop: mean latency = concurrency / rate".to_owned()];
    if n != SEED_N {
        marks.push(format!("-n {n} instead of the seed's {SEED_N}"));
    }
    marks
}

/// What `ab` says of its TLS. Version 2.3 keeps no session: each connection has a full handshake.
fn note(reports: &[Report]) -> Option<String> {
    let first = reports.first()?;
    let (protocol, group) = (first.protocol.as_ref()?, first.group.as_ref()?);
    Some(format!("{protocol}, {group}, full handshakes; closed loop, one CPU for all of ab"))
}

fn start(url: &str, n: u64, c: u64) -> Result<Child, String> {
    Command::new("ab")
        .args(["-n", &n.to_string(), "-c", &c.to_string(), url])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // One line for each connection that OpenSSL finds fault with; the report counts them.
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start ab: {error}"))
}

fn end(child: Child) -> Result<Report, String> {
    let out = child.wait_with_output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        return Err(format!("ab ended with {}", out.status));
    }
    Report::parse(&text).map_err(|error| error.to_string())
}

fn figures(line: &mut Line, reports: &[Report], server_s: Option<f64>) {
    let requests: u64 = reports.iter().map(|report| report.complete).sum();
    let failed: u64 = reports.iter().map(|report| report.failed).sum();
    let count = requests.max(1) as f64;
    let metrics = &mut line.metrics;
    let mut set = |name: &str, value: f64| {
        metrics.insert(name.into(), json!(value));
    };
    // What the seed adds up: each process's own rate over its own time.
    set("rate_per_s", reports.iter().map(|report| report.rate_per_s).sum());
    set("failed_ratio", failed as f64 / count);
    if let Some(server_s) = server_s.filter(|server_s| *server_s > 0.0) {
        set("core_rate_per_s", requests as f64 / server_s);
        set("server_cpu_ratio", server_s / line.wall_s);
    }
    let [one] = reports else { return };
    set("closed_mean_ms", one.mean_ms);
    set("littles_law_ratio", one.mean_ms / 1e3 * one.rate_per_s / one.concurrency as f64);
    set("connect_most_ms", one.connect_most_ms);
    if one.complete >= P99_REQUESTS_MIN {
        set("closed_p99_ms", one.p99_ms);
    }
}

/// CPU seconds of all children that have ended, by clock ticks of 10 ms (proc(5)).
fn children_cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(13).take(2);
    ticks.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_S
}

/// `USER_HZ` of Linux on every machine that this runs on.
const TICKS_PER_S: f64 = 100.0;

//! Small requests to a gateway over TCP, TLS or attested TLS: the load client of the suite `gateway`.
//!
//! What is measured is the server: its CPU time stands beside every rate, and server and client
//! have a core each. Every handshake is a full one; version, group and kind are looked at on every
//! connection, and one that differs ends the run.

mod door;
mod floor;
mod load;
mod wire;

use std::path::PathBuf;

use clap::ValueEnum;
use confide_arm_line::{Hello, Report, Run, ServerSide, Stopwatch, nearest_rank, speak};
use serde_json::{Map, Value, json};
use tokio::runtime::{Builder, Runtime};

use self::{
    door::Route,
    load::{LoadResult, Work, closed, open},
};
use crate::Outcome;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What is spoken below HTTP
    #[arg(long, value_enum)]
    mode: Mode,
    /// The server, HOST:PORT
    #[arg(long)]
    server: String,
    /// The certificate that `tls` pins (PEM)
    #[arg(long)]
    root: Option<PathBuf>,
    /// The policy by which `key` appraises the server once, before it pins its certificate
    #[arg(long)]
    policy: Option<PathBuf>,
    /// A tunnel, ws://HOST:PORT
    #[arg(long)]
    via: Option<String>,
    /// The only group that is offered: with another one the work is another
    #[arg(long, value_enum, default_value_t = Group::X25519)]
    group: Group,
    /// Leave Nagle's algorithm on, as a socket has it unless its program says otherwise
    #[arg(long)]
    default_sockets: bool,
    /// A process of the server's side; may be given several times
    #[arg(long = "server-pid", value_name = "PID")]
    server_pids: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Mode {
    /// No TLS
    Http,
    /// TLS 1.3, the certificate pinned
    Tls,
    /// TLS 1.3, the certificate's evidence appraised once, then the certificate pinned
    Key,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Group {
    X25519,
    X25519mlkem768,
}

pub(crate) fn run(args: Args) -> Outcome {
    let runtime =
        Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let server = ServerSide::new(&args.server_pids).map_err(|error| error.to_string())?;
    let (door, guarantee) = runtime.block_on(Route::new(&args))?;
    let facts = runtime.block_on(door.facts())?;
    let tunnel = if args.via.is_some() { ", through the tunnel" } else { "" };
    let sockets = if args.default_sockets { ", default sockets" } else { "" };
    let hello = Hello {
        arm: format!("confide-arm gateway, {facts}{tunnel}{sockets}"),
        version: format!("confide {}, rustls, aws-lc-rs", env!("CARGO_PKG_VERSION")),
        simulated: guarantee.simulated,
        guarantee: Some(guarantee.text),
        threads: 1,
        note: Some(format!("{facts}, seen on every connection; {}", server.describe())),
    };
    let rig = Rig { runtime, server, door, tls: args.mode != Mode::Http };
    speak(&hello, |order| rig.measure(order)).map_err(|error| error.to_string())
}

struct Rig {
    runtime: Runtime,
    server: ServerSide,
    door: Route,
    tls: bool,
}

const KNOWN: &[&str] = &["concurrency", "connections", "path", "rate_per_s"];
/// More connections at once than this belong to `ab`'s own arms.
const CONCURRENCY_MAX: u64 = 1024;
/// An open loop faster than this on one thread would measure its own timer.
const RATE_MAX: f64 = 20_000.0;

impl Rig {
    fn measure(&self, order: &Run) -> Outcome<Report> {
        order.knows_only(KNOWN)?;
        let work = Work {
            requests: order.requests,
            concurrency: order.number("concurrency", 1)?.clamp(1, CONCURRENCY_MAX),
            kept: match order.text("connections", "new")?.as_str() {
                "kept" => true,
                "new" => false,
                other => return Err(format!("connections: wanted new or kept, got {other}")),
            },
            path: order.text("path", "/health")?,
        };
        let rate = order.params.get("rate_per_s").map(rate).transpose()?;
        self.server.settle().map_err(|error| format!("cannot pin the server: {error}"))?;
        let floor_before = self.floor();
        let server_before = self.server.cpu_s();
        let watch = Stopwatch::start();
        let ran = match rate {
            None => self.runtime.block_on(closed(&self.door, &work))?,
            Some(rate) => self.runtime.block_on(open(&self.door, &work, rate))?,
        };
        let (wall_s, cpu_s) = watch.stop();
        let server_s = self.server.cpu_s().zip(server_before).map(|(after, before)| after - before);
        let floor = floor_before.zip(self.floor()).map(|(before, after)| (before * after).sqrt());
        let mut report = Report { wall_s, cpu_s, ..Report::default() };
        report.answer = json!({ "requests": ran.times_ms.len(), "body_sha256": ran.body_sha256 });
        report.metrics = figures(&ran, &work, rate.is_some(), wall_s, server_s, floor);
        // A floor is a rate of handshakes: beside kept connections it would be a floor of nothing.
        if let Some(floor) = floor.filter(|_| !work.kept) {
            report.floor = Some((floor::NAME.into(), "core_rate_per_s".into(), floor));
        }
        report.samples = ran.samples;
        Ok(report)
    }

    fn floor(&self) -> Option<f64> {
        self.tls.then(|| self.server.on_its_core(floor::rate_per_s)).flatten()
    }
}

fn rate(given: &serde_json::Value) -> Outcome<f64> {
    let rate = given.as_f64().filter(|rate| *rate > 0.0 && *rate <= RATE_MAX);
    rate.ok_or_else(|| {
        format!("rate_per_s: wanted a number above 0, at most {RATE_MAX}, got {given}")
    })
}

fn figures(
    ran: &LoadResult,
    work: &Work,
    open_loop: bool,
    wall_s: f64,
    server_s: Option<f64>,
    floor: Option<f64>,
) -> Map<String, Value> {
    let mut metrics = Map::new();
    let count = ran.times_ms.len() as f64;
    let mut set = |name: &str, value: f64| {
        metrics.insert(name.into(), json!(value));
    };
    set("rate_per_s", count / wall_s);
    set("handshakes_per_request_ratio", ran.handshakes as f64 / count);
    if let Some(server_s) = server_s.filter(|server_s| *server_s > 0.0) {
        set("core_rate_per_s", count / server_s);
        set("server_cpu_us", server_s * 1e6 / count);
        set("server_cpu_ratio", server_s / wall_s);
    }
    if let Some(floor) = floor {
        set("floor_per_s", floor);
    }
    let mut times = ran.times_ms.clone();
    let mean_ms = times.iter().sum::<f64>() / count;
    if open_loop {
        let mut delays = ran.delays_ms.clone();
        set("dispatch_delay_ms", nearest_rank(&mut delays, 0.99));
        return metrics;
    }
    set("closed_mean_ms", mean_ms);
    set("closed_p50_ms", nearest_rank(&mut times, 0.5));
    set("littles_law_ratio", mean_ms / 1e3 * (count / wall_s) / work.concurrency as f64);
    metrics
}

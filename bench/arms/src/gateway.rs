//! Small requests to a gateway over TCP, TLS or attested TLS: the load client of the suite `gateway`.
//!
//! What is measured is the server: its CPU time stands next to every rate, and server and client
//! have a core each. Every handshake is a full one; version, group, cipher suite and kind are checked
//! on every connection, and one that differs ends the run.

mod floor;
mod load;
mod route;
mod wire;

use confide_arm_line::{
    Hello, Outcome, Report, Run, ServerProcesses, Stopwatch, nearest_rank, serve_runs,
};
use serde_json::{Map, Value, json};
use tokio::runtime::{Builder, Runtime};

use self::{
    floor::{floor_name, handshake_crypto_per_s},
    load::{LoadPlan, LoadResult, run_closed_loop, run_open_loop},
    route::{KeyExchangeGroup, Route, RouteArgs},
};
use crate::version::VERSION_WITH_TLS;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    route: RouteArgs,
    /// A process of the server's side; may be given several times
    #[arg(long = "server-pid", value_name = "PID")]
    server_pids: Vec<u32>,
    /// The server passes TLS on unread, so that no cryptography is a floor of its work
    #[arg(long)]
    passes_tls: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let server = ServerProcesses::new(&args.server_pids)?;
    let (route, guarantee) = runtime.block_on(Route::new(&args.route))?;
    let facts = runtime.block_on(route.probe())?;
    let hello = Hello {
        simulated: guarantee.simulated,
        guarantee: Some(guarantee.text),
        note: Some(format!("{facts}, seen on every connection; {}", server.describe_pinning())),
        ..Hello::new(
            format!("confide-arm gateway, {facts}{}", args.route.describe()),
            VERSION_WITH_TLS,
        )
    };
    let floor_group = args.route.group().filter(|_| !args.passes_tls);
    let arm = GatewayArm { runtime, server, route, floor_group };
    serve_runs(&hello, |order| arm.measure(order))
}

struct GatewayArm {
    runtime: Runtime,
    server: ServerProcesses,
    route: Route,
    /// The group of the handshakes whose cryptography is a floor of the server's work; `None` if the
    /// server makes no handshakes.
    floor_group: Option<KeyExchangeGroup>,
}

const KNOWN: &[&str] = &["concurrency", "connections", "path", "rate_per_s"];
/// More connections at once than this belong to `ab`'s own arms.
const CONCURRENCY_MAX: u64 = 1024;
/// An open loop faster than this on one thread would measure its own timer.
const RATE_MAX: f64 = 20_000.0;

impl GatewayArm {
    fn measure(&self, order: &Run) -> Outcome<Report> {
        order.refuse_unknown_params(KNOWN)?;
        let work = LoadPlan {
            requests: order.requests,
            concurrency: order.integer_param("concurrency", 1)?.clamp(1, CONCURRENCY_MAX),
            kept: match order.text_param("connections", "new")?.as_str() {
                "kept" => true,
                "new" => false,
                other => return Err(format!("connections: wanted new or kept, got {other}").into()),
            },
            path: order.text_param("path", "/health")?,
        };
        let rate = order.params.get("rate_per_s").map(parse_rate_param).transpose()?;
        self.server.pin_threads().map_err(|error| format!("cannot pin the server: {error}"))?;
        let floor_before = self.core_floor_per_s();
        let server_before = self.server.cpu_s();
        let watch = Stopwatch::start();
        let result = match rate {
            None => self.runtime.block_on(run_closed_loop(&self.route, &work))?,
            Some(rate) => self.runtime.block_on(run_open_loop(&self.route, &work, rate))?,
        };
        let mut report = watch.report();
        let server_s = self.server.cpu_s().zip(server_before).map(|(after, before)| after - before);
        let floor = floor_before
            .zip(self.core_floor_per_s())
            .map(|(before, after)| (before * after).sqrt());
        report.answer =
            json!({ "requests": result.times_ms.len(), "body_sha256": result.body_sha256 });
        report.metrics =
            report_metrics(&result, &work, rate.is_some(), report.wall_s, server_s, floor);
        // The floor is a rate of handshakes, which kept connections do not make.
        if let Some((group, floor)) = self.floor_group.zip(floor).filter(|_| !work.kept) {
            report.floor = Some((floor_name(group).into(), "core_rate_per_s".into(), floor));
        }
        report.samples = result.samples;
        Ok(report)
    }

    fn core_floor_per_s(&self) -> Option<f64> {
        let group = self.floor_group?;
        self.server.run_on_server_core(|| handshake_crypto_per_s(group))
    }
}

fn parse_rate_param(given: &serde_json::Value) -> Outcome<f64> {
    let rate = given.as_f64().filter(|rate| *rate > 0.0 && *rate <= RATE_MAX);
    let wrong = || format!("rate_per_s: wanted a number above 0, at most {RATE_MAX}, got {given}");
    Ok(rate.ok_or_else(wrong)?)
}

fn report_metrics(
    result: &LoadResult,
    work: &LoadPlan,
    open_loop: bool,
    wall_s: f64,
    server_s: Option<f64>,
    floor: Option<f64>,
) -> Map<String, Value> {
    let mut metrics = Map::new();
    let count = result.times_ms.len() as f64;
    let mut set = |name: &str, value: f64| {
        metrics.insert(name.into(), json!(value));
    };
    set("rate_per_s", count / wall_s);
    set("handshakes_per_request_ratio", result.handshakes as f64 / count);
    if let Some(server_s) = server_s.filter(|server_s| *server_s > 0.0) {
        set("core_rate_per_s", count / server_s);
        set("server_cpu_us", server_s * 1e6 / count);
        set("server_cpu_ratio", server_s / wall_s);
    }
    if let Some(floor) = floor {
        set("floor_per_s", floor);
    }
    let mut times = result.times_ms.clone();
    let mean_ms = times.iter().sum::<f64>() / count;
    if open_loop {
        let mut delays = result.delays_ms.clone();
        set("dispatch_delay_ms", nearest_rank(&mut delays, 0.99));
        return metrics;
    }
    set("closed_mean_ms", mean_ms);
    set("closed_p50_ms", nearest_rank(&mut times, 0.5));
    set("littles_law_ratio", mean_ms / 1e3 * (count / wall_s) / work.concurrency as f64);
    metrics
}

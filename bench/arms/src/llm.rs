//! A model server under load, in an open loop by default, over one kind of channel.
//!
//! Arrivals, prompts and lengths come from the run's seed, so every arm of a block gets the same
//! work at the same instants. Each run writes its event log; every figure is a function of it.

mod accelerator;
mod order;
mod route;
pub(crate) mod saturation;

use std::{
    cell::Cell,
    fs::File,
    io::BufWriter,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};

use confide_arm_line::{Hello, Outcome, Report, Run, Sample, Stopwatch, serve_runs};
use confide_load::{
    ClientBound, LoadOptions, LoadOutcome, LogHead, LogWriter, Plan, RequestRecord, Summary,
    Target, Transport,
};
use serde_json::{Map, Value, json};

use self::{
    accelerator::UtilisationSampler,
    order::LlmOrder,
    route::{Route, RouteArgs},
};
use crate::version::VERSION;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    route: RouteArgs,
    /// The model's name in requests.
    #[arg(long, default_value = "sim")]
    model: String,
    /// Prefix of the event logs' names; case and block follow.
    #[arg(long)]
    events: Option<PathBuf>,
    /// The reference arm's saturation, as `confide-arm llm-saturation` writes it: what `load_ratio`
    /// is a share of.
    #[arg(long)]
    saturation: Option<PathBuf>,
    /// Number of threads that hold the streams.
    #[arg(long, default_value_t = 1)]
    threads: u32,
}

pub(crate) fn run(args: Args) -> Outcome {
    let route = Route::new(&args.route)?;
    let facts = route.probe()?;
    let hello = Hello {
        simulated: facts.simulated,
        guarantee: Some(facts.guarantee),
        threads: args.threads as usize,
        note: Some(accelerator::accelerator_note()),
        ..Hello::new(format!("confide-arm llm, {}", route.describe()), VERSION)
    };
    let transport: Arc<dyn Transport> = Arc::new(route);
    let cold = Cell::new(true);
    serve_runs(&hello, |run| measure_run(&args, &transport, run, cold.replace(false)))
}

/// Measures one run. The harness throws the first of a process away; it leaves no event log.
fn measure_run(
    args: &Args,
    transport: &Arc<dyn Transport>,
    run: &Run,
    cold: bool,
) -> Outcome<Report> {
    let order = LlmOrder::from_run(run, args.saturation.as_deref())?;
    let plan = Arc::new(Plan::new(&order.workload)?);
    let url = format!("http://{}", args.route.server());
    let mut target = Target::parse(&url, &args.model)?;
    if order.ignore_eos {
        target.more.insert("ignore_eos".into(), true.into());
    }
    let options =
        LoadOptions { threads: args.threads, sessions: order.sessions, ..LoadOptions::default() };
    let head = event_log_head(args, run, &order, &plan, &**transport, &target);
    let accelerator = UtilisationSampler::start();
    let watch = Stopwatch::start();
    let stop = AtomicBool::new(false);
    let loaded =
        confide_load::run(&plan, &Arc::new(target), transport, &options, &stop, &mut |_| {})?;
    let report = watch.report();
    let accelerator = accelerator.and_then(UtilisationSampler::stop);
    if let (false, Some(prefix)) = (cold, &args.events) {
        write_event_log(&event_log_path(prefix, run), &head, &loaded)?;
    }
    let summary = Summary::from_events(&loaded.events, order.limits);
    let mut metrics = run_metrics(&summary, &loaded);
    if let Some(rate) = plan.offered_rate_per_s() {
        metrics.insert("offered_per_s".into(), json!(rate));
    }
    if let Some(ratio) = accelerator {
        metrics.insert("accelerator_ratio".into(), json!(ratio));
    }
    let void = ClientBound::describe_all(&ClientBound::find_all(&summary, &loaded.client))
        .filter(|_| !cold);
    let samples = loaded.events.iter().map(request_sample).collect();
    Ok(Report { samples, metrics, void, ..report })
}

fn event_log_head(
    args: &Args,
    run: &Run,
    order: &LlmOrder,
    plan: &Plan,
    transport: &dyn Transport,
    target: &Target,
) -> LogHead {
    let mut more = Map::new();
    more.insert("params".into(), Value::Object(run.params.clone()));
    more.insert("block".into(), run.block.into());
    more.insert("model".into(), args.model.clone().into());
    LogHead {
        arrivals: order.workload.arrivals.name().into(),
        seed: run.seed,
        requests: plan.requests.len() as u64,
        offered_per_s: plan.offered_rate_per_s(),
        users: plan.users,
        target: target.to_display(),
        transport: transport.describe(),
        sessions: order.sessions.name().into(),
        limits: order.limits,
        more,
        ..LogHead::default()
    }
}

/// One request without its list of instants: those are in the event log.
fn request_sample(event: &RequestRecord) -> Sample {
    let mut metrics = Map::new();
    let mut put = |name: &str, seconds: Option<f64>| {
        if let Some(seconds) = seconds.filter(|seconds| seconds.is_finite()) {
            metrics.insert(name.into(), json!(seconds * 1e3));
        }
    };
    put("ttft_ms", event.ttft_s());
    put("e2e_ms", event.e2e_s());
    put("tpot_ms", event.tpot_s());
    put("ntpot_ms", event.ntpot_s());
    put("dispatch_ms", Some(event.dispatch_delay_s()));
    put("queue_ms", event.server_queue_s);
    let opened = event.attested_s.or(event.handshake_s).or(event.connected_s);
    put("connect_ms", opened.map(|opened| opened - event.dispatched_s));
    let since = |end: Option<f64>, start: Option<f64>| Some(end? - start?);
    let dispatched = Some(event.dispatched_s);
    put("dns_ms", since(event.resolved_s, dispatched));
    put("tcp_ms", since(event.connected_s, event.resolved_s.or(dispatched)));
    put("tls_ms", since(event.attested_s.or(event.handshake_s), event.connected_s));
    let first = event.chunks_s.first().copied();
    let asked = event.sent_s.or(opened).or(dispatched);
    // The server measures its queue by its own clock; it cannot exceed the wait seen here.
    let read =
        since(first, asked).map(|wait| (wait - event.server_queue_s.unwrap_or(0.0)).max(0.0));
    put("prefill_ms", read.filter(|_| event.server_queue_s.is_some()));
    put("decode_ms", since(event.last_s, first));
    let parts = event.attestation.filter(|_| opened.is_some());
    put("quote_ms", parts.map(|parts| parts.quote_s));
    put("collateral_ms", parts.map(|parts| parts.collateral_s));
    put("appraisal_ms", parts.map(|parts| parts.appraisal_s));
    Sample {
        metrics,
        answer: json!({ "tokens": event.tokens(), "text_sha256": event.text_sha256 }),
        round_trips: None,
        at_s: Some(event.scheduled_s),
        error: event.error.clone(),
    }
}

/// Figures of the whole run.
fn run_metrics(summary: &Summary, loaded: &LoadOutcome) -> Map<String, Value> {
    let (client, mut metrics) = (&loaded.client, Map::new());
    for (name, value) in [
        ("rate_per_s", summary.qps),
        ("tokens_per_s", summary.tps),
        ("goodput_per_s", summary.goodput_per_s),
        ("good_ratio", summary.good_ratio),
        ("itl_ms", summary.itl.mean_ms),
        ("itl_p50_ms", summary.itl.p50_ms),
        ("itl_p95_ms", summary.itl.p95_ms),
        ("itl_p99_ms", summary.itl.p99_ms),
        ("ttft_p95_ms", summary.ttft.p95_ms),
        ("ttft_p99_ms", summary.ttft.p99_ms),
        ("dispatch_p99_ms", summary.dispatch_delay.p99_ms),
        ("loop_ms", client.loop_delay.mean_ms),
        ("loop_p99_ms", client.loop_delay.p99_ms),
        ("streams_ratio", summary.streams_mean),
        ("streams_peak_ratio", Some(summary.streams_peak as f64)),
        ("busiest_thread_ratio", Some(client.busiest_ratio)),
        ("client_cpu_ms_per_request", cpu_ms_per_request(client.cpu_s, summary.complete)),
    ] {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            metrics.insert(name.into(), json!(value));
        }
    }
    metrics
}

fn cpu_ms_per_request(cpu_s: f64, complete: u64) -> Option<f64> {
    (complete > 0).then(|| cpu_s * 1e3 / complete as f64)
}

fn write_event_log(path: &std::path::Path, head: &LogHead, loaded: &LoadOutcome) -> Outcome {
    let cannot = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(cannot)?;
    }
    let file = File::create(path).map_err(cannot)?;
    let mut writer = LogWriter::new(BufWriter::new(file), head).map_err(cannot)?;
    for event in &loaded.events {
        writer.write_event(event).map_err(cannot)?;
    }
    Ok(writer.write_client(&loaded.client).map_err(cannot)?)
}

/// `<prefix>-<case>-<block>.jsonl`; the A/A twin of an arm finds its name taken and gets `-2`.
fn event_log_path(prefix: &std::path::Path, run: &Run) -> PathBuf {
    const CASE_CHARS_MAX: usize = 180;
    let words: Vec<String> = run
        .params
        .iter()
        .map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("{name}={text}")
        })
        .collect();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "=.,_".contains(c) { c } else { '_' };
    let case: String = words.join(",").chars().map(plain).take(CASE_CHARS_MAX).collect();
    let stem = format!("{}-{case}-{:04}", prefix.display(), run.block);
    let mut path = PathBuf::from(format!("{stem}.jsonl"));
    let mut number = 2;
    while path.exists() && number < 1000 {
        path = PathBuf::from(format!("{stem}-{number}.jsonl"));
        number += 1;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_named_by_its_case_and_block_and_overwrites_none() {
        let folder = std::env::temp_dir().join(format!("confide-llm-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let run: Run = serde_json::from_value(json!({
            "id": 1, "block": 3, "params": { "load_ratio": 0.5, "arrivals": "poisson/../x" }
        }))
        .unwrap();
        let first = event_log_path(&folder.join("tls"), &run);
        assert_eq!(first.parent(), Some(&*folder));
        std::fs::write(&first, "").unwrap();
        let second = event_log_path(&folder.join("tls"), &run);
        assert!(second.to_string_lossy().ends_with("-0003-2.jsonl"), "{second:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

//! Evidence for many waiting sessions from one *simulated* device: one lock, 39 ms a quote.
//!
//! A request is one burst: so many sessions come at once, each wants its binder signed, and the
//! burst is over when the last of them has its quote and path. With `rate_per_s` a request is one
//! session, and they arrive at random instants ([`arrivals`]). Every path is checked after the
//! clock has stopped. With `--handshakes` a session is a whole TLS session in memory, both of
//! whose ends run in this process, up to the appraised evidence.

mod arrivals;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::clock::unix_now;
use crate::version::VERSION;
use confide_arm_line::{ArmError, Hello, Outcome, Report, Run, Sample, Stopwatch, serve_runs};
use confide_channel::{
    BatchLimits, BatchedQuote, Binding, Client, ClientOptions, QuoteBatcher, Server, ServerOptions,
};
use confide_evidence::{Appraise, PresentedEvidence, ReportData};
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Mode, Tee};
use serde_json::json;
use tokio::{runtime::Runtime, task::JoinSet};

/// The bound of the channel on the sessions of one batch.
const SESSIONS_MAX: u64 = 1024;

/// More than four times as many as the device can serve in batches of [`SESSIONS_MAX`].
const RATE_PER_S_MAX: u64 = 100_000;

/// Longer than 1,024 quotes one after the other take: the slow arm is to be measured, not cut.
const WAIT: Duration = Duration::from_secs(60);

/// Buffer of a session in memory, so large that a session never waits for space.
const WIRE_BYTES: usize = 256 * 1024;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// `together` (one quote for all that wait) or `apart` (a quote for each session).
    #[arg(long, default_value = "together")]
    mode: String,
    /// Open whole TLS sessions instead of requesting binders.
    #[arg(long)]
    handshakes: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let arm = BatchArm::new(&args)?;
    let unit = if args.handshakes { "TLS sessions in memory" } else { "session binders" };
    let hello = Hello {
        simulated: true,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        note: Some("simulated: 39 ms a quote is the published figure of one device".into()),
        ..Hello::new(format!("{unit}, {}", args.mode), VERSION)
    };
    serve_runs(&hello, |order| arm.measure(order))
}

struct BatchArm {
    batcher: QuoteBatcher,
    /// Whether each session gets its own quote.
    apart: bool,
    runtime: Runtime,
    tls: Option<(Arc<Client<ReportDataCheck>>, Arc<Server>)>,
}

impl BatchArm {
    fn new(args: &Args) -> Outcome<Self> {
        let issued_at = unix_now();
        let mode = Mode::Device;
        let options =
            FakeAttesterOptions { seed: [7; 32], tee: Tee::Tdx, debug: false, issued_at, mode };
        let attester = FakeAttester::new(options)?;
        let attester = Arc::new(attester);
        let defaults = BatchLimits { wait: WAIT, ..BatchLimits::default() };
        let limits = match args.mode.as_str() {
            "together" => defaults,
            "apart" => BatchLimits { sessions: 1, ..defaults },
            other => return Err(format!("--mode {other}: wanted together or apart").into()),
        };
        let batcher = QuoteBatcher::with_limits(attester.clone(), limits);
        let batcher = batcher?;
        let tls =
            if args.handshakes { Some(make_client_and_server(attester, &batcher)?) } else { None };
        let runtime = Runtime::new()?;
        Ok(Self { batcher, apart: args.mode == "apart", runtime, tls })
    }

    fn measure(&self, order: &Run) -> Outcome<Report> {
        order.refuse_unknown_params(&["sessions", "rate_per_s"])?;
        let rate_per_s = order.integer_param_within("rate_per_s", 0, 0..=RATE_PER_S_MAX)?;
        if rate_per_s > 0 {
            if self.tls.is_some() || order.params.contains_key("sessions") {
                return Err("param rate_per_s: wanted without sessions and --handshakes".into());
            }
            return self.bind_at_rate(order, rate_per_s);
        }
        let sessions = order.integer_param_within("sessions", 1, 1..=SESSIONS_MAX)?;
        let mut bursts_s = 0.0;
        let mut report = order.measure_each(|burst| {
            let before = self.batcher.counts().quotes;
            let (took, failure) = match &self.tls {
                Some((client, server)) => {
                    self.runtime.block_on(open_session_burst(client, server, sessions))
                }
                None => self.bind_burst(order.seed, burst, sessions),
            };
            bursts_s += took.as_secs_f64();
            let quotes = self.batcher.counts().quotes - before;
            let mut sample = Sample::new([
                ("all_bound_ms", took.as_secs_f64() * 1e3),
                ("sessions_per_quote_ratio", sessions as f64 / quotes.max(1) as f64),
            ]);
            sample.error = failure;
            Ok(sample)
        })?;
        let bound = sessions * order.requests;
        report.answer = json!({ "bound": bound });
        // Over the bursts alone: what lies between them is checking.
        report.set("rate_per_s", bound as f64 / bursts_s);
        Ok(report)
    }

    /// Binds one session for each request of `order`, each at a random instant, and reports for each
    /// the time from that instant to its quote.
    fn bind_at_rate(&self, order: &Run, rate_per_s: u64) -> Outcome<Report> {
        let schedule = arrivals::draw_arrivals(order.seed, order.requests, rate_per_s as f64)?;
        let before = self.batcher.counts().quotes;
        let watch = Stopwatch::start();
        let bindings = self.runtime.block_on(arrivals::bind_on_schedule(&schedule, |number| {
            self.batcher.attest(session_report_data(order.seed, 0, number))
        }));
        let mut report = watch.report();
        for (number, binding) in bindings?.into_iter().enumerate() {
            let mut sample = Sample::new([
                ("wait_ms", binding.waited.as_secs_f64() * 1e3),
                ("dispatch_delay_ms", binding.late.as_secs_f64() * 1e3),
            ]);
            sample.at_s = Some(binding.due.as_secs_f64());
            let binder = session_report_data(order.seed, 0, number as u64);
            let bound = binding.share.map_err(ArmError::from);
            let bound = bound.and_then(|share| self.check_report_data_bound(&binder, &share));
            sample.error = bound.err().map(|error| error.to_string());
            report.samples.push(sample);
        }
        let quotes = self.batcher.counts().quotes - before;
        report.set("sessions_per_quote_ratio", order.requests as f64 / quotes.max(1) as f64);
        report.set("session_cpu_us", report.cpu_s * 1e6 / order.requests as f64);
        report.answer = json!({ "bound": order.requests });
        Ok(report)
    }

    /// One burst of binders: its time, and the reason why one of them is not bound.
    fn bind_burst(&self, seed: u64, burst: u64, sessions: u64) -> (Duration, Option<String>) {
        let binders: Vec<ReportData> =
            (0..sessions).map(|n| session_report_data(seed, burst, n)).collect();
        let began = Instant::now();
        let shares = self.runtime.block_on(async {
            let ask = |binder: &ReportData| tokio::spawn(self.batcher.attest(*binder));
            let asked: Vec<_> = binders.iter().map(ask).collect();
            let mut shares = Vec::with_capacity(asked.len());
            for share in asked {
                shares.push(share.await);
            }
            shares
        });
        let took = began.elapsed();
        let bound = binders
            .iter()
            .zip(shares)
            .try_for_each(|(binder, share)| self.check_report_data_bound(binder, &share??));
        (took, bound.err().map(|error: ArmError| error.to_string()))
    }

    fn check_report_data_bound(&self, binder: &ReportData, share: &BatchedQuote) -> Outcome {
        let signed = share.path.as_ref().map_or(*binder, |path| path.root_report_data(binder));
        if self.apart && share.path.is_some() {
            return Err("a session apart has a path".into());
        }
        if !share.quote.windows(64).any(|window| window == signed.0) {
            return Err("the path does not lead to the quote's report data".into());
        }
        Ok(())
    }
}

/// Opens one burst of TLS sessions: its time from the first byte to the last appraised evidence, and
/// the reason why one of them failed.
async fn open_session_burst(
    client: &Arc<Client<ReportDataCheck>>,
    server: &Arc<Server>,
    sessions: u64,
) -> (Duration, Option<String>) {
    let began = Instant::now();
    let mut opening = JoinSet::new();
    for _ in 0..sessions {
        let (near, far) = tokio::io::duplex(WIRE_BYTES);
        let (client, server) = (client.clone(), server.clone());
        opening.spawn(async move { client.connect("localhost", near).await.map(drop) });
        opening.spawn(async move { server.accept(far).await.map(drop) });
    }
    let mut failed = None;
    while let Some(opened) = opening.join_next().await {
        match opened {
            Ok(Ok(())) => {}
            Ok(Err(error)) => failed = Some(error.to_string()),
            Err(error) => failed = Some(error.to_string()),
        }
    }
    (began.elapsed(), failed)
}

/// Accepts a quote that holds the expected report data: what is timed here is the attesting end.
struct ReportDataCheck;

#[derive(Debug)]
struct ReportDataMismatch;

impl std::fmt::Display for ReportDataMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the quote does not hold the expected report data")
    }
}

impl std::error::Error for ReportDataMismatch {}

impl Appraise for ReportDataCheck {
    type Appraised = ();
    type Rejection = ReportDataMismatch;

    fn appraise(&self, presented: &PresentedEvidence<'_>) -> Result<(), ReportDataMismatch> {
        let wanted = presented.expected_report_data.0;
        let holds = presented.quote.windows(64).any(|window| window == wanted);
        if holds { Ok(()) } else { Err(ReportDataMismatch) }
    }
}

type ClientAndServer = (Arc<Client<ReportDataCheck>>, Arc<Server>);

fn make_client_and_server(
    attester: Arc<FakeAttester>,
    batcher: &QuoteBatcher,
) -> Result<ClientAndServer, confide_channel::ChannelError> {
    let options = ServerOptions {
        binding: Binding::Session,
        config_digest: [0; 32],
        guarantee: "nobody: simulated evidence".into(),
        key_validity: Duration::from_secs(3600),
        deadline: WAIT,
        names: vec!["localhost".into()],
        weights: None,
    };
    let server = Server::new(options, Some(attester), unix_now)?.with_batcher(batcher.clone())?;
    let options = ClientOptions { binding: Binding::Session, deadline: WAIT };
    Ok((Arc::new(Client::new(options, Arc::new(ReportDataCheck))?), Arc::new(server)))
}

fn session_report_data(seed: u64, burst: u64, number: u64) -> ReportData {
    let mut binder = ReportData::ZERO;
    for (at, part) in [seed, burst, number].into_iter().enumerate() {
        binder.0[at * 8..(at + 1) * 8].copy_from_slice(&part.to_le_bytes());
    }
    binder
}

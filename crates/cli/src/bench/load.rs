//! `confide bench load`.

mod attested;
mod ceiling;
mod table;
mod tokenizer;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, BufWriter},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use clap::ValueEnum;
use confide_evidence::pem::decode_chain;
use confide_load::{
    Arrivals, Ceiling, CeilingFigures, ClientBound, ConnectionReuse, GoodputLimits, LoadOptions,
    LoadOutcome, LogHead, LogWriter, Plan, RequestRecord, Summary, Target, TcpTransport,
    TlsTransport, TokenLengths, Transport, Workload, read_trace,
};
use serde_json::{Map, Value, json};

use super::{
    progress::ProgressBar,
    status::{FAILED, INTERRUPTED, UNRELIABLE},
};
use crate::{error::CliError, files::read_file, process};

/// The longest file of --root, in bytes: some hundred certificates.
const ROOT_BYTES_MAX: u64 = 1 << 20;
/// The number of requests where neither --duration nor --requests is given.
const REQUESTS: usize = 100;
/// Seconds of each of the three runs of --ceiling.
const CEILING_RUN_S: f64 = 1.0;
/// The interval at which progress is shown.
const SHOW_EVERY: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The API: http[s]://HOST[:PORT][/PATH]; the default path is /v1
    #[arg(value_name = "URL", required_unless_present = "ceiling", requires = "model")]
    url: Option<String>,
    /// The model's name in requests
    #[arg(long, value_name = "NAME", required_unless_present = "ceiling", requires = "url")]
    model: Option<String>,
    #[command(flatten)]
    work: WorkloadArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The limits of a good answer, in milliseconds: ttft=200,tpot=50,itl=50,e2e=5000
    #[arg(long, value_name = "LIMITS", value_parser = parse_limits, requires = "url")]
    limits: Option<GoodputLimits>,
    /// End with status 1 if more than this share of the requests failed, in percent
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, default_value = "1")]
    fail_above: f64,
    /// Count tokens with this tokenizer.json (or the one in this folder) if the server reports no plausible
    /// number
    #[arg(long, value_name = "PATH", requires = "url")]
    tokenizer: Option<PathBuf>,
    /// Measure this client's ceiling before the run, and judge the run by it; without a URL, only
    /// print the ceiling
    #[arg(long)]
    ceiling: bool,
    /// Write the event log to this file, one JSON line per request
    #[arg(long, value_name = "FILE", requires = "url")]
    events: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct WorkloadArgs {
    /// How the start times of requests are chosen
    #[arg(long, value_enum, default_value_t = ArrivalKind::Poisson)]
    arrivals: ArrivalKind,
    /// Arrivals per second, for poisson and constant [default: 1]
    #[arg(long, value_name = "R", requires = "url")]
    rate: Option<f64>,
    /// Users of a closed loop [default: 1]
    #[arg(long, value_name = "N", requires = "url")]
    users: Option<u32>,
    /// Seconds over which the users start [default: 0]
    #[arg(long, value_name = "S", requires = "url")]
    ramp: Option<f64>,
    /// The trace: lines of {"timestamp": MS, "input_length": N, "output_length": N}
    #[arg(long, value_name = "FILE", required_if_eq("arrivals", "trace"))]
    trace: Option<PathBuf>,
    /// Replay the trace faster by this factor [default: 1]
    #[arg(long, value_name = "X")]
    trace_speed: Option<f64>,
    /// Start requests for this many seconds
    #[arg(long, value_name = "S", requires = "url")]
    duration: Option<f64>,
    /// Send at most this many requests; 100 if no duration is given
    #[arg(long, value_name = "N", requires = "url")]
    requests: Option<usize>,
    /// Tokens in each prompt: a number such as 128, or a range such as 64..256
    #[arg(long, value_name = "N", default_value = "128", value_parser = parse_lengths)]
    prompt_tokens: TokenLengths,
    /// Tokens requested for each answer: a number such as 128, or a range such as 64..256
    #[arg(long, value_name = "N", default_value = "128", value_parser = parse_lengths)]
    output_tokens: TokenLengths,
    /// Seed of arrivals, prompts and lengths: the same seed gives the same work
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
struct ConnectionArgs {
    /// Whether each request opens a new connection or reuses an open one
    #[arg(long, value_enum, default_value_t = SessionsKind::Reused)]
    sessions: SessionsKind,
    /// Threads that hold the streams
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Seconds that a request may take
    #[arg(long, value_name = "S", default_value_t = 300.0)]
    deadline: f64,
    /// The environment variable that holds the key of the API
    #[arg(long, value_name = "NAME", default_value = "OPENAI_API_KEY")]
    key_variable: String,
    /// A further field of each request, NAME=JSON; null removes a field that confide would send
    #[arg(long = "field", value_name = "NAME=JSON", value_parser = parse_field)]
    fields: Vec<(String, Value)>,
    /// Trust these certificates (PEM) instead of the machine's
    #[arg(long, value_name = "FILE", conflicts_with = "policy")]
    root: Option<PathBuf>,
    /// Trust only the certificate with this SHA-256, even if it is self-signed
    #[arg(long, value_name = "HEX", value_parser = parse_sha256, conflicts_with_all = ["root", "policy"])]
    pin_certificate: Option<[u8; 32]>,
    /// Accept any certificate: an attacker on the path can then impersonate the server
    #[arg(long, conflicts_with_all = ["root", "policy", "pin_certificate"])]
    dangerous_skip_tls_verification: bool,
    /// Use attested TLS: the server's evidence must satisfy this policy
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// How the server binds evidence to connections
    #[arg(long, value_enum, default_value_t = attested::BindingName::Key, requires = "policy")]
    binding: attested::BindingName,
    /// Reach the server through this tunnel: ws://HOST:PORT
    #[arg(long, value_name = "URL", requires = "policy")]
    via: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ArrivalKind {
    /// Open loop with independent exponential gaps
    Poisson,
    /// Open loop with equal gaps
    Constant,
    /// Open loop with the instants of --trace
    Trace,
    /// Closed loop: a slow server receives fewer requests, so its latencies look too good
    Closed,
}

impl ArrivalKind {
    /// The options that have an effect for this kind alone, or for it and others.
    fn accepts_option(self, option: &str) -> bool {
        match option {
            "--rate" => matches!(self, Self::Poisson | Self::Constant),
            "--users" | "--ramp" => self == Self::Closed,
            _ => self == Self::Trace,
        }
    }
}

impl WorkloadArgs {
    /// Refuses options that the kind of arrivals leaves without effect.
    fn refuse_unused_options(&self) -> Result<(), CliError> {
        let given = [
            ("--rate", self.rate.is_some()),
            ("--users", self.users.is_some()),
            ("--ramp", self.ramp.is_some()),
            ("--trace", self.trace.is_some()),
            ("--trace-speed", self.trace_speed.is_some()),
        ];
        let idle = given
            .iter()
            .find(|(option, is_given)| *is_given && !self.arrivals.accepts_option(option));
        let Some((option, _)) = idle else { return Ok(()) };
        let takers: Vec<String> = ArrivalKind::value_variants()
            .iter()
            .filter(|kind| kind.accepts_option(option))
            .filter_map(|kind| Some(kind.to_possible_value()?.get_name().to_owned()))
            .collect();
        let got = self.arrivals.to_possible_value();
        Err(CliError::new(format!(
            "{option}: wanted --arrivals {}, got {}",
            takers.join(" or "),
            got.as_ref().map_or("another", |value| value.get_name()),
        )))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SessionsKind {
    New,
    #[value(name = "kept")]
    Reused,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let Some(url) = &args.url else { return measure_and_print_ceiling(args) };
    args.work.refuse_unused_options()?;
    let plan = Arc::new(build_plan(&args.work)?);
    let target = Arc::new(parse_target(args, url)?);
    let transport = build_transport(args, &target)?;
    let options = load_options(args)?;
    let head = build_log_head(args, &plan, &target, &*transport, &options);
    // Before the log exists: a reader who sees the file may already interrupt the run.
    let stop = confide_bench::stop_on_interrupt().map_err(CliError::new)?;
    let mut log = args.events.as_deref().map(|path| EventLog::create(path, &head)).transpose()?;
    let mut progress = LoadProgress::new(plan.requests.len());
    let outcome = confide_load::run(&plan, &target, &transport, &options, &stop, &mut |event| {
        progress.count_request(event);
        if let (Some(log), Some(event)) = (&mut log, event) {
            log.write_event(event);
        }
    });
    progress.bar.clear();
    let outcome = outcome.map_err(|error| {
        CliError::new(error)
            .with_hint("check that the server is running and that the URL is its API's")
    })?;
    let written = log.map(|log| log.finish(&outcome)).transpose()?;
    let stopped = stop.load(Ordering::Relaxed);
    // A run that was interrupted ends there, whatever was planned.
    let planned_s = head.duration_s.filter(|_| !stopped);
    let summary = Summary::from_run(&outcome.events, head.limits, planned_s);
    let bounds = ClientBound::find_all(&summary, &outcome.client);
    let report = table::LoadReport {
        head: &head,
        summary: &summary,
        client: &outcome.client,
        bounds: &bounds,
        errors: count_errors(&outcome.events),
        fail_above: args.fail_above,
        events: written.as_deref(),
    };
    let text = if args.json { report.to_json()? } else { report.render_table() };
    process::print_text(&text)?;
    Ok(match bounds[..] {
        _ if stopped => ExitCode::from(INTERRUPTED),
        _ if summary.complete == 0 || report.has_too_many_failures() => ExitCode::from(FAILED),
        [] => ExitCode::SUCCESS,
        _ => ExitCode::from(UNRELIABLE),
    })
}

/// Runs `--ceiling` without a URL.
fn measure_and_print_ceiling(args: &Args) -> Result<ExitCode, CliError> {
    let figures = measure_ceiling()?;
    let text = if args.json {
        ceiling::ceiling_json(&figures)?
    } else {
        ceiling::render_ceiling(&figures)
    };
    process::print_text(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn measure_ceiling() -> Result<CeilingFigures, CliError> {
    confide_load::measure_ceiling(CEILING_RUN_S).map_err(CliError::new)
}

fn build_plan(args: &WorkloadArgs) -> Result<Plan, CliError> {
    let arrivals = match args.arrivals {
        ArrivalKind::Poisson => Arrivals::Poisson { rate_per_s: args.rate.unwrap_or(1.0) },
        ArrivalKind::Constant => Arrivals::Constant { rate_per_s: args.rate.unwrap_or(1.0) },
        ArrivalKind::Closed => {
            Arrivals::Closed { users: args.users.unwrap_or(1), ramp_s: args.ramp.unwrap_or(0.0) }
        }
        ArrivalKind::Trace => {
            let path = args.trace.as_deref().unwrap_or(Path::new(""));
            let shown = path.display();
            let file = File::open(path)
                .map_err(|error| CliError::new(format!("cannot read {shown}: {error}")))?;
            let rows = read_trace(BufReader::new(file))
                .map_err(|error| CliError::new(format!("{shown}: {error}")))?;
            Arrivals::Trace { rows: rows.into(), speed: args.trace_speed.unwrap_or(1.0) }
        }
    };
    let unsaid = if args.duration.is_some() || args.arrivals == ArrivalKind::Trace {
        confide_load::REQUESTS_MAX
    } else {
        REQUESTS
    };
    Plan::new(&Workload {
        arrivals,
        requests: args.requests.unwrap_or(unsaid),
        duration_s: args.duration,
        prompt_tokens: args.prompt_tokens,
        output_tokens: args.output_tokens,
        seed: args.seed,
    })
    .map_err(CliError::new)
}

fn parse_target(args: &Args, url: &str) -> Result<Target, CliError> {
    let model = args.model.as_deref().unwrap_or_default();
    let mut target = Target::parse(url, model).map_err(|error| {
        CliError::new(error).with_hint("for instance http://127.0.0.1:8000, or https://host/v1")
    })?;
    target.key = std::env::var(&args.connection.key_variable).ok().filter(|key| !key.is_empty());
    if target.key.as_ref().is_some_and(|key| !key.bytes().all(|byte| byte.is_ascii_graphic())) {
        let name = &args.connection.key_variable;
        return Err(CliError::new(format!("{name}: wanted visible ASCII characters, got others")));
    }
    if target.key.is_some() && !target.secure && !is_loopback(&target.host) {
        let name = &args.connection.key_variable;
        let message = format!("{name}: the key would go to {} in the clear", target.to_display());
        return Err(CliError::new(message).with_hint(
            "use https, or send no key: give --key-variable the name of an unset variable",
        ));
    }
    target.more = args.connection.fields.iter().cloned().collect();
    Ok(target)
}

fn build_transport(args: &Args, target: &Target) -> Result<Arc<dyn Transport>, CliError> {
    let connection = &args.connection;
    if let Some(path) = &connection.policy {
        if !target.secure {
            return Err(CliError::new("--policy: wanted an https address, got http"));
        }
        let attested = attested::AttestedTransport::new(
            target,
            path,
            connection.binding,
            connection.via.clone(),
        )?;
        return Ok(Arc::new(attested));
    }
    if !target.secure {
        let given = [
            ("--root", connection.root.is_some()),
            ("--pin-certificate", connection.pin_certificate.is_some()),
            ("--dangerous-skip-tls-verification", connection.dangerous_skip_tls_verification),
        ];
        if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
            return Err(CliError::new(format!("{option}: wanted an https address, got http")));
        }
        return Ok(Arc::new(TcpTransport::new(&target.host, target.port)));
    }
    let (host, port) = (&target.host, target.port);
    if connection.dangerous_skip_tls_verification {
        return Ok(Arc::new(
            TlsTransport::dangerous_unverified(host, port).map_err(CliError::new)?,
        ));
    }
    if let Some(sha256) = connection.pin_certificate {
        return Ok(Arc::new(TlsTransport::with_pin(host, port, sha256).map_err(CliError::new)?));
    }
    let roots = match &connection.root {
        None => Vec::new(),
        Some(path) => decode_chain("--root", &read_file(path, ROOT_BYTES_MAX)?)
            .map_err(|error| CliError::new(format!("{}: {error}", path.display())))?,
    };
    let tls = TlsTransport::new(host, port, &roots).map_err(CliError::new)?;
    Ok(Arc::new(tls))
}

/// Whether a host is this machine by its very name: no name is resolved here.
fn is_loopback(host: &str) -> bool {
    let address: Option<std::net::IpAddr> = host.parse().ok();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

fn load_options(args: &Args) -> Result<LoadOptions, CliError> {
    let connection = &args.connection;
    let deadline = Duration::try_from_secs_f64(connection.deadline)
        .map_err(|error| CliError::new(format!("--deadline: {error}")))?;
    let sessions = match connection.sessions {
        SessionsKind::New => ConnectionReuse::New,
        SessionsKind::Reused => ConnectionReuse::Reused { first: 0 },
    };
    let token_counter = args.tokenizer.as_deref().map(tokenizer::load_token_counter).transpose()?;
    let ceiling = if args.ceiling { measure_ceiling()?.ceiling } else { Ceiling::STATED };
    Ok(LoadOptions {
        threads: connection.threads,
        sessions,
        deadline,
        token_counter,
        ceiling,
        ..LoadOptions::default()
    })
}

fn build_log_head(
    args: &Args,
    plan: &Plan,
    target: &Target,
    transport: &dyn Transport,
    options: &LoadOptions,
) -> LogHead {
    let mut more = Map::new();
    more.insert("version".into(), format!("confide {}", env!("CARGO_PKG_VERSION")).into());
    more.insert("model".into(), json!(args.model));
    if let Some(path) = &args.tokenizer {
        more.insert("tokenizer".into(), json!(path));
    }
    more.insert("prompt_tokens".into(), json!(args.work.prompt_tokens));
    more.insert("output_tokens".into(), json!(args.work.output_tokens));
    more.insert("started_unix_s".into(), process::unix_now().into());
    LogHead {
        arrivals: args
            .work
            .arrivals
            .to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned()),
        seed: args.work.seed,
        requests: plan.requests.len() as u64,
        offered_per_s: plan.offered_rate_per_s(),
        duration_s: plan.duration_s,
        users: plan.users,
        target: target.to_display(),
        transport: transport.describe(),
        sessions: options.sessions.name().into(),
        limits: args.limits.unwrap_or_default(),
        more,
        ..LogHead::default()
    }
}

/// Counts the failures by their text.
fn count_errors(events: &[RequestRecord]) -> BTreeMap<String, u64> {
    let mut seen = BTreeMap::new();
    for error in events.iter().filter_map(|event| event.error.clone()) {
        *seen.entry(error).or_insert(0) += 1;
    }
    seen
}

/// The event log while it is written. A failure to write is reported at the end, because the run continues.
struct EventLog {
    path: PathBuf,
    writer: LogWriter<BufWriter<File>>,
    failed: Option<std::io::Error>,
}

impl EventLog {
    fn create(path: &Path, head: &LogHead) -> Result<Self, CliError> {
        let cannot = |error: std::io::Error| {
            CliError::new(format!("cannot write {}: {error}", path.display()))
        };
        let file = File::create(path).map_err(cannot)?;
        let writer = LogWriter::new(BufWriter::new(file), head).map_err(cannot)?;
        Ok(Self { path: path.to_owned(), writer, failed: None })
    }

    fn write_event(&mut self, event: &RequestRecord) {
        if self.failed.is_none() {
            self.failed = self.writer.write_event(event).err();
        }
    }

    fn finish(mut self, outcome: &LoadOutcome) -> Result<PathBuf, CliError> {
        let ended = self.failed.map_or_else(|| self.writer.write_client(&outcome.client), Err);
        ended.map_err(|error| {
            CliError::new(format!("cannot write {}: {error}", self.path.display()))
        })?;
        Ok(self.path)
    }
}

/// The requests so far, on standard error at a terminal.
struct LoadProgress {
    bar: ProgressBar,
    started: Instant,
    planned: usize,
    ended: usize,
    failed: usize,
}

impl LoadProgress {
    fn new(planned: usize) -> Self {
        let bar = ProgressBar::new(SHOW_EVERY, None);
        Self { bar, started: Instant::now(), planned, ended: 0, failed: 0 }
    }

    fn count_request(&mut self, event: Option<&RequestRecord>) {
        self.ended += usize::from(event.is_some());
        self.failed += usize::from(event.is_some_and(|event| !event.is_complete()));
        let (seconds, planned) = (self.started.elapsed().as_secs(), self.planned);
        let (ended, failed) = (self.ended, self.failed);
        self.bar
            .show(|| format!("{seconds} s: {ended} of {planned} requests ended, {failed} failed"));
    }
}

fn parse_lengths(text: &str) -> Result<TokenLengths, String> {
    TokenLengths::parse(text).ok_or_else(|| "wanted N or MIN..MAX, from 1 to 4000000".to_owned())
}

fn parse_sha256(text: &str) -> Result<[u8; 32], String> {
    let mut sha256 = [0; 32];
    let decoded = hex::decode_to_slice(text, &mut sha256);
    decoded.map(|()| sha256).map_err(|_| "wanted 64 hexadecimal digits".to_owned())
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent: Option<f64> = text.parse().ok();
    let inside = percent.filter(|percent| (0.0..=100.0).contains(percent));
    inside.ok_or_else(|| "wanted 0 to 100".to_owned())
}

fn parse_limits(text: &str) -> Result<GoodputLimits, String> {
    let wanted = "wanted ttft=MS,itl=MS,tpot=MS,e2e=MS, each at most once and above 0";
    GoodputLimits::parse(text).ok_or_else(|| wanted.to_owned())
}

fn parse_field(text: &str) -> Result<(String, Value), String> {
    let (name, json) = text.split_once('=').ok_or("wanted NAME=JSON")?;
    let value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value))
}

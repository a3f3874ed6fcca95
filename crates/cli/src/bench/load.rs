//! `confide bench load`.

mod attested;
mod table;

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
    Arrivals, Bound, Lengths, Limits, LogHead, Options, Outcome, Plan, RequestRecord, Sessions,
    Summary, Target, Tcp, Tls, Transport, Workload, Writer, read_trace,
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
/// The interval at which progress is shown.
const SHOW_EVERY: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The API: http[s]://HOST[:PORT][/PATH]; the path is /v1 where none is given
    #[arg(value_name = "URL")]
    url: String,
    /// The model to name in requests
    #[arg(long, value_name = "NAME")]
    model: String,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The limits of a good answer, in milliseconds: ttft=200,tpot=50,itl=50,e2e=5000
    #[arg(long, value_name = "LIMITS", value_parser = parse_limits)]
    limits: Option<Limits>,
    /// Write the event log to this file, one JSON line per request
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct WorkArgs {
    /// The rule by which requests start
    #[arg(long, value_enum, default_value_t = Kind::Poisson)]
    arrivals: Kind,
    /// Arrivals per second, for poisson and constant
    #[arg(long, value_name = "R", default_value_t = 1.0)]
    rate: f64,
    /// Users of a closed loop
    #[arg(long, value_name = "N", default_value_t = 1)]
    users: u32,
    /// Seconds over which the users start
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    ramp: f64,
    /// The trace: lines of {"timestamp": MS, "input_length": N, "output_length": N}
    #[arg(long, value_name = "FILE", required_if_eq("arrivals", "trace"))]
    trace: Option<PathBuf>,
    /// Play the trace faster by this factor
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    trace_speed: f64,
    /// Seconds within which requests start
    #[arg(long, value_name = "S")]
    duration: Option<f64>,
    /// At most this many requests; 100 where no duration is given
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// Tokens of each prompt: 128, or 64..256
    #[arg(long, value_name = "N", default_value = "128", value_parser = parse_lengths)]
    prompt_tokens: Lengths,
    /// Tokens asked for in each answer: 128, or 64..256
    #[arg(long, value_name = "N", default_value = "128", value_parser = parse_lengths)]
    output_tokens: Lengths,
    /// Seed of arrivals, prompts and lengths: the same seed is the same work
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
struct ConnectionArgs {
    /// A new connection for each request, or kept ones
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
    /// A further field of each request, NAME=JSON; null leaves one of ours out
    #[arg(long = "field", value_name = "NAME=JSON", value_parser = parse_field)]
    fields: Vec<(String, Value)>,
    /// Trust these certificates (PEM) instead of the machine's
    #[arg(long, value_name = "FILE", conflicts_with = "policy")]
    root: Option<PathBuf>,
    /// Attested TLS: the server's evidence has to pass this policy
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// How the server ties evidence to connections
    #[arg(long, value_enum, default_value_t = attested::BindingName::Key, requires = "policy")]
    binding: attested::BindingName,
    /// Reach the server through this tunnel: ws://HOST:PORT
    #[arg(long, value_name = "URL", requires = "policy")]
    via: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Open loop with independent exponential gaps
    Poisson,
    /// Open loop with equal gaps
    Constant,
    /// Open loop with the instants of --trace
    Trace,
    /// Closed loop, in which a slow server receives fewer requests: its latencies look too good
    Closed,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SessionsKind {
    New,
    #[value(name = "kept")]
    Reused,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let plan = Arc::new(build_plan(&args.work)?);
    let target = Arc::new(parse_target(args)?);
    let transport = build_transport(args, &target)?;
    let options = options(&args.connection)?;
    let head = build_head(args, &plan, &target, &*transport, &options);
    // Before the log exists: a reader who sees the file may already interrupt the run.
    let stop = confide_bench::stop_on_interrupt().map_err(CliError::new)?;
    let mut log = args.events.as_deref().map(|path| EventLog::create(path, &head)).transpose()?;
    let mut progress = LoadProgress::new(plan.requests.len());
    let outcome = confide_load::run(&plan, &target, &transport, &options, &stop, &mut |event| {
        progress.count(event);
        if let (Some(log), Some(event)) = (&mut log, event) {
            log.event(event);
        }
    });
    progress.bar.end();
    let outcome = outcome.map_err(|error| {
        CliError::new(error).hint("is the server up, and is the address that of the API?")
    })?;
    let written = log.map(|log| log.end(&outcome)).transpose()?;
    let summary = Summary::from_events(&outcome.events, head.limits);
    let bounds = Bound::find(&summary, &outcome.client);
    let report = table::LoadReport {
        head: &head,
        summary: &summary,
        client: &outcome.client,
        bounds: &bounds,
        errors: count_errors(&outcome.events),
        events: written.as_deref(),
    };
    let text = if args.json { report.json()? } else { report.table() };
    process::print_text(&text)?;
    Ok(exit_status(&summary, &bounds, stop.load(Ordering::Relaxed)))
}

fn exit_status(summary: &Summary, bounds: &[Bound], stopped: bool) -> ExitCode {
    match (stopped, summary.complete, bounds) {
        (true, ..) => ExitCode::from(INTERRUPTED),
        (_, 0, _) => ExitCode::from(FAILED),
        (_, _, []) => ExitCode::SUCCESS,
        _ => ExitCode::from(UNRELIABLE),
    }
}

fn build_plan(args: &WorkArgs) -> Result<Plan, CliError> {
    let arrivals = match args.arrivals {
        Kind::Poisson => Arrivals::Poisson { rate_per_s: args.rate },
        Kind::Constant => Arrivals::Constant { rate_per_s: args.rate },
        Kind::Closed => Arrivals::Closed { users: args.users, ramp_s: args.ramp },
        Kind::Trace => {
            let path = args.trace.as_deref().unwrap_or(Path::new(""));
            let shown = path.display();
            let file = File::open(path)
                .map_err(|error| CliError::new(format!("cannot read {shown}: {error}")))?;
            let rows = read_trace(BufReader::new(file))
                .map_err(|error| CliError::new(format!("{shown}: {error}")))?;
            Arrivals::Trace { rows: rows.into(), speed: args.trace_speed }
        }
    };
    let unsaid = if args.duration.is_some() || args.arrivals == Kind::Trace {
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

fn parse_target(args: &Args) -> Result<Target, CliError> {
    let mut target = Target::parse(&args.url, &args.model).map_err(|error| {
        CliError::new(error).hint("for instance http://127.0.0.1:8000, or https://host/v1")
    })?;
    target.key = std::env::var(&args.connection.key_variable).ok().filter(|key| !key.is_empty());
    if target.key.as_ref().is_some_and(|key| !key.bytes().all(|byte| byte.is_ascii_graphic())) {
        let name = &args.connection.key_variable;
        return Err(CliError::new(format!("{name}: wanted visible ASCII characters, got others")));
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
        return Ok(Arc::new(Tcp::new(&target.host, target.port)));
    }
    let roots = match &connection.root {
        None => Vec::new(),
        Some(path) => decode_chain("--root", &read_file(path, ROOT_BYTES_MAX)?)
            .map_err(|error| CliError::new(format!("{}: {error}", path.display())))?,
    };
    let tls = Tls::new(&target.host, target.port, &roots).map_err(CliError::new)?;
    Ok(Arc::new(tls))
}

fn options(connection: &ConnectionArgs) -> Result<Options, CliError> {
    let deadline = Duration::try_from_secs_f64(connection.deadline)
        .map_err(|error| CliError::new(format!("--deadline: {error}")))?;
    let sessions = match connection.sessions {
        SessionsKind::New => Sessions::New,
        SessionsKind::Reused => Sessions::Reused { first: 0 },
    };
    Ok(Options { threads: connection.threads, sessions, deadline, ..Options::default() })
}

fn build_head(
    args: &Args,
    plan: &Plan,
    target: &Target,
    transport: &dyn Transport,
    options: &Options,
) -> LogHead {
    let mut more = Map::new();
    more.insert("version".into(), format!("confide {}", env!("CARGO_PKG_VERSION")).into());
    more.insert("model".into(), args.model.clone().into());
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
        offered_per_s: plan.offered_per_s(),
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
    writer: Writer<BufWriter<File>>,
    failed: Option<std::io::Error>,
}

impl EventLog {
    fn create(path: &Path, head: &LogHead) -> Result<Self, CliError> {
        let cannot = |error: std::io::Error| {
            CliError::new(format!("cannot write {}: {error}", path.display()))
        };
        let file = File::create(path).map_err(cannot)?;
        let writer = Writer::new(BufWriter::new(file), head).map_err(cannot)?;
        Ok(Self { path: path.to_owned(), writer, failed: None })
    }

    fn event(&mut self, event: &RequestRecord) {
        if self.failed.is_none() {
            self.failed = self.writer.write_event(event).err();
        }
    }

    fn end(mut self, outcome: &Outcome) -> Result<PathBuf, CliError> {
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

    fn count(&mut self, event: Option<&RequestRecord>) {
        self.ended += usize::from(event.is_some());
        self.failed += usize::from(event.is_some_and(|event| !event.is_complete()));
        let (seconds, planned) = (self.started.elapsed().as_secs(), self.planned);
        let (ended, failed) = (self.ended, self.failed);
        self.bar
            .show(|| format!("{seconds} s: {ended} of {planned} requests ended, {failed} failed"));
    }
}

fn parse_lengths(text: &str) -> Result<Lengths, String> {
    Lengths::parse(text).ok_or_else(|| "wanted N or MIN..MAX, from 1 to 4000000".to_owned())
}

fn parse_limits(text: &str) -> Result<Limits, String> {
    let wanted = "wanted ttft=MS,itl=MS,tpot=MS,e2e=MS, each at most once and above 0";
    Limits::parse(text).ok_or_else(|| wanted.to_owned())
}

fn parse_field(text: &str) -> Result<(String, Value), String> {
    let (name, json) = text.split_once('=').ok_or("wanted NAME=JSON")?;
    let value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value))
}

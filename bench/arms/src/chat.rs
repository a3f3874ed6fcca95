//! Chat completions over one kind of channel: plain TLS, attested TLS, or `confide connect`.
//!
//! Every mode uses the same HTTP client and the same connection policy, so that arms differ in
//! the channel and in nothing else. Latency counts from the scheduled instant.

use std::{
    cell::Cell,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use confide_arm_line::{
    ArmError, Hello, Outcome, Report, Run, Sample, ServerProcesses, Stopwatch, read_file,
    serve_runs,
};
use confide_channel::Binding;
use confide_client::{ClientLimits, Connector, Endpoint, error_chain};
use confide_encrypted_body::BodyKem;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use crate::conversation::{ConversationParams, HttpConnection, stream_completion};
use crate::version::VERSION;
use crate::{clock::unix_now, trust::ChannelArgs};

#[derive(Clone, clap::Args)]
pub(crate) struct Args {
    /// `tls`: ordinary TLS. `key`, `session`: attested TLS with that binding. `loopback`: plain
    /// HTTP to a `confide connect`, which does the rest.
    #[arg(long)]
    mode: String,
    #[command(flatten)]
    channel: ChannelArgs,
    /// Collateral to use instead of the collateral that the server staples.
    #[arg(long)]
    collateral: Option<PathBuf>,
    /// The model's name in requests.
    #[arg(long, default_value = "sim")]
    model: String,
    /// Encrypt the bodies, to the gateway's key of this kind as well as by the channel.
    #[arg(long, value_name = "KEM", value_parser = ["x25519", "x-wing"])]
    encrypted_bodies: Option<String>,
    /// Open each session with a client of its own, which remembers no platform and no endorsements, as
    /// the client in WebAssembly does.
    #[arg(long)]
    without_memory: bool,
    /// A process whose CPU time is reported; may be given several times. It gets a core for itself
    #[arg(long = "server-pid", value_name = "PID")]
    server_pids: Vec<u32>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let server = ServerProcesses::new(&args.server_pids)?;
    let dialler = Dialler::new(&args)?;
    let body_kem = args.encrypted_bodies.as_deref().map(|kem| match kem {
        "x25519" => BodyKem::X25519,
        _ => BodyKem::XWing,
    });
    let dialler = SessionDialler { dialler, body_kem };
    let first = runtime.block_on(dialler.open())?;
    let tunnel = args.channel.describe_tunnel();
    let hello = Hello {
        simulated: first.simulated,
        guarantee: Some(first.guarantee.clone()),
        note: Some("collateral is stapled by the server or read from a file: never fetched".into()),
        ..Hello::new(format!("confide-arm chat, {}{tunnel}", args.mode), VERSION)
    };
    drop(first);
    let arm = ChatArm { runtime, dialler, server, model: args.model, is_warm: Cell::new(false) };
    serve_runs(&hello, |order| arm.measure(order))
}

struct ChatArm {
    runtime: Runtime,
    dialler: SessionDialler,
    /// The processes whose CPU time is reported; none for none.
    server: ServerProcesses,
    model: String,
    is_warm: Cell<bool>,
}

/// How connections are opened, and what their bodies are encrypted with.
struct SessionDialler {
    dialler: Dialler,
    body_kem: Option<BodyKem>,
}

impl SessionDialler {
    async fn open(&self) -> Outcome<HttpConnection> {
        let mut link = self.dialler.open().await?;
        if let Some(kem) = self.body_kem {
            link.encrypt_bodies(kem).await?;
        }
        Ok(link)
    }
}

/// How connections are opened.
enum Dialler {
    Channel(Box<Connector>),
    /// Each by a client of its own.
    WithoutMemory(Box<Args>),
    /// Ordinary TLS or none; the text is the guarantee.
    Loopback(String),
}

impl Dialler {
    fn new(args: &Args) -> Outcome<Self> {
        Ok(match args.mode.as_str() {
            "loopback" => Self::Loopback(args.channel.server.clone()),
            _ if args.without_memory => Self::WithoutMemory(Box::new(args.clone())),
            _ => Self::Channel(Box::new(Self::new_connector(args)?)),
        })
    }

    fn new_connector(args: &Args) -> Outcome<Connector> {
        let limits = ClientLimits::default();
        let endpoint = || Endpoint::parse(&format!("https://{}", args.channel.server));
        let attested = |binding| {
            let collateral = args.collateral.as_deref().map(read_file).transpose()?;
            let appraiser = Arc::new(args.channel.open_appraiser(collateral.as_deref())?);
            Ok::<_, ArmError>(Connector::with_appraiser(
                endpoint()?,
                args.channel.via.clone(),
                binding,
                appraiser,
                limits,
            )?)
        };
        match args.mode.as_str() {
            "key" => attested(Binding::Key),
            "session" => attested(Binding::Session),
            "tls" => {
                let root = args.channel.read_root()?;
                let via = args.channel.via.clone();
                Ok(Connector::dangerous_plain_tls(endpoint()?, via, &root, unix_now, limits)?)
            }
            other => Err(format!("--mode {other}: wanted tls, key, session or loopback").into()),
        }
    }

    async fn open(&self) -> Outcome<HttpConnection> {
        let connection = match self {
            Self::Loopback(address) => return HttpConnection::open_plain(address).await,
            Self::Channel(connector) => connector.connect().await,
            Self::WithoutMemory(args) => Self::new_connector(args)?.connect().await,
        };
        Ok(connection.map_err(|error| error_chain(&error))?.into())
    }
}

const KNOWN: &[&str] = &["delay_ms", "network", "rate_per_s", "session", "sessions", "tokens"];
/// Unmeasured requests at the start of a kept session.
const UNMEASURED: u32 = 2;
/// Unmeasured requests at the start of a process's first one, so that allocators, caches and the
/// frequency of a core have settled in every process of the chain.
const WARM_UP: u32 = 50;
/// The greatest number of tokens of an answer; the published reports ask for 200.
const TOKENS_MAX: u64 = 100_000;

impl ChatArm {
    fn measure(&self, run: &Run) -> Outcome<Report> {
        run.refuse_unknown_params(KNOWN)?;
        let order = ConversationParams {
            tokens: run.integer_param("tokens", 200)?.clamp(1, TOKENS_MAX),
            seed: run.seed,
            model: self.model.clone(),
        };
        let rate = run.params.get("rate_per_s").and_then(serde_json::Value::as_f64).unwrap_or(0.0);
        let kept = match run.text_param("session", "new")?.as_str() {
            "kept" => true,
            "new" => false,
            other => return Err(format!("param session: wanted new or kept, got {other}").into()),
        };
        // A connection has luck of its own (which threads serve it) that lasts as long as it does.
        let per_session = run.requests.div_ceil(run.integer_param("sessions", 1)?.max(1)).max(1);
        if self.server.cpu_s().is_some() {
            self.server.pin_threads()?;
        }
        let dialler = &self.dialler;
        self.runtime.block_on(async {
            let mut link = None;
            let mut unmeasured = 0;
            let server_began_s = self.server.cpu_s();
            let watch = Stopwatch::start();
            let start = Instant::now();
            let mut samples = Vec::new();
            for number in 0..run.requests {
                // The first request of a kept session opens the connection; it is not measured.
                if kept && number % per_session == 0 {
                    drop(link.take());
                    let mut opened = dialler.open().await?;
                    let warm_up = if self.is_warm.replace(true) { UNMEASURED } else { WARM_UP };
                    for _ in 0..warm_up {
                        stream_completion(&mut opened, &order, number, Instant::now()).await?;
                    }
                    unmeasured += u64::from(warm_up);
                    link = Some(opened);
                }
                let due = if rate > 0.0 {
                    wait_until(start + Duration::from_secs_f64(number as f64 / rate))
                } else {
                    Instant::now()
                };
                let mut sample =
                    measure_request(dialler, &mut link, kept, &order, number, due).await;
                sample.at_s = Some((due - start).as_secs_f64());
                samples.push(sample);
            }
            let mut report = Report { samples, ..watch.report() };
            if let Some((began_s, ended_s)) = server_began_s.zip(self.server.cpu_s()) {
                // An unmeasured request costs its server as much as the others.
                let requests = (run.requests + unmeasured).max(1);
                report.set("server_cpu_us", (ended_s - began_s) * 1e6 / requests as f64);
            }
            Ok(report)
        })
    }
}

/// Blocks until the scheduled instant; an event loop's timer would be up to a millisecond late.
/// Nothing else waits on this thread between two requests.
fn wait_until(due: Instant) -> Instant {
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
    due
}

/// One measured request; a failure is a sample that says so. `kept` is the link of a kept session.
async fn measure_request(
    dialler: &SessionDialler,
    kept_link: &mut Option<HttpConnection>,
    kept: bool,
    order: &ConversationParams,
    number: u64,
    due: Instant,
) -> Sample {
    let link = match kept_link.take() {
        Some(link) => Ok(link),
        None => dialler.open().await,
    };
    let connect = due.elapsed();
    let mut sample = Sample::default();
    let outcome = match link {
        Err(error) => Err(error),
        Ok(mut link) => {
            if !kept {
                sample.round_trips = Some(link.round_trips);
                sample.set("connect_ms", connect.as_secs_f64() * 1e3);
                sample.set("handshake_ms", link.handshake_ms);
                sample.set("quote_ms", link.quote_ms);
                sample.set("collateral_ms", link.collateral_ms);
                sample.set("appraisal_ms", link.appraisal_ms);
            } else {
                sample.round_trips = Some(0);
            }
            let result = stream_completion(&mut link, order, number, due).await;
            if kept {
                *kept_link = Some(link);
            }
            result
        }
    };
    match outcome {
        Err(error) => sample.error = Some(error.to_string()),
        Ok(result) => {
            let (ttft_s, total_s) = (result.first.as_secs_f64(), result.total.as_secs_f64());
            let generating_s = (total_s - ttft_s).max(1e-9);
            sample.set("ttft_ms", ttft_s * 1e3);
            sample.set("last_token_ms", result.last.as_secs_f64() * 1e3);
            sample.set("total_ms", total_s * 1e3);
            sample.set("answer_bytes", result.bytes as f64);
            sample.set("effective_tokens_per_s", result.tokens as f64 / total_s);
            let after_first = result.tokens.saturating_sub(1) as f64;
            sample.set("generation_tokens_per_s", after_first / generating_s);
            sample.answer = json!({ "tokens": result.tokens, "text_sha256": result.text_sha256 });
        }
    }
    sample
}

//! Chat completions over one kind of channel: plain TLS, attested TLS, or `confide connect`.
//!
//! Every mode uses the same HTTP client and the same connection policy, so that arms differ in
//! the channel and in nothing else. Latency counts from the scheduled instant.

use std::{
    cell::Cell,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use confide_arm_line::{Hello, Report, Run, Sample, Stopwatch, speak};
use confide_channel::Binding;
use confide_client::{ClientLimits, Connector, Endpoint, PolicyAppraiser, with_causes};
use confide_evidence::pem::decode_chain;
use confide_verifier::Policy;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use crate::{
    Outcome,
    conversation::{Link, Order, converse},
    read,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// `tls`: ordinary TLS. `key`, `session`: attested TLS with that binding. `loopback`: plain
    /// HTTP to a `confide connect`, which does the rest.
    #[arg(long)]
    mode: String,
    /// The server, HOST:PORT.
    #[arg(long)]
    server: String,
    /// The certificate that `tls` trusts (PEM).
    #[arg(long)]
    root: Option<PathBuf>,
    /// The policy of attested modes.
    #[arg(long)]
    policy: Option<PathBuf>,
    /// Collateral to use instead of what the server staples.
    #[arg(long)]
    collateral: Option<PathBuf>,
    /// A tunnel, ws://HOST:PORT.
    #[arg(long)]
    via: Option<String>,
    /// The model to name in requests.
    #[arg(long, default_value = "sim")]
    model: String,
}

pub(crate) fn run(args: Args) -> Outcome {
    let runtime =
        Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let door = Dialler::new(&args)?;
    let first = runtime.block_on(door.open())?;
    let tunnel = if args.via.is_some() { ", through the tunnel" } else { "" };
    let hello = Hello {
        arm: format!("confide-arm chat, {}{tunnel}", args.mode),
        version: format!("confide {}", env!("CARGO_PKG_VERSION")),
        simulated: first.simulated,
        guarantee: Some(first.guarantee.clone()),
        threads: 1,
        note: Some("collateral is stapled by the server or read from a file: never fetched".into()),
    };
    drop(first);
    let warm = Cell::new(false);
    speak(&hello, |order| chat(&runtime, &door, &args.model, &warm, order))
        .map_err(|error| error.to_string())
}

/// How connections are opened.
enum Dialler {
    Channel(Box<Connector>),
    /// Ordinary TLS or none; the text is the guarantee.
    Loopback(String),
}

impl Dialler {
    fn new(args: &Args) -> Outcome<Self> {
        let limits = ClientLimits::default();
        let endpoint = || {
            Endpoint::parse(&format!("https://{}", args.server)).map_err(|error| error.to_string())
        };
        let attested = |binding| {
            let appraiser = Arc::new(appraiser(args)?);
            Connector::with_appraiser(endpoint()?, args.via.clone(), binding, appraiser, limits)
                .map_err(|error| error.to_string())
        };
        let connector = match args.mode.as_str() {
            "loopback" => return Ok(Self::Loopback(args.server.clone())),
            "key" => attested(Binding::Key)?,
            "session" => attested(Binding::Session)?,
            "tls" => {
                let path = args.root.as_ref().ok_or("--mode tls needs --root FILE")?;
                let root =
                    decode_chain("--root", &read(path)?).map_err(|error| error.to_string())?;
                let root = root.first().ok_or("--root: no certificate in the file")?;
                let via = args.via.clone();
                Connector::dangerous_plain_tls(endpoint()?, via, root, unix_now, limits)
                    .map_err(|error| error.to_string())?
            }
            other => return Err(format!("--mode {other}: wanted tls, key, session or loopback")),
        };
        Ok(Self::Channel(Box::new(connector)))
    }

    async fn open(&self) -> Outcome<Link> {
        match self {
            Self::Loopback(address) => Link::plain(address).await,
            Self::Channel(connector) => {
                connector.connect().await.map(Link::from).map_err(|error| with_causes(&error))
            }
        }
    }
}

fn appraiser(args: &Args) -> Outcome<PolicyAppraiser> {
    let path = args.policy.as_ref().ok_or("attested modes need --policy FILE")?;
    let text = String::from_utf8(read(path)?).map_err(|error| error.to_string())?;
    let policy = Policy::from_toml(&text).map_err(|error| error.to_string())?;
    let collateral = args.collateral.as_ref().map(|path| read(path)).transpose()?;
    PolicyAppraiser::new(policy, collateral.as_deref(), unix_now).map_err(|e| with_causes(&e))
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

const KNOWN: &[&str] = &["delay_ms", "rate_per_s", "session", "sessions", "tokens"];
/// Requests that open a kept session.
const UNMEASURED: u32 = 2;
/// Requests that open the first one of a process, so that allocators, caches and the frequency of
/// a core have settled in every process of the chain.
const WARM_UP: u32 = 50;
/// The seed's reports ask for 200 tokens; nothing here needs more than this.
const TOKENS_MAX: u64 = 100_000;

fn chat(
    runtime: &Runtime,
    door: &Dialler,
    model: &str,
    warm: &Cell<bool>,
    run: &Run,
) -> Outcome<Report> {
    run.knows_only(KNOWN)?;
    let order = Order {
        tokens: run.number("tokens", 200)?.clamp(1, TOKENS_MAX),
        seed: run.seed,
        model: model.into(),
    };
    let rate = run.params.get("rate_per_s").and_then(serde_json::Value::as_f64).unwrap_or(0.0);
    let kept = match run.text("session", "new")?.as_str() {
        "kept" => true,
        "new" => false,
        other => return Err(format!("param session: wanted new or kept, got {other}")),
    };
    // A connection has luck of its own (which threads serve it) that lasts as long as it does.
    let per_session = run.requests.div_ceil(run.number("sessions", 1)?.max(1)).max(1);
    runtime.block_on(async {
        let mut link = None;
        let watch = Stopwatch::start();
        let start = Instant::now();
        let mut samples = Vec::new();
        for number in 0..run.requests {
            // The first request of a kept session opens the connection; it is not measured.
            if kept && number % per_session == 0 {
                drop(link.take());
                let mut opened = door.open().await?;
                let unmeasured = if warm.replace(true) { UNMEASURED } else { WARM_UP };
                for _ in 0..unmeasured {
                    converse(&mut opened, &order, number, Instant::now()).await?;
                }
                link = Some(opened);
            }
            let due = match rate > 0.0 {
                true => wait_until(start + Duration::from_secs_f64(number as f64 / rate)),
                false => Instant::now(),
            };
            let mut sample = request(door, &mut link, kept, &order, number, due).await;
            sample.at_s = Some((due - start).as_secs_f64());
            samples.push(sample);
        }
        let (wall_s, cpu_s) = watch.stop();
        Ok(Report { samples, wall_s, cpu_s, ..Report::default() })
    })
}

/// Blocks until the scheduled instant; an event loop's timer would be up to a millisecond late.
/// Nothing else waits on this thread between two requests.
fn wait_until(due: Instant) -> Instant {
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
    due
}

/// One measured request; a failure is a sample that says so. `kept` is the link of a kept session.
async fn request(
    door: &Dialler,
    kept_link: &mut Option<Link>,
    kept: bool,
    order: &Order,
    number: u64,
    due: Instant,
) -> Sample {
    let link = match kept_link.take() {
        Some(link) => Ok(link),
        None => door.open().await,
    };
    let connect = due.elapsed();
    let mut sample = Sample::default();
    let outcome = match link {
        Err(error) => Err(error),
        Ok(mut link) => {
            if !kept {
                sample.round_trips = Some(link.round_trips);
                let metrics = &mut sample.metrics;
                metrics.insert("connect_ms".into(), json!(connect.as_secs_f64() * 1e3));
                metrics.insert("handshake_ms".into(), json!(link.handshake_ms));
                metrics.insert("quote_ms".into(), json!(link.quote_ms));
                metrics.insert("collateral_ms".into(), json!(link.collateral_ms));
                metrics.insert("appraisal_ms".into(), json!(link.appraisal_ms));
            } else {
                sample.round_trips = Some(0);
            }
            let told = converse(&mut link, order, number, due).await;
            if kept {
                *kept_link = Some(link);
            }
            told
        }
    };
    match outcome {
        Err(error) => sample.error = Some(error),
        Ok(told) => {
            let (ttft_s, total_s) = (told.first.as_secs_f64(), told.total.as_secs_f64());
            let generating_s = (total_s - ttft_s).max(1e-9);
            let metrics = &mut sample.metrics;
            metrics.insert("ttft_ms".into(), json!(ttft_s * 1e3));
            metrics.insert("total_ms".into(), json!(total_s * 1e3));
            metrics.insert("effective_tokens_per_s".into(), json!(told.tokens as f64 / total_s));
            let after_first = told.tokens.saturating_sub(1) as f64;
            metrics.insert("generation_tokens_per_s".into(), json!(after_first / generating_s));
            sample.answer = json!({ "tokens": told.tokens, "text_sha256": told.text_sha256 });
        }
    }
    sample
}

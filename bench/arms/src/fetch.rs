//! `confide-arm fetch`: one answer of an HTTPS server, fetched plainly or through an attested notary.
//!
//! Both keep their own TLS session between requests, and whatever is verified once (certificate,
//! evidence) is verified before. The notary opens a session of its own to the server for each
//! request: that is what its statement speaks of. The clock runs from the request to the whole
//! answer; for a notarised one to the end of the holder's checks, so that what is timed is an answer
//! that may be kept.

pub(crate) mod host;
mod notarised;
mod plain;

use std::{
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clap::ValueEnum;
use confide_arm_line::{Hello, Report, Run, Sample, ServerSide, Stopwatch, speak};
use serde_json::{Map, json};
use sha2::{Digest, Sha256};
use tokio::runtime::Builder;

use self::{notarised::Notarised, plain::Plain};
use crate::Outcome;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How the answer is fetched
    #[arg(long, value_enum)]
    by: By,
    /// The server, ADDRESS:PORT
    #[arg(long)]
    host: String,
    /// The server's certificate (PEM), for `plain`
    #[arg(long)]
    root: Option<PathBuf>,
    /// The notary, ADDRESS:PORT
    #[arg(long)]
    notary: Option<String>,
    /// The policy by which the notary is judged
    #[arg(long)]
    policy: Option<PathBuf>,
    /// A process of the server's side; may be given several times
    #[arg(long = "server-pid", value_name = "PID")]
    server_pids: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum By {
    /// Over a TLS session of the client's own
    Plain,
    /// Over the session of a notary
    Notary,
}

/// Far above what a loaded machine needs for one step.
const DEADLINE: Duration = Duration::from_secs(20);

/// Longest answer that is asked for: below what a notary takes by default.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// One answer, with what was spent on it beside the waiting.
struct Fetched {
    body: Vec<u8>,
    figures: Vec<(&'static str, f64)>,
}

enum FetchPath {
    Plain(Plain),
    Notarised(Box<Notarised>),
}

pub(crate) fn run(args: Args) -> Outcome {
    let runtime =
        Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let server = ServerSide::new(&args.server_pids).map_err(|error| error.to_string())?;
    let mut way = runtime.block_on(open(&args))?;
    let (guarantee, simulated) = match &way {
        FetchPath::Plain(_) => ("none: the client alone knows what was answered".into(), false),
        FetchPath::Notarised(notarised) => (notarised.guarantee(), notarised.is_simulated()),
    };
    let hello = Hello {
        arm: format!("{:?} fetch, a kept session", args.by).to_lowercase(),
        version: format!("confide {}, rustls, aws-lc-rs", env!("CARGO_PKG_VERSION")),
        simulated,
        guarantee: Some(guarantee),
        threads: 1,
        note: Some(server.describe()),
    };
    speak(&hello, |order| measure(order, &server, |path| runtime.block_on(way.fetch(path))))
        .map_err(|error| error.to_string())
}

async fn open(args: &Args) -> Outcome<FetchPath> {
    match args.by {
        By::Plain => {
            let root = args.root.as_ref().ok_or("--by plain needs --root FILE")?;
            Plain::open(&args.host, root).await.map(FetchPath::Plain)
        }
        By::Notary => {
            let notary = args.notary.as_ref().ok_or("--by notary needs --notary ADDRESS:PORT")?;
            let policy = args.policy.as_ref().ok_or("--by notary needs --policy FILE")?;
            let opened = Notarised::open(&args.host, notary, policy).await?;
            Ok(FetchPath::Notarised(Box::new(opened)))
        }
    }
}

impl FetchPath {
    async fn fetch(&mut self, path: &str) -> Outcome<Fetched> {
        match self {
            FetchPath::Plain(plain) => plain.fetch(path).await,
            FetchPath::Notarised(notarised) => notarised.fetch(path).await,
        }
    }
}

fn measure(
    order: &Run,
    server: &ServerSide,
    mut fetch: impl FnMut(&str) -> Outcome<Fetched>,
) -> Outcome<Report> {
    order.knows_only(&["body_bytes"])?;
    let body_bytes = order.number("body_bytes", 1024)?;
    if !(host::BODY_BYTES_MIN..=BODY_BYTES_MAX).contains(&body_bytes) {
        return Err(format!("body_bytes: wanted at most {BODY_BYTES_MAX}, got {body_bytes}"));
    }
    let path = format!("/{body_bytes}");
    let before = server.cpu_s();
    let watch = Stopwatch::start();
    let mut report = Report::default();
    for _ in 0..order.requests {
        let began = Instant::now();
        let Fetched { body, figures } = fetch(&path)?;
        let mut metrics = Map::new();
        metrics.insert("fetch_ms".into(), json!(began.elapsed().as_secs_f64() * 1e3));
        for (name, value) in figures {
            metrics.insert(name.into(), json!(value));
        }
        let digest = hex::encode(Sha256::digest(&body));
        let answer = json!({ "body_bytes": body.len(), "body_sha256": digest });
        report.samples.push(Sample { metrics, answer, ..Sample::default() });
    }
    (report.wall_s, report.cpu_s) = watch.stop();
    if let Some((before, after)) = before.zip(server.cpu_s()) {
        let each_ms = (after - before) * 1e3 / order.requests.max(1) as f64;
        report.metrics.insert("server_cpu_ms".into(), json!(each_ms));
    }
    Ok(report)
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

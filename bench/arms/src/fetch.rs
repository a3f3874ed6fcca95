//! `confide-arm fetch`: one answer of an HTTPS server, fetched plainly or through an attested notary.
//!
//! Both keep their own TLS session between requests, and whatever is verified once (certificate,
//! evidence) is verified before. The notary opens a session of its own to the server for each
//! request: that is what its statement speaks of. The clock runs from the request to the whole
//! answer; for a notarised one to the end of the holder's checks, so that what is timed is an answer
//! that may be kept.

mod answer;
pub(crate) mod host;
mod notarised;
mod plain;

use std::{path::PathBuf, time::Instant};

use clap::ValueEnum;
use confide_arm_line::{Hello, Outcome, Report, Run, Sample, ServerProcesses, serve_runs};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::runtime::Builder;

use self::{
    answer::{BODY_BYTES_MAX, FetchedAnswer},
    host::BODY_BYTES_MIN,
    notarised::NotarisedFetcher,
    plain::PlainFetcher,
};
use crate::version::VERSION_WITH_TLS;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The session over which the answer is fetched
    #[arg(long, value_enum)]
    by: FetchRoute,
    /// The server, ADDRESS:PORT
    #[arg(long)]
    host: String,
    /// The server's certificate (PEM), for `plain`
    #[arg(long)]
    root: Option<PathBuf>,
    /// The notary, ADDRESS:PORT
    #[arg(long)]
    notary: Option<String>,
    /// The policy by which the notary is appraised
    #[arg(long)]
    policy: Option<PathBuf>,
    /// A process of the server's side; may be given several times
    #[arg(long = "server-pid", value_name = "PID")]
    server_pids: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum FetchRoute {
    /// Over a TLS session of the client's own
    Plain,
    /// Over the session of a notary
    Notary,
}

enum Fetcher {
    Plain(PlainFetcher),
    Notarised(Box<NotarisedFetcher>),
}

pub(crate) fn run(args: Args) -> Outcome {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let server = ServerProcesses::new(&args.server_pids)?;
    let mut fetcher = runtime.block_on(open_fetcher(&args))?;
    let (guarantee, simulated) = match &fetcher {
        Fetcher::Plain(_) => ("none: the client alone knows what was answered".into(), false),
        Fetcher::Notarised(notarised) => (notarised.guarantee(), notarised.is_simulated()),
    };
    let hello = Hello {
        simulated,
        guarantee: Some(guarantee),
        note: Some(server.describe_pinning()),
        ..Hello::new(
            format!("{:?} fetch, a kept session", args.by).to_lowercase(),
            VERSION_WITH_TLS,
        )
    };
    serve_runs(&hello, |order| {
        measure(order, &server, |path| runtime.block_on(fetcher.fetch(path)))
    })
}

async fn open_fetcher(args: &Args) -> Outcome<Fetcher> {
    match args.by {
        FetchRoute::Plain => {
            let root = args.root.as_ref().ok_or("--by plain needs --root FILE")?;
            PlainFetcher::open(&args.host, root).await.map(Fetcher::Plain)
        }
        FetchRoute::Notary => {
            let notary = args.notary.as_ref().ok_or("--by notary needs --notary ADDRESS:PORT")?;
            let policy = args.policy.as_ref().ok_or("--by notary needs --policy FILE")?;
            let opened = NotarisedFetcher::open(&args.host, notary, policy).await?;
            Ok(Fetcher::Notarised(Box::new(opened)))
        }
    }
}

impl Fetcher {
    async fn fetch(&mut self, path: &str) -> Outcome<FetchedAnswer> {
        match self {
            Fetcher::Plain(plain) => plain.fetch(path).await,
            Fetcher::Notarised(notarised) => notarised.fetch(path).await,
        }
    }
}

fn measure(
    order: &Run,
    server: &ServerProcesses,
    mut fetch: impl FnMut(&str) -> Outcome<FetchedAnswer>,
) -> Outcome<Report> {
    order.refuse_unknown_params(&["body_bytes"])?;
    let limits = BODY_BYTES_MIN..=BODY_BYTES_MAX;
    let body_bytes = order.integer_param_within("body_bytes", 1024, limits)?;
    let path = format!("/{body_bytes}");
    let before = server.cpu_s();
    let mut report = order.measure_each(|_| {
        let began = Instant::now();
        let FetchedAnswer { body, figures } = fetch(&path)?;
        let mut sample = Sample::new([("fetch_ms", began.elapsed().as_secs_f64() * 1e3)]);
        figures.into_iter().for_each(|(name, value)| sample.set(name, value));
        let digest = hex::encode(Sha256::digest(&body));
        sample.answer = json!({ "body_bytes": body.len(), "body_sha256": digest });
        Ok(sample)
    })?;
    if let Some((before, after)) = before.zip(server.cpu_s()) {
        let each_ms = (after - before) * 1e3 / order.requests.max(1) as f64;
        report.set("server_cpu_ms", each_ms);
    }
    Ok(report)
}

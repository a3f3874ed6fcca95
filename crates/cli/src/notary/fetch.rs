//! `confide notary fetch`: one request through a verified notary, whose signed statement is saved.

use std::{
    io::Read,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    time::Instant,
};

use confide_disclosure::NotarisedSession;
use confide_notary::{FetchRequest, limits::REQUEST_BYTES_CEILING};
use serde_json::json;

use super::verified::{NotaryArgs, VerifiedKey, VerifiedNotary};
use crate::{
    error::CliError,
    files::{read_file, read_text},
    new_file::NewFile,
    process,
    refusal::STATUS_REFUSED,
    time::NOTARY_CLOCK,
};

/// The longest file of request fields.
const HEADER_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Clocks that differ by more than this are reported.
const CLOCK_DIFFERENCE_S: u64 = 120;

/// Fields that are sent unless the caller gives them.
const DEFAULT_FIELDS: [(&str, &str); 3] =
    [("accept", "*/*"), ("accept-encoding", "gzip"), ("user-agent", "confide")];

/// The arguments of `confide notary fetch`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// URL to fetch: https://HOST[:PORT][/PATH][?QUERY]
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    notary: NotaryArgs,
    /// A field of the request, `name: value`; may be given several times
    #[arg(long, value_name = "FIELD")]
    header: Vec<String>,
    /// File with fields of the request, one per line; this keeps secrets out of the process list
    #[arg(long, value_name = "FILE")]
    header_file: Option<PathBuf>,
    /// The body of the request; `-` is standard input
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// The method; by default GET, or POST with --data
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Write the body of the answer to standard output as it arrives, before it is signed
    #[arg(long)]
    print: bool,
    /// Write the holder's file here; it must not exist yet, because a statement cannot be obtained
    /// again. It contains everything, secrets included; `confide disclose` extracts what others may
    /// see
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let request = build_request(&args)?;
    // A file that cannot be written fails before anything is requested.
    let out = NewFile::create_secret_once(&args.out, "nothing was fetched")?;
    process::block_on(async {
        let stop = pin!(process::stop_signal());
        tokio::select! {
            biased;
            () = stop => Err(CliError::new("interrupted: nothing was saved")),
            outcome = fetch_and_save(&args, request, out) => outcome,
        }
    })?
}

async fn fetch_and_save(
    args: &Args,
    request: FetchRequest,
    out: NewFile,
) -> Result<ExitCode, CliError> {
    let began = Instant::now();
    let mut notary = VerifiedNotary::connect(&args.notary).await?;
    let connect_ms = began.elapsed().as_secs_f64() * 1000.0;
    let began = Instant::now();
    let (request, received) = notary.fetch(request, |piece| print_body(args.print, piece)).await?;
    let key = notary.key();
    let notarised =
        received.check(&request, key.bound.clone(), &key.validity).map_err(|error| {
            CliError::new(format!("the notary's answer is refused: {error}"))
                .with_hint("nothing was saved")
                .with_status(STATUS_REFUSED)
        })?;
    let fetch_ms = began.elapsed().as_secs_f64() * 1000.0;
    out.save(&notarised.encode())?;
    warn_of_clock_difference(notarised.statement.time);
    let summary = summary_json(args, key, &notarised, [connect_ms, fetch_ms]);
    if args.print {
        eprintln!("{summary}");
    } else {
        process::print_text(&format!("{summary}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a piece of the body. Without a reader the exchange goes on: its statement is saved.
fn print_body(is_wanted: bool, piece: &[u8]) -> Result<(), CliError> {
    if is_wanted { process::print_bytes(piece).map(|_| ()) } else { Ok(()) }
}

fn build_request(args: &Args) -> Result<FetchRequest, CliError> {
    let body = match &args.data {
        None => Vec::new(),
        Some(path) if path == Path::new("-") => {
            let mut body = Vec::new();
            let limit = REQUEST_BYTES_CEILING as u64 + 1;
            let read = std::io::stdin().lock().take(limit).read_to_end(&mut body);
            read.map_err(|error| CliError::new(format!("cannot read standard input: {error}")))?;
            body
        }
        Some(path) => read_file(path, REQUEST_BYTES_CEILING as u64)?,
    };
    let default_method = if args.data.is_some() { "POST" } else { "GET" };
    let method = args.method.as_deref().unwrap_or(default_method);
    let fields = read_request_fields(args)?;
    // The signing key is set once it is verified.
    FetchRequest::new(method, &args.url, fields, body, [0; 32]).map_err(|error| {
        CliError::new(error).with_hint("docs/notary.md says what a request may hold")
    })
}

fn read_request_fields(args: &Args) -> Result<Vec<(String, String)>, CliError> {
    let mut lines = args.header.clone();
    if let Some(path) = &args.header_file {
        let text = read_text(path, HEADER_FILE_BYTES_MAX, "fields")?;
        lines.extend(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned));
    }
    let mut fields = Vec::new();
    for line in &lines {
        // The line may be a secret, so it is not repeated.
        let (name, value) = line.split_once(':').ok_or_else(|| {
            CliError::new("a request field has no colon")
                .with_hint("for instance --header 'accept: */*'")
        })?;
        fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
    let json = args.data.as_ref().map(|_| ("content-type", "application/json"));
    for (name, value) in DEFAULT_FIELDS.into_iter().chain(json) {
        if !fields.iter().any(|(known, _)| known == name) {
            fields.push((name.into(), value.into()));
        }
    }
    Ok(fields)
}

fn warn_of_clock_difference(time: u64) {
    let differs = time.abs_diff(process::unix_now());
    if differs > CLOCK_DIFFERENCE_S {
        tracing::warn!(differs_s = differs, "the notary's clock differs from that of this machine");
    }
}

fn summary_json(
    args: &Args,
    key: &VerifiedKey,
    notarised: &NotarisedSession,
    [connect_ms, fetch_ms]: [f64; 2],
) -> serde_json::Value {
    let statement = &notarised.statement;
    let verdict = key.appraised.verdict().to_json();
    json!({
        "saved": args.out.display().to_string(),
        "host": statement.host,
        "port": statement.port,
        "status": http_status(notarised),
        "http": statement.http.as_str(),
        "tls": statement.tls.version().as_str(),
        "key_exchange": statement.tls.group().as_str(),
        "key_exchange_is_post_quantum": statement.tls.group().is_post_quantum(),
        "cipher_suite": statement.tls.suite().as_str(),
        "certificate_chain_hash": hex::encode(statement.certificate_chain_hash),
        "time": statement.time,
        "time_from": NOTARY_CLOCK,
        "request_fields_from": statement.request_view.as_str(),
        "response_fields_from": statement.response_view.as_str(),
        "request_bytes": notarised.sent.len(),
        "response_bytes": notarised.received.len(),
        "guarantee": key.appraised.guarantee(),
        "claimed_guarantee": key.appraised.claimed_guarantee(),
        "simulated": key.appraised.is_simulated(),
        "scope": verdict["scope"],
        "root": verdict["root"],
        "config_digest": verdict["claims"]["config_digest"],
        "connect_ms": connect_ms,
        "fetch_ms": fetch_ms,
    })
}

fn http_status(notarised: &NotarisedSession) -> Option<u16> {
    let field = notarised.fields.iter().find(|field| field.path == "response.status")?;
    std::str::from_utf8(&field.value).ok()?.parse().ok()
}

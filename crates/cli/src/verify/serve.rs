//! `confide verify serve`: appraisal over HTTP.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use confide_appraiser::PolicyAppraiser;
use confide_attestation_service::{
    OwnEvidence, Policies, PolicyEntry, RESULT_LIFETIME_MAX, ServiceLimits, ServiceOptions,
    SigningKey,
};
use confide_evidence::collateral::COLLATERAL_LENGTH_MAX;
use confide_verifier::Policy;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::{
    address::listen_address,
    attest::chosen::AttesterArgs,
    error::{CliError, read_file},
    policy, process,
};

/// A P-256 key in PKCS#8 has 138 bytes.
const KEY_BYTES_MAX: u64 = 4 * 1024;

/// Plain HTTP: it belongs on loopback, or behind `confide gateway`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address to listen at; port 0 takes any free one.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address,
          default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// A policy and the name that callers use for it; may be given several times.
    #[arg(long, value_name = "NAME=FILE", required = true)]
    policy: Vec<String>,
    /// Endorsements for requests that bring none: QuoteCollateralV3, JSON.
    #[arg(long, value_name = "FILE")]
    collateral: Option<PathBuf>,
    /// `aud` of every result: who the results are for.
    #[arg(long, value_name = "TEXT")]
    audience: String,
    /// `iss` of every result.
    #[arg(long, value_name = "TEXT", default_value = "confide")]
    issuer: String,
    /// How long a result holds, in seconds.
    #[arg(long, value_name = "N", default_value_t = RESULT_LIFETIME_MAX.as_secs(),
          value_parser = clap::value_parser!(u64).range(1..=RESULT_LIFETIME_MAX.as_secs()))]
    lifetime_s: u64,
    /// The signing key: P-256, PKCS#8, DER; without it one is made that dies with the process.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    attester: AttesterArgs,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let options = options(&args)?;
    process::run_to_end(serve(&args, options))??;
    Ok(ExitCode::SUCCESS)
}

async fn serve(args: &Args, options: ServiceOptions) -> Result<(), CliError> {
    let stop = process::asked_to_stop();
    let (listener, address) = process::listen(args.listen).await?;
    if !address.ip().is_loopback() {
        tracing::warn!("{address} is not loopback: evidence and results travel in the clear there");
    }
    process::print_ready(address, guarantee(&options), more(args, &options));
    if let Err(error) = confide_attestation_service::serve(listener, options, stop).await {
        tracing::warn!(%error, "cut after the drain deadline");
    }
    Ok(())
}

/// Requests and results travel in the clear; what evidence can show is where the key lives.
fn guarantee(options: &ServiceOptions) -> &'static str {
    match &options.own_evidence {
        None => "none",
        Some(evidence) if evidence.is_simulated() => "none (simulated)",
        Some(_) => "results are signed by an attested key",
    }
}

fn more(args: &Args, options: &ServiceOptions) -> Map<String, Value> {
    let names = args.policy.iter().filter_map(|given| given.split_once('='));
    let names: Vec<Value> = names.map(|(name, _)| name.into()).collect();
    let mut fields = Map::new();
    fields.insert("policies".into(), names.into());
    fields.insert("kid".into(), options.key.kid().into());
    // Whose evidence is simulated stands beside it: the service's own says nothing of its callers'.
    let own = match &options.own_evidence {
        None => "none",
        Some(evidence) if evidence.is_simulated() => "simulated",
        Some(_) => "device",
    };
    fields.insert("own_evidence".into(), own.into());
    fields.insert("never_affirming".into(), options.policies.never_affirming().into());
    fields
}

fn options(args: &Args) -> Result<ServiceOptions, CliError> {
    let collateral = match &args.collateral {
        None => None,
        Some(path) => Some(read_file(path, COLLATERAL_LENGTH_MAX as u64)?),
    };
    let entries: Result<Vec<_>, CliError> =
        args.policy.iter().map(|given| entry(given, collateral.as_deref())).collect();
    let entries = entries?;
    let configuration = configuration_digest(args, &entries);
    let policies = Policies::new(entries)
        .map_err(|error| CliError::new(error).hint("for instance --policy fleet=policy.toml"))?;
    Ok(ServiceOptions {
        policies,
        key: key(args.key.as_deref())?,
        issuer: args.issuer.clone(),
        audience: args.audience.clone(),
        lifetime: Duration::from_secs(args.lifetime_s),
        own_evidence: own_evidence(args, configuration)?,
        limits: ServiceLimits::default(),
        clock: process::unix_now,
    })
}

fn entry(given: &str, collateral: Option<&[u8]>) -> Result<(String, PolicyEntry), CliError> {
    let Some((name, path)) = given.split_once('=') else {
        return Err(CliError::new(format!("--policy {given}: wanted NAME=FILE"))
            .hint("callers name policies; the file is the server's"));
    };
    let path = Path::new(path);
    let text = policy::file::text(path)?;
    let sha256 = Sha256::digest(&text).into();
    let policy =
        Policy::from_toml(&text).map_err(|error| policy::file::cannot_use(path, &error))?;
    let appraiser = PolicyAppraiser::new(policy, collateral, process::unix_now)
        .map_err(|error| CliError::new(error).hint("--collateral takes QuoteCollateralV3 JSON"))?;
    Ok((name.to_owned(), PolicyEntry { appraiser: Arc::new(appraiser), sha256 }))
}

fn key(path: Option<&Path>) -> Result<SigningKey, CliError> {
    let Some(path) = path else { return SigningKey::generate().map_err(CliError::new) };
    let der = Zeroizing::new(read_file(path, KEY_BYTES_MAX)?);
    SigningKey::from_pkcs8(&der).map_err(|error| {
        CliError::new(format!("{}: {error}", path.display())).hint(
            "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -outform der -out FILE \
             makes one",
        )
    })
}

/// SHA-256 of what this service is set up to do: who issues results, for whom, for how long, and by
/// which policies.
fn configuration_digest(args: &Args, entries: &[(String, PolicyEntry)]) -> [u8; 32] {
    let mut digest = Sha256::new().chain_update(b"confide attestation service v1\0");
    for text in [&args.issuer, &args.audience] {
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text);
    }
    digest.update(args.lifetime_s.to_be_bytes());
    let mut policies: Vec<_> = entries.iter().collect();
    policies.sort_by_key(|(name, _)| name);
    for (name, entry) in policies {
        digest.update((name.len() as u64).to_be_bytes());
        digest.update(name);
        digest.update(entry.sha256);
    }
    digest.finalize().into()
}

fn own_evidence(args: &Args, configuration: [u8; 32]) -> Result<Option<OwnEvidence>, CliError> {
    if args.attester.gpu_index.is_some() {
        return Err(CliError::new("evidence of a GPU is not shown by this service")
            .hint("leave --gpu-index out"));
    }
    let Some(attester) = args.attester.open(None)? else { return Ok(None) };
    let guarantee = "operator is outside the TEE".to_owned();
    Ok(Some(OwnEvidence::new(attester, configuration, guarantee)))
}

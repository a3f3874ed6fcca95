//! `confide verify serve`: appraisal over HTTP, with signed results.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use confide_appraiser::PolicyAppraiser;
use confide_attestation_service::{
    OwnEvidence, PolicyEntry, PolicySet, RESULT_LIFETIME_MAX, ServiceLimits, ServiceOptions,
    SigningKey,
};
use confide_evidence::collateral::COLLATERAL_LENGTH_MAX;
use confide_verifier::Policy;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::{
    attest::arguments::AttesterArgs,
    error::CliError,
    files::{read_file, read_optional_file},
    policy, process,
    server_flags::PlainServerArgs,
};

/// The longest file of a key, in bytes: a P-256 key in PKCS#8 has 138.
const KEY_BYTES_MAX: u64 = 4 * 1024;

/// Serves plain HTTP: run it on loopback, or behind `confide gateway`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    plain: PlainServerArgs,
    /// A policy and the name that callers use for it; may be given several times.
    #[arg(long, value_name = "NAME=FILE", required = true)]
    policy: Vec<String>,
    /// Endorsements for requests that contain none: QuoteCollateralV3, JSON.
    #[arg(long, value_name = "FILE")]
    collateral: Option<PathBuf>,
    /// `aud` of every result: the audience of the results.
    #[arg(long, value_name = "TEXT")]
    audience: String,
    /// `iss` of every result.
    #[arg(long, value_name = "TEXT", default_value = "confide")]
    issuer: String,
    /// Lifetime of a result, in seconds.
    #[arg(long, value_name = "N", default_value_t = RESULT_LIFETIME_MAX.as_secs(),
          value_parser = clap::value_parser!(u64).range(1..=RESULT_LIFETIME_MAX.as_secs()))]
    lifetime_s: u64,
    /// The signing key: P-256, PKCS#8, DER; by default a new one that exists only in this process.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    attester: AttesterArgs,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let options = service_options(&args)?;
    process::block_on(serve(&args, options))??;
    Ok(ExitCode::SUCCESS)
}

async fn serve(args: &Args, options: ServiceOptions) -> Result<(), CliError> {
    let stop = process::stop_signal();
    let (listener, address) = args.plain.listen(Some("evidence and results")).await?;
    process::print_ready(address, guarantee(&options), ready_line_fields(args, &options));
    if let Err(error) = confide_attestation_service::serve(listener, options, stop).await {
        tracing::warn!(%error, "open connections were cut at the drain deadline");
    }
    Ok(())
}

/// The guarantee: requests and results travel in the clear, and evidence can show only where the key lives.
fn guarantee(options: &ServiceOptions) -> &'static str {
    match &options.own_evidence {
        None => "none",
        Some(evidence) if evidence.is_simulated() => "none (simulated)",
        Some(_) => "results are signed by an attested key",
    }
}

fn ready_line_fields(args: &Args, options: &ServiceOptions) -> Value {
    let names = args.policy.iter().filter_map(|given| given.split_once('='));
    let names: Vec<&str> = names.map(|(name, _)| name).collect();
    // Whether the service's own evidence is simulated says nothing about that of its callers.
    let own_evidence = match &options.own_evidence {
        None => "none",
        Some(evidence) if evidence.is_simulated() => "simulated",
        Some(_) => "device",
    };
    json!({
        "policies": names,
        "kid": options.key.kid(),
        "own_evidence": own_evidence,
        "never_affirming": options.policies.non_affirming_names(),
    })
}

fn service_options(args: &Args) -> Result<ServiceOptions, CliError> {
    let collateral = read_optional_file(args.collateral.as_deref(), COLLATERAL_LENGTH_MAX as u64)?;
    let entries: Result<Vec<_>, CliError> =
        args.policy.iter().map(|given| read_policy_entry(given, collateral.as_deref())).collect();
    let entries = entries?;
    let configuration = configuration_digest(args, &entries);
    let policies = PolicySet::new(entries).map_err(|error| {
        CliError::new(error).with_hint("for instance --policy fleet=policy.toml")
    })?;
    Ok(ServiceOptions {
        policies,
        key: load_signing_key(args.key.as_deref())?,
        issuer: args.issuer.clone(),
        audience: args.audience.clone(),
        lifetime: Duration::from_secs(args.lifetime_s),
        own_evidence: own_evidence(args, configuration)?,
        limits: ServiceLimits::default(),
        clock: process::unix_now,
    })
}

fn read_policy_entry(
    given: &str,
    collateral: Option<&[u8]>,
) -> Result<(String, PolicyEntry), CliError> {
    let Some((name, path)) = given.split_once('=') else {
        return Err(CliError::new(format!("--policy {given}: wanted NAME=FILE"))
            .with_hint("callers name the policy by NAME; the server reads it from FILE"));
    };
    let path = Path::new(path);
    let text = policy::file::read_policy_text(path)?;
    let sha256 = Sha256::digest(&text).into();
    let policy =
        Policy::from_toml(&text).map_err(|error| policy::file::explain_error(path, &error))?;
    let appraiser =
        PolicyAppraiser::new(policy, collateral, process::unix_now).map_err(|error| {
            CliError::new(error).with_hint("give --collateral QuoteCollateralV3 JSON")
        })?;
    Ok((name.to_owned(), PolicyEntry { appraiser: Arc::new(appraiser), sha256 }))
}

fn load_signing_key(path: Option<&Path>) -> Result<SigningKey, CliError> {
    let Some(path) = path else { return SigningKey::generate().map_err(CliError::new) };
    let der = Zeroizing::new(read_file(path, KEY_BYTES_MAX)?);
    SigningKey::from_pkcs8(&der).map_err(|error| {
        CliError::in_file(path)(error).with_hint(
            "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -outform der -out FILE \
             makes one",
        )
    })
}

/// SHA-256 of the configuration of the service: issuer, audience, lifetime and policies.
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
        return Err(CliError::new("this service does not show evidence of a GPU")
            .with_hint("omit --gpu-index"));
    }
    let Some(attester) = args.attester.open_attester(None)? else { return Ok(None) };
    let guarantee = "operator is outside the TEE".to_owned();
    Ok(Some(OwnEvidence::new(attester, configuration, guarantee)))
}

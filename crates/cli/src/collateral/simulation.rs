//! `confide collateral serve --simulate`: a service over a fake root, with faults on demand.

use std::{path::Path, sync::Arc};

use confide_fake_attester::FakeAttester;
use confide_pccs::{DocumentSource, Faults, Latency, RequestLimit, ServedEdition, Simulation};

use super::simulated_documents::SimulatedDocuments;
use crate::error::CliError;

/// The faults of a simulated service; POST the same to /simulate while it runs.
///
/// They conflict with `--database`: clap waives a requirement that conflicts with what is given.
#[derive(clap::Args)]
pub(super) struct FaultArgs {
    /// Delay of each answer in milliseconds, or `real`: 225 to 300 ms, like Intel's service
    #[arg(long, conflicts_with = "database", value_name = "MS|real", value_parser = parse_latency)]
    latency: Option<Latency>,
    /// Share of requests answered with status 500, from 0 to 1
    #[arg(long, conflicts_with = "database", value_name = "SHARE")]
    failure_rate: Option<f64>,
    /// Share of requests whose answer is cut in mid-body, from 0 to 1
    #[arg(long, conflicts_with = "database", value_name = "SHARE")]
    truncated_rate: Option<f64>,
    /// Share of requests that are never answered, from 0 to 1
    #[arg(long, conflicts_with = "database", value_name = "SHARE")]
    hanging_rate: Option<f64>,
    /// Seed of the random faults: the same seed fails the same requests
    #[arg(long, conflicts_with = "database", value_name = "N")]
    fault_seed: Option<u64>,
    /// Number of requests answered in each window; the others get status 429
    #[arg(long, conflicts_with = "database", value_name = "N/SECONDS", value_parser = parse_limit)]
    request_limit: Option<RequestLimit>,
    /// The edition that is served
    #[arg(long, conflicts_with = "database", value_enum)]
    edition: Option<EditionName>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum EditionName {
    /// Valid documents
    Current,
    /// Revocation lists past their nextUpdate
    LateCrls,
    /// Revocation lists older than before
    RolledBackCrls,
    /// Everything expired
    Expired,
    /// The next TCB evaluation data number
    NextEvaluation,
}

/// The documents of the simulated attester in `dir`, with the faults that the flags name.
pub(super) fn simulated_source(dir: &Path, faults: &FaultArgs) -> Result<DocumentSource, CliError> {
    let attester = FakeAttester::load(dir).map_err(|error| {
        CliError::new(error)
            .with_hint("`confide attest --simulate tdx --out DIR` makes such a folder")
    })?;
    let documents = Arc::new(SimulatedDocuments::new(&attester));
    Ok(DocumentSource::Simulated(Arc::new(Simulation::new(documents, faults.faults()?))))
}

impl FaultArgs {
    fn faults(&self) -> Result<Faults, CliError> {
        let none = Faults::default();
        let faults = Faults {
            latency: self.latency.unwrap_or_default(),
            failure_rate: self.failure_rate.unwrap_or(none.failure_rate),
            truncated_rate: self.truncated_rate.unwrap_or(none.truncated_rate),
            hanging_rate: self.hanging_rate.unwrap_or(none.hanging_rate),
            seed: self.fault_seed.unwrap_or(none.seed),
            limit: self.request_limit,
            edition: match self.edition {
                None | Some(EditionName::Current) => ServedEdition::Current,
                Some(EditionName::LateCrls) => ServedEdition::LateCrls,
                Some(EditionName::RolledBackCrls) => ServedEdition::RolledBackCrls,
                Some(EditionName::Expired) => ServedEdition::Expired,
                Some(EditionName::NextEvaluation) => ServedEdition::NextEvaluation,
            },
        };
        faults.validate().map_err(CliError::new)
    }
}

fn parse_latency(text: &str) -> Result<Latency, String> {
    match text {
        "real" => Ok(Latency::Real),
        _ => text.parse().map(Latency::Ms).map_err(|_| "wanted milliseconds or `real`".into()),
    }
}

fn parse_limit(text: &str) -> Result<RequestLimit, String> {
    let parts = text.split_once('/').and_then(|(requests, window)| {
        Some(RequestLimit { requests: requests.parse().ok()?, window_s: window.parse().ok()? })
    });
    parts.ok_or_else(|| "wanted REQUESTS/SECONDS, such as 10/60".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_from_their_flags() {
        assert_eq!(parse_latency("real"), Ok(Latency::Real));
        assert_eq!(parse_latency("250"), Ok(Latency::Ms(250)));
        assert!(parse_latency("fast").is_err());
        assert_eq!(parse_limit("10/60"), Ok(RequestLimit { requests: 10, window_s: 60 }));
        assert!(parse_limit("10").is_err() && parse_limit("/60").is_err());
    }
}

//! The suites that travel inside the binary, and suites by path.

use std::{path::Path, sync::LazyLock};

use crate::{error::BenchError, suite::Suite};

macro_rules! embed {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../suites/", $name, ".toml")))),*]
    };
}

/// The embedded suites by name, in alphabetical order.
const EMBEDDED: &[(&str, &str)] = embed!(
    "adapters" "batch" "chat" "chat-networks" "collateral" "connect" "cpu" "empty" "gateway" "generate" "jitter" "llm"
    "llm-gpu" "main" "memory" "nested" "network" "peers" "storage" "tls-claims" "verify" "zk"
);

/// The most bytes of a suite; a longer one is a mistake.
const SUITE_BYTES_MAX: u64 = 1 << 20;

/// A suite before it is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuiteText {
    /// The name or path by which it was asked for.
    pub name: String,
    /// The TOML of the suite.
    pub text: String,
}

/// Finds a suite: a path that ends in `.toml`, or the name of an embedded one.
///
/// # Errors
/// When no embedded suite has the name, or the file cannot be read.
pub fn find_suite(name: &str) -> Result<SuiteText, BenchError> {
    let found = |text: String| SuiteText { name: name.to_owned(), text };
    if name.ends_with(".toml") {
        let path = Path::new(name);
        let length = std::fs::metadata(path).map_err(BenchError::io("read", path))?.len();
        if length > SUITE_BYTES_MAX {
            return Err(BenchError::SuiteSyntax {
                name: name.to_owned(),
                message: format!("wanted at most {SUITE_BYTES_MAX} bytes, got {length}"),
            });
        }
        return std::fs::read_to_string(path).map(found).map_err(BenchError::io("read", path));
    }
    EMBEDDED
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| found((*text).to_owned()))
        .ok_or_else(|| BenchError::NoSuchSuite {
            name: name.to_owned(),
            known: suite_names().collect::<Vec<_>>().join(", "),
        })
}

/// Returns the embedded suites, parsed once.
pub(crate) fn embedded_suites() -> &'static [Suite] {
    static PARSED: LazyLock<Vec<Suite>> = LazyLock::new(|| {
        EMBEDDED.iter().filter_map(|(name, text)| Suite::parse(name, text).ok()).collect()
    });
    &PARSED
}

/// Iterates over the names of the embedded suites, in alphabetical order.
pub fn suite_names() -> impl Iterator<Item = &'static str> {
    EMBEDDED.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_suite_parses_and_shows_at_least_one_headline() {
        for (name, text) in EMBEDDED {
            let suite = Suite::parse(name, text).unwrap();
            assert_eq!(suite.suite.name, *name);
            let mut metrics = suite.benches.iter().flat_map(|bench| &bench.metrics);
            assert!(metrics.any(|metric| metric.headline), "{name}");
        }
    }

    /// The suite of `bench/gpu/run.py`, which runs its arms itself; its records are read here.
    const GPU: (&str, &str) = ("gpu", include_str!("../../gpu/suite.toml"));

    #[test]
    fn every_model_of_a_suite_is_defined() {
        let models = include_str!("../../MODELS.md");
        for (name, text) in EMBEDDED.iter().chain([&GPU]) {
            for bench in Suite::parse(name, text).unwrap().benches {
                let heading = format!("## `{}`", bench.model);
                assert!(models.contains(&heading), "{name}: {} is not in MODELS.md", bench.model);
            }
        }
    }

    #[test]
    fn an_unknown_name_and_a_missing_file_are_typed_errors() {
        assert!(matches!(find_suite("nothing"), Err(BenchError::NoSuchSuite { .. })));
        assert!(matches!(find_suite("nothing.toml"), Err(BenchError::Io { .. })));
    }
}

//! `--install`: the Debian packages that the arms of suites need.

use std::{
    collections::BTreeSet,
    os::unix::fs::MetadataExt,
    process::{Command, Stdio},
};

use confide_bench::{MissingProgram, Suite, SuiteText};

use super::{failure::explain_error, status};
use crate::error::CliError;

/// Installs what the arms of these suites lack, with `apt-get` as root.
///
/// Where nothing is missing nothing is started. An error names the command to ask for.
pub(super) fn install(suites: &[SuiteText]) -> Result<(), CliError> {
    let packages = list_packages(&missing_programs(suites)?);
    if packages.is_empty() {
        return Ok(());
    }
    let ask = format!("apt-get install --yes --no-install-recommends {}", packages.join(" "));
    let fail = |why: String| {
        CliError::new(format!("cannot install {}: {why}", packages.join(", ")))
            .with_hint(format!("run as root: apt-get update && {ask}"))
            .with_status(status::FAILED)
    };
    if !is_root() {
        return Err(fail("this user is not root".to_owned()));
    }
    eprintln!("installing {}", packages.join(", "));
    // Container images often have no package lists; without them apt knows no package.
    let updated = run_apt(&["update", "--quiet"]);
    let mut words = vec!["install", "--yes", "--quiet", "--no-install-recommends"];
    words.extend(packages.iter().map(String::as_str));
    run_apt(&words).map_err(|why| match updated {
        Ok(()) => fail(why),
        Err(update) => fail(format!("{why}; {update}")),
    })?;
    match self::list_packages(&missing_programs(suites)?) {
        left if left.is_empty() => Ok(()),
        left => Err(CliError::new(format!(
            "{}: installed, but a program that the suite needs is still not found",
            left.join(", ")
        ))
        .with_status(status::FAILED)),
    }
}

fn missing_programs(suites: &[SuiteText]) -> Result<Vec<MissingProgram>, CliError> {
    let mut missing = Vec::new();
    for text in suites {
        let suite = Suite::parse(&text.name, &text.text).map_err(explain_error)?;
        missing.extend(suite.missing_programs());
    }
    Ok(missing)
}

/// Whether the effective user is root; `/proc/self` belongs to that user.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0)
}

/// The packages of the missing programs, each once, in the order of their names.
fn list_packages(missing: &[MissingProgram]) -> Vec<String> {
    let names: BTreeSet<&String> = missing.iter().map(|missing| &missing.package).collect();
    names.into_iter().cloned().collect()
}

/// Runs `apt-get`, with its output on standard error.
fn run_apt(words: &[&str]) -> Result<(), String> {
    let outcome = Command::new("apt-get")
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status();
    match outcome {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("apt-get {}: {status}", words[0])),
        Err(error) => Err(format!("apt-get: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_two_programs_lie_in_is_named_once() {
        let missing = |program: &str, package: &str| MissingProgram {
            program: program.to_owned(),
            package: package.to_owned(),
        };
        let all = [missing("b", "two"), missing("a", "one"), missing("c", "two")];
        assert_eq!(list_packages(&all), ["one", "two"]);
    }
}

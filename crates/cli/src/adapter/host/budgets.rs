//! The file that keeps the counts of answers.

use std::{env, ffi::OsString, io::ErrorKind, path::PathBuf};

use confide_lora::host::HostError;

use crate::error::CliError;

/// Name of the file in the folder for state.
const FILE_NAME: &str = "adapter-budgets.jsonl";

/// The arguments that say where counts of answers are kept.
#[derive(clap::Args)]
pub(super) struct BudgetArgs {
    /// Keep the counts of answers in this file
    #[arg(long, value_name = "FILE", conflicts_with = "state")]
    budget_file: Option<PathBuf>,
    /// Keep the counts of answers in this folder, so that a restart does not reset budgets; by default
    /// $XDG_STATE_HOME/confide or ~/.local/state/confide. Two hosts cannot share a folder
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Keep the counts of answers in memory only: every restart resets all budgets
    #[arg(long, conflicts_with_all = ["budget_file", "state"])]
    dangerous_forget_budgets: bool,
}

impl BudgetArgs {
    /// The file of the counts; `None` if nothing outlives the process: on the operator's
    /// explicit request, or because every key holder is attested and has no budget.
    pub(super) fn budget_file(&self, attested_only: bool) -> Result<Option<PathBuf>, CliError> {
        if self.dangerous_forget_budgets {
            return Ok(None);
        }
        if let Some(file) = &self.budget_file {
            return Ok(Some(file.clone()));
        }
        if let Some(folder) = &self.state {
            return Ok(Some(folder.join(FILE_NAME)));
        }
        if attested_only {
            return Ok(None);
        }
        let folder = state_folder(env::var_os("XDG_STATE_HOME"), env::var_os("HOME"));
        let folder = folder.ok_or_else(|| {
            CliError::new(
                "no folder for the counts of answers: wanted --state, XDG_STATE_HOME or HOME",
            )
            .with_hint(
                "--state DIR names one; --dangerous-forget-budgets keeps the counts in memory",
            )
        })?;
        Ok(Some(folder.join(FILE_NAME)))
    }
}

/// The folder for state by the XDG Base Directory Specification, which ignores relative paths.
fn state_folder(state_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let state = state_home.and_then(absolute);
    let state = state.or_else(|| Some(home.and_then(absolute)?.join(".local/state")))?;
    Some(state.join("confide"))
}

/// Explains why an adapter host cannot start, and what to try.
pub(super) fn explain_error(error: HostError) -> CliError {
    let HostError::BudgetFile { source, .. } = &error else { return CliError::new(error) };
    let hint = match source.kind() {
        ErrorKind::InvalidData => {
            "the file counts the answers already given: restore it, or move it away and reduce \
             --budget by the answers already given"
        }
        _ => {
            "--state DIR names another folder; --dangerous-forget-budgets keeps the counts in \
             memory, so that a restart resets all budgets"
        }
    };
    CliError::new(&error).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_kept_in_the_folder_for_state_by_default() {
        let folder = |state: Option<&str>, home: Option<&str>| {
            state_folder(state.map(OsString::from), home.map(OsString::from))
        };
        assert_eq!(folder(Some("/s"), Some("/h")), Some("/s/confide".into()));
        assert_eq!(folder(None, Some("/h")), Some("/h/.local/state/confide".into()));
        assert_eq!(folder(Some("s"), Some("/h")), Some("/h/.local/state/confide".into()));
        assert_eq!(folder(None, None), None);
        assert_eq!(folder(None, Some("")), None);
    }

    #[test]
    fn only_the_operators_word_or_attestation_alone_keeps_no_counts() {
        let args = |budget_file: Option<&str>, state: Option<&str>, forget| BudgetArgs {
            budget_file: budget_file.map(PathBuf::from),
            state: state.map(PathBuf::from),
            dangerous_forget_budgets: forget,
        };
        assert_eq!(args(None, None, true).budget_file(false).ok(), Some(None));
        assert_eq!(args(None, None, false).budget_file(true).ok(), Some(None));
        let kept = args(None, Some("/s"), false).budget_file(true).ok().flatten();
        assert_eq!(kept, Some("/s/adapter-budgets.jsonl".into()));
        assert_eq!(args(Some("f"), None, false).budget_file(true).ok().flatten(), Some("f".into()));
    }
}

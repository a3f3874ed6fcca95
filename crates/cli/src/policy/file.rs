//! A policy's file: how it is read, and what is said where it cannot be.

use std::{fmt::Display, path::Path};

use confide_verifier::{POLICY_LENGTH_MAX, Policy};
use toml::Table;

use crate::error::{CliError, read_file};

/// What helps with a policy that cannot be read.
pub(crate) const HINT: &str =
    "docs/policy.md lists every key; `confide policy init --from EVIDENCE` writes a policy";

/// The table for those to whom a notary's statement is shown; it says nothing of evidence.
const DISCLOSURE: &str = "disclosure";

/// A policy from its file.
pub(crate) fn read(path: &Path) -> Result<Policy, CliError> {
    Policy::from_toml(&text(path)?).map_err(|error| cannot_use(path, &error))
}

/// The same of a notary. Its table `[disclosure]`, where it has one, is for those to whom the
/// statement is shown: one file serves both.
pub(crate) fn read_notary(path: &Path) -> Result<Policy, CliError> {
    without_disclosure(&text(path)?).map_err(|error| cannot_use(path, &error))
}

/// The policy in a text that may have a table `[disclosure]`.
pub(super) fn without_disclosure(text: &str) -> Result<Policy, String> {
    let mut table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
    if table.remove(DISCLOSURE).is_none() {
        // The error of the whole text names the line.
        return Policy::from_toml(text).map_err(|error| error.to_string());
    }
    let policy: Policy =
        toml::Value::Table(table).try_into().map_err(|error: toml::de::Error| error.to_string())?;
    policy.validate().map_err(|error| error.to_string())
}

/// The text of a policy's file.
pub(crate) fn text(path: &Path) -> Result<String, CliError> {
    let bytes = read_file(path, POLICY_LENGTH_MAX as u64)
        .map_err(|error| CliError::new(error.message()).hint(HINT))?;
    String::from_utf8(bytes).map_err(|_| {
        CliError::new(format!("{} is not text: wanted TOML in UTF-8", path.display())).hint(HINT)
    })
}

/// The failure of a text that is no policy.
pub(crate) fn cannot_use(path: &Path, error: &dyn Display) -> CliError {
    let text = error.to_string();
    let failure = CliError::new(format!("{}: {}", path.display(), clipped(&text)));
    match nearest_key(&text) {
        Some(key) => failure.hint(format!("did you mean `{key}`? {HINT}")),
        None => failure.hint(HINT),
    }
}

/// What a policy cannot be read for, in the few lines that help.
pub(crate) fn describe(error: &dyn Display) -> String {
    let text = error.to_string();
    match nearest_key(&text) {
        Some(key) => format!("{}\ndid you mean `{key}`?", clipped(&text)),
        None => clipped(&text),
    }
}

/// A parser quotes the line that it cannot read, however long that is.
fn clipped(text: &str) -> String {
    const LINE_CHARS_MAX: usize = 120;
    let clip = |line: &str| match line.char_indices().nth(LINE_CHARS_MAX) {
        None => line.to_owned(),
        Some((at, _)) => format!("{}…", &line[..at]),
    };
    text.trim_end().lines().map(clip).collect::<Vec<_>>().join("\n")
}

/// The key that was meant, where the parser names an unknown one and one that it knows is close.
fn nearest_key(error: &str) -> Option<&str> {
    let (_, after) = error.split_once("unknown field `")?;
    let (got, after) = after.split_once('`')?;
    let line = after.lines().next()?;
    // Between back quotes: every second part is a name.
    let known = line.split('`').skip(1).step_by(2);
    let (distance, key) = known.map(|key| (distance(got, key), key)).min()?;
    (distance <= (got.len() / 3).max(2)).then_some(key)
}

/// Letters to insert, leave out or change between two names (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (place, wanted) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *wanted);
            diagonal = row[place + 1];
            row[place + 1] = changed.min(row[place] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_answered_with_the_one_that_was_meant() {
        for (text, meant) in [
            ("tcb_statsu = \"UpToDate\"\n", Some("tcb_status")),
            ("config_diges = \"00\"\n", Some("config_digest")),
            ("[workload.tdx]\nmrdt = \"00\"\n", Some("mrtd")),
            ("colour = 1\n", None),
        ] {
            let error = Policy::from_toml(text).unwrap_err();
            assert_eq!(nearest_key(&error.to_string()), meant, "{error}");
            let said = cannot_use(Path::new("p.toml"), &error);
            assert!(said.hint_text().unwrap().contains("confide policy init"), "{said:?}");
            assert!(said.message().lines().all(|line| line.chars().count() < 140), "{said:?}");
        }
    }

    #[test]
    fn a_notarys_policy_is_held_to_the_same_rules() {
        let own = format!("operator_roots = [\"sha256:{}\"]\n", "ab".repeat(32));
        assert!(without_disclosure(&own).unwrap_err().contains("operator_roots"));
        let both = format!("{own}[disclosure]\nhosts = [\"a\"]\n");
        assert!(without_disclosure(&both).unwrap_err().contains("operator_roots"));
    }

    #[test]
    fn the_distance_of_names_counts_letters() {
        for (one, other, wanted) in
            [("", "", 0), ("a", "", 1), ("mrdt", "mrtd", 2), ("root", "roots", 1)]
        {
            assert_eq!(distance(one, other), wanted);
        }
    }
}

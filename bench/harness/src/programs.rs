//! Commands of a suite, turned from words into an argv that can be started.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{error::BenchError, suite::bench::CommandValue};

/// The places where programs of a suite are looked for.
#[derive(Clone, Debug)]
pub struct ProgramLocator {
    /// The running program, which the word `confide` of a suite means.
    pub this: PathBuf,
    /// The folder of the running program, which is searched before PATH.
    pub beside: PathBuf,
}

impl ProgramLocator {
    /// Looks for programs in the folder of this executable first, then in PATH.
    pub fn new(this: PathBuf) -> Self {
        let beside = this.parent().map_or_else(PathBuf::new, PathBuf::from);
        Self { this, beside }
    }

    /// Finds the program that `word` means. A word with a slash is a path.
    pub(crate) fn find(&self, word: &str, place: &str) -> Result<PathBuf, BenchError> {
        if word == "confide" {
            return Ok(self.this.clone());
        }
        if word.contains('/') {
            let path = PathBuf::from(word);
            return if path.is_file() { Ok(path) } else { Err(no_such_program(word, place)) };
        }
        let beside = Some(self.beside.join(word)).filter(|path| path.is_file());
        beside.or_else(|| find_in_path(word, &[])).ok_or_else(|| no_such_program(word, place))
    }
}

/// Finds a program in the folders of PATH, then in `more` folders.
pub(crate) fn find_in_path(name: &str, more: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(more.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

fn no_such_program(program: &str, place: &str) -> BenchError {
    BenchError::NoSuchProgram { program: program.to_owned(), place: place.to_owned() }
}

/// The values of `{…}` in commands, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables {
    known: BTreeMap<String, String>,
}

impl Variables {
    /// Adds one name.
    pub(crate) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.known.insert(name.into(), value.into());
    }

    /// Replaces each `{name}`. Other braces stay, so that JSON can be an argument. A value may hold
    /// names in turn (a suite's variable that refers to a service), twice deep.
    pub(crate) fn substitute(&self, text: &str, place: &str) -> Result<String, BenchError> {
        let once = self.substitute_once(text, place)?;
        let twice = self.substitute_once(&once, place)?;
        self.substitute_once(&twice, place)
    }

    /// Returns the text of the variable that `word` is, where it is nothing else and names a
    /// suite's variable.
    pub(crate) fn suite_variable(&self, word: &str) -> Option<&str> {
        let name = word.strip_prefix('{')?.strip_suffix('}')?;
        let known = name != "dir" && !name.contains('.');
        self.known.get(name).filter(|_| known).map(String::as_str)
    }

    /// Lists the names in `text`, after variables are followed where they are known.
    pub(crate) fn mentioned_names(&self, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = find_references(text);
        while let Some(name) = open.pop() {
            if !found.contains(&name) {
                open.extend(self.known.get(&name).map(|v| find_references(v)).unwrap_or_default());
                found.push(name);
            }
        }
        found
    }

    fn substitute_once(&self, text: &str, place: &str) -> Result<String, BenchError> {
        let mut filled = text.to_owned();
        for name in find_references(text) {
            let value = self.known.get(&name).ok_or_else(|| BenchError::UnknownReference {
                place: place.to_owned(),
                key: name.clone(),
            })?;
            filled = filled.replace(&format!("{{{name}}}"), value);
        }
        Ok(filled)
    }
}

/// Returns the text of a variable on this machine.
pub(crate) fn resolve_var(var: &CommandValue) -> &str {
    match var {
        CommandValue::Text(text) => text,
        CommandValue::Choice { if_exists, then, otherwise } => {
            if std::path::Path::new(if_exists).exists() { then } else { otherwise }
        }
    }
}

/// Lists the names between braces, which are letters, digits, `-`, `_` and `.`.
fn find_references(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        rest = &rest[start + 1..];
        let Some(end) = rest.find('}') else { break };
        let name = &rest[..end];
        let ok = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !name.is_empty() && name.chars().all(ok) {
            found.push(name.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_filled_and_variables_followed() {
        let mut names = Variables::default();
        names.set("serve.listen", "127.0.0.1:9");
        names.set("target", "http://{serve.listen}");
        assert_eq!(
            names.substitute("--to={target}/v1", "x").unwrap(),
            "--to=http://127.0.0.1:9/v1"
        );
        assert_eq!(names.mentioned_names("{target}"), ["target", "serve.listen"]);
    }

    #[test]
    fn an_unknown_reference_is_an_error_and_json_is_not_a_reference() {
        let names = Variables::default();
        let error = names.substitute("{nothing}", "arm").unwrap_err();
        assert!(matches!(error, BenchError::UnknownReference { .. }));
        assert_eq!(names.substitute("{\"a\": 1}", "arm").unwrap(), "{\"a\": 1}");
    }

    #[test]
    fn a_program_is_looked_for_beside_the_binary_then_in_path() {
        let this = std::env::current_exe().unwrap();
        let programs = ProgramLocator::new(this.clone());
        assert_eq!(programs.find("confide", "x").unwrap(), this);
        assert!(programs.find("sh", "x").is_ok());
        assert!(matches!(
            programs.find("no-such-program-here", "x"),
            Err(BenchError::NoSuchProgram { .. })
        ));
    }

    #[test]
    fn a_choice_is_by_whether_the_path_exists() {
        let choice = |path: &str| CommandValue::Choice {
            if_exists: path.into(),
            then: "yes".into(),
            otherwise: "no".into(),
        };
        assert_eq!(resolve_var(&choice("/")), "yes");
        assert_eq!(resolve_var(&choice("/no/such/path")), "no");
    }
}

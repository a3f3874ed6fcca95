//! Patterns for the paths of modules, matched as in Python.

use fancy_regex::{Regex, RegexBuilder};

use super::{error::PeftError, limits::PATTERN_BYTES_MAX};

// The greatest number of steps of one match. Names are short, so ordinary expressions take hundreds.
const STEPS_MAX: usize = 100_000;
// The greatest size of one compiled expression, in bytes.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// A key of `rank_pattern` or `alpha_pattern`, matched as PEFT matches it:
/// `re.match(rf"(.*\.)?({key})$", path)` (`get_pattern_key`, PEFT 0.21).
#[derive(Clone, Debug)]
pub(super) enum PatternKey {
    /// A key of letters, digits, `_`, `-` and dots only, in which a dot matches any character, as in
    /// a regular expression. Most files have such a key for each module, and compiling them all
    /// would dominate the time to load a file.
    Dotted(String),
    /// A key with any other character.
    Regex(Pattern),
}

/// A regular expression in Python's syntax.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    field: &'static str,
    source: String,
    regex: Regex,
}

impl PatternKey {
    pub(super) fn new(field: &'static str, key: &str) -> Result<PatternKey, PeftError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if key.bytes().all(plain) {
            return Ok(PatternKey::Dotted(key.into()));
        }
        let whole = format!(r"\A(?:(.*\.)?({key})\z)");
        Pattern::compile(field, key, &whole).map(PatternKey::Regex)
    }

    pub(super) fn matches(&self, path: &str) -> Result<bool, PeftError> {
        match self {
            PatternKey::Dotted(key) => Ok(ends_with_key(path, key)),
            PatternKey::Regex(pattern) => pattern.matches(path),
        }
    }
}

impl Pattern {
    /// Compiles the pattern of `re.fullmatch(source, …)`.
    pub(super) fn compile_full_match(
        field: &'static str,
        source: &str,
    ) -> Result<Pattern, PeftError> {
        Self::compile(field, source, &format!(r"\A(?:{source})\z"))
    }

    /// Compiles the pattern of `re.match(whole, …)`, in which `source` is the part from the file.
    pub(super) fn compile(
        field: &'static str,
        source: &str,
        whole: &str,
    ) -> Result<Pattern, PeftError> {
        if source.len() > PATTERN_BYTES_MAX {
            return Err(PeftError::Limit {
                what: format!("bytes of a pattern in {field}"),
                limit: PATTERN_BYTES_MAX as u64,
                got: source.len() as u64,
            });
        }
        let regex = RegexBuilder::new(whole)
            .backtrack_limit(STEPS_MAX)
            .delegate_size_limit(COMPILED_BYTES_MAX)
            .delegate_dfa_size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(|error| pattern_error(field, source, &error))?;
        Ok(Pattern { field, source: source.into(), regex })
    }

    pub(super) fn matches(&self, path: &str) -> Result<bool, PeftError> {
        self.regex.is_match(path).map_err(|error| pattern_error(self.field, &self.source, &error))
    }

    /// The text of group `name`, if the expression matches.
    pub(super) fn captured_group<'a>(
        &self,
        path: &'a str,
        name: &str,
    ) -> Result<Option<&'a str>, PeftError> {
        let found = self.regex.captures(path);
        let found = found.map_err(|error| pattern_error(self.field, &self.source, &error))?;
        Ok(found.and_then(|groups| groups.name(name).map(|group| group.as_str())))
    }
}

/// Returns whether `path` is `key` or ends in a dot and `key`; a dot in `key` matches any character.
fn ends_with_key(path: &str, key: &str) -> bool {
    let (path, key) = (path.as_bytes(), key.as_bytes());
    let Some(before) = path.len().checked_sub(key.len()) else { return false };
    let at_part = before == 0 || path[before - 1] == b'.';
    at_part && key.iter().zip(&path[before..]).all(|(key, byte)| *key == b'.' || key == byte)
}

fn pattern_error(field: &'static str, pattern: &str, error: &fancy_regex::Error) -> PeftError {
    let pattern = pattern.chars().take(200).collect();
    PeftError::Pattern { field, pattern, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pattern, a path, and the result of `re.match(rf"(.*\.)?({pattern})$", path)` in Python
    /// 3.11.
    const PYTHON: [(&str, &str, bool); 12] = [
        ("q_proj", "model.layers.0.self_attn.q_proj", true),
        ("_proj", "model.layers.0.self_attn.q_proj", false),
        ("self_attn.q_proj", "model.layers.0.self_attn.q_proj", true),
        ("self_attn.q_proj", "self_attnxq_proj", true),
        ("model.layers.1.self_attn.q_proj", "model.layers.11.self_attn.q_proj", false),
        ("layers.1.self_attn.q_proj", "model.layers.1.self_attn.q_proj", true),
        ("^model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.q_proj", true),
        ("^layers.0.self_attn.q_proj", "model.layers.0.self_attn.q_proj", false),
        (r"model\.layers\.[02]\..*", "model.layers.2.mlp.up_proj", true),
        (r"q_proj|v_proj", "model.layers.2.self_attn.v_proj", true),
        (r"(?!.*mlp).*_proj", "model.layers.2.self_attn.v_proj", true),
        (r".*layers\.\d\.mlp\.(up|down)_proj", "model.layers.12.mlp.up_proj", false),
    ];

    #[test]
    fn keys_match_as_in_python() {
        for (key, path, wanted) in PYTHON {
            let got = PatternKey::new("rank_pattern", key).and_then(|key| key.matches(path));
            assert_eq!(got, Ok(wanted), "{key} on {path}");
        }
    }

    #[test]
    fn dotted_keys_match_as_their_regular_expressions() {
        for (key, path, wanted) in PYTHON {
            let whole = format!(r"\A(?:(.*\.)?({key})\z)");
            let regex = Pattern::compile("rank_pattern", key, &whole).unwrap();
            assert_eq!(regex.matches(path), Ok(wanted), "{key} on {path}");
        }
    }

    #[test]
    fn a_malformed_pattern_and_one_that_never_ends_are_refused_by_name() {
        let got = Pattern::compile_full_match("target_modules", "(q_proj");
        assert!(matches!(got, Err(PeftError::Pattern { field: "target_modules", .. })));
        let slow = Pattern::compile_full_match("target_modules", r"(?:(\w*)*\1)*!").unwrap();
        let got = slow.matches(&"a".repeat(200));
        assert!(matches!(got, Err(PeftError::Pattern { .. })), "{got:?}");
        let long = "q".repeat(PATTERN_BYTES_MAX + 1);
        assert!(matches!(Pattern::compile_full_match("f", &long), Err(PeftError::Limit { .. })));
    }
}

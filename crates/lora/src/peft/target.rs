//! The modules that a configuration chooses.

use std::collections::BTreeSet;

use super::{error::PeftError, pattern::Pattern};

/// The modules that an adapter changes, by PEFT's rule (`check_target_module_exists`, PEFT 0.21).
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) chosen: TargetModules,
    pub(super) excluded: Option<TargetModules>,
    pub(super) layers: Option<Layers>,
}

/// The value of `target_modules` or `exclude_modules`.
#[derive(Clone, Debug)]
pub(super) enum TargetModules {
    /// All linear modules (`all-linear`).
    All,
    /// A string: a regular expression for the whole path.
    Pattern(Pattern),
    /// A list: the whole path, or what it ends in after a dot.
    List(BTreeSet<String>),
}

/// `layers_to_transform`, and how a path tells its layer.
#[derive(Clone, Debug)]
pub(super) struct Layers {
    pub(super) indices: BTreeSet<u32>,
    pub(super) patterns: Vec<Pattern>,
}

impl Target {
    /// Returns whether PEFT would give the module at `path` an adapter.
    pub(super) fn includes(&self, path: &str) -> Result<bool, PeftError> {
        if let Some(excluded) = &self.excluded
            && excluded.name(path)?
        {
            return Ok(false);
        }
        match &self.layers {
            _ if !self.chosen.name(path)? => Ok(false),
            Some(layers) => layers.name(path),
            None => Ok(true),
        }
    }
}

impl TargetModules {
    fn name(&self, path: &str) -> Result<bool, PeftError> {
        match self {
            TargetModules::All => Ok(true),
            TargetModules::Pattern(pattern) => pattern.matches(path),
            TargetModules::List(names) => {
                let ends = path.match_indices('.').map(|(dot, _)| &path[dot + 1..]);
                Ok(std::iter::once(path).chain(ends).any(|end| names.contains(end)))
            }
        }
    }
}

impl Layers {
    /// The pattern of a path's layer where `layers_pattern` is absent: its first numbered part.
    pub(super) const ANY: &str = r"\A.*?\.[^.]*\.(?P<idx>\d+)\.";

    /// The pattern of a path's layer where `layers_pattern` names the list of layers.
    pub(super) fn layers_prefix(pattern: &str) -> String {
        format!(r"\A(?:(?:^|.*?\.){pattern}\.(?P<idx>\d+)\.)")
    }

    fn name(&self, path: &str) -> Result<bool, PeftError> {
        for pattern in &self.patterns {
            if let Some(index) = pattern.group(path, "idx")? {
                return Ok(index.parse().is_ok_and(|index| self.indices.contains(&index)));
            }
        }
        Ok(false)
    }
}

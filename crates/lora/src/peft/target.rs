//! The modules that a configuration chooses.

use std::collections::BTreeSet;

use super::{error::PeftError, pattern::Pattern};

/// The modules that an adapter changes, by PEFT's rule (`check_target_module_exists`, PEFT 0.21).
#[derive(Clone, Debug)]
pub(super) struct TargetModules {
    pub(super) chosen: ModuleSelector,
    pub(super) excluded: Option<ModuleSelector>,
    pub(super) layers: Option<LayerSelector>,
}

/// The value of `target_modules` or `exclude_modules`.
#[derive(Clone, Debug)]
pub(super) enum ModuleSelector {
    /// All linear modules (`all-linear`).
    All,
    /// A string: a regular expression for the whole path.
    Pattern(Pattern),
    /// A list of names: the whole path, or its end after a dot.
    List(BTreeSet<String>),
}

/// `layers_to_transform`, and the patterns that find the layer in a path.
#[derive(Clone, Debug)]
pub(super) struct LayerSelector {
    pub(super) indices: BTreeSet<u32>,
    pub(super) patterns: Vec<Pattern>,
}

impl TargetModules {
    /// Returns whether PEFT would adapt the module at `path`.
    pub(super) fn selects(&self, path: &str) -> Result<bool, PeftError> {
        if let Some(excluded) = &self.excluded
            && excluded.matches_path(path)?
        {
            return Ok(false);
        }
        match &self.layers {
            _ if !self.chosen.matches_path(path)? => Ok(false),
            Some(layers) => layers.matches_path(path),
            None => Ok(true),
        }
    }
}

impl ModuleSelector {
    fn matches_path(&self, path: &str) -> Result<bool, PeftError> {
        match self {
            ModuleSelector::All => Ok(true),
            ModuleSelector::Pattern(pattern) => pattern.matches(path),
            ModuleSelector::List(names) => {
                let ends = path.match_indices('.').map(|(dot, _)| &path[dot + 1..]);
                Ok(std::iter::once(path).chain(ends).any(|end| names.contains(end)))
            }
        }
    }
}

impl LayerSelector {
    /// The pattern that finds the layer in a path without `layers_pattern`: the first numbered part.
    pub(super) const ANY: &str = r"\A.*?\.[^.]*\.(?P<idx>\d+)\.";

    /// The pattern that finds the layer in a path if `layers_pattern` is the name of the list of layers.
    pub(super) fn layer_pattern(pattern: &str) -> String {
        format!(r"\A(?:(?:^|.*?\.){pattern}\.(?P<idx>\d+)\.)")
    }

    fn matches_path(&self, path: &str) -> Result<bool, PeftError> {
        for pattern in &self.patterns {
            if let Some(index) = pattern.captured_group(path, "idx")? {
                return Ok(index.parse().is_ok_and(|index| self.indices.contains(&index)));
            }
        }
        Ok(false)
    }
}

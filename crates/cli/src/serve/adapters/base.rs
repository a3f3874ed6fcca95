//! Whether an adapter was trained for the model that is served.
//!
//! PEFT records the base as whatever the trainer called it: a hub's name, a path. So it is compared by
//! the last part of its name with all that the served model is called.

use std::{collections::BTreeSet, path::Path};

use confide_serve::BaseModelMatch;
use serde_json::Value;

use crate::files::read_file;

/// The beginning of a refusal.
pub(super) const SUBJECT: &str = "base model: ";

/// The hint of a refusal.
pub(super) const HINT: &str = "serve the model that it was trained for; if this is that model \
    under another name, set the name with --model-name, or load the adapter anyway with \
    --dangerous-other-base";

const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// The names of the served model.
#[derive(Debug)]
pub(super) struct BaseModelNames {
    /// The names as they are shown.
    shown: Vec<String>,
    /// Their last parts, in lower case.
    known: BTreeSet<String>,
}

impl BaseModelNames {
    /// Collects the name of the model's folder, the name in its `config.json`, and its name in
    /// requests.
    pub(super) fn new(model: Option<&Path>, served: &str) -> Self {
        let folder = model.map(|dir| dir.canonicalize().unwrap_or_else(|_| dir.into()));
        let folder = folder.map(|dir| dir.to_string_lossy().into_owned());
        let recorded = model.and_then(read_recorded_name);
        let names = [folder, recorded, Some(served.to_owned())];
        let shown: BTreeSet<String> =
            names.into_iter().flatten().filter_map(|name| last_name_part(&name)).collect();
        let known = shown.iter().map(|name| name.to_lowercase()).collect();
        Self { shown: shown.into_iter().collect(), known }
    }

    /// Whether an adapter whose configuration names `base` is for this model.
    pub(super) fn check_base_model(
        &self,
        base: Option<&str>,
        take_other: bool,
    ) -> Result<BaseModelMatch, String> {
        let base = base.filter(|base| !base.trim().is_empty() && !self.known.is_empty());
        let Some(base) = base else { return Ok(BaseModelMatch::NotEvaluated) };
        match last_name_part(base) {
            None => Ok(BaseModelMatch::NotEvaluated),
            Some(name) if self.known.contains(&name.to_lowercase()) => {
                Ok(BaseModelMatch::Confirmed)
            }
            Some(_) if take_other => Ok(BaseModelMatch::OtherModel),
            Some(_) => Err(format!("{SUBJECT}wanted {}, got {base}", self.shown.join(" or "))),
        }
    }
}

/// Reads `_name_or_path` of a model's `config.json`.
fn read_recorded_name(dir: &Path) -> Option<String> {
    let bytes = read_file(&dir.join("config.json"), CONFIG_BYTES_MAX).ok()?;
    let config: Value = serde_json::from_slice(&bytes).ok()?;
    config["_name_or_path"].as_str().map(Into::into)
}

/// The last part of a hub's name or of a path. In the cache of Hugging Face's hub the name stands in a
/// folder above: `models--OWNER--NAME/snapshots/DIGEST`.
fn last_name_part(name: &str) -> Option<String> {
    let parts = || name.split(['/', '\\']).filter(|part| !part.is_empty() && *part != ".");
    let cached = parts().find_map(|part| part.strip_prefix("models--")?.rsplit("--").next());
    let last = cached.or_else(|| parts().next_back())?;
    Some(last.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_of_another_base_is_refused_with_both_names() {
        let names = BaseModelNames::new(None, "Qwen2.5-0.5B-Instruct");
        for base in [
            "Qwen/Qwen2.5-0.5B-Instruct",
            "qwen2.5-0.5b-instruct",
            "/models/Qwen2.5-0.5B-Instruct/",
            "/cache/hub/models--Qwen--Qwen2.5-0.5B-Instruct/snapshots/7ae557604adf67be50417f59c2c2",
        ] {
            assert_eq!(
                names.check_base_model(Some(base), false),
                Ok(BaseModelMatch::Confirmed),
                "{base}"
            );
        }
        let refused =
            names.check_base_model(Some("Qwen/Qwen2.5-7B"), false).expect_err("another base");
        assert_eq!(refused, "base model: wanted Qwen2.5-0.5B-Instruct, got Qwen/Qwen2.5-7B");
        assert_eq!(
            names.check_base_model(Some("Qwen/Qwen2.5-7B"), true),
            Ok(BaseModelMatch::OtherModel)
        );
    }

    #[test]
    fn what_is_not_known_is_not_confirmed() {
        let names = BaseModelNames::new(None, "tiny");
        for base in [None, Some(""), Some("/")] {
            assert_eq!(
                names.check_base_model(base, false),
                Ok(BaseModelMatch::NotEvaluated),
                "{base:?}"
            );
        }
        assert_eq!(
            BaseModelNames::new(None, "").check_base_model(Some("tiny"), false),
            Ok(BaseModelMatch::NotEvaluated)
        );
    }

    #[test]
    fn the_folder_and_its_configuration_name_the_model_too() {
        let folder = std::env::temp_dir().join(format!("confide-base-{}", std::process::id()));
        let model = folder.join("my-copy");
        std::fs::create_dir_all(&model).unwrap();
        let config = r#"{"_name_or_path":"Qwen/Qwen2.5-7B"}"#;
        std::fs::write(model.join("config.json"), config).unwrap();
        let names = BaseModelNames::new(Some(&model), "chat");
        for base in ["Qwen/Qwen2.5-7B", "my-copy", "./chat"] {
            assert_eq!(
                names.check_base_model(Some(base), false),
                Ok(BaseModelMatch::Confirmed),
                "{base}"
            );
        }
        assert!(names.check_base_model(Some("meta-llama/Llama-3.2-1B"), false).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}

//! Folders of models: what is wrong with one that was named, and what to try.

use std::{
    fs::File,
    io::Read,
    path::{Component, Path},
};

use crate::error::CliError;

const CONFIG_FILE: &str = "config.json";
const WEIGHTS_EXTENSION: &str = "safetensors";

/// The first bytes of every GGUF file.
const GGUF_MAGIC: &[u8; 4] = b"GGUF";

/// Entries of a folder that are searched for a GGUF file.
const ENTRIES_MAX: usize = 1024;

/// How models of other architectures can be run.
#[cfg(feature = "native")]
const OTHER_ENGINES: &str = "--engine worker runs more architectures on torch; serve any other \
    model with vLLM or llama.cpp, and put `confide gateway --upstream` in front";

/// Refuses whatever is not the folder of a model in Hugging Face's layout, before an engine reads it.
pub(crate) fn check_folder(dir: &Path) -> Result<(), CliError> {
    let shown = dir.display();
    let not_a_folder = |got: &str| {
        CliError::new(format!("model {shown}: wanted a folder with {CONFIG_FILE}, got {got}"))
    };
    if dir.join(CONFIG_FILE).exists() {
        return Ok(());
    }
    if is_gguf(dir) || holds_gguf(dir) {
        return Err(not_a_folder("a GGUF file, which confide does not read").with_hint(
            "serve the file with llama.cpp and put `confide gateway --upstream` in front, or \
             download the model as safetensors",
        ));
    }
    if dir.is_file() {
        return Err(not_a_folder("a file").with_hint("give the folder that the file is in"));
    }
    if dir.is_dir() {
        return Err(not_a_folder(&format!("a folder without {CONFIG_FILE}")).with_hint(
            "a model's folder has config.json, tokenizer.json and model.safetensors; `confide model \
             make --shape tiny --seed 7 DIR` makes a small one",
        ));
    }
    if is_hub_name(dir) {
        return Err(not_a_folder("what looks like a name on the Hugging Face hub").with_hint(format!(
            "--model takes a folder, not a hub name: `hf download {shown} --local-dir DIR` downloads \
             it, then give --model DIR"
        )));
    }
    Err(not_a_folder("a path that does not exist")
        .with_hint("`confide model make --shape tiny --seed 7 DIR` makes a small one"))
}

/// Opens the files of weights in a model's folder. An engine that is loaded closes them; while they
/// are open, others can see which files this process has.
pub(crate) fn open_weights(dir: &Path) -> Result<Vec<File>, CliError> {
    let entries = dir.read_dir().map_err(CliError::in_file(dir))?;
    let paths = entries.flatten().map(|entry| entry.path()).take(ENTRIES_MAX);
    let weights = paths.filter(|path| path.extension().is_some_and(|is| is == WEIGHTS_EXTENSION));
    weights.map(|path| File::open(&path).map_err(CliError::in_file(&path))).collect()
}

fn is_gguf(path: &Path) -> bool {
    let mut magic = [0; 4];
    // Only a plain file: opening a pipe would wait for its writer.
    path.is_file()
        && File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
        && magic == *GGUF_MAGIC
}

fn holds_gguf(dir: &Path) -> bool {
    let Ok(entries) = dir.read_dir() else { return false };
    entries.flatten().take(ENTRIES_MAX).any(|entry| is_gguf(&entry.path()))
}

/// Whether a path reads `OWNER/NAME`, as Hugging Face's hub names models.
fn is_hub_name(path: &Path) -> bool {
    let parts: Vec<Component<'_>> = path.components().collect();
    parts.len() == 2 && parts.iter().all(|part| matches!(part, Component::Normal(_)))
}

/// Explains why the native engine does not load a folder, and what to try.
#[cfg(feature = "native")]
pub(crate) fn explain_load_error(dir: &Path, error: &confide_native::NativeError) -> CliError {
    use confide_engine::text::FolderError;
    use confide_native::NativeError;
    let hint = match error {
        NativeError::Config { .. } => Some(OTHER_ENGINES),
        // The configuration's own error follows the name of its file.
        NativeError::Folder(FolderError::Malformed { reason, .. })
            if reason.starts_with("config: ") =>
        {
            Some(OTHER_ENGINES)
        }
        NativeError::Truncated { .. } => {
            Some("download or copy the file again: a part of it is missing")
        }
        NativeError::Folder(FolderError::Manifest { .. }) => Some(
            "a file was changed after the manifest was written: get the folder again, or delete the \
             manifest if the change was intended",
        ),
        NativeError::Folder(FolderError::File { source, .. })
            if source.kind() == std::io::ErrorKind::NotFound =>
        {
            Some("a model's folder has config.json, tokenizer.json and model.safetensors")
        }
        _ => None,
    };
    CliError::new(format!("cannot load the model in {}: {error}", dir.display()))
        .with_optional_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &Path) -> (String, String) {
        let error = check_folder(path).expect_err("it is no model");
        (error.message().to_owned(), error.hint_text().unwrap_or_default().to_owned())
    }

    #[test]
    fn what_is_no_models_folder_is_named_for_what_it_is() {
        let folder = std::env::temp_dir().join(format!("confide-folder-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("gguf")).unwrap();
        let (message, hint) = refusal(Path::new("Qwen/Qwen2.5-0.5B-Instruct"));
        assert!(message.contains("hub"), "{message}");
        assert!(hint.contains("a folder, not a hub name"), "{hint}");
        assert!(hint.contains("hf download Qwen/Qwen2.5-0.5B-Instruct"), "{hint}");
        let file = folder.join("gguf/model.gguf");
        std::fs::write(&file, b"GGUF\x03\0\0\0").unwrap();
        for path in [&file, &folder.join("gguf")] {
            let (message, hint) = refusal(path);
            assert!(message.contains("GGUF"), "{message}");
            assert!(hint.contains("confide gateway"), "{hint}");
        }
        let weights = folder.join("model.safetensors");
        std::fs::write(&weights, b"x").unwrap();
        assert!(refusal(&weights).1.contains("the folder that the file is in"));
        assert!(refusal(&folder).1.contains("model make"));
        assert!(refusal(&folder.join("a/b/missing")).1.contains("model make"));
        std::fs::write(folder.join("config.json"), "{}").unwrap();
        assert!(check_folder(&folder).is_ok(), "the engine says what is wrong with it");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

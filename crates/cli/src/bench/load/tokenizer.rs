//! The tokenizer of `--tokenizer`.

use std::path::Path;

use confide_load::TokenCounter;
use tokenizers::Tokenizer;

use crate::{error::CliError, files::read_file};

/// The longest `tokenizer.json`, in bytes: the largest have some 30 MiB.
const TOKENIZER_BYTES_MAX: u64 = 128 << 20;

/// A counter by the `tokenizer.json` at `path`, or in the folder at `path`. Special tokens are not added.
pub(super) fn load_token_counter(path: &Path) -> Result<TokenCounter, CliError> {
    let file = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
    let read = Tokenizer::from_bytes(read_file(&file, TOKENIZER_BYTES_MAX)?);
    let mut tokenizer = read.map_err(|error| {
        CliError::new(format!("{}: {error}", file.display()))
            .with_hint("--tokenizer wants a tokenizer.json of Hugging Face's form, or its folder")
    })?;
    // A file may ask for both, and the count would be that of what they leave.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(CliError::new)?;
    Ok(TokenCounter::new(move |text| {
        let encoding = tokenizer.encode_fast(text, false).ok()?;
        u32::try_from(encoding.len()).ok()
    }))
}

//! Texts of clients in errors: an answer has to stay small.

/// The first 80 characters of `text`, with an ellipsis if more follow.
pub(crate) fn clip(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    match text.char_indices().nth(CHARS_MAX) {
        None => text.into(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

//! Shortens texts of clients for error messages.

/// The first 80 characters of `text`, with an ellipsis if more follow.
pub(crate) fn truncate_with_ellipsis(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    match text.char_indices().nth(CHARS_MAX) {
        None => text.into(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

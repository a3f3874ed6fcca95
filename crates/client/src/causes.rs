//! Errors as one line.

/// An error with everything that led to it, in one line.
pub fn with_causes(failure: &dyn std::error::Error) -> String {
    let mut text = failure.to_string();
    let mut cause = failure.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

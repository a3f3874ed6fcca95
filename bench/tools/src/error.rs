//! Why a tool's output gave no figures.

/// The fault of a tool's output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Longer than any honest output.
    #[error("the output has {got} bytes, wanted at most {wanted}")]
    TooLong {
        /// Bytes seen.
        got: usize,
        /// Bytes allowed.
        wanted: usize,
    },
    /// No JSON.
    #[error("the output is no JSON: {message}")]
    NotJson {
        /// The parser's message, with its line.
        message: String,
    },
    /// The tool itself states that it failed.
    #[error("the tool failed: {message}")]
    Failed {
        /// Its message.
        message: String,
    },
    /// A figure that every honest output has.
    #[error("the output has no {what}")]
    Missing {
        /// The figure.
        what: String,
    },
    /// A figure that is no number, or outside its limits.
    #[error("the output has {got} for {what}")]
    NoNumber {
        /// The figure.
        what: String,
        /// The text in its place.
        got: String,
    },
}

//! Why a tool's output gave no figures.

/// A fault of a tool's output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The output is longer than any honest one.
    #[error("the output has {got} bytes, wanted at most {wanted}")]
    TooLong {
        /// Bytes of the output.
        got: usize,
        /// The most bytes that are read.
        wanted: usize,
    },
    /// The output holds no JSON object where one is wanted.
    #[error("the output is not JSON: {message}")]
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
    /// The output lacks a figure that every honest one has.
    #[error("the output has no {what}")]
    Missing {
        /// Name of the figure.
        what: String,
    },
    /// A figure is not a number, or lies outside its limits.
    #[error("{what}: wanted a number within its limits, got {got}")]
    NoNumber {
        /// Name of the figure.
        what: String,
        /// The text at its place, cut to 60 characters.
        got: String,
    },
}

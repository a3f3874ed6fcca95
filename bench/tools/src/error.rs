//! Why a tool's output gave no figures.

/// What was wrong with a tool's output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Longer than any honest output of this tool.
    #[error("{tool} printed {got} bytes, wanted at most {wanted}")]
    TooLong {
        /// The tool.
        tool: &'static str,
        /// Bytes seen.
        got: usize,
        /// Bytes allowed.
        wanted: usize,
    },
    /// No JSON, or not of the wanted shape.
    #[error("{tool} printed no JSON of its kind: {message}")]
    NotJson {
        /// The tool.
        tool: &'static str,
        /// What the parser said, with its line.
        message: String,
    },
    /// The tool itself says that it failed.
    #[error("{tool} says: {message}")]
    Failed {
        /// The tool.
        tool: &'static str,
        /// Its words.
        message: String,
    },
    /// A figure that every honest output has.
    #[error("{tool} printed no {what}")]
    Missing {
        /// The tool.
        tool: &'static str,
        /// The figure.
        what: &'static str,
    },
    /// A figure that is no number, or one that means nothing.
    #[error("{tool} printed {got} for {what}")]
    NoNumber {
        /// The tool.
        tool: &'static str,
        /// The figure.
        what: &'static str,
        /// What stood there.
        got: String,
    },
}

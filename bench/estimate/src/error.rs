//! Why no estimate can be made.

/// Why no estimate can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EstimateError {
    /// A value is NaN or infinite.
    #[error("value {index} is not finite")]
    NotFinite {
        /// Its position.
        index: usize,
    },
    /// A ratio was asked of a value that is zero or negative.
    #[error("ratio needs positive values, value {index} is not")]
    NotPositive {
        /// Its position.
        index: usize,
    },
    /// The two arms do not have the same blocks.
    #[error("pairs need equal lengths, got {reference} and {arm}")]
    Unpaired {
        /// Blocks of the reference arm.
        reference: usize,
        /// Blocks of the other arm.
        arm: usize,
    },
    /// An interval needs at least two blocks.
    #[error("interval needs at least 2 blocks, got {got}")]
    TooFewBlocks {
        /// How many there were.
        got: usize,
    },
    /// An interval over clusters needs at least two on each side.
    #[error("interval over clusters needs at least 2 on each side, got {got}")]
    TooFewClusters {
        /// How many the smaller side has.
        got: usize,
    },
    /// A resample index points past the values.
    #[error("resample index {index} is not below {len}")]
    IndexOutOfRange {
        /// The index.
        index: usize,
        /// Number of values.
        len: usize,
    },
    /// No resample was asked for.
    #[error("bootstrap needs at least 1 resample, got 0")]
    NoResamples,
}

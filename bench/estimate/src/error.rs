//! The errors of an estimate.

/// The reason why an estimate cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EstimateError {
    /// A value is NaN or infinite.
    #[error("value {index} is not finite")]
    NotFinite {
        /// The position of the value, from 0.
        index: usize,
    },
    /// A ratio was asked for, and a value is zero or negative.
    #[error("ratio needs positive values, value {index} is not")]
    NotPositive {
        /// The position of the value, from 0.
        index: usize,
    },
    /// The two arms do not have the same blocks.
    #[error("pairs need equal lengths, got {reference} and {arm}")]
    Unpaired {
        /// The number of blocks of the reference arm.
        reference: usize,
        /// The number of blocks of the other arm.
        arm: usize,
    },
    /// An interval needs at least two blocks.
    #[error("interval needs at least 2 blocks, got {got}")]
    TooFewBlocks {
        /// The number of blocks that were given.
        got: usize,
    },
    /// An interval over clusters needs at least two on each side.
    #[error("interval over clusters needs at least 2 on each side, got {got}")]
    TooFewClusters {
        /// The number of clusters of the smaller side.
        got: usize,
    },
    /// A resample index points past the values.
    #[error("resample index {index} is not below {len}")]
    IndexOutOfRange {
        /// The index, from 0.
        index: usize,
        /// The number of values.
        len: usize,
    },
    /// No resample was asked for.
    #[error("bootstrap needs at least 1 resample, got 0")]
    NoResamples,
}

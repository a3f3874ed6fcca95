//! Estimates: pure functions of samples, no clock, no I/O, no hidden randomness.
//!
//! The unit of every estimate is the *block*, in which each arm ran once on the same work.
//! [`Paired`] turns the blocks of two arms into a ratio and a difference with intervals,
//! [`Clusters`] does so for arms that never met in a block (several machines or boots of each),
//! [`Verdict`] holds an interval against a margin that was set before the run, and
//! [`AaJudgement`] says whether the instrument found a difference where there is none.

mod bootstrap;
mod cluster;
mod location;
mod normal;
mod paired;
mod quantile;
mod random;
mod serial;
mod steady;
mod student;
mod verdict;

pub use bootstrap::{Bca, Interval, RESAMPLES};
pub use cluster::{
    CLUSTERS_BOOTSTRAP_MIN, ClusterEstimate, ClusterMethod, Clusters, few_clusters, welch,
};
pub use location::{hodges_lehmann, holm, signed_rank_p};
pub use normal::{normal_cdf, normal_quantile};
pub use paired::{Estimate, Paired};
pub use quantile::{mean, quantile, quantile_interval, samples_wanted, supported_quantile};
pub use random::Random;
pub use serial::{autocorrelation, circular_interval, percentile_interval};
pub use steady::{Steadiness, changes, steadiness};
pub use student::{binomial_cdf, student_cdf, student_quantile};
pub use verdict::{
    AA_BLOCKS_MIN, AaJudgement, INTERVAL_BLOCKS_MIN, Margin, Verdict, outside_by_chance,
};

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

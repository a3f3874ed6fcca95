//! Estimates of a cost from paired measurements: pure functions of samples, without clock, I/O or hidden randomness.
//!
//! The unit of every estimate is the *block*, in which each arm ran once on the same work.
//! [`PairedBlocks`] turns the blocks of two arms into a ratio and a difference with intervals,
//! [`Clusters`] does so for arms that never met in a block (several machines or boots of each),
//! [`Verdict`] judges an interval by a margin that was set before the run, and
//! [`AaJudgement`] says whether the instrument found a difference where there is none.

#![deny(missing_docs)]

mod bootstrap;
mod cluster;
mod error;
mod interval;
mod location;
mod moments;
mod normal;
mod paired;
mod quantile;
mod random;
mod serial;
mod steady;
mod student;
mod verdict;

pub use bootstrap::{Bca, RESAMPLES};
pub use cluster::{
    CLUSTERS_BOOTSTRAP_MIN, ClusterEstimate, ClusterMethod, Clusters, has_too_few_clusters,
};
pub use error::EstimateError;
pub use interval::Interval;
pub use location::{hodges_lehmann, holm, signed_rank_p};
pub use moments::mean;
pub use normal::normal_quantile;
pub use paired::{Estimate, PairedBlocks};
pub use quantile::{quantile, quantile_interval, supported_quantile};
pub use random::Random;
pub use serial::{autocorrelation, bootstrap_percentile_interval, circular_block_interval};
pub use steady::{Steadiness, assess_steadiness, find_change_points};
pub use student::{binomial_cdf, student_quantile, welch_interval};
pub use verdict::{
    AA_BLOCKS_MIN, AaJudgement, INTERVAL_BLOCKS_MIN, Margin, Verdict, max_outside_by_chance,
    minimum_detectable_effect,
};

/// Compiles and runs the example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

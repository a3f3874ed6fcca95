//! Comparison of two arms that never met in a block: several machines, or boots of a machine, for
//! each.

use crate::{
    bootstrap::{Bca, RESAMPLES},
    error::EstimateError,
    interval::Interval,
    moments::mean_of_nonempty,
    student::welch_interval,
};

/// The number of clusters per arm from which the bootstrap gives the interval. With fewer, its
/// resamples are so few that its ends would be those of the data, so Student's interval of the
/// cluster means replaces it.
pub const CLUSTERS_BOOTSTRAP_MIN: usize = 5;

/// The clusters of two arms: each cluster is a list of blocks, with one number per block.
///
/// The unit is the cluster: what differs between machines or boots (memory layout, neighbours,
/// firmware) is met once in each, however many blocks it ran. So clusters are resampled and their
/// blocks stay with them (Davison and Hinkley, 1997, section 3.8: resampling the blocks as well
/// would count their spread twice). Each cluster weighs the same.
#[derive(Clone, Debug)]
pub struct Clusters<'a> {
    reference: &'a [Vec<f64>],
    arm: &'a [Vec<f64>],
    seed: u64,
}

/// The method by which an interval over clusters was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterMethod {
    /// The BCa bootstrap over clusters, widened for few clusters.
    Bca,
    /// Student's interval of the cluster means with Welch's degrees of freedom, where a side has
    /// fewer than [`CLUSTERS_BOOTSTRAP_MIN`] clusters.
    Student,
}

/// A ratio or difference of two arms over clusters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClusterEstimate {
    /// The estimate: the ratio, or the difference.
    pub value: f64,
    /// Its 95 % interval.
    pub interval: Interval,
    /// The method by which the interval was computed.
    pub method: ClusterMethod,
    /// The numbers of clusters of the reference arm and of the arm.
    pub clusters: [usize; 2],
    /// True where even complete separation of honest clusters happens more often than once in
    /// twenty, two out of (a + b choose a): then no verdict is given.
    pub few: bool,
}

impl<'a> Clusters<'a> {
    /// Takes the clusters of the reference arm and of the arm; `seed` is the bootstrap's.
    ///
    /// # Errors
    /// When a side has fewer than two clusters, or a cluster has no block.
    pub fn new(
        reference: &'a [Vec<f64>],
        arm: &'a [Vec<f64>],
        seed: u64,
    ) -> Result<Self, EstimateError> {
        let least = reference.len().min(arm.len());
        if least < 2 {
            return Err(EstimateError::TooFewClusters { got: least });
        }
        if reference.iter().chain(arm).any(Vec::is_empty) {
            return Err(EstimateError::TooFewBlocks { got: 0 });
        }
        Ok(Self { reference, arm, seed })
    }

    /// Estimates the geometric mean over clusters of arm / reference.
    ///
    /// # Errors
    /// When a value is not finite or not above zero.
    pub fn ratio(&self) -> Result<ClusterEstimate, EstimateError> {
        let (reference, arm) = (take_logs(self.reference)?, take_logs(self.arm)?);
        let of_logs = self.estimate(&reference, &arm)?;
        Ok(ClusterEstimate {
            value: of_logs.value.exp(),
            interval: of_logs.interval.map(f64::exp),
            ..of_logs
        })
    }

    /// Estimates the mean over clusters of arm minus that of the reference arm.
    ///
    /// # Errors
    /// When a value is not finite.
    pub fn difference(&self) -> Result<ClusterEstimate, EstimateError> {
        self.estimate(self.reference, self.arm)
    }

    fn estimate(
        &self,
        reference: &[Vec<f64>],
        arm: &[Vec<f64>],
    ) -> Result<ClusterEstimate, EstimateError> {
        let (x, y) = (cluster_means(reference), cluster_means(arm));
        let bca = Bca::of_difference(&x, &y, RESAMPLES, self.seed)?;
        let clusters = [x.len(), y.len()];
        let enough = clusters.iter().all(|count| *count >= CLUSTERS_BOOTSTRAP_MIN);
        let (method, interval) = if enough {
            (ClusterMethod::Bca, bca.expanded_interval(0.95))
        } else {
            (ClusterMethod::Student, welch_interval(&x, &y, 0.95))
        };
        Ok(ClusterEstimate {
            value: bca.estimate(),
            interval,
            method,
            clusters,
            few: has_too_few_clusters(clusters),
        })
    }
}

/// Whether there are too few clusters for a significance of 5 %: even complete separation of two
/// equal arms happens by chance more often than that (3 and 3 clusters: 10 %; 4 and 4: 3 %).
pub fn has_too_few_clusters([reference, arm]: [usize; 2]) -> bool {
    let mut orders = 1.0;
    for i in 1..=reference {
        orders *= (arm + i) as f64 / i as f64;
    }
    2.0 / orders > 0.05
}

fn take_logs(clusters: &[Vec<f64>]) -> Result<Vec<Vec<f64>>, EstimateError> {
    let of = |(index, value): (usize, &f64)| {
        if *value > 0.0 { Ok(value.ln()) } else { Err(EstimateError::NotPositive { index }) }
    };
    clusters.iter().map(|blocks| blocks.iter().enumerate().map(of).collect()).collect()
}

fn cluster_means(clusters: &[Vec<f64>]) -> Vec<f64> {
    clusters.iter().map(|blocks| mean_of_nonempty(blocks)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn the_ratio_is_of_cluster_means_however_many_blocks_a_cluster_has() {
        let reference = [vec![1.0, 4.0], vec![2.0]];
        let arm = [vec![4.0], vec![4.0, 4.0, 4.0]];
        let ratio = Clusters::new(&reference, &arm, 1).unwrap().ratio().unwrap();
        assert!((ratio.value - 2.0).abs() < 1e-12);
        assert_eq!(
            (ratio.clusters, ratio.method, ratio.few),
            ([2, 2], ClusterMethod::Student, true)
        );
    }

    #[test]
    fn one_cluster_has_no_interval() {
        let one = [vec![1.0; 20]];
        let two = [vec![1.0], vec![2.0]];
        let error = Clusters::new(&one, &two, 1).err();
        assert_eq!(error, Some(EstimateError::TooFewClusters { got: 1 }));
        let empty = [vec![], vec![1.0]];
        assert!(Clusters::new(&empty, &two, 1).is_err());
    }

    #[test]
    fn four_and_four_can_be_told_apart_three_and_three_cannot() {
        let few: Vec<bool> =
            [[2, 2], [3, 3], [3, 4], [4, 4], [2, 8]].map(has_too_few_clusters).to_vec();
        assert_eq!(few, [true, true, true, false, false]);
    }

    #[test]
    fn many_blocks_do_not_narrow_what_two_machines_say() {
        // Machines differ by 10 %, blocks by 0.1 %: 400 blocks of two machines are two machines.
        let mut random = Random::new(3);
        let mut machine = |factor: f64| -> Vec<f64> {
            (0..200).map(|_| 10.0 * factor * (0.001 * random.normal()).exp()).collect()
        };
        let reference = [machine(1.0), machine(1.1)];
        let arm = [machine(1.05), machine(1.15)];
        let ratio = Clusters::new(&reference, &arm, 1).unwrap().ratio().unwrap();
        assert!(ratio.interval.low < 0.8 && ratio.interval.high > 1.3, "{ratio:?}");
    }

    #[test]
    fn intervals_over_clusters_cover_the_truth_about_as_often_as_they_say() {
        for clusters in [3, 5, 8, 12] {
            let mut random = Random::new(clusters);
            let trials = 600;
            let mut missed = 0;
            for trial in 0..trials {
                let mut arm = |truth: f64| -> Vec<f64> {
                    let mean = |random: &mut Random| truth + 0.03 * random.normal();
                    (0..clusters).map(|_| mean(&mut random)).collect()
                };
                let (x, y) = (arm(0.0), arm(0.05));
                let interval = if clusters < CLUSTERS_BOOTSTRAP_MIN as u64 {
                    welch_interval(&x, &y, 0.95)
                } else {
                    Bca::of_difference(&x, &y, 1000, trial).unwrap().expanded_interval(0.95)
                };
                missed += u32::from(interval.excludes(0.05));
            }
            assert!((8..=48).contains(&missed), "{clusters} clusters: {missed} of {trials}");
        }
    }
}

//! Chooses tokens from logits, by the same rule as the worker (`python/confide/worker/sample.py`).

use std::collections::HashSet;

use confide_engine::Sampling;

use crate::random::split_mix;

/// Chooses tokens from logits. The same seed and logits always lead to the same tokens.
pub(crate) struct Sampler {
    sampling: Sampling,
    /// How many tokens were chosen: the next one takes this number of the seed's stream.
    chosen: u64,
    /// The size of the vocabulary. All token numbers are below it.
    vocabulary: usize,
    banned: HashSet<u32>,
}

impl Sampler {
    pub(crate) fn new(sampling: Sampling, vocabulary: usize, banned: HashSet<u32>) -> Self {
        Self { sampling, chosen: 0, vocabulary, banned }
    }

    /// Chooses the next token; `None` if no allowed logit is a number.
    pub(crate) fn choose(&mut self, logits: &[f32]) -> Option<u32> {
        let draw = uniform_at(self.sampling.seed, self.chosen);
        self.chosen += 1;
        let admitted = logits
            .iter()
            .take(self.vocabulary)
            .enumerate()
            .map(|(id, logit)| (id as u32, *logit))
            .filter(|(id, logit)| logit.is_finite() && !self.banned.contains(id));
        // The first of equal logits wins, so that the answer does not depend on a sort's order.
        let (best, greatest) =
            admitted.clone().reduce(|best, next| if next.1 > best.1 { next } else { best })?;
        if self.sampling.temperature <= 0.0 {
            return Some(best);
        }
        let weight = |logit: f32| f64::from((logit - greatest) / self.sampling.temperature).exp();
        let mut weights: Vec<(u32, f64)> =
            admitted.map(|(id, logit)| (id, weight(logit))).collect();
        if self.sampling.top_p < 1.0 {
            let least = nucleus_threshold(&weights, f64::from(self.sampling.top_p));
            weights.retain(|(_, weight)| *weight >= least);
        }
        let target = draw * weights.iter().map(|(_, weight)| weight).sum::<f64>();
        let mut sum = 0.0;
        let passes = |(_, weight): &&(u32, f64)| {
            sum += weight;
            sum > target
        };
        weights.iter().find(passes).or(weights.last()).map(|(id, _)| *id)
    }
}

/// Number `index` of a seed's stream in [0, 1): SplitMix64's output after `index + 1` steps.
fn uniform_at(seed: u64, index: u64) -> f64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let state = seed.wrapping_add(STEP.wrapping_mul(index.wrapping_add(1)));
    (split_mix(state) >> 11) as f64 / (1u64 << 53) as f64
}

/// The least weight of the nucleus, the smallest set of the largest weights with a share of at
/// least `top_p`. Weights that equal it belong to the nucleus as well.
fn nucleus_threshold(weights: &[(u32, f64)], top_p: f64) -> f64 {
    let mut sorted: Vec<f64> = weights.iter().map(|(_, weight)| *weight).collect();
    sorted.sort_by(|left, right| right.total_cmp(left));
    let size = nucleus_size(&sorted, top_p);
    sorted[size - 1]
}

/// The smallest number of the largest weights whose sum reaches the share `top_p` of the whole sum;
/// at least one.
fn nucleus_size(weights: &[f64], top_p: f64) -> usize {
    let wanted = weights.iter().sum::<f64>() * top_p;
    let mut sum = 0.0;
    for (index, weight) in weights.iter().enumerate() {
        sum += weight;
        if sum >= wanted {
            return index + 1;
        }
    }
    weights.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(temperature: f32, top_p: f32, seed: u64) -> Sampler {
        Sampler::new(Sampling { temperature, top_p, seed }, 4, HashSet::from([3]))
    }

    #[test]
    fn greedy_takes_the_first_of_the_best_admitted() {
        let mut greedy = sampler(0.0, 1.0, 0);
        assert_eq!(greedy.choose(&[1.0, 2.0, 2.0, 9.0, 9.0]), Some(1));
        assert_eq!(greedy.choose(&[f32::NAN, f32::NEG_INFINITY, 0.0]), Some(2));
        assert_eq!(greedy.choose(&[f32::NAN]), None);
        assert_eq!(sampler(1.0, 1.0, 0).choose(&[f32::NAN]), None);
    }

    #[test]
    fn a_seed_decides_and_shares_follow_the_weights() {
        let logits = [0.0, 2.0f32.ln(), 1.0f32.ln(), 9.0];
        let draws = |seed| {
            let mut sampler = sampler(1.0, 1.0, seed);
            (0..4000).map(|_| sampler.choose(&logits)).collect::<Vec<_>>()
        };
        assert_eq!(draws(5), draws(5));
        assert_ne!(draws(5), draws(6));
        let twos = draws(5).iter().filter(|id| **id == Some(1)).count();
        assert!((1850..2150).contains(&twos), "half of the weight, got {twos}");
    }

    #[test]
    fn the_numbers_of_a_seed_are_those_of_the_worker() {
        // SplitMix64's published first outputs for the seed 0; the worker's test has the same.
        let published = [0xe220_a839_7b1d_cdaf_u64, 0x6e78_9e6a_a1b9_65f4];
        for (index, output) in published.into_iter().enumerate() {
            let wanted = (output >> 11) as f64 / (1u64 << 53) as f64;
            assert_eq!(uniform_at(0, index as u64), wanted);
        }
        // By the running sum in the order of the vocabulary: 0.88 falls into the last of three.
        let mut sampler = sampler(1.0, 1.0, 0);
        assert_eq!(sampler.choose(&[0.0, 0.0, 0.0]), Some(2));
        assert_eq!(sampler.choose(&[0.0, 0.0, 0.0]), Some(1), "0.43");
    }

    #[test]
    fn top_p_leaves_out_the_tail() {
        let logits = [5.0, 0.0, 0.0];
        for top_p in [0.0, 0.5] {
            let mut sampler = sampler(1.0, top_p, 1);
            assert!((0..500).all(|_| sampler.choose(&logits) == Some(0)));
        }
        assert_eq!(nucleus_size(&[0.5, 0.3, 0.2], 0.75), 2);
        assert_eq!(nucleus_size(&[0.5, 0.3, 0.2], 1.0), 3);
    }
}

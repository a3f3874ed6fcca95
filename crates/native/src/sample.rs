//! Chooses tokens from logits.

use std::collections::HashSet;

use confide_engine::Sampling;

use crate::random::SeededRandom;

/// Chooses tokens from logits. The same seed and logits always lead to the same tokens.
pub(crate) struct Sampler {
    sampling: Sampling,
    random: SeededRandom,
    /// The size of the vocabulary. All token numbers are below it.
    vocabulary: usize,
    banned: HashSet<u32>,
}

impl Sampler {
    pub(crate) fn new(sampling: Sampling, vocabulary: usize, banned: HashSet<u32>) -> Self {
        let random = SeededRandom::new(sampling.seed, "sampling");
        Self { sampling, random, vocabulary, banned }
    }

    /// Chooses the next token; `None` if no allowed logit is a number.
    pub(crate) fn choose(&mut self, logits: &[f32]) -> Option<u32> {
        let admitted = logits
            .iter()
            .take(self.vocabulary)
            .enumerate()
            .map(|(id, logit)| (id as u32, *logit))
            .filter(|(id, logit)| logit.is_finite() && !self.banned.contains(id));
        if self.sampling.temperature <= 0.0 {
            // The first of equal logits wins, so that the answer does not depend on a sort's order.
            return admitted
                .reduce(|best, next| if next.1 > best.1 { next } else { best })
                .map(|(id, _)| id);
        }
        let mut candidates: Vec<(u32, f32)> = admitted.collect();
        candidates.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
        let best = candidates.first()?.1;
        let weights: Vec<f64> = candidates
            .iter()
            .map(|(_, logit)| f64::from((logit - best) / self.sampling.temperature).exp())
            .collect();
        let kept = nucleus_size(&weights, f64::from(self.sampling.top_p));
        let mut point = self.random.next_unit() * weights[..kept].iter().sum::<f64>();
        for (index, weight) in weights[..kept].iter().enumerate() {
            point -= weight;
            if point < 0.0 {
                return Some(candidates[index].0);
            }
        }
        Some(candidates[kept - 1].0)
    }
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

//! The online step: one integer product, plus the share that the offline part took away.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use confide_rlwe::Rng;
use zeroize::Zeroizing;

use super::{adapter::Group, queue::Compute};
use crate::{
    Digits,
    mask::MaskStream,
    protocol::{pack, packed_bytes},
};

/// Noise is cut at this many standard deviations, for which the terms' norm limit leaves room.
const NOISE_CUT: f64 = 8.0;

thread_local! {
    /// Kept between products, so that the online step allocates little.
    static DIGITS: RefCell<Digits> = RefCell::new(Digits::default());
}

/// Computes products with the matrices of one adapter.
pub(crate) struct Online {
    groups: Arc<Vec<Group>>,
}

/// Masked vectors of one client for one input.
pub(crate) struct OnlineJob {
    pub(crate) group: usize,
    /// One after the other, below 2^k.
    pub(crate) vectors: Vec<u64>,
    /// The shares of this batch's answers.
    pub(crate) shares: MaskStream,
    /// The first vector's place in the batch.
    pub(crate) token: u32,
}

impl Online {
    pub(crate) fn new(groups: Arc<Vec<Group>>) -> Self {
        Self { groups }
    }

    /// The packed answers of jobs for one input.
    fn answer(&self, group: usize, jobs: &[OnlineJob]) -> Option<Vec<Vec<u8>>> {
        let (matrix, terms) =
            (&self.groups[group].weights.matrix, &self.groups[group].weights.terms);
        let (rows, columns, bits) = (matrix.rows(), matrix.columns(), terms.bits);
        let vectors: Vec<&[u64]> =
            jobs.iter().flat_map(|job| job.vectors.chunks_exact(columns)).collect();
        let mut products = vec![0; rows * vectors.len()];
        DIGITS.with_borrow_mut(|digits| matrix.products(&vectors, bits, digits, &mut products));
        if terms.noise_sigma > 0.0 {
            add_noise(&mut products, terms.noise_sigma)?;
        }
        let mask = u64::MAX >> (64 - bits);
        let mut rest = &mut products[..];
        let mut answers = Vec::with_capacity(jobs.len());
        for job in jobs {
            let count = job.vectors.len() / columns;
            let (own, others) = rest.split_at_mut(rows * count);
            rest = others;
            let mut shares = Zeroizing::new(vec![0; own.len()]);
            job.shares.rows(job.token..job.token + count as u32, rows, bits, &mut shares);
            for (product, share) in own.iter_mut().zip(shares.iter()) {
                *product = product.wrapping_add(*share) & mask;
            }
            let mut packed = Vec::with_capacity(count * packed_bytes(rows, bits));
            own.chunks_exact(rows).for_each(|row| pack(row, bits, &mut packed));
            answers.push(packed);
        }
        Some(answers)
    }
}

impl Compute for Online {
    type Job = OnlineJob;
    type Answer = Vec<u8>;

    fn compute(&self, jobs: Vec<OnlineJob>) -> Vec<Vec<u8>> {
        let count = jobs.len();
        let mut by_group: BTreeMap<usize, (Vec<usize>, Vec<OnlineJob>)> = BTreeMap::new();
        for (place, job) in jobs.into_iter().enumerate() {
            let (places, jobs) = by_group.entry(job.group).or_default();
            places.push(place);
            jobs.push(job);
        }
        let mut answers = vec![Vec::new(); count];
        for (group, (places, jobs)) in by_group {
            // Without randomness no noise, and without noise no answer: it stays empty.
            for (place, answer) in
                places.into_iter().zip(self.answer(group, &jobs).unwrap_or_default())
            {
                answers[place] = answer;
            }
        }
        answers
    }

    fn cost(&self, job: &OnlineJob) -> u64 {
        job.vectors.len() as u64 * self.groups[job.group].rows() as u64
    }
}

fn add_noise(products: &mut [u64], sigma: f64) -> Option<()> {
    let mut rng = Rng::from_os().ok()?;
    for product in products {
        let noise = (normal(&mut rng).clamp(-NOISE_CUT, NOISE_CUT) * sigma).round() as i64;
        *product = product.wrapping_add(noise as u64);
    }
    Some(())
}

/// Box and Muller's transform of two uniform numbers in (0, 1).
fn normal(rng: &mut Rng) -> f64 {
    let mut uniform = || ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (radius, angle) = ((-2.0 * uniform().ln()).sqrt(), uniform() * std::f64::consts::TAU);
    radius * angle.cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_the_deviation_that_was_asked_for() {
        let mut values = vec![0u64; 20_000];
        add_noise(&mut values, 100.0).unwrap();
        let square: f64 = values.iter().map(|value| (*value as i64 as f64).powi(2)).sum();
        let deviation = (square / values.len() as f64).sqrt();
        assert!((95.0..105.0).contains(&deviation), "{deviation}");
        assert!(values.iter().all(|value| (*value as i64).unsigned_abs() <= 800));
    }
}

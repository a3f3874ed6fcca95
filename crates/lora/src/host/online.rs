//! The online step of the masked scheme, computed together for all waiting requests.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    sync::{Arc, MutexGuard},
};

use confide_rlwe::Rng;

use super::{group::ProjectionGroup, queue::JobComputer, sequences::CounterSequences};
use crate::{
    int_matrix::DigitScratch,
    mask::HostEpoch,
    masked::{ApplyJob, CounterSequence, HostWeights},
    meter::StepMeter,
    protocol::{Refusal, pack, packed_bytes},
};

thread_local! {
    /// Scratch memory that is reused for later products, so that the online step allocates little.
    static SCRATCH: RefCell<Option<(DigitScratch, Rng)>> = const { RefCell::new(None) };
}

/// Computes products with the matrices of one adapter.
pub(crate) struct OnlineComputer {
    groups: Arc<Vec<ProjectionGroup>>,
    epoch: HostEpoch,
}

/// Masked vectors of one session for one input.
pub(crate) struct OnlineJob {
    pub(crate) sequences: CounterSequences,
    pub(crate) group: usize,
    pub(crate) counter: u64,
    /// The vectors one after the other, words below 2^k.
    pub(crate) vectors: Vec<u64>,
}

/// The packed products, or a refusal.
pub(crate) type AnswerResult = Result<Vec<u8>, Refusal>;

impl OnlineComputer {
    pub(crate) fn new(groups: Arc<Vec<ProjectionGroup>>, epoch: HostEpoch) -> Self {
        Self { groups, epoch }
    }

    /// Computes one product for all jobs of an input. If a session has several jobs, all but the first
    /// wait for the next product.
    fn answer_group_jobs(
        &self,
        group: usize,
        jobs: Vec<(usize, OnlineJob)>,
        answers: &mut [AnswerResult],
    ) {
        let Some(input) = self.groups[group].masked_weights() else { return };
        let mut waiting = VecDeque::from(jobs);
        while !waiting.is_empty() {
            let mut now: Vec<(usize, OnlineJob)> = Vec::with_capacity(waiting.len());
            for (place, job) in std::mem::take(&mut waiting) {
                let same =
                    |(_, other): &(usize, OnlineJob)| job.sequences.is_same(&other.sequences);
                match now.iter().any(same) {
                    true => waiting.push_back((place, job)),
                    false => now.push((place, job)),
                }
            }
            let round = self.compute_round(input, group, &now);
            for ((place, _), answer) in now.iter().zip(round) {
                answers[*place] = answer;
            }
        }
    }

    fn compute_round(
        &self,
        input: &HostWeights,
        group: usize,
        jobs: &[(usize, OnlineJob)],
    ) -> Vec<AnswerResult> {
        let mut sequences: Vec<MutexGuard<'_, CounterSequence>> =
            jobs.iter().filter_map(|(_, job)| job.sequences.lock(group)).collect();
        let applied = jobs.iter().zip(&mut sequences).map(|((_, job), sequence)| ApplyJob {
            sequence,
            epoch: self.epoch,
            counter: job.counter,
            vectors: &job.vectors,
        });
        let mut applied: Vec<ApplyJob<'_>> = applied.collect();
        let (rows, bits) = (input.terms().rows(), input.terms().bits);
        let products = SCRATCH.with_borrow_mut(|scratch| {
            if scratch.is_none() {
                *scratch = Rng::from_os().ok().map(|rng| (DigitScratch::default(), rng));
            }
            let (digits, rng) = scratch.as_mut()?;
            Some(input.apply(&mut applied, digits, rng, &mut StepMeter::default()))
        });
        let packed = |words: Vec<u64>| {
            let mut packed = Vec::with_capacity(words.len() / rows * packed_bytes(rows, bits));
            words.chunks_exact(rows).for_each(|vector| pack(vector, bits, &mut packed));
            packed
        };
        let answers = products.unwrap_or_default().into_iter();
        answers.map(|answer| Ok(packed(answer?))).collect()
    }
}

impl JobComputer for OnlineComputer {
    type Job = OnlineJob;
    type Answer = AnswerResult;

    fn compute(&self, jobs: Vec<OnlineJob>) -> Vec<AnswerResult> {
        let mut answers = vec![Err(Refusal::Internal); jobs.len()];
        let mut by_group: BTreeMap<usize, Vec<(usize, OnlineJob)>> = BTreeMap::new();
        for (place, job) in jobs.into_iter().enumerate() {
            by_group.entry(job.group).or_default().push((place, job));
        }
        for (group, jobs) in by_group {
            self.answer_group_jobs(group, jobs, &mut answers);
        }
        answers
    }

    fn cost(&self, job: &OnlineJob) -> u64 {
        job.vectors.len() as u64 * self.groups[job.group].rows() as u64
    }
}

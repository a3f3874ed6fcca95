//! The plan of a run: which cases, in which order, with which seeds. All of it from one seed.

use confide_estimate::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::suite::bench::{Bench, Params};

/// The extent to which a suite is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Fewer blocks and the quick grid, for a first impression.
    #[default]
    Quick,
    /// The blocks and the grid that a verdict at 2 % needs.
    Full,
}

/// A point of a bench's grid, at which every arm is run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    /// The grid's point in words, `payload_bytes=65536 chunk_bytes=16384`; empty without a grid.
    pub(crate) key: String,
    /// The bench's `params`, and the point of the grid.
    pub(crate) params: Params,
}

/// Lists every point of the grid, in the order of the names.
pub(crate) fn cases(bench: &Bench, effort: Effort) -> Vec<Case> {
    let mut cases = vec![Case { key: String::new(), params: bench.params.clone() }];
    for (name, full) in &bench.grid {
        let quick = bench.quick_grid.get(name).filter(|_| effort == Effort::Quick);
        let values = quick.unwrap_or(full);
        cases = cases
            .iter()
            .flat_map(|case| values.iter().map(|value| extend_case(case, name, value)))
            .collect();
    }
    cases
}

/// Returns the number of blocks: the one asked for, or the suite's.
pub(crate) fn block_count(bench: &Bench, effort: Effort, asked: Option<u32>) -> u32 {
    asked.unwrap_or(match effort {
        Effort::Quick => bench.blocks.quick,
        Effort::Full => bench.blocks.full,
    })
}

/// Returns a random order of `count` things for this place in the plan.
pub(crate) fn random_order(seed: u64, place: &[&str], block: u32, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    Random::new(derive_seed(seed, "order", place, block)).shuffle(&mut order);
    order
}

/// Derives the seed of the work of one block: the same for every arm, below 2^53 so that it
/// survives JSON in every language.
pub(crate) fn work_seed(seed: u64, place: &[&str], block: u32) -> u64 {
    derive_seed(seed, "work", place, block) >> 11
}

fn derive_seed(seed: u64, purpose: &str, place: &[&str], block: u32) -> u64 {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    for part in [purpose].iter().chain(place) {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.update(block.to_le_bytes());
    let digest = hash.finalize();
    digest.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

fn extend_case(case: &Case, name: &str, value: &Value) -> Case {
    let mut next = case.clone();
    let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if !next.key.is_empty() {
        next.key.push(' ');
    }
    next.key.push_str(&format!("{name}={shown}"));
    next.params.insert(name.to_owned(), value.clone());
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Suite, tests::SMALL};

    #[test]
    fn a_grid_is_every_combination_and_a_quick_one_is_smaller() {
        let suite = Suite::parse("small", SMALL).unwrap();
        let full = cases(&suite.benches[0], Effort::Full);
        assert_eq!(full.len(), 6);
        assert_eq!(full[0].key, "kind=x size=1");
        let quick = cases(&suite.benches[0], Effort::Quick);
        assert_eq!(quick.len(), 2);
        assert_eq!(quick[1].params["kind"], "y");
    }

    #[test]
    fn the_order_comes_from_the_seed_and_changes_from_block_to_block() {
        let orders = |seed| (0..20).map(|block| random_order(seed, &["a", ""], block, 4)).collect();
        let one: Vec<Vec<usize>> = orders(7);
        let again: Vec<Vec<usize>> = orders(7);
        let other: Vec<Vec<usize>> = orders(8);
        assert_eq!(one, again);
        assert_ne!(one, other);
        assert!(one.iter().any(|order| order[0] != one[0][0]));
        for mut order in one {
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn every_arm_goes_first_about_equally_often() {
        let mut first = [0; 3];
        for block in 0..300 {
            first[random_order(1, &["bench", "case"], block, 3)[0]] += 1;
        }
        assert!(first.iter().all(|count| (70..130).contains(count)), "{first:?}");
    }

    #[test]
    fn the_work_of_a_block_has_one_seed_that_fits_a_double() {
        let seed = work_seed(7, &["bench", "case"], 3);
        assert_eq!(seed, work_seed(7, &["bench", "case"], 3));
        assert_ne!(seed, work_seed(7, &["bench", "case"], 4));
        assert!(seed < 1 << 53);
    }
}

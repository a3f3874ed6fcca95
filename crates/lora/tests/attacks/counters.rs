//! One mask for two vectors, or one share for two answers, gives their difference away. Counters are
//! used once at both ends, and nothing of them survives a process.

use confide_lora::{ProcessKey, masked::MaskedError};
use confide_rlwe::Rng;

use crate::world::{BITS, WORD, World, slot};

const COLUMNS: usize = 40;

#[test]
fn two_applies_on_one_counter_are_refused_and_end_the_batch() {
    let mut world = World::new(3, COLUMNS);
    let mut sequence = world.sequence();
    world.batch(&mut sequence);
    let epoch = world.epoch();
    let (first, second) = (world.words(COLUMNS), world.words(COLUMNS));
    world.apply(&mut sequence, epoch, 7, &first).expect("fresh");
    let refused = world.apply(&mut sequence, epoch, 7, &second);
    assert_eq!(refused, Err(MaskedError::CounterUsed { counter: 7 }));
    // No other counter of the batch is answered after that.
    let refused = world.apply(&mut sequence, epoch, 8, &second);
    assert_eq!(refused, Err(MaskedError::CounterUnknown { counter: 8 }));
}

#[test]
fn a_run_of_vectors_that_touches_a_used_counter_is_refused_whole() {
    let mut world = World::new(3, COLUMNS);
    let mut sequence = world.sequence();
    world.batch(&mut sequence);
    let epoch = world.epoch();
    let three = world.words(3 * COLUMNS);
    world.apply(&mut sequence, epoch, 5, &three[..COLUMNS]).expect("fresh");
    let refused = world.apply(&mut sequence, epoch, 3, &three);
    assert_eq!(refused, Err(MaskedError::CounterUsed { counter: 5 }));
    let mut sequence = world.sequence();
    world.batch(&mut sequence);
    let refused = world.apply(&mut sequence, epoch, 254, &three);
    assert_eq!(refused, Err(MaskedError::CounterUnknown { counter: 256 }));
}

#[test]
fn control_two_answers_with_one_share_give_a_column() {
    let mut world = World::new(3, COLUMNS);
    let share = world.words(3);
    let answer = |world: &World, y: &[u64]| -> Vec<u64> {
        world.product(y).iter().zip(&share).map(|(z, s)| z.wrapping_add(*s) & WORD).collect()
    };
    let y = world.words(COLUMNS);
    let mut other = y.clone();
    other[11] = (other[11] + 1) & WORD;
    let (first, second) = (answer(&world, &y), answer(&world, &other));
    for row in 0..3 {
        assert_eq!(second[row].wrapping_sub(first[row]) & WORD, world.row(row)[11]);
    }
}

#[test]
fn a_replayed_answer_is_refused_by_the_key_holder() {
    let mut world = World::new(3, COLUMNS);
    let mut sequence = world.sequence();
    let mut batch = world.batch(&mut sequence);
    let epoch = world.epoch();
    let masked = batch.mask(&[5; COLUMNS], &mut world.meter).expect("left");
    let answer = world.apply(&mut sequence, epoch, masked.counter, &masked.vectors).expect("fresh");
    batch.unmask(masked.counter, &answer, &mut world.meter).expect("asked");
    let replayed = batch.unmask(masked.counter, &answer, &mut world.meter);
    assert_eq!(replayed, Err(MaskedError::NotAsked { counter: 0 }));
    assert_eq!(batch.mask(&[5; COLUMNS], &mut world.meter), Err(MaskedError::Dropped));
    assert_eq!(batch.tokens_left(), 0);
}

#[test]
fn the_key_holder_never_uses_a_mask_twice() {
    let mut world = World::new(1, COLUMNS);
    let mut sequence = world.sequence();
    let mut batch = world.batch(&mut sequence);
    let (x, other) = ([3i16; COLUMNS], [500i16; COLUMNS]);
    let mut counters = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for token in 0..200 {
        let vector = if token % 2 == 0 { &x } else { &other };
        let masked = batch.mask(vector, &mut world.meter).expect("left");
        counters.push(masked.counter);
        let mask: Vec<u64> = masked
            .vectors
            .iter()
            .zip(vector)
            .map(|(y, x)| (*x as u64).wrapping_sub(*y) & WORD)
            .collect();
        assert!(seen.insert(mask), "token {token}");
    }
    assert!(counters.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn control_one_mask_for_two_vectors_gives_their_difference() {
    let mut world = World::new(1, COLUMNS);
    let mask = world.words(COLUMNS);
    let hidden =
        |x: i64| mask.iter().map(|r| (x as u64).wrapping_sub(*r) & WORD).collect::<Vec<_>>();
    let (first, second) = (hidden(3), hidden(500));
    assert!(first.iter().zip(&second).all(|(a, b)| b.wrapping_sub(*a) & WORD == 497));
}

#[test]
fn after_a_crash_or_with_restored_state_the_epoch_is_another() {
    let mut world = World::new(2, COLUMNS);
    let mut sequence = world.sequence();
    let mut batch = world.batch(&mut sequence);
    let before = world.epoch();
    let masked = batch.mask(&[9; COLUMNS], &mut world.meter).expect("left");
    assert_eq!(batch.epoch(), before);

    // The host restarts, and what was prepared is lost with its process: the same message names an
    // epoch that no sequence has.
    world.process = ProcessKey::random(&mut Rng::from_seed([77; 32]));
    let mut fresh = world.sequence();
    let refused = world.apply(&mut fresh, before, masked.counter, &masked.vectors);
    assert!(matches!(refused, Err(MaskedError::Epoch { got, .. }) if got == before));
    let refused = world.input.prepare(&world.process, &mut fresh, before, 0);
    assert!(matches!(refused.err(), Some(MaskedError::Epoch { .. })));
    // The old counter was never prepared under the new epoch.
    let now = world.epoch();
    let refused = world.apply(&mut fresh, now, masked.counter, &masked.vectors);
    assert_eq!(refused, Err(MaskedError::CounterUnknown { counter: masked.counter }));
    // A sequence of the old process cannot be prepared further under the new key.
    let refused = world.input.prepare(&world.process, &mut sequence, before, 1);
    assert!(matches!(refused.err(), Some(MaskedError::Epoch { .. })));
}

#[test]
fn preparing_a_batch_twice_is_refused_and_a_new_sequence_has_other_shares() {
    let mut world = World::new(2, COLUMNS);
    let epoch = world.epoch();
    let (request, _) = world.request(0);
    let open = |world: &World, answers: &[confide_rlwe::SmallCiphertext]| -> Vec<Vec<u64>> {
        answers.iter().map(|answer| world.key.decrypt(answer).expect("whole")).collect()
    };
    let mut sequence = world.sequence();
    let answers = world.answers(&mut sequence, &request);
    let first = open(&world, &answers);
    let refused = world.input.prepare(&world.process, &mut sequence, epoch, 0);
    assert_eq!(refused.err(), Some(MaskedError::Batch { wanted: 1, got: 0 }));
    let refused = world.input.prepare(&world.process, &mut sequence, epoch, 2);
    assert_eq!(refused.err(), Some(MaskedError::Batch { wanted: 1, got: 2 }));

    // The same masks, the same client, the same batch, in a sequence that was lost and begun again:
    // with one share the difference would be 0 throughout, and A·(r − r') for masks of one's choice.
    let mut again = world.sequence();
    assert_eq!((again.slot(), again.next_batch()), (&slot(), 0));
    let answers = world.answers(&mut again, &request);
    let second = open(&world, &answers);
    let same = first.iter().flatten().zip(second.iter().flatten()).filter(|(a, b)| a == b).count();
    assert_eq!(same, 0, "of {} words of {BITS} bits", 2 * 256);
    // Control: the same batch of one sequence does have one share, or unmasking would not work.
    let shares = |world: &mut World, sequence: &mut _| {
        world.apply(sequence, epoch, 3, &[0; COLUMNS]).expect("fresh")
    };
    assert_ne!(shares(&mut world, &mut sequence), shares(&mut world, &mut again));
}

//! One mask for two vectors, or for two answers, reveals their difference. Both ends use a counter once,
//! and counters are lost when the process ends.

use confide_lora::{ProcessKey, masked::MaskedError};
use confide_rlwe::Rng;

use crate::parties::{BITS, Parties, WORD, slot};

const COLUMNS: usize = 40;

#[test]
fn two_applies_on_one_counter_are_refused_and_end_the_batch() {
    let mut parties = Parties::new(3, COLUMNS);
    let mut sequence = parties.sequence();
    parties.batch(&mut sequence);
    let epoch = parties.epoch();
    let (first, second) = (parties.words(COLUMNS), parties.words(COLUMNS));
    parties.apply(&mut sequence, epoch, 7, &first).expect("fresh");
    let refused = parties.apply(&mut sequence, epoch, 7, &second);
    assert_eq!(refused, Err(MaskedError::CounterUsed { counter: 7 }));
    // No other counter of the batch is answered after that.
    let refused = parties.apply(&mut sequence, epoch, 8, &second);
    assert_eq!(refused, Err(MaskedError::CounterUnknown { counter: 8 }));
}

#[test]
fn a_run_of_vectors_that_touches_a_used_counter_is_refused_whole() {
    let mut parties = Parties::new(3, COLUMNS);
    let mut sequence = parties.sequence();
    parties.batch(&mut sequence);
    let epoch = parties.epoch();
    let three = parties.words(3 * COLUMNS);
    parties.apply(&mut sequence, epoch, 5, &three[..COLUMNS]).expect("fresh");
    let refused = parties.apply(&mut sequence, epoch, 3, &three);
    assert_eq!(refused, Err(MaskedError::CounterUsed { counter: 5 }));
    let mut sequence = parties.sequence();
    parties.batch(&mut sequence);
    let refused = parties.apply(&mut sequence, epoch, 254, &three);
    assert_eq!(refused, Err(MaskedError::CounterUnknown { counter: 256 }));
}

#[test]
fn control_two_answers_with_one_share_give_a_column() {
    let mut parties = Parties::new(3, COLUMNS);
    let share = parties.words(3);
    let answer = |parties: &Parties, y: &[u64]| -> Vec<u64> {
        parties.product(y).iter().zip(&share).map(|(z, s)| z.wrapping_add(*s) & WORD).collect()
    };
    let y = parties.words(COLUMNS);
    let mut other = y.clone();
    other[11] = (other[11] + 1) & WORD;
    let (first, second) = (answer(&parties, &y), answer(&parties, &other));
    for row in 0..3 {
        assert_eq!(second[row].wrapping_sub(first[row]) & WORD, parties.row(row)[11]);
    }
}

#[test]
fn a_replayed_answer_is_refused_by_the_key_holder() {
    let mut parties = Parties::new(3, COLUMNS);
    let mut sequence = parties.sequence();
    let mut batch = parties.batch(&mut sequence);
    let epoch = parties.epoch();
    let masked = batch.mask(&[5; COLUMNS], &mut parties.meter).expect("left");
    let answer =
        parties.apply(&mut sequence, epoch, masked.counter, &masked.vectors).expect("fresh");
    batch.unmask(masked.counter, &answer, &mut parties.meter).expect("asked");
    let replayed = batch.unmask(masked.counter, &answer, &mut parties.meter);
    assert_eq!(replayed, Err(MaskedError::UnexpectedAnswer { counter: 0 }));
    assert_eq!(batch.mask(&[5; COLUMNS], &mut parties.meter), Err(MaskedError::BatchDropped));
    assert_eq!(batch.tokens_left(), 0);
}

#[test]
fn the_key_holder_never_uses_a_mask_twice() {
    let mut parties = Parties::new(1, COLUMNS);
    let mut sequence = parties.sequence();
    let mut batch = parties.batch(&mut sequence);
    let (x, other) = ([3i16; COLUMNS], [500i16; COLUMNS]);
    let mut counters = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for token in 0..200 {
        let vector = if token % 2 == 0 { &x } else { &other };
        let masked = batch.mask(vector, &mut parties.meter).expect("left");
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
    let mut parties = Parties::new(1, COLUMNS);
    let mask = parties.words(COLUMNS);
    let hidden =
        |x: i64| mask.iter().map(|r| (x as u64).wrapping_sub(*r) & WORD).collect::<Vec<_>>();
    let (first, second) = (hidden(3), hidden(500));
    assert!(first.iter().zip(&second).all(|(a, b)| b.wrapping_sub(*a) & WORD == 497));
}

#[test]
fn after_a_crash_or_with_restored_state_the_epoch_is_another() {
    let mut parties = Parties::new(2, COLUMNS);
    let mut sequence = parties.sequence();
    let mut batch = parties.batch(&mut sequence);
    let before = parties.epoch();
    let masked = batch.mask(&[9; COLUMNS], &mut parties.meter).expect("left");
    assert_eq!(batch.epoch(), before);

    // The host restarts and loses its prepared batches: the same message has an epoch that no
    // sequence has.
    parties.process = ProcessKey::random(&mut Rng::from_seed([77; 32]));
    let mut fresh = parties.sequence();
    let refused = parties.apply(&mut fresh, before, masked.counter, &masked.vectors);
    assert!(matches!(refused, Err(MaskedError::OtherEpoch { got, .. }) if got == before));
    let refused = parties.input.start_batch(&parties.process, &mut fresh, before, 0);
    assert!(matches!(refused.err(), Some(MaskedError::OtherEpoch { .. })));
    // The old counter was never prepared under the new epoch.
    let now = parties.epoch();
    let refused = parties.apply(&mut fresh, now, masked.counter, &masked.vectors);
    assert_eq!(refused, Err(MaskedError::CounterUnknown { counter: masked.counter }));
    // A sequence of the old process cannot be continued under the new key.
    let refused = parties.input.start_batch(&parties.process, &mut sequence, before, 1);
    assert!(matches!(refused.err(), Some(MaskedError::OtherEpoch { .. })));
}

#[test]
fn preparing_a_batch_twice_is_refused_and_a_new_sequence_has_other_shares() {
    let mut parties = Parties::new(2, COLUMNS);
    let epoch = parties.epoch();
    let (request, _) = parties.request(0);
    let open = |parties: &Parties, answers: &[confide_rlwe::SmallCiphertext]| -> Vec<Vec<u64>> {
        answers.iter().map(|answer| parties.key.decrypt(answer).expect("whole")).collect()
    };
    let mut sequence = parties.sequence();
    let answers = parties.answers(&mut sequence, &request);
    let first = open(&parties, &answers);
    let refused = parties.input.start_batch(&parties.process, &mut sequence, epoch, 0);
    assert_eq!(refused.err(), Some(MaskedError::BatchOrder { wanted: 1, got: 0 }));
    let refused = parties.input.start_batch(&parties.process, &mut sequence, epoch, 2);
    assert_eq!(refused.err(), Some(MaskedError::BatchOrder { wanted: 1, got: 2 }));

    // The same masks, the same client, the same batch, in a sequence that was lost and begun again:
    // with one share the difference would be 0 throughout, and A·(r − r') for masks of one's choice.
    let mut again = parties.sequence();
    assert_eq!((again.slot(), again.next_batch_index()), (&slot(), 0));
    let answers = parties.answers(&mut again, &request);
    let second = open(&parties, &answers);
    let same = first.iter().flatten().zip(second.iter().flatten()).filter(|(a, b)| a == b).count();
    assert_eq!(same, 0, "of {} words of {BITS} bits", 2 * 256);
    // Control: the same batch of one sequence does have one share, or unmasking would not work.
    let shares = |parties: &mut Parties, sequence: &mut _| {
        parties.apply(sequence, epoch, 3, &[0; COLUMNS]).expect("fresh")
    };
    assert_ne!(shares(&mut parties, &mut sequence), shares(&mut parties, &mut again));
}

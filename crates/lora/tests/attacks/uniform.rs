//! The vectors that the host receives online are uniform, whatever the real vector is.

use crate::parties::{BITS, Parties, TOKENS};

const COLUMNS: usize = 64;

/// The chi-square statistic of 256 buckets, whose mean is 255 and whose standard deviation is 23.
fn chi_square(values: impl Iterator<Item = u64>) -> f64 {
    let mut buckets = [0f64; 256];
    let mut count = 0.0;
    for value in values {
        buckets[value as usize % 256] += 1.0;
        count += 1.0;
    }
    let expected = count / 256.0;
    buckets.iter().map(|bucket| (bucket - expected).powi(2) / expected).sum()
}

/// All vectors that the host receives for a batch in which every real vector is the same.
fn host_view(x: i16) -> Vec<u64> {
    let mut parties = Parties::new(1, COLUMNS);
    let mut sequence = parties.sequence();
    let mut batch = parties.batch(&mut sequence);
    let vector = [x; COLUMNS];
    let one = |_| batch.mask(&vector, &mut parties.meter).expect("left").vectors;
    (0..TOKENS).flat_map(one).collect()
}

#[test]
fn masked_vectors_are_uniform_in_their_highest_and_lowest_bits() {
    for x in [0, 1, i16::MAX, -i16::MAX] {
        let seen = host_view(x);
        for (name, shift) in [("lowest", 0), ("middle", 12), ("highest", BITS - 8)] {
            let chi = chi_square(seen.iter().map(|word| word >> shift));
            assert!((130.0..400.0).contains(&chi), "{name} bits of x = {x}: {chi}");
        }
        // Differences from one word to the next, in a column and in a row, are uniform too.
        for stride in [1, COLUMNS] {
            let steps = seen.windows(stride + 1).map(|w| w[stride].wrapping_sub(w[0]) >> 3);
            let chi = chi_square(steps);
            assert!((130.0..400.0).contains(&chi), "steps of {stride}, x = {x}: {chi}");
        }
    }
}

#[test]
fn control_unmasked_vectors_are_not() {
    let seen = vec![1000u64; TOKENS * COLUMNS];
    assert!(chi_square(seen.into_iter()) > 1e6);
}

#[test]
fn no_word_of_what_two_batches_show_agrees_beyond_chance() {
    let (first, second) = (host_view(7), host_view(7));
    // Both have the same seed, so the views are equal: the next check would find a pattern.
    assert_eq!(first, second);
    let mut parties = Parties::new(1, COLUMNS);
    let mut sequence = parties.sequence();
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut batch = parties.batch(&mut sequence);
        let one = |_| batch.mask(&[7; COLUMNS], &mut parties.meter).expect("left").vectors;
        streams.push((0..TOKENS).flat_map(one).collect::<Vec<u64>>());
    }
    let same = streams[0].iter().zip(&streams[1]).filter(|(a, b)| a == b).count();
    assert_eq!(same, 0);
}

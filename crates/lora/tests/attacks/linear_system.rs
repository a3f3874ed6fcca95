//! The answers to one batch of masks are more equations than the adapter has columns. Without the
//! host's mask `s` they reveal the adapter before any token; with it they are uniform.

use confide_rlwe::{ScalarMatrix, ScalarProducts, SmallCiphertext};

use crate::{
    algebra::{Ring, holds, solve},
    parties::{BITS, Parties, TOKENS, WORD},
};

const COLUMNS: usize = 64;

/// Masks that the attacker chose, `[token][column]`, and the answers to their encryptions.
struct Batch {
    masks: Vec<Vec<u64>>,
    answers: Vec<Vec<u64>>,
}

fn batch(
    parties: &mut Parties,
    answer: impl Fn(&mut Parties, &[confide_rlwe::SeededCiphertext]) -> Vec<SmallCiphertext>,
) -> Batch {
    let columns: Vec<Vec<u64>> = (0..COLUMNS).map(|_| parties.words(TOKENS)).collect();
    let mut encryptor = parties.key.encryptor(parties.rng.fork());
    let request: Vec<_> =
        columns.iter().map(|column| encryptor.encrypt(column).expect("256 words")).collect();
    let answers = answer(parties, &request);
    let answers =
        answers.iter().map(|answer| parties.key.decrypt(answer).expect("whole")).collect();
    let masks = (0..TOKENS).map(|token| columns.iter().map(|c| c[token]).collect()).collect();
    Batch { masks, answers }
}

/// The host's part without `s`: sums that are only re-randomised and flooded.
fn answers_without_share(
    parties: &mut Parties,
    request: &[confide_rlwe::SeededCiphertext],
) -> Vec<SmallCiphertext> {
    let (rows, columns) = (parties.matrix.rows(), parties.matrix.columns());
    let entries: Vec<i16> = (0..rows).flat_map(|row| parties.matrix.row(row)).collect();
    let scalars = ScalarMatrix::new(&parties.context, rows, columns, &entries).expect("in budget");
    let mut products = ScalarProducts::new(&parties.context, scalars);
    request.iter().for_each(|ciphertext| products.push(ciphertext).expect("in order"));
    let sums = products.finish().expect("complete");
    sums.into_iter()
        .map(|mut sum| {
            sum.add_assign(
                &parties.public.encrypt_zero(&parties.context, &mut parties.rng).expect("floods"),
            );
            sum.switch_down()
        })
        .collect()
}

#[test]
fn the_answers_of_a_batch_do_not_give_the_adapter() {
    let mut parties = Parties::new(2, COLUMNS);
    let batch = batch(&mut parties, |parties, request| {
        let mut sequence = parties.sequence();
        parties.answers(&mut sequence, request)
    });
    let ring = Ring::PowerOfTwo(BITS);
    for row in 0..2 {
        let guessed = solve(&batch.masks, &batch.answers[row], &ring).expect("random masks");
        let same = guessed.iter().zip(parties.row(row)).filter(|(a, b)| **a == *b).count();
        assert!(same <= 1, "{same} of {COLUMNS} entries of row {row}");
        // Four times as many equations as unknowns contradict each other, so no linear solution exists.
        assert!(!holds(&batch.masks, &batch.answers[row], &guessed, &ring));
    }
}

#[test]
fn control_without_the_share_one_batch_gives_the_adapter() {
    let mut parties = Parties::new(2, COLUMNS);
    let batch = batch(&mut parties, answers_without_share);
    let ring = Ring::PowerOfTwo(BITS);
    for row in 0..2 {
        let guessed = solve(&batch.masks, &batch.answers[row], &ring).expect("random masks");
        assert_eq!(guessed, parties.row(row));
        assert!(holds(&batch.masks, &batch.answers[row], &guessed, &ring));
    }
}

#[test]
fn every_honest_answer_is_one_equation_and_as_many_as_columns_determine_the_adapter() {
    let mut parties = Parties::new(1, COLUMNS);
    let mut sequence = parties.sequence();
    let mut batch = parties.batch(&mut sequence);
    let (mut queries, mut got) = (Vec::new(), Vec::new());
    let ring = Ring::PowerOfTwo(BITS);
    // A few more, because half of all random numbers are even and cannot be pivots.
    for token in 0..COLUMNS + 8 {
        let x: Vec<i16> = parties.words(COLUMNS).iter().map(|word| *word as i16).collect();
        let masked = batch.mask(&x, &mut parties.meter).expect("left");
        let epoch = parties.epoch();
        let answer =
            parties.apply(&mut sequence, epoch, masked.counter, &masked.vectors).expect("fresh");
        got.extend(batch.unmask(masked.counter, &answer, &mut parties.meter).expect("asked"));
        queries.push(x.iter().map(|x| i64::from(*x) as u64 & WORD).collect::<Vec<u64>>());
        if token + 1 < COLUMNS {
            assert_eq!(solve(&queries, &got, &ring), None, "{} answers", token + 1);
        }
    }
    // The budget prevents this: it is one answer fewer than the width of the input.
    assert_eq!(solve(&queries, &got, &ring).expect("determined"), parties.row(0));
}

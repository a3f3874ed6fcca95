//! Malformed answers of a malicious host are refused and never cause a panic. A wrong answer of the right
//! form cannot be distinguished from a correct one: the schemes assume an honest host (LIMITATIONS.md).

use confide_lora::masked::{BatchState, MaskedError};
use confide_rlwe::{Context, ParameterSet, RlweError, SmallCiphertext};

use crate::parties::{BITS, Parties, WORD};

const COLUMNS: usize = 40;

#[test]
fn prepared_answers_of_another_count_or_form_are_refused() {
    let mut parties = Parties::new(3, COLUMNS);
    let mut sequence = parties.sequence();
    let (request, _) = parties.request(0);
    let answers = parties.answers(&mut sequence, &request);
    let four = [&answers[..], &answers[..1]].concat();
    let part = answers[0].clone().select_positions(&[0, 1, 2]).expect("ascending");
    let other = Context::new(&ParameterSet::from_name("rlwe-4096-q100-flood40").expect("a set"));
    let other = confide_rlwe::SecretKey::generate(&other.expect("a set"), &mut parties.rng);
    let large =
        other.encrypt(&vec![0; 4096], &mut parties.rng).expect("whole").expand().switch_down();
    for wrong in [vec![], four, vec![part], vec![large]] {
        let (_, awaiting) = parties.request(0);
        let refused = awaiting.accept_answers(&parties.key, &wrong, &mut parties.meter);
        assert!(matches!(refused, Err(MaskedError::Count { .. })), "{refused:?}");
    }
    let (_, awaiting) = parties.request(0);
    let more =
        awaiting.accept_answers(&parties.key, &answers[..2], &mut parties.meter).expect("in order");
    let BatchState::Pending(awaiting) = more else { panic!("one row is missing") };
    assert_eq!(awaiting.rows_left(), 1);
    assert!(awaiting.accept_answers(&parties.key, &answers[..2], &mut parties.meter).is_err());
}

#[test]
fn ciphertexts_with_coefficients_beyond_the_modulus_or_spare_bits_are_refused() {
    let mut parties = Parties::new(1, COLUMNS);
    let mut sequence = parties.sequence();
    let (request, _) = parties.request(0);
    let answer = parties.answers(&mut sequence, &request).remove(0);
    let bytes = answer.to_bytes(&parties.context);
    let read = |bytes: &[u8]| SmallCiphertext::from_bytes(&parties.context, bytes);
    assert_eq!(read(&bytes), Ok(answer));
    // 2^50 - 1 in the first coefficient is not below the prime.
    let mut beyond = bytes.clone();
    beyond[8..15].fill(0xff);
    assert!(matches!(read(&beyond), Err(RlweError::Wire { .. })));
    for length in [0, 3, 8, bytes.len() - 1] {
        assert!(read(&bytes[..length]).is_err());
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(read(&longer), Err(RlweError::Length { .. })));
}

#[test]
fn online_answers_of_another_length_counter_or_width_are_refused_and_end_the_batch() {
    type Change = fn(&mut u64, &mut Vec<u64>);
    let changes: [(&str, Change); 6] = [
        ("an earlier counter", |counter, _| *counter -= 1),
        ("a later counter", |counter, _| *counter += 1),
        ("a counter of another batch", |counter, _| *counter += 256),
        ("a word less", |_, answer| answer.truncate(2)),
        ("a word more", |_, answer| answer.push(0)),
        ("a word beyond 2^k", |_, answer| answer[2] = 1 << BITS),
    ];
    for (name, change) in changes {
        let mut parties = Parties::new(3, COLUMNS);
        let mut sequence = parties.sequence();
        let mut batch = parties.batch(&mut sequence);
        let epoch = parties.epoch();
        let first = batch.mask(&[0; COLUMNS], &mut parties.meter).expect("left");
        let answer = parties.apply(&mut sequence, epoch, 0, &first.vectors).expect("fresh");
        batch.unmask(0, &answer, &mut parties.meter).expect("asked");
        let masked = batch.mask(&[4; COLUMNS], &mut parties.meter).expect("left");
        let (mut counter, vectors) = (masked.counter, &masked.vectors);
        let mut answer = parties.apply(&mut sequence, epoch, counter, vectors).expect("fresh");
        change(&mut counter, &mut answer);
        let refused = batch.unmask(counter, &answer, &mut parties.meter);
        assert!(
            matches!(
                refused,
                Err(MaskedError::UnexpectedAnswer { .. }
                    | MaskedError::Count { .. }
                    | MaskedError::WordTooLarge { bits: BITS, .. })
            ),
            "{name}: {refused:?}"
        );
        assert_eq!(batch.tokens_left(), 0, "{name}");
    }
}

#[test]
fn a_malicious_key_holders_vectors_are_refused_by_the_host() {
    let mut parties = Parties::new(3, COLUMNS);
    let epoch = parties.epoch();
    let beyond = [vec![0; COLUMNS - 1], vec![WORD + 1]].concat();
    for wrong in [vec![], vec![0; COLUMNS - 1], vec![0; COLUMNS + 1], beyond] {
        let mut sequence = parties.sequence();
        parties.batch(&mut sequence);
        let refused = parties.apply(&mut sequence, epoch, 0, &wrong);
        assert!(
            matches!(refused, Err(MaskedError::Count { .. } | MaskedError::WordTooLarge { .. })),
            "{refused:?}"
        );
        assert_eq!(sequence.live_batch_count(), 0);
    }
    let mut sequence = parties.sequence();
    let refused = parties.apply(&mut sequence, epoch, u64::MAX, &[0; COLUMNS]);
    assert_eq!(refused, Err(MaskedError::CounterUnknown { counter: u64::MAX }));
}

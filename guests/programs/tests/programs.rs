//! Each program over random and false inputs.

use confide_guest_programs::{
    FIBONACCI_N_MAX, ProgramError, SORT_COUNT_MAX,
    host::{GUESTS, input_from_json, run, sample_input},
};
use confide_statement::{Fibonacci, Sort, SortSource, Statement};
use sha2::{Digest, Sha256};

/// The statement of an input as JSON.
fn state(guest: &str, json: &str) -> Statement {
    let input = input_from_json(guest, json.as_bytes()).expect("an input");
    run(guest, &input).expect("a guest").expect("a statement")
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn run_refused(guest: &str, input: &[u8]) -> ProgramError {
    run(guest, input).expect("a guest").expect_err("a false input")
}

#[test]
fn fibonacci_numbers_are_right_and_wrap_at_64_bits() {
    let table = [(0, 0), (1, 1), (2, 1), (10, 55), (93, 12_200_160_415_121_876_738)];
    for (n, value) in table {
        let wanted = Statement::Fibonacci(Fibonacci { n, value });
        assert_eq!(state("fibonacci", &format!("{{\"n\": {n}}}")), wanted);
    }
    let wrapped = 7_540_113_804_746_346_429_u64.wrapping_add(12_200_160_415_121_876_738);
    let wanted = Statement::Fibonacci(Fibonacci { n: 94, value: wrapped });
    assert_eq!(state("fibonacci", "{\"n\": 94}"), wanted);
}

#[test]
fn a_sorted_list_has_its_number_at_its_place() {
    let numbers = [5, u32::MAX, 0, 5, 1 << 31, 7];
    let mut sorted = numbers;
    sorted.sort();
    for (place, value) in sorted.into_iter().enumerate() {
        let json = format!("{{\"given\": {{\"numbers\": {numbers:?}, \"place\": {place}}}}}");
        let input_sha256 = Sha256::digest(words(&numbers)).into();
        let source = SortSource::Supplied { input_sha256 };
        let (count, place) = (numbers.len() as u32, place as u32);
        assert_eq!(state("sort", &json), Statement::Sort(Sort { source, count, place, value }));
    }
}

#[test]
fn the_work_of_the_report_is_a_sorted_fibonacci_sequence() {
    let mut sequence = vec![0u32, 1];
    for at in 2..3000 {
        sequence.push(sequence[at - 1].wrapping_add(sequence[at - 2]));
    }
    sequence.sort();
    let (count, place, value) = (3000, 1500, sequence[1500]);
    let wanted = Statement::Sort(Sort { source: SortSource::Fibonacci, count, place, value });
    assert_eq!(state("sort", "{\"fibonacci\": {\"count\": 3000, \"place\": 1500}}"), wanted);
}

#[test]
fn a_message_has_its_digest() {
    for length in [0, 1, 3, 55, 56, 63, 64, 65, 1024, 65536] {
        let sample = sample_input("sha256", length, 7).expect("a sample");
        let message = sample["message_hex"].as_str().expect("hexadecimal");
        let message = hex::decode(message).expect("hexadecimal");
        let Statement::Sha256(claim) = state("sha256", &sample.to_string()) else {
            panic!("another claim")
        };
        assert_eq!(claim.message_bytes, length);
        assert_eq!(claim.message_sha256, Sha256::digest(message).as_slice());
    }
    let text = state("sha256", "{\"message\": \"abc\"}");
    assert_eq!(text, state("sha256", "{\"message_hex\": \"616263\"}"));
}

#[test]
fn samples_of_every_guest_are_proved_and_differ_by_their_seed() {
    for guest in GUESTS {
        for size in [1, 100, 2000] {
            let statements = [2, 3, 4].map(|seed| {
                let sample = sample_input(guest, size, seed).expect("a sample");
                state(guest, &sample.to_string())
            });
            statements.iter().for_each(|statement| assert_eq!(statement.claim_name(), guest));
            let differ = statements[0] != statements[2];
            assert_eq!(differ, guest != "fibonacci", "{guest}: only n is its input");
        }
    }
    assert!(sample_input("dcap", 1, 1).is_err());
    assert!(sample_input("fibonacci", FIBONACCI_N_MAX + 1, 1).is_err());
}

#[test]
fn inputs_that_are_cut_longer_or_not_whole_words_are_refused() {
    for guest in GUESTS {
        let sample = sample_input(guest, 100, 2).expect("a sample").to_string();
        let input = input_from_json(guest, sample.as_bytes()).expect("an input");
        for length in 0..input.len() {
            let why = run_refused(guest, &input[..length]);
            let cut = matches!(why, ProgramError::Truncated { .. } | ProgramError::Padding { .. });
            assert!(cut, "{guest}, {length} of {} bytes: {why:?}", input.len());
        }
        let mut longer = input.clone();
        longer.extend([0; 4]);
        assert_eq!(run_refused(guest, &longer), ProgramError::Trailing { got: 4 });
    }
    assert!(run("dcap", &[]).is_none());
}

#[test]
fn numbers_beyond_their_limits_are_refused() {
    let beyond = [
        ("fibonacci", words(&[FIBONACCI_N_MAX + 1])),
        ("sort", words(&[1, 0, 0])),
        ("sort", words(&[1, SORT_COUNT_MAX + 1, 0])),
        ("sort", words(&[1, 10, 10])),
        ("sha256", words(&[65537])),
        ("rsa2048", words(&[65537])),
        ("transcript", words(&[2])),
        ("transcript", words(&[0, 19])),
        ("transcript", words(&[0, 4, 3])),
    ];
    for (guest, input) in beyond {
        let why = run_refused(guest, &input);
        assert!(matches!(why, ProgramError::Limit { .. }), "{guest}: {why:?}");
    }
    assert!(matches!(run_refused("sort", &words(&[2, 1, 0])), ProgramError::Value { .. }));
}

#[test]
fn what_fills_the_last_word_must_be_zero() {
    let mut input = input_from_json("sha256", b"{\"message\": \"abc\"}").expect("an input");
    *input.last_mut().expect("a byte") = 1;
    assert_eq!(run_refused("sha256", &input), ProgramError::Padding { subject: "message" });
}

#[test]
fn json_of_another_shape_is_refused() {
    for guest in GUESTS {
        for json in
            ["", "{}", "[]", "{\"n\": -1}", "{\"n\": 1, \"m\": 2}", "{\"message_hex\": \"0\"}"]
        {
            assert!(input_from_json(guest, json.as_bytes()).is_err(), "{guest}: {json}");
        }
    }
    assert!(input_from_json("dcap", b"{}").is_err());
}

//! Readers are total: thousands of mutated recordings end none of them, and what they give is finite.
//!
//! The fuzz targets go further; this runs everywhere.

use confide_tools::{cyclictest, fio, iperf3, openssl, seven_zip, stress_ng};

/// Mutants of each recording.
const MUTANTS: u64 = 1500;

#[test]
fn no_mutant_of_a_recording_ends_a_reader() {
    let recordings = [
        include_str!("../recorded/fio-read_iops.json"),
        include_str!("../recorded/fio-read_qd1.json"),
        include_str!("../recorded/7z-2.txt"),
        include_str!("../recorded/openssl-multi-aes.txt"),
        include_str!("../recorded/openssl-asymmetric.txt"),
        include_str!("../recorded/stress-ng.yaml"),
        include_str!("../recorded/cyclictest.json"),
        include_str!("../recorded/iperf3-two.json"),
        include_str!("../recorded/iperf3-refused.json"),
    ];
    let (mut read, mut refused) = (0, 0);
    for (index, recording) in recordings.iter().enumerate() {
        for seed in 0..MUTANTS {
            let text = mutant(recording, seed * 31 + index as u64);
            match all(&text) {
                0 => refused += 1,
                _ => read += 1,
            }
        }
    }
    // A mutation that no reader notices is as much a case as one that all refuse.
    assert!(read > 100 && refused > 100, "{read} read, {refused} refused");
}

/// How many readers took the text.
fn all(text: &str) -> usize {
    let fio = fio::read(text).map(|job| {
        assert!(job.read.per_s.is_finite() && job.write.bytes_per_s >= 0.0);
        let [p50, p99] = [0.5, 0.99].map(|q| job.read.times_ns.quantile(q));
        assert!(p50.zip(p99).is_none_or(|(p50, p99)| p50 <= p99));
    });
    let seven = seven_zip::read(text).map(|ratings| assert!(ratings.total_mips.is_finite()));
    let openssl = openssl::read(text).map(|rates| {
        assert!(rates.signatures.len() + rates.agreements.len() + rates.bytes.len() > 0);
    });
    let stress = stress_ng::read(text)
        .map(|all| assert!(all.iter().all(|one| one.per_s > 0.0 && one.per_cpu_s.is_finite())));
    let cyclic = cyclictest::read(text).map(|wakeups| {
        assert!(wakeups.mean_us.is_finite() && wakeups.threads > 0);
    });
    let iperf = iperf3::read(text).map(|transfer| {
        assert!(transfer.received_bits_per_s.is_finite());
    });
    [fio, seven, openssl, stress, cyclic, iperf].iter().filter(|outcome| outcome.is_ok()).count()
}

/// Some bytes changed, cut out, doubled, or made very large numbers; always valid text.
fn mutant(text: &str, seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        ((state >> 33) as usize) % below.max(1)
    };
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=next(3) {
        let at = next(bytes.len());
        match next(5) {
            0 => bytes[at] = b"0123456789-e.:{}[]\"| \n"[next(22)],
            1 => bytes.truncate(at.max(1)),
            2 => drop(bytes.drain(at..(at + next(40)).min(bytes.len()))),
            3 => {
                let piece = bytes[at..(at + next(80)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => drop(bytes.splice(at..at, b"9e999".iter().copied().take(1 + next(5)))),
        }
        if bytes.is_empty() {
            bytes.push(b'0');
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

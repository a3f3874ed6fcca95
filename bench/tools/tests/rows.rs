//! The reader is total: thousands of mutated recordings end none of its rows, and its figures are finite.
//!
//! The fuzz target goes further; this runs everywhere.

use confide_tools::{ReadError, ToolOutput, WorkShape, cyclictest, read_output, tool_table};

/// Mutants of each recording.
const MUTANTS: u64 = 300;

#[test]
fn no_mutant_of_a_recording_ends_a_reader() {
    let recordings = [
        include_str!("../recorded/7z-2.txt"),
        include_str!("../recorded/ab-tls.txt"),
        include_str!("../recorded/cyclictest.json"),
        include_str!("../recorded/fio-read_iops.json"),
        include_str!("../recorded/fio-read_qd1.json"),
        include_str!("../recorded/iperf3-refused.json"),
        include_str!("../recorded/iperf3-two.json"),
        include_str!("../recorded/openssl-asymmetric.txt"),
        include_str!("../recorded/openssl-multi-aes.txt"),
        include_str!("../recorded/stress-ng.yaml"),
    ];
    let (mut read, mut refused) = (0, 0);
    for (index, recording) in recordings.iter().enumerate() {
        for seed in 0..MUTANTS {
            let text = mutant(recording, seed * 31 + index as u64);
            match count_readable_rows(&text) {
                0 => refused += 1,
                _ => read += 1,
            }
        }
    }
    // A mutation that no reader notices is as much a case as one that all refuse.
    assert!(read > 100 && refused > 100, "{read} read, {refused} refused");
}

/// The number of rows and shapes that take the text.
fn count_readable_rows(text: &str) -> usize {
    let mut count = 0;
    for tool in tool_table().values() {
        let bare = WorkShape::default();
        let shapes = tool.shapes.values().chain(tool.shapes.is_empty().then_some(&bare));
        for reading in shapes.filter_map(|shape| read_output(tool, shape, 2, text).ok()) {
            let mut numbers = reading.figures.values().chain(reading.values.values());
            assert!(numbers.all(|number| number.is_finite() && *number >= 0.0), "{reading:?}");
            let [p50, p99] =
                ["single_p50_us", "single_p99_us"].map(|name| reading.figures.get(name));
            assert!(p50.zip(p99).is_none_or(|(p50, p99)| p50 <= p99), "{reading:?}");
            if let Ok(wakeups) = cyclictest::read_wakeups(&reading.document) {
                assert!(wakeups.mean_us.is_finite());
            }
            count += 1;
        }
    }
    count
}

/// Reads a recording as a shape of a tool.
fn read_shape(tool: &str, shape: &str, text: &str) -> Result<ToolOutput, ReadError> {
    let tool = &tool_table()[tool];
    let bare = WorkShape::default();
    read_output(tool, tool.shapes.get(shape).unwrap_or(&bare), 1, text)
}

#[test]
fn every_row_and_every_shape_can_be_driven() {
    for (name, tool) in tool_table() {
        assert!(!tool.programs.is_empty() && !tool.package.is_empty(), "{name}");
        assert_eq!(tool.choose.is_some(), !tool.shapes.is_empty(), "{name}");
        assert!(
            tool.default.as_ref().is_none_or(|shape| tool.shapes.contains_key(shape)),
            "{name}"
        );
        let shapes = tool.shapes.values();
        let figures = shapes.flat_map(|shape| shape.figures.values().chain(shape.values.values()));
        for figure in tool.figures.values().chain(tool.values.values()).chain(figures) {
            let is_pointer = matches!(figure.at, confide_tools::OutputPlace::Pointer(_));
            assert_eq!(is_pointer, tool.json, "{name}: {:?}", figure.at);
            if let confide_tools::OutputPlace::Pattern(pattern) = &figure.at {
                assert!(pattern.capture_names().flatten().eq(["value"]), "{name}: {pattern}");
            }
            assert!(figure.divide_by > 0.0, "{name}");
        }
        for param in tool.params.values() {
            assert!((param.min..=param.max).contains(&param.default), "{name}");
        }
    }
}

#[test]
fn seven_zip_has_speeds_and_ratings_of_both_directions() {
    let text = include_str!("../recorded/7z-1.txt");
    let reading = read_shape("seven-zip", "", text).expect("recorded");
    let figure = |name: &str| reading.figures[name];
    assert_eq!(
        (figure("compress_mib_per_s"), figure("compress_mips")),
        (11_732.0 / 1024.0, 10_453.0)
    );
    assert_eq!(
        (figure("decompress_mib_per_s"), figure("decompress_mips")),
        (59_803.0 / 1024.0, 4_836.0)
    );
    assert_eq!(figure("rating_mips"), 7_644.0);
    assert_eq!(
        (reading.value("greatest_dictionary"), reading.value("benchmark_threads")),
        (18.0, 1.0)
    );
    let two = read_shape("seven-zip", "", include_str!("../recorded/7z-2.txt")).expect("recorded");
    assert_eq!((two.value("benchmark_threads"), two.figures["rating_mips"]), (2.0, 8_232.0));
    let (bar, no_bar) =
        ("Avr:     11732   100  10477  10453  |", "Avr:     11732   100  10477  10453");
    assert!(text.contains(bar));
    let older = read_shape("seven-zip", "", &text.replace(bar, no_bar)).expect("no bar needed");
    assert_eq!(older.figures, reading.figures);
    let missing =
        |text: &str| matches!(read_shape("seven-zip", "", text), Err(ReadError::Missing { .. }));
    assert!(missing("") && missing(&text.replace("Avr:", "")));
    let words = read_shape("seven-zip", "", &text.replace("Avr:     11732", "Avr:     fast"));
    assert!(matches!(words, Err(ReadError::NoNumber { .. })));
}

#[test]
fn openssl_counts_the_sum_of_many_processes_and_knows_its_blocks() {
    let read_openssl = |shape: &str, text: &str| read_shape("openssl", shape, text);
    let asymmetric = include_str!("../recorded/openssl-asymmetric.txt");
    let reading = read_openssl("P-256", asymmetric).expect("recorded");
    assert_eq!(reading.figures["p256_verify_per_s"], 24_131.0);
    assert_eq!(reading.figures["p256_sign_per_s"], 71_485.858_586);
    let reading = read_openssl("X25519", asymmetric).expect("recorded");
    assert_eq!(reading.figures["x25519_per_s"], 41_951.515_152);
    let multi = read_openssl("P-256", include_str!("../recorded/openssl-multi.txt"));
    assert_eq!(multi.expect("recorded").figures["p256_sign_per_s"], 141_206.0);
    for (text, bytes_per_s) in [
        (include_str!("../recorded/openssl-aes.txt"), 5_165_544_210.10),
        (include_str!("../recorded/openssl-multi-aes.txt"), 1_351_865_090.53),
    ] {
        let reading = read_openssl("AES-256-GCM", text).expect("recorded");
        assert_eq!(reading.figures["aes_gcm_mib_per_s"], bytes_per_s / 1_048_576.0);
        let other_blocks = text.replace("+H:16384", "+H:8192");
        let refused = read_openssl("AES-256-GCM", &other_blocks);
        assert!(matches!(refused, Err(ReadError::NoNumber { .. })));
    }
    let refused = read_openssl("P-256", "speed: unknown algorithm");
    assert!(matches!(refused, Err(ReadError::Missing { .. })));
    let refused = read_openssl("P-256", "+F4:3:256:many:1.0");
    assert!(matches!(refused, Err(ReadError::NoNumber { .. })));
}

#[test]
fn stress_ng_has_its_rates_by_wall_and_by_cpu_time() {
    let text = include_str!("../recorded/stress-ng.yaml");
    let reading = read_shape("stress-ng", "", text).expect("recorded");
    assert_eq!(reading.figures["matrix_per_s"], 1_105.813_866);
    assert_eq!(reading.figures["matrix_per_cpu_s"], 1_106.879_97);
    let cut = text.split_once("metrics:").expect("recorded").0;
    assert!(matches!(read_shape("stress-ng", "", cut), Err(ReadError::Missing { .. })));
    for wrong in ["fast", "0.0"] {
        let odd = text.replace("1105.813866", wrong);
        assert!(matches!(read_shape("stress-ng", "", &odd), Err(ReadError::NoNumber { .. })));
    }
}

#[test]
fn fio_keeps_units_and_tails_and_has_no_latency_where_clocks_were_spared() {
    let text = include_str!("../recorded/fio-read_iops.json");
    let reading = read_shape("fio", "read_iops", text).expect("recorded");
    assert_eq!(reading.figures["random_per_s"], 112_845.154_845);
    assert_eq!(reading.value("read_bytes_per_s"), 462_213_754.0);
    assert_eq!((reading.value("errors"), reading.values.get("steady")), (0.0, None));
    assert!(matches!(read_shape("fio", "read_qd1", text), Err(ReadError::NoNumber { .. })));
    let text = include_str!("../recorded/fio-read_qd1.json");
    let reading = read_shape("fio", "read_qd1", text).expect("recorded");
    assert_eq!(reading.value("steady"), 1.0);
    assert!((5.0..500.0).contains(&reading.figures["single_p50_us"]));
    assert!((5.0..500.0).contains(&reading.figures["single_us"]));
}

#[test]
fn faults_of_fio_are_errors_by_name() {
    let whole = |error: u8, steady: &str, bins: &str| {
        format!(
            r#"{{"jobs":[{{"error":{error},{steady}
            "read":{{"total_ios":1,"iops":1.0,"bw_bytes":4096,"lat_ns":{{"mean":9.0,{bins}"N":1}}}},
            "write":{{"total_ios":0,"iops":0.0,"bw_bytes":0}}}}]}}"#
        )
    };
    let steady = read_shape("fio", "read_iops", &whole(0, r#""steadystate":{"attained":0},"#, ""));
    assert_eq!(steady.expect("enough").values.get("steady"), Some(&0.0));
    let fault = |text: &str| match read_shape("fio", "read_qd1", text) {
        Err(ReadError::Missing { what } | ReadError::NoNumber { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(fault(&whole(5, "", "")), "errors");
    assert_eq!(fault(&whole(0, "", r#""bins":{"many":1},"#)), "a bin");
    assert_eq!(fault(r#"{"jobs":[]}"#), "errors");
    assert_eq!(fault(r#"{"jobs":[{"error":0},{"error":0}]}"#), "jobs");
    assert!(matches!(read_shape("fio", "read_qd1", "{}"), Err(ReadError::Missing { .. })));
    let text = read_shape("fio", "read_qd1", "fio: no such file");
    assert!(matches!(text, Err(ReadError::NotJson { .. })));
}

#[test]
fn cyclictest_counts_its_threads_whatever_their_priority() {
    let text = include_str!("../recorded/cyclictest.json");
    for shape in ["real-time", "usual"] {
        assert_eq!(read_shape("cyclictest", shape, text).expect("recorded").value("threads"), 2.0);
    }
    let missing = read_shape("cyclictest", "usual", "{}");
    assert!(matches!(missing, Err(ReadError::Missing { what }) if what == "threads"));
}

#[test]
fn iperf3_counts_what_arrived_and_states_its_failures() {
    let read_iperf3 = |text: &str| read_shape("iperf3", "to the server", text);
    let two = read_iperf3(include_str!("../recorded/iperf3-two.json")).expect("recorded");
    assert_eq!(two.value("ended_streams"), 2.0);
    assert_eq!(two.value("received_bytes"), 1_665_794_048.0);
    let reversed = read_iperf3(include_str!("../recorded/iperf3-reverse.json")).expect("recorded");
    assert!((reversed.figures["received_gbit_per_s"] - 31.38).abs() < 0.1);
    assert_eq!(reversed.value("received_bytes"), 3_923_378_070.0);
    let silent =
        include_str!("../recorded/iperf3-two.json").replace("\"retransmits\"", "\"other\"");
    let silent = read_iperf3(&silent).expect("a system that counts none");
    assert!(!silent.figures.contains_key("retransmits_per_gib"));
    let refused = read_iperf3(include_str!("../recorded/iperf3-refused.json"));
    assert!(matches!(refused, Err(ReadError::Failed { .. })));
    assert!(matches!(read_iperf3("{}"), Err(ReadError::Missing { .. })));
}

#[test]
fn a_report_of_ab_is_read_and_another_text_is_an_error_by_name() {
    let text = include_str!("../recorded/ab-http.txt");
    let reading = read_shape("ab", "", text).expect("recorded");
    assert_eq!((reading.value("concurrency"), reading.value("complete")), (20.0, 300.0));
    assert_eq!((reading.figures["rate_per_s"], reading.value("mean_ms")), (615.98, 32.468));
    let tls = read_shape("ab", "", include_str!("../recorded/ab-tls.txt")).expect("recorded");
    assert_eq!((tls.value("connect_most_ms"), tls.value("p99_ms")), (95.0, 98.0));
    let missing = |text: &str| matches!(read_shape("ab", "", text), Err(ReadError::Missing { .. }));
    assert!(missing("") && missing(&text[..text.len() / 2]));
    let words = read_shape("ab", "", &text.replace("615.98", "many"));
    assert!(matches!(words, Err(ReadError::NoNumber { .. })));
    let long = read_shape("ab", "", &"x".repeat((64 << 20) + 1));
    assert!(matches!(long, Err(ReadError::TooLong { .. })));
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

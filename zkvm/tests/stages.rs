//! The four stages of small programs, and how they end early.

mod prover;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use confide_guest_programs::host;
use confide_prover::line::{Phase, ProofMode, ProverMessage, RefusalReason, Stage};
use prover::{Folder, fibonacci, repository, run, sort, start};

#[test]
fn the_back_end_says_what_it_is() {
    let ProverMessage::Description(description) = run(&["describe"]).last else {
        panic!("a description")
    };
    assert_eq!(description.backend, "openvm");
    assert_eq!(description.modes, [ProofMode::App, ProofMode::Aggregated]);
    assert!(description.strength.proven_bits >= 100);
    assert!(!description.strength.zero_knowledge);
    for name in ["fibonacci", "sort"] {
        assert!(description.programs.iter().any(|program| program.claim == name), "{name}");
    }
}

#[test]
fn programs_are_those_that_are_committed() {
    let ProverMessage::Description(description) = run(&["describe"]).last else {
        panic!("a description")
    };
    let text = fs::read_to_string(repository("guests/elf/digests.toml")).unwrap();
    for program in description.programs {
        for digest in [program.program_digest, program.elf_sha256] {
            assert!(text.contains(&digest.to_string()), "{}: {digest}", program.claim);
        }
    }
}

#[test]
fn keys_made_anew_are_the_keys_that_are_committed() {
    let folder = Folder::new();
    let elf = repository("guests/elf");
    run(&["keys", "--elf", elf.to_str().unwrap(), "--out", &folder.path("")]);
    let committed = fs::read_dir(repository("zkvm/keys")).unwrap().flatten();
    let mut made = 0;
    for file in committed {
        // A file that nothing makes again would be built in unchecked.
        let name = file.file_name().into_string().unwrap();
        let anew = fs::read(folder.path(&name)).unwrap_or_default();
        assert!(anew == fs::read(file.path()).unwrap(), "{name} differs: make zkvm-keys");
        made += 1;
    }
    assert_eq!(folder.names().len(), made, "{:?}", folder.names());
}

#[test]
fn emulated_and_native_runs_reveal_the_same() {
    let folder = Folder::new();
    let mut inputs =
        vec![("sort".to_string(), sort(1, 0)), ("fibonacci".to_string(), fibonacci(0))];
    for guest in host::GUESTS {
        for seed in 1..=4 {
            let json = host::sample_input(guest, 300 * seed as u32, seed).unwrap().to_string();
            let input = host::input_from_json(guest, json.as_bytes()).unwrap();
            inputs.push((guest.to_string(), input));
        }
    }
    for (guest, input) in inputs {
        let input = folder.file("input", &input);
        let out = folder.path("statement");
        let native =
            run(&["native", "--guest", &guest, "--input", &input, "--out", &out]).into_result();
        let emulated = run(&["emulate", "--guest", &guest, "--input", &input]).into_result();
        assert_eq!(native.public_values, emulated.public_values, "{guest}");
        assert_eq!(native.program_digest, emulated.program_digest);
        assert!(emulated.cycles.unwrap() > 0);
        assert_eq!((native.cycles, native.stage), (None, Stage::Native));
    }
}

#[test]
fn a_proof_is_made_and_checked() {
    let folder = Folder::new();
    let input = folder.file("input", &fibonacci(10));
    let out = folder.path("statement");
    let native =
        run(&["native", "--guest", "fibonacci", "--input", &input, "--out", &out]).into_result();
    let proof = folder.path("proof");
    let arguments =
        ["prove", "--guest", "fibonacci", "--input", &input, "--out", &proof, "--mode", "app"];
    let answer = run(&arguments);
    let segments: Vec<_> =
        answer.progress.iter().filter(|p| p.phase == Phase::Segment).map(|p| p.done).collect();
    assert_eq!(segments, [0, 1]);
    let proved = answer.into_result();
    assert_eq!(proved.public_values, native.public_values);
    let arguments = ["check", "--guest", "fibonacci", "--proof", &proof, "--mode", "app"];
    let checked = run(&arguments).into_result();
    assert_eq!(checked.public_values, native.public_values);
    assert_eq!((checked.segments, checked.cycles), (Some(1), None));
    assert_eq!(checked.strength, proved.strength);
    let mut left = folder.names();
    left.sort();
    assert_eq!(left, ["input", "proof", "statement"]);
}

#[test]
fn what_the_program_refuses_is_not_emulated_nor_run() {
    let folder = Folder::new();
    let input = folder.file("input", &fibonacci(u32::MAX));
    let out = folder.path("statement");
    let native = run(&["native", "--guest", "fibonacci", "--input", &input, "--out", &out]);
    assert_eq!(native.into_refusal().why, RefusalReason::ClaimRefused);
    let emulated = run(&["emulate", "--guest", "fibonacci", "--input", &input]);
    assert_eq!(emulated.into_refusal().why, RefusalReason::ClaimRefused);
    assert_eq!(folder.names(), ["input"]);
}

#[test]
fn refusals_have_their_names() {
    let folder = Folder::new();
    let input = folder.file("input", &sort(3000, 0));
    let unknown = run(&["emulate", "--guest", "nobody", "--input", &input]);
    assert_eq!(unknown.into_refusal().why, RefusalReason::UnknownGuest);
    let memory = ["emulate", "--guest", "sort", "--input", &input, "--memory", "200000000"];
    assert_eq!(run(&memory).into_refusal().why, RefusalReason::Memory);
    let long = folder.file("long", &vec![0; (1 << 20) + 1]);
    let long = run(&["emulate", "--guest", "sort", "--input", &long]);
    assert_eq!(long.into_refusal().why, RefusalReason::MalformedInput);
    let missing = run(&["emulate", "--guest", "sort", "--input", &folder.path("none")]);
    assert_eq!(missing.into_refusal().why, RefusalReason::Fault);
}

#[test]
fn memory_that_is_too_small_is_refused_with_the_least_that_suffices() {
    let folder = Folder::new();
    let rsa = host::sample_input("rsa2048", 1024, 1).unwrap().to_string();
    let rsa = host::input_from_json("rsa2048", rsa.as_bytes()).unwrap();
    for (guest, input, mode) in [
        ("fibonacci", fibonacci(10), "app"),
        ("sort", sort(3000, 0), "app"),
        ("rsa2048", rsa, "app"),
        ("sort", sort(3000, 0), "aggregated"),
    ] {
        let input = folder.file("input", &input);
        let within = |bytes: &str| {
            let arguments = ["emulate", "--guest", guest, "--input", &input, "--mode", mode];
            run(&[&arguments[..], &["--memory", bytes]].concat())
        };
        let refusal = within("700000000").into_refusal();
        assert_eq!(refusal.why, RefusalReason::Memory, "{guest}");
        let named = refusal.detail.split(' ').find(|word| word.parse::<u64>().is_ok());
        within(named.expect("the least is named")).into_result();
    }
}

#[test]
fn a_wrong_command_line_is_no_answer() {
    for arguments in [&[][..], &["bake"], &["check"], &["describe", "--guest", "sort"]] {
        let output = start(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn less_memory_makes_more_segments_of_the_same_run() {
    let folder = Folder::new();
    let input = folder.file("input", &sort(6000, 17));
    let mut seen = BTreeMap::new();
    for memory in ["8589934592", "1610612736"] {
        let arguments = ["emulate", "--guest", "sort", "--input", &input, "--memory", memory];
        let done = run(&arguments).into_result();
        seen.insert(done.segments, (done.cycles, done.public_values));
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
    let runs: Vec<_> = seen.into_values().collect();
    assert_eq!(runs[0], runs[1]);
}

#[test]
fn an_interrupted_proof_leaves_nothing() {
    let folder = Folder::new();
    let input = folder.file("input", &sort(3000, 0));
    let proof = folder.path("proof");
    let arguments =
        ["prove", "--guest", "sort", "--input", &input, "--out", &proof, "--mode", "app"];
    // A shell that starts this in the background has it ignore the signal, and programs inherit that.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_confide-prover")]).args(arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let ProverMessage::Progress(progress) = serde_json::from_str(&line).unwrap() else {
            continue;
        };
        if progress.phase == Phase::Segment {
            let pid = child.id().to_string();
            assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
            break;
        }
    }
    assert_eq!(child.wait().unwrap().code(), None, "ended by the signal");
    assert_eq!(folder.names(), ["input"]);
}

//! The programs in the zkVM's executor next to the same programs run here, on good and on changed
//! inputs: an instruction that did something else than ordinary arithmetic would be seen here, and so
//! would a check that only one of the two makes. `CONFIDE_PROVER` names the `confide-prover` that
//! emulates.

use std::{env, fs, process::Command};

use confide_guest_programs::host::{GUESTS, input_from_json, run, sample_input};
use serde_json::Value;

/// Changes to each input: one run takes a fraction of a second.
const CHANGES: usize = 12;

#[test]
fn emulated_and_native_programs_say_the_same() {
    let Ok(prover) = env::var("CONFIDE_PROVER") else {
        println!("skipped: no confide-prover (CONFIDE_PROVER)");
        return;
    };
    for guest in GUESTS {
        let (mut stated, mut refused) = (0, 0);
        for seed in [2, 3] {
            let json = sample_input(guest, 150, seed).expect("a sample").to_string();
            let good = input_from_json(guest, json.as_bytes()).expect("an input");
            for input in hostile(&good).into_iter().chain([good.clone()]) {
                let native = run(guest, &input).expect("a guest");
                let native = native.map(|statement| hex::encode(statement.digest()));
                match (&native, &emulate(&prover, guest, &input)) {
                    (Ok(native), Ok(emulated)) => assert_eq!(native, emulated, "{guest}"),
                    (Err(_), Err(_)) => {}
                    (native, emulated) => {
                        panic!("{guest}: native {native:?}, emulated {emulated:?}")
                    }
                }
                if native.is_ok() { stated += 1 } else { refused += 1 }
            }
        }
        assert!(stated >= 2 && refused >= 2, "{guest}: {stated} stated, {refused} refused");
    }
}

/// Copies with one bit changed, cut, longer, and with a word that is as large as can be.
fn hostile(input: &[u8]) -> Vec<Vec<u8>> {
    let step = (input.len() / CHANGES).max(1);
    let flip = |at: usize| {
        let mut changed = input.to_vec();
        changed[at] ^= 1 << (at % 8);
        changed
    };
    let mut all: Vec<_> = (0..input.len()).step_by(step).map(flip).collect();
    all.push(input[..input.len() - 4].to_vec());
    all.push([input, &[0; 4]].concat());
    let mut largest = input.to_vec();
    largest[..4].fill(0xff);
    all.push(largest);
    all
}

/// The public values, or why there are none.
fn emulate(prover: &str, guest: &str, input: &[u8]) -> Result<String, String> {
    let path = env::temp_dir().join(format!("confide-programs-{}", std::process::id()));
    fs::write(&path, input).expect("a file");
    let mut command = Command::new(prover);
    let output = command.args(["emulate", "--guest", guest, "--input"]).arg(&path).output();
    fs::remove_file(&path).expect("the file");
    let stdout = String::from_utf8(output.expect("it runs").stdout).expect("text");
    let last: Value =
        serde_json::from_str(stdout.lines().last().expect("an answer")).expect("JSON");
    match last["result"]["public_values"].as_str() {
        Some(values) => Ok(values.into()),
        // A fault of the prover is not a refusal of the program.
        None if last["refused"]["why"] == "claim_refused" => Err(last.to_string()),
        None => panic!("{last}"),
    }
}

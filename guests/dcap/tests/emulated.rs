//! The program in the zkVM's executor next to the same program run here, on good and on changed
//! inputs. `CONFIDE_PROVER` names the `confide-prover` that emulates.

mod inputs;

use std::{env, fs, process::Command};

use confide_guest_dcap::run;
use confide_verifier::AwsLc;
use inputs::{changed_copies, real, simulated_inputs};
use serde_json::Value;

/// Changes to each input: one run takes a fraction of a second.
const CHANGES: usize = 24;

#[test]
fn emulated_and_native_runs_say_the_same() {
    let Ok(prover) = env::var("CONFIDE_PROVER") else {
        println!("skipped: no confide-prover (CONFIDE_PROVER)");
        return;
    };
    let (mut stated, mut refused) = (0, 0);
    for (nth, good) in simulated_inputs().into_iter().chain(real()).enumerate() {
        for input in changed_copies(&good, CHANGES, nth).into_iter().chain([good]) {
            let native = run(&input, &AwsLc).map(|statement| hex::encode(statement.digest()));
            let emulated = emulate(&prover, &input);
            match (&native, &emulated) {
                (Ok(native), Ok(emulated)) => assert_eq!(native, emulated),
                (Err(_), Err(_)) => {}
                _ => panic!("native {native:?}, emulated {emulated:?}"),
            }
            match native {
                Ok(_) => stated += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(stated >= 3 && refused >= 3, "{stated} stated, {refused} refused");
}

/// The public values, or why there are none.
fn emulate(prover: &str, input: &[u8]) -> Result<String, String> {
    let path = env::temp_dir().join(format!("confide-dcap-{}", std::process::id()));
    fs::write(&path, input).unwrap();
    let mut command = Command::new(prover);
    let output = command.args(["emulate", "--guest", "dcap", "--input"]).arg(&path).output();
    fs::remove_file(&path).unwrap();
    let stdout = String::from_utf8(output.unwrap().stdout).unwrap();
    let last: Value = serde_json::from_str(stdout.lines().last().expect("an answer")).unwrap();
    match last["result"]["public_values"].as_str() {
        Some(values) => Ok(values.into()),
        // A fault of the prover is not a refusal of the program.
        None if last["refused"]["why"] == "claim_refused" => Err(last.to_string()),
        None => panic!("{last}"),
    }
}

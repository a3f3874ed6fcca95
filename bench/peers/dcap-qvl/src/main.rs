//! `confide-arm-dcap-qvl verify --quote FILE --collateral FILE --at UNIX [--root DER]`
//!
//! The peer gets its collateral already parsed into its own type, once, as its users call it.

use std::process::ExitCode;

use confide_arm_line::{
    Hello, Outcome, Report, Run, exit_code, read_file, repeat_in_threads, serve_runs,
};
use dcap_qvl::{QuoteCollateralV3, verify::QuoteVerifier};
use serde_json::json;

struct QuoteInput {
    quote: Vec<u8>,
    collateral: QuoteCollateralV3,
    root: Option<Vec<u8>>,
    at: u64,
}

fn main() -> ExitCode {
    exit_code("confide-arm-dcap-qvl", run())
}

fn run() -> Outcome {
    let input = read_input()?;
    let hello = Hello {
        simulated: input.root.is_some(),
        threads: 128,
        note: Some("collateral parsed once, outside the measured part".into()),
        ..Hello::new("dcap-qvl verify (ring)", "dcap-qvl 0.7.1")
    };
    serve_runs(&hello, |run| measure_verification(&input, run))
}

fn read_input() -> Outcome<QuoteInput> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1))
    };
    let file = |name: &str| {
        let path = value(name).ok_or_else(|| format!("{name} FILE is missing"))?;
        read_file(path.as_ref())
    };
    let collateral = serde_json::from_slice(&file("--collateral")?)
        .map_err(|error| format!("cannot parse the collateral: {error}"))?;
    let at = value("--at").ok_or("--at UNIX is missing")?;
    let at = at.parse().map_err(|error| format!("--at {at}: {error}"))?;
    let root = value("--root").map(|_| file("--root")).transpose()?;
    Ok(QuoteInput { quote: file("--quote")?, collateral, root, at })
}

fn measure_verification(input: &QuoteInput, run: &Run) -> Outcome<Report> {
    run.refuse_unknown_params(&["workers"])?;
    let verifier = match &input.root {
        Some(root) => QuoteVerifier::new(root.clone()),
        None => QuoteVerifier::new_prod(),
    };
    let work = || {
        let verified = verifier.verify(&input.quote, &input.collateral, input.at);
        Ok(verified.map_err(|error| format!("dcap-qvl rejected the quote: {error:#}"))?.status)
    };
    repeat_in_threads(
        run,
        "verify",
        run.integer_param("workers", 1)?,
        work,
        |count, status| json!({ "accepted": count, "tcb_status": status }),
    )
}

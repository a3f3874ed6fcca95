//! Prints a random input of a guest: `guest-sample GUEST SIZE SEED [--encoded]`, as JSON or as the
//! bytes that the program reads.

use std::{io::Write as _, process::ExitCode};

use confide_guest_programs::host::{InputError, input_from_json, sample_input};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let made = match *words {
        [guest, size, seed] => encode_sample(guest, size, seed),
        [guest, size, seed, "--encoded"] => encode_sample(guest, size, seed)
            .and_then(|json| input_from_json(guest, &json).map_err(|error| error.to_string())),
        _ => Err("usage: guest-sample GUEST SIZE SEED [--encoded]".into()),
    };
    let written = made.and_then(|bytes| {
        std::io::stdout().write_all(&bytes).map_err(|error| format!("cannot write: {error}"))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn encode_sample(guest: &str, size: &str, seed: &str) -> Result<Vec<u8>, String> {
    let size = size.parse().map_err(|_| format!("size: wanted a number, got {size}"))?;
    let seed = seed.parse().map_err(|_| format!("seed: wanted a number, got {seed}"))?;
    let json = sample_input(guest, size, seed).map_err(|error: InputError| error.to_string())?;
    Ok(format!("{json}\n").into_bytes())
}

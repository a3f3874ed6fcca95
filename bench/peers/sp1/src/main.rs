//! `confide-peer-sp1`: SP1's core prover behind the lines of `confide-prover`
//! (`confide_prover::line`), so that the bench compares the two.
//!
//! One program: `sort`, the function that our guest runs, compiled for SP1's machine. Its public
//! values are SHA-256 of the statement, as ours are.

mod memory;
mod stages;
mod work;

use std::{io::Write as _, process::ExitCode};

use clap::{Parser, Subcommand};
use confide_prover::line::ProverMessage;

use work::{StageRefusal, Work};

/// The allocator that our prover has.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
#[command(version, about, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    stage: Request,
}

/// The stage that is requested.
#[derive(Subcommand)]
enum Request {
    /// Name, version, programs and strength of this back end.
    Describe,
    /// The program, compiled for this machine.
    Native(Work),
    /// The program in SP1's executor.
    Emulate(Work),
    /// The program, proved: 11 GiB of memory, half a minute before it begins.
    Prove(Work),
    /// A proof, checked.
    Check(Work),
}

fn main() -> ExitCode {
    let (line, status) = match run_request(&Arguments::parse().stage) {
        Ok(line) => (line, ExitCode::SUCCESS),
        Err(refused) => (ProverMessage::Refused(refused.0), ExitCode::from(1)),
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(line.to_text().as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => status,
        Err(_) => ExitCode::from(2),
    }
}

fn run_request(request: &Request) -> Result<ProverMessage, StageRefusal> {
    match request {
        Request::Describe => Ok(stages::describe()),
        Request::Native(work) => stages::run_native(work),
        Request::Emulate(work) => stages::emulate(work),
        Request::Prove(work) => stages::prove(work),
        Request::Check(work) => stages::verify_proof(work),
    }
}

//! `confide-prover`: the zkVM behind `confide prove` and `confide verify proof`.
//!
//! One process for each stage; what it is asked and what it answers is `confide_prover::line`. It
//! opens no network, reads no environment, and writes one file, under its final name only when whole.

mod answer;
mod arguments;
mod guests;
mod joins;
mod keep;
mod records;
mod stages;

use std::process::ExitCode;

use confide_prover::line::{ProverMessage, RefusalReason};

use crate::{answer::StageRefusal, arguments::ProverCommand};

/// Proving takes and gives back gigabytes many times in a second; the system's allocator asks the
/// kernel for them again each time.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let request = match ProverCommand::parse(std::env::args_os().skip(1)) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("error: {error}\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    // A panic is answered with a refusal, not with a page of numbers.
    std::panic::set_hook(Box::new(|_| {}));
    let answer = std::panic::catch_unwind(|| run_command(&request)).unwrap_or_else(|_| {
        let why = if request.is_check() { RefusalReason::Unsound } else { RefusalReason::Fault };
        Err(StageRefusal::new(why, "the back end stopped in the middle"))
    });
    match answer {
        Ok(line) => {
            answer::print_message(&line);
            ExitCode::SUCCESS
        }
        Err(refused) => {
            answer::print_message(&ProverMessage::Refused(refused.0));
            ExitCode::from(1)
        }
    }
}

fn run_command(request: &ProverCommand) -> Result<ProverMessage, StageRefusal> {
    guests::check_processor()?;
    match request {
        ProverCommand::Describe => stages::describe_backend(),
        ProverCommand::Native(work) => stages::run_native(work),
        ProverCommand::Emulate(work) => stages::emulate(work),
        ProverCommand::Prove(work) => stages::prove(work),
        ProverCommand::Check(work) => stages::check_proof(work),
        ProverCommand::Keys { elf, out, digests } => keep::write_keys(elf, out, digests.as_deref()),
    }
}

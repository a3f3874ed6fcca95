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

use crate::{answer::Refused, arguments::Request};

/// Proving takes and gives back gigabytes many times in a second; the system's allocator asks the
/// kernel for them again each time.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let request = match Request::read(std::env::args_os().skip(1)) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("error: {error}\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    // A panic is answered with a refusal, not with a page of numbers.
    std::panic::set_hook(Box::new(|_| {}));
    let answer = std::panic::catch_unwind(|| answer(&request)).unwrap_or_else(|_| {
        let why = if request.is_check() { RefusalReason::Unsound } else { RefusalReason::Fault };
        Err(Refused::new(why, "the back end stopped in the middle"))
    });
    match answer {
        Ok(line) => {
            answer::print(&line);
            ExitCode::SUCCESS
        }
        Err(refused) => {
            answer::print(&ProverMessage::Refused(refused.0));
            ExitCode::from(1)
        }
    }
}

fn answer(request: &Request) -> Result<ProverMessage, Refused> {
    guests::processor_suffices()?;
    match request {
        Request::Describe => stages::describe(),
        Request::Native(work) => stages::native(work),
        Request::Emulate(work) => stages::emulate(work),
        Request::Prove(work) => stages::prove(work),
        Request::Check(work) => stages::check(work),
        Request::Keys { elf, out, digests } => keep::keys(elf, out, digests.as_deref()),
    }
}

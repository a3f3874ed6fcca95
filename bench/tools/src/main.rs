//! `confide-tool`: arms of the bench that drive other people's measuring tools, one file each.
//!
//! Like every arm they speak `bench/PROTOCOL.md`. They know no product crate.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use confide_tools::ab;

#[derive(Parser)]
#[command(name = "confide-tool", version, about)]
struct Arguments {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Subcommand)]
enum Tool {
    /// ApacheBench: requests over new connections in closed loop.
    Ab(ab::Args),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().tool {
        Tool::Ab(args) => ab::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("confide-tool: {error}");
            ExitCode::from(2)
        }
    }
}

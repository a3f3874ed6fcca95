//! `confide`: private AI inference, with its price measured.
//!
//! One file per subcommand. This is the only place that reads the wall clock, the environment and
//! the arguments; everything below receives them as values. Two programs are made of it: `confide`
//! for developers, and `confide-operator`, which images and packages install. Without the feature
//! `services`, `confide` is the caller's program, which other systems than Linux have too.

#[cfg(all(feature = "operator", any(feature = "simulate", feature = "bench")))]
compile_error!("the operator's build has no simulator and no instrument: --no-default-features");

#[cfg(feature = "services")]
mod adapter;
mod address;
mod answer;
mod attest;
#[cfg(feature = "bench")]
mod bench;
mod binding;
mod collateral;
mod connect;
#[cfg(feature = "services")]
mod connections;
mod disclose;
#[cfg(test)]
mod documented_flags_tests;
mod error;
mod excerpt;
mod features;
mod files;
#[cfg(feature = "services")]
mod gateway;
#[cfg(feature = "native")]
mod meter;
#[cfg(feature = "native")]
mod model;
#[cfg(feature = "serve")]
mod model_folder;
mod new_file;
mod notary;
#[cfg_attr(windows, path = "os_windows.rs")]
mod os;
mod policy;
mod printable;
mod process;
#[cfg(any(feature = "native", feature = "prove"))]
mod progress_line;
#[cfg(feature = "prove")]
mod prove;
mod refusal;
#[cfg(feature = "serve")]
mod report_003;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "services")]
mod server_flags;
#[cfg(feature = "services")]
mod serving_threads;
#[cfg(feature = "native")]
mod threads;
mod time;
#[cfg(feature = "services")]
mod tunnel;
mod verdict_lines;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(not(feature = "bench"))]
use features::bench;
#[cfg(not(feature = "native"))]
use features::model;
#[cfg(not(feature = "prove"))]
use features::prove;
#[cfg(not(feature = "serve"))]
use features::serve;
#[cfg(not(all(feature = "native", feature = "report-003")))]
use features::split;
#[cfg(not(feature = "services"))]
use features::{adapter, gateway, tunnel};
#[cfg(all(feature = "native", feature = "report-003"))]
use report_003::split;

/// Private AI inference with its price measured: attested channels, private adapters, claims that third
/// parties can check, and what each of them costs on this machine.
#[derive(Parser)]
#[command(name = "confide", version, long_version = features::long_version(), arg_required_else_help = true,
          after_help = EXIT_STATUS)]
struct Arguments {
    /// Also print a failure as one JSON object on standard output
    // Commands that answer in JSON have a flag of the same name, which does both.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const EXIT_STATUS: &str = "\
Exit status: 0 done, or accepted; 1 refused; 2 it could not be done or judged; 3 the measurement is not
reliable (`bench run`, `load`, `check`); 4 undecided (`bench check`, `selftest`); 130 after Ctrl-C. A
command that serves ends with 0 at SIGTERM. Start with README.md, \"Five-minute start\".";

#[derive(Subcommand)]
enum Command {
    /// Host private LoRA adapters, inspect them, and prepare to use them.
    #[cfg(feature = "services")]
    #[command(subcommand)]
    Adapter(adapter::Command),
    #[cfg(not(feature = "services"))]
    #[command(hide = true)]
    Adapter(adapter::Args),
    /// Obtain evidence of this machine, or simulate it.
    Attest(attest::Args),
    /// Measure what each layer of protection costs on this machine.
    #[command(hide = cfg!(not(feature = "bench")))]
    Bench(bench::Args),
    /// Fetch, show, export and serve endorsements.
    #[command(subcommand)]
    Collateral(collateral::Command),
    /// Verify a confidential server, then serve OpenAI's API for it on loopback.
    Connect(connect::Args),
    /// Show and prove parts of a notarised session, and hide the rest.
    Disclose(disclose::Args),
    /// Terminate attested TLS in front of a model server.
    #[command(hide = cfg!(not(feature = "services")))]
    Gateway(gateway::Args),
    /// Make models locally, from a seed.
    #[command(hide = cfg!(not(feature = "native")))]
    Model(model::Args),
    /// Fetch through a program in a TEE that signs the session.
    #[command(subcommand)]
    Notary(notary::Command),
    /// Write a policy to start with, pin it, or describe what it checks.
    #[command(subcommand)]
    Policy(policy::Command),
    /// Prove the run of a program, or the possession of a signature.
    #[command(hide = cfg!(not(feature = "prove")))]
    Prove(prove::Args),
    /// Serve a model over OpenAI's routes.
    #[command(hide = cfg!(not(feature = "serve")))]
    Serve(serve::Args),
    /// Generate text: the transformer runs on a server; LM head, sampling and noise run on this
    /// machine.
    #[command(hide = cfg!(not(all(feature = "native", feature = "report-003"))))]
    Split(split::Args),
    /// Carry TLS bytes over a WebSocket to allow-listed hosts, without being able to read them.
    #[command(hide = cfg!(not(feature = "services")))]
    Tunnel(tunnel::Args),
    /// Check evidence, a proof or a disclosure.
    #[command(subcommand)]
    Verify(verify::Command),
}

/// Runs the program to its end, and gives its exit status.
pub fn run() -> ExitCode {
    #[cfg(feature = "prove")]
    if let Some(failed) = prove::exec_prover_if_launched() {
        return failed;
    }
    process::log_to_stderr();
    let command = match Arguments::try_parse() {
        Ok(arguments) => arguments.command,
        Err(error) => return error::report_argument_error(&error),
    };
    let outcome = match command {
        Command::Adapter(command) => adapter::run(command),
        Command::Attest(args) => attest::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Collateral(command) => collateral::run(command),
        Command::Connect(args) => connect::run(args),
        Command::Disclose(args) => disclose::run(args),
        Command::Gateway(args) => gateway::run(args),
        Command::Model(args) => model::run(args),
        Command::Notary(command) => notary::run(command),
        Command::Policy(command) => policy::run(command),
        Command::Prove(args) => prove::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Split(args) => split::run(args),
        Command::Tunnel(args) => tunnel::run(args),
        Command::Verify(command) => verify::run(command),
    };
    outcome.unwrap_or_else(|error| error.report())
}

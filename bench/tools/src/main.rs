//! `confide-tool`: arms of the bench that drive other people's measuring tools, one file each, and
//! two small measurements of memory of our own.
//!
//! Like every arm they speak `bench/PROTOCOL.md`. They know no product crate.

mod arms;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use confide_tools::ab;

#[derive(Parser)]
#[command(name = "confide-tool", version, about)]
struct Arguments {
    #[command(subcommand)]
    arm: Arm,
}

#[derive(Subcommand)]
enum Arm {
    /// ApacheBench: requests over new connections in closed loop
    Ab(ab::Args),
    /// Latency of memory: a walk along a random cycle
    Chase(arms::chase::Args),
    /// How late timers wake a thread, by cyclictest
    Cyclictest(arms::cyclictest::Args),
    /// Jobs of fio on a scratch file
    Fio(arms::fio::Args),
    /// Transfers of iperf3 over loopback, or between two network namespaces
    Iperf3(arms::iperf3::Args),
    /// Rates of signatures, key agreement, ciphers and digests, by openssl speed
    Openssl(arms::openssl::Args),
    /// 7-zip's benchmark on some threads, or as copies of one thread
    SevenZip(arms::seven_zip::Args),
    /// Matrix products, by stress-ng
    StressNg(arms::stress_ng::Args),
    /// Bandwidth of memory: a[i] = b[i] + s * c[i]
    Triad(arms::triad::Args),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().arm {
        Arm::Ab(args) => ab::run(&args),
        Arm::Chase(args) => arms::chase::run(&args),
        Arm::Cyclictest(args) => arms::cyclictest::run(&args),
        Arm::Fio(args) => arms::fio::run(&args),
        Arm::Iperf3(args) => arms::iperf3::run(&args),
        Arm::Openssl(args) => arms::openssl::run(&args),
        Arm::SevenZip(args) => arms::seven_zip::run(&args),
        Arm::StressNg(args) => arms::stress_ng::run(&args),
        Arm::Triad(args) => arms::triad::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("confide-tool: {error}");
            ExitCode::from(2)
        }
    }
}

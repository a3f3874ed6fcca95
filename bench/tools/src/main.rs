//! `confide-tool`: arms of the bench that drive other people's measuring tools by the rows of
//! `tools.toml`, and two small measurements of memory of our own.
//!
//! Like every arm they speak `bench/PROTOCOL.md`. They know no product crate.

mod arms;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use confide_arm_line::{Outcome, exit_code};

use arms::{ab, chase, cyclictest, fio, iperf3, process::Threads, tool::ToolArm, triad};

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
    Chase(chase::Args),
    /// How late timers wake a thread, by cyclictest
    Cyclictest(cyclictest::Args),
    /// Jobs of fio on a scratch file
    Fio(fio::Args),
    /// Transfers of iperf3 over loopback, or between two network namespaces
    Iperf3(iperf3::Args),
    /// Rates of signatures, key agreement, ciphers and digests, by openssl speed
    Openssl {
        /// Processes side by side: a number, or all
        #[arg(long, default_value = "1")]
        processes: Threads,
    },
    /// 7-zip's benchmark on some threads, or as copies of one thread
    SevenZip {
        /// Threads of the benchmark: a number, or all
        #[arg(long, default_value = "1")]
        threads: Threads,
        /// As many processes of one thread each, side by side, instead of one process
        #[arg(long)]
        copies: bool,
    },
    /// Matrix products, by stress-ng
    StressNg {
        /// Workers side by side: a number, or all
        #[arg(long, default_value = "1")]
        workers: Threads,
        /// Folder for stress-ng's temporary file of results
        #[arg(long)]
        folder: PathBuf,
    },
    /// Bandwidth of memory: a[i] = b[i] + s * c[i]
    Triad(triad::Args),
}

fn main() -> ExitCode {
    exit_code("confide-tool", run(Arguments::parse().arm))
}

fn run(arm: Arm) -> Outcome {
    match arm {
        Arm::Ab(args) => ab::run(&args),
        Arm::Chase(args) => chase::run(&args),
        Arm::Cyclictest(args) => cyclictest::run(&args),
        Arm::Fio(args) => fio::run(&args),
        Arm::Iperf3(args) => iperf3::run(&args),
        Arm::Openssl { processes } => ToolArm::new("openssl", processes.count())?.serve_runs(),
        Arm::SevenZip { threads, copies: false } => {
            let count = threads.count();
            let arm = ToolArm::new("seven-zip", count)?.with_setting("threads", count);
            arm.with_setting("unit", "threads").serve_runs()
        }
        Arm::SevenZip { threads, copies: true } => {
            let copies = threads.count();
            let arm = ToolArm::new("seven-zip", copies)?.with_setting("threads", 1);
            arm.with_setting("unit", "copies of one thread").with_copies(copies).serve_runs()
        }
        Arm::StressNg { workers, folder } => {
            ToolArm::new("stress-ng", workers.count())?.with_folder(folder).serve_runs()
        }
        Arm::Triad(args) => triad::run(&args),
    }
}

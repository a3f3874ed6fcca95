//! iperf3 over loopback, or between two network namespaces.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use confide_arm_line::{Report, Run};
use confide_tools::iperf3::{self, Transfer};
use serde_json::json;

use super::{
    Outcome, ToolHello, Watch, metric,
    network::{FAR, await_address, beyond, enter},
    stdout, version,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What lies between the two ends
    #[arg(long, value_enum, default_value = "loopback")]
    over: Over,
    /// Set by this program for itself: it is within its namespace already
    #[arg(long, hide = true)]
    inside: bool,
    /// Set by this program for itself: wait for the address, then become the server
    #[arg(long, hide = true)]
    become_server: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Over {
    /// The loopback device
    Loopback,
    /// A pair of virtual devices between two network namespaces
    Veth,
}

/// The server's in its own namespace; on loopback one that is free is taken.
const PORT: u16 = 5201;
const LOOPBACK: &str = "127.0.0.1";
/// Streams beyond this measure the scheduler.
const STREAMS_MAX: u64 = 128;

pub(crate) fn run(args: &Args) -> Outcome {
    if args.become_server {
        await_address()?;
        // Its standard output is the pipe that the arm reads.
        let error = server(FAR, PORT).stdout(Stdio::inherit()).exec();
        return Err(format!("cannot start iperf3: {error}"));
    }
    let hello = |cannot: Option<String>| {
        let between = match args.over {
            Over::Loopback => "loopback",
            Over::Veth => "veth between two network namespaces",
        };
        let version = version(Command::new("iperf3").arg("--version"));
        ToolHello::new(format!("iperf3, {between}"), version, 1).cannot(cannot)
    };
    if args.over == Over::Veth && !args.inside {
        let why = enter(&["iperf3", "--over", "veth", "--inside"]);
        return hello(Some(why)).speak(|_| Err("left out".to_owned()));
    }
    match Server::start(args.over) {
        Ok(server) => {
            let sent = hello(None).note(server.note());
            sent.speak(|run| transfer(run, &server))
        }
        Err(why) => hello(Some(why)).speak(|_| Err("left out".to_owned())),
    }
}

/// A server that is ended with this arm.
struct Server {
    child: Child,
    address: &'static str,
    port: u16,
    over: Over,
}

impl Server {
    fn start(over: Over) -> Outcome<Self> {
        let (mut child, address, port) = match over {
            Over::Loopback => {
                let port = free_port()?;
                let child = server(LOOPBACK, port).spawn();
                (child.map_err(|error| format!("cannot start iperf3: {error}"))?, LOOPBACK, port)
            }
            Over::Veth => {
                let this = std::env::current_exe().map_err(|error| error.to_string())?;
                let this = this.to_string_lossy();
                (beyond(&[&this, "iperf3", "--over", "veth", "--become-server"])?, FAR, PORT)
            }
        };
        let lines = child.stdout.take().map(BufReader::new).map(BufRead::lines);
        let mut lines = lines.into_iter().flatten().map_while(Result::ok);
        if lines.any(|line| line.contains("Server listening")) {
            // Goes on reading, so that the server never waits for a full pipe.
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(Self { child, address, port, over });
        }
        let _ = child.kill();
        let status = child.wait().map_err(|error| error.to_string())?;
        Err(format!("iperf3's server did not listen: {status}"))
    }

    fn note(&self) -> String {
        match self.over {
            Over::Loopback => "both ends on one machine over loopback".to_owned(),
            Over::Veth => {
                "both ends on one machine, two network namespaces and a veth pair".to_owned()
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `--forceflush`, or the line that says it listens waits in a buffer.
fn server(address: &str, port: u16) -> Command {
    let mut command = Command::new("iperf3");
    command
        .args(["--server", "--forceflush", "--bind", address, "--port", &port.to_string()])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

fn transfer(run: &Run, server: &Server) -> Outcome<Report> {
    run.knows_only(&["streams", "direction", "seconds"])?;
    let (streams, seconds) = (run.number("streams", 1)?, run.number("seconds", 2)?);
    if !(1..=STREAMS_MAX).contains(&streams) {
        return Err(format!("param streams: wanted 1 to {STREAMS_MAX}, got {streams}"));
    }
    let mut command = Command::new("iperf3");
    command
        .args(["--client", server.address, "--port", &server.port.to_string(), "--json"])
        .args(["--time", &seconds.to_string(), "--parallel", &streams.to_string()])
        .args(["--interval", "0"])
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    match run.text("direction", "to the server")?.as_str() {
        "to the server" => {}
        "from the server" => {
            command.arg("--reverse");
        }
        other => return Err(format!("param direction: {other} is none of the two known")),
    }
    let watch = Watch::start();
    // Its failures are told in the JSON, beside an exit status.
    let output = command.output().map_err(|error| format!("cannot start iperf3: {error}"))?;
    let transfer = iperf3::read(&stdout(&output)).map_err(|error| error.to_string())?;
    Ok(fill_report(watch.report(), &transfer))
}

fn fill_report(mut report: Report, transfer: &Transfer) -> Report {
    let gib = transfer.received_bytes / f64::from(1 << 30);
    let per_gib = |count: f64| (gib > 0.0).then(|| count / gib);
    metric(&mut report, "received_gbit_per_s", Some(transfer.received_bits_per_s / 1e9));
    metric(&mut report, "retransmits_per_gib", transfer.retransmits.and_then(per_gib));
    metric(&mut report, "client_cores_ratio", Some(transfer.client_cpu_percent / 100.0));
    metric(&mut report, "server_cores_ratio", Some(transfer.server_cpu_percent / 100.0));
    report.answer = json!({ "streams": transfer.streams });
    report
}

fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind((LOOPBACK, 0)).map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_has_its_rate_its_retransmits_and_both_ends_cores() {
        let read = iperf3::read(include_str!("../../recorded/iperf3-two.json")).expect("recorded");
        let report = fill_report(Report::default(), &read);
        let figure = |name: &str| report.metrics[name].as_f64().unwrap_or(f64::NAN);
        assert!((figure("received_gbit_per_s") - 13.295).abs() < 1e-3);
        assert!((figure("retransmits_per_gib") - 10.31).abs() < 0.01);
        assert!((figure("client_cores_ratio") - 0.347).abs() < 1e-3);
        assert_eq!(report.answer["streams"], 2);
    }

    #[test]
    fn a_system_that_counts_no_retransmits_gives_none() {
        let mut read = iperf3::read(include_str!("../../recorded/iperf3-two.json")).expect("it");
        read.retransmits = None;
        assert!(!fill_report(Report::default(), &read).metrics.contains_key("retransmits_per_gib"));
    }
}

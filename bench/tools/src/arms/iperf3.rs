//! iperf3 over loopback, or between two network namespaces.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use confide_arm_line::{
    Outcome, UnmetNeed, separate_unmet_need, serve_runs, spawn,
    veth::{Veth, assign_far_address},
};

use super::{network::exec_in_namespace, tool::ToolArm};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The network between the two ends
    #[arg(long, value_enum, default_value = "loopback")]
    over: NetworkPath,
    /// Set by this program for itself: it is already in its namespace
    #[arg(long, hide = true)]
    inside: bool,
    /// Set by this program for itself: take the address, then become the server there
    #[arg(long, hide = true)]
    become_server: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum NetworkPath {
    /// The loopback device
    Loopback,
    /// A pair of virtual devices between two network namespaces
    Veth,
}

/// The server's port in a namespace of its own; on loopback any free one is taken.
const PORT: u16 = 5201;
const LOOPBACK: &str = "127.0.0.1";

pub(crate) fn run(args: &Args) -> Outcome {
    if let Some(address) = &args.become_server {
        assign_far_address(address)?;
        // Its standard output is the pipe that the arm reads.
        let error = server_command(address, PORT).stdout(Stdio::inherit()).exec();
        return Err(format!("cannot start iperf3: {error}").into());
    }
    let (between, note) = match args.over {
        NetworkPath::Loopback => ("loopback", "both ends on one machine over loopback"),
        NetworkPath::Veth => (
            "veth between two network namespaces",
            "both ends on one machine, two network namespaces and a veth pair",
        ),
    };
    let arm = ToolArm::new("iperf3", 1)?.with_setting("between", between);
    let mut hello = arm.hello()?;
    let started = match &hello.cannot {
        Some(missing) => Err(UnmetNeed(missing.clone()).into()),
        None if args.over == NetworkPath::Veth && !args.inside => {
            Err(exec_in_namespace(&["iperf3", "--over", "veth", "--inside"]))
        }
        None => Server::start(args.over),
    };
    match separate_unmet_need(started)? {
        Ok(server) => {
            hello.note = Some(note.to_owned());
            let arm =
                arm.with_setting("address", &server.address).with_setting("port", server.port);
            serve_runs(&hello, |run| Ok(arm.measure(&arm.prepare_run(run)?)?.0))
        }
        Err(need) => {
            hello.cannot = Some(need.to_string());
            serve_runs(&hello, |_| Err("left out".into()))
        }
    }
}

/// A server that is ended with this arm.
struct Server {
    child: Child,
    address: String,
    port: u16,
}

impl Server {
    fn start(over: NetworkPath) -> Outcome<Self> {
        let (mut child, address, port) = match over {
            NetworkPath::Loopback => {
                let port = free_port()?;
                (spawn(&mut server_command(LOOPBACK, port))?, LOOPBACK.to_owned(), port)
            }
            NetworkPath::Veth => {
                let veth = Veth::for_this_process();
                let arguments = ["iperf3", "--over", "veth", "--become-server", &veth.far];
                (veth.spawn_at_far_end(&arguments)?, veth.far, PORT)
            }
        };
        let lines = child.stdout.take().map(BufReader::new).map(BufRead::lines);
        let mut lines = lines.into_iter().flatten().map_while(Result::ok);
        if lines.any(|line| line.contains("Server listening")) {
            // Goes on reading, so that the server never waits for a full pipe.
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(Self { child, address, port });
        }
        let _ = child.kill();
        let status = child.wait()?;
        Err(format!("iperf3's server did not listen: {status}").into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command of a server. Without `--forceflush` the line by which it says that it listens would
/// wait in a buffer.
fn server_command(address: &str, port: u16) -> Command {
    let mut command = Command::new("iperf3");
    command
        .args(["--server", "--forceflush", "--bind", address, "--port", &port.to_string()])
        .env("LC_ALL", "C");
    command
}

fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind((LOOPBACK, 0))?;
    Ok(listener.local_addr()?.port())
}

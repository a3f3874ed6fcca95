//! A simulated access network between a client and a server: a relay that adds the delay, and a veth
//! pair whose two ends send at a limited rate.
//!
//! `confide-arm network --profile cable --to 127.0.0.1:8443` carries connections over the pair to a
//! second process of this program, which listens in a network namespace of its own and connects to the
//! server. The kernel limits the rate of both ends (`tc`, `tbf`); the delay is the relay's. TCP ends
//! at each relay, so no flight of bytes waits for an acknowledgement from the server: slow start and
//! losses over the whole path are not simulated. All figures behind it are *simulated*.
//!
//! Nothing is left behind: see `link`.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener},
    os::fd::AsFd,
    process::Child,
    time::Duration,
};

use clap::ValueEnum;
use confide_arm_line::{
    Outcome, separate_unmet_need,
    veth::{Veth, assign_far_address, limit_rate},
};
use rustix::{
    process::getppid,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use serde_json::{Value, json};

use crate::{
    link::{calibrate_delay, die_with_parent},
    relay::relay_connections,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    profile: NetworkProfile,
    /// The server.
    #[arg(long)]
    to: SocketAddr,
    /// Set by this program for itself: listen at this address, in the namespace of the far end.
    #[arg(long, hide = true)]
    far_address: Option<String>,
}

/// The networks of TLSNotary's harness (`crates/harness/bench.toml` in tlsnotary/tlsn), whose rates are
/// the same in both directions.
#[derive(Clone, Copy, ValueEnum)]
enum NetworkProfile {
    /// Cable or DSL at home: a round trip of 20 ms, 20 Mbit/s
    Cable,
    /// A mobile network: a round trip of 30 ms, 30 Mbit/s
    #[value(name = "5g")]
    Mobile,
    /// Fibre at home: a round trip of 15 ms, 100 Mbit/s
    Fibre,
}

impl NetworkProfile {
    fn round_trip(self) -> Duration {
        Duration::from_millis(match self {
            Self::Cable => 20,
            Self::Mobile => 30,
            Self::Fibre => 15,
        })
    }

    fn rate_mbit_per_s(self) -> u32 {
        match self {
            Self::Cable => 20,
            Self::Mobile => 30,
            Self::Fibre => 100,
        }
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    die_with_parent()?;
    if let Some(address) = &args.far_address {
        return serve_far_end(address, &args);
    }
    match separate_unmet_need(start_far_end(&args))? {
        Ok((mut far, between, to)) => {
            let outcome = relay_to_far_end(&args, &between, to);
            let _ = far.kill();
            let _ = far.wait();
            outcome
        }
        Err(need) => {
            println!("{}", json!({ "cannot": need.to_string() }));
            Ok(())
        }
    }
}

/// Starts the second process at the far end of a pair. Returns it, the names of device and addresses,
/// and where it listens.
fn start_far_end(args: &Args) -> Outcome<(Child, String, SocketAddr)> {
    let veth = Veth::for_this_process();
    let profile = args.profile.to_possible_value().ok_or("a profile without a name")?;
    let to = args.to.to_string();
    let words = ["network", "--profile", profile.get_name(), "--to", &to];
    let mut child = veth.spawn_at_far_end(&[&words[..], &["--far-address", &veth.far]].concat())?;
    let opened = limit_rate(&veth.device, args.profile.rate_mbit_per_s())
        .and_then(|()| read_far_listener(&mut child));
    if opened.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let between = format!("veth {}, {} to {}", veth.device, veth.near, veth.far);
    Ok((child, between, opened?))
}

/// Reads where the far end listens.
fn read_far_listener(child: &mut Child) -> Outcome<SocketAddr> {
    let stdout = child.stdout.take().ok_or("the far end has no standard output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let address = line.trim_end().parse();
    Ok(address.map_err(|_| format!("the far end did not listen: {:?}", line.trim_end()))?)
}

/// Listens in this namespace, then goes back to the one of the process that started this one, in which
/// the server is.
fn serve_far_end(address: &str, args: &Args) -> Outcome {
    let device = assign_far_address(address)?;
    limit_rate(&device, args.profile.rate_mbit_per_s())?;
    let listener = TcpListener::bind((address, 0))?;
    let parent = getppid().ok_or("the parent process has ended")?;
    let namespace = File::open(format!("/proc/{}/ns/net", parent.as_raw_nonzero()))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    println!("{}", listener.local_addr()?);
    relay_connections(&listener, args.to, Duration::ZERO);
    Ok(())
}

/// Prints the ready line, and relays until this process is ended.
fn relay_to_far_end(args: &Args, between: &str, to: SocketAddr) -> Outcome {
    let round_trip = args.profile.round_trip();
    let (delay, _) = calibrate_delay(round_trip)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let ready = json!({
        "ready": true,
        "listen": listener.local_addr()?.to_string(),
        "guarantee": "none",
        "simulated": true,
        "between": between,
        "round_trip_us": round_trip.as_micros() as u64,
        "mbit_per_s": args.profile.rate_mbit_per_s(),
    });
    println!("{}", Value::to_string(&ready));
    relay_connections(&listener, to, delay);
    Ok(())
}

//! A service behind a link: in a network namespace of its own, reached over a veth pair through a
//! relay that adds a delay.
//!
//! `confide-arm link --round-trip-us 200 -- confide adapter host DIR --listen %address:0` starts the
//! service where `%address` is the namespace's, and says the service's own ready line with `listen`
//! replaced by the relay's. The round trip that the relay reaches over loopback is measured and said as
//! well. Where this machine has no namespaces, the service listens on loopback behind the same relay and
//! the ready line says why. The delay is a program's, so every figure behind it is *simulated*.
//!
//! Nothing is left behind: the namespace is held by the service alone, the kernel removes the veth
//! pair with it, and the service is killed with this process, as this process is with its parent.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use confide_arm_line::{
    Outcome, separate_unmet_need, spawn,
    veth::{Veth, assign_far_address},
};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde_json::{Map, Value, json};

use crate::relay;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The round trip over the link, in microseconds: the relay adds what the path lacks.
    #[arg(long)]
    round_trip_us: u64,
    /// The service and its arguments; `%address` stands for where it is to listen.
    #[arg(last = true, required = true)]
    command: Vec<String>,
    /// Set by this program for itself: wait until the address exists, then become the service.
    #[arg(long, hide = true)]
    become_service: Option<String>,
}

/// Address of a service that has no namespace of its own.
const LOOPBACK: &str = "127.0.0.1";
/// Exchanges from which a round trip is taken, the middle one of them.
const EXCHANGES: usize = 64;

pub(crate) fn run(args: Args) -> Outcome {
    die_with_parent()?;
    if let Some(address) = &args.become_service {
        return exec_service(address, &args.command);
    }
    let (mut service, between) = match separate_unmet_need(start_behind_veth(&args.command))? {
        Ok((service, device)) => (service, format!("two network namespaces, {device}")),
        Err(need) => {
            let this = std::env::current_exe()?;
            let service =
                spawn(Command::new(this).args(service_arguments(LOOPBACK, &args.command)))?;
            (service, format!("loopback, no namespace: {need}"))
        }
    };
    let outcome = relay_to_service(&mut service, &args, &between);
    let _ = service.kill();
    outcome
}

/// Prints the ready line and relays until the service ends.
fn relay_to_service(service: &mut Child, args: &Args, between: &str) -> Outcome {
    let stdout = service.stdout.take().ok_or("the service has no standard output")?;
    let mut lines = BufReader::new(stdout);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    let mut ready: Map<String, Value> = serde_json::from_str(&line)
        .map_err(|error| format!("the service's ready line: {error}: {}", line.trim_end()))?;
    let to: SocketAddr = ready
        .get("listen")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .ok_or("the service's ready line has no listen address")?;
    let wanted = Duration::from_micros(args.round_trip_us);
    let (delay, reached) = calibrate_delay(wanted)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let listen = listener.local_addr()?;
    ready.insert("listen".into(), json!(listen.to_string()));
    ready.insert("simulated".into(), json!(true));
    ready.insert("between".into(), json!(between));
    ready.insert("round_trip_us".into(), json!(args.round_trip_us));
    ready.insert("round_trip_reached_us".into(), json!(reached.as_micros() as u64));
    println!("{}", Value::Object(ready));
    thread::spawn(move || relay::relay_connections(&listener, to, delay));
    // Further output of the service goes to standard error.
    let mut rest = String::new();
    let _ = lines.read_to_string(&mut rest);
    eprint!("{rest}");
    let status = service.wait()?;
    Err(format!("the service ended: {status}").into())
}

/// The delay to add so that a round trip takes `wanted`, and what it then takes.
pub(crate) fn calibrate_delay(wanted: Duration) -> Outcome<(Duration, Duration)> {
    let own = measure_round_trip(Duration::ZERO)?;
    let delay = wanted.saturating_sub(own);
    Ok((delay, measure_round_trip(delay)?))
}

/// The middle one of some exchanges of a byte through the relay to an echo of this process.
fn measure_round_trip(delay: Duration) -> Outcome<Duration> {
    let echo = TcpListener::bind("127.0.0.1:0")?;
    let relay_listener = TcpListener::bind("127.0.0.1:0")?;
    let (to, at) = (echo.local_addr()?, relay_listener.local_addr()?);
    thread::spawn(move || {
        let Ok((mut stream, _)) = echo.accept() else { return };
        let _ = stream.set_nodelay(true);
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
    });
    thread::spawn(move || {
        if let Ok((client, _)) = relay_listener.accept() {
            relay::relay_connection(client, to, Instant::now(), delay);
        }
    });
    let mut client = TcpStream::connect(at)?;
    client.set_nodelay(true)?;
    let mut times = Vec::with_capacity(EXCHANGES);
    for _ in 0..EXCHANGES {
        let began = Instant::now();
        client.write_all(&[1])?;
        client.read_exact(&mut [0])?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok(times[EXCHANGES / 2])
}

/// Starts the service behind a pair of devices. The text names device and addresses.
fn start_behind_veth(command: &[String]) -> Outcome<(Child, String)> {
    let veth = Veth::for_this_process();
    let child = veth.spawn_at_far_end(&service_arguments(&veth.far, command))?;
    Ok((child, format!("veth {}, {} to {}", veth.device, veth.near, veth.far)))
}

/// The arguments by which this program becomes the service.
fn service_arguments<'a>(address: &'a str, command: &'a [String]) -> Vec<&'a str> {
    let mut words = vec!["link", "--round-trip-us", "0", "--become-service", address, "--"];
    words.extend(command.iter().map(String::as_str));
    words
}

/// Becomes the service; within a namespace, once the peer device is there and has the address.
fn exec_service(address: &str, command: &[String]) -> Outcome {
    if address != LOOPBACK {
        assign_far_address(address)?;
    }
    let words = substitute_address(command, address);
    let error = Command::new(find_program(&words[0])).args(&words[1..]).exec();
    Err(format!("cannot start {}: {error}", words[0]).into())
}

fn substitute_address(command: &[String], address: &str) -> Vec<String> {
    command.iter().map(|word| word.replace("%address", address)).collect()
}

/// The path of a program: next to this one if it is there, as the harness looks for it, else by PATH.
fn find_program(word: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap_or_default();
    let beside = this.with_file_name(word);
    if !word.contains('/') && beside.is_file() { beside } else { PathBuf::from(word) }
}

/// The kernel ends this process when its parent is gone, however that ended.
pub(crate) fn die_with_parent() -> Outcome {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that ended before the request would send no signal.
    if parent == getppid() { Ok(()) } else { Err("the parent process has ended".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_reached_and_never_undercut() {
        let wanted = Duration::from_millis(4);
        let (delay, reached) = calibrate_delay(wanted).expect("loopback");
        assert!(delay <= wanted);
        assert!(reached >= delay, "{reached:?}");
    }
}

//! A service behind a link: in a network namespace of its own, reached over a veth pair through a
//! relay that adds a delay.
//!
//! `confide-arm link --round-trip-us 200 -- confide adapter host DIR --listen %address:0` starts the
//! service where `%address` is the namespace's, and says the service's own ready line with `listen`
//! replaced by the relay's. The round trip that was reached is measured and said as well. Where a
//! namespace may not be made, the service listens on loopback behind the same relay and the ready
//! line says why. The delay is a program's, so every figure behind it is *simulated*.
//!
//! Nothing is left behind: the namespace is held by the service alone, the kernel removes the veth
//! pair with it, and the service is killed with this process, as this process is with its parent.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde_json::{Map, Value, json};

use crate::{Outcome, relay};

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

/// Where a service listens that has no namespace of its own.
const LOOPBACK: &str = "127.0.0.1";
/// Configuring a device takes milliseconds.
const DEVICE_WAIT: Duration = Duration::from_secs(5);
/// Exchanges from which a round trip is taken, the middle one of them.
const EXCHANGES: usize = 64;

pub(crate) fn run(args: Args) -> Outcome {
    die_with_parent()?;
    if let Some(address) = &args.become_service {
        return become_service(address, &args.command);
    }
    let (mut service, between) = match behind_veth(&args.command) {
        Ok((service, device)) => (service, format!("two network namespaces, {device}")),
        Err(reason) => {
            let this = std::env::current_exe().map_err(|error| error.to_string())?;
            let service = started(Command::new(this).args(as_service(LOOPBACK, &args.command)))?;
            (service, format!("loopback, no namespace: {reason}"))
        }
    };
    let outcome = carry(&mut service, &args, &between);
    let _ = service.kill();
    outcome
}

/// Says the ready line and relays until the service ends.
fn carry(service: &mut Child, args: &Args, between: &str) -> Outcome {
    let stdout = service.stdout.take().ok_or("the service has no standard output")?;
    let mut lines = BufReader::new(stdout);
    let mut line = String::new();
    lines.read_line(&mut line).map_err(|error| error.to_string())?;
    let mut ready: Map<String, Value> = serde_json::from_str(&line)
        .map_err(|error| format!("the service's ready line: {error}: {}", line.trim_end()))?;
    let to: SocketAddr = ready
        .get("listen")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .ok_or("the service's ready line has no listen address")?;
    let wanted = Duration::from_micros(args.round_trip_us);
    let (delay, reached) = calibrated(wanted)?;
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let listen = listener.local_addr().map_err(|error| error.to_string())?;
    ready.insert("listen".into(), json!(listen.to_string()));
    ready.insert("simulated".into(), json!(true));
    ready.insert("between".into(), json!(between));
    ready.insert("round_trip_us".into(), json!(args.round_trip_us));
    ready.insert("round_trip_reached_us".into(), json!(reached.as_micros() as u64));
    println!("{}", Value::Object(ready));
    thread::spawn(move || relay::serve(&listener, to, delay));
    // What else the service says goes where its standard error goes.
    let mut rest = String::new();
    let _ = lines.read_to_string(&mut rest);
    eprint!("{rest}");
    let status = service.wait().map_err(|error| error.to_string())?;
    Err(format!("the service ended: {status}"))
}

/// The delay to add so that a round trip takes `wanted`, and what it then takes.
fn calibrated(wanted: Duration) -> Outcome<(Duration, Duration)> {
    let own = round_trip(Duration::ZERO)?;
    let delay = wanted.saturating_sub(own);
    Ok((delay, round_trip(delay)?))
}

/// The middle one of some exchanges of a byte through the relay to an echo of this process.
fn round_trip(delay: Duration) -> Outcome<Duration> {
    let text = |error: std::io::Error| error.to_string();
    let echo = TcpListener::bind("127.0.0.1:0").map_err(text)?;
    let door = TcpListener::bind("127.0.0.1:0").map_err(text)?;
    let (to, at) = (echo.local_addr().map_err(text)?, door.local_addr().map_err(text)?);
    thread::spawn(move || {
        let Ok((mut stream, _)) = echo.accept() else { return };
        let _ = stream.set_nodelay(true);
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
    });
    thread::spawn(move || {
        if let Ok((client, _)) = door.accept() {
            relay::carry(client, to, Instant::now(), delay);
        }
    });
    let mut client = TcpStream::connect(at).map_err(text)?;
    client.set_nodelay(true).map_err(text)?;
    let mut times = Vec::with_capacity(EXCHANGES);
    for _ in 0..EXCHANGES {
        let began = Instant::now();
        client.write_all(&[1]).map_err(text)?;
        client.read_exact(&mut [0]).map_err(text)?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok(times[EXCHANGES / 2])
}

/// Starts the service in a namespace of its own and connects that to this one. The text names
/// device and addresses.
fn behind_veth(command: &[String]) -> Outcome<(Child, String)> {
    for (tool, package) in [("ip", "iproute2"), ("unshare", "util-linux")] {
        if find(tool).is_none() {
            return Err(format!("no program {tool} (package {package})"));
        }
    }
    let link = free_link();
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = started(
        Command::new("unshare")
            .args(["--net", "--"])
            .arg(&this)
            .args(as_service(&link.inner, command)),
    )?;
    match connect(&link, child.id()) {
        Ok(()) => Ok((child, format!("veth {}, {} to {}", link.device, link.outer, link.inner))),
        Err(reason) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(reason)
        }
    }
}

/// The arguments by which this program becomes the service.
fn as_service<'a>(address: &'a str, command: &'a [String]) -> Vec<&'a str> {
    let mut words = vec!["link", "--round-trip-us", "0", "--become-service", address, "--"];
    words.extend(command.iter().map(String::as_str));
    words
}

/// Name and addresses of a veth pair.
struct Link {
    device: String,
    outer: String,
    inner: String,
}

/// Of the process id, so that several links live side by side; 198.18.0.0/15 is set aside for
/// tests of devices (RFC 2544).
fn free_link() -> Link {
    let id = std::process::id();
    let pair = id % (1 << 15);
    let (high, low) = (18 + (pair >> 14), (pair & 0x3fff) * 4);
    let address = |host: u32| format!("198.{high}.{}.{}", (low + host) >> 8, (low + host) & 255);
    Link { device: format!("cfd{id}"), outer: address(1), inner: address(2) }
}

/// Lays the pair between this namespace and that of process `id`, and sets both ends up.
fn connect(link: &Link, id: u32) -> Outcome {
    let (device, peer) = (link.device.as_str(), format!("{}p", link.device));
    let id = id.to_string();
    wait_for_namespace(&id)?;
    ip(&["link", "add", device, "type", "veth", "peer", "name", &peer, "netns", &id])?;
    ip(&["address", "add", &format!("{}/30", link.outer), "dev", device])?;
    ip(&["link", "set", device, "up"])
}

/// `unshare` needs a moment, and fails without the privilege.
fn wait_for_namespace(id: &str) -> Outcome {
    let of = |id: &str| fs::read_link(format!("/proc/{id}/ns/net"));
    let own = of("self").map_err(|error| format!("cannot see network namespaces: {error}"))?;
    let until = Instant::now() + DEVICE_WAIT;
    while Instant::now() < until {
        match of(id) {
            Ok(theirs) if theirs != own => return Ok(()),
            Ok(_) => thread::sleep(Duration::from_millis(2)),
            Err(_) => break,
        }
    }
    Err("may not make a network namespace (CAP_SYS_ADMIN)".into())
}

/// Becomes the service; within a namespace, once the peer device is there and has the address.
fn become_service(address: &str, command: &[String]) -> Outcome {
    if address != LOOPBACK {
        take_address(address)?;
    }
    let words = with_address(command, address);
    let error = Command::new(program(&words[0])).args(&words[1..]).exec();
    Err(format!("cannot start {}: {error}", words[0]))
}

fn take_address(address: &str) -> Outcome {
    let until = Instant::now() + DEVICE_WAIT;
    let device = loop {
        match device_here()? {
            Some(device) => break device,
            None if Instant::now() > until => return Err("the veth device did not come".into()),
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    ip(&["link", "set", "lo", "up"])?;
    ip(&["address", "add", &format!("{address}/30"), "dev", &device])?;
    ip(&["link", "set", &device, "up"])
}

/// The first device that is not the loopback, from /proc, which follows the process.
fn device_here() -> Outcome<Option<String>> {
    let text = fs::read_to_string("/proc/self/net/dev").map_err(|error| error.to_string())?;
    let mut names =
        text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    Ok(names.find(|name| name.starts_with("cfd")).map(str::to_owned))
}

fn ip(args: &[&str]) -> Outcome {
    let output = Command::new("ip").args(args).output().map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {}: {} (CAP_NET_ADMIN)",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

fn started(command: &mut Command) -> Outcome<Child> {
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {name}: {error}"))
}

fn with_address(command: &[String], address: &str) -> Vec<String> {
    command.iter().map(|word| word.replace("%address", address)).collect()
}

/// Looked for beside this program first, as the harness does.
fn program(word: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap_or_default();
    let beside = this.with_file_name(word);
    if !word.contains('/') && beside.is_file() { beside } else { PathBuf::from(word) }
}

fn find(word: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(word)).find(|path| path.is_file())
}

/// The kernel ends this process when its parent is gone, however that ended.
fn die_with_parent() -> Outcome {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
    // Gone between start and request: nothing would tell.
    if parent == getppid() { Ok(()) } else { Err("its parent is gone".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_reached_and_never_undercut() {
        let wanted = Duration::from_millis(4);
        let (delay, reached) = calibrated(wanted).expect("loopback");
        assert!(delay <= wanted);
        assert!(reached >= delay, "{reached:?}");
    }

    #[test]
    fn the_ends_of_a_link_lie_in_one_net_of_four_addresses() {
        let link = free_link();
        let number = |text: &str| -> u32 { text.parse::<std::net::Ipv4Addr>().unwrap().into() };
        assert_eq!(number(&link.outer) / 4, number(&link.inner) / 4);
        assert!((198 << 8 | 18..=198 << 8 | 19).contains(&(number(&link.outer) >> 16)));
        assert!(link.device.len() + 1 < 16, "the kernel's limit on names, peer's included");
    }
}

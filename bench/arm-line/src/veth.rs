//! A pair of virtual devices between this network namespace and that of a child process.
//!
//! The namespace lives no longer than the process, and the kernel removes the pair with it: nothing
//! is left behind, whichever way the process ends.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use crate::{
    outcome::{ArmError, Outcome, UnmetNeed},
    programs::{find_in_path, spawn},
};

/// The longest wait for a device or a namespace; configuring one takes milliseconds.
const DEVICE_WAIT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Prefix of the names of all devices that are made here.
const DEVICE_PREFIX: &str = "cfd";

/// Name of the near device and addresses of both ends.
#[derive(Debug)]
pub struct Veth {
    /// The device in this namespace; its peer's name has a `p` at its end.
    pub device: String,
    /// The address of this end.
    pub near: String,
    /// The address of the child's end.
    pub far: String,
}

impl Veth {
    /// A pair named by the process id, so that several of them live side by side; 198.18.0.0/15 is
    /// set aside for tests of devices (RFC 2544).
    pub fn for_this_process() -> Self {
        let id = std::process::id();
        let pair = id % (1 << 15);
        let (high, low) = (18 + (pair >> 14), (pair & 0x3fff) * 4);
        let address = |host| format!("198.{high}.{}.{}", (low + host) >> 8, (low + host) & 255);
        Self { device: format!("{DEVICE_PREFIX}{id}"), near: address(1), far: address(2) }
    }

    /// Starts this program with `arguments` in a namespace of its own and lays the pair between.
    /// The child must begin with [`assign_far_address`].
    ///
    /// # Errors
    /// [`UnmetNeed`] when a program or the privilege is missing, and any fault.
    pub fn spawn_at_far_end(&self, arguments: &[&str]) -> Outcome<Child> {
        require_namespace_programs()?;
        let this = std::env::current_exe()?;
        let mut child =
            spawn(Command::new("unshare").args(["--net", "--"]).arg(this).args(arguments))?;
        let laid = self.create_link(&child.id().to_string());
        if laid.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
        laid.map(|()| child)
    }

    fn create_link(&self, id: &str) -> Outcome {
        let (device, peer) = (self.device.as_str(), format!("{}p", self.device));
        wait_for_namespace(id)?;
        run_ip(&["link", "add", device, "type", "veth", "peer", "name", &peer, "netns", id])?;
        run_ip(&["address", "add", &format!("{}/30", self.near), "dev", device])?;
        run_ip(&["link", "set", device, "up"])
    }
}

/// Waits for the far device of a pair, gives it its address and returns its name. The process in the
/// second namespace calls this.
///
/// # Errors
/// When the device does not appear or cannot be configured.
pub fn assign_far_address(address: &str) -> Outcome<String> {
    let until = Instant::now() + DEVICE_WAIT;
    let device = loop {
        match find_device()? {
            Some(device) => break device,
            None if Instant::now() > until => return Err("the veth device did not appear".into()),
            None => thread::sleep(POLL_INTERVAL),
        }
    };
    run_ip(&["link", "set", "lo", "up"])?;
    run_ip(&["address", "add", &format!("{address}/30"), "dev", &device])?;
    run_ip(&["link", "set", &device, "up"])?;
    Ok(device)
}

/// Limits what this end of a pair sends, by a token bucket of two packets. Packets that would wait for
/// more than a second are dropped.
///
/// # Errors
/// [`UnmetNeed`] when the program `tc`, the kernel's `sch_tbf` or the privilege is missing, and any fault.
pub fn limit_rate(device: &str, mbit_per_s: u32) -> Outcome {
    require_program("tc", "iproute2")?;
    let rate = format!("{mbit_per_s}mbit");
    let bucket = ["tbf", "rate", &rate, "burst", "4kb", "latency", "1s"];
    let place = ["qdisc", "add", "dev", device, "root"];
    run_program("tc", &[place.as_slice(), bucket.as_slice()].concat())
}

/// Refuses where a program for namespaces is missing.
///
/// # Errors
/// [`UnmetNeed`] with the missing program and its package.
pub fn require_namespace_programs() -> Outcome {
    require_program("ip", "iproute2")?;
    require_program("unshare", "util-linux")
}

fn require_program(program: &str, package: &str) -> Outcome {
    let missing = || UnmetNeed(format!("no program {program} (package {package})"));
    find_in_path(program).map(drop).ok_or_else(|| missing().into())
}

/// Waits until `unshare` has made the namespace, which needs a moment, or has failed for want of
/// privilege.
fn wait_for_namespace(id: &str) -> Outcome {
    let namespace =
        |id: &str| -> std::io::Result<PathBuf> { fs::read_link(format!("/proc/{id}/ns/net")) };
    let own =
        namespace("self").map_err(|error| format!("cannot see network namespaces: {error}"))?;
    let until = Instant::now() + DEVICE_WAIT;
    while Instant::now() < until {
        match namespace(id) {
            Ok(theirs) if theirs != own => return Ok(()),
            Ok(_) => thread::sleep(POLL_INTERVAL),
            // `unshare` has ended, and has said why.
            Err(_) => {
                let text = "cannot make a network namespace: wanted CAP_SYS_ADMIN";
                return Err(UnmetNeed(text.into()).into());
            }
        }
    }
    Err("the network namespace did not appear".into())
}

/// The device of a pair in this namespace, by /proc, which shows the namespace of its reader.
fn find_device() -> Outcome<Option<String>> {
    let text = fs::read_to_string("/proc/self/net/dev")?;
    let mut names =
        text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    Ok(names.find(|name| name.starts_with(DEVICE_PREFIX)).map(str::to_owned))
}

fn run_ip(arguments: &[&str]) -> Outcome {
    run_program("ip", arguments)
}

fn run_program(program: &str, arguments: &[&str]) -> Outcome {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(explain_failure(&format!("{program} {}", arguments.join(" ")), reason.trim()))
}

/// Explains why `ip` or `tc` failed. The text of the kernel tells a missing privilege or module from a fault.
fn explain_failure(command: &str, reason: &str) -> ArmError {
    const NEEDS: &[(&str, &str)] = &[
        ("Operation not permitted", "wanted CAP_NET_ADMIN"),
        ("Unknown device type", "wanted the kernel's veth"),
        ("qdisc kind is unknown", "wanted the kernel's sch_tbf"),
    ];
    match NEEDS.iter().find(|(text, _)| reason.contains(text)) {
        Some((_, wanted)) => UnmetNeed(format!("{command}: {wanted}: {reason}")).into(),
        None => format!("{command}: {reason}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_privilege_or_module_is_a_need_and_anything_else_a_fault() {
        for (reason, is_need) in [
            ("RTNETLINK answers: Operation not permitted", true),
            ("Error: Unknown device type.", true),
            ("Error: Specified qdisc kind is unknown.", true),
            ("RTNETLINK answers: File exists", false),
            ("Cannot find device \"cfd1\"", false),
        ] {
            let error = explain_failure("ip link add cfd1", reason);
            assert_eq!(error.is::<UnmetNeed>(), is_need, "{error}");
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn the_ends_of_a_pair_lie_in_one_net_of_four_addresses() {
        let pair = Veth::for_this_process();
        let number = |text: &str| -> u32 { text.parse::<std::net::Ipv4Addr>().unwrap().into() };
        assert_eq!(number(&pair.near) / 4, number(&pair.far) / 4);
        assert!((198 << 8 | 18..=198 << 8 | 19).contains(&(number(&pair.near) >> 16)));
        assert!(pair.device.len() + 1 < 16, "the kernel's limit on names, peer's included");
    }
}

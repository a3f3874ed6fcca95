//! Two network namespaces of our own, with a veth pair between them.
//!
//! The arm starts itself again within a first namespace (`unshare --net`), and its server in a
//! second; the pair lies between. Both namespaces live no longer than their processes, so that
//! nothing is left behind, however those end. Where `unshare` may not make one as it is, it is asked
//! for one within a user namespace, which many systems allow to everybody.

use std::{
    fs,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::Outcome;

/// Addresses of the two ends; 198.18.0.0/15 is set aside for tests of devices (RFC 2544). Nobody
/// else lives in these namespaces.
pub(crate) const NEAR: &str = "198.18.0.1";
pub(crate) const FAR: &str = "198.18.0.2";
/// Configuring a device takes milliseconds.
const DEVICE_WAIT: Duration = Duration::from_secs(5);

/// Becomes `args` of this program within a network namespace of its own; returns only why not.
pub(crate) fn enter(args: &[&str]) -> String {
    for (tool, package) in [("unshare", "util-linux"), ("ip", "iproute2")] {
        if Command::new(tool).arg("-V").output().is_err() {
            return format!("no program {tool} (package {package})");
        }
    }
    let Some(ways) = ways() else {
        return "may not make a network namespace (CAP_SYS_ADMIN, or user namespaces)".to_owned();
    };
    let Ok(this) = std::env::current_exe() else {
        return "cannot tell where this program is".to_owned();
    };
    let error = Command::new("unshare").args(ways).arg("--").arg(this).args(args).exec();
    format!("unshare: {error}")
}

/// Starts `command` in a second namespace, with the pair between that and this one.
///
/// `command` must wait until `FAR` is there; [`await_address`] does.
pub(crate) fn beyond(command: &[&str]) -> Outcome<Child> {
    let text = |error: std::io::Error| error.to_string();
    let mut child = Command::new("unshare")
        .args(["--net", "--"])
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(text)?;
    match lay(child.id()) {
        Ok(()) => Ok(child),
        Err(why) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(why)
        }
    }
}

/// Sets the far end up and waits until it carries its address. For the process beyond.
pub(crate) fn await_address() -> Outcome {
    let until = Instant::now() + DEVICE_WAIT;
    loop {
        let devices = fs::read_to_string("/proc/self/net/dev").map_err(|e| e.to_string())?;
        if devices.lines().any(|line| line.trim_start().starts_with("far:")) {
            break;
        }
        if Instant::now() > until {
            return Err("the veth device did not come".into());
        }
        thread::sleep(Duration::from_millis(2));
    }
    ip(&["address", "add", &format!("{FAR}/30"), "dev", "far"])?;
    ip(&["link", "set", "far", "up"])
}

fn lay(id: u32) -> Outcome {
    let own = fs::read_link("/proc/self/ns/net").map_err(|error| error.to_string())?;
    let until = Instant::now() + DEVICE_WAIT;
    while fs::read_link(format!("/proc/{id}/ns/net")).is_ok_and(|theirs| theirs == own) {
        if Instant::now() > until {
            return Err("the second network namespace did not come".into());
        }
        thread::sleep(Duration::from_millis(2));
    }
    let id = id.to_string();
    ip(&["link", "add", "near", "type", "veth", "peer", "name", "far", "netns", &id])?;
    ip(&["address", "add", &format!("{NEAR}/30"), "dev", "near"])?;
    ip(&["link", "set", "near", "up"])
}

/// The arguments by which `unshare` makes a namespace here, if any do.
fn ways() -> Option<&'static [&'static str]> {
    const WAYS: &[&[&str]] = &[&["--net"], &["--user", "--map-root-user", "--net"]];
    WAYS.iter().copied().find(|way| {
        let tried = Command::new("unshare")
            .args(*way)
            .args(["--", "ip", "link", "add", "near", "type", "veth", "peer", "name", "far"])
            .stderr(Stdio::null())
            .status();
        tried.is_ok_and(|status| status.success())
    })
}

fn ip(args: &[&str]) -> Outcome {
    let output = Command::new("ip").args(args).output().map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(format!("ip {}: {said} (CAP_NET_ADMIN)", args.join(" ")))
        }
    }
}

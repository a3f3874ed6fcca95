//! A network namespace for an arm, whose server lives in a second one.
//!
//! Where `unshare` lacks the privilege, it makes one within a user namespace, which many systems
//! allow to every user.

use std::{
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use confide_arm_line::veth::require_namespace_programs;

/// Replaces this process by this program with `args` in a new network namespace; returns only where
/// that fails, with the reason.
pub(crate) fn exec_in_namespace(args: &[&str]) -> String {
    if let Err(error) = require_namespace_programs() {
        return error.to_string();
    }
    let Some(arguments) = unshare_arguments() else {
        return "cannot make a network namespace: wanted CAP_SYS_ADMIN or user namespaces"
            .to_owned();
    };
    let Ok(this) = std::env::current_exe() else {
        return "cannot find this program's own path".to_owned();
    };
    let error = Command::new("unshare").args(arguments).arg("--").arg(this).args(args).exec();
    format!("unshare: {error}")
}

/// The first arguments by which `unshare` can make a network namespace on this machine.
fn unshare_arguments() -> Option<&'static [&'static str]> {
    const CHOICES: &[&[&str]] = &[&["--net"], &["--user", "--map-root-user", "--net"]];
    CHOICES.iter().copied().find(|arguments| {
        let tried = Command::new("unshare")
            .args(*arguments)
            .args(["--", "ip", "link", "add", "near", "type", "veth", "peer", "name", "far"])
            .stderr(Stdio::null())
            .status();
        tried.is_ok_and(|status| status.success())
    })
}

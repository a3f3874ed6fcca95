//! A network namespace for an arm, whose server lives in a second one.
//!
//! Where `unshare` lacks the privilege, it makes one within a user namespace, which many systems
//! allow to every user.

use std::{
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use confide_arm_line::{ArmError, UnmetNeed, veth::require_namespace_programs};

/// Replaces this process by this program with `args` in a new network namespace; returns only where
/// that fails, with the reason: an [`UnmetNeed`] where a program or the privilege is missing.
pub(crate) fn exec_in_namespace(args: &[&str]) -> ArmError {
    if let Err(error) = require_namespace_programs() {
        return error;
    }
    let Some(arguments) = unshare_arguments() else {
        let text = "cannot make a network namespace: wanted CAP_SYS_ADMIN or user namespaces";
        return UnmetNeed(text.into()).into();
    };
    let Ok(this) = std::env::current_exe() else {
        return "cannot find this program's own path".into();
    };
    let error = Command::new("unshare").args(arguments).arg("--").arg(this).args(args).exec();
    format!("unshare: {error}").into()
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

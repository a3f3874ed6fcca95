//! Tests that mount run in a mount namespace of their own, so that nothing they leave is seen.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

const INSIDE: &str = "CONFIDE_TEST_NAMESPACE";

/// Runs `body` with an empty folder to mount at, in a process of its own whose mounts nobody else
/// sees. `test` is the test's name; without FUSE or the privilege it is skipped by name.
pub(crate) fn with_private_mounts(test: &str, body: impl FnOnce(&Path)) {
    if std::env::var_os(INSIDE).is_some() {
        let folder = std::env::temp_dir().join(format!("confide-{}-{test}", std::process::id()));
        fs::create_dir(&folder).expect("a new folder");
        body(&folder);
        fs::remove_dir(&folder).expect("the tree was unmounted");
        return;
    }
    let Some(unshare) = unshare() else { return };
    let itself = std::env::current_exe().expect("this test's program");
    let mut command = Command::new(unshare[0]);
    command.args(&unshare[1..]).arg(itself).args(["--exact", test, "--nocapture"]);
    let output = command.env(INSIDE, "1").output().expect("unshare runs");
    let said = String::from_utf8_lossy(&output.stdout);
    // A name that matches no test would pass with none.
    let passed = output.status.success() && said.contains("1 passed");
    assert!(passed, "{test}: {said}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// The command that gives a process its own mounts: as root, else as root of a user namespace.
fn unshare() -> Option<&'static [&'static str]> {
    if fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        println!("skipped: no FUSE");
        return None;
    }
    let ways: [&[&str]; 2] = [&["unshare", "-m"], &["unshare", "-Urm"]];
    let works = |way: &&&[&str]| {
        let mut command = Command::new(way[0]);
        command.args(&way[1..]).arg("true").stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = ways.iter().find(works).copied();
    if found.is_none() {
        println!("skipped: no privilege to mount");
    }
    found
}

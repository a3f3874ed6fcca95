//! Programs of this machine: whether they are here, and how one is started.

use std::{
    env,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use crate::outcome::Outcome;

/// The path of a program in PATH.
pub fn find_in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Starts a program whose standard output is read here; its standard error goes where ours does.
///
/// # Errors
/// When it cannot be started; the program is named.
pub fn spawn(command: &mut Command) -> Outcome<Child> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    child.map_err(|error| format!("cannot start {name}: {error}").into())
}

//! The numbers of threads of the tensor library, which it reads from the environment only:
//! for element-wise work it keeps threads that spin while they wait (with other processes on the
//! machine a step of training took ten times as long), and without a number for matrix products it
//! reads `/proc/cpuinfo` before each of them.

use std::{env, os::unix::process::CommandExt, process::Command};

const ELEMENT_WISE: &str = "CANDLE_NUM_THREADS";
const MATRICES: &str = "RAYON_NUM_THREADS";

/// Executes this program again, as the same process, with the numbers in its environment, unless both are set
/// already. Must be called before anything is printed or opened. Where it fails the program goes on, slower.
pub(crate) fn reexec_with_thread_counts(matrices: usize) {
    let missing = |name: &str| env::var_os(name).is_none();
    if !missing(ELEMENT_WISE) && !missing(MATRICES) {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut arguments = env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    again.args(arguments);
    if missing(ELEMENT_WISE) {
        again.env(ELEMENT_WISE, "1");
    }
    if missing(MATRICES) {
        again.env(MATRICES, matrices.to_string());
    }
    let error = again.exec();
    tracing::debug!(%error, "the tensor library keeps its own numbers of threads");
}

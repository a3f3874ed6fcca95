//! `confide-operator`: the same program without what an operator must not install. It cannot forge
//! evidence and does not measure; it is not built in any other way.

use std::process::ExitCode;

fn main() -> ExitCode {
    confide_cli::run()
}

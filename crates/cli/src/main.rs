//! `confide`, the developer's build unless features are left out.

use std::process::ExitCode;

fn main() -> ExitCode {
    confide_cli::run()
}

//! stress-ng's matrix products on some workers.

use std::{fs, path::PathBuf, process::Command};

use confide_tools::stress_ng;
use serde_json::json;

use super::{Outcome, Threads, ToolHello, Watch, metric, output, version};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Workers side by side: a number, or all
    #[arg(long, default_value = "1")]
    workers: Threads,
    /// Where its results are written for a moment
    #[arg(long)]
    folder: PathBuf,
}

/// Three matrices of 128 by 128 doubles are 384 KiB: the second cache's, not memory's.
const MATRIX_SIZE: &str = "128";

pub(crate) fn run(args: &Args) -> Outcome {
    let count = args.workers.count();
    let version = version(Command::new("stress-ng").arg("--version"));
    let hello = ToolHello::new(format!("stress-ng matrix, {count} workers"), version, count);
    hello.speak(|run| {
        run.knows_only(&["seconds"])?;
        let seconds = run.number("seconds", 1)?;
        let file = args.folder.join(format!(".stress-ng-{}.yaml", std::process::id()));
        let mut command = Command::new("stress-ng");
        command
            .args(["--matrix", &count.to_string(), "--matrix-method", "prod"])
            .args(["--matrix-size", MATRIX_SIZE, "--timeout", &format!("{seconds}s")])
            .args(["--metrics", "--temp-path"])
            .arg(&args.folder)
            .arg("--yaml")
            .arg(&file);
        let watch = Watch::start();
        let ran = output(&mut command);
        let text = fs::read_to_string(&file);
        let _ = fs::remove_file(&file);
        ran?;
        let text = text.map_err(|error| format!("stress-ng wrote no results: {error}"))?;
        let all = stress_ng::read(&text).map_err(|error| error.to_string())?;
        let matrix = all.iter().find(|one| one.name == "matrix").ok_or("no stressor matrix")?;
        let mut report = watch.report();
        metric(&mut report, "matrix_per_s", Some(matrix.per_s / count as f64));
        metric(&mut report, "matrix_per_cpu_s", Some(matrix.per_cpu_s));
        report.answer = json!({ "stressor": "matrix" });
        Ok(report)
    })
}

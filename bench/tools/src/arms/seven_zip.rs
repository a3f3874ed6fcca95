//! 7-zip's benchmark: on some threads, or as so many copies of one thread.

use std::process::{Command, Stdio};

use confide_arm_line::{Report, Run};
use confide_tools::seven_zip::{self, Ratings};
use serde_json::json;

use super::{Outcome, Threads, ToolHello, Watch, metric, output, stdout};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Threads of the benchmark: a number, or all
    #[arg(long, default_value = "1")]
    threads: Threads,
    /// So many processes of one thread each, side by side, instead of one process
    #[arg(long)]
    copies: bool,
}

/// As Debian's 7zip, upstream and p7zip name it.
const PROGRAMS: &[&str] = &["7zz", "7z", "7za"];
/// What 7-zip itself goes up to; below it a figure is not comparable with published ones.
const DICTIONARY_FULL: u64 = 25;
/// 7-zip starts at 2^18; beyond 2^30 it wants tens of gigabytes.
const DICTIONARIES: std::ops::RangeInclusive<u64> = 18..=30;

pub(crate) fn run(args: &Args) -> Outcome {
    let threads = args.threads.count();
    let found = PROGRAMS.iter().find(|name| has(name));
    let what = match args.copies {
        true => format!("7-zip, {threads} copies of one thread"),
        false => format!("7-zip, {threads} threads"),
    };
    let version = found.map_or("-".to_owned(), |name| super::version(&mut Command::new(name)));
    let program = found.copied().unwrap_or(PROGRAMS[0]);
    let missing = found.is_none().then(|| "no program 7zz (package 7zip)".to_owned());
    ToolHello::new(what, version, threads).cannot(missing).speak(|run| {
        run.knows_only(&["dictionary"])?;
        let dictionary = run.number("dictionary", DICTIONARY_FULL)?;
        if !DICTIONARIES.contains(&dictionary) {
            return Err(format!("param dictionary: wanted 18 to 30, got {dictionary}"));
        }
        let watch = Watch::start();
        let all = match args.copies {
            true => copies(program, threads, dictionary)?,
            false => vec![run_benchmark(program, threads, dictionary)?],
        };
        Ok(fill_report(run, watch.report(), &all, threads, dictionary))
    })
}

fn run_benchmark(program: &str, threads: usize, dictionary: u64) -> Outcome<Ratings> {
    let output = output(Command::new(program).args(words(threads, dictionary)))?;
    seven_zip::read(&stdout(&output)).map_err(|error| error.to_string())
}

/// All at once; each has one thread.
fn copies(program: &str, count: usize, dictionary: u64) -> Outcome<Vec<Ratings>> {
    let started: Vec<_> = (0..count)
        .map(|_| {
            Command::new(program)
                .args(words(1, dictionary))
                .env("LC_ALL", "C")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|error| format!("cannot start {program}: {error}"))
        })
        .collect();
    // Each prints a table that fits into a pipe, so that none waits for another to be read.
    let ended = started.into_iter().map(|child| {
        let output = child?.wait_with_output().map_err(|error| error.to_string())?;
        seven_zip::read(&stdout(&output)).map_err(|error| error.to_string())
    });
    ended.collect()
}

fn words(threads: usize, dictionary: u64) -> [String; 4] {
    ["b".into(), "1".into(), format!("-mmt{threads}"), format!("-md{dictionary}")]
}

fn fill_report(
    run: &Run,
    mut report: Report,
    all: &[Ratings],
    threads: usize,
    dictionary: u64,
) -> Report {
    let sum = |of: fn(&Ratings) -> f64| all.iter().map(of).sum::<f64>();
    let (total, compress, decompress) =
        (sum(|r| r.total_mips), sum(|r| r.compress.mips), sum(|r| r.decompress.mips));
    let each = threads.max(1) as f64;
    for (name, value) in [
        ("rating_mips", total),
        ("compress_mips", compress),
        ("decompress_mips", decompress),
        ("rating_per_thread_mips", total / each),
        ("compress_per_thread_mips", compress / each),
        ("decompress_per_thread_mips", decompress / each),
        ("compress_mib_per_s", sum(|r| r.compress.kib_per_s) / 1024.0),
        ("decompress_mib_per_s", sum(|r| r.decompress.kib_per_s) / 1024.0),
    ] {
        metric(&mut report, name, Some(value));
    }
    if dictionary < DICTIONARY_FULL {
        report.marks.push(format!("reduced dictionary, 2^{dictionary}"));
    }
    // What 7-zip did, by its own words: a version that ignores an option must not pass.
    let top = all.iter().filter_map(|ratings| ratings.dictionaries.iter().max()).max();
    report.answer = json!({ "dictionary": top, "asked": run.number("dictionary", 25).ok() });
    report
}

fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_summed_and_a_small_dictionary_is_said() {
        let one = seven_zip::read(include_str!("../../recorded/7z-1.txt")).expect("recorded");
        let run: Run = serde_json::from_str(r#"{"id":1,"params":{"dictionary":18}}"#).expect("run");
        let report = fill_report(&run, Report::default(), &[one.clone(), one], 2, 18);
        assert_eq!(report.metrics["rating_mips"], 15_288.0);
        assert_eq!(report.metrics["rating_per_thread_mips"], 7_644.0);
        assert_eq!(report.marks, ["reduced dictionary, 2^18"]);
        assert_eq!(report.answer["dictionary"], 18);
    }
}

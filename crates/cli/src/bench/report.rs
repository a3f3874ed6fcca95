//! `confide bench report`.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
};

use confide_bench::{Report, Terminal};

use super::failure::explain_error;
use crate::{
    error::CliError,
    process::{print_painted_text, print_text},
};

/// The width in columns of a terminal that does not report its own.
const WIDTH: usize = 80;
/// The name of the page that is written into a record's folder where `--html` is absent.
const PAGE_FILE: &str = "report.html";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Records, their folders, or folders of such folders
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Write one page of all of them to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print Markdown
    #[arg(long, conflicts_with = "terminal")]
    markdown: bool,
    /// Print a table that fits the terminal
    #[arg(long)]
    terminal: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let report = Report::read(&args.paths).map_err(explain_error)?;
    let plain = args.html.is_none() && !args.markdown;
    if args.markdown {
        print_text(&report.markdown())?;
    }
    if args.terminal || plain {
        print_painted_text(&report.terminal(detect_terminal()))?;
    }
    let own_page = match args.paths.as_slice() {
        [folder] if plain && !args.terminal && folder.is_dir() => Some(folder.join(PAGE_FILE)),
        _ => None,
    };
    if let Some(path) = args.html.clone().or(own_page) {
        write_report_page(&path, &report)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a page of all records of a folder into that folder. A folder without a record gets none.
pub(super) fn write_folder_report(folder: &Path) -> Result<(), CliError> {
    match Report::read(&[folder.to_owned()]) {
        Ok(report) if report.record_count() > 0 => {
            write_report_page(&folder.join(PAGE_FILE), &report)
        }
        Ok(_) => Ok(()),
        Err(error) => Err(explain_error(error)),
    }
}

fn write_report_page(path: &Path, report: &Report) -> Result<(), CliError> {
    let page = report.html(path);
    std::fs::write(path, &page)
        .map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display())))?;
    // The size is shown because the page contains small records.
    let mib = page.len() as f64 / f64::from(1 << 20);
    let (shown, records) = (path.display(), report.record_count());
    let records = if records == 1 { "1 record".into() } else { format!("{records} records") };
    eprintln!("page    {shown} ({mib:.1} MiB, {records})");
    Ok(())
}

fn detect_terminal() -> Terminal {
    let out = std::io::stdout();
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let size = rustix::termios::tcgetwinsize(&out).ok().map(|size| usize::from(size.ws_col));
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Terminal {
        width: size.filter(|columns| *columns > 0).or(columns).unwrap_or(WIDTH),
        colour: out.is_terminal() && !plain,
    }
}

//! Where and how: the machine, its quiet, the command, the services, the voids, the suite.

use std::fmt::Write;

use confide_estimate::quantile;

use super::{
    download::Attached,
    html::{definitions, escape, utc},
    view::RecordView,
};
use crate::{format::digits, record::Record, samples::Slice};

/// Voids listed in full; more than these have one cause.
const VOIDS_SHOWN: usize = 60;

/// The last section.
pub(super) fn section(shown: &RecordView<'_>, attached: &Attached, many: bool) -> String {
    let record = shown.record;
    let mut out = format!(
        "<h2>Environment, and how to run it again</h2>\n<pre>{}</pre>\n",
        escape(&command_line(record)),
    );
    let open = if many { "" } else { " open" };
    let _ = write!(out, "<details{open}><summary>The machine and the run</summary>");
    for (title, facts) in facts(record, shown.slices) {
        let _ = writeln!(out, "<h3>{}</h3>{}", escape(&title), definitions(&facts));
    }
    out.push_str("</details>\n");
    out.push_str(&services(record));
    out.push_str(&voids(record));
    let _ = writeln!(
        out,
        "<details><summary>The suite</summary><pre>{}</pre></details>\n\
         <p class=\"soft\">In this page as data: {}. <code>confide bench report PATH</code> makes the \
         page again from them.</p>",
        escape(&record.suite.text),
        escape(attached.name()),
    );
    out
}

/// The command as it was given.
pub(crate) fn command_line(record: &Record) -> String {
    record.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A group of named facts.
pub(crate) type Group = (String, Vec<(String, String)>);

/// Where it was measured, group by group.
pub(crate) fn facts(record: &Record, slices: &[Slice]) -> Vec<Group> {
    let named = |(name, text): (&str, String)| (name.to_owned(), text);
    let plan = [
        ("started", utc(record.started_unix_s)),
        ("seed of the plan", record.seed.to_string()),
        ("version", format!("confide {}", record.version)),
        ("commit of the working folder", record.commit.clone()),
        ("suite, SHA-256", format!("{} {}", record.suite.name, record.suite.sha256)),
        ("quiet over the run", quiet(slices)),
    ];
    let mut out = vec![("The run".to_owned(), plan.into_iter().map(named).collect::<Vec<_>>())];
    for group in record.machine.facts() {
        let fact = |fact: crate::host::facts::Fact| {
            let note =
                if fact.note.is_empty() { String::new() } else { format!(" ({})", fact.note) };
            (fact.name, format!("{}{note}", fact.value))
        };
        out.push((group.title.to_owned(), group.facts.into_iter().map(fact).collect()));
    }
    for (_, facts) in &mut out {
        facts.retain(|(_, text)| !text.is_empty());
    }
    out
}

/// How the machine did while slices ran.
fn quiet(slices: &[Slice]) -> String {
    let measured = || slices.iter().filter(|slice| !slice.warmup);
    let centre = |values: Vec<f64>| quantile(&values, 0.5);
    let percent = |share: Option<f64>| {
        share.map_or_else(|| "unknown".into(), |share| format!("{} %", digits(share * 100.0)))
    };
    let psi: Vec<f64> = measured().filter_map(|slice| slice.quiet.psi_cpu).collect();
    let steal: Vec<f64> = measured().filter_map(|slice| slice.quiet.steal).collect();
    let mut loops: Vec<f64> = measured().map(|slice| slice.quiet.calibration_us).collect();
    loops.sort_by(f64::total_cmp);
    let spread = quantile(&loops, 0.05).zip(quantile(&loops, 0.95));
    let spread = spread.map_or_else(String::new, |(low, high)| {
        format!("; calibration loop {} to {} us (p5 to p95)", digits(low), digits(high))
    });
    let mean_steal = confide_estimate::mean(&steal);
    format!(
        "PSI cpu {} (median slice); steal {} (mean){spread}",
        percent(centre(psi)),
        percent(mean_steal)
    )
}

fn services(record: &Record) -> String {
    let mut out = String::new();
    for service in &record.services {
        let ready = serde_json::to_string(&service.ready).unwrap_or_default();
        let _ = writeln!(out, "{}\n    {ready}", service.command.join(" "));
    }
    for arm in record.arms.iter().filter(|arm| !arm.twin) {
        let _ = writeln!(out, "{}: {}", arm.bench, arm.command.join(" "));
    }
    format!(
        "<details><summary>Every process</summary><pre>{}</pre></details>\n",
        escape(out.trim_end())
    )
}

fn voids(record: &Record) -> String {
    if record.voids.is_empty() {
        return String::new();
    }
    let mut out = String::new();
    for void in record.voids.iter().take(VOIDS_SHOWN) {
        let _ = writeln!(
            out,
            "{} {} block {} {}: {}",
            void.bench, void.case, void.block, void.arm, void.reason
        );
    }
    if record.voids.len() > VOIDS_SHOWN {
        let _ = writeln!(out, "and {} more, in record.json", record.voids.len() - VOIDS_SHOWN);
    }
    format!(
        "<details open><summary>Voids</summary><pre>{}</pre></details>\n",
        escape(out.trim_end())
    )
}

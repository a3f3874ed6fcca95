//! Where and how: the machine, its quiet, the command, the services, the voids, the suite.

use std::fmt::Write;

use confide_estimate::quantile;

use super::{
    Shown,
    download::Attached,
    html::{definitions, escape, utc},
};
use crate::{Record, format::digits, samples::Slice};

/// Voids listed in full; more than these have one cause.
const VOIDS_SHOWN: usize = 60;

/// The last section.
pub(super) fn section(shown: &Shown<'_>, attached: &Attached) -> String {
    let record = shown.record;
    let mut out = format!(
        "<h2>Environment, and how to run it again</h2>\n<pre>{}</pre>\n",
        escape(&again(record)),
    );
    out.push_str(&definitions(&facts(record, shown.slices)));
    out.push_str(&services(record));
    out.push_str(&voids(record));
    let _ = write!(
        out,
        "<details><summary>The suite</summary><pre>{}</pre></details>\n\
         <p class=\"soft\">In this page as data: {}. <code>confide bench report PATH</code> makes the \
         page again from them.</p>\n",
        escape(&record.suite.text),
        escape(&attached.names()),
    );
    out
}

/// The command as it was given.
pub(crate) fn again(record: &Record) -> String {
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

/// Where it was measured, name by name.
pub(crate) fn facts(record: &Record, slices: &[Slice]) -> Vec<(String, String)> {
    let machine = &record.machine;
    let mitigations: Vec<String> =
        machine.mitigations.iter().map(|(name, text)| format!("{name}: {text}")).collect();
    let pairs = [
        ("started", utc(record.started_unix_s)),
        ("seed of the plan", record.seed.to_string()),
        ("version", format!("confide {}", record.version)),
        ("commit of the working folder", record.commit.clone()),
        ("suite, SHA-256", format!("{} {}", record.suite.name, record.suite.sha256)),
        ("CPU", machine.cpu_model.clone()),
        ("CPUs online, SMT active", format!("{}, SMT {}", machine.cpus_online, machine.smt_active)),
        ("memory", format!("{:.1} GiB", machine.memory_bytes as f64 / f64::from(1 << 30))),
        ("kernel", machine.kernel.clone()),
        ("kernel command line", machine.kernel_command_line.clone()),
        ("clock source", machine.clock_source.clone()),
        ("governor", machine.governor.clone()),
        ("huge pages", machine.transparent_hugepages.clone()),
        (
            "cgroup limits, CPU and memory",
            format!("{}; {}", machine.cgroup_cpu_max, machine.cgroup_memory_max),
        ),
        ("virtualisation hints", machine.virtualisation_hints.join("; ")),
        ("mitigations", mitigations.join("; ")),
        ("quiet over the run", quiet(slices)),
    ];
    let named = pairs.into_iter().map(|(name, text)| (name.to_owned(), text));
    named.filter(|(_, text)| !text.is_empty()).collect()
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
        let _ = write!(out, "{}\n    {ready}\n", service.command.join(" "));
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

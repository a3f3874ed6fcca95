//! The first screen: what this is, whether to believe it, the table; and the two long tables.

use std::fmt::Write;

use super::{
    html::{chip, class_of, escape, simulated, utc},
    published::protection,
};
use crate::{
    Effort, Record, Validity,
    format::{aa, cost, digits, metric, value, verdict},
    record::ArmRecord,
    rows::{Figure, Outcome, Row},
    suite::SeedFigure,
};

/// Title, purpose and the few facts that place the run.
pub(super) fn header(record: &Record) -> String {
    let effort = match record.effort {
        Effort::Quick => "quick",
        Effort::Full => "full",
    };
    let memory = record.machine.memory_bytes as f64 / f64::from(1 << 30);
    let facts = [
        utc(record.started_unix_s),
        format!("suite {} ({effort})", record.suite.name),
        format!(
            "{}, {} CPUs, {memory:.0} GiB",
            record.machine.cpu_model, record.machine.cpus_online
        ),
        format!("confide {} at {}", record.version, short(&record.commit)),
        format!("{:.0} s", record.wall_s),
    ];
    let items: String = facts.iter().map(|fact| format!("<li>{}</li>", escape(fact))).collect();
    format!(
        "<h1>{}</h1>\n<p>{}</p>\n<ul class=\"facts\">{items}</ul>\n",
        escape(&record.suite.title),
        escape(&record.suite.about),
    )
}

/// Whether the run may be believed, before any figure.
pub(super) fn judgement(record: &Record) -> String {
    let mut out = String::new();
    let mut say = |class: &str, mark: &str, strong: &str, text: &str| {
        let _ = writeln!(
            out,
            "<div class=\"judgement {class}\"><span class=\"mark\">{mark}</span>\
             <p><b>{}</b> {}</p></div>",
            escape(strong),
            escape(text),
        );
    };
    match &record.validity {
        Validity::Valid { judged, failed } if *failed > 0 => say(
            "warn",
            "✓",
            &format!("A/A passed, {} of {judged}.", judged - failed),
            "As many failed as chance allows among so many; the rows beside them are marked \
             invalid.",
        ),
        Validity::Valid { judged, .. } => say(
            "good",
            "✓",
            &format!("A/A passed, {judged} of {judged}."),
            "Each reference arm ran a second time as if it were another: no difference was found \
             where there is none.",
        ),
        Validity::NotJudged { reason } => say(
            "warn",
            "?",
            "A/A not judged: indicative only.",
            &format!("{reason}. Run it with more blocks before you quote it."),
        ),
        Validity::Invalid { reasons } => say(
            "bad",
            "✗",
            "A/A failed: this run is invalid.",
            &format!(
                "The same arm against itself came out different ({}). The machine was not steady \
                 enough; do not quote these figures.",
                reasons.join("; ")
            ),
        ),
    }
    if let Some(reason) = &record.partial {
        say("warn", "…", "Partial.", reason);
    }
    for not in &record.not_run {
        say("warn", "!", &format!("{} was not run.", not.bench), &not.reason);
    }
    for arm in record.arms.iter().filter(|arm| arm.given_up.is_some()) {
        let reason = arm.given_up.clone().unwrap_or_default();
        say("warn", "!", &format!("{}, {} was left out.", arm.bench, arm.label), &reason);
    }
    if !record.voids.is_empty() {
        let text = format!("{} runs count nowhere; they are listed below.", record.voids.len());
        say("warn", "!", "Void:", &text);
    }
    out
}

/// The table of the headline rows, with the seed's figures in a column of their own.
pub(super) fn headline(record: &Record) -> String {
    let rows: Vec<&Row> = record.rows.iter().filter(|row| row.headline).collect();
    if rows.is_empty() {
        return "<h2>Cost of each layer</h2><p>No row has two blocks.</p>\n".into();
    }
    let seeds = !record.seed_figures.is_empty();
    let mut out = format!(
        "<h2>Cost of each layer</h2>\n<p class=\"soft\">{} Each block runs every arm once, in \
         random order; a cost is the mean over <i>n</i> blocks with its 95 % interval. \
         A verdict is about a margin that was set before the run.</p>\n\
         <div class=\"scroll\"><table class=\"cards\"><thead><tr><th>layer</th>\
         <th class=\"num\">clear</th><th class=\"num\">protected</th><th>cost [95 %]</th>\
         <th class=\"num\">n</th><th>verdict</th>",
        counted(&rows),
    );
    if seeds {
        out.push_str(
            "<th class=\"seed\">the seed's figures: <i>their hardware and network; ours \
             simulated</i></th>",
        );
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows.iter().filter(|row| !row.twin) {
        line(&mut out, record, row, seeds);
    }
    let columns = if seeds { 7 } else { 6 };
    let _ = write!(
        out,
        "</tbody>\n<tbody class=\"aa\"><tr class=\"divider\"><th colspan=\"{columns}\">A/A: the \
         reference arm against itself. A sound instrument finds nothing here.</th></tr>\n"
    );
    for row in rows.iter().filter(|row| row.twin) {
        line(&mut out, record, row, seeds);
    }
    out + "</tbody></table></div>\n" + &sources(record)
}

/// Where the seed's figures come from, lettered as in the column.
fn sources(record: &Record) -> String {
    let items: String =
        known_sources(record).iter().map(|text| format!("<li>{}</li>", escape(text))).collect();
    if items.is_empty() { String::new() } else { format!("<ol class=\"sources\">{items}</ol>\n") }
}

fn known_sources(record: &Record) -> Vec<&str> {
    let mut known: Vec<&str> = Vec::new();
    for figure in &record.seed_figures {
        if !known.contains(&figure.source.as_str()) {
            known.push(&figure.source);
        }
    }
    known
}

/// Rows of every metric, not only the headline's.
pub(super) fn every_comparison(record: &Record) -> String {
    let mut out = String::from(
        "<h2>Every comparison</h2>\n<details><summary>All metrics, all arms, A/A rows among \
         them</summary><div class=\"scroll\"><table class=\"cards\"><thead><tr><th>bench</th>\
         <th>metric</th><th>arm</th><th class=\"num\">reference</th><th class=\"num\">arm</th>\
         <th>cost [95 %]</th><th class=\"num\">pair correlation</th><th class=\"num\">n</th>\
         <th>verdict</th></tr></thead><tbody>\n",
    );
    for row in &record.rows {
        let arm = if row.twin { format!("{} (A/A)", row.arm_label) } else { row.arm_label.clone() };
        let judged = if row.twin { aa(row) } else { verdict(row) };
        let correlation = row.correlation.map_or_else(String::new, |r| format!("{r:.2}"));
        let _ = writeln!(
            out,
            "<tr><td class=\"layer\">{} <small>{} · {}, {} loop</small></td>\
             <td data-name=\"metric\">{}</td><td data-name=\"arm\">{}</td>\
             <td class=\"num\" data-name=\"reference\">{}</td><td class=\"num\" data-name=\"arm\">{}\
             </td><td data-name=\"cost\">{}</td><td class=\"num\" data-name=\"correlation\">\
             {correlation}</td><td class=\"num\" data-name=\"n\">{}</td><td data-name=\"verdict\">\
             {}</td></tr>",
            escape(&row.bench),
            escape(&row.case),
            escape(&row.model),
            escape(&row.load),
            escape(&metric(&row.metric, row.stat, row.better)),
            escape(&arm),
            escape(&value(&row.metric, row.clear)),
            escape(&value(&row.metric, row.protected)),
            escape(&cost(row)),
            row.blocks,
            chip(class_of(row), &judged),
        );
    }
    out + "</tbody></table></div></details>\n"
}

/// Pooled means and percentiles of every metric of every arm.
pub(super) fn every_figure(record: &Record) -> String {
    let mut out = String::from(
        "<details><summary>All figures: pooled means and percentiles</summary>\
         <p class=\"soft\">A percentile stands only where its tail holds ten samples: p50 from 20, \
         p95 from 200, p99 from 1,000.</p><div class=\"scroll\"><table class=\"cards\"><thead><tr>\
         <th>bench</th><th>arm</th><th>metric</th><th class=\"num\">n</th><th class=\"num\">mean\
         </th><th class=\"num\">p50</th><th class=\"num\">p95</th><th class=\"num\">p99</th></tr>\
         </thead><tbody>\n",
    );
    for figure in &record.figures {
        figure_line(&mut out, record, figure);
    }
    out + "</tbody></table></div></details>\n"
}

fn line(out: &mut String, record: &Record, row: &Row, seeds: bool) {
    let judged = if row.twin { aa(row) } else { verdict(row) };
    let shown = cost(row);
    let (number, interval) = shown.split_once(" [").unwrap_or((&shown, "]"));
    let _ = write!(
        out,
        "<tr><td class=\"layer\">{}{}<small class=\"guards\">{}</small>\
         <small class=\"soft\">{}</small></td>\
         <td class=\"num\" data-name=\"clear\">{}</td>\
         <td class=\"num\" data-name=\"protected\">{}</td>\
         <td class=\"cost\" data-name=\"cost\"><div><b>{}</b><span>[{}</span></div></td>\
         <td class=\"num\" data-name=\"blocks\">{}</td>\
         <td data-name=\"verdict\"><div>{}</div></td>",
        escape(&row.label),
        simulated(row.simulated),
        escape(&protects(record, row)),
        escape(&under(record, row)),
        escape(&value(&row.metric, row.clear)),
        escape(&value(&row.metric, row.protected)),
        escape(number),
        escape(interval),
        row.blocks,
        chip(class_of(row), judged.trim_end_matches(", simulated")),
    );
    if seeds {
        let text = if row.twin { String::new() } else { seed_text(record, row) };
        let name = if text.is_empty() { "" } else { " data-name=\"the seed\"" };
        let _ = write!(out, "<td class=\"seed\"{name}><div>{text}</div></td>");
    }
    out.push_str("</tr>\n");
}

/// Who is protected from whom in the arm of this row.
fn protects(record: &Record, row: &Row) -> String {
    let is = |arm: &&ArmRecord| arm.name == row.arm && arm.bench == row.bench && !arm.twin;
    let arm = record.arms.iter().find(is).filter(|_| !row.twin);
    arm.map_or_else(String::new, |arm| format!("protection: {}", protection(arm)))
}

/// Which arms, their round trips, the ratio to a floor.
fn under(record: &Record, row: &Row) -> String {
    let reference = record.arms.iter().find(|arm| arm.name == row.reference);
    let reference = reference.map_or(row.reference.as_str(), |arm| arm.label.as_str());
    let mut parts = vec![if row.twin {
        format!("{reference}, twice")
    } else {
        format!("{reference} → {}", row.arm_label)
    }];
    if let [Some(clear), Some(protected)] = row.round_trips
        && !row.twin
    {
        parts.push(format!("{clear:.0} → {protected:.0} round trips before the first byte"));
    }
    if let Some(floor) = &row.floor {
        parts.push(format!("{} of the floor ({})", digits(floor.value), floor.name));
    }
    if !row.twin
        && row.show == crate::suite::Show::Difference
        && let Some(ratio) = &row.ratio
    {
        parts.push(format!("x{:.2} [{:.2}, {:.2}]", ratio.value, ratio.low, ratio.high));
    }
    parts.push(format!("{}, {} loop", row.model, row.load));
    parts.join(" · ")
}

fn seed_text(record: &Record, row: &Row) -> String {
    let matches = |figure: &&SeedFigure| {
        figure.bench == row.bench
            && figure.metric == row.metric
            && figure.params.iter().all(|(name, value)| {
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                row.case.split(' ').any(|part| part == format!("{name}={shown}"))
            })
    };
    let of = |arm: Option<&str>| {
        record.seed_figures.iter().filter(matches).find(|figure| figure.arm.as_deref() == arm)
    };
    let (clear, protected) = (of(None), of(Some(&row.arm)));
    let Some(figure) = protected.or(clear) else { return String::new() };
    let values: Vec<String> =
        [clear, protected].into_iter().flatten().map(|figure| escape(&figure.value)).collect();
    let source = known_sources(record).iter().position(|source| **source == figure.source);
    let letter = source.and_then(|index| char::from_u32('a' as u32 + u32::try_from(index).ok()?));
    format!("{} <sup>{}</sup>", values.join(" → "), letter.unwrap_or('?'))
}

fn counted(rows: &[&Row]) -> String {
    let count = |wanted: fn(&Outcome) -> bool| {
        rows.iter().filter(|row| !row.twin && wanted(&row.outcome)).count()
    };
    let all = rows.iter().filter(|row| !row.twin).count();
    let parts = [
        (count(|o| matches!(o, Outcome::Within)), "within their margin"),
        (count(|o| matches!(o, Outcome::Above)), "above it"),
        (count(|o| matches!(o, Outcome::Below)), "below it (cheaper)"),
        (count(|o| matches!(o, Outcome::Undecided { .. })), "undecided"),
    ];
    let said: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    format!("Of {all} comparisons, {}.", said.join(", "))
}

fn figure_line(out: &mut String, record: &Record, figure: &Figure) {
    let show = |number: f64| value(&figure.metric, number);
    let or_none = |number: Option<f64>| number.map_or_else(|| "–".into(), show);
    let arm = record.arms.iter().find(|arm| arm.name == figure.arm);
    let label = arm.map_or(figure.arm.as_str(), |arm| arm.label.as_str());
    let twin = if figure.twin { " (A/A)" } else { "" };
    let _ = writeln!(
        out,
        "<tr><td class=\"layer\">{} <small>{}</small></td><td data-name=\"arm\"><div>{}{twin}{}\
         </div></td><td data-name=\"metric\">{}</td><td class=\"num\" data-name=\"n\">{}</td>\
         <td class=\"num\" data-name=\"mean\">{}</td><td class=\"num\" data-name=\"p50\">{}</td>\
         <td class=\"num\" data-name=\"p95\">{}</td><td class=\"num\" data-name=\"p99\">{}</td></tr>",
        escape(&figure.bench),
        escape(&figure.case),
        escape(label),
        simulated(figure.simulated),
        escape(&figure.metric),
        figure.n,
        escape(&show(figure.mean)),
        escape(&or_none(figure.p50)),
        escape(&or_none(figure.p95)),
        escape(&or_none(figure.p99)),
    );
}

fn short(commit: &str) -> String {
    let (hash, dirty) = commit.split_once('-').map_or((commit, ""), |(hash, _)| (hash, "-dirty"));
    let hash: String = hash.chars().take(10).collect();
    hash + dirty
}

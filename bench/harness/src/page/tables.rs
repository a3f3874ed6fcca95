//! The tables: headline rows with the seed's figures, every comparison, every figure.

use std::fmt::Write;

use super::{
    filters::verdict_of,
    html::{chip, class_of, data, escape, scroll, simulated},
    published::protection,
    took,
    view::RecordView,
    words::tally,
};
use crate::{
    fit::fits,
    format::{digits, metric, value},
    record::{ArmRecord, Record},
    rows::{
        row::{Figure, Row},
        text::{aa, cost, pairing, sides, verdict},
    },
    suite::SeedFigure,
};

/// What the filters know of a row.
pub(super) fn row_data(shown: &RecordView<'_>, row: &Row) -> String {
    let suite = shown.record.suite.name.as_str();
    let mut out = data(&[
        ("suite", suite),
        ("layer", shown.layer(&row.bench, &row.model).id()),
        ("arm", &row.arm),
        ("metric", &row.metric),
        ("verdict", verdict_of(row)),
    ]);
    if row.twin {
        out.push_str(" data-aa");
    }
    out
}

/// The table of the headline rows, with the seed's figures in a column of their own.
pub(super) fn headline(shown: &RecordView<'_>, index: usize) -> String {
    let record = shown.record;
    let rows: Vec<&Row> = record.rows.iter().filter(|row| row.headline).collect();
    let heading = format!("<h2 id=\"rows-{index}\">Cost of each layer</h2>\n");
    if rows.is_empty() {
        return heading + "<p>No row has two blocks.</p>\n";
    }
    let seeds = rows.iter().any(|row| !row.twin && !seed_text(record, row).is_empty());
    let mut out = format!(
        "<section class=\"group\">\n{heading}<p class=\"soft\">{} Each block runs every arm once, in \
         random order; a cost is the mean over <i>n</i> blocks with its 95 % interval. \
         A verdict is about a margin that was set before the run.</p>\n\
         {}<table class=\"cards sorts\"><thead><tr><th scope=\"col\">layer</th>\
         <th scope=\"col\" class=\"num\">clear</th><th scope=\"col\" class=\"num\">protected</th>\
         <th scope=\"col\">cost [95 %]</th><th scope=\"col\" class=\"num\">n</th>\
         <th scope=\"col\">verdict</th>",
        escape(&tally(rows.iter().copied())),
        scroll("Cost of each layer"),
    );
    if seeds {
        let ours = if rows.iter().any(|row| row.simulated) { "; ours simulated" } else { "" };
        let _ = write!(
            out,
            "<th scope=\"col\" class=\"seed\">the seed's figures: <i>their hardware and \
             network{ours}</i></th>"
        );
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows.iter().filter(|row| !row.twin) {
        line(&mut out, shown, row, seeds);
    }
    let columns = if seeds { 7 } else { 6 };
    let _ = writeln!(
        out,
        "</tbody>\n<tbody class=\"aa group\"><tr class=\"divider\"><th colspan=\"{columns}\">A/A: the \
         reference arm against itself. A sound instrument finds nothing here.</th></tr>"
    );
    for row in rows.iter().filter(|row| row.twin) {
        line(&mut out, shown, row, seeds);
    }
    let sources = if seeds { sources(record) } else { String::new() };
    out + "</tbody></table></div>\n" + &sources + "</section>\n"
}

/// Where the seed's figures come from, lettered as in the column.
fn sources(record: &Record) -> String {
    let items: String =
        known_sources(record).iter().map(|text| format!("<li>{}</li>", escape(text))).collect();
    if items.is_empty() { String::new() } else { format!("<ol class=\"sources\">{items}</ol>\n") }
}

fn known_sources(record: &Record) -> Vec<&str> {
    let mut known: Vec<&str> = Vec::new();
    // A source of rows that this run does not have would stand for nothing.
    let is_shown = |figure: &&SeedFigure| {
        let mut rows = record.rows.iter().filter(|row| row.headline && !row.twin);
        rows.any(|row| is_of(figure, row))
    };
    for figure in record.seed_figures.iter().filter(is_shown) {
        if !known.contains(&figure.source.as_str()) {
            known.push(&figure.source);
        }
    }
    known
}

/// Rows of every metric, not only the headline's.
pub(super) fn every_comparison(shown: &RecordView<'_>, index: usize) -> String {
    let mut out = format!(
        "<section class=\"group\">\n<h2 id=\"all-{index}\">Every comparison</h2>\n<details>\
         <summary>All metrics, all arms, A/A rows among them: {} rows</summary>{}\
         <table class=\"cards sorts\"><thead><tr><th scope=\"col\">bench</th>\
         <th scope=\"col\">metric</th><th scope=\"col\">arm</th>\
         <th scope=\"col\" class=\"num\">reference</th><th scope=\"col\" class=\"num\">arm's</th>\
         <th scope=\"col\">cost [95 %]</th><th scope=\"col\" class=\"num\">correlation of pairs</th>\
         <th scope=\"col\" class=\"num\">n</th><th scope=\"col\">verdict</th></tr></thead><tbody>\n",
        shown.record.rows.len(),
        scroll("Every comparison"),
    );
    for row in &shown.record.rows {
        comparison(&mut out, shown, row);
    }
    out + "</tbody></table></div></details>\n</section>\n"
}

fn comparison(out: &mut String, shown: &RecordView<'_>, row: &Row) {
    let arm = if row.twin { format!("{} (A/A)", row.arm_label) } else { row.arm_label.clone() };
    let judged = if row.twin { aa(row) } else { verdict(row) };
    let correlation = row.correlation.map_or_else(String::new, |r| format!("{r:.2}"));
    let sort = row.correlation.unwrap_or(-2.0);
    let gained = pairing(row).unwrap_or_default();
    let [clear, protected] = sides(row);
    let _ = writeln!(
        out,
        "<tr class=\"item counted\"{}><td class=\"layer\">{} <small>{} · {}, {} loop</small></td>\
         <td data-name=\"metric\">{}</td><td data-name=\"arm\">{}</td>\
         <td class=\"num\" data-name=\"reference\" data-v=\"{}\">{}</td>\
         <td class=\"num\" data-name=\"arm's\" data-v=\"{}\">{}</td>\
         <td data-name=\"cost\" data-v=\"{}\">{}</td>\
         <td class=\"num\" data-name=\"pairs\" data-v=\"{sort}\"><div>{correlation}\
         <small class=\"soft\">{}</small></div></td>\
         <td class=\"num\" data-name=\"n\" data-v=\"{n}\">{n}</td>\
         <td data-name=\"verdict\">{}</td></tr>",
        row_data(shown, row),
        escape(&row.bench),
        escape(&row.case),
        escape(&row.model),
        escape(&row.load),
        escape(&metric(&row.metric, row.stat, row.better)),
        escape(&arm),
        row.clear,
        escape(&clear),
        row.protected,
        escape(&protected),
        size(row),
        escape(&cost(row)),
        escape(&gained),
        chip(class_of(row), &judged),
        n = row.blocks,
    );
}

/// What a cost is sorted by.
fn size(row: &Row) -> f64 {
    row.ratio.map_or(row.difference.value, |ends| ends.value)
}

/// How cost grows with work, where the suite asks for it.
pub(super) fn growth_section(shown: &RecordView<'_>) -> String {
    let fits = fits(shown.record);
    if fits.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "<h2>How cost grows with work</h2>\n<p class=\"soft\">A fixed part and a part for each \
         unit, by least squares of the relative errors over the sizes of this run.</p>\n\
         {}<table class=\"cards\"><thead><tr><th scope=\"col\">of what</th>\
         <th scope=\"col\">fixed, and for each unit</th></tr></thead><tbody>\n",
        scroll("How cost grows with work"),
    );
    for fitted in &fits {
        let _ = writeln!(
            out,
            "<tr><td class=\"layer\">{}{}</td><td data-name=\"cost\">{}</td></tr>",
            escape(&fitted.name),
            simulated(fitted.simulated),
            escape(&fitted.text),
        );
    }
    out + "</tbody></table></div>\n"
}

/// Pooled means and percentiles of every metric of every arm.
pub(super) fn every_figure(shown: &RecordView<'_>) -> String {
    let record = shown.record;
    let mut out = format!(
        "<details><summary>All figures: pooled means and percentiles</summary>\
         <p class=\"soft\">A percentile stands only where its tail holds ten samples: p50 from 20, \
         p95 from 200, p99 from 1,000.</p>{}<table class=\"cards sorts\"><thead><tr>\
         <th scope=\"col\">bench</th><th scope=\"col\">arm</th><th scope=\"col\">metric</th>\
         <th scope=\"col\" class=\"num\">n</th><th scope=\"col\" class=\"num\">mean</th>\
         <th scope=\"col\" class=\"num\">p50</th><th scope=\"col\" class=\"num\">p95</th>\
         <th scope=\"col\" class=\"num\">p99</th></tr></thead><tbody>\n",
        scroll("All figures"),
    );
    for figure in &record.figures {
        figure_line(&mut out, record, figure);
    }
    out + "</tbody></table></div></details>\n"
}

fn line(out: &mut String, shown: &RecordView<'_>, row: &Row, seeds: bool) {
    let record = shown.record;
    let judged = if row.twin { aa(row) } else { verdict(row) };
    let cost = cost(row);
    let [clear, protected] = sides(row);
    let (number, interval) =
        cost.split_once(" [").map_or((cost.as_str(), String::new()), |(n, i)| (n, format!("[{i}")));
    let _ = write!(
        out,
        "<tr class=\"item\"{}><td class=\"layer\">{}{}<small class=\"guards\">{}</small>\
         <small class=\"soft\">{}</small></td>\
         <td class=\"num\" data-name=\"clear\" data-v=\"{}\">{}</td>\
         <td class=\"num\" data-name=\"protected\" data-v=\"{}\">{}</td>\
         <td class=\"cost\" data-name=\"cost\" data-v=\"{}\"><div><b>{}</b><span>{}</span></div></td>\
         <td class=\"num\" data-name=\"blocks\" data-v=\"{n}\">{n}</td>\
         <td data-name=\"verdict\"><div>{}</div></td>",
        row_data(shown, row),
        escape(&row.label),
        simulated(row.simulated),
        escape(&protects(record, row)),
        under(shown, row),
        row.clear,
        escape(&clear),
        row.protected,
        escape(&protected),
        size(row),
        escape(number),
        escape(&interval),
        chip(class_of(row), judged.trim_end_matches(", simulated")),
        n = row.blocks,
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

/// Which arms, their round trips, the ratio to a floor, what a run took, what speaks against it.
fn under(shown: &RecordView<'_>, row: &Row) -> String {
    let reference = shown.record.arms.iter().find(|arm| arm.name == row.reference);
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
        && row.has_interval()
        && row.show == crate::suite::bench::Show::Difference
        && let Some(ratio) = &row.ratio
    {
        parts.push(format!("x{:.2} [{:.2}, {:.2}]", ratio.value, ratio.low, ratio.high));
    }
    parts.push(format!("{}, {} loop", row.model, row.load));
    let mut out = escape(&parts.join(" · "));
    let said = row.notes.iter().map(|note| note.long());
    for line in took::of_row(row).into_iter().chain(said) {
        let _ = write!(out, "<br>{}", escape(&line));
    }
    out
}

fn seed_text(record: &Record, row: &Row) -> String {
    let matches = |figure: &&SeedFigure| is_of(figure, row);
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

fn is_of(figure: &SeedFigure, row: &Row) -> bool {
    figure.bench == row.bench
        && figure.metric == row.metric
        && figure.params.iter().all(|(name, value)| {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            row.case.split(' ').any(|part| part == format!("{name}={shown}"))
        })
}

fn figure_line(out: &mut String, record: &Record, figure: &Figure) {
    let show = |number: f64| value(&figure.metric, number);
    let or_none = |number: Option<f64>| number.map_or_else(|| "–".into(), show);
    let arm = record.arms.iter().find(|arm| arm.name == figure.arm);
    let label = arm.map_or(figure.arm.as_str(), |arm| arm.label.as_str());
    let twin = if figure.twin { " (A/A)" } else { "" };
    let known = [("suite", &record.suite.name), ("arm", &figure.arm), ("metric", &figure.metric)];
    let mut keys = data(&known.map(|(name, text)| (name, text.as_str())));
    if figure.twin {
        keys.push_str(" data-aa");
    }
    let _ = writeln!(
        out,
        "<tr class=\"item\"{keys}><td class=\"layer\">{} <small>{}</small></td><td data-name=\"arm\"><div>{}{twin}{}\
         </div></td><td data-name=\"metric\">{}</td><td class=\"num\" data-name=\"n\" data-v=\"{n}\">{n}</td>\
         <td class=\"num\" data-name=\"mean\" data-v=\"{}\">{}</td><td class=\"num\" data-name=\"p50\">{}</td>\
         <td class=\"num\" data-name=\"p95\">{}</td><td class=\"num\" data-name=\"p99\">{}</td></tr>",
        escape(&figure.bench),
        escape(&figure.case),
        escape(label),
        simulated(figure.simulated),
        escape(&figure.metric),
        figure.mean,
        escape(&show(figure.mean)),
        escape(&or_none(figure.p50)),
        escape(&or_none(figure.p95)),
        escape(&or_none(figure.p99)),
        n = figure.n,
    );
}

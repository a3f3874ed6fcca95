//! Published tables with our rows beside theirs, and the quoted rates of other systems.

use std::fmt::Write;

use super::html::{chip, escape, scroll, simulated, words};
use crate::{
    format::value,
    published::{AnswerRow, AnswerTable, Ours, Quoted},
    record::{ArmRecord, Record},
    rows::row::Figure,
};

/// Every published table, theirs and ours.
pub(super) fn answers(record: &Record) -> String {
    if record.answers.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<h2>The published tables, and ours</h2>\n<p class=\"soft\">Each table as it was \
         published, with the figure of this run that answers each row and what either protects. \
         Hardware and models differ: no ratio is made of theirs and ours. Ours are means over all \
         samples of this run.</p>\n",
    );
    for table in &record.answers {
        answer(&mut out, record, table);
    }
    out
}

/// Rates of other systems: quoted, with ours between them.
pub(super) fn quoted(record: &Record) -> String {
    if record.quoted.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "<h2>Other systems, quoted</h2>\n<p class=\"soft\">Published by others on their hardware \
         with their models, not measured here. Rates of different classes of protection are not \
         comparable: a system that hides everything from everybody does more than one that hides \
         one thing from one party.</p>\n{}<table class=\"cards\"><thead><tr>\
         <th scope=\"col\">system</th><th scope=\"col\">what is encrypted</th>\
         <th scope=\"col\">who is protected from whom</th>\
         <th scope=\"col\" class=\"num\">rate</th>\
         <th scope=\"col\">the seed's table says</th><th scope=\"col\">source</th></tr></thead>\
         <tbody>\n",
        scroll("Other systems, quoted"),
    );
    for row in &record.quoted {
        quoted_line(&mut out, record, row);
    }
    out + "</tbody></table></div>\n"
}

/// Who is protected from whom in an arm: what it computed of itself, else what the suite says.
pub(super) fn protection(arm: &ArmRecord) -> &str {
    arm.guarantee.as_deref().unwrap_or(&arm.protects)
}

fn answer(out: &mut String, record: &Record, table: &AnswerTable) {
    let note = table.note.as_ref().map_or_else(String::new, |note| words(note));
    let _ = writeln!(
        out,
        "<h3>{}</h3>\n<p class=\"soft\">{}. Theirs protects: <b>{}</b>. {note}</p>\n\
         {}<table class=\"cards answers\"><thead><tr><th scope=\"col\" class=\"row\">row</th>\
         <th scope=\"col\" class=\"num theirs\">theirs</th>\
         <th scope=\"col\" class=\"num\">ours</th><th scope=\"col\">what ours is</th>\
         <th scope=\"col\">ours protects</th></tr></thead><tbody>",
        escape(&table.title),
        escape(&table.source),
        escape(&table.protects),
        scroll(&table.title),
    );
    let mut above = "";
    for row in &table.rows {
        above = answer_line(out, record, row, above);
    }
    out.push_str("</tbody></table></div>\n");
}

/// One row. What it protects is not said again where it stands in the row above.
fn answer_line<'a>(
    out: &mut String,
    record: &'a Record,
    row: &AnswerRow,
    above: &'a str,
) -> &'a str {
    let measured = row.ours.iter().find(|ours| record.figures.iter().any(|f| is(f, ours)));
    let first = measured.and_then(|ours| arm_of(record, ours));
    let protects = first.map_or("", protection);
    let again = if protects == above && !above.is_empty() { "as above" } else { protects };
    let mut values: Vec<String> = row.ours.iter().map(|ours| shown(record, ours)).collect();
    values.dedup();
    let mut arms: Vec<&str> = Vec::new();
    for arm in row.ours.iter().filter_map(|ours| arm_of(record, ours)) {
        if !arms.contains(&arm.label.as_str()) {
            arms.push(&arm.label);
        }
    }
    let what = match &row.absent {
        Some(reason) => chip("mute", reason),
        None => escape(&arms.join(" and ")),
    };
    let note = row
        .note
        .as_ref()
        .map_or_else(String::new, |note| format!("<small class=\"soft\">{}</small>", words(note)));
    let _ = writeln!(
        out,
        "<tr><td class=\"layer\">{}</td><td class=\"num theirs\" data-name=\"theirs\">{}</td>\
         <td class=\"num\" data-name=\"ours\"><b>{}</b>{}</td>\
         <td data-name=\"ours is\"><div>{what}{note}</div></td>\
         <td data-name=\"protects\">{}</td></tr>",
        escape(&row.what),
        escape(&row.theirs),
        escape(&values.join("; ")),
        simulated(first.is_some_and(|arm| arm.simulated)),
        escape(again),
    );
    if protects.is_empty() { above } else { protects }
}

fn quoted_line(out: &mut String, record: &Record, row: &Quoted) {
    let ours = row.ours.as_ref();
    let arm = ours.and_then(|ours| arm_of(record, ours));
    let rate = match (ours, &row.rate) {
        (Some(ours), _) => format!("<b>{}</b>", escape(&shown(record, ours))),
        (None, rate) => escape(rate.as_deref().unwrap_or_default()),
    };
    let (class, mark) = if ours.is_some() { ("good", "measured") } else { ("mute", "quoted") };
    let protects = row.protects.as_deref().or(arm.map(protection)).unwrap_or_default();
    let _ = writeln!(
        out,
        "<tr{}><td class=\"layer\">{} {}<small class=\"soft\">{}, {}</small></td>\
         <td data-name=\"encrypted\">{}</td><td data-name=\"protects\">{}</td>\
         <td class=\"num\" data-name=\"rate\">{rate}</td>\
         <td class=\"theirs\" data-name=\"the seed\">{}</td><td data-name=\"source\"><small>{}</small></td></tr>",
        if ours.is_some() { " class=\"ours\"" } else { "" },
        escape(&row.system),
        chip(class, mark),
        escape(&row.model),
        escape(&row.hardware),
        escape(&row.encrypted),
        escape(protects),
        escape(row.seed_says.as_deref().unwrap_or_default()),
        escape(&row.source),
    );
}

fn arm_of<'a>(record: &'a Record, ours: &Ours) -> Option<&'a ArmRecord> {
    record.arms.iter().find(|arm| arm.bench == ours.bench && arm.name == ours.arm && !arm.twin)
}

/// The figure, or why there is none.
fn shown(record: &Record, ours: &Ours) -> String {
    if let Some(figure) = record.figures.iter().find(|figure| is(figure, ours)) {
        return value(&ours.metric, figure.mean);
    }
    let failed = record.not_run.iter().any(|not| not.bench == ours.bench);
    match arm_of(record, ours) {
        None if !failed && record.partial.is_none() => "one in a full run only".into(),
        Some(arm) if !failed && arm.given_up.is_none() => "not measured".into(),
        _ => "not run".into(),
    }
}

fn is(figure: &Figure, ours: &Ours) -> bool {
    let point = |(name, value): (&String, &serde_json::Value)| {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        figure.case.split(' ').any(|part| part == format!("{name}={shown}"))
    };
    !figure.twin
        && (figure.bench == ours.bench)
        && (figure.arm == ours.arm)
        && (figure.metric == ours.metric)
        && ours.params.iter().all(point)
}

//! The first screen: what this is, and whether to believe it, before any figure.

use std::fmt::Write;

use super::{
    download::Attached,
    html::{data, escape, sign_of, utc},
    layers::left_out,
    view::RecordView,
};
use crate::{plan::Effort, record::Record, validity::Validity};

/// One line of judgement over a record.
pub(crate) struct Judgement {
    /// `good`, `warn` or `bad`.
    pub(crate) class: &'static str,
    pub(crate) strong: String,
    pub(crate) text: String,
}

/// Whether the record may be believed, and what is missing from it.
pub(crate) fn judgements(record: &Record) -> Vec<Judgement> {
    let mut out = vec![validity(record)];
    let mut say = |strong: String, text: &str| {
        out.push(Judgement { class: "warn", strong, text: text.to_owned() });
    };
    if let Some(reason) = &record.partial {
        say("Partial.".into(), reason);
    }
    for not in &record.not_run {
        say(format!("{} was not run.", not.bench), &not.reason);
    }
    let mut benches: Vec<&str> = record.arms.iter().map(|arm| arm.bench.as_str()).collect();
    benches.dedup();
    for bench in benches {
        if let Some(text) = left_out(record, bench) {
            say("Left out:".into(), &text);
        }
    }
    for cut in &record.cut {
        let text = format!("{} of {} blocks: {}", cut.blocks, cut.planned, cut.reason);
        say(format!("{} was cut.", cut.bench), &text);
    }
    if record.sessions.len() > 1 {
        let text = "processes, perhaps the boot, differ from one stretch to the next.";
        say(format!("Measured in {} stretches:", record.sessions.len()), text);
    }
    if !record.voids.is_empty() {
        say(
            "Void:".into(),
            &format!("{} runs count nowhere; they are listed below.", record.voids.len()),
        );
    }
    if record.rows.iter().any(|row| row.simulated) {
        say(
            "Simulated:".into(),
            "rows so marked rest on simulated evidence, devices or delays. They show the work of \
             protocols and checks, not the protection of a machine.",
        );
    }
    out
}

fn validity(record: &Record) -> Judgement {
    let (class, strong, text) = match &record.validity {
        Validity::Valid { judged, failed } if *failed > 0 => (
            "warn",
            format!("A/A passed, {} of {judged}.", judged - failed),
            "As many failed as chance allows among so many; the rows beside them are marked \
             invalid."
                .to_owned(),
        ),
        Validity::Valid { judged, .. } => (
            "good",
            format!("A/A passed, {judged} of {judged}."),
            "Each reference arm ran a second time as if it were another: no difference was found \
             where there is none."
                .to_owned(),
        ),
        Validity::NotJudged { reason } => (
            "warn",
            "A/A not judged: indicative only.".into(),
            format!("{reason}. Run it with more blocks before you quote it."),
        ),
        Validity::Invalid { reasons } => (
            "bad",
            "A/A failed: this run is invalid.".into(),
            format!(
                "The same arm against itself came out different ({}). The machine was not steady \
                 enough; do not quote these figures.",
                reasons.join("; ")
            ),
        ),
    };
    Judgement { class, strong, text }
}

/// Title, purpose and the facts that place the run; of many records how many may be believed.
pub(super) fn header(shown: &[RecordView<'_>], title: &str, attached: &[Attached]) -> String {
    let mut out = format!("<h1>{}</h1>\n", escape(title));
    match (shown, attached) {
        ([one], [attached]) => {
            let about = &one.record.suite.about;
            let _ = write!(
                out,
                "<p>{}</p>\n{}{}",
                escape(about),
                placed(one, attached),
                judgement_list(one)
            );
        }
        _ => out.push_str(&believed(shown)),
    }
    out
}

/// What the A/A rows say of many records, in one sentence that leads to them.
fn believed(shown: &[RecordView<'_>]) -> String {
    let count =
        |is: fn(&Validity) -> bool| shown.iter().filter(|one| is(&one.record.validity)).count();
    let said: Vec<String> = [
        (count(|v| matches!(v, Validity::Valid { .. })), "passed its own A/A check"),
        (count(|v| matches!(v, Validity::NotJudged { .. })), "indicative only (too few blocks)"),
        (count(|v| matches!(v, Validity::Invalid { .. })), "invalid"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    format!(
        "<p>Of {} records: {}. <a href=\"#records\">Which they are</a> stands below the answers.</p>\n",
        shown.len(),
        said.join("; "),
    )
}

/// Heading and judgement of one record among many.
pub(super) fn of_one(shown: &RecordView<'_>) -> String {
    let about = &shown.record.suite;
    format!(
        "<h2 class=\"record\">{} <small>{}</small></h2>\n<p>{}</p>\n{}",
        escape(&about.title),
        escape(&shown.name()),
        escape(&about.about),
        judgement_list(shown),
    )
}

/// The facts of a record, as text.
pub(crate) fn placement(record: &Record) -> Vec<String> {
    let effort = match record.effort {
        Effort::Quick => "quick",
        Effort::Full => "full",
    };
    let memory = record.machine.memory_bytes as f64 / f64::from(1 << 30);
    vec![
        utc(record.started_unix_s),
        format!("suite {} ({effort})", record.suite.name),
        format!(
            "{}, {} CPUs, {memory:.0} GiB",
            record.machine.cpu_model, record.machine.cpus_online
        ),
        format!("confide {} at {}", record.version, short(&record.commit)),
        format!("{:.0} s", record.wall_s),
    ]
}

fn placed(shown: &RecordView<'_>, attached: &Attached) -> String {
    let facts = placement(shown.record);
    let items: String = facts.iter().map(|fact| format!("<li>{}</li>", escape(fact))).collect();
    format!("<ul class=\"facts\">{items}<li class=\"screen data\">{}</li></ul>\n", attached.link())
}

fn judgement_list(shown: &RecordView<'_>) -> String {
    let mut out = String::new();
    for judgement in judgements(shown.record) {
        let _ = writeln!(
            out,
            "<div class=\"judgement {}\"><span class=\"mark\" aria-hidden=\"true\">{}</span>\
             <p><b>{}</b> {}</p></div>",
            judgement.class,
            mark(judgement.class),
            escape(&judgement.strong),
            escape(&judgement.text),
        );
    }
    out
}

fn mark(class: &str) -> &'static str {
    if class == "warn" { "!" } else { sign_of(class) }
}

/// The records of the page, each with what its A/A rows say and its download.
pub(super) fn records(shown: &[RecordView<'_>], attached: &[Attached]) -> String {
    let mut out = String::from(
        "<h2 id=\"records\">The records of this page</h2>\n\
         <table class=\"cards records\"><thead><tr>\
         <th scope=\"col\">suite</th><th scope=\"col\">machine</th>\
         <th scope=\"col\">may it be believed?</th><th scope=\"col\">data</th></tr></thead><tbody>\n",
    );
    for (index, (one, attached)) in shown.iter().zip(attached).enumerate() {
        let facts = placement(one.record);
        let said = judgements(one.record);
        let first: Vec<String> = said
            .iter()
            .take(1)
            .map(|judgement| super::html::chip(judgement.class, &judgement.strong))
            .collect();
        let mut rest: Vec<&str> =
            said.iter().skip(1).map(|j| j.strong.trim_end_matches([':', '.'])).collect();
        rest.dedup();
        let _ = writeln!(
            out,
            "<tr class=\"item\"{}><td class=\"layer\"><a href=\"#r{index}\">{}</a>\
             <small class=\"soft\">{}</small></td><td data-name=\"machine\"><div>{}\
             <small class=\"soft\">{}</small></div></td><td data-name=\"believed\"><div>{}\
             <small class=\"soft\">{}</small></div></td><td data-name=\"data\"><div>{}</div></td></tr>",
            data(&[("suite", &one.record.suite.name)]),
            escape(&one.record.suite.title),
            escape(&[facts[1].as_str(), &facts[0]].join(", ")),
            escape(&facts[2]),
            escape(&facts[3..].join(", ")),
            first.concat(),
            escape(&rest.join("; ")),
            attached.link(),
        );
    }
    out + "</tbody></table>\n"
}

fn short(commit: &str) -> String {
    let (hash, dirty) = commit.split_once('-').map_or((commit, ""), |(hash, _)| (hash, "-dirty"));
    let hash: String = hash.chars().take(10).collect();
    hash + dirty
}

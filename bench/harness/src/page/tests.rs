//! The report of hostile records.

use std::path::Path;

use serde_json::Value;

use super::{render_html, render_markdown, render_terminal, view::RecordView};
use crate::{document::text::Terminal, loaded::LoadedRecord, record::Record};

/// Text that would act in HTML, in an attribute, in Markdown or on a terminal.
const HOSTILE: &str = "\"'><img src=x onerror=alert(1)></script>\u{1b}[2J\u{202e}|`x`\n# [a](b:c)";

/// The fields that hold one of a few known words; a record with any other word is not read.
const TYPED: &[&str] =
    &["effort", "outcome", "verdict", "aa", "stat", "better", "show", "ended", "note"];

fn known_record() -> LoadedRecord {
    read_record("2026-11-27-verify")
}

fn read_record(name: &str) -> LoadedRecord {
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../records");
    LoadedRecord::read(&records.join(name)).unwrap()
}

/// Appends the hostile text to every text of the record.
fn poison(value: &mut Value, key: &str) {
    match value {
        Value::String(text) if !TYPED.contains(&key) => text.push_str(HOSTILE),
        Value::Array(items) => items.iter_mut().for_each(|item| poison(item, key)),
        Value::Object(fields) => {
            let others = fields.iter_mut().filter(|(key, _)| *key != "machine");
            others.for_each(|(key, item)| poison(item, key));
        }
        _ => {}
    }
}

fn hostile_record() -> (Record, LoadedRecord) {
    let loaded = known_record();
    let mut value = serde_json::to_value(&loaded.record).unwrap();
    // The suite's text stays TOML, with hostile labels in it.
    let suite = loaded.record.suite.text.replace("label = \"", "label = \"<img src=y>");
    poison(&mut value, "");
    for name in ["cpu_model", "kernel", "kernel_command_line", "governor", "clock_source"] {
        value["machine"][name] = HOSTILE.into();
    }
    value["suite"]["text"] = suite.into();
    (serde_json::from_value(value).unwrap(), loaded)
}

#[test]
fn what_a_record_says_never_becomes_markup() {
    let (record, loaded) = hostile_record();
    let path = std::path::PathBuf::from("record.json");
    let shown = [RecordView::new(&record, &loaded.samples, &loaded.slices, path)];
    assert!(shown[0].suite.is_some(), "the charts are drawn too");
    let page = render_html(&shown, &[], Path::new("report.html"));
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;"));
    assert!(!page.contains("<img"), "an element of the record's");
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("</script").count(), 1);
    assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'));
}

#[test]
fn what_a_record_says_never_becomes_markdown_or_a_command_to_a_terminal() {
    let (record, loaded) = hostile_record();
    let path = std::path::PathBuf::from("record.json");
    let shown = [RecordView::new(&record, &loaded.samples, &loaded.slices, path)];
    let text = render_markdown(&shown, &[]);
    // Within a fence nothing acts; the fence itself is tested where it is made.
    let outside: String = text.split("``").step_by(2).collect();
    assert!(!outside.contains("<img") && !outside.contains(" [a](b:c)"), "{outside}");
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    for width in [40, 80, 160] {
        let text = render_terminal(&shown, &[], Terminal { width, colour: false });
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    }
}

#[test]
fn a_terminal_of_80_columns_gets_no_longer_line_where_words_allow() {
    let loaded = known_record();
    let shown =
        [RecordView::new(&loaded.record, &loaded.samples, &loaded.slices, loaded.path.clone())];
    let text = render_terminal(&shown, &[], Terminal { width: 80, colour: false });
    let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn the_same_records_give_the_same_page() {
    let loaded = known_record();
    let page = || {
        let shown =
            [RecordView::new(&loaded.record, &loaded.samples, &loaded.slices, loaded.path.clone())];
        render_html(&shown, &[], Path::new("report.html"))
    };
    assert_eq!(page(), page());
}

#[test]
fn every_image_has_a_name_and_every_id_is_used_once() {
    let loaded = known_record();
    let shown =
        [RecordView::new(&loaded.record, &loaded.samples, &loaded.slices, loaded.path.clone())];
    let page = render_html(&shown, &[], Path::new("report.html"));
    let images = page.split("<svg").skip(1);
    for image in images {
        let tag = &image[..image.find('>').unwrap()];
        let named = tag.contains("aria-labelledby") || tag.contains("aria-hidden");
        assert!(named, "{tag}");
    }
    let mut ids: Vec<&str> =
        page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

/// Writes the page of one record.
fn page_of(loaded: &LoadedRecord) -> String {
    let shown =
        [RecordView::new(&loaded.record, &loaded.samples, &loaded.slices, loaded.path.clone())];
    render_html(&shown, &[], Path::new("report.html"))
}

#[test]
fn a_row_is_label_cost_verdict_and_two_figures_and_folds_the_rest() {
    let page = page_of(&read_record("2026-11-27-memory"));
    let start = page.find("id=\"rows-0\"").unwrap();
    let table = &page[start..start + page[start..].find("</section>").unwrap()];
    let (heads, rows) = table.split_once("</thead>").unwrap();
    let names: Vec<&str> = heads.split("<th scope=\"col\"").skip(1).collect();
    let places = ["what is measured", "cost [95 %]", "verdict", "reference", "this arm", ">n<"];
    assert_eq!(names.len(), places.len());
    for (name, wanted) in names.iter().zip(places) {
        assert!(name.contains(wanted), "{wanted} in {name}");
    }
    for row in rows.split("<tr class=\"item\"").skip(1) {
        let cells: Vec<&str> = row.split("<td").skip(1).collect();
        assert!(cells[0].contains("<details class=\"more\"><summary>"), "{row}");
        for wanted in ["compared", "CPU time of a run", "disturbed runs", "definition"] {
            assert!(cells[0].contains(&format!("<dt>{wanted}</dt>")), "{wanted}: {row}");
        }
        assert!(!cells[1..].concat().contains("<small"), "{row}");
    }
    assert!(!table.contains("<details class=\"more\" open"), "rows are closed");
    assert!(
        table.contains("<details class=\"more group\"><summary>A/A check"),
        "A/A rows are folded"
    );
}

#[test]
fn microseconds_have_their_sign_wherever_people_read() {
    let loaded = read_record("2026-11-27-adapters");
    let shown =
        [RecordView::new(&loaded.record, &loaded.samples, &loaded.slices, loaded.path.clone())];
    let has_us = |text: &str| {
        let after_number =
            |(at, _): (usize, &str)| text[..at].ends_with(|c: char| c.is_ascii_digit());
        text.match_indices(" us").any(after_number)
    };
    let terminal = render_terminal(&shown, &[], Terminal { width: 120, colour: false });
    for text in [page_of(&loaded), render_markdown(&shown, &[]), terminal] {
        assert!(text.contains(" µs") && !has_us(&text));
    }
}

#[test]
fn titles_and_filters_use_words_and_keep_the_id_in_small_print() {
    let page = page_of(&known_record());
    let captions: Vec<&str> = page.split("<figcaption").skip(1).collect();
    assert!(!captions.is_empty());
    for caption in captions {
        let caption =
            &caption[caption.find('>').unwrap() + 1..caption.find("</figcaption>").unwrap()];
        let words = caption.split(" <small><code>").next().unwrap();
        assert!(!words.contains('_'), "{caption}");
    }
    assert!(page.contains("<option value=\"rate_per_s\">rate (rate_per_s)</option>"));
    assert!(page.contains("<small><code>rate_per_s</code></small>"));
}

#[test]
fn a_chart_of_ratios_says_which_way_is_dearer() {
    let page = page_of(&known_record());
    assert!(page.contains("dearer →") || page.contains("← cheaper"));
}

#[test]
fn a_sentence_without_an_interval_still_says_that_its_evidence_is_simulated() {
    let page = page_of(&read_record("2026-11-27-batch"));
    let from = page.find("too few blocks for a verdict: ").expect("a sentence of eight blocks");
    let sentence = &page[from..from + page[from..].find('<').unwrap()];
    assert!(sentence.contains(", simulated"), "{sentence}");
}

#[test]
fn a_duration_that_no_sample_has_is_absent_and_never_zero() {
    let page = page_of(&read_record("2026-11-27-main"));
    assert!(page.contains(">absent<"));
    assert!(!page.contains("0.00 µs") && !page.contains("0.00 ms"));
}

#[test]
fn a_remark_that_every_row_has_is_said_once() {
    let loaded = read_record("2026-11-27-storage");
    let row = loaded.record.rows.iter().find(|row| row.headline && !row.twin).unwrap();
    let mark = row.marks[0].clone();
    let shown =
        [RecordView::new(&loaded.record, &loaded.samples, &loaded.slices, loaded.path.clone())];
    let text = render_terminal(&shown, &[], Terminal { width: 160, colour: false });
    let table = text.split("Remarks on every row:").nth(1).expect("said once");
    assert!(table.trim_start().starts_with(&mark), "{mark}: {text}");
    let (_, rows) = table.split_once("what is measured").unwrap();
    assert!(!rows.contains(&mark), "{rows}");
}

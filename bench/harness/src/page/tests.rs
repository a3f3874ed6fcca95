//! The report of hostile records.

use serde_json::Value;

use super::{view::RecordView, write_html, write_markdown, write_terminal};
use crate::{document::text::Terminal, loaded::LoadedRecord, record::Record};

/// Text that would act in HTML, in an attribute, in Markdown or on a terminal.
const HOSTILE: &str = "\"'><img src=x onerror=alert(1)></script>\u{1b}[2J\u{202e}|`x`\n# [a](b:c)";

/// The fields that hold one of a few known words; a record with any other word is not read.
const TYPED: &[&str] =
    &["effort", "outcome", "verdict", "aa", "stat", "better", "show", "ended", "note"];

fn known_record() -> LoadedRecord {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../records/2026-11-22-verify-known");
    LoadedRecord::read(&path).unwrap()
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
    let page = write_html(&shown, &[]);
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
    let text = write_markdown(&shown, &[]);
    // Within a fence nothing acts; the fence itself is tested where it is made.
    let outside: String = text.split("``").step_by(2).collect();
    assert!(!outside.contains("<img") && !outside.contains(" [a](b:c)"), "{outside}");
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    for width in [40, 80, 160] {
        let text = write_terminal(&shown, &[], Terminal { width, colour: false });
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    }
}

#[test]
fn a_terminal_of_80_columns_gets_no_longer_line_where_words_allow() {
    let loaded = known_record();
    let shown =
        [RecordView::new(&loaded.record, &loaded.samples, &loaded.slices, loaded.path.clone())];
    let text = write_terminal(&shown, &[], Terminal { width: 80, colour: false });
    let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn the_same_records_give_the_same_page() {
    let loaded = known_record();
    let page = || {
        let shown =
            [RecordView::new(&loaded.record, &loaded.samples, &loaded.slices, loaded.path.clone())];
        write_html(&shown, &[])
    };
    assert_eq!(page(), page());
}

#[test]
fn every_image_has_a_name_and_every_id_is_used_once() {
    let loaded = known_record();
    let shown =
        [RecordView::new(&loaded.record, &loaded.samples, &loaded.slices, loaded.path.clone())];
    let page = write_html(&shown, &[]);
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

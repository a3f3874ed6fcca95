//! Exports read back, and every record against the published schema.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use confide_bench::{LoadedRecord, record_schema};
use confide_store::{ExportFormat, TableName, export};
use confide_tests::Folder;
use parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::Field,
};
use serde_json::Value;

#[test]
fn every_kept_record_as_this_version_writes_it_is_what_the_schema_says() {
    let schema = jsonschema::validator_for(&record_schema()).unwrap();
    for loaded in read_kept_records() {
        let document: Value = serde_json::from_str(&loaded.to_json_document().unwrap()).unwrap();
        let wrong: Vec<String> = schema
            .iter_errors(&document)
            .take(3)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(wrong.is_empty(), "{}: {wrong:#?}", loaded.path().display());
    }
}

#[test]
fn the_schema_refuses_what_is_no_record() {
    let schema = jsonschema::validator_for(&record_schema()).unwrap();
    let whole: Value = serde_json::from_str(&batch().to_json_document().unwrap()).unwrap();
    assert!(schema.is_valid(&whole));
    let mut changes = Vec::new();
    for key in ["suite", "plan", "sessions", "slices", "machine", "seed"] {
        let mut less = whole.clone();
        less.as_object_mut().unwrap().remove(key);
        changes.push(less);
    }
    let mut wrong = |pointer: &str, value: Value| {
        let mut changed = whole.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changes.push(changed);
    };
    wrong("/schema", 1.into());
    wrong("/rows/0/clear", "fast".into());
    wrong("/slices/0/columns/metrics", serde_json::json!({ "all_bound_ms": ["x"] }));
    wrong("/effort", "some".into());
    let mut more = whole.clone();
    more["colour"] = "green".into();
    changes.push(more);
    for (index, changed) in changes.iter().enumerate() {
        assert!(!schema.is_valid(changed), "change {index}");
    }
}

#[test]
fn a_record_of_layout_1_reads_back_the_same_once_it_is_one_document() {
    for loaded in read_kept_records() {
        let scratch = Folder::new(&format!("converted-{}", name(&loaded)));
        let folder = scratch.path();
        std::fs::write(
            folder.join("record.json"),
            text(&loaded, ExportFormat::Json, TableName::Rows),
        )
        .unwrap();
        let again = LoadedRecord::read(folder).unwrap();
        assert_eq!(again.to_json_document().unwrap(), loaded.to_json_document().unwrap());
        assert_eq!(again.facts().rows, loaded.facts().rows);
        assert_eq!(again.metric_values(), loaded.metric_values());
    }
}

#[test]
fn csv_has_a_line_for_each_row_and_each_number() {
    let loaded = batch();
    let rows = text(&loaded, ExportFormat::Csv, TableName::Rows);
    assert_eq!(rows.lines().count(), loaded.facts().rows.len() + 1);
    assert!(rows.starts_with("record_sha256,suite,plan_sha256,machine,"));
    let samples = text(&loaded, ExportFormat::Csv, TableName::Samples);
    assert_eq!(samples.lines().count(), loaded.metric_values().len() + 1);
}

#[test]
fn parquet_reads_back_as_it_was_written() {
    let loaded = batch();
    for (table, lines) in [
        (TableName::Rows, loaded.facts().rows.len()),
        (TableName::Samples, loaded.metric_values().len()),
    ] {
        let mut bytes = Vec::new();
        export(&loaded, ExportFormat::Parquet, table, &mut bytes).unwrap();
        let scratch = Folder::new("parquet");
        let path = scratch.join("table.parquet");
        std::fs::write(&path, bytes).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), lines as i64);
        // The same cells as the CSV, in the same columns.
        let csv = text(&loaded, ExportFormat::Csv, table);
        let head: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
        for (line, row) in reader.get_row_iter(None).unwrap().enumerate() {
            let row = row.unwrap();
            let columns: Vec<_> = row.get_column_iter().collect();
            assert_eq!(columns.len(), head.len());
            if line == 0 {
                let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
                assert_eq!(names, head);
            }
            if let (Some(number), TableName::Samples) = (loaded.metric_values().get(line), table) {
                let value = columns.iter().find(|(name, _)| *name == "value").unwrap().1;
                assert_eq!(*value, Field::Double(number.value));
                let sample = columns.iter().find(|(name, _)| *name == "sample").unwrap().1;
                let wanted = number.sample.map_or(Field::Null, |s| Field::Long(s.into()));
                assert_eq!(*sample, wanted);
            }
        }
    }
}

#[test]
fn pyarrow_reads_the_parquet() {
    let python = std::env::var("CONFIDE_PYARROW").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python).args(["-c", "import pyarrow.parquet"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        println!("skipped: no pyarrow (CONFIDE_PYARROW names a Python that has it)");
        return;
    }
    let loaded = batch();
    let scratch = Folder::new("pyarrow");
    let path = scratch.join("samples.parquet");
    let file = std::fs::File::create(&path).unwrap();
    export(&loaded, ExportFormat::Parquet, TableName::Samples, file).unwrap();
    let script = "import sys, pyarrow.parquet as p; t = p.read_table(sys.argv[1]); \
                  print(t.num_rows, sum(x for x in t['value'].to_pylist()))";
    let output = Command::new(&python).args(["-c", script]).arg(&path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (lines, sum) = text.trim().split_once(' ').unwrap();
    let numbers = loaded.metric_values();
    assert_eq!(lines, numbers.len().to_string());
    let wanted: f64 = numbers.iter().map(|number| number.value).sum();
    assert!((sum.parse::<f64>().unwrap() - wanted).abs() < 1e-6 * wanted.abs());
}

#[test]
fn bencher_has_bounds_only_where_there_is_an_interval() {
    let loaded = batch();
    let json: Value =
        serde_json::from_str(&text(&loaded, ExportFormat::Bencher, TableName::Rows)).unwrap();
    let facts = loaded.facts();
    let mut bounded = 0;
    for (name, benchmark) in json.as_object().unwrap() {
        assert!(name.starts_with("batch/"), "{name}");
        for (measure, value) in benchmark.as_object().unwrap() {
            assert!(value["value"].is_f64(), "{measure}");
            let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
            bounded += usize::from(keys == ["lower_value", "upper_value", "value"]);
            assert!(keys.len() == 1 || keys.len() == 3, "{keys:?}");
        }
    }
    let intervals = facts.rows.iter().filter(|row| {
        let cost = if row.as_difference { row.difference } else { row.ratio };
        cost.is_some_and(|cost| cost.interval.is_some())
    });
    assert_eq!(bounded, intervals.count());
}

fn read_kept_records() -> Vec<LoadedRecord> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../records");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let folders = paths.iter().filter(|path| path.is_dir());
    folders.map(|path| LoadedRecord::read(path).unwrap()).collect()
}

fn batch() -> LoadedRecord {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../records/2026-11-27-batch");
    LoadedRecord::read(&folder).unwrap()
}

fn text(loaded: &LoadedRecord, format: ExportFormat, table: TableName) -> String {
    let mut bytes = Vec::new();
    export(loaded, format, table, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn name(loaded: &LoadedRecord) -> String {
    let folder = loaded.path().parent().unwrap();
    folder.file_name().unwrap().to_string_lossy().into_owned()
}

//! `confide adapter inspect`, as its user sees it.

use std::{collections::BTreeMap, fs, process::Command};

use confide_lora::{Adapter, LoraPair, Matrix, Projection, ProjectionSite};
use confide_tests::Folder;
use serde_json::Value;

#[test]
fn an_adapter_is_told_in_words_and_in_json() {
    let scratch = Folder::new("inspect");
    let dir = scratch.path();
    adapter().save(dir).expect("is written");
    let (status, words, _) = inspect(&[dir.to_str().expect("is text")]);
    assert_eq!(status, Some(0));
    for part in ["q_proj      0-1", "attention  ", "tiny", "masked        A ", "guarantee: none"] {
        assert!(words.contains(part), "{part} is not in\n{words}");
    }
    let (_, json, _) = inspect(&[dir.to_str().expect("is text"), "--json"]);
    let told: Value = serde_json::from_str(&json).expect("is JSON");
    assert_eq!(told["parameters"], 2 * 2 * (24 + 24));
    assert_eq!(told["inputs"][0]["answers_that_determine"], 24);
    assert_eq!(told["inputs"][0]["answers_packed"], 12);
    assert_eq!(told["inputs"][0]["default_budget"], 23);
    let learned = "adapter host is blind; adapter can be learned";
    assert_eq!(told["guarantee_without_attestation"], learned);
    assert!(words.contains(&format!("guarantee: {learned}")), "{words}");
    let masked = &told["fits"][0];
    assert_eq!((&masked["scheme"], &masked["fits"]), (&"masked".into(), &true.into()));
}

#[test]
fn a_pickle_is_refused_with_what_to_do() {
    let scratch = Folder::new("inspect-pickle");
    let dir = scratch.path();
    adapter().save(dir).expect("is written");
    let (weights, pickle) = ("adapter_model.safetensors", "adapter_model.bin");
    fs::rename(dir.join(weights), dir.join(pickle)).expect("is renamed");
    let (status, _, stderr) = inspect(&[dir.to_str().expect("is text")]);
    assert_eq!(status, Some(2));
    assert!(stderr.contains(pickle) && stderr.contains("hint: "), "{stderr}");
}

fn inspect(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_confide"))
        .args(["adapter", "inspect"])
        .args(arguments)
        .output()
        .expect("runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn adapter() -> Adapter {
    let matrix = |rows, columns| Matrix { rows, columns, values: vec![0.5; rows * columns] };
    let site = |layer| ProjectionSite { layer, projection: Projection::Query };
    let pair = |layer| (site(layer), LoraPair { a: matrix(2, 24), b: matrix(24, 2), scale: 2.0 });
    let modules: BTreeMap<ProjectionSite, LoraPair> = (0..2).map(pair).collect();
    Adapter { name: "travel".into(), base_model: Some("tiny".into()), modules }
}

//! Sizes and words of the house (CONTRIBUTING.md, "Sizes").

use std::fs;

use confide_tests::{files_under, shown};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_CHARACTERS_MAX: usize = 120;

/// Files that may be longer, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Functions that may be longer, `file:function`, each with its reason.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// Names of files and folders that say nothing.
const EMPTY_NAMES: &[&str] = &["common", "core", "helper", "helpers", "manager", "misc", "utils"];

/// Words that must not reach a commit: unfinished work, and places of one machine.
const BANNED: &[&str] = &["FIX\u{4d}E", "TOD\u{4f}", "XX\u{58}", "/ro\u{6f}t/", "/hom\u{65}/"];

#[test]
fn files_and_lines_are_short() {
    let mut long = Vec::new();
    for path in sources() {
        let (text, shown) = (read(&path), shown(&path));
        let product = text.lines().take_while(|line| !line.contains("#[cfg(test)]")).count();
        if product > FILE_LINES_MAX && !LONG_FILES.iter().any(|(file, _)| *file == shown) {
            long.push(format!("{shown}: {product} lines before its tests"));
        }
        for (index, line) in text.lines().enumerate() {
            if line.chars().count() > LINE_CHARACTERS_MAX && !line.contains("https://") {
                long.push(format!("{shown}:{}: {} characters", index + 1, line.chars().count()));
            }
        }
    }
    assert!(long.is_empty(), "too long: {long:#?}");
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for path in sources().into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let (text, shown) = (read(&path), shown(&path));
        for (name, lines) in functions(&text) {
            let known = LONG_FUNCTIONS.iter().any(|(known, _)| *known == format!("{shown}:{name}"));
            if lines > FUNCTION_LINES_MAX && !known {
                long.push(format!("{shown}: fn {name} has {lines} lines"));
            }
        }
    }
    assert!(long.is_empty(), "too long: {long:#?}");
}

#[test]
fn exceptions_are_still_needed() {
    for (file, _) in LONG_FILES {
        let path = confide_tests::checkout().join(file);
        let lines = fs::read_to_string(path).unwrap_or_default().lines().count();
        assert!(lines > FILE_LINES_MAX, "{file} is short now: drop its exception");
    }
    for (function, _) in LONG_FUNCTIONS {
        let (file, name) = function.split_once(':').expect("written as file:function");
        let text = fs::read_to_string(confide_tests::checkout().join(file)).unwrap_or_default();
        let long = functions(&text).iter().any(|(n, l)| n == name && *l > FUNCTION_LINES_MAX);
        assert!(long, "{function} is short now: drop its exception");
    }
}

#[test]
fn names_and_words_say_something() {
    let mut found = Vec::new();
    for path in files_under("", &[".md", ".rs", ".py", ".sh", ".toml", ".html", "Makefile", "run"])
    {
        let (text, shown) = (read(&path), shown(&path));
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if EMPTY_NAMES.contains(&stem) {
            found.push(format!("{shown}: the name {stem} says nothing"));
        }
        for word in BANNED {
            if let Some(line) = text.lines().position(|line| line.contains(word)) {
                found.push(format!("{shown}:{}: {word}", line + 1));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

fn sources() -> Vec<std::path::PathBuf> {
    files_under("", &[".rs", ".py", ".sh"])
}

fn read(path: &std::path::Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", shown(path)))
}

/// The functions of a formatted Rust file: a `fn` line opens one, the `}` of its indent closes it.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let Some(name) = function_name(line.trim_start()) else { continue };
        let close = format!("{}}}", " ".repeat(indent));
        let body = lines[start..].iter().position(|line| {
            *line == close
                || (line.ends_with(';') && line.starts_with(&" ".repeat(indent)) && {
                    // A declaration in a trait ends without a body.
                    line.len() - line.trim_start().len() == indent
                })
        });
        if line.trim_end().ends_with('}') || line.trim_end().ends_with(';') {
            continue;
        }
        if let Some(length) = body {
            found.push((name, length + 1));
        }
    }
    found
}

fn function_name(line: &str) -> Option<String> {
    const BEFORE: &[&str] = &["pub ", "pub(crate) ", "pub(super) ", "const ", "async ", "unsafe "];
    let mut rest = line;
    while let Some(shorter) = BEFORE.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = shorter;
    }
    let name = rest.strip_prefix("fn ")?;
    Some(name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
}

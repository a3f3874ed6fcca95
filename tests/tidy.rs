//! Sizes, names and words of the whole repository (CONTRIBUTING.md, "Order and size" and "Names").

use std::fs;

use confide_tests::{files_under, relative_path};

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
        let (text, shown) = (read(&path), relative_path(&path));
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
    for path in sources() {
        let (text, shown) = (read(&path), relative_path(&path));
        for (name, lines) in functions_of(&path, &text) {
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
        let path = confide_tests::checkout().join(file);
        let text = fs::read_to_string(&path).unwrap_or_default();
        let long =
            functions_of(&path, &text).iter().any(|(n, l)| n == name && *l > FUNCTION_LINES_MAX);
        assert!(long, "{function} is short now: drop its exception");
    }
}

#[test]
fn names_and_words_say_something() {
    let mut found = Vec::new();
    for path in files_under("", &[".md", ".rs", ".py", ".sh", ".toml", ".html", "Makefile", "run"])
    {
        let (text, shown) = (read(&path), relative_path(&path));
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

/// Names of functions that say neither what is done nor what is returned (CONTRIBUTING.md, "Names"). Participles in
/// -ed are found by their ending.
const NAMELESS_FUNCTIONS: &[&str] = &[
    "above", "again", "all_of", "alone", "any", "at", "back", "below", "beside", "between",
    "beyond", "both", "bound", "broken", "built", "by", "chosen", "done", "down", "drawn", "each",
    "fed", "found", "given", "gone", "heard", "held", "hidden", "kept", "known", "learnt", "least",
    "left", "less", "lost", "made", "meant", "more", "most", "no", "none", "of", "once", "one",
    "only", "other", "others", "over", "own", "proven", "ran", "rest", "said", "same", "seen",
    "sent", "shown", "some", "soon", "spelled", "such", "taken", "them", "then", "told", "under",
    "up", "what", "where", "which", "who", "whole", "with", "within", "without", "woken",
    "written", "yes",
];

/// Verbs and nouns that end in -ed and are no participles.
const NO_PARTICIPLES: &[&str] =
    &["embed", "exceed", "feed", "need", "proceed", "seed", "speed", "spread"];

/// Methods of a trait that another library defines, `file:function`.
const FOREIGN_METHODS: &[&str] =
    &["crates/circuits/src/circuit.rs:shared", "crates/circuits/src/circuit.rs:precommitted"];

/// Names of types, variants and modules that are no nouns of the field.
const NAMELESS_TYPES: &[&str] = &[
    "Above", "Again", "Alone", "Apart", "Asked", "Bed", "Beside", "Both", "Came", "Done", "Door",
    "Ended", "Found", "Given", "Gone", "Held", "How", "Kept", "Known", "Left", "Made", "Mine",
    "No", "Nothing", "Once", "One", "Other", "Others", "Ours", "Own", "Ran", "Rest", "Said",
    "Seen", "Sent", "Shown", "Some", "Spoilt", "Taken", "Theirs", "They", "Told", "Up", "Wanted",
    "Way", "What", "Which", "Who", "Whole", "Whose", "Yes",
];

#[test]
fn functions_are_verbs_or_what_they_return() {
    let mut found = Vec::new();
    for path in files_under("", &[".rs", ".py", ".cu", ".cuh", ".h"]) {
        let text = read(&path);
        for (line, name) in function_names(&path, &text) {
            let is_participle = name.ends_with("ed") && !NO_PARTICIPLES.contains(&name.as_str());
            let is_nameless = NAMELESS_FUNCTIONS.contains(&name.as_str());
            let is_foreign =
                FOREIGN_METHODS.contains(&format!("{}:{name}", relative_path(&path)).as_str());
            if !is_foreign && (is_nameless || (is_participle && !name.contains('_'))) {
                found.push(format!("{}:{line}: fn {name}", relative_path(&path)));
            }
        }
    }
    assert!(found.is_empty(), "{} names: {found:#?}", found.len());
}

#[test]
fn types_variants_and_modules_are_nouns_of_the_field() {
    let mut found = Vec::new();
    for path in files_under("", &[".rs", ".py"]) {
        let (text, shown) = (read(&path), relative_path(&path));
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let module: String = stem[..1].to_uppercase() + &stem[1..];
        if NAMELESS_TYPES.contains(&module.as_str()) {
            found.push(format!("{shown}: the module {stem}"));
        }
        for (line, name) in type_names(&path, &text) {
            if NAMELESS_TYPES.contains(&name.as_str()) {
                found.push(format!("{shown}:{line}: {name}"));
            }
        }
    }
    assert!(found.is_empty(), "{} names: {found:#?}", found.len());
}

#[test]
fn parameters_are_not_packed_into_tuples() {
    let mut found = Vec::new();
    for path in files_under("", &[".rs"]) {
        let text = read(&path);
        for (line, signature) in signatures(&text) {
            // `(a, b): (A, B)`, which the limit on arguments does not count.
            if signature.contains("): (") {
                found.push(format!("{}:{line}: {signature}", relative_path(&path)));
            }
        }
    }
    assert!(found.is_empty(), "{} signatures: {found:#?}", found.len());
}

#[test]
fn every_source_file_says_what_it_holds() {
    let is_silent = |path: &&std::path::PathBuf| !read(path).starts_with("//!");
    let silent: Vec<String> = files_under("", &[".rs"])
        .iter()
        .filter(is_silent)
        .map(|path| relative_path(path))
        .collect();
    assert!(silent.is_empty(), "{} files without //!: {silent:#?}", silent.len());
}

#[test]
fn names_and_signatures_are_read_in_every_form() {
    let rust = "pub(crate) async fn told(\n    a: u8,\n) {\n}\n\
        enum E {\n    Gone(u8),\n    Up { of: u8 },\n}\nstruct Seen;\n";
    let path = std::path::Path::new("a.rs");
    assert_eq!(function_names(path, rust), [(1, "told".to_owned())]);
    let types = [(5, "E"), (6, "Gone"), (7, "Up"), (9, "Seen")];
    assert_eq!(type_names(path, rust), types.map(|(line, name)| (line, name.to_owned())));
    let packed = "fn f(\n    (a, b): (u8, u8),\n) -> u8 {\n    a\n}\n";
    assert_eq!(signatures(packed), [(1, "fn f( (a, b): (u8, u8), ) -> u8 {".to_owned())]);
    let python = "class Told:\n    async def said(self) -> None:\n";
    let path = std::path::Path::new("a.py");
    assert_eq!(function_names(path, python), [(2, "said".to_owned())]);
    assert_eq!(type_names(path, python), [(1, "Told".to_owned())]);
}

#[test]
fn functions_of_python_and_cuda_are_measured() {
    let python = "def a(\n    x,\n) -> int:\n    \"\"\"Text\nat the margin.\n    \"\"\"\n    return x\n\n\nB = 1\n";
    assert_eq!(python_functions(python), [("a".to_owned(), 7)]);
    let cuda = "struct S {\n    int f() const {\n        return 1;\n    }\n};\n\n// Text.\n\
        extern \"C\" __global__ void __launch_bounds__(128)\n    kernel(int a,\n           int b) {\n    \
        if (a) {\n    }\n}\n";
    assert_eq!(cuda_functions(cuda), [("f".to_owned(), 3), ("kernel".to_owned(), 6)]);
}

fn sources() -> Vec<std::path::PathBuf> {
    files_under("", &[".rs", ".py", ".sh", ".cu", ".cuh", ".h"])
}

fn read(path: &std::path::Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", relative_path(path)))
}

/// The functions of a source file by its language, each with its lines; none of a shell script.
fn functions_of(path: &std::path::Path, text: &str) -> Vec<(String, usize)> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("rs") => functions(text),
        Some("py") => python_functions(text),
        Some("cu" | "cuh" | "h") => cuda_functions(text),
        _ => Vec::new(),
    }
}

/// The functions of a formatted Python file: a `def` opens one, the next line of its indent or less that is not the end
/// of its signature closes it. Lines within a string of several lines do not count as code of their indent.
fn python_functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut in_string = false;
    let starts_code: Vec<bool> = lines
        .iter()
        .map(|line| {
            let starts =
                !in_string && !line.trim().is_empty() && !line.trim_start().starts_with(')');
            in_string ^= line.matches("\"\"\"").count() % 2 == 1;
            starts
        })
        .collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let (code, indent) = (line.trim_start(), indent_of(line));
        let opened = code.strip_prefix("async ").unwrap_or(code).strip_prefix("def ");
        let (Some(rest), true) = (opened, starts_code[start]) else { continue };
        let end = (start + 1..lines.len())
            .find(|&next| starts_code[next] && indent_of(lines[next]) <= indent)
            .unwrap_or(lines.len());
        let body = lines[start..end].iter().rposition(|line| !line.trim().is_empty());
        found.push((name_at_start(rest), body.map_or(1, |last| last + 1)));
    }
    found
}

/// The functions of a CUDA or C++ file: a `{` that ends a statement, but not a type, scope or control structure, opens
/// one, the `}` of the statement's indent closes it.
fn cuda_functions(text: &str) -> Vec<(String, usize)> {
    const OTHERS: &[&str] = &[
        "struct",
        "class",
        "enum",
        "union",
        "namespace",
        "if",
        "for",
        "while",
        "else",
        "switch",
        "do",
        "}",
    ];
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (brace, line) in lines.iter().enumerate().filter(|(_, line)| line.ends_with('{')) {
        let mut start = brace;
        while start > 0 && continues(lines[start - 1]) {
            start -= 1;
        }
        let words = lines[start..=brace]
            .iter()
            .copied()
            .filter(|line| !line.trim_start().starts_with("template"));
        let statement = words.collect::<Vec<_>>().join(" ");
        let first =
            statement.trim_start().split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '}'));
        let is_other = first.into_iter().next().is_some_and(|word| OTHERS.contains(&word));
        if is_other || !statement.contains('(') || line.trim() == "{" {
            continue;
        }
        let close = format!("{}}}", " ".repeat(indent_of(lines[start])));
        let Some(length) =
            lines[start..].iter().position(|line| line.trim_end_matches(';') == close)
        else {
            continue;
        };
        // `__launch_bounds__(128) name(` has its name before the second parenthesis.
        let name = statement
            .split('(')
            .filter_map(|before| {
                before.trim_end().rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next()
            })
            .find(|name| !name.is_empty() && !name.starts_with("__"));
        found.push((name.unwrap_or_default().to_owned(), length + 1));
    }
    found
}

/// Whether a line of C++ is continued by the next: it ends no statement and is not a comment or directive.
fn continues(line: &str) -> bool {
    let code = line.trim();
    let ends = code.is_empty() || code.ends_with([';', '{', '}', ':']);
    !ends && !code.starts_with("//") && !code.starts_with('#')
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The functions that a file defines, by their line. Of CUDA, those that `functions_of` measures.
fn function_names(path: &std::path::Path, text: &str) -> Vec<(usize, String)> {
    let name_of = match path.extension().and_then(|extension| extension.to_str()) {
        Some("rs") => |line: &str| function_name(line.trim_start()),
        Some("py") => |line: &str| {
            let code = line.trim_start();
            let code = code.strip_prefix("async ").unwrap_or(code);
            code.strip_prefix("def ").map(name_at_start)
        },
        _ => return functions_of(path, text).into_iter().map(|(name, _)| (0, name)).collect(),
    };
    let named = text.lines().enumerate().map(|(index, line)| (index + 1, name_of(line)));
    named.filter_map(|(line, name)| Some((line, name?))).collect()
}

/// The types that a file defines and the variants of its enums, by their line.
fn type_names(path: &std::path::Path, text: &str) -> Vec<(usize, String)> {
    let is_python = path.extension().is_some_and(|extension| extension == "py");
    let keywords: &[&str] =
        if is_python { &["class "] } else { &["struct ", "enum ", "trait ", "type ", "union "] };
    let (mut names, mut variants_at) = (Vec::new(), None);
    for (index, line) in text.lines().enumerate() {
        let code = line.trim_start();
        let code = ["pub ", "pub(crate) ", "pub(super) "]
            .iter()
            .find_map(|word| code.strip_prefix(word))
            .unwrap_or(code);
        let defined = keywords.iter().find_map(|keyword| code.strip_prefix(keyword));
        if let Some(rest) = defined {
            names.push((index + 1, name_at_start(rest)));
        } else if variants_at == Some(indent_of(line))
            && code.starts_with(|c: char| c.is_ascii_uppercase())
        {
            names.push((index + 1, name_at_start(code)));
        }
        if code.starts_with("enum ") && line.ends_with('{') {
            variants_at = Some(indent_of(line) + 4);
        } else if code == "}" && variants_at == Some(indent_of(line) + 4) {
            variants_at = None;
        }
    }
    names
}

/// The signatures of a formatted Rust file, each in one line, by where they start.
fn signatures(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let starts = (0..lines.len()).filter(|&at| function_name(lines[at].trim_start()).is_some());
    let whole = starts.map(|start| {
        let is_end = |line: &&str| line.ends_with(['{', ';', '}']);
        let length = lines[start..].iter().position(is_end).map_or(1, |last| last + 1);
        let signature = lines[start..start + length].iter().map(|line| line.trim());
        (start + 1, signature.collect::<Vec<_>>().join(" "))
    });
    whole.collect()
}

fn name_at_start(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
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
    rest.strip_prefix("fn ").map(name_at_start)
}

//! The instrument knows no product: names of arms, benches, definitions and products stand in suites
//! and in `seeds.toml`, never in the harness's product code.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

/// Products of this repository and of others, and what their arms are called. A word of a string is
/// one of these, or begins with one that ends in `-`.
const PRODUCTS: &[&str] = &[
    "ab",
    "adapter",
    "adapters",
    "aiperf",
    "attester",
    "ckks",
    "cyclictest",
    "dcap",
    "dcap-",
    "fio",
    "gateway",
    "guidellm",
    "iperf3",
    "lora",
    "lora-",
    "nested",
    "notary",
    "openssl",
    "pccs",
    "phala",
    "ra-",
    "risc0",
    "seal",
    "sp1",
    "stress-ng",
    "tunnel",
    "vllm",
    "zkvm",
];

/// `confide` itself is the program that the harness is a part of: its own commands, its version and
/// its schema may be named.
const OWN: &[&str] = &["confide bench", "confide {", "urn:confide:", "\"confide\", \"bench\""];

/// Where the running program is meant: the word of a suite's command, and its version in a record.
const SELF: &[&str] = &["programs.rs", "compare/refusal.rs"];

/// Tables of what travels inside the binary: files by name.
const FILE_TABLES: &[&str] = &["suites.rs"];

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of this repository") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Lists names of two words and more that the suites give to arms, services, benches and
/// definitions: single words (`all`, `direct`) are English as well.
fn names_of_suites() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for path in files(&folder("../suites"), ".toml") {
        let suite: Table = fs::read_to_string(&path).expect("readable").parse().expect("TOML");
        for key in ["arm", "service", "prepare", "bench"] {
            for table in suite.get(key).and_then(Value::as_array).into_iter().flatten() {
                let texts = ["name", "model"].map(|key| table.get(key).and_then(Value::as_str));
                names.extend(texts.into_iter().flatten().map(str::to_owned));
            }
        }
    }
    names.retain(|name| name.contains(['-', '/']));
    names
}

/// Lists the string literals of product code: without comments and without the test module at the
/// end.
fn literals(source: &str) -> Vec<String> {
    let product = ["#[cfg(test)]\nmod tests {", "#[cfg(test)]\npub(crate) mod tests {"]
        .iter()
        .fold(source, |text, start| text.split(start).next().unwrap_or(text));
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let code = product.lines().filter(is_code).collect::<Vec<_>>().join("\n");
    let (mut found, mut text) = (Vec::new(), None::<String>);
    let mut chars = code.chars().peekable();
    while let Some(c) = chars.next() {
        match (&mut text, c) {
            (Some(text), '\\') => text.extend(chars.next().map(|c| if c == 'n' { ' ' } else { c })),
            (Some(_), '"') => found.extend(text.take()),
            (Some(text), c) => text.push(c),
            // A quotation mark as a character is not a start of a string.
            (None, '\'') if chars.peek() == Some(&'"') => drop(chars.nth(1)),
            (None, '"') => text = Some(String::new()),
            (None, _) => {}
        }
    }
    found
}

/// Finds a name in a literal that should not be there.
fn find_name(literal: &str, names: &BTreeSet<String>) -> Option<String> {
    let own = OWN.iter().fold(literal.to_owned(), |text, own| text.replace(own, " "));
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-/_".contains(c);
    let is_product = |word: &str| {
        PRODUCTS.iter().any(|known| {
            *known == word || (known.ends_with('-') && word.len() > 3 && word.starts_with(known))
        })
    };
    let mut words = own.split(|c: char| !is_part(c)).map(str::to_ascii_lowercase);
    words.find(|word| is_product(word) || names.contains(word) || word == "confide")
}

#[test]
fn no_product_is_named_in_the_harness_itself() {
    let (source, names) = (folder("src"), names_of_suites());
    assert!(names.len() > 100, "{} names in suites", names.len());
    let (mut read, mut found) = (0, Vec::new());
    for path in files(&source, ".rs") {
        let file = path.strip_prefix(&source).expect("below").to_string_lossy().into_owned();
        if FILE_TABLES.contains(&file.as_str()) || file.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("readable");
        for literal in literals(&text) {
            read += 1;
            if literal == "confide" && SELF.contains(&file.as_str()) {
                continue;
            }
            found.extend(
                find_name(&literal, &names).map(|word| format!("{file}: {word}: {literal:?}")),
            );
        }
    }
    assert!(read > 1000, "{read} literals");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_name_is_found_where_it_stands() {
    let names = names_of_suites();
    let of = |source: &str| literals(source).iter().find_map(|literal| find_name(literal, &names));
    assert_eq!(of("let x = \"the gateway here\";").as_deref(), Some("gateway"));
    assert_eq!(of("a.starts_with(\"ra-\")").as_deref(), Some("ra-"));
    assert_eq!(of("if bench == \"chat/kept\" {}").as_deref(), Some("chat/kept"));
    assert_eq!(of("let c = '\"'; let x = \"confide\";").as_deref(), Some("confide"));
    assert_eq!(of("// \"gateway\"\nlet x = \"see confide bench run\";"), None);
    assert_eq!(of("let x = \"a\";\n#[cfg(test)]\nmod tests {\n\"gateway\""), None);
}

//! The harness's modules form no circle: each imports from where a thing is defined, downward only.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of this repository") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found
}

/// Product code without comments: tests may import what they like.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("readable");
    let before = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let before = before.split("#[cfg(test)]\npub(crate) mod tests {").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    before.lines().filter(is_code).collect::<Vec<_>>().join("\n")
}

/// The paths of a `use`: `a::{b, c::{d, e}}` gives `a::b`, `a::c::d` and `a::c::e`.
fn paths(tree: &str) -> Vec<String> {
    let tree: String = tree.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some(open) = tree.find('{') else {
        return vec![tree.split(" as ").next().unwrap_or_default().trim().to_owned()];
    };
    let (prefix, inner) = (&tree[..open], &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())]);
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in inner.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            c => parts.last_mut().expect("one part").push(c),
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(paths).map(|path| format!("{}{path}", prefix.trim())).collect()
}

/// The modules that a module's code names, by `use` and by paths in the text.
fn imports(module: &str, code: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let mut named: Vec<String> = Vec::new();
    for part in code.split("use ").skip(1) {
        named.extend(paths(part.split(';').next().unwrap_or_default()));
    }
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            let rest = &code[at..];
            let end = rest.find(|c| !is_path(c)).unwrap_or(rest.len());
            named.push(rest[..end].to_owned());
        }
    }
    let mut found = BTreeSet::new();
    for path in named {
        let mut parts: Vec<&str> = module.split("::").collect();
        let mut rest = path.split("::").map(str::trim).peekable();
        match rest.peek() {
            Some(&"crate") => {
                parts.clear();
                rest.next();
            }
            Some(&"self") => drop(rest.next()),
            _ => {
                while rest.next_if_eq(&"super").is_some() {
                    parts.pop();
                }
            }
        }
        parts.extend(rest);
        let longest = (1..=parts.len()).rev().map(|length| parts[..length].join("::"));
        found.extend(longest.into_iter().find(|known| modules.contains(known)));
    }
    found.remove(module);
    found
}

#[test]
fn no_module_of_the_harness_imports_itself_through_others() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut texts = BTreeMap::new();
    for path in files(&source) {
        let below = path.strip_prefix(&source).expect("below").with_extension("");
        let module = below.to_string_lossy().replace('/', "::");
        if module != "lib" && !module.ends_with("tests") {
            texts.insert(module, code(&path));
        }
    }
    let modules: BTreeSet<String> = texts.keys().cloned().collect();
    let mut open: BTreeMap<String, BTreeSet<String>> = texts
        .iter()
        .map(|(module, code)| (module.clone(), imports(module, code, &modules)))
        .collect();
    assert!(open["rows"].contains("rows::row") && open["page::layers"].contains("page::layer"));
    // What imports nothing that is still open is done; what remains in the end is in a circle or
    // above one.
    loop {
        let done: Vec<String> = open
            .iter()
            .filter(|(_, imports)| imports.iter().all(|module| !open.contains_key(module)))
            .map(|(module, _)| module.clone())
            .collect();
        if done.is_empty() {
            break;
        }
        done.iter().for_each(|module| drop(open.remove(module)));
    }
    assert!(open.is_empty(), "circles among {open:#?}");
}

//! The plan within a package: its modules form no circle, and each imports a thing from where it is defined.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use confide_tests::{checkout, files_under, relative_path};
use syn::visit::{self, Visit};

/// Packages whose modules are compared, by their folder.
const PACKAGES: &[&str] = &["crates", "bench", "guests", "web", "zkvm"];

#[test]
fn modules_of_a_package_form_no_circle() {
    let circles: Vec<String> = packages().iter().flat_map(Package::circles).collect();
    assert!(circles.is_empty(), "{} circles:\n{}", circles.len(), circles.join("\n"));
}

#[test]
fn a_module_imports_nothing_that_a_module_above_it_only_hands_on() {
    let found: Vec<String> = packages().iter().flat_map(Package::detours).collect();
    assert!(found.is_empty(), "{} detours:\n{}", found.len(), found.join("\n"));
}

#[test]
fn circles_and_detours_are_found_in_every_spelling() {
    let circles = |files: &[(&str, &str)]| package_of(files).circles().len();
    assert_eq!(circles(&[("lib", "mod a; mod b;"), ("a", "use crate::b::B;"), ("b", "")]), 0);
    assert_eq!(circles(&[("lib", ""), ("a", "use crate::b::B;"), ("b", "use super::a::A;")]), 1);
    assert_eq!(
        circles(&[("lib", ""), ("a", "mod c; fn f() { c::g() }"), ("a::c", "use super::X;")]),
        1
    );
    assert_eq!(circles(&[("lib", ""), ("a", "mod c;"), ("a::c", "use super::X;")]), 0);
    let in_a_macro = [("lib", "pub use a::A; pub struct Y;"), ("a", "fn f() { g!(crate::Y) }")];
    assert_eq!(circles(&in_a_macro), 1);
    let in_a_test = [("lib", "use a::A;"), ("a", "#[cfg(test)] mod tests { use crate::Y; }")];
    assert_eq!(circles(&in_a_test), 0);
    let handed_on = [("lib", "mod a; mod b; pub use a::A;"), ("a", ""), ("b", "use crate::A;")];
    assert_eq!(package_of(&handed_on).detours().len(), 1);
    let defined = [("lib", "mod b; pub struct A;"), ("b", "use crate::A;")];
    assert_eq!(package_of(&defined).detours().len(), 0);
}

/// A package's modules by their paths; the root is called `crate`.
struct Package {
    folder: String,
    modules: BTreeMap<String, Module>,
    /// The modules that each module names, each with one of the paths that name it.
    imports: BTreeMap<String, BTreeMap<String, String>>,
}

/// The names in one source file that lead elsewhere in its package.
#[derive(Default)]
struct Module {
    /// Paths from the root, `crate::a::B`, of all that the code names within its package.
    paths: BTreeSet<String>,
    /// Names that the module takes from others and hands on.
    handed_on: BTreeSet<String>,
}

fn packages() -> Vec<Package> {
    let manifests = PACKAGES.iter().flat_map(|folder| files_under(folder, &["Cargo.toml"]));
    let folders = manifests.filter_map(|manifest| manifest.parent().map(Path::to_owned));
    let packages: Vec<Package> = folders.flat_map(|folder| packages_in(&folder)).collect();
    assert!(packages.len() > 30, "{} packages", packages.len());
    packages
}

/// The library of a folder, its program, or both: each has a root and modules of its own.
fn packages_in(folder: &Path) -> Vec<Package> {
    let source = folder.join("src");
    let files = files_under(&relative_path(&source), &[".rs"]);
    let mut packages = Vec::new();
    for root in ["lib.rs", "main.rs"] {
        let Ok(text) = fs::read_to_string(source.join(root)) else { continue };
        let declared = declared_modules(&text);
        let mut modules = BTreeMap::from([("crate".to_owned(), text)]);
        for file in &files {
            let below = file.strip_prefix(&source).expect("found below").with_extension("");
            let name = below.to_string_lossy().replace('/', "::");
            let name = name.strip_suffix("::mod").unwrap_or(&name).to_owned();
            let top = name.split("::").next().unwrap_or_default();
            if declared.contains(top) && !is_test(&name) {
                let text = fs::read_to_string(file).expect("a source file is text");
                modules.insert(format!("crate::{name}"), text);
            }
        }
        packages.push(Package::read(&relative_path(&source.join(root)), &modules));
    }
    packages
}

fn is_test(module: &str) -> bool {
    module.split("::").any(|part| part == "tests" || part.ends_with("_tests"))
}

fn declared_modules(text: &str) -> BTreeSet<String> {
    let file = syn::parse_file(text).expect("a source file is Rust");
    let declared = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if !is_for_tests(&module.attrs) => Some(module.ident.to_string()),
        _ => None,
    });
    declared.collect()
}

fn package_of(files: &[(&str, &str)]) -> Package {
    let name = |name: &str| match name {
        "lib" => "crate".to_owned(),
        name => format!("crate::{name}"),
    };
    let modules = files.iter().map(|(module, text)| (name(module), (*text).to_owned())).collect();
    Package::read("made", &modules)
}

impl Package {
    fn read(folder: &str, texts: &BTreeMap<String, String>) -> Self {
        let names: BTreeSet<&str> = texts.keys().map(String::as_str).collect();
        let read = |(name, text): (&String, &String)| {
            let file = syn::parse_file(text).expect("a source file is Rust");
            let mut reader = Reader { names: &names, at: name.clone(), module: Module::default() };
            reader.visit_file(&file);
            (name.clone(), reader.module)
        };
        let modules = texts.iter().map(read).collect();
        let mut package = Self { folder: folder.to_owned(), modules, imports: BTreeMap::new() };
        let imports = package.modules.keys().map(|name| (name.clone(), package.imports_of(name)));
        package.imports = imports.collect();
        package
    }

    /// The module that defines what a path names: the longest beginning of it that is one.
    fn module_of<'p>(&self, path: &'p str) -> &'p str {
        let mut module = path;
        while !self.modules.contains_key(module) {
            module = module.rsplit_once("::").map_or("crate", |(above, _)| above);
        }
        module
    }

    fn imports_of(&self, name: &str) -> BTreeMap<String, String> {
        let paths = self.modules[name].paths.iter();
        let imports = paths.map(|path| (self.module_of(path).to_owned(), path.clone()));
        imports.filter(|(module, _)| module != name).collect()
    }

    /// The circles, each as the modules that reach each other and the paths by which they do.
    fn circles(&self) -> Vec<String> {
        let reachable: BTreeMap<&str, BTreeSet<&str>> =
            self.modules.keys().map(|name| (name.as_str(), self.reachable(name))).collect();
        let mut circles = BTreeSet::new();
        for (name, reached) in &reachable {
            if !reached.contains(name) {
                continue;
            }
            let circle = reached.iter().filter(|other| reachable[*other].contains(name));
            let circle: BTreeSet<&str> = circle.copied().collect();
            let ties = circle.iter().flat_map(|one| {
                let within =
                    self.imports[*one].iter().filter(|(other, _)| circle.contains(other.as_str()));
                within.map(|(_, path)| format!("    {one} names {path}")).collect::<Vec<_>>()
            });
            let ties: Vec<String> = ties.collect();
            circles.insert(format!(
                "{}: {} modules\n{}",
                self.folder,
                circle.len(),
                ties.join("\n")
            ));
        }
        circles.into_iter().collect()
    }

    fn reachable(&self, name: &str) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let mut open: Vec<&str> = self.imports[name].keys().map(String::as_str).collect();
        while let Some(next) = open.pop() {
            if found.insert(next) {
                open.extend(self.imports[next].keys().map(String::as_str));
            }
        }
        found
    }

    /// The detours: paths that lead through a module above the one that names them to an item which that module only
    /// hands on.
    fn detours(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, module) in &self.modules {
            for path in &module.paths {
                let above = self.module_of(path);
                let is_above = *name != above && name.starts_with(&format!("{above}::"));
                let item = path[above.len()..].trim_start_matches("::").split("::").next();
                let is_detour =
                    item.is_some_and(|item| self.modules[above].handed_on.contains(item));
                if is_above && is_detour {
                    found.push(format!("{}: {name} names {path}", self.folder));
                }
            }
        }
        found
    }
}

/// Collects the paths of one file that stay within its package.
struct Reader<'n> {
    names: &'n BTreeSet<&'n str>,
    /// The module that the code stands in, modules within the file among it.
    at: String,
    module: Module,
}

impl Reader<'_> {
    fn add(&mut self, parts: &[String]) {
        let mut from = self.at.clone();
        let mut rest = parts;
        match parts.first().map(String::as_str) {
            Some("crate") => (from, rest) = ("crate".to_owned(), &parts[1..]),
            Some("self") => rest = &parts[1..],
            Some("super") => {
                while rest.first().is_some_and(|part| part == "super") {
                    from.truncate(from.rfind("::").unwrap_or(from.len()));
                    rest = &rest[1..];
                }
            }
            // Another package, a name of this file, or a module below it.
            Some(first) if !self.names.contains(format!("{from}::{first}").as_str()) => return,
            _ => {}
        }
        let path = std::iter::once(from.as_str()).chain(rest.iter().map(String::as_str));
        self.module.paths.insert(path.collect::<Vec<_>>().join("::"));
    }

    fn add_tree(&mut self, prefix: &[String], tree: &syn::UseTree, is_handed_on: bool) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        let (path, name) = match tree {
            syn::UseTree::Path(path) => {
                return self.add_tree(&with(&path.ident), &path.tree, is_handed_on);
            }
            syn::UseTree::Group(group) => {
                return group
                    .items
                    .iter()
                    .for_each(|tree| self.add_tree(prefix, tree, is_handed_on));
            }
            syn::UseTree::Glob(_) => (prefix.to_vec(), None),
            syn::UseTree::Name(name) if name.ident == "self" => (prefix.to_vec(), None),
            syn::UseTree::Name(name) => (with(&name.ident), Some(name.ident.to_string())),
            syn::UseTree::Rename(to) => (with(&to.ident), Some(to.rename.to_string())),
        };
        let is_own = ["crate", "self", "super"].contains(&path[0].as_str())
            || self.names.contains(format!("{}::{}", self.at, path[0]).as_str());
        if is_own && is_handed_on {
            self.module.handed_on.extend(name);
        }
        self.add(&path);
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let is_cfg = |attribute: &&syn::Attribute| attribute.path().is_ident("cfg");
    attributes.iter().filter(is_cfg).any(|attribute| {
        attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_for_tests(attributes_of(item)) {
            return;
        }
        if let syn::Item::Mod(syn::ItemMod { ident, content: Some(_), .. }) = item {
            let above = self.at.clone();
            self.at = format!("{above}::{ident}");
            visit::visit_item(self, item);
            self.at = above;
        } else {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_handed_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.add_tree(&[], &item.tree, is_handed_on);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            let parts = path.segments.iter().map(|segment| segment.ident.to_string());
            self.add(&parts.collect::<Vec<_>>());
        }
        visit::visit_path(self, path);
    }

    /// Paths of a macro's arguments: its tokens are no syntax tree.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let text = call.tokens.to_string().replace(" :: ", "::");
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for path in text.split(|c| !is_path(c)).filter(|path| path.contains("::")) {
            let parts: Vec<String> = path.split("::").map(str::to_owned).collect();
            if !parts.iter().any(String::is_empty) {
                self.add(&parts);
            }
        }
        visit::visit_macro(self, call);
    }
}

#[test]
fn packages_of_every_folder_are_read() {
    let read: BTreeSet<String> = packages().into_iter().map(|package| package.folder).collect();
    for folder in ["crates/cli", "crates/evidence", "bench/harness", "guests/programs"] {
        let lib = format!("{folder}/src/lib.rs");
        assert!(read.contains(&lib), "{} is not read", checkout().join(lib).display());
    }
}

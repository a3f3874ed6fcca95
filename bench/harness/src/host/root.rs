//! Where the files of a machine are read: below `/`, or below a tree that a test made.

use std::{
    fs::{self, File},
    io::Read,
    path::PathBuf,
};

/// The most bytes of a file that are read. The longest file here is `/proc/cpuinfo`: about 1.5 KiB
/// for each of at most some 2,000 CPUs.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The most entries of a folder; one with more is not one of those that are read here.
const ENTRIES_MAX: usize = 4096;

/// The root of the file tree that a machine is read from.
#[derive(Clone, Debug)]
pub(crate) struct FileTree {
    at: PathBuf,
}

impl FileTree {
    /// Returns the root of the machine itself.
    pub(crate) fn system() -> Self {
        Self { at: "/".into() }
    }

    /// Returns the root of a tree elsewhere.
    #[cfg(test)]
    pub(crate) fn new(at: &std::path::Path) -> Self {
        Self { at: at.to_owned() }
    }

    /// Returns the path of a file in the tree; `path` begins with `/`.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.at.join(path.trim_start_matches('/'))
    }

    /// Reads the start of a file, at most 4 MiB; `None` if it is missing or may not be read.
    pub(crate) fn read_bytes(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.path(path)).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Reads a whole file, with what is not UTF-8 replaced.
    pub(crate) fn read_text(&self, path: &str) -> Option<String> {
        self.read_bytes(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads a file of one value, without space around it; `None` also where it is empty.
    pub(crate) fn read_value(&self, path: &str) -> Option<String> {
        let text = self.read_text(path)?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// Reads a file of one number.
    pub(crate) fn read_number(&self, path: &str) -> Option<u64> {
        self.read_value(path)?.parse().ok()
    }

    /// Reads the chosen word of a file such as `always [madvise] never`, else its whole value.
    pub(crate) fn read_choice(&self, path: &str) -> Option<String> {
        let text = self.read_value(path)?;
        let chosen = text.split_once('[').and_then(|(_, rest)| Some(rest.split_once(']')?.0));
        Some(chosen.map_or_else(|| text.clone(), str::to_owned))
    }

    /// True where the path exists.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Lists the names in a folder, in order; empty if it cannot be read.
    pub(crate) fn list_names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(folder)) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .take(ENTRIES_MAX)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Reads the target of a link, as written.
    pub(crate) fn read_link(&self, path: &str) -> Option<PathBuf> {
        fs::read_link(self.path(path)).ok()
    }
}

/// Returns the value behind `name` in a file of `name : value` lines.
pub(crate) fn field_value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// A tree of files for a test; it is removed when this is dropped.
#[cfg(test)]
pub(crate) struct FakeTree {
    pub(crate) root: FileTree,
}

#[cfg(test)]
impl FakeTree {
    /// Creates a tree of these files, in a folder of this name.
    pub(crate) fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let folder = format!("confide-host-{name}-{}", std::process::id());
        let root = FileTree::new(&std::env::temp_dir().join(folder));
        let _ = fs::remove_dir_all(&root.at);
        fs::create_dir_all(&root.at).unwrap();
        let tree = Self { root };
        for (path, text) in files {
            tree.write_file(path, text.as_bytes());
        }
        tree
    }

    /// Adds a file, or replaces it.
    pub(crate) fn write_file(&self, path: &str, bytes: &[u8]) {
        let path = self.root.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

#[cfg(test)]
impl Drop for FakeTree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_tree_are_read_as_text_numbers_and_choices() {
        let tree = FakeTree::new(
            "root",
            &[("/a/text", " word \n"), ("/a/number", "12\n"), ("/a/choice", "x [y] z\n")],
        );
        let root = &tree.root;
        assert_eq!(root.read_value("/a/text").as_deref(), Some("word"));
        assert_eq!(root.read_number("/a/number"), Some(12));
        assert_eq!(root.read_choice("/a/choice").as_deref(), Some("y"));
        assert_eq!(root.read_choice("/a/text").as_deref(), Some("word"));
        assert_eq!(root.list_names("/a"), ["choice", "number", "text"]);
        assert!(root.exists("/a") && !root.exists("/b"));
        assert_eq!((root.read_text("/b"), root.read_number("/a/text")), (None, None));
        assert!(root.list_names("/b").is_empty());
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "model\t\t: 2\nmodel name\t: AMD EPYC\nno colon\n";
        assert_eq!(field_value(text, "model name"), Some("AMD EPYC"));
        assert_eq!(field_value(text, "model"), Some("2"));
        assert_eq!(field_value(text, "name"), None);
    }
}

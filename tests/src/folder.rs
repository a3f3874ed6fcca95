//! The temporary folder of one test.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// A temporary folder of one test. Dropping it removes it and its content.
#[derive(Debug)]
pub struct Folder(TempDir);

impl Folder {
    /// Makes an empty folder whose name begins with `name`, in the system's folder for such.
    ///
    /// # Panics
    /// Panics if the folder cannot be made.
    pub fn new(name: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(&format!("confide-{name}-")).tempdir();
        Self(folder.expect("a folder for the test"))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// A path in it, as an argument of a command.
    ///
    /// # Panics
    /// Panics if the path is not UTF-8.
    pub fn argument(&self, name: &str) -> String {
        self.join(name).into_os_string().into_string().expect("a path of UTF-8")
    }

    /// Reads a file in it.
    ///
    /// # Panics
    /// Panics if the file cannot be read.
    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Writes a file in it and returns its path, as an argument of a command.
    ///
    /// # Panics
    /// Panics if the file cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.join(name), content).unwrap_or_else(|error| panic!("{name}: {error}"));
        self.argument(name)
    }

    /// Whether it has this entry.
    pub fn has(&self, name: &str) -> bool {
        self.join(name).exists()
    }
}

//! Throw-away projects: a directory with files, and a home directory of their own.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A project in a temporary directory with a home of its own; both vanish when it is dropped.
pub struct TestProject {
    directory: TempDir,
}

impl Default for TestProject {
    fn default() -> Self {
        Self::new()
    }
}

impl TestProject {
    /// An empty project. It is marked by `.git`, so that no directory above it is taken for one.
    ///
    /// # Panics
    /// When the temporary directory cannot be made.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let project = Self { directory };
        fs::create_dir_all(project.root().join(".git")).expect("a project directory");
        fs::create_dir_all(project.home()).expect("a home directory");
        project
    }

    /// The project's root.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.real().join("project")
    }

    /// Directory that `AGENT_HOME` and `HOME` point to.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.real().join("home")
    }

    /// Writes a file of the project, with the directories above it.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> &Self {
        write(&self.root().join(path), content.as_ref());
        self
    }

    /// Writes a file of the home directory, such as `config.toml`.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write_home(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> &Self {
        write(&self.home().join(path), content.as_ref());
        self
    }

    /// The content of a file of the project.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn read(&self, path: impl AsRef<Path>) -> String {
        let path = self.root().join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Temporary directories may be behind a link, and `agent` prints real paths.
    fn real(&self) -> PathBuf {
        fs::canonicalize(self.directory.path()).expect("the temporary directory")
    }
}

fn write(path: &Path, content: &[u8]) {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).expect("the directories of a test file");
    }
    fs::write(path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

//! Paths of another program's record, relative to the directory it worked in.

use std::path::{Component, Path, PathBuf};

/// The directory that paths are told relative to.
#[derive(Debug, Clone, Default)]
pub(super) struct Root(Option<PathBuf>);

impl Root {
    /// The project, for a record of work in it; the directory of the record for any other.
    pub(super) fn of(project: &Path, cwd: Option<&str>) -> Self {
        let cwd = cwd.map(PathBuf::from).filter(|cwd| cwd.is_absolute());
        Self(cwd.map(|cwd| {
            if cwd.starts_with(project) {
                project.to_owned()
            } else {
                cwd
            }
        }))
    }

    pub(super) fn as_text(&self) -> Option<String> {
        let root = self.0.as_ref()?;
        Some(root.display().to_string())
    }

    /// `path`, as given in `cwd`, relative to the root where it is inside; otherwise as it came.
    pub(super) fn relative(&self, path: &str, cwd: Option<&str>) -> String {
        let Some(root) = &self.0 else {
            return path.to_owned();
        };
        let whole = root.join(cwd.unwrap_or("")).join(path);
        let mut plain = PathBuf::new();
        for component in whole.components() {
            match component {
                Component::ParentDir => {
                    plain.pop();
                }
                Component::CurDir => {}
                other => plain.push(other),
            }
        }
        match plain.strip_prefix(root) {
            Ok(inside) if inside.as_os_str().is_empty() => ".".to_owned(),
            Ok(inside) => inside.display().to_string(),
            Err(_) => path.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_from_the_root() {
        let root = Root::of(Path::new("/home/me/app"), Some("/srv/shop"));
        for (path, cwd, relative) in [
            ("/srv/shop/a/b.txt", None, "a/b.txt"),
            ("b.txt", Some("/srv/shop/a"), "a/b.txt"),
            ("./a/../b.txt", None, "b.txt"),
            ("/srv/shop", None, "."),
            ("/srv/shopping", None, "/srv/shopping"),
            ("../../etc/passwd", None, "../../etc/passwd"),
        ] {
            assert_eq!(root.relative(path, cwd), relative);
        }
        let own = Root::of(Path::new("/home/me/app"), Some("/home/me/app/sub"));
        assert_eq!(own.relative("/home/me/app/sub/x", None), "sub/x");
    }
}

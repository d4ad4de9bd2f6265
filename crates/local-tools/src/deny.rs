//! Deny rules on paths, for those who meet files: searches, and the sandbox around commands. Read
//! as the gate reads them: relative to the project, anywhere when there is no slash or `**/` comes
//! first, below the home directory, or absolute; what is below a named directory is named too.

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// The patterns of some rules, asked by whole paths.
#[derive(Clone, Debug)]
pub(crate) struct DenyGlobs(GlobSet);

impl DenyGlobs {
    /// Globs of the patterns.
    pub(crate) fn new(patterns: &[String], project: &Path) -> Self {
        Self::of(patterns, project, |_| None)
    }

    /// The same, and of `gen/**` also the directory `gen`: whoever covers that one covers all of it.
    pub(crate) fn with_directories(patterns: &[String], project: &Path) -> Self {
        Self::of(patterns, project, |pattern| {
            let directory = pattern.strip_suffix("/**")?;
            let name = directory.rsplit('/').next()?;
            (!name.is_empty() && is_plain(name)).then(|| directory.to_owned())
        })
    }

    fn of(patterns: &[String], project: &Path, more: impl Fn(&str) -> Option<String>) -> Self {
        let mut builder = GlobSetBuilder::new();
        for pattern in patterns.iter().map(|pattern| absolute(pattern, project)) {
            let below = format!("{}/**", pattern.trim_end_matches("/**"));
            for form in [Some(below), more(&pattern), Some(pattern)] {
                // The gate refused patterns that do not parse long before this.
                let glob = form.map(|form| GlobBuilder::new(&form).literal_separator(true).build());
                if let Some(Ok(glob)) = glob {
                    builder.add(glob);
                }
            }
        }
        Self(builder.build().unwrap_or_else(|_| GlobSet::empty()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn names(&self, path: &Path) -> bool {
        self.0.is_match(path)
    }
}

/// The one path that a pattern names: of `docs/**` that is `docs`. Nothing where it names more.
pub(crate) fn plain(pattern: &str, project: &Path) -> Option<PathBuf> {
    let body = body(pattern);
    let path = body.strip_suffix("/**").unwrap_or(body);
    let anchored = body.starts_with('/') || body.contains('/');
    (is_plain(path) && anchored && !path.is_empty()).then(|| project.join(path))
}

/// The pattern with the home directory written out.
pub(crate) fn at_home(pattern: &str, home: Option<&Path>) -> String {
    let rest = match pattern {
        "~" => Some(""),
        pattern => pattern
            .strip_prefix('~')
            .filter(|rest| rest.starts_with('/')),
    };
    match (rest, home) {
        (Some(rest), Some(home)) => {
            format!("{}{rest}", globset::escape(&home.display().to_string()))
        }
        _ => pattern.to_owned(),
    }
}

fn body(pattern: &str) -> &str {
    let body = pattern.strip_prefix("./").unwrap_or(pattern);
    body.trim_end_matches('/')
}

fn is_plain(text: &str) -> bool {
    !text.contains(['*', '?', '[', '{', '\\'])
}

/// The pattern as one over whole paths.
fn absolute(pattern: &str, project: &Path) -> String {
    let body = body(pattern);
    if body.starts_with('/') || body.is_empty() {
        return body.to_owned();
    }
    let rest = body.strip_prefix("**/").unwrap_or(body);
    if rest.len() < body.len() || !body.contains('/') {
        return format!("/**/{rest}");
    }
    format!("{}/{rest}", globset::escape(&project.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, path: &str, expected: [bool; 2]) {
        let (patterns, project) = ([pattern.to_owned()], Path::new("/p"));
        let found = [
            DenyGlobs::new(&patterns, project).names(Path::new(path)),
            DenyGlobs::with_directories(&patterns, project).names(Path::new(path)),
        ];
        assert_eq!(found, expected, "{pattern} {path}");
    }

    #[test]
    fn patterns_mean_what_they_mean_to_the_gate() {
        for (pattern, path) in [
            (".env", "/p/.env"),
            (".env", "/p/a/b/.env"),
            ("*.pem", "/p/a/x.pem"),
            ("**/*.pem", "/p/x.pem"),
            ("src/gen/**", "/p/src/gen/a/b"),
            ("src/gen/", "/p/src/gen/a"),
            ("./src/gen", "/p/src/gen"),
            ("/o/x/**", "/o/x/y"),
            (".git*", "/p/.gitignore"),
        ] {
            check(pattern, path, [true, true]);
        }
        for (pattern, path) in [
            ("src/gen/**", "/p/a/src/gen/b"),
            ("*.pem", "/p/a/x.pem.txt"),
            ("*/**", "/p/file"),
            ("src/*", "/p/a/src/x"),
        ] {
            check(pattern, path, [false, false]);
        }
        check("src/gen/**", "/p/src/gen", [false, true]);
        check("**/gen/**", "/p/a/gen", [false, true]);
    }

    #[test]
    fn a_pattern_without_stars_is_one_path() {
        let check = |pattern: &str, expected: Option<&str>| {
            assert_eq!(
                plain(pattern, Path::new("/p")),
                expected.map(PathBuf::from),
                "{pattern}"
            );
        };
        check("docs/**", Some("/p/docs"));
        check(".github/**", Some("/p/.github"));
        check("./a/b", Some("/p/a/b"));
        check("/o/x", Some("/o/x"));
        // Anywhere.
        check(".gitignore", None);
        check("**/a", None);
        check("a/*/b", None);
        check("**", None);
    }

    #[test]
    fn the_home_directory_is_written_out() {
        let home = Some(Path::new("/home/a*b"));
        assert_eq!(at_home("~/x/**", home), "/home/a[*]b/x/**");
        assert_eq!(at_home("~", home), "/home/a[*]b");
        assert_eq!(at_home("~x/y", home), "~x/y");
        assert_eq!(at_home("~/x", None), "~/x");
    }
}

//! Scope of a search: a place in the project, narrowed by globs and file types.

use std::path::{Path, PathBuf};

use agent_protocol::payload::permission::Access as PermissionAccess;
use agent_protocol::{ActionHappened, Code};
use agent_text::visible;
use agent_tool_runtime::{
    Cancel, Confinement, ExecutionContext, ExecutionFailure, PermissionSemantics, Plan, Prepared,
    ToolDefinition, ValidationFailure,
};
use ignore::overrides::{Override, OverrideBuilder};
use ignore::types::{Types, TypesBuilder};
use rustix::fs::OFlags;

use super::walk::{Depth, Hides, Walk};
use crate::deny::DenyGlobs;
use crate::path::{Access, Found, ProjectPath, Roots};
use crate::support::{bad_path, flags, resource};

/// A place to search, checked.
pub(crate) struct Scope {
    pub(crate) path: ProjectPath,
    globs: Option<Globs>,
    types: Option<Types>,
}

/// Files the call's glob names.
struct Globs {
    set: Override,
    /// The place in the project, for a glob that was given as an absolute path; otherwise globs
    /// begin at the place.
    beneath: Option<PathBuf>,
}

impl Scope {
    /// `path` narrowed by a gitignore-style `glob` and a ripgrep file type.
    pub(crate) fn new(
        roots: &Roots,
        reads_outside: &dyn Fn(&Path) -> bool,
        path: Option<&str>,
        glob: Option<(&str, &str)>,
        file_type: Option<&str>,
    ) -> Result<Self, ValidationFailure> {
        let path = roots
            .resolve_also(path.unwrap_or("."), Access::Read, reads_outside)
            .map_err(|problem| bad_path(&problem, "/path"))?;
        let what = match path.found() {
            Found::File | Found::Directory => None,
            Found::Missing => Some((Code::FileNotFound, "does not exist")),
            Found::Special(what) => Some((Code::NotAFile, what)),
        };
        if let Some((code, what)) = what {
            let message = if code == Code::NotAFile {
                format!("`{}` is {what}, not a file or directory", path.name())
            } else {
                format!("`{}` {what}", path.name())
            };
            return Err(ValidationFailure::new(code, message.clone()).at("/path", message));
        }
        let globs = glob
            .map(|(field, glob)| compile_glob(field, glob, roots.root(), &path))
            .transpose()?;
        let types = file_type.map(compile_type).transpose()?;
        Ok(Self { path, globs, types })
    }

    /// True if a file, relative to the place, is one the call asks for.
    pub(crate) fn wants(&self, relative: &Path) -> bool {
        if self.globs.as_ref().is_some_and(|globs| {
            // A glob that leaves out gives no word for what it keeps.
            match &globs.beneath {
                Some(place) => globs.set.matched(place.join(relative), false).is_ignore(),
                None => globs.set.matched(relative, false).is_ignore(),
            }
        }) {
            return false;
        }
        self.types
            .as_ref()
            .is_none_or(|types| types.matched(relative, false).is_whitelist())
    }

    /// A call that searches this place, as the gate sees it.
    pub(crate) fn prepared<T: std::any::Any + Send + Sync>(
        path: &ProjectPath,
        given: Option<&str>,
        definition: &ToolDefinition,
        input: T,
    ) -> Prepared {
        let given = given.unwrap_or(".");
        Prepared {
            normalised_paths: vec![path.name()],
            semantics: PermissionSemantics {
                action_class: definition.action_class,
                resources: vec![resource(PermissionAccess::Read, given, path)],
                ..PermissionSemantics::default()
            },
            plan: Plan::default(),
            flags: flags(definition),
            baselines: Vec::new(),
            preview: None,
            input: Box::new(input),
        }
    }

    /// The walk over this place, without what `denied` names.
    pub(crate) fn walk<'a>(
        &'a self,
        roots: &'a Roots,
        denied: Hides<'a>,
        cancel: &'a Cancel,
    ) -> std::io::Result<Walk<'a>> {
        let start = roots.open_beneath(&self.path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Walk {
            start,
            start_path: self.path.absolute(),
            project: roots.root(),
            denied,
            depth: Depth::Wanted,
            names: None,
            cancel,
        })
    }

    /// Runs `search` over this place for a call of a tool. What was found by a search that was
    /// cancelled half-way is nobody's answer.
    pub(crate) fn search<T>(
        &self,
        roots: &Roots,
        confinement: &Confinement,
        context: &ExecutionContext,
        search: impl FnOnce(Walk<'_>) -> T,
    ) -> Result<T, ExecutionFailure> {
        let denied = Denied::at(
            confinement,
            roots.root(),
            self.path.relative(),
            self.path.absolute(),
        );
        let hides = |path: &[u8]| denied.hides(path);
        let walk = self
            .walk(roots, &hides, context.cancel())
            .map_err(|error| {
                let message = format!("cannot search `{}`: {error}", self.path.name());
                ExecutionFailure::new(Code::IoError, message).having(ActionHappened::No)
            })?;
        let found = search(walk);
        if context.cancel().is_raised() {
            return Err(
                ExecutionFailure::new(Code::Cancelled, "the search was cancelled")
                    .having(ActionHappened::No),
            );
        }
        Ok(found)
    }

    /// The name of a file the walk met, as the log says it.
    pub(crate) fn name_of(&self, relative: &[u8]) -> String {
        let base = self.path.name();
        // What is no text, and what would break the line, is written as an escape.
        let relative = visible(relative).replace('\n', "\\n");
        if base == "." {
            relative
        } else {
            format!("{base}/{relative}")
        }
    }
}

fn compile_glob(
    field: &str,
    glob: &str,
    root: &Path,
    place: &ProjectPath,
) -> Result<Globs, ValidationFailure> {
    let invalid = |error: ignore::Error| {
        let message = format!("the glob `{glob}` is not valid: {error}");
        ValidationFailure::new(Code::SchemaInvalid, message.clone()).at(field, message)
    };
    let (not, pattern) = match glob.strip_prefix('!') {
        Some(pattern) => ("!", pattern),
        None => ("", glob),
    };
    // A leading slash is the place, as in .gitignore, unless the whole path of the project follows.
    let in_project = root
        .to_str()
        .and_then(|root| pattern.strip_prefix(root))
        .filter(|rest| rest.starts_with('/'));
    let anchored = in_project.map(|rest| format!("{not}{rest}"));
    // A root of "." takes paths as they are: ours are relative already.
    let mut builder = OverrideBuilder::new(".");
    builder
        .add(anchored.as_deref().unwrap_or(glob))
        .map_err(invalid)?;
    Ok(Globs {
        set: builder.build().map_err(invalid)?,
        beneath: in_project.map(|_| place.relative().to_owned()),
    })
}

fn compile_type(name: &str) -> Result<Types, ValidationFailure> {
    let mut builder = TypesBuilder::new();
    builder.add_defaults();
    builder.select(name);
    builder.build().map_err(|_| {
        let known: Vec<String> = builder
            .definitions()
            .iter()
            .map(|definition| definition.name().to_owned())
            .filter(|known| known.starts_with(&name.chars().take(2).collect::<String>()))
            .take(12)
            .collect();
        let message = format!(
            "there is no file type `{name}`; similar ones: {}",
            known.join(", ")
        );
        ValidationFailure::new(Code::SchemaInvalid, message.clone()).at("/type", message)
    })
}

/// Names that deny rules hide from a walk, and secrets hidden from a search that does not name
/// them.
pub(crate) struct Denied {
    globs: DenyGlobs,
    secrets: bool,
    /// Start of the walk, in the project and absolute.
    relative: PathBuf,
    start: PathBuf,
}

impl Denied {
    /// The reading rules of this call, for a walk that starts at this place of the project.
    fn at(confinement: &Confinement, project: &Path, relative: &Path, start: &Path) -> Self {
        Self {
            globs: DenyGlobs::new(&confinement.deny_read, project),
            secrets: confinement.hide_secrets,
            relative: relative.to_owned(),
            start: start.to_owned(),
        }
    }

    /// True if a path relative to the start of the walk is hidden.
    pub(crate) fn hides(&self, relative: &[u8]) -> bool {
        let path = super::walk::as_path(relative);
        if self.secrets && agent_policy::gate::is_secret(&self.relative.join(path)) {
            return true;
        }
        !self.globs.is_empty() && self.globs.names(&self.start.join(path))
    }
}

/// The same for a walk over the whole project, for what is covered as a whole.
pub(crate) fn denied_globs(confinement: &Confinement, project: &Path) -> Denied {
    Denied {
        globs: DenyGlobs::with_directories(&confinement.deny_read, project),
        secrets: confinement.hide_secrets,
        relative: PathBuf::new(),
        start: project.to_owned(),
    }
}

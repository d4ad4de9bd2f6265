//! Deleting, replacing or moving away a whole tree: the root, the home directory, the project, what
//! holds them, or a directory of the system.

use std::path::{Path, PathBuf};

use globset::GlobBuilder;

use super::{Act, Ground, Tripped};
use crate::gate::protected::wildcard;
use crate::gate::rule::Bases;
use crate::gate::words::base_name;
use crate::shell::inline_code::InlineCode;
use crate::shell::word::{Dynamic, UNKNOWN, Value, Word};
use crate::shell::{Analysis, Directories, Place, normalise};

const DELETE: &str = "a recursive delete";

/// Programs that delete or empty the files they are given.
const DELETERS: &[&str] = &[
    "rm", "unlink", "shred", "srm", "truncate", "trash", "rimraf",
];

pub(super) fn of_command(act: &Act<'_>, ground: &Ground<'_>) -> Option<Tripped> {
    match act.name {
        "rm" | "srm" if act.short('r') || act.short('R') || act.long("recursive") => {
            of_operands(act, ground, DELETE)
        }
        "rimraf" | "trash" | "trash-put" | "del-cli" => of_operands(act, ground, DELETE),
        "gio" if act.has("trash") => of_operands(act, ground, DELETE),
        "tar" if act.long("remove-files") => of_operands(act, ground, DELETE),
        // Not recursive, but `~/*` is everything there all the same.
        "rm" | "shred" | "unlink" | "truncate" => {
            let globs = act.operands().filter(|word| is_everything(word.sketch()));
            match of_paths(globs, act, ground, "deleting every file") {
                Some(Tripped::Deny(why)) => Some(Tripped::Ask(why)),
                _ => None,
            }
        }
        "find" | "fd" | "fdfind" => of_find(act, ground),
        "rsync" if act.long("delete") || act.texts().any(|word| word.starts_with("--delete-")) => {
            let destination = act.operands().last();
            of_paths(destination.into_iter(), act, ground, DELETE)
        }
        "mv" => {
            let operands: Vec<&Word> = act.operands().collect();
            let (target, moved) = operands.split_last()?;
            // Everything in the project into a directory of it is an ordinary move.
            let stays = candidates(target.sketch(), &act.command.directories)
                .is_some_and(|paths| paths.iter().all(|to| to.starts_with(&ground.bases.project)));
            let whole = moved
                .iter()
                .copied()
                .filter(|word| !(stays && matches!(word.sketch(), "*" | "./*")));
            asked(of_paths(whole, act, ground, "moving away"))
        }
        "chmod" | "chown" | "chgrp" if act.short('R') || act.long("recursive") => asked(
            of_operands(act, ground, "a recursive change of ownership or mode"),
        ),
        _ => of_inline_code(act, ground),
    }
}

/// `find / | xargs rm` deletes what `find / -delete` does.
pub(super) fn of_pipelines(analysis: &Analysis, ground: &Ground<'_>) -> Option<Tripped> {
    let deletes = analysis.commands.iter().any(|command| {
        matches!(command.place, Place::Wrapped(_))
            && command.appended_arguments
            && command
                .words
                .first()
                .is_some_and(|name| DELETERS.contains(&base_name(name.sketch())))
    });
    if !deletes {
        return None;
    }
    analysis.commands.iter().find_map(|command| {
        let act = Act {
            name: base_name(command.words.first()?.sketch()),
            arguments: command.words.iter().skip(1).collect(),
            command,
        };
        let lists = matches!(act.name, "find" | "fd" | "fdfind") && !is_limited(&act);
        lists.then(|| of_starts(&act, ground)).flatten()
    })
}

fn asked(tripped: Option<Tripped>) -> Option<Tripped> {
    match tripped {
        Some(Tripped::Deny(why) | Tripped::Unclear(why)) => Some(Tripped::Ask(why)),
        other => other,
    }
}

/// A program that only the running shell knows may be `rm -r`.
pub(super) fn of_unknown_program(act: &Act<'_>, ground: &Ground<'_>) -> Option<Tripped> {
    let name = act.command.words.first()?;
    if matches!(name.value, Value::Literal { .. }) {
        return None;
    }
    match of_operands(act, ground, "a possible recursive delete") {
        Some(Tripped::Deny(why)) => Some(Tripped::Unclear(why)),
        // Braces and escapes may be the whole command.
        _ if matches!(
            name.value,
            Value::Dynamic {
                why: Dynamic::Braces | Dynamic::Unfinished,
                ..
            }
        ) =>
        {
            Some(Tripped::Unclear(format!(
                "the program `{}` is not known until it runs and may delete anything",
                name.source
            )))
        }
        _ => None,
    }
}

fn of_find(act: &Act<'_>, ground: &Ground<'_>) -> Option<Tripped> {
    const EXEC: &[&str] = &[
        "-exec",
        "-execdir",
        "-ok",
        "-okdir",
        "-x",
        "-X",
        "--exec",
        "--exec-batch",
    ];
    let texts: Vec<&str> = act.texts().collect();
    let deletes = texts.contains(&"-delete")
        || texts.iter().enumerate().any(|(at, word)| {
            EXEC.contains(word) && starts_deleter(texts.get(at + 1..).unwrap_or_default())
        });
    if !deletes {
        return None;
    }
    if is_limited(act) {
        return of_named_tree(act, ground);
    }
    of_starts(act, ground)
}

/// `find .. -name project -exec rm -rf {} +`: the name lets through what must not be deleted.
fn of_named_tree(act: &Act<'_>, ground: &Ground<'_>) -> Option<Tripped> {
    let texts: Vec<&str> = act.texts().collect();
    let patterns: Vec<&str> = texts
        .windows(2)
        .filter_map(|pair| match pair {
            ["-name" | "-iname", pattern] => Some(*pattern),
            _ => None,
        })
        .collect();
    let names_tree = |tree: &Path| {
        tree.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| {
                !patterns.is_empty() && patterns.iter().all(|pattern| wildcard(pattern, name))
            })
    };
    let holds = [&ground.bases.project, &ground.bases.home]
        .iter()
        .any(|tree| tree.ancestors().any(names_tree));
    if holds { of_starts(act, ground) } else { None }
}

/// `rm`, or a shell whose string names it.
fn starts_deleter(words: &[&str]) -> bool {
    let Some(name) = words.first().map(|name| base_name(name)) else {
        return false;
    };
    DELETERS.contains(&name)
        || (crate::shell::is_shell(name)
            && words.iter().skip(1).any(|script| {
                script
                    .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                    .any(|word| DELETERS.contains(&word))
            }))
}

/// Whether some test leaves most files out. A name that fits everything leaves none out.
fn is_limited(act: &Act<'_>) -> bool {
    const TESTS: &[&str] = &[
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-wholename",
        "-iwholename",
        "-regex",
        "-iregex",
        "-lname",
        "-ilname",
    ];
    const OTHER: &[&str] = &[
        "-empty",
        "-size",
        "-mmin",
        "-mtime",
        "-amin",
        "-atime",
        "-cmin",
        "-ctime",
        "-newer",
        "-newermt",
        "-inum",
        "-samefile",
        "-e",
        "--extension",
    ];
    let texts: Vec<&str> = act.texts().collect();
    if matches!(act.name, "fd" | "fdfind") {
        let pattern = act.operands().next().map(Word::sketch).unwrap_or(".");
        return !matches!(pattern, "." | "" | ".*" | "^")
            || texts.iter().any(|word| OTHER.contains(word));
    }
    texts.iter().enumerate().any(|(at, word)| {
        OTHER.contains(word)
            || (TESTS.contains(word)
                && texts
                    .get(at + 1)
                    .is_some_and(|pattern| !fits_everything(pattern)))
    })
}

fn fits_everything(pattern: &str) -> bool {
    !pattern.is_empty() && pattern.chars().all(|c| matches!(c, '*' | '.' | '/' | '?'))
}

/// The directories that `find` or `fd` start at: the current one when none is named.
fn of_starts(act: &Act<'_>, ground: &Ground<'_>) -> Option<Tripped> {
    let here = Word::literal(".");
    let named: Vec<&Word> = if matches!(act.name, "fd" | "fdfind") {
        act.operands()
            .skip(1)
            .take_while(|word| !word.sketch().starts_with('-'))
            .collect()
    } else {
        act.arguments
            .iter()
            .copied()
            .skip_while(|word| {
                matches!(word.sketch(), "-H" | "-L" | "-P") || word.sketch().starts_with("-O")
            })
            .take_while(|word| !word.sketch().starts_with(['-', '(', '!']))
            .collect()
    };
    if named.is_empty() {
        of_paths(std::iter::once(&here), act, ground, DELETE)
    } else {
        of_paths(named.into_iter(), act, ground, DELETE)
    }
}

fn of_operands(act: &Act<'_>, ground: &Ground<'_>, what: &str) -> Option<Tripped> {
    of_paths(act.operands(), act, ground, what)
}

/// Whether some path is, or may become, a whole tree.
fn of_paths<'a>(
    words: impl Iterator<Item = &'a Word>,
    act: &Act<'_>,
    ground: &Ground<'_>,
    what: &str,
) -> Option<Tripped> {
    let mut unknown = None;
    for word in words {
        let text = word.sketch();
        if text.contains(UNKNOWN) {
            unknown = Some(text.replace(UNKNOWN, "…"));
            continue;
        }
        let Some(candidates) = candidates(text, &act.command.directories) else {
            if is_everything(text) || Path::new(text).components().all(is_relative_step) {
                unknown = Some(text.to_owned());
            }
            continue;
        };
        for path in candidates {
            let resolved = ground.facts.resolve(&path).unwrap_or_else(|| path.clone());
            for path in [&path, &resolved] {
                if let Some(tree) = whole(path, ground.bases) {
                    return Some(Tripped::Deny(format!("{what} of {tree}: `{text}`")));
                }
            }
            if matches!(word.value, Value::Glob { .. } | Value::Dynamic { .. })
                && let Some(tree) = glob_reaches(&path, ground.bases)
            {
                return Some(Tripped::Deny(format!(
                    "{what} that reaches {tree}: `{text}`"
                )));
            }
        }
    }
    unknown.map(|text| {
        Tripped::Unclear(format!(
            "{what} of a path that is not known until it runs: `{text}`"
        ))
    })
}

fn is_relative_step(component: std::path::Component<'_>) -> bool {
    matches!(
        component,
        std::path::Component::CurDir | std::path::Component::ParentDir
    )
}

/// Whether the last component stands for everything in its directory: `*`, `.*`, `.[!.]*`, `?*`.
fn is_everything(text: &str) -> bool {
    let last = text.rsplit('/').next().unwrap_or(text);
    let mut in_class = false;
    last.contains(['*', '?'])
        && last.chars().all(|character| {
            match character {
                '[' => in_class = true,
                ']' => in_class = false,
                _ => return in_class || matches!(character, '*' | '?' | '.'),
            }
            true
        })
}

/// The absolute paths a word may mean; `None` when the directory is not known. Everything in a
/// directory is as good as the directory.
fn candidates(text: &str, directories: &Directories) -> Option<Vec<PathBuf>> {
    let mut base = text;
    while is_everything(base) {
        base = match base.rsplit_once('/') {
            Some(("", _)) => "/",
            Some((parent, _)) => parent,
            None => ".",
        };
    }
    let path = Path::new(base);
    if path.is_absolute() {
        return Some(vec![normalise(path)]);
    }
    match directories {
        Directories::Known(known) => Some(
            known
                .iter()
                .map(|directory| normalise(&directory.join(path)))
                .collect(),
        ),
        Directories::Unknown => None,
    }
}

const SYSTEM: &[&str] = &[
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib64",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/usr",
    "/var",
    "/Users",
    "/Applications",
    "/System",
    "/Library",
];

fn whole(path: &Path, bases: &Bases) -> Option<&'static str> {
    if path == Path::new("/") {
        Some("the root of the file system")
    } else if path == bases.home {
        Some("the home directory")
    } else if path == bases.project {
        Some("the project")
    } else if bases.project.starts_with(path) {
        Some("a directory that holds the project")
    } else if bases.home.starts_with(path) {
        Some("a directory that holds the home directory")
    } else if SYSTEM.iter().any(|system| path == Path::new(system)) {
        Some("a system directory")
    } else {
        None
    }
}

/// Whether a glob fits one of the trees: `/b*` is `/bin`.
fn glob_reaches(pattern: &Path, bases: &Bases) -> Option<&'static str> {
    let text = pattern
        .to_str()
        .filter(|text| text.contains(['*', '?', '[']))?;
    let glob = GlobBuilder::new(text)
        .literal_separator(true)
        .build()
        .ok()?;
    let matcher = glob.compile_matcher();
    let system = SYSTEM.iter().map(|system| Path::new(*system));
    bases
        .project
        .ancestors()
        .chain(bases.home.ancestors())
        .chain(system)
        .find(|path| matcher.is_match(path))
        .and_then(|path| whole(path, bases))
}

/// `shutil.rmtree("/")` and its kin in code on the command line.
fn of_inline_code(act: &Act<'_>, ground: &Ground<'_>) -> Option<Tripped> {
    const CALLS: &[&str] = &[
        "rmtree",
        "rmSync",
        "rmdirSync",
        "rm_rf",
        "rm_r",
        "remove_dir_all",
        "remove_tree",
        "rimraf",
        "promises.rm",
        "fs.rm(",
        "unlinkSync",
        "RemoveAll",
    ];
    const HOMES: &[&str] = &["Path.home()", "homedir()", "Dir.home"];
    const HERE: &[&str] = &["getcwd(", "cwd()", "Dir.pwd", "os.curdir", "Getwd("];
    let code = InlineCode::of(act.name, &act.arguments)?;
    if !CALLS.iter().any(|call| code.text().contains(call)) {
        return None;
    }
    let home = ground.bases.home.display().to_string();
    let mut paths: Vec<String> = code
        .strings()
        .iter()
        .map(|path| match path.strip_prefix('~') {
            Some(rest) => format!("{home}{rest}"),
            None => path.replace("$HOME", &home),
        })
        .collect();
    if HOMES.iter().any(|call| code.text().contains(call)) || paths.iter().any(|p| p == "HOME") {
        paths.push(home);
    }
    if HERE.iter().any(|call| code.text().contains(call)) {
        paths.push(".".to_owned());
    }
    let words: Vec<Word> = paths
        .into_iter()
        .filter(|path| path.contains(['/', '.']) && !path.contains(char::is_whitespace))
        .map(Word::literal)
        .collect();
    of_paths(words.iter(), act, ground, DELETE)
}

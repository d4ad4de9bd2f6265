//! Programs that start another program named by their arguments.
//!
//! A rule about `terraform apply` means it behind `sudo env A=1 timeout 60` too. [`unwrap`] gives the
//! command inside, and says whether the wrapper itself is understood well enough for a proof.

mod git;
mod table;

use git::unwrap_git;
use table::{WRAPPERS, Wrapper};

use super::inline_code::started_by;
use super::word::Word;

/// Command that a wrapper would start.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inner {
    Words(Vec<Word>),
    Script(String),
    /// Something that cannot be named before it runs.
    Opaque(&'static str),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unwrapped {
    pub(super) inner: Vec<Inner>,
    /// The wrapper adds nothing of its own: its options were all known and harmless.
    pub(super) transparent: bool,
    /// More arguments, from standard input, are appended when it runs.
    pub(super) appends_arguments: bool,
    pub(super) assignments: Vec<String>,
}

/// `program sub-command … COMMAND`: the command starts after these words.
const PREFIXES: &[&[&str]] = &[
    &["poetry", "run"],
    &["uv", "run"],
    &["pipenv", "run"],
    &["pdm", "run"],
    &["hatch", "run"],
    &["rye", "run"],
    &["bundle", "exec"],
    &["npm", "exec"],
    &["pnpm", "exec"],
    &["pnpm", "dlx"],
    &["yarn", "exec"],
    &["yarn", "dlx"],
    &["mise", "exec"],
    &["git", "bisect", "run"],
    &["git", "submodule", "foreach"],
    &["rustup", "run", "*"],
    &["direnv", "exec", "*"],
    &["conda", "run"],
    &["nix", "develop", "-c"],
];

const SHELLS: &[&str] = &[
    "sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "fish", "rbash",
];

/// Flags that, on whatever program, are followed by a shell string.
const SCRIPT_FLAGS: &[(&str, &[&str])] = &[
    ("su", &["-c", "--command", "--session-command"]),
    ("runuser", &["-c", "--command"]),
    (
        "script",
        &["-c", "-qc", "-qec", "-eqc", "-qefc", "--command"],
    ),
    ("flock", &["-c", "--command"]),
    ("npx", &["-c", "--call"]),
    ("nix-shell", &["--run", "--command"]),
    ("git", &["--exec", "-x"]),
    (
        "tar",
        &[
            "--to-command",
            "--use-compress-program",
            "-I",
            "--checkpoint-action",
        ],
    ),
    ("entr", &["-s"]),
    ("sort", &["--compress-program"]),
    ("man", &["-P", "--pager"]),
    ("rsync", &["-e", "--rsh"]),
];

pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Programs that take their standard input for a script.
pub(super) fn reads_scripts(program: &str) -> bool {
    is_shell(program) || matches!(base_name(program), "ssh" | "at" | "batch")
}

pub(crate) fn is_shell(program: &str) -> bool {
    SHELLS.contains(&base_name(program))
}

/// True for wrappers with no flag by which they start anything but the command that they are given.
pub(super) fn only_starts(name: &str) -> bool {
    matches!(name, "sudo" | "doas" | "nohup" | "setsid" | "exec")
        || WRAPPERS
            .iter()
            .any(|wrapper| wrapper.name == name && wrapper.harmless)
}

/// The command or script that `words` would start, if `words` is known to start one.
pub(super) fn unwrap(words: &[Word]) -> Option<Unwrapped> {
    let name = base_name(words.first()?.sketch());
    let rest = words.get(1..).unwrap_or_default();
    if is_shell(name) {
        return unwrap_shell(rest);
    }
    match name {
        "eval" => Some(opaque_or_script(rest, "`eval` of an unknown value")),
        _ if STARTERS.contains(&name) || is_loader(name) => Some(Unwrapped {
            inner: suffixes(rest),
            transparent: false,
            appends_arguments: name == "entr",
            assignments: Vec::new(),
        }),
        "watch" | "ssh" | "parallel" | "at" | "batch" => Some(Unwrapped {
            inner: suffixes(rest),
            transparent: false,
            appends_arguments: name == "parallel",
            assignments: Vec::new(),
        }),
        _ if starts_elsewhere(name, rest) => Some(Unwrapped {
            inner: suffixes(rest),
            transparent: false,
            appends_arguments: false,
            assignments: Vec::new(),
        }),
        "source" | "." => Some(not_transparent(Inner::Opaque("it sources a file"))),
        "alias" | "trap" => Some(not_transparent_all(
            rest.iter()
                .filter_map(Word::text)
                .map(|text| {
                    let value = text.split_once('=').map_or(text, |(_, value)| value);
                    Inner::Script(value.to_owned())
                })
                .collect(),
        )),
        "find" | "fd" | "fdfind" => unwrap_find(rest),
        "git" if unwrap_git(rest).is_some() => unwrap_git(rest),
        _ => unwrap_code(name, rest).or_else(|| unwrap_listed(name, words, rest)),
    }
}

/// Programs that start another one with options of their own before it, for which no table of flags is kept.
const STARTERS: &[&str] = &[
    "bwrap",
    "capsh",
    "choom",
    "coresched",
    "cpulimit",
    "daemonize",
    "dbus-launch",
    "dbus-run-session",
    "entr",
    "faketime",
    "firejail",
    "hyperfine",
    "i386",
    "linux32",
    "linux64",
    "perf",
    "pkexec",
    "prlimit",
    "proot",
    "proxychains",
    "proxychains4",
    "runcon",
    "setarch",
    "sg",
    "ssh-agent",
    "start-stop-daemon",
    "torify",
    "torsocks",
    "uclampset",
    "uname26",
    "valgrind",
    "watchexec",
    "x86_64",
    "xvfb-run",
];

/// The loader of programs, which starts the one it is given.
fn is_loader(name: &str) -> bool {
    name == "ld.so" || name.starts_with("ld-linux") || name.starts_with("ld-musl")
}

/// Containers, machines and terminals: the command may begin at any of the words.
fn starts_elsewhere(name: &str, rest: &[Word]) -> bool {
    const SUB_COMMANDS: &[(&[&str], &[&str])] = &[
        (
            &["docker", "podman", "nerdctl", "docker-compose"],
            &["run", "exec", "create"],
        ),
        (&["kubectl", "oc"], &["run", "exec", "debug"]),
        (
            &["lxc", "incus", "vagrant", "wsl", "limactl"],
            &["exec", "ssh", "shell", "-e"],
        ),
        (
            &["tmux"],
            &[
                "new",
                "new-session",
                "new-window",
                "neww",
                "split-window",
                "send-keys",
                "respawn-pane",
                "run-shell",
            ],
        ),
        (&["screen"], &["-dm", "-dmS", "-d", "-S", "-X"]),
        (&["gcloud"], &["ssh"]),
        (
            &["asdf", "rbenv", "pyenv", "nodenv", "mise", "rtx"],
            &["exec", "x"],
        ),
        (&["pipx", "nix"], &["run", "shell", "develop"]),
        (&["guix"], &["shell", "environment"]),
        (&["cmake"], &["-E"]),
        (&["runuser"], &["-u", "--user"]),
        (
            &["osascript", "expect", "gdb", "lldb"],
            &["-ex", "--eval-command", "-o", "-c"],
        ),
    ];
    SUB_COMMANDS.iter().any(|(programs, subs)| {
        programs.contains(&name) && rest.iter().any(|word| subs.contains(&word.sketch()))
    })
}

/// `python -c 'os.system("…")'`: what stands in quotes is started.
fn unwrap_code(name: &str, rest: &[Word]) -> Option<Unwrapped> {
    let arguments: Vec<&Word> = rest.iter().collect();
    let scripts = started_by(name, &arguments);
    let inner: Vec<Inner> = scripts.into_iter().map(Inner::Script).collect();
    (!inner.is_empty()).then(|| not_transparent_all(inner))
}

fn unwrap_listed(name: &str, words: &[Word], rest: &[Word]) -> Option<Unwrapped> {
    if let Some(script) = script_flag(name, rest) {
        return Some(not_transparent(script));
    }
    if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
        return Some(unwrap_wrapper(wrapper, rest));
    }
    let prefix = PREFIXES.iter().find(|prefix| {
        prefix.iter().zip(words).all(|(expected, word)| {
            *expected == "*" || word.text().is_some_and(|text| base_name(text) == *expected)
        }) && words.len() > prefix.len()
    })?;
    let rest = words.get(prefix.len()..)?;
    Some(not_transparent_all(suffixes_of_first_command(rest)))
}

fn script_flag(name: &str, rest: &[Word]) -> Option<Inner> {
    let (_, flags) = SCRIPT_FLAGS.iter().find(|(program, _)| *program == name)?;
    for (index, word) in rest.iter().enumerate() {
        let text = word.sketch();
        if flags.contains(&text) {
            let script = rest.get(index + 1)?;
            return Some(script.text().map_or(
                Inner::Opaque("it runs a script that is not known"),
                |text| Inner::Script(text.to_owned()),
            ));
        }
        if let Some((flag, value)) = text.split_once('=')
            && flags.contains(&flag)
        {
            return Some(Inner::Script(value.replace("exec=", "")));
        }
    }
    None
}

fn unwrap_wrapper(wrapper: &Wrapper, rest: &[Word]) -> Unwrapped {
    let mut transparent = wrapper.harmless;
    let mut assignments = Vec::new();
    let mut operands = wrapper.operands;
    let mut at = 0;
    let mut options_end = false;
    while let Some(word) = rest.get(at) {
        let Some(text) = word.text() else {
            // An option or operand nobody can read: whatever follows may be the command.
            return Unwrapped {
                inner: suffixes(rest.get(at..).unwrap_or_default()),
                transparent: false,
                appends_arguments: wrapper.name == "xargs",
                assignments,
            };
        };
        if text == "--" && !options_end {
            options_end = true;
        } else if text.starts_with('-') && !options_end {
            if wrapper.name == "env" && is_split_string(text) {
                return split_string(text, rest.get(at + 1..).unwrap_or_default());
            }
            match option_width(wrapper, text) {
                Some(width) => {
                    let value = rest.get(at + 1).map(Word::sketch).unwrap_or_default();
                    transparent &= !changes(wrapper, text, value);
                    at += width - 1;
                }
                None => {
                    return Unwrapped {
                        inner: suffixes(rest.get(at + 1..).unwrap_or_default()),
                        transparent: false,
                        appends_arguments: wrapper.name == "xargs",
                        assignments,
                    };
                }
            }
        } else if wrapper.assignments && is_assignment(text) {
            assignments.push(text.to_owned());
        } else if operands > 0 {
            operands -= 1;
        } else {
            break;
        }
        at += 1;
    }
    let inner = rest.get(at..).unwrap_or_default();
    // `env` and `time` alone print something; `exec` alone does nothing.
    if inner.is_empty() {
        transparent = false;
    }
    Unwrapped {
        inner: if inner.is_empty() {
            Vec::new()
        } else {
            vec![Inner::Words(inner.to_vec())]
        },
        transparent,
        appends_arguments: wrapper.name == "xargs",
        assignments,
    }
}

/// True for an option with which the wrapper changes something; a newline between words is what anybody expects.
fn changes(wrapper: &Wrapper, text: &str, next: &str) -> bool {
    let is_changing = |flag: &str| wrapper.changing.split(' ').any(|entry| entry == flag);
    if wrapper.changing.is_empty() || text == "-d" && matches!(next, "\\n" | "\n") {
        return false;
    }
    match text.split_once('=') {
        _ if is_changing(text) => true,
        Some((flag, _)) if text.starts_with("--") => is_changing(flag),
        _ if text.starts_with("--") => false,
        // One letter of a bundle is enough, also where it is a value's: nobody needs such a proof.
        _ => {
            !matches!(text, "-d\\n" | "-d\n")
                && text
                    .chars()
                    .skip(1)
                    .any(|letter| is_changing(&format!("-{letter}")))
        }
    }
}

/// Number of words an option takes, `None` if the table does not have it.
fn option_width(wrapper: &Wrapper, text: &str) -> Option<usize> {
    let listed = |list: &str, flag: &str| list.split(' ').any(|entry| entry == flag);
    if listed(wrapper.flags, text) {
        return Some(1);
    }
    if listed(wrapper.flags_with_value, text) {
        return Some(2);
    }
    if let Some((flag, _)) = text.split_once('=')
        && flag.starts_with("--")
        && (listed(wrapper.flags_with_value, flag) || listed(wrapper.flags, flag))
    {
        return Some(1);
    }
    if wrapper.name == "nice" && text.len() > 1 && text[1..].bytes().all(|b| b.is_ascii_digit()) {
        return Some(1);
    }
    if text.starts_with("--") {
        return None;
    }
    // A bundle: single flags, of which the last may take the rest or the next word as its value.
    let mut width = 1;
    let letters = text.get(1..)?;
    for (index, letter) in letters.char_indices() {
        let flag = format!("-{letter}");
        if listed(wrapper.flags_with_value, &flag) {
            if index + letter.len_utf8() == letters.len() {
                width = 2;
            }
            return Some(width);
        }
        if !listed(wrapper.flags, &flag) {
            return None;
        }
    }
    Some(width)
}

fn is_split_string(text: &str) -> bool {
    text.starts_with("-S")
        || text.starts_with("--split-string")
        || (text.starts_with('-') && !text.starts_with("--") && text.contains('S'))
}

fn split_string(text: &str, rest: &[Word]) -> Unwrapped {
    let attached = text
        .split_once('S')
        .map(|(_, value)| value)
        .filter(|value| !text.starts_with("--") && !value.is_empty())
        .or_else(|| text.split_once('=').map(|(_, value)| value));
    let mut words: Vec<String> = Vec::new();
    words.extend(attached.map(str::to_owned));
    words.extend(rest.iter().map(|word| word.sketch().to_owned()));
    not_transparent(Inner::Script(words.join(" ")))
}

fn unwrap_shell(rest: &[Word]) -> Option<Unwrapped> {
    for (index, word) in rest.iter().enumerate() {
        let text = word.sketch();
        if !text.starts_with(['-', '+']) || text == "-" {
            // A script file by name; what it does is not in the command.
            return Some(not_transparent(Inner::Opaque("it runs a script file")));
        }
        if !text.starts_with("--") && text.contains('c') && text.starts_with('-') {
            let inner = rest.get(index + 1..).unwrap_or_default();
            // The options of the shell may stand between `-c` and its string.
            let script = inner
                .iter()
                .find(|word| !word.sketch().starts_with(['-', '+']));
            return Some(not_transparent(script.map_or(
                Inner::Opaque("it starts a shell"),
                |word| match word.text() {
                    Some(text) => Inner::Script(text.to_owned()),
                    None => Inner::Opaque("it runs a script that is not known"),
                },
            )));
        }
        if matches!(text, "-o" | "+o" | "-O" | "+O" | "--rcfile" | "--init-file") {
            return Some(not_transparent_all(suffixes(
                rest.get(index + 1..).unwrap_or_default(),
            )))
            .map(|mut unwrapped| {
                unwrapped.inner.push(Inner::Opaque("it starts a shell"));
                unwrapped
            });
        }
        if matches!(text, "--version" | "--help") && rest.len() == 1 {
            return None;
        }
    }
    Some(not_transparent(Inner::Opaque(
        "it starts a shell that reads its standard input",
    )))
}

fn unwrap_find(rest: &[Word]) -> Option<Unwrapped> {
    let mut inner = Vec::new();
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        at += 1;
        if !matches!(
            word.sketch(),
            "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "-X" | "--exec" | "--exec-batch"
        ) {
            continue;
        }
        let start = at;
        while rest
            .get(at)
            .is_some_and(|word| !matches!(word.sketch(), ";" | "+"))
        {
            at += 1;
        }
        let words = rest.get(start..at).unwrap_or_default();
        if !words.is_empty() {
            inner.push(Inner::Words(words.to_vec()));
        }
    }
    (!inner.is_empty()).then_some(Unwrapped {
        inner,
        transparent: false,
        appends_arguments: true,
        assignments: Vec::new(),
    })
}

fn opaque_or_script(rest: &[Word], why: &'static str) -> Unwrapped {
    let literal: Option<Vec<&str>> = rest.iter().map(Word::text).collect();
    let mut unwrapped = not_transparent(match literal {
        Some(words) => Inner::Script(words.join(" ")),
        None => Inner::Opaque(why),
    });
    // What is known of it is looked at all the same.
    if matches!(unwrapped.inner.first(), Some(Inner::Opaque(_))) {
        let sketches: Vec<&str> = rest.iter().map(Word::sketch).collect();
        unwrapped.inner.push(Inner::Script(sketches.join(" ")));
    }
    unwrapped
}

fn not_transparent(inner: Inner) -> Unwrapped {
    not_transparent_all(vec![inner])
}

fn not_transparent_all(inner: Vec<Inner>) -> Unwrapped {
    Unwrapped {
        inner,
        transparent: false,
        appends_arguments: false,
        assignments: Vec::new(),
    }
}

/// Options may hide where the command begins, so each place is taken as one. Bounded.
fn suffixes(words: &[Word]) -> Vec<Inner> {
    const MOST: usize = 24;
    let mut inner: Vec<Inner> = (0..words.len().min(MOST))
        .filter_map(|start| words.get(start..))
        .map(|words| Inner::Words(words.to_vec()))
        .collect();
    // `ssh host 'cd x; make'` and `watch 'ls; rm x'` hand one string to a shell.
    inner.extend(
        words
            .iter()
            .take(MOST)
            .filter_map(Word::text)
            .filter(|text| text.contains([' ', ';']))
            .map(|text| Inner::Script(text.to_owned())),
    );
    inner
}

fn suffixes_of_first_command(words: &[Word]) -> Vec<Inner> {
    let start = words
        .iter()
        .position(|word| !word.sketch().starts_with('-'))
        .unwrap_or(0);
    if let [only] = words
        && let Some(script) = only.text().filter(|text| text.contains([' ', ';', '\n']))
    {
        return vec![Inner::Script(script.to_owned())];
    }
    if start == 0 {
        vec![Inner::Words(words.to_vec())]
    } else {
        suffixes(words)
    }
}

fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && name
                .chars()
                .all(|character| character.is_ascii_alphanumeric() || character == '_')
    })
}

#[cfg(test)]
mod tests;

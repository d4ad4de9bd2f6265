//! System calls of a call as the kernel saw them, and those that do more than read.
//!
//! The processes of a command are the bash that the sandbox starts and whatever comes of it; everything else is the
//! runtime. Both may execute nothing of the project and connect to nothing; what a command may write is its own
//! scratch directory, and of a secret file it may read no byte. A secret that the sandbox hides can be opened: an
//! empty file is in its place.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use agent_test_support::trace::CHANGING;

use super::repository::RAN;

/// System calls that take bytes out of an open file; the descriptor is the first argument, or the second.
const READING: &[&str] = &[
    "read",
    "pread64",
    "readv",
    "preadv",
    "preadv2",
    "sendfile",
    "splice",
    "copy_file_range",
];
const REST: &str = "execve,execveat,open,openat,openat2,mmap,connect,bind,sendto,sendmsg,io_uring_setup,clone,clone3,\
                    fork,vfork";

/// strace, able to look into a process that has gone into namespaces of its own: only root may, and an account is
/// root in a namespace around it.
pub(crate) fn strace() -> Command {
    if rustix::process::geteuid().is_root() {
        Command::new("strace")
    } else {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--", "strace"]);
        command
    }
}

/// strace in front of `program`, with its log at `log`.
///
/// # Panics
/// Without strace: what nobody watches is not tested.
pub(super) fn watching(program: &str, log: &Path) -> Command {
    let mut command = strace();
    // An older strace does not know each of them, and a kernel of its age neither.
    let calls = [REST, &CHANGING.join(","), &READING.join(",")].join(",");
    let calls = calls.replace(',', ",?");
    command
        .args([
            "-f",
            "--seccomp-bpf",
            "--pidns-translation",
            "-qq",
            "-y",
            "-s",
            "4000",
        ])
        .args(["-e", &format!("trace={calls}"), "-e", "signal=none", "-o"])
        .arg(log)
        .arg(program);
    command
}

/// Paths that may be touched, and by which programs.
pub(super) struct Taboo<'a> {
    pub(super) project: &'a Path,
    /// The directory that holds project, home and what lies outside.
    pub(super) base: &'a Path,
    pub(super) secrets: &'a BTreeSet<PathBuf>,
    /// The directories from which programs may come.
    pub(super) trusted: &'a [PathBuf],
    /// The script that runs, which names its programs.
    pub(super) script: &'a str,
}

struct Call {
    process: u32,
    name: String,
    arguments: String,
    result: String,
}

impl Call {
    fn succeeded(&self) -> bool {
        !self.result.starts_with(['-', '?'])
    }

    /// The first text among the arguments.
    fn path(&self) -> &str {
        self.arguments.split('"').nth(1).unwrap_or_default()
    }

    /// The paths of the descriptors among the arguments, as `3</a/b>`.
    fn descriptors(&self) -> impl Iterator<Item = &Path> {
        let ends = |part: &str| part.ends_with(|last: char| last.is_ascii_digit() || last == 'D');
        let parts: Vec<&str> = self.arguments.split(", ").collect();
        parts.into_iter().filter_map(move |part| {
            let (before, path) = part.split_once('<')?;
            ends(before).then_some(Path::new(path.split('>').next()?))
        })
    }
}

/// The calls of a log, each where it ended.
fn calls(log: &str) -> Vec<Call> {
    let mut unfinished: BTreeMap<u32, String> = BTreeMap::new();
    let mut all = Vec::new();
    for line in log.lines() {
        let Some((process, text)) = line.split_once(' ') else {
            continue;
        };
        let Ok(process) = process.parse::<u32>() else {
            continue;
        };
        let text = text.trim_start();
        if let Some(begin) = text.strip_suffix(" <unfinished ...>") {
            unfinished.insert(process, begin.to_owned());
            continue;
        }
        let whole = match text.strip_prefix("<... ") {
            None => text.to_owned(),
            Some(resumed) => {
                let rest = resumed.split_once("resumed>").map(|(_, rest)| rest);
                let begin = unfinished.remove(&process).unwrap_or_default();
                begin + rest.unwrap_or_default()
            }
        };
        let Some((call, result)) = whole.rsplit_once(" = ") else {
            continue;
        };
        if let Some((name, arguments)) = call.split_once('(') {
            all.push(Call {
                process,
                name: name.to_owned(),
                arguments: arguments.to_owned(),
                result: result.to_owned(),
            });
        }
    }
    all
}

/// The processes of the command, with the call from which each is one.
fn of_command(calls: &[Call]) -> BTreeMap<u32, usize> {
    let mut found = BTreeMap::new();
    for (at, call) in calls.iter().enumerate() {
        let starts = call.name == "execve" && call.arguments.contains("[\"bash\", \"--noprofile\"");
        if starts && call.succeeded() {
            found.insert(call.process, at);
        }
    }
    // A child may be seen before the call that made it has returned.
    loop {
        let mut more = Vec::new();
        for (at, call) in calls.iter().enumerate() {
            let makes = ["clone", "clone3", "fork", "vfork"].contains(&call.name.as_str());
            let is_command = found.get(&call.process).is_some_and(|from| *from < at);
            if makes && is_command && call.succeeded() {
                let number = |text: &str| text.split(' ').next()?.parse().ok();
                let outside = call.result.split("/* ").nth(1).and_then(number);
                let child: Option<u32> = outside.or_else(|| number(&call.result));
                more.extend(child.filter(|child| !found.contains_key(child)));
            }
        }
        if more.is_empty() {
            return found;
        }
        found.extend(more.into_iter().map(|child| (child, 0)));
    }
}

/// Forbidden actions of a call; none if all is well. The number says how many processes it had.
pub(super) fn judge(log: &str, taboo: &Taboo<'_>) -> (usize, Vec<String>) {
    let calls = calls(log);
    let commands = of_command(&calls);
    let mut wrong = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        if !call.succeeded() {
            continue;
        }
        let is_command = commands.get(&call.process).is_some_and(|from| *from < at);
        let problem = match call.name.as_str() {
            "execve" | "execveat" => executed(call, is_command, taboo),
            "io_uring_setup" => Some("hid what it does"),
            "connect" | "bind" | "sendto" | "sendmsg" => reached(call),
            _ if !is_command => None,
            "open" | "openat" | "openat2" => opened(call, taboo),
            name if CHANGING.contains(&name) => changed(call, taboo),
            name if name == "mmap" || READING.contains(&name) => read(call, taboo),
            _ => None,
        };
        wrong.extend(
            problem
                .map(|what| format!("{what}: {}({} = {}", call.name, call.arguments, call.result)),
        );
    }
    (commands.len(), wrong)
}

/// The kernel itself is no peer, and a socket that is connected has been seen before.
fn reached(call: &Call) -> Option<&'static str> {
    let (_, family) = call.arguments.split_once("sa_family=")?;
    (!family.starts_with("AF_NETLINK")).then_some("reached for")
}

fn executed(call: &Call, is_command: bool, taboo: &Taboo<'_>) -> Option<&'static str> {
    let path = Path::new(call.path());
    // The programs of the project say so in the arguments of one of the system.
    let says_so = call
        .arguments
        .contains(&format!("\"{}\", \"{}\"", RAN.0, RAN.1));
    if says_so || path.is_relative() || path.starts_with(taboo.base) {
        return Some("executed a file of the project");
    }
    if !is_command {
        return None;
    }
    let named = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| taboo.script.contains(name))
    };
    let is_trusted = |path: &Path| taboo.trusted.iter().any(|place| path.starts_with(place));
    if !is_trusted(path) {
        return Some("executed a file of an unknown place");
    }
    // A program may be a script, which its interpreter is given.
    let given = call.arguments.split('"').nth(5).map(Path::new);
    let interprets = given.is_some_and(|given| is_trusted(given) && named(given));
    // `xargs` alone runs `echo`.
    let name = path.file_name().and_then(|name| name.to_str())?;
    let is_named = named(path)
        || interprets
        || (name == "echo" && taboo.script.contains("xargs"))
        || (name.starts_with("git") && taboo.script.contains("git"));
    (!is_named).then_some("executed what the script does not name")
}

/// The scratch directory is a file system of the command's own, mounted at `/tmp`.
fn is_scratch(path: &Path, taboo: &Taboo<'_>) -> bool {
    let null = ["/dev/null", "/dev/tty", "/dev/full", "/dev/zero"].map(Path::new);
    null.contains(&path) || (path.starts_with("/tmp") && !path.starts_with(taboo.base))
}

/// Directories of system files that any program may open.
const SYSTEM: &[&str] = &[
    "/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/sys", "/dev",
];

fn opened(call: &Call, taboo: &Taboo<'_>) -> Option<&'static str> {
    let file = call.result.split(['<', '>']).nth(1).unwrap_or(call.path());
    let file = Path::new(file);
    let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"];
    if writes.iter().any(|flag| call.arguments.contains(flag)) && !is_scratch(file, taboo) {
        return Some("opened for writing");
    }
    // Pipes have no path, and a root that is looked at has no content but names.
    let is_shown = file.is_relative()
        || file == Path::new("/")
        || file.starts_with(taboo.project)
        || SYSTEM.iter().any(|place| file.starts_with(place))
        || taboo.trusted.iter().any(|place| file.starts_with(place))
        || is_scratch(file, taboo);
    (!is_shown).then_some("opened outside the project")
}

fn changed(call: &Call, taboo: &Taboo<'_>) -> Option<&'static str> {
    let texts = call.arguments.split('"').skip(1).step_by(2).map(Path::new);
    let mut paths = texts.chain(call.descriptors());
    (!paths.all(|path| is_scratch(path, taboo))).then_some("changed")
}

fn read(call: &Call, taboo: &Taboo<'_>) -> Option<&'static str> {
    let took = call.name == "mmap" || call.result != "0";
    let secret = |path: &Path| taboo.secrets.contains(path);
    (took && call.descriptors().any(secret)).then_some("read a secret")
}

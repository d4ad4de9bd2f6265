//! A bash that runs scripts and says which words each command got.
//!
//! The commands of a script are functions `c1`, `c2`, `c3` that write down their words; whatever else it starts ends
//! in the handler for commands that do not exist, which does the same. bash has a scratch root with nothing in it but
//! itself, its libraries and the tree the scripts are about, all of it read-only, in user, mount, network, process
//! and IPC namespaces of its own. A system without user namespaces gets the weaker form, which [`Confinement`] says:
//! no programs on `PATH`, and limits.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read as _, Seek as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Reads pairs of a directory and a script, each ending in NUL, and writes records: fields end in `\5`, a record
/// in `\6`, and newlines in fields are written as `\4`, because bash writes line by line and the commands of a
/// pipeline write at the same time. A record `r` is a command that ran: its directory, its standard input where the
/// script redirects one, its words. A record `e` ends a script. `c2` and commands
/// that do not exist fail, `c3` prints words that would be split.
const DRIVER: &str = r#"
body='if ((++J_ran > 300)); then exit 3; fi
    J_input=-
    if [[ $J_script == *"<"* ]]; then J_input=; IFS= read -r -d "" J_input; J_input=+${J_input//$J_newline/$J_sign}; fi
    if [[ $* == *$J_newline* ]]; then set -- "${@//$J_newline/$J_sign}"; fi
    printf "%s\5" r "$PWD" "$J_input" '
J_newline=$'\n' J_sign=$'\4' J_end=$'\6'
eval "c1() { $body c1 \"\$@\" \"\$J_end\" >&9; }"
eval "c2() { $body c2 \"\$@\" \"\$J_end\" >&9; return 1; }"
eval "c3() { $body c3 \"\$@\" \"\$J_end\" >&9; printf %s 'p  * -x'; }"
eval "command_not_found_handle() { $body \"\$@\" \"\$J_end\" >&9; return 1; }"
cat() { local line all=; while IFS= read -r -d '' line || [ -n "$line" ]; do all+=$line; line=; done; printf %s "$all"; }
unset body
# What writes to a command that has ended goes on.
trap '' PIPE
exec 8<&0 9>&1 </dev/null >/dev/null 2>&1
while mapfile -d '' -t -n 2 J_pair <&8 && ((${#J_pair[@]} == 2)); do
    cd "${J_pair[0]}" || exit 4
    J_script=${J_pair[1]} J_ran=0 v='p  *' w= u='-x ?'
    eval -- "$J_script"
    printf 'e\5\6\5' >&9
done
"#;

/// Mounts what there is to see, read-only, and goes on as the bash in that root.
const CONFINE: &str = r#"
set -e
root=$1 tree=$2 driver=$3
mount --bind "$root" "$root"
mount --bind /dev/null "$root/dev/null"
mount --bind "$tree" "$root$tree"
mount -o remount,bind,ro "$root$tree"
mount -o remount,bind,ro "$root"
cd "$root"
exec chroot "$root" /bin/bash --noprofile --norc -c "$driver"
"#;

const LIMITS: &str = "ulimit -t 10 -f 1000 -v 2000000; PATH=/nonexistent; unset OLDPWD";

/// What holds the bash that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confinement {
    ScratchRoot,
    /// No user namespaces here: it can start nothing, and that is all.
    NoPrograms,
}

/// One script and the directory it begins in.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) directory: PathBuf,
    pub(crate) script: String,
}

/// One command that bash ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunOutput {
    pub(crate) directory: PathBuf,
    pub(crate) words: Vec<Vec<u8>>,
    /// Its standard input, if the script has a redirection from something.
    pub(crate) input: Option<Vec<u8>>,
}

pub(crate) struct Judge {
    scratch: tempfile::TempDir,
    tree: PathBuf,
    locale: &'static str,
    pub(crate) confinement: Confinement,
    /// A bash that is asked one script at a time.
    running: Option<Running>,
}

struct Running {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may be in a loop without an end; what it began ends with its process namespace.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Judge {
    /// A bash that sees the directory `tree` and nothing else.
    pub(crate) fn over(tree: &Path, locale: &'static str) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let tree = tree.canonicalize().unwrap();
        make_root(scratch.path(), &tree);
        let mut judge = Self {
            scratch,
            tree,
            locale,
            confinement: Confinement::ScratchRoot,
            running: None,
        };
        let has_unshare = Command::new("unshare").arg("--version").output().is_ok();
        let answers = || {
            judge.ask_all(&[Given::new(&judge.tree, "c1")])
                == [Some(vec![RunOutput::plain(&judge.tree, &["c1"])])]
        };
        if !(has_unshare && answers()) {
            judge.confinement = Confinement::NoPrograms;
        }
        judge
    }

    /// The commands that bash ran for each script; `None` for one that bash did not survive.
    pub(crate) fn ask_all(&self, given: &[Given]) -> Vec<Option<Vec<RunOutput>>> {
        let mut answers: Vec<Option<Vec<RunOutput>>> = Vec::with_capacity(given.len());
        while let Some(rest) = given.get(answers.len()..).filter(|rest| !rest.is_empty()) {
            let mut file = tempfile::tempfile().unwrap();
            for one in rest {
                one.write(&mut file);
            }
            file.rewind().unwrap();
            let mut child = self.command().stdin(file).spawn().unwrap();
            let mut output = Vec::new();
            let mut from = child.stdout.take().unwrap();
            from.read_to_end(&mut output).unwrap();
            child.wait().unwrap();
            let mut records = output.as_slice();
            while let Some(ran) = read_answer(&mut records) {
                answers.push(Some(ran));
            }
            if answers.len() < given.len() {
                answers.push(None);
            }
        }
        answers
    }

    /// The same for one script, by a bash that stays.
    pub(crate) fn ask(&mut self, given: &Given) -> Option<Vec<RunOutput>> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => {
                let mut child = self.command().stdin(Stdio::piped()).spawn().unwrap();
                let to = child.stdin.take().unwrap();
                let from = BufReader::new(child.stdout.take().unwrap());
                Running { child, to, from }
            }
        };
        given.write(&mut running.to);
        let answer = read_answer(&mut running.from);
        self.running = answer.is_some().then_some(running);
        answer
    }

    fn command(&self) -> Command {
        let driver = format!("{LIMITS}\n{DRIVER}");
        let mut command = match self.confinement {
            Confinement::ScratchRoot => {
                let mut command = Command::new("unshare");
                command
                    .args([
                        "--user",
                        "--map-root-user",
                        "--mount",
                        "--net",
                        "--ipc",
                        "--uts",
                        "--pid",
                    ])
                    .args(["--fork", "--kill-child", "sh", "-c", CONFINE, "sh"])
                    .args([self.scratch.path(), &self.tree])
                    .arg(driver);
                command
            }
            Confinement::NoPrograms => {
                let mut command = Command::new("bash");
                command.args(["--noprofile", "--norc", "-c"]).arg(driver);
                command
            }
        };
        command
            .current_dir("/")
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/home/u")
            .env("LC_ALL", self.locale)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }
}

/// bash, what it is linked with, its locale, and the places where the rest is mounted.
fn make_root(root: &Path, tree: &Path) {
    let linked = Command::new("sh")
        .args(["-c", "command -v bash; ldd \"$(command -v bash)\""])
        .output()
        .unwrap();
    let linked = String::from_utf8_lossy(&linked.stdout).into_owned();
    let files = linked
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    for (at, file) in files.enumerate() {
        let place = if at == 0 { "/bin/bash" } else { file };
        let place = root.join(place.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(file, &place).unwrap();
    }
    let locale = Path::new("/usr/lib/locale/C.utf8");
    copy_tree(locale, &root.join("usr/lib/locale/C.utf8"));
    std::fs::create_dir_all(root.join("dev")).unwrap();
    std::fs::write(root.join("dev/null"), "").unwrap();
    std::fs::create_dir_all(root.join(tree.strip_prefix("/").unwrap())).unwrap();
}

fn copy_tree(from: &Path, to: &Path) {
    let Ok(entries) = std::fs::read_dir(from) else {
        return;
    };
    std::fs::create_dir_all(to).unwrap();
    for entry in entries.flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_tree(&from, &to);
        } else {
            std::fs::copy(from, to).unwrap();
        }
    }
}

impl Given {
    pub(crate) fn new(directory: &Path, script: impl Into<String>) -> Self {
        Self {
            directory: directory.to_owned(),
            script: script.into(),
        }
    }

    fn write(&self, to: &mut impl Write) {
        let directory = self.directory.as_os_str().as_bytes();
        let pair = [directory, b"\0", self.script.as_bytes(), b"\0"].concat();
        // Whoever reads may have ended; the answer says so.
        drop(to.write_all(&pair));
    }
}

impl RunOutput {
    pub(crate) fn plain(directory: &Path, words: &[&str]) -> Self {
        Self {
            directory: directory.to_owned(),
            words: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
            input: None,
        }
    }

    fn read(fields: &[&[u8]]) -> Self {
        let [directory, input, words @ ..] = fields else {
            panic!("bash wrote {fields:?}");
        };
        Self {
            directory: OsStr::from_bytes(&with_newlines(directory)).into(),
            words: words.iter().map(|word| with_newlines(word)).collect(),
            input: input.strip_prefix(b"+").map(with_newlines),
        }
    }
}

fn with_newlines(field: &[u8]) -> Vec<u8> {
    field
        .iter()
        .map(|byte| if *byte == 4 { b'\n' } else { *byte })
        .collect()
}

/// The records up to the end of one script; `None` if they end before it.
fn read_answer(from: &mut impl BufRead) -> Option<Vec<RunOutput>> {
    let mut all = Vec::new();
    loop {
        let mut record = Vec::new();
        from.read_until(6, &mut record).ok()?;
        if record.pop() != Some(6) {
            return None;
        }
        // The end of a record is the last of its fields.
        let mut behind = [0];
        from.read_exact(&mut behind).ok()?;
        let fields: Vec<&[u8]> = record.split(|byte| *byte == 5).collect();
        match fields.as_slice() {
            [b"e", ..] => return Some(all),
            [b"r", fields @ .., _] => all.push(RunOutput::read(fields)),
            other => panic!("bash wrote {other:?}"),
        }
    }
}

//! bash is the judge: what the gate reads in a script of the small language is what bash runs.
//!
//! Random scripts are given to both. Their commands do not exist, so that bash hands the words of each to a handler,
//! which writes them down. bash has no programs there, an empty environment, a scratch directory and, where the
//! system lets it, namespaces of its own. `AGENT_DIFFERENTIAL_SEED` and `AGENT_DIFFERENTIAL_SECONDS` repeat or
//! lengthen a run.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use agent_tool_runtime::gate::{DiskFacts, Facts};
use agent_tool_runtime::shell::word::{Value, Word};
use agent_tool_runtime::shell::{Start, analyse};

use crate::grammar::{Random, script};

/// Scripts given to one bash.
const BATCH: usize = 200;

/// Reads scripts that end in NUL from descriptor 8 and writes what each runs to descriptor 9: the number of the
/// script and the words of a command end in NUL, a command ends in `\2`; a newline is written as
/// `\3`, because bash writes line by line and commands of a pipeline write at the same time.
const DRIVER: &str = r#"
command_not_found_handle() { printf '%s\0' "$number" "${@//$'\n'/$'\3'}" $'\2' >&9; return 0; }
cat() { local line all=; while IFS= read -r -d '' line || [ -n "$line" ]; do all+=$line; line=; done; printf %s "$all"; }
u=
number=0
while IFS= read -r -d '' script <&8; do
    ( exec 8<&-; eval "$script"; wait ) </dev/null >/dev/null 2>&1
    number=$((number + 1))
done
"#;

struct Scratch {
    _directory: tempfile::TempDir,
    root: PathBuf,
}

fn scratch() -> Scratch {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let work = root.join("work");
    std::fs::create_dir_all(work.join("d")).unwrap();
    // What redirections make is there from the beginning, so that patterns mean the same all the time.
    for name in [
        "a", "b", "x.y", "z.y", ".h", "d/a", "d/b", "a b", "é.y", "-a", "o", "1a", "2a",
    ] {
        std::fs::write(work.join(name), "").unwrap();
    }
    symlink("a", work.join("l.y")).unwrap();
    Scratch {
        _directory: directory,
        root,
    }
}

/// True if this system lets a process have namespaces of its own.
fn can_unshare() -> bool {
    Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "true"])
        .status()
        .is_ok_and(|status| status.success())
}

/// The words of the commands that bash runs for each script.
fn asked_of_bash(scripts: &[String], scratch: &Scratch, confined: bool) -> Vec<Vec<Vec<String>>> {
    let work = scratch.root.join("work");
    let (given, out) = (scratch.root.join("given"), scratch.root.join("out"));
    // Several processes append to it.
    std::fs::write(&out, "").unwrap();
    let mut file = std::fs::File::create(&given).unwrap();
    for script in scripts {
        file.write_all(script.as_bytes()).unwrap();
        file.write_all(b"\0").unwrap();
    }
    drop(file);
    let mut command = if confined {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "bash"]);
        command
    } else {
        Command::new("bash")
    };
    let status = command
        .args(["--noprofile", "--norc", "-c"])
        .arg("PATH=/nonexistent; exec 8<\"$1\" 9>>\"$2\"; ulimit -f 1000 -t 20; eval \"$3\"")
        .args([
            "bash".as_ref(),
            given.as_os_str(),
            out.as_os_str(),
            DRIVER.as_ref(),
        ])
        .current_dir(&work)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/home/u")
        .env("LANG", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    let written = std::fs::read(&out).unwrap();
    let mut ran: Vec<Vec<Vec<String>>> = vec![Vec::new(); scripts.len()];
    let mut words: Vec<String> = Vec::new();
    for word in written.split(|byte| *byte == 0) {
        if word != [2] {
            words.push(String::from_utf8_lossy(word).replace('\u{3}', "\n"));
            continue;
        }
        let mut command = std::mem::take(&mut words);
        let number = command.remove(0);
        let script: usize = number
            .parse()
            .unwrap_or_else(|_| panic!("no number in front of {number:?} {command:?}"));
        ran[script].push(command);
    }
    assert!(status.success(), "bash ended with {status}");
    ran
}

/// What one word may become, as lists of words; `None` for any number of any words.
fn becomes(word: &Word, work: &Path, facts: &dyn Facts) -> Option<Vec<String>> {
    match &word.value {
        Value::Literal { text, .. } => Some(vec![text.clone()]),
        Value::Glob { pattern } => {
            let found = facts.expand(&work.join(pattern).display().to_string())?;
            let mut names: Vec<String> = found
                .iter()
                .map(|path| {
                    path.strip_prefix(work)
                        .unwrap_or(path)
                        .display()
                        .to_string()
                })
                .collect();
            names.sort();
            if names.is_empty() {
                let mut literal = String::new();
                let mut characters = pattern.chars();
                while let Some(character) = characters.next() {
                    match character {
                        '\\' => literal.extend(characters.next()),
                        other => literal.push(other),
                    }
                }
                names.push(literal);
            }
            Some(names)
        }
        Value::Dynamic { .. } => None,
    }
}

fn fits(words: &[Option<Vec<String>>], ran: &[String]) -> bool {
    match words.split_first() {
        None => ran.is_empty(),
        Some((None, rest)) => (0..=ran.len()).any(|taken| fits(rest, &ran[taken..])),
        Some((Some(names), rest)) => {
            let Some(taken) = ran.get(..names.len()) else {
                return false;
            };
            let mut taken = taken.to_vec();
            taken.sort();
            taken == *names && fits(rest, &ran[names.len()..])
        }
    }
}

/// Compares one script; the error says what differs.
fn compare(script: &str, ran: &[Vec<String>], work: &Path) -> Result<bool, String> {
    let facts = DiskFacts { dirty: || None };
    let analysis = analyse(
        script,
        &Start {
            directory: work.to_owned(),
            home: "/home/u".into(),
            is_directory: &|_| None,
        },
    );
    let Ok(commands) = &analysis.small else {
        return Ok(false);
    };
    let read: Vec<Vec<Option<Vec<String>>>> = commands
        .iter()
        .filter(|command| {
            command
                .words
                .first()
                .is_some_and(|name| !matches!(name.sketch(), ":" | "cat"))
        })
        .map(|command| {
            command
                .words
                .iter()
                .map(|word| becomes(word, work, &facts))
                .collect()
        })
        .collect();
    for words in ran {
        if !read.iter().any(|command| fits(command, words)) {
            return Err(format!("bash ran {words:?}, which is not in {read:?}"));
        }
    }
    // Where nothing is left out by a status and no loop is empty, all of it ran.
    let all_run = !["&&", "||", "if ", "for "]
        .iter()
        .any(|sign| script.contains(sign))
        && commands.iter().all(|command| {
            let name = command.words.first().and_then(Word::text);
            matches!(name, Some("c1" | "c2" | "c3" | ":" | "cat"))
        });
    if all_run && ran.len() != read.len() {
        return Err(format!(
            "bash ran {} commands: {ran:?}, read were {read:?}",
            ran.len()
        ));
    }
    Ok(true)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn bash_runs_what_was_read() {
    let clock = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let seed = number("AGENT_DIFFERENTIAL_SEED").unwrap_or(u64::from(clock.subsec_nanos()));
    let seconds = number("AGENT_DIFFERENTIAL_SECONDS").unwrap_or(20);
    eprintln!("AGENT_DIFFERENTIAL_SEED={seed}");
    let scratch = scratch();
    let work = scratch.root.join("work");
    let confined = can_unshare();
    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut given, mut read, mut words) = (0, 0, 0);
    while Instant::now() < end {
        let scripts: Vec<String> = (0..BATCH).map(|_| script(&mut random, 0)).collect();
        let ran = asked_of_bash(&scripts, &scratch, confined);
        for (script, ran) in scripts.iter().zip(&ran) {
            given += 1;
            words += ran.iter().map(Vec::len).sum::<usize>();
            match compare(script, ran, &work) {
                Ok(is_small) => read += usize::from(is_small),
                Err(problem) => panic!("seed {seed}: {script:?}\n{problem}"),
            }
        }
    }
    eprintln!("{given} scripts, {read} of them in the small language, {words} words from bash");
    assert!(
        read * 10 >= given,
        "only {read} of {given} scripts were in the small language"
    );
}

/// The judge itself has to see a difference.
#[test]
fn a_wrong_reading_is_found() {
    let work = Path::new("/w");
    let ran = |words: &[&str]| {
        vec![
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>(),
        ]
    };
    assert_eq!(compare("c1 'a b'", &ran(&["c1", "a b"]), work), Ok(true));
    assert!(compare("c1 'a b'", &ran(&["c1", "a", "b"]), work).is_err());
    assert!(compare("c1 a; c2", &ran(&["c1", "a"]), work).is_err());
    assert_eq!(
        compare("c1 {a,b}", &ran(&["c1", "a", "b"]), work),
        Ok(false)
    );
}

//! bash is the judge: what the gate reads in a script of the small language is what bash runs, and a pattern stands
//! for the files that bash lists.
//!
//! Random scripts are given to both: to the gate, and, where it reads them, to a bash that runs nothing
//! ([`crate::judge`]). `AGENT_DIFFERENTIAL_SECONDS` says how long, `AGENT_DIFFERENTIAL_SEED` repeats a run.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::grammar::{Random, script};
use crate::judge::{Agreement, Confinement, Expansions, Given, Judge, Reading, RunOutput};
use crate::pattern_grammar::{NAMES, patterns};
use crate::splitter::difference;

/// Scripts given to one bash.
const BATCH: usize = 4000;
/// Random trees for the patterns of a batch.
const TREES: usize = 12;

/// Deep enough that no pattern climbs to where bash sees another root.
const DEEP: &str = "1/2/3/4/5/6";

/// The place where scripts run: `work`, which stays, and random trees.
struct Place {
    _directory: tempfile::TempDir,
    root: PathBuf,
}

impl Place {
    fn new() -> Self {
        // Files come and go here by the thousand.
        let memory = Path::new("/dev/shm");
        let directory = tempfile::tempdir_in(memory)
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let root = directory.path().canonicalize().unwrap();
        let work = root.join(DEEP).join("work");
        for sub in ["d/e", "b\\s"] {
            std::fs::create_dir_all(work.join(sub)).unwrap();
        }
        for name in [
            "a", "b", "x.y", "z.y", ".h", "d/a", "d/b", "d/e/a", "a b", "é.y", "-a", "b\\s/a", "bs",
        ] {
            std::fs::write(work.join(name), format!("this is {name}\n")).unwrap();
        }
        symlink("a", work.join("l.y")).unwrap();
        symlink("d/e", work.join("ln")).unwrap();
        // What redirections write to.
        symlink("/dev/null", work.join("o")).unwrap();
        Self {
            _directory: directory,
            root,
        }
    }

    fn work(&self) -> PathBuf {
        self.root.join(DEEP).join("work")
    }

    /// Another tree in the place of this one.
    fn plant(tree: &Path, random: &mut Random) {
        if tree.exists() {
            std::fs::remove_dir_all(tree).unwrap();
        }
        std::fs::create_dir_all(tree).unwrap();
        let mut directories = vec![tree.to_owned()];
        for _ in 0..8 + random.below(16) {
            let directory = directories[random.below(directories.len())].clone();
            let path = directory.join(OsStr::from_bytes(NAMES[random.below(NAMES.len())]));
            // A name may be there already.
            let made = match random.below(5) {
                0 | 1 => std::fs::create_dir(&path).map(|()| directories.push(path)),
                2 => symlink(random.one(&["a", "d", "..", "nowhere", "."]), &path),
                _ => std::fs::write(&path, ""),
            };
            drop(made);
        }
    }
}

/// What came of many scripts.
#[derive(Default)]
struct Tally {
    given: usize,
    read: usize,
    died: usize,
    loose: usize,
    all: Agreement,
}

impl Tally {
    fn add(&mut self, more: &Self) {
        self.given += more.given;
        self.read += more.read;
        self.died += more.died;
        self.loose += more.loose;
        self.all.words += more.all.words;
        self.all.patterns += more.all.patterns;
        self.all.commands += more.all.commands;
    }
}

/// Scripts until `end`, from one seed.
fn judged_until(
    end: Instant,
    seed: u64,
    place: &Place,
    locale: &'static str,
) -> Result<Tally, String> {
    let judge = Judge::over(&place.root, locale);
    let mut random = Random::new(seed);
    let mut tally = Tally::default();
    let mut trees: Vec<PathBuf> = (0..TREES)
        .map(|number| place.root.join("trees").join(DEEP).join(number.to_string()))
        .collect();
    for tree in &trees {
        Place::plant(tree, &mut random);
    }
    let expansions = Expansions::default();
    while Instant::now() < end {
        for tree in &trees[..3] {
            Place::plant(tree, &mut random);
        }
        trees.rotate_left(3);
        let scripts: Vec<Given> = (0..BATCH)
            .map(|_| match random.below(10) {
                kind @ 0..2 => {
                    let tree = &trees[random.below(trees.len())];
                    Given::new(tree, patterns(&mut random, kind == 0))
                }
                _ => Given::new(&place.work(), script(&mut random)),
            })
            .collect();
        let mut readings = Vec::new();
        for given in &scripts {
            tally.given += 1;
            let small = Reading::of(given);
            tally.read += usize::from(small.is_some());
            let split = small
                .as_ref()
                .and_then(|small| difference(&given.script, &small.commands));
            if let Some(problem) = split {
                return Err(problem);
            }
            let loose = || {
                let is_pattern = given.directory != place.work();
                is_pattern.then(|| Reading::of_patterns(given)).flatten()
            };
            readings.extend(small.or_else(loose));
        }
        let asked: Vec<Given> = readings
            .iter()
            .map(|reading| reading.given.clone())
            .collect();
        expansions.forget_all_but(&place.work());
        for (reading, ran) in readings.iter().zip(judge.ask_all(&asked)) {
            let Some(ran) = ran else {
                tally.died += 1;
                continue;
            };
            let agreed = reading
                .compare(&ran, &expansions)
                .map_err(|problem| format!("{locale} {:?}\n{problem}", reading.given.script))?;
            if reading.is_small {
                tally.all.words += agreed.words;
                tally.all.patterns += agreed.patterns;
                tally.all.commands += agreed.commands;
            } else {
                tally.loose += agreed.patterns;
            }
        }
    }
    Ok(tally)
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
    let seconds = number("AGENT_DIFFERENTIAL_SECONDS").unwrap_or(60);
    eprintln!("AGENT_DIFFERENTIAL_SEED={seed}");
    let end = Instant::now() + Duration::from_secs(seconds);
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get().min(4));
    let tallies: Vec<Result<Tally, String>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers)
            .map(|worker| {
                // Neighbours have different locales, and so have the seeds of a single worker.
                let seed = seed ^ (worker as u64) << 40;
                let locale = ["C.UTF-8", "C"][usize::from((seed ^ worker as u64) & 1 == 1)];
                let seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                scope.spawn(move || judged_until(end, seed, &Place::new(), locale))
            })
            .collect();
        running
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect()
    });
    let mut all = Tally::default();
    for tally in tallies {
        all.add(&tally.unwrap_or_else(|problem| panic!("seed {seed}: {problem}")));
    }
    let Tally {
        given,
        read,
        died,
        loose,
        all: Agreement {
            words,
            patterns,
            commands,
        },
    } = all;
    eprintln!(
        "{given} scripts, {read} of them in the small language; bash read the same {words} words in {commands} commands, \
         {patterns} patterns among them, and {loose} patterns with brackets; {died} scripts ended bash"
    );
    assert!(
        read * 4 >= given,
        "only {read} of {given} scripts were in the small language"
    );
    assert!(patterns * 200 >= words, "only {patterns} patterns");
    assert!(died * 200 <= read, "{died} scripts ended bash");
}

/// bash has nothing there that it could harm, or says that it does.
#[test]
fn the_judge_is_confined() {
    let place = Place::new();
    let judge = Judge::over(&place.root, "C.UTF-8");
    if judge.confinement == Confinement::NoPrograms {
        eprintln!("no user namespaces here: bash has no programs, and is not confined beyond that");
        return;
    }
    let tries = [
        "[ ! -e /etc/passwd ] && [ ! -e /usr/bin ] && [ ! -e /proc/self ] && c1 sees nothing",
        ": >a || c1 writes nothing",
        ": >/new || c1 writes nothing",
        ": </dev/tcp/127.0.0.1/1 || c1 reaches nothing",
    ];
    let given: Vec<Given> = tries
        .iter()
        .map(|script| Given::new(&place.work(), *script))
        .collect();
    for (script, ran) in tries.iter().zip(judge.ask_all(&given)) {
        assert_eq!(ran.map(|ran| ran.len()), Some(1), "{script}");
    }
    assert_eq!(
        std::fs::read_to_string(place.work().join("a")).unwrap(),
        "this is a\n"
    );
}

/// The judge itself has to see a difference.
#[test]
fn a_wrong_reading_is_found() {
    let work = Path::new("/w");
    let check = |script: &str, words: &[&[&str]]| {
        let given = Given::new(work, script);
        let ran: Vec<RunOutput> = words
            .iter()
            .map(|words| RunOutput::plain(work, words))
            .collect();
        Reading::of(&given).map(|reading| {
            reading
                .compare(&ran, &Expansions::default())
                .map(|agreed| agreed.words)
        })
    };
    assert_eq!(check("c1 'a b'", &[&["c1", "a b"]]), Some(Ok(2)));
    assert!(matches!(
        check("c1 'a b'", &[&["c1", "a", "b"]]),
        Some(Err(_))
    ));
    assert!(matches!(check("c1 a; c2", &[&["c1", "a"]]), Some(Err(_))));
    assert!(matches!(
        check("c1 \"$v.x\"", &[&["c1", "a", "b.x"]]),
        Some(Err(_))
    ));
    assert!(matches!(
        check("c1 \"$v.x\"", &[&["c1", "a b.y"]]),
        Some(Err(_))
    ));
    assert_eq!(check("c1 \"$v.x\"", &[&["c1", "a b.x"]]), Some(Ok(1)));
    assert!(check("c1 {a,b}", &[&["c1", "a", "b"]]).is_none());
    let given = Given::new(work, "cd d && c1 <<<x");
    let reading = Reading::of(&given).unwrap();
    let mut ran = RunOutput {
        input: Some(b"x\n".to_vec()),
        ..RunOutput::plain(Path::new("/w/d"), &["c1"])
    };
    assert!(
        reading
            .compare(std::slice::from_ref(&ran), &Expansions::default())
            .is_ok()
    );
    ran.input = Some(b"y\n".to_vec());
    assert!(
        reading
            .compare(std::slice::from_ref(&ran), &Expansions::default())
            .is_err()
    );
    let elsewhere = RunOutput {
        input: None,
        ..RunOutput::plain(work, &["c1"])
    };
    assert!(
        reading
            .compare(&[elsewhere], &Expansions::default())
            .is_err()
    );
}

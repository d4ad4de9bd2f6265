//! Which commands verify something.

/// What a recognised command checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// Named in the configuration.
    Configured,
    /// Runs tests.
    Tests,
    /// Builds or type-checks.
    Build,
    /// Lints or checks formatting.
    Lint,
}

/// Recognises a command by its words. `configured` holds patterns in the syntax of bash rules: literal
/// words, `*` inside a word stays inside it, a final `*` stands for any further words.
#[must_use]
pub fn recognise(words: &[String], configured: &[Vec<String>]) -> Option<Runner> {
    if configured.iter().any(|pattern| covers(pattern, words)) {
        return Some(Runner::Configured);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (program, arguments) = words.split_first()?;
    let program = program.rsplit('/').next().unwrap_or(program);
    known(program, arguments)
}

/// Options that change what a runner prints, or how it goes about it, and not what it checks.
const PRINTING: &[&str] = &[
    "-q",
    "-qq",
    "--quiet",
    "-v",
    "-vv",
    "-vvv",
    "--verbose",
    "--nocapture",
    "--no-capture",
    "--show-output",
    "--no-header",
    "--no-summary",
    "--no-fail-fast",
    "--failfast",
    "--output-on-failure",
    "--silent",
    "--progress",
    "-rA",
    "-ra",
    "-rf",
];
/// The same, with a value behind `=`.
const PRINTING_WITH_VALUE: &[&str] = &[
    "--color",
    "--colors",
    "--tb",
    "--message-format",
    "--reporter",
    "--reporters",
    "--durations",
    "--maxfail",
    "-count",
];

/// The words by which a check is known again: its program by name alone, without options that only
/// change what is printed.
#[must_use]
pub fn check_of(words: &[String]) -> Vec<String> {
    let Some((program, arguments)) = words.split_first() else {
        return Vec::new();
    };
    let name = program.rsplit('/').next().unwrap_or(program);
    let name = match name {
        // A script's directory says which script it is.
        _ if name.contains('.') && name != "py.test" => program.as_str(),
        "python3" => "python",
        other => other,
    };
    let is_pytest = name == "pytest" || arguments.iter().any(|word| word == "pytest");
    let prints = |word: &str| {
        let option = word.split_once('=').map_or(word, |(option, _)| option);
        PRINTING.contains(&word)
            || (word.contains('=') && PRINTING_WITH_VALUE.contains(&option))
            || (is_pytest && matches!(word, "-s" | "-x" | "--exitfirst"))
    };
    let kept = arguments.iter().filter(|word| !prints(word));
    let mut check: Vec<String> = [name.to_owned()].into_iter().chain(kept.cloned()).collect();
    if check.last().is_some_and(|word| word == "--") {
        check.pop();
    }
    check
}

/// Options that only print something, or stop before anything is checked, make the run no
/// verification, whatever the program.
const PRINTS_ONLY: &[&str] = &[
    "--help",
    "-h",
    "--version",
    "-V",
    "--list",
    "--list-tests",
    "--listtests",
    "--listTests",
    "--list-suites",
    "--listenvs",
    "--co",
    "--collect-only",
    "--setup-plan",
    "--setup-only",
    "--fixtures",
    "--markers",
    "--show-only",
    "--dry",
    "--dry-run",
    "--just-print",
    "--recon",
    "--question",
    "--touch",
    "--no-run",
    "--nobuild",
    "--init",
    "--print-config",
    "--showConfig",
];

/// Short options that do so for one program and mean something else for the next.
const PRINTS_ONLY_OF: &[(&[&str], &[&str])] = &[
    (&["make", "gmake"], &["-n", "-q", "-t"]),
    (&["just", "task"], &["-n", "-l"]),
    (&["ninja"], &["-n", "-t"]),
    (&["rake"], &["-n", "-P", "-T"]),
    (&["ctest"], &["-N"]),
    (&["go"], &["-c", "-list", "-n"]),
    (&["gradle", "gradlew"], &["-m"]),
    (&["tox", "nox"], &["-l"]),
    (&["prove"], &["-D"]),
    (&["bats"], &["-c", "--count"]),
    (&["dotnet"], &["-t"]),
];

/// Programs that go on after they have said their version, or mean something else by it.
const RUNS_WITH_V: &[&str] = &["ctest", "mvn", "mvnw"];

fn prints_only(program: &str, arguments: &[&str]) -> bool {
    let own = PRINTS_ONLY_OF
        .iter()
        .filter(|(programs, _)| programs.contains(&program))
        .flat_map(|(_, options)| options.iter());
    let own: Vec<&str> = own.copied().collect();
    arguments.iter().any(|word| {
        let generic = PRINTS_ONLY.contains(word);
        let runs = *word == "-V" && RUNS_WITH_V.contains(&program);
        (generic && !runs) || own.contains(word)
    })
}

fn known(program: &str, arguments: &[&str]) -> Option<Runner> {
    use Runner::{Build, Lint, Tests};
    let first = arguments
        .iter()
        .find(|word| !word.starts_with(['-', '+']))
        .copied()
        .unwrap_or("");
    let runner = match (program, first) {
        ("cargo", "test" | "t") => Tests,
        ("cargo", "nextest") if arguments.iter().any(|word| matches!(*word, "run" | "r")) => Tests,
        ("cargo", "build" | "b" | "check" | "c") => Build,
        ("cargo", "clippy") => Lint,
        // Without this it changes files instead of judging them.
        ("cargo", "fmt") if arguments.contains(&"--check") => Lint,
        ("npm" | "pnpm" | "yarn" | "bun", "test" | "t" | "tst") => Tests,
        ("npm" | "pnpm" | "yarn" | "bun", "run" | "run-script") => match script_name(arguments)? {
            name if name.starts_with("test") => Tests,
            name if name.starts_with("build") || name.starts_with("typecheck") => Build,
            name if name.starts_with("lint") => Lint,
            _ => return None,
        },
        ("npx" | "bunx", "jest" | "vitest" | "mocha") => Tests,
        ("npx" | "bunx", "tsc") => Build,
        ("npx" | "bunx", "eslint") => Lint,
        ("python" | "python3", _) => python(arguments)?,
        ("uv" | "poetry" | "hatch" | "pipenv", "run") => {
            let at = arguments.iter().position(|word| *word == "run")? + 1;
            let (inner, rest) = arguments.get(at..)?.split_first()?;
            return known(inner, rest);
        }
        ("bundle", "exec") => {
            let (inner, rest) = arguments.get(1..)?.split_first()?;
            return known(inner, rest);
        }
        (
            "pytest" | "py.test" | "tox" | "nox" | "jest" | "vitest" | "mocha" | "ava" | "rspec"
            | "phpunit" | "ctest" | "prove" | "bats" | "ginkgo" | "gotestsum" | "nosetests",
            _,
        ) => Tests,
        ("tsc" | "mypy" | "pyright", _) => Build,
        ("ruff", "check")
        | ("eslint" | "flake8" | "pylint" | "golangci-lint" | "shellcheck", _) => Lint,
        ("go", "test") => Tests,
        ("go", "build" | "vet") => Build,
        ("make" | "gmake", _) => make(arguments)?,
        ("ninja" | "meson" | "just" | "task" | "rake", "test" | "check" | "spec") => Tests,
        ("mvn" | "mvnw" | "gradle" | "gradlew", _) => java(arguments)?,
        (
            "dotnet" | "swift" | "mix" | "zig" | "deno" | "sbt" | "stack" | "cabal" | "dune"
            | "elixir" | "flutter" | "dart" | "bazel",
            "test",
        ) => Tests,
        ("dotnet" | "swift" | "zig" | "bazel", "build") => Build,
        ("node", _) if arguments.contains(&"--test") => Tests,
        ("sh" | "bash" | "dash" | "zsh", _) if names_test(script_of_shell(arguments)?) => Tests,
        _ if names_test(program)
            && (program.ends_with(".sh")
                || program.starts_with("run-tests")
                || program.starts_with("run_tests")) =>
        {
            Tests
        }
        _ => return None,
    };
    (!prints_only(program, arguments)).then_some(runner)
}

/// The script a shell is given to run; none when it takes words in place of one, or only reads it.
fn script_of_shell<'a>(arguments: &[&'a str]) -> Option<&'a str> {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match *word {
            "-o" | "+o" | "-O" | "+O" => {
                if *words.next()? == "noexec" {
                    return None;
                }
            }
            "--" => return words.next().copied(),
            long if long.starts_with("--") => {}
            short if short.starts_with('-') => {
                if short.contains(['c', 'n', 's']) {
                    return None;
                }
            }
            other if other.starts_with('+') => {}
            script => return Some(script),
        }
    }
    None
}

fn script_name<'a>(arguments: &[&'a str]) -> Option<&'a str> {
    let at = arguments
        .iter()
        .position(|word| *word == "run" || *word == "run-script")?;
    arguments
        .get(at + 1..)?
        .iter()
        .find(|word| !word.starts_with('-'))
        .copied()
}

fn python(arguments: &[&str]) -> Option<Runner> {
    let module = arguments
        .windows(2)
        .find(|pair| pair[0] == "-m")
        .map(|pair| pair[1]);
    match module {
        Some("pytest" | "unittest" | "nose2" | "tox") => Some(Runner::Tests),
        Some("mypy") => Some(Runner::Build),
        Some(_) => None,
        None => {
            let script = arguments.iter().find(|word| !word.starts_with('-'))?;
            let manage = script.ends_with("manage.py") && arguments.contains(&"test");
            (names_test(script) || manage).then_some(Runner::Tests)
        }
    }
}

fn make(arguments: &[&str]) -> Option<Runner> {
    let targets = || {
        arguments
            .iter()
            .filter(|word| !word.starts_with('-') && !word.contains('='))
    };
    let tests = targets().any(|target| {
        matches!(*target, "check" | "spec")
            || target.starts_with("test")
            || target.ends_with("-test")
            || target.ends_with("-tests")
    });
    if tests {
        return Some(Runner::Tests);
    }
    if targets().any(|target| target.starts_with("lint")) {
        return Some(Runner::Lint);
    }
    let builds =
        targets().next().is_none() || targets().any(|target| matches!(*target, "all" | "build"));
    builds.then_some(Runner::Build)
}

fn java(arguments: &[&str]) -> Option<Runner> {
    let excluded = |at: usize| {
        at.checked_sub(1)
            .is_some_and(|before| matches!(arguments[before], "-x" | "--exclude-task"))
    };
    let goal = |names: &[&str]| {
        arguments.iter().enumerate().any(|(at, word)| {
            !excluded(at) && names.contains(&word.rsplit(':').next().unwrap_or(word))
        })
    };
    let skipped = (0..arguments.len()).any(|at| {
        let word = arguments[at];
        let is_test = word.rsplit(':').next() == Some("test");
        let off = ["-DskipTests", "-DskipITs", "-Dmaven.test.skip"]
            .iter()
            .any(|option| word.starts_with(option));
        (off && !word.ends_with("=false")) || (is_test && excluded(at))
    });
    if skipped {
        // What is left is that it compiles.
        return goal(&["test", "verify", "check", "install", "package", "build"])
            .then_some(Runner::Build);
    }
    if goal(&["test", "verify", "check", "install", "integration-test"]) {
        Some(Runner::Tests)
    } else if goal(&["compile", "build", "package", "assemble"]) {
        Some(Runner::Build)
    } else {
        None
    }
}

/// Whether a script's file name says that it tests: `test.sh`, `run-tests`, `tests/unit_test.py`.
fn names_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split(|character: char| !character.is_ascii_alphanumeric())
        .any(|word| {
            matches!(
                word.to_ascii_lowercase().as_str(),
                "test" | "tests" | "spec" | "specs" | "check"
            )
        })
}

fn covers(pattern: &[String], words: &[String]) -> bool {
    let (fixed, open) = match pattern.split_last() {
        Some((last, rest)) if last == "*" => (rest, true),
        _ => (pattern, false),
    };
    let long_enough = if open {
        words.len() >= fixed.len()
    } else {
        words.len() == fixed.len()
    };
    !pattern.is_empty()
        && long_enough
        && fixed
            .iter()
            .zip(words)
            .all(|(pattern, word)| word_matches(pattern, word))
}

fn word_matches(pattern: &str, word: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(first) = parts.next() else {
        return false;
    };
    let Some(mut rest) = word.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &str, expected: Option<Runner>) {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let configured = [vec!["./ci".to_owned(), "fast*".to_owned(), "*".to_owned()]];
        assert_eq!(recognise(&words, &configured), expected, "{command}");
    }

    #[test]
    fn runners_are_known_by_their_words() {
        for tests in [
            "cargo test",
            "cargo +nightly test -p a",
            "cargo nextest run",
            "npm test",
            "npm run test:unit",
            "pnpm -s test",
            "yarn test",
            "pytest -n 4 -q",
            "python3 -m pytest",
            "python -m unittest discover",
            "python manage.py test",
            "go test ./...",
            "make test",
            "make -j2 check",
            "ctest",
            "mvn -q test",
            "./gradlew :app:check",
            "npx jest",
            "rspec",
            "sh test.sh",
            "bash scripts/run-tests.sh",
            "./test.sh",
            "uv run pytest",
            "bundle exec rspec",
            "node --test",
            "dotnet test",
            "mix test",
            "python tests/test_sum.py",
            "ctest -V",
            "mvn -V verify",
            "mvn verify -DskipTests=false",
            "bash -eux -o pipefail test.sh -n",
            "sh -- test.sh",
            "go test -v -count=1 ./...",
        ] {
            check(tests, Some(Runner::Tests));
        }
        check("cargo build --release", Some(Runner::Build));
        check("make", Some(Runner::Build));
        check("npx tsc --noEmit", Some(Runner::Build));
        check("cargo clippy", Some(Runner::Lint));
        check("npm run lint", Some(Runner::Lint));
        check("cargo fmt --all --check", Some(Runner::Lint));
        check("mvn install -DskipTests", Some(Runner::Build));
        check("./gradlew build -x test", Some(Runner::Build));
        check("./ci fast-tests --all", Some(Runner::Configured));
    }

    #[test]
    fn a_check_is_known_again_whatever_it_prints() {
        let check = |words: &str, expected: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            assert_eq!(check_of(&words).join(" "), expected);
        };
        check("/usr/bin/pytest -q -x tests", "pytest tests");
        check("python3 -m pytest --tb=short -s", "python -m pytest");
        check("cargo test -- --nocapture", "cargo test");
        check("./scripts/test.sh -v", "./scripts/test.sh");
        check("make -s test", "make -s test");
    }

    #[test]
    fn looking_is_not_verifying() {
        for other in [
            "cargo test --help",
            "cargo test --no-run",
            "pytest --collect-only",
            "make -n test",
            "npm run start",
            "cat test.sh",
            "sh -c test",
            "echo cargo test",
            "git status",
            "python script.py",
            "ls tests",
            "npm install",
            "./ci slow",
            "cargo metadata",
            "bash deploy.sh",
            "latest.sh",
            "make clean",
            "sh -n test.sh",
            "bash -xn scripts/run-tests.sh",
            "bash -o noexec test.sh",
            "bash -ec test",
            "sh -s test",
            "cargo fmt",
            "cargo nextest list",
            "ctest -N",
            "go test -c ./...",
            "go test -list .",
            "make -q test",
            "gradle test -m",
            "phpunit --list-tests",
            "pytest --co",
            "tox -l",
            "bats --count tests.bats",
        ] {
            check(other, None);
        }
    }
}

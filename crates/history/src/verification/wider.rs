//! Which check answers which: the same one, or a wider run of the same runner.

/// A runner whose arguments are understood well enough to say which run is wider.
struct Runner {
    /// The words it begins with, one of several ways.
    names: &'static [&'static str],
    /// Options with a value that make a run narrower.
    narrowing: &'static [&'static str],
    /// Options without one that do.
    narrowing_flags: &'static [&'static str],
    operands: Operands,
}

/// What words without a dash choose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operands {
    /// Tests by name; none means all.
    Names,
    /// Files and directories; none means all.
    Paths,
    /// Packages of Go; none means the one here.
    Packages,
}

const JAVASCRIPT: &[&str] = &[
    "npm test",
    "npm run test",
    "pnpm test",
    "pnpm run test",
    "yarn test",
    "yarn run test",
    "bun test",
    "jest",
    "vitest",
    "vitest run",
    "mocha",
    "npx jest",
    "npx vitest",
    "npx vitest run",
    "npx mocha",
];

const RUNNERS: &[Runner] = &[
    Runner {
        names: &["cargo test", "cargo t", "cargo nextest run"],
        narrowing: &["--test", "--bin", "--example", "--bench", "-E"],
        narrowing_flags: &["--lib", "--bins", "--tests", "--doc", "--exact"],
        operands: Operands::Names,
    },
    Runner {
        names: &["pytest", "py.test", "python -m pytest"],
        narrowing: &["-k", "-m", "--deselect", "--ignore"],
        narrowing_flags: &["--lf", "--last-failed", "--ff", "--failed-first", "--sw"],
        operands: Operands::Paths,
    },
    Runner {
        names: &["python -m unittest", "python -m unittest discover"],
        narrowing: &["-k"],
        narrowing_flags: &[],
        operands: Operands::Names,
    },
    Runner {
        names: &["go test"],
        narrowing: &["-run", "-skip"],
        narrowing_flags: &[],
        operands: Operands::Packages,
    },
    Runner {
        names: JAVASCRIPT,
        narrowing: &[
            "-t",
            "--testNamePattern",
            "-g",
            "--grep",
            "--testPathPattern",
        ],
        narrowing_flags: &["-o", "--onlyChanged", "--bail"],
        operands: Operands::Paths,
    },
    Runner {
        names: &["rspec"],
        narrowing: &["-e", "--example", "-t", "--tag"],
        narrowing_flags: &["--only-failures", "--next-failure"],
        operands: Operands::Paths,
    },
    Runner {
        names: &["phpunit"],
        narrowing: &["--filter", "--testsuite", "--group"],
        narrowing_flags: &[],
        operands: Operands::Paths,
    },
    Runner {
        names: &["ctest"],
        narrowing: &["-R", "-L", "-E", "--tests-regex"],
        narrowing_flags: &["--rerun-failed"],
        operands: Operands::Names,
    },
];

/// A check taken apart.
struct Parts<'a> {
    runner: &'a Runner,
    name: &'static str,
    /// Options that do not choose tests, in order.
    options: Vec<&'a str>,
    narrowing: Vec<(&'a str, &'a str)>,
    operands: Vec<&'a str>,
}

/// True if the check `passed` ran everything that the check `failed` did.
#[must_use]
pub fn answers(passed: &[String], failed: &[String]) -> bool {
    if passed == failed {
        return true;
    }
    if built_by_testing(passed, failed) {
        return true;
    }
    let (Some(wide), Some(narrow)) = (parts(passed), parts(failed)) else {
        return false;
    };
    // `pytest` and `python -m pytest` are one; `cargo test` and `cargo nextest` run different tests.
    let is_same = wide.name == narrow.name || wide.runner.names[0] == "pytest";
    if !std::ptr::eq(wide.runner, narrow.runner) || !is_same {
        return false;
    }
    let same_options = if wide.options.contains(&"--workspace") || wide.options.contains(&"--all") {
        without_packages(&wide.options) == without_packages(&narrow.options)
    } else {
        wide.options == narrow.options
    };
    let no_narrower = wide
        .narrowing
        .iter()
        .all(|one| narrow.narrowing.contains(one));
    same_options && no_narrower && covers(&wide, &narrow)
}

/// Nothing is tested that was not built: `cargo test` answers `cargo build` with the same options.
fn built_by_testing(passed: &[String], failed: &[String]) -> bool {
    let texts = |words: &[String]| {
        words
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let (passed, failed) = (texts(passed), texts(failed));
    let rest = |text: &str, names: &[&str]| {
        let mut found = names.iter().filter_map(|name| text.strip_prefix(name));
        found.next().map(str::to_owned)
    };
    let tested = rest(&passed, &["cargo test"]).map(|rest| ("cargo", rest));
    let tested = tested.or_else(|| Some(("go", rest(&passed, &["go test"])?)));
    let built = rest(&failed, &["cargo build", "cargo check"]).map(|rest| ("cargo", rest));
    let built = built.or_else(|| Some(("go", rest(&failed, &["go build"])?)));
    tested.is_some() && tested == built
}

fn parts(words: &[String]) -> Option<Parts<'_>> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let begins = |name: &&'static str| {
        let mut of_name = name.split(' ');
        let count = name.split(' ').count();
        words.len() >= count
            && words[..count]
                .iter()
                .all(|word| of_name.next() == Some(word))
    };
    let (runner, name) = RUNNERS
        .iter()
        .flat_map(|runner| runner.names.iter().map(move |name| (runner, *name)))
        .filter(|(_, name)| begins(name))
        .max_by_key(|(_, name)| name.len())?;
    let mut parts = Parts {
        runner,
        name,
        options: Vec::new(),
        narrowing: Vec::new(),
        operands: Vec::new(),
    };
    let mut rest = words[name.split(' ').count()..].iter().copied();
    while let Some(word) = rest.next() {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word, None),
        };
        if word == "--" {
            continue;
        } else if runner.narrowing.contains(&option) {
            let value = value.or_else(|| rest.next()).unwrap_or_default();
            parts.narrowing.push((option, value));
        } else if runner.narrowing_flags.contains(&option) {
            parts.narrowing.push((option, ""));
        } else if word.starts_with('-') {
            parts.options.push(word);
            if takes_a_value(word) {
                parts.options.extend(rest.next());
            }
        } else {
            parts.operands.push(word);
        }
    }
    Some(parts)
}

/// Options whose value would otherwise be taken for an operand.
fn takes_a_value(option: &str) -> bool {
    const WITH_VALUE: &[&str] = &[
        "-p",
        "--package",
        "--exclude",
        "--features",
        "-F",
        "--profile",
        "--target",
        "--manifest-path",
        "--config",
        "-c",
        "-C",
        "--rootdir",
        "--prefix",
        "-s",
        "--start-directory",
        "--test-dir",
        "-tags",
    ];
    WITH_VALUE.contains(&option)
}

fn without_packages<'a>(options: &[&'a str]) -> Vec<&'a str> {
    let mut left = Vec::new();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--workspace" | "--all" => {}
            "-p" | "--package" => drop(options.next()),
            other => left.push(other),
        }
    }
    left
}

fn covers(wide: &Parts<'_>, narrow: &Parts<'_>) -> bool {
    let covered = |narrow: &str| {
        let mut wide = wide.operands.iter();
        wide.any(
            |wide| match narrow.strip_prefix(wide.trim_end_matches('/')) {
                Some(rest) => rest.is_empty() || rest.starts_with('/') || rest.starts_with("::"),
                None => false,
            },
        )
    };
    match wide.runner.operands {
        Operands::Packages => {
            let here = ["."];
            let all = |operands: &[&'_ str]| operands.is_empty();
            let of_wide = if all(&wide.operands) {
                &here[..]
            } else {
                &wide.operands
            };
            let of_narrow = if all(&narrow.operands) {
                &here[..]
            } else {
                &narrow.operands
            };
            of_narrow.iter().all(|package| {
                of_wide.iter().any(|wide| {
                    wide == package
                        || wide.strip_suffix("/...").is_some_and(|below| {
                            package
                                .strip_prefix(below)
                                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                        })
                })
            })
        }
        _ if wide.operands.is_empty() => true,
        Operands::Names => wide.operands == narrow.operands,
        Operands::Paths => {
            !narrow.operands.is_empty() && narrow.operands.iter().all(|one| covered(one))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(passed: &str, failed: &str, expected: bool) {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let found = answers(&words(passed), &words(failed));
        assert_eq!(found, expected, "{passed} after {failed}");
    }

    #[test]
    fn a_wider_run_of_the_same_runner_answers() {
        check("cargo test", "cargo test one", true);
        check("cargo test", "cargo test --test behaviour one", true);
        check("cargo test --workspace", "cargo test -p engine one", true);
        check("cargo test", "cargo build", true);
        check("pytest", "pytest tests/test_a.py::test_x", true);
        check("pytest tests", "pytest tests/test_a.py -k x", true);
        check(
            "python -m unittest",
            "python -m unittest tests.test_a",
            true,
        );
        check("go test ./...", "go test ./pkg -run TestX", true);
        check("go test ./...", "go test", true);
        check("npm test", "npm test -- src/a.test.js", true);
        check("rspec", "rspec spec/a_spec.rb:12", true);
        check("pytest", "python -m pytest tests", true);
    }

    #[test]
    fn nothing_else_does() {
        check("make lint", "sh test.sh", false);
        check("cargo test one", "cargo test", false);
        check("cargo test", "cargo test --all-features", false);
        check("cargo test", "cargo test --workspace", false);
        check("cargo test", "cargo test -p engine", false);
        check("cargo clippy", "cargo test", false);
        check("cargo build", "cargo test", false);
        check("go test ./a", "go test ./b", false);
        check("go test", "go test ./...", false);
        check("pytest tests/unit", "pytest tests/integration", false);
        check("pytest tests/a", "pytest", false);
        check("sh test.sh", "sh test.sh unit", false);
        check("npm test", "pnpm test", false);
    }
}

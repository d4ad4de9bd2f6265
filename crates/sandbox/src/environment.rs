//! The environment of a command, built from nothing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `PATH` used when the host has none.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Taken over from the host when present.
const KEPT: [&str; 6] = ["PATH", "USER", "LOGNAME", "LANG", "TZ", "SHELL"];

/// Parts of names of host variables that are never passed on, even when the user listed them: these carry secrets or
/// choose code that runs in every program.
const NEVER_CONTAINS: [&str; 5] = ["KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL"];
const NEVER_BEGINS: [&str; 11] = [
    "AWS_",
    "GPG_",
    "DBUS_",
    "LD_",
    "BASH_FUNC_",
    "GIT_",
    "PYTHON",
    "PERL5",
    "GCONV_",
    "MALLOC_",
    "SSH_",
];
const NEVER_IS: [&str; 17] = [
    "XDG_RUNTIME_DIR",
    "DOCKER_HOST",
    "KUBECONFIG",
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "NODE_OPTIONS",
    "RUBYOPT",
    "RUBYLIB",
    "IFS",
    "CDPATH",
    "SHELLOPTS",
    "BASHOPTS",
    "GLOBIGNORE",
    "PS4",
    "JAVA_TOOL_OPTIONS",
    "LOCPATH",
];

/// True if a variable of the host may never reach a command.
pub fn is_forbidden(name: &OsStr) -> bool {
    let name = name.as_bytes().to_ascii_uppercase();
    let contains = |part: &str| {
        name.windows(part.len())
            .any(|window| window == part.as_bytes())
    };
    NEVER_CONTAINS.iter().any(|part| contains(part))
        || NEVER_BEGINS
            .iter()
            .any(|start| name.starts_with(start.as_bytes()))
        || NEVER_IS.iter().any(|whole| name == whole.as_bytes())
        || name.ends_with(b"_PROXY")
        || name.is_empty()
        || name.contains(&b'=')
        || name.contains(&0)
}

/// Builds the environment: the few names every program expects from `host`, the host's values
/// of `passed` names (forbidden ones are left out), and `set` as given. No pager, no editor,
/// no colour, no prompts. `HOME` and `TMPDIR` are the sandbox's own business.
pub fn build(
    host: &[(OsString, OsString)],
    passed: &[OsString],
    set: &[(OsString, OsString)],
) -> Vec<(OsString, OsString)> {
    let mut built: Vec<(OsString, OsString)> = Vec::new();
    let mut put =
        |name: &OsStr, value: &OsStr| match built.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value.to_owned(),
            None => built.push((name.to_owned(), value.to_owned())),
        };
    put(OsStr::new("PATH"), OsStr::new(SYSTEM_PATH));
    for (name, value) in host {
        let kept = KEPT.iter().any(|kept| name == kept) || name.as_bytes().starts_with(b"LC_");
        if (kept || passed.contains(name)) && !is_forbidden(name) {
            put(name, value);
        }
    }
    for (name, value) in [
        ("TERM", "dumb"),
        ("PAGER", "cat"),
        ("GIT_PAGER", "cat"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_EDITOR", "true"),
        ("EDITOR", "true"),
        ("NO_COLOR", "1"),
    ] {
        put(OsStr::new(name), OsStr::new(value));
    }
    for (name, value) in set {
        put(name, value);
    }
    built
}

/// The names that remain for [`reading`], and beginnings of such.
const READING: [&str; 22] = [
    "PATH",
    "USER",
    "LOGNAME",
    "LANG",
    "TZ",
    "SHELL",
    "TERM",
    "PAGER",
    "EDITOR",
    "NO_COLOR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "NVM_DIR",
    "VOLTA_HOME",
    "PYENV_ROOT",
    "RYE_HOME",
    "MISE_DATA_DIR",
    "ASDF_DATA_DIR",
    "RBENV_ROOT",
    "SDKMAN_DIR",
    "DOTNET_ROOT",
    "GOPATH",
];
const READING_BEGINS: [&str; 2] = ["LC_", "GIT_"];

/// Settings of git that leave it nothing of the repository to run, as far as settings can: drivers that
/// a repository names itself cannot be disabled.
const GIT_RUNS_NOTHING: [(&str, &str); 8] = [
    ("core.fsmonitor", "false"),
    ("log.showSignature", "false"),
    ("safe.bareRepository", "explicit"),
    // A format in the settings may ask for a signature too.
    ("gpg.program", "false"),
    ("gpg.openpgp.program", "false"),
    ("gpg.x509.program", "false"),
    ("gpg.ssh.program", "false"),
    ("core.alternateRefsCommand", "false"),
];

/// The same for commits: no hook is started, no list of steps edited, and no configuration written, which could not be.
const GIT_COMMITS: [(&str, &str); 2] = [
    ("core.hooksPath", "/dev/null"),
    ("branch.autoSetupMerge", "false"),
];

/// Environment of a command that may commit although nobody was asked: git is set to run nothing that the repository
/// names, and to fetch nothing.
pub fn committing(environment: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let mut kept = environment.to_vec();
    run_nothing(&mut kept, &[&GIT_RUNS_NOTHING[..], &GIT_COMMITS].concat());
    put(&mut kept, "GIT_SEQUENCE_EDITOR", "true");
    kept
}

fn put(environment: &mut Vec<(OsString, OsString)>, name: &str, value: &str) {
    environment.retain(|(known, _)| known != name);
    environment.push((name.into(), value.into()));
}

/// Gives git these settings before all others, and keeps it from fetching.
fn run_nothing(environment: &mut Vec<(OsString, OsString)>, settings: &[(&str, &str)]) {
    // Without these a repository could have objects fetched, by a program it names.
    put(environment, "GIT_NO_LAZY_FETCH", "1");
    put(environment, "GIT_ALLOW_PROTOCOL", "none");
    put(environment, "GIT_CONFIG_COUNT", &settings.len().to_string());
    for (number, (key, value)) in settings.iter().enumerate() {
        put(environment, &format!("GIT_CONFIG_KEY_{number}"), key);
        put(environment, &format!("GIT_CONFIG_VALUE_{number}"), value);
    }
}

/// Environment of a command that runs without approval: of the one given, what every program
/// expects, without anything that leads into `project` (a `PATH` entry there, a relative or an empty
/// one, a tool directory) and without what the user passes to commands they allow. Git is set to run
/// nothing that the repository names.
pub fn reading(
    environment: &[(OsString, OsString)],
    project: &[PathBuf],
) -> Vec<(OsString, OsString)> {
    let leads_inside = |path: &Path| {
        let real = std::fs::canonicalize(path);
        let real = real.as_deref().unwrap_or(path);
        !path.is_absolute()
            || [path, real]
                .iter()
                .any(|path| project.iter().any(|root| path.starts_with(root)))
    };
    let mut kept = Vec::new();
    for (name, value) in environment {
        let known = READING.iter().any(|known| name == known)
            || READING_BEGINS
                .iter()
                .any(|start| name.as_bytes().starts_with(start.as_bytes()));
        let is_locale = name == "LANG" || name.as_bytes().starts_with(b"LC_");
        if !known || is_locale && !value.to_str().is_some_and(agent_text::reads_as_utf8) {
            continue;
        }
        if name == "PATH" {
            let entries = std::env::split_paths(value).filter(|entry| !leads_inside(entry));
            let path = std::env::join_paths(entries).unwrap_or_default();
            let path = if path.is_empty() {
                SYSTEM_PATH.into()
            } else {
                path
            };
            kept.push((name.clone(), path));
        } else if !value.as_bytes().starts_with(b"/") || !leads_inside(Path::new(value)) {
            kept.push((name.clone(), value.clone()));
        }
    }
    run_nothing(&mut kept, &GIT_RUNS_NOTHING);
    // What is above the project may be covered by something empty, which is no end of a search to tell of.
    put(&mut kept, "GIT_DISCOVERY_ACROSS_FILESYSTEM", "1");
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(values: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        values
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    fn check(host: &[(&str, &str)], passed: &[&str], name: &str, expected: Option<&str>) {
        let passed: Vec<OsString> = passed.iter().map(OsString::from).collect();
        let built = build(&pairs(host), &passed, &pairs(&[("SET", "1")]));
        let found = built
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.to_str().unwrap());
        assert_eq!(found, expected, "{name} from {host:?} passing {passed:?}");
        assert!(built.contains(&("SET".into(), "1".into())));
    }

    #[test]
    fn only_listed_and_harmless_names_pass() {
        check(&[("PATH", "/a")], &[], "PATH", Some("/a"));
        check(&[], &[], "PATH", Some("/usr/local/bin:/usr/bin:/bin"));
        check(&[("LC_ALL", "C")], &[], "LC_ALL", Some("C"));
        check(&[("MINE", "1")], &[], "MINE", None);
        check(&[("MINE", "1")], &["MINE"], "MINE", Some("1"));
        for name in [
            "OPENAI_API_KEY",
            "github_token",
            "MY_SECRET",
            "DB_PASSWORD",
            "AWS_REGION",
            "SSH_AUTH_SOCK",
            "LD_PRELOAD",
            "BASH_ENV",
            "BASH_FUNC_ls%%",
            "GIT_DIR",
            "PYTHONPATH",
            "https_proxy",
            "IFS",
            "NODE_OPTIONS",
            "XDG_RUNTIME_DIR",
            "DOCKER_HOST",
            "SHELLOPTS",
        ] {
            check(&[(name, "1")], &[name], name, None);
        }
        check(&[("TERM", "xterm")], &[], "TERM", Some("dumb"));
        check(&[("HOME", "/home/a")], &[], "HOME", None);
    }

    #[test]
    fn nothing_of_the_project_is_in_the_environment_of_a_reader() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        let project = root.join("project");
        std::fs::create_dir_all(project.join(".venv/bin")).unwrap();
        std::fs::create_dir(root.join("tools")).unwrap();
        std::os::unix::fs::symlink(project.join(".venv/bin"), root.join("link")).unwrap();
        let path = format!(
            "{0}/project/.venv/bin:.::bin:{0}/link:{0}/tools:/usr/bin",
            root.display()
        );
        let inside = project.display().to_string();
        let given = pairs(&[
            ("PATH", &path),
            ("LC_ALL", "C"),
            ("LC_CTYPE", "zh_TW.BIG5"),
            ("LANG", "de_DE.UTF-8"),
            ("CARGO_HOME", &inside),
            ("RIPGREP_CONFIG_PATH", "/etc/rg"),
            ("GIT_PAGER", "cat"),
            ("MINE", "1"),
        ]);
        let kept = reading(&given, std::slice::from_ref(&project));
        let value = |name: &str| {
            let found = kept.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.to_str().unwrap())
        };
        let expected = format!("{}/tools:/usr/bin", root.display());
        assert_eq!(value("PATH"), Some(expected.as_str()));
        for name in ["CARGO_HOME", "RIPGREP_CONFIG_PATH", "MINE"] {
            assert_eq!(value(name), None, "{name}");
        }
        assert_eq!(value("LC_ALL"), Some("C"));
        assert_eq!(value("LC_CTYPE"), None);
        assert_eq!(value("LANG"), Some("de_DE.UTF-8"));
        assert_eq!(value("GIT_PAGER"), Some("cat"));
        assert_eq!(value("GIT_CONFIG_KEY_0"), Some("core.fsmonitor"));
        let only_inside = pairs(&[("PATH", &inside)]);
        let kept = reading(&only_inside, &[project]);
        assert!(kept.contains(&("PATH".into(), SYSTEM_PATH.into())));
    }
}

//! The environment of a command, built from nothing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Taken over from the host when present.
const KEPT: [&str; 6] = ["PATH", "USER", "LOGNAME", "LANG", "TZ", "SHELL"];

/// What a host variable must not look like even when the user listed it: these carry secrets
/// or choose code that runs in every program.
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

/// Whether a variable of the host may never reach a command.
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
    put(
        OsStr::new("PATH"),
        OsStr::new("/usr/local/bin:/usr/bin:/bin"),
    );
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
}

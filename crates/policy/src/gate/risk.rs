//! What a person should know before saying yes, as facts.

use agent_protocol::payload::permission::Access;
use serde_json::Value as Json;

use super::command::CommandJudgement;
use super::evaluate::{Judging, SandboxLevel};
use super::words::without_global_options;
use crate::Confinement;
use crate::shell::word::{Value, Word};
use crate::shell::{Analysis, RedirectKind};

/// Programs that run what the project's files say.
const RUNS_PROJECT_CODE: &[(&str, &[&str], &str)] = &[
    (
        "npm",
        &[
            "test",
            "run",
            "start",
            "exec",
            "t",
            "run-script",
            "ci",
            "install",
            "i",
        ],
        "scripts from the project's `package.json`",
    ),
    ("pnpm", &[], "scripts from the project's `package.json`"),
    ("yarn", &[], "scripts from the project's `package.json`"),
    ("bun", &[], "scripts from the project's `package.json`"),
    (
        "npx",
        &[],
        "a program from the project's packages or the registry",
    ),
    (
        "cargo",
        &[
            "test", "build", "run", "check", "bench", "clippy", "nextest", "doc",
        ],
        "build scripts, macros and tests of the project and its dependencies",
    ),
    ("make", &[], "commands from the project's Makefile"),
    ("just", &[], "commands from the project's justfile"),
    (
        "go",
        &["test", "run", "generate", "build"],
        "the project's Go code or generators",
    ),
    ("pytest", &[], "the project's tests and `conftest.py`"),
    ("tox", &[], "the project's tests"),
    ("python", &[], "Python code"),
    ("python3", &[], "Python code"),
    ("node", &[], "JavaScript code"),
    ("deno", &[], "JavaScript code"),
    ("ruby", &[], "Ruby code"),
    ("perl", &[], "Perl code"),
    ("mvn", &[], "plugins and tests of the project's build"),
    ("gradle", &[], "plugins and tests of the project's build"),
    ("gradlew", &[], "plugins and tests of the project's build"),
    ("bash", &[], "a shell script"),
    ("sh", &[], "a shell script"),
];

const LIFECYCLE: &[(&str, &[&str])] = &[
    ("npm", &["test", "t", "run", "start", "run-script"]),
    ("pnpm", &["test", "run"]),
    ("yarn", &["test", "run"]),
];

const INSTALLS: &[(&str, &[&str])] = &[
    ("npm", &["install", "i", "ci", "add", "update"]),
    ("pnpm", &["install", "i", "add", "update"]),
    ("yarn", &["install", "add"]),
    ("pip", &["install"]),
    ("pip3", &["install"]),
    ("cargo", &["install", "add", "update", "fetch"]),
    ("go", &["get", "install"]),
    ("gem", &["install"]),
    ("apt", &["install"]),
    ("apt-get", &["install"]),
    ("brew", &["install"]),
];

const USES_NETWORK: &[&str] = &[
    "curl",
    "wget",
    "ssh",
    "scp",
    "rsync",
    "nc",
    "ncat",
    "telnet",
    "ftp",
    "sftp",
    "dig",
    "nslookup",
    "host",
    "ping",
    "gh",
    "aws",
    "gcloud",
    "az",
    "kubectl",
    "helm",
    "terraform",
    "docker",
    "podman",
];

/// How the fact about a program that connects ends.
const CONNECTS: &str = " uses the network";

/// True if these facts say that a program needs the network.
pub fn uses_network(facts: &[String]) -> bool {
    facts.iter().any(|fact| fact.ends_with(CONNECTS))
}

/// Facts about one call, most telling first.
pub(super) fn facts(
    judging: &Judging<'_>,
    command: Option<&CommandJudgement>,
    reach: &Confinement,
) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some((command, analysis)) = command.zip(judging.analysis) {
        command_facts(analysis, command, &mut facts);
        sandbox_facts(judging, command, reach, &mut facts);
    } else {
        let creates = judging.request.semantics.creates;
        for resource in &judging.request.semantics.resources {
            let verb = match resource.access {
                Access::Write if creates => "creates",
                Access::Write => "changes",
                Access::Read => "reads",
                Access::Execute => "runs",
                Access::Connect => "connects to",
            };
            facts.push(format!("{verb} `{}`", resource.given));
        }
        if !creates
            && judging
                .request
                .semantics
                .resources
                .iter()
                .any(|resource| resource.access == Access::Write)
        {
            facts.push("keeps a copy of the file, so that it can be undone".to_owned());
        }
    }
    for fact in &judging.request.semantics.risk_facts {
        if !facts.contains(fact) {
            facts.push(fact.clone());
        }
    }
    facts.truncate(24);
    facts
}

fn command_facts(analysis: &Analysis, judged: &CommandJudgement, facts: &mut Vec<String>) {
    let mut add = |fact: String| {
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    };
    if let Some(why) = &analysis.parse_error {
        add(why.clone());
    }
    for command in &analysis.commands {
        let words = without_global_options(&command.words);
        let Some(name) = words.first().map(Word::sketch) else {
            continue;
        };
        let is_local = name.contains('/');
        let name = name.rsplit('/').next().unwrap_or(name);
        let second = words.get(1).map(Word::sketch).unwrap_or_default();
        let listed = |table: &[(&str, &[&str])]| {
            table
                .iter()
                .any(|(program, subs)| *program == name && subs.contains(&second))
        };
        if !judged.read_only {
            if is_local
                && !name.is_empty()
                && !words
                    .first()
                    .is_some_and(|word| word.sketch().starts_with('/'))
            {
                add(format!(
                    "runs the project's own program `{}`",
                    words.first().map_or("", |word| word.source.as_str())
                ));
            }
            if let Some((_, _, what)) = RUNS_PROJECT_CODE.iter().find(|(program, subs, _)| {
                *program == name && (subs.is_empty() || subs.contains(&second))
            }) {
                add(format!("runs {what}"));
            }
            if listed(LIFECYCLE) {
                add(format!(
                    "may also run the `pre{second}` and `post{second}` scripts"
                ));
                add(
                    "may write files in the project, such as coverage, snapshots or caches"
                        .to_owned(),
                );
            }
            if listed(INSTALLS) {
                add(
                    "installs packages and may run their install scripts (`postinstall`)"
                        .to_owned(),
                );
            }
        }
        if USES_NETWORK.contains(&name)
            || (name == "git"
                && matches!(second, "push" | "pull" | "fetch" | "clone" | "ls-remote"))
        {
            add(format!("`{name}`{CONNECTS}"));
        }
        if matches!(name, "sudo" | "doas" | "su") {
            add(format!("`{name}` runs as another user"));
        }
        if let Some(why) = command.opaque {
            add(why.to_owned());
        }
        if command
            .words
            .iter()
            .any(|word| matches!(word.value, Value::Dynamic { .. }))
        {
            add("some words are not known until it runs".to_owned());
        }
        for redirect in &command.redirects {
            if redirect.kind == RedirectKind::Write
                && !redirect.target.sketch().starts_with("/dev/")
            {
                add(format!("writes `{}`", redirect.target.source));
            }
        }
    }
}

fn sandbox_facts(
    judging: &Judging<'_>,
    command: &CommandJudgement,
    reach: &Confinement,
    facts: &mut Vec<String>,
) {
    let sandbox = match judging.setting.sandbox {
        SandboxLevel::Full if command.read_only || reach.service.is_some() => {
            "runs in the sandbox with no write access"
        }
        SandboxLevel::Full => "runs in the sandbox: it can write only to the project",
        SandboxLevel::Partial => "is only partly confined here",
        SandboxLevel::Off => "runs without a sandbox, as configured",
        SandboxLevel::Unavailable => "there is no sandbox here",
    };
    facts.push(sandbox.to_owned());
    if command.hides_secrets || reach.service.is_some() {
        facts.push("files named like secrets (`.env`, keys, …) appear empty to it".to_owned());
    }
    if command.writes_git {
        facts.push("changes files in `.git`".to_owned());
    }
    facts.push(match judging.setting.sandbox {
        // Nothing takes the network away where nothing confines.
        SandboxLevel::Off => "has network access: nothing confines it".to_owned(),
        _ if reach.service.is_some() => format!(
            "will have network access and the credentials of `{}`, for this command alone",
            reach.service.as_deref().unwrap_or_default()
        ),
        _ if judging.request.semantics.network => "asks for full network access".to_owned(),
        _ => "has no network".to_owned(),
    });
    let input = judging.request.input;
    let asked = input.get("timeout_ms").and_then(Json::as_u64);
    if input.get("background").and_then(Json::as_bool) == Some(true) {
        facts.push(
            "keeps running in the background until it is stopped or the session \
            ends"
                .to_owned(),
        );
    } else if let Some(timeout) = asked.or(judging.setting.timeout_ms) {
        facts.push(format!("times out after {} s", timeout.div_ceil(1000)));
    }
    if let Some(limit) = judging.setting.output_limit {
        facts.push(format!(
            "shows at most {limit} characters of its output to the model"
        ));
    }
}

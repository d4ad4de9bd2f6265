//! The names whose change makes something else run later: one list, read by the gate for every tool and
//! handed to the sandbox for every command. Data alone, so that tests elsewhere can take it as it is.

/// Where below the project a name counts for commands. To the gate it counts everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// In every directory: its readers go by what they meet.
    Anywhere,
    /// In every directory but those of dependencies, which package managers fill with such names and
    /// nobody works in.
    Project,
    /// Directly in the project, which is where its readers look.
    Root,
    /// The same, and tools write it again as it was on every install.
    RootRewritten,
}

use Where::{Anywhere, Project, Root, RootRewritten};

const ENTERED: &str = "a file that runs when its directory is entered";
const EDITOR: &str = "editor settings and tasks";
const EDITOR_RUNS: &str = "editor settings that run";
const CONTAINER: &str = "a container definition";
const HOOKS: &str = "git hooks";
const CI: &str = "a CI definition";
const GIT: &str = "git configuration";
const NAMES_PROGRAMS: &str = "settings that name programs to run";
const AGENT: &str = "another agent's configuration";
const INSTRUCTIONS: &str = "instructions to agents";
const SHELL: &str = "a shell start-up file";

/// One to three components in a row, in lower case, what they are, and where they count.
pub const PROTECTED_NAMES: &[(&str, &str, Where)] = &[
    (
        ".git",
        "git's own files, which name programs to run",
        Anywhere,
    ),
    (".agent", "agent's own configuration", Anywhere),
    (".gitmodules", GIT, Anywhere),
    (".gitconfig", GIT, Root),
    (
        ".hg/hgrc",
        "settings of a repository, which name programs to run",
        Anywhere,
    ),
    (
        ".jj/repo/config.toml",
        "settings of a repository, which name programs to run",
        Anywhere,
    ),
    (".envrc", ENTERED, Anywhere),
    (".direnvrc", ENTERED, Project),
    ("mise.toml", ENTERED, Project),
    (".mise.toml", ENTERED, Project),
    ("mise.local.toml", ENTERED, Project),
    (".mise.local.toml", ENTERED, Project),
    (".config/mise", ENTERED, Project),
    (".vscode", EDITOR, Root),
    (".idea", EDITOR, Root),
    (".zed", EDITOR, Root),
    (".devcontainer", CONTAINER, Root),
    (".devcontainer.json", CONTAINER, Root),
    (".vim", EDITOR_RUNS, Root),
    (".vimrc", EDITOR_RUNS, Root),
    (".nvim.lua", EDITOR_RUNS, Root),
    (".exrc", EDITOR_RUNS, Root),
    (".dir-locals.el", EDITOR_RUNS, Project),
    (".gdbinit", "commands a debugger runs", Root),
    (".ripgreprc", "flags for a search program", Root),
    (".husky", HOOKS, RootRewritten),
    (".githooks", HOOKS, RootRewritten),
    (".pre-commit-config.yaml", HOOKS, Root),
    ("lefthook.yml", HOOKS, Root),
    (".lefthook.yml", HOOKS, Root),
    (".github/workflows", CI, Root),
    (".github/actions", CI, Root),
    (".gitea/workflows", CI, Root),
    (".forgejo/workflows", CI, Root),
    (".circleci", CI, Root),
    (".buildkite", CI, Root),
    (".woodpecker", CI, Root),
    (".semaphore", CI, Root),
    (".gitlab-ci", CI, Root),
    (".gitlab-ci.yml", CI, Root),
    (".travis.yml", CI, Root),
    (".drone.yml", CI, Root),
    (".woodpecker.yml", CI, Root),
    (".appveyor.yml", CI, Root),
    (".cirrus.yml", CI, Root),
    ("azure-pipelines.yml", CI, Root),
    ("bitbucket-pipelines.yml", CI, Root),
    ("appveyor.yml", CI, Root),
    ("jenkinsfile", CI, Root),
    (".cargo/config.toml", NAMES_PROGRAMS, Project),
    (".cargo/config", NAMES_PROGRAMS, Project),
    (".npmrc", NAMES_PROGRAMS, Project),
    (".yarnrc", NAMES_PROGRAMS, Project),
    (".yarnrc.yml", NAMES_PROGRAMS, Project),
    (".pnpmfile.cjs", NAMES_PROGRAMS, Project),
    (".mcp.json", "a list of servers to start", Root),
    (".claude", AGENT, Root),
    (".cursor", AGENT, Root),
    (".codex", AGENT, Root),
    (".gemini", AGENT, Root),
    (".opencode", AGENT, Root),
    (".windsurf", AGENT, Root),
    (".continue", AGENT, Root),
    (".kiro", AGENT, Root),
    (".roo", AGENT, Root),
    (".cline", AGENT, Root),
    (".amazonq", AGENT, Root),
    (".junie", AGENT, Root),
    (".trae", AGENT, Root),
    (".qwen", AGENT, Root),
    (".crush", AGENT, Root),
    (".aider.conf.yml", AGENT, Root),
    ("agents.md", INSTRUCTIONS, Project),
    ("claude.md", INSTRUCTIONS, Project),
    ("gemini.md", INSTRUCTIONS, Project),
    ("agent.md", INSTRUCTIONS, Project),
    ("warp.md", INSTRUCTIONS, Project),
    ("qwen.md", INSTRUCTIONS, Project),
    ("crush.md", INSTRUCTIONS, Project),
    (".goosehints", INSTRUCTIONS, Project),
    (".roorules", INSTRUCTIONS, Project),
    (".cursorrules", INSTRUCTIONS, Project),
    (".windsurfrules", INSTRUCTIONS, Project),
    (".clinerules", INSTRUCTIONS, Project),
    ("copilot-instructions.md", INSTRUCTIONS, Project),
    (".inputrc", SHELL, Root),
    (".bashrc", SHELL, Root),
    (".bash_profile", SHELL, Root),
    (".bash_login", SHELL, Root),
    (".bash_logout", SHELL, Root),
    (".bash_aliases", SHELL, Root),
    (".profile", SHELL, Root),
    (".zshrc", SHELL, Root),
    (".zshenv", SHELL, Root),
    (".zprofile", SHELL, Root),
    (".zlogin", SHELL, Root),
    (".zlogout", SHELL, Root),
    (".kshrc", SHELL, Root),
    (".cshrc", SHELL, Root),
    (".tcshrc", SHELL, Root),
    ("config.fish", SHELL, Root),
    (".config/fish", SHELL, Root),
];

//! Names of files that are protected, because their change makes something else run later, and of files whose content
//! is a secret. Data alone, and the only such lists for a project: the gate reads them for every call, file tools and
//! searches for what they come across, and commands get them as mounts.

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

/// Globs over names of files whose content is a secret, and what it is.
pub(super) const SECRET_NAMES: &[(&str, &str)] = &[
    (".env", "environment secrets"),
    (".env.*", "environment secrets"),
    ("*.env", "environment secrets"),
    (".envrc", "environment secrets"),
    ("id_rsa*", "a private key"),
    ("id_dsa*", "a private key"),
    ("id_ecdsa*", "a private key"),
    ("id_ed25519*", "a private key"),
    ("*.pem", "a private key"),
    ("*.key", "a private key"),
    ("*.p12", "a private key"),
    ("*.pfx", "a private key"),
    ("*.ppk", "a private key"),
    ("*.jks", "a key store"),
    ("*.keystore", "a key store"),
    ("*.kdbx", "a password store"),
    ("*.keychain*", "a key ring"),
    ("*.keyring", "a key ring"),
    (".netrc", "credentials"),
    ("_netrc", "credentials"),
    (".pgpass", "credentials"),
    (".my.cnf", "credentials"),
    (".npmrc", "credentials"),
    (".pypirc", "credentials"),
    (".git-credentials", "credentials"),
    (".htpasswd", "credentials"),
    (".vault-token", "credentials"),
    (".dockercfg", "credentials"),
    ("credentials", "credentials"),
    ("credentials.json", "credentials"),
    ("credentials.toml", "credentials"),
    ("application_default_credentials.json", "cloud credentials"),
    ("service-account*.json", "cloud credentials"),
    ("kubeconfig", "cloud credentials"),
    ("*.tfstate", "cloud credentials"),
    ("*.tfvars", "cloud credentials"),
    ("shadow", "password hashes"),
    ("shadow-", "password hashes"),
    ("gshadow", "password hashes"),
    ("ssh_host_*_key", "a private key"),
    (".bash_history", "a shell's history"),
    (".zsh_history", "a shell's history"),
    (".psql_history", "a shell's history"),
    (".mysql_history", "a shell's history"),
    (".python_history", "a shell's history"),
    (".node_repl_history", "a shell's history"),
    (".secret", "secrets"),
    (".secrets", "secrets"),
    ("secret.yml", "secrets"),
    ("secret.yaml", "secrets"),
    ("secret.json", "secrets"),
    ("secret.toml", "secrets"),
    ("client_secret*.json", "cloud credentials"),
    (".vault_pass*", "credentials"),
    (".boto", "cloud credentials"),
    (".s3cfg", "cloud credentials"),
    ("rclone.conf", "cloud credentials"),
    ("*.ovpn", "a private key"),
    ("logins.json", "a password store"),
    ("key4.db", "a password store"),
    ("login data", "a password store"),
    ("cookies.sqlite", "credentials"),
    ("secrets.yml", "secrets"),
    ("secrets.yaml", "secrets"),
    ("secrets.json", "secrets"),
    ("secrets.toml", "secrets"),
    ("master.key", "a private key"),
];

/// Names that one of the globs matches and that hold no secret.
pub(super) const NOT_SECRET: &[&str] = &[
    ".env.example",
    ".env.sample",
    ".env.template",
    ".env.dist",
    ".env.defaults",
    "*.pub",
];

/// Directories all of whose files are secret.
pub(super) const SECRET_DIRECTORIES: &[(&str, &str)] = &[
    (".ssh", "ssh keys"),
    (".gnupg", "a key ring"),
    (".aws", "cloud credentials"),
    (".azure", "cloud credentials"),
    (".kube", "cloud credentials"),
    (".docker", "credentials"),
    ("gcloud", "cloud credentials"),
    ("keyrings", "a key ring"),
    (".password-store", "a password store"),
    (".1password", "a password store"),
    ("private-keys-v1.d", "a key ring"),
];

/// The same for two components in a row.
pub(super) const SECRET_PAIRS: &[(&str, &str, &str)] = &[
    (".config", "gh", "credentials"),
    (".config", "hub", "credentials"),
    ("run", "secrets", "secrets"),
    (".terraform.d", "credentials.tfrc.json", "cloud credentials"),
];

/// Names that the globs above stand for, for patterns of the shell that are not looked up in a directory.
pub(super) const SECRET_SAMPLES: &[&str] = &[
    ".env",
    ".env.local",
    "prod.env",
    "id_rsa",
    "id_ed25519",
    "server.pem",
    "server.key",
    ".netrc",
    ".npmrc",
    "credentials",
    "credentials.json",
    "x.tfstate",
    "x.tfvars",
    "secrets.yml",
];

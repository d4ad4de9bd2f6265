//! Rows of the decision table, and a machine made of values to decide them on.

#![allow(dead_code, reason = "each test program uses its part of the support")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_policy::gate::{
    Bases, Below, Facts, Gate, GateRequest, HookVerdict, Judgement, Rule, SandboxLevel, Setting,
    is_plain_name, is_secret,
};
use agent_policy::{ToolDefinition, Tools, Workspace};
use agent_protocol::payload::permission::{Effect, Layer, RuleOrigin};
use serde::Deserialize;
use serde_json::json;

pub(crate) const PROJECT: &str = "/home/u/shop";
pub(crate) const HOME: &str = "/home/u";

/// A file of the table: rows in groups that share their circumstances.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    group: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    expect: String,
    #[serde(default = "bash")]
    tool: String,
    #[serde(default = "ask")]
    mode: String,
    #[serde(default = "full")]
    sandbox: String,
    #[serde(default)]
    rules: Vec<String>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    dirty: Option<bool>,
    #[serde(default)]
    network: bool,
    #[serde(default)]
    links: BTreeMap<String, String>,
    #[serde(default)]
    files: Vec<String>,
    /// Subject (a command or a path) and reason.
    cases: Vec<(String, String)>,
}

fn bash() -> String {
    "bash".to_owned()
}
fn ask() -> String {
    "ask".to_owned()
}
fn full() -> String {
    "full".to_owned()
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) file: String,
    pub(crate) tool: String,
    pub(crate) subject: String,
    pub(crate) why: String,
    pub(crate) expect: String,
    pub(crate) mode: String,
    pub(crate) sandbox: String,
    pub(crate) rules: Vec<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) dirty: Option<bool>,
    pub(crate) network: bool,
    pub(crate) hook_allows: bool,
    pub(crate) links: BTreeMap<String, String>,
    pub(crate) files: Vec<String>,
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/permissions")
}

pub(crate) fn cases() -> Vec<Case> {
    let mut names: Vec<PathBuf> = std::fs::read_dir(fixtures())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    names.sort();
    let mut cases = Vec::new();
    for path in names {
        let text = std::fs::read_to_string(&path).unwrap();
        let file: File = toml::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        for group in file.group {
            for (subject, why) in group.cases {
                cases.push(Case {
                    file: path.file_name().unwrap().to_string_lossy().into_owned(),
                    tool: group.tool.clone(),
                    subject,
                    why,
                    expect: group.expect.clone(),
                    mode: group.mode.clone(),
                    sandbox: group.sandbox.clone(),
                    rules: group.rules.clone(),
                    cwd: group.cwd.clone(),
                    dirty: group.dirty,
                    network: group.network,
                    hook_allows: false,
                    links: group.links.clone(),
                    files: group.files.clone(),
                });
            }
        }
    }
    cases
}

/// The tools of the program.
pub(crate) fn tools() -> Tools {
    agent_local_tools::definitions().iter().cloned().collect()
}

/// The tool with this name.
pub(crate) fn tool(name: &str) -> ToolDefinition {
    tools().find(name).unwrap().clone()
}

pub(crate) fn bases() -> Bases {
    Bases {
        project: PROJECT.into(),
        home: HOME.into(),
    }
}

/// `deny bash(rm *)`, with an optional layer in front: `managed deny bash(rm *)`.
pub(crate) fn rule(text: &str) -> Rule {
    let (layer, rest) = match text.split_once(' ') {
        Some((word, rest)) if word.parse::<Effect>().is_err() => (word.parse().unwrap(), rest),
        _ => (Layer::User, text),
    };
    let (effect, rest) = rest.split_once(' ').unwrap();
    let origin = RuleOrigin {
        layer,
        file: Some("config.toml".into()),
        line: Some(1),
    };
    Rule::parse(effect.parse().unwrap(), rest, origin, &bases(), &tools())
        .unwrap_or_else(|problem| panic!("{problem:?}"))
}

impl Case {
    pub(crate) fn evaluate(&self) -> Judgement {
        let gate = Gate {
            rules: self.rules.iter().map(|text| rule(text)).collect(),
            ..Gate::default()
        };
        let workspace = Workspace {
            root: PROJECT.into(),
            extra_roots: Vec::new(),
        };
        let input = match self.tool.as_str() {
            "bash" => {
                let mut input = json!({"command": self.subject, "network": self.network});
                if let Some(cwd) = &self.cwd {
                    input["cwd"] = json!(cwd);
                }
                input
            }
            _ => json!({"path": self.subject, "pattern": "x", "content": "", "url": self.subject}),
        };
        let hooks = [HookVerdict {
            hook: "h".into(),
            effect: Effect::Allow,
            reason: "test".into(),
        }];
        let tool = tool(&self.tool);
        let semantics = tool.semantics(&input, &workspace).unwrap();
        gate.evaluate(
            &GateRequest {
                tool: &tool,
                input: &input,
                semantics: &semantics,
            },
            &Setting {
                workspace: &workspace,
                home: Path::new(HOME),
                mode: self.mode.parse().unwrap(),
                sandbox: match self.sandbox.as_str() {
                    "full" => SandboxLevel::Full,
                    "partial" => SandboxLevel::Partial,
                    "off" => SandboxLevel::Off,
                    "none" => SandboxLevel::Unavailable,
                    other => panic!("unknown sandbox {other}"),
                },
                turn: "turn",
                hooks: if self.hook_allows { &hooks } else { &[] },
                timeout_ms: Some(120_000),
                output_limit: Some(30_000),
            },
            &Machine(self),
        )
    }
}

/// Links, files and a git state as the row says; directories are names without a dot.
struct Machine<'a>(&'a Case);

impl Facts for Machine<'_> {
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let mut result = PathBuf::from("/");
        for component in path.components() {
            match component {
                std::path::Component::ParentDir => {
                    result.pop();
                }
                std::path::Component::Normal(name) => {
                    result.push(name);
                    let relative = result.strip_prefix(PROJECT).unwrap_or(&result).to_owned();
                    if let Some(target) = self.0.links.get(relative.to_str().unwrap()) {
                        result = if target.starts_with('/') {
                            target.into()
                        } else {
                            Path::new(PROJECT).join(target)
                        };
                    }
                }
                _ => {}
            }
        }
        Some(result)
    }

    fn program_of_repository(&self, _directory: &Path) -> Option<String> {
        None
    }

    fn hook_of_repository(&self, _directory: &Path, _names: &[&str]) -> Option<String> {
        None
    }

    fn exists(&self, path: &Path) -> Option<bool> {
        let files = self
            .0
            .files
            .iter()
            .map(|file| Path::new(PROJECT).join(file));
        Some(files.into_iter().any(|file| file.starts_with(path)))
    }

    fn tool_of_project(&self, _program: &str, _directory: &Path, _root: &Path) -> Option<String> {
        None
    }

    fn other_names(&self, _path: &Path) -> u64 {
        0
    }

    fn is_directory(&self, path: &Path) -> Option<bool> {
        let name = path.file_name()?.to_str()?;
        if name == ".git" {
            return Some(
                path == Path::new(PROJECT).join(".git")
                    || path.starts_with(PROJECT) && path.iter().any(|part| part == "vendor"),
            );
        }
        Some(
            path.starts_with(PROJECT)
                && !name.trim_start_matches('.').contains('.')
                && name != "nope",
        )
    }

    fn expand(&self, directory: &Path, pattern: &str) -> Option<Vec<PathBuf>> {
        let glob = globset::GlobBuilder::new(directory.join(pattern).to_str()?)
            .literal_separator(true)
            .build()
            .ok()?
            .compile_matcher();
        Some(
            self.0
                .files
                .iter()
                .map(|file| Path::new(PROJECT).join(file))
                .filter(|path| glob.is_match(path))
                .collect(),
        )
    }

    fn tree_is_dirty(&self) -> Option<bool> {
        self.0.dirty
    }

    fn below(&self, directory: &Path) -> Option<Below> {
        let files = self.0.files.iter();
        let links = self.0.links.iter();
        let inside = |name: &String| Path::new(PROJECT).join(name).starts_with(directory);
        Some(Below {
            secrets: files
                .filter(|file| inside(file) && is_secret(Path::new(file)))
                .map(|file| Path::new(PROJECT).join(file))
                .collect(),
            links: links
                .filter(|(name, _)| inside(name))
                .map(|(_, target)| Path::new(PROJECT).join(target))
                .filter(|target| !target.starts_with(directory))
                .collect(),
            odd: self
                .0
                .files
                .iter()
                .filter(|file| inside(file))
                .find(|file| !Path::new(file).iter().all(is_plain_name))
                .map(PathBuf::from),
        })
    }

    fn content_hash(&self, _path: &Path) -> Option<String> {
        None
    }
}

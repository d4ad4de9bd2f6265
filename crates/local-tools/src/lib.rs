//! The tools that work on the local project: read, write, edit, apply_patch, grep, glob, bash, read_artifact,
//! process_output and process_kill; plan and propose_plan; and web_fetch, which reads a page.
//!
//! Each tool says what a call would touch, does it once it is let through, and puts the result into
//! facts. Edits are exact to the byte, searches count what they leave out, commands run in the
//! sandbox and what they change is found by looking.
//!
//! What this crate deliberately cannot do: it holds no allow or deny code (the gate is in
//! `agent-policy`), writes no log of its own (facts go to the journal it is given), follows no
//! link out of the project, and reads neither environment nor home directory.
//!
//! Where to start: [`local_tools`] makes all of them; [`path`](Roots) is how paths are resolved,
//! [`edit`] the engine behind edits, `search` the walk behind searches, `bash` how commands run.

pub mod apply_patch;
mod bash;
mod change;
mod deny;
pub mod diff;
pub mod edit;
mod encoding;
pub mod file;
mod manifest;
pub mod measure;
mod page;
mod path;
mod plan;
mod process;
mod read;
mod read_artifact;
pub mod replace;
mod reveal;
mod search;
mod spellings;
mod support;
mod web_fetch;
mod write;

use std::sync::{Arc, LazyLock};

use agent_tool_runtime::{Tool, ToolDefinition};
use bash::ChangeTracker;

pub use bash::{CommandSettings, Processes, ScanLimits, ServiceAccess};
pub use encoding::{Encoding, LineEndings};
pub use path::{Access, Found, PathProblem, ProjectPath, Roots};
pub use read::showing;
pub use search::listing;
pub use spellings::SPELLINGS;

/// One tool of this crate: what is known of it anywhere, and how it is made for a project.
struct LocalTool {
    definition: fn() -> ToolDefinition,
    make: fn(&Parts) -> Arc<dyn Tool>,
}

/// What tools of one project are made of.
struct Parts {
    roots: Arc<Roots>,
    settings: Arc<CommandSettings>,
    processes: Arc<Processes>,
    tracker: Arc<ChangeTracker>,
}

/// Every tool of this crate. A new one is its file, and its line here.
const TOOLS: &[LocalTool] = &[
    read::TOOL,
    write::TOOL,
    edit::TOOL,
    apply_patch::TOOL,
    search::GREP,
    search::GLOB,
    bash::TOOL,
    read_artifact::TOOL,
    process::OUTPUT,
    process::KILL,
    web_fetch::TOOL,
    plan::LIST,
    plan::PROPOSAL,
];

/// What is known of the tools of this crate without a project.
#[must_use]
pub fn definitions() -> &'static [Arc<ToolDefinition>] {
    static DEFINITIONS: LazyLock<Vec<Arc<ToolDefinition>>> = LazyLock::new(|| {
        let definitions = TOOLS.iter().map(|tool| (tool.definition)());
        definitions.map(Arc::new).collect()
    });
    &DEFINITIONS
}

/// All tools of this crate, and the background commands they start.
pub struct LocalTools {
    /// To be registered.
    pub tools: Vec<Arc<dyn Tool>>,
    /// To be shut down at the end of the session.
    pub processes: Arc<Processes>,
}

/// Makes the tools for a project.
pub fn local_tools(roots: Arc<Roots>, settings: CommandSettings) -> LocalTools {
    let parts = Parts {
        roots,
        tracker: Arc::new(ChangeTracker::new(&settings.temporary, settings.scan)),
        settings: Arc::new(settings),
        processes: Arc::new(Processes::default()),
    };
    LocalTools {
        tools: TOOLS.iter().map(|tool| (tool.make)(&parts)).collect(),
        processes: parts.processes,
    }
}

//! The tools that work on the local project: read, write, edit, apply_patch, grep, glob, bash, read_artifact,
//! process_output and process_kill.
//!
//! Each tool says what a call would touch, does it once it is let through, and puts the result into
//! facts. Edits are exact to the byte, searches count what they leave out, commands run in the
//! sandbox and what they change is found by looking.
//!
//! What this crate deliberately cannot do: it holds no allow or deny code (the gate is in
//! `agent-tool-runtime`), writes no log of its own (facts go to the journal it is given), follows no
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
mod process;
mod read;
mod read_artifact;
pub mod replace;
mod reveal;
mod search;
mod spellings;
mod support;
mod write;

use std::sync::Arc;

use agent_tool_runtime::Tool;
use bash::ChangeTracker;

pub use apply_patch::ApplyPatchTool;
pub use bash::{BashTool, CommandSettings, Processes, ScanLimits};
pub use edit::EditTool;
pub use encoding::{Encoding, LineEndings};
pub use path::{Access, Found, PathProblem, ProjectPath, Roots};
pub use process::{ProcessKillTool, ProcessOutputTool};
pub use read::ReadTool;
pub use read_artifact::ReadArtifactTool;
pub use search::{GlobTool, GrepTool};
pub use spellings::SPELLINGS;
pub use write::WriteTool;

/// All tools of this crate, and the background commands they start.
pub struct LocalTools {
    /// To be registered.
    pub tools: Vec<Arc<dyn Tool>>,
    /// To be shut down at the end of the session.
    pub processes: Arc<Processes>,
}

/// Makes the tools for a project.
pub fn local_tools(roots: Arc<Roots>, settings: CommandSettings) -> LocalTools {
    let processes = Arc::new(Processes::default());
    let tracker = Arc::new(ChangeTracker::new(&settings.temporary, settings.scan));
    let tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(ReadTool::new(Arc::clone(&roots))),
        Arc::new(WriteTool::new(Arc::clone(&roots), Arc::clone(&tracker))),
        Arc::new(EditTool::new(Arc::clone(&roots), Arc::clone(&tracker))),
        Arc::new(ApplyPatchTool::new(
            Arc::clone(&roots),
            Arc::clone(&tracker),
        )),
        Arc::new(GrepTool::new(Arc::clone(&roots))),
        Arc::new(GlobTool::new(Arc::clone(&roots))),
        Arc::new(BashTool::new(
            roots,
            Arc::new(settings),
            Arc::clone(&processes),
            tracker,
        )),
        Arc::new(ReadArtifactTool::default()),
        Arc::new(ProcessOutputTool::new(Arc::clone(&processes))),
        Arc::new(ProcessKillTool::new(Arc::clone(&processes))),
    ];
    LocalTools { tools, processes }
}

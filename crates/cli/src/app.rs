//! What every command gets: the machine, the project and a way to speak.

use crate::arguments::GlobalArgs;
use crate::failure::{Failure, OrFail as _};
use crate::host::Host;
use crate::output::Output;
use crate::project::Project;

/// One run of the binary, before any command has started.
pub(crate) struct App {
    pub(crate) host: Host,
    pub(crate) project: Project,
    pub(crate) output: Output,
}

impl App {
    /// Looks at the machine and finds the project. Reads no configuration: commands that need it
    /// ask for it.
    pub(crate) fn new(global: &GlobalArgs) -> Result<Self, Failure> {
        let host = Host::read(global.cwd.as_deref()).or_usage()?;
        Ok(Self {
            project: Project::discover(&host.cwd),
            output: Output::new(global.color, global.quiet, &host.environment),
            host,
        })
    }
}

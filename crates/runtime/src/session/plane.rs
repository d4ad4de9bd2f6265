//! The control plane of an open session, put together.

use std::sync::Arc;

use agent_engine::{ControlPlane, ProcessControl};
use agent_local_tools::Processes;
use agent_log::AnchorStore;
use agent_protocol::id::ProcessId;

use crate::Runtime;
use crate::error::RuntimeError;
use crate::session::Workbench;

/// The background commands of a session.
struct Background(Arc<Processes>);

impl ProcessControl for Background {
    fn terminate(&self, process_id: &ProcessId) -> bool {
        self.0.terminate(process_id)
    }
}

impl Workbench {
    /// What takes control commands for this session.
    pub fn plane(&self, runtime: &Runtime) -> Result<ControlPlane, RuntimeError> {
        Ok(ControlPlane {
            control: Arc::clone(&self.control),
            authority: Arc::clone(&self.authority),
            pipeline: self.pipeline.clone(),
            journal: Arc::clone(&self.journal),
            session: runtime.session(self.writer.session_id().as_str())?,
            thread_id: self.thread_id.clone(),
            processes: Arc::new(Background(Arc::clone(&self.processes))),
            anchors: Some(AnchorStore::new(&runtime.host.directories.state)),
            redactor: Arc::clone(self.writer.redactor()),
        })
    }
}

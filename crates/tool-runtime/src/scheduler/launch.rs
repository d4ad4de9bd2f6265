//! From an admitted call to a thread that executes it: the facts of its start, on disk before
//! anything that has an effect begins.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use agent_protocol::payload::tool::{
    Concurrency, ExecutionPlanFacts, ProgressStatus, ToolProgress, ToolStarted,
};
use agent_protocol::{ActionHappened, Code, Phase, Refs};

use super::Message;
use super::coordinator::{Coordinator, Running};
use crate::admission::Admit;
use crate::call::{Call, Ending, Refusal, StartFacts, panic_words};
use crate::context::{ExecutionContext, ExecutionParts};
use crate::journal::JournalError;
use crate::result::ExecutionFailure;

impl Coordinator {
    pub(super) fn start(
        &mut self,
        number: usize,
        mut call: Call,
        admit: Admit,
    ) -> Result<(), JournalError> {
        let definition = call.tool.as_ref().map(|tool| tool.definition().clone());
        let Some(definition) = definition else {
            return Ok(());
        };
        let lock_key = (definition.concurrency == Concurrency::Keyed)
            .then(|| admit.plan.lock_key.clone())
            .flatten();
        let clashes = !admit.flags.is_read_only
            || self
                .running
                .values()
                .any(|running| lock_key.is_some() && running.lock_key == lock_key);
        if clashes && !self.running.is_empty() {
            call.held = true;
            self.drain()?;
        }
        let waited = millis(call.submitted.elapsed());
        if call.held {
            let queued = ToolProgress {
                phase: Phase::Schedule,
                status: ProgressStatus::Queued,
                elapsed_ms: waited,
                waited_ms: Some(waited),
                lock_key: lock_key.clone(),
                ..ToolProgress::default()
            };
            self.shared
                .record(&mut call.scope, queued, Refs::default())?;
        }
        if let Some(reason) = self.stop_reason() {
            let refusal = Refusal {
                phase: Phase::Schedule,
                code: Code::Cancelled,
                message: format!("{}: {reason}; it was not started", call.tool_name),
                ..Refusal::default()
            };
            self.ended.insert(number, (call, Ending::Refused(refusal)));
            return Ok(());
        }
        let confined = definition.needs_sandbox && !admit.confinement.unconfined;
        let profile = if confined && !admit.confinement.profile.is_empty() {
            format!("+{}", admit.confinement.profile)
        } else {
            String::new()
        };
        let started = ToolStarted {
            invocation_id: admit.invocation.invocation_id().clone(),
            intent_id: call.intent_id.clone(),
            tool_name: call.tool_name.clone(),
            executor: format!(
                "{}:{}@{}{profile}",
                definition.executor_class(),
                definition.name,
                definition.version
            ),
            args_ref: None,
            args_sha256: admit.args_sha256.clone(),
            cwd: admit.invocation.cwd().to_string_lossy().into_owned(),
            timeout_ms: admit.plan.timeout.map(millis),
            sandboxed: confined,
            permission_ref: admit.permission_ref.to_string(),
            action_id: admit.action_id.clone(),
            sandbox_ref: None,
            flags: admit.flags.clone(),
            plan: ExecutionPlanFacts {
                concurrency: definition.concurrency,
                lock_key: lock_key.clone(),
                waited_ms: waited,
                background: admit.plan.background,
                cancellable: definition.cancellable,
                streams_progress: definition.streams_progress,
                retryable: Some(admit.flags.is_read_only),
            },
        };
        let refs = Refs::default().with("permission", &admit.permission_ref);
        self.shared.record(&mut call.scope, started, refs)?;
        let syncs_itself = call.tool.as_ref();
        let syncs_itself = syncs_itself.is_some_and(|tool| tool.tool.syncs_before_effects());
        if !admit.flags.is_read_only && !syncs_itself {
            self.shared.journal.sync()?;
        }
        let is_exclusive = definition.concurrency == Concurrency::Exclusive;
        self.execute(number, call, admit, is_exclusive, lock_key);
        Ok(())
    }

    fn execute(
        &mut self,
        number: usize,
        call: Call,
        admit: Admit,
        is_exclusive: bool,
        lock_key: Option<String>,
    ) {
        let cancel = self.cancel.child();
        let given_up = Arc::new(AtomicBool::new(false));
        let deadline = admit
            .plan
            .timeout
            .and_then(|timeout| Instant::now().checked_add(timeout));
        let context = ExecutionContext::new(ExecutionParts {
            journal: Arc::clone(&self.shared.journal),
            scope: call.scope.clone(),
            invocation_id: admit.invocation.invocation_id().clone(),
            tool_call_id: call.tool_call_id.clone(),
            is_of_model: call.is_of_model,
            workspace: Arc::clone(&self.shared.workspace),
            baselines: Arc::clone(&self.shared.baselines),
            cancel: cancel.clone(),
            deadline,
            given_up: Arc::clone(&given_up),
        });
        let running = Running {
            start: StartFacts {
                invocation_id: admit.invocation.invocation_id().clone(),
                started_at: self.shared.journal.now(),
                permission: admit.permission,
            },
            is_read_only: admit.flags.is_read_only,
            is_exclusive,
            lock_key,
            cancel,
            deadline,
            give_up_at: None,
            given_up,
            call,
        };
        let invocation = admit.invocation;
        let name = running.call.tool_name.clone();
        let tool = running.call.tool.clone();
        let messages = self.messages.clone();
        let job = move || {
            let result = match tool {
                Some(tool) => {
                    catch_unwind(AssertUnwindSafe(|| tool.tool.execute(invocation, &context)))
                        .unwrap_or_else(|panic| {
                            let words = panic_words(&*panic);
                            let message = format!("the tool `{name}` failed inside: {words}");
                            Err(ExecutionFailure::new(Code::InternalError, message))
                        })
                }
                None => Err(ExecutionFailure::new(
                    Code::InternalError,
                    "the tool is gone",
                )),
            };
            // Before the coordinator hears of it, so that the context's handles are closed.
            drop(context);
            let _ = messages.send(Message::Done(number, Box::new(result)));
        };
        match self.shared.workers.run(Box::new(job)) {
            Ok(()) => {
                self.running.insert(number, running);
            }
            Err(error) => {
                let message = format!("cannot start a thread for the call: {error}");
                let failure =
                    ExecutionFailure::new(Code::InternalError, message).having(ActionHappened::No);
                self.end_execution(number, running, Err(failure));
            }
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

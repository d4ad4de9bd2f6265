//! Every event class with its typed payload: 113 normalised classes and three of our own.
//!
//! [`Payload`] is the list. A reader that meets a class or a shape it does not know keeps the text
//! as [`UnknownPayload`] and says so, so that a log written by a newer version still opens.

pub mod conversation;
pub mod model;
pub mod permission;
pub mod plan;
pub mod process;
pub mod tool;
pub mod work;

use serde::{Serialize, Serializer};

use crate::id::ArtifactId;
use crate::record::{record, words};

use conversation::*;
use model::*;
use permission::*;
use process::*;
use tool::*;
use work::*;

words! {
    /// Kind of change to a file.
    SideEffectKind {
        Modified = "modified",
        Created = "created",
        Deleted = "deleted",
        ModeChanged = "mode_changed",
    }
}

record! {
    /// A change to a project file, found by the runtime and not reported by the model. The content of a
    /// symbolic link is its target; a directory has none.
    SideEffect {
        kind: SideEffectKind,
        /// Relative to the project root.
        path: String,
        sha256_before?: String,
        sha256_after?: String,
        /// The exact bytes before, for undo.
        before_ref?: ArtifactId,
        after_ref?: ArtifactId,
        bytes_before?: u64,
        bytes_after?: u64,
        mode_before?: u32,
        mode_after?: u32,
        /// Type of a path that is not a regular file: `symlink` or `directory`.
        file_type?: String,
        /// Reason why there is no before-image, e.g. `too_large`.
        no_image?: String,
        /// The project's ignore rules name it: no part of the work that verification is about.
        ignored?: bool,
    }
}

record! {
    /// A piece of evidence by its hash.
    ArtifactRef {
        artifact_id: ArtifactId,
        kind: ArtifactKind,
        bytes: u64,
    }
}

record! {
    /// Tokens as the provider counted them; a missing number is unknown.
    Usage {
        model?: String,
        input?: u64,
        output?: u64,
        total?: u64,
        cached_input?: u64,
        cache_write?: u64,
        reasoning?: u64,
    }
}

/// Text of a class or a shape this version does not know, kept as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct UnknownPayload {
    /// The `type` of the line.
    pub type_name: String,
    /// The payload's JSON text.
    pub json: String,
    /// Part that was not understood.
    pub reason: UnknownReason,
}

/// Part of a payload that a reader did not understand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownReason {
    /// The event class is not in the vocabulary.
    Type,
    /// The class is known, but its payload has another shape.
    Shape(String),
}

macro_rules! vocabulary {
    ($($variant:ident = $name:literal $(native $native:literal)?;)*) => {
        /// Payload of an event, typed by its class.
        #[derive(Clone, Debug, PartialEq)]
        #[expect(clippy::large_enum_variant, reason = "payloads are built once, written, and dropped")]
        pub enum Payload {
            $(#[doc = concat!("`", $name, "`")] $variant($variant),)*
            /// A class or shape this version does not know.
            Unknown(UnknownPayload),
        }

        /// The class of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum EventType {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl EventType {
            /// The whole vocabulary, in the order of the requirements.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The class as it stands in the log.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The older name of the same fact, written beside the class.
            #[must_use]
            pub const fn native_name(self) -> Option<&'static str> {
                match self { $($(Self::$variant => Some($native),)?)* _ => None }
            }

            /// The class with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }

            /// The JSON Schema of this class's payload.
            pub(crate) fn payload_schema(self, generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                match self { $(Self::$variant => generator.subschema_for::<$variant>(),)* }
            }
        }

        impl Payload {
            /// The class, or nothing for an unknown one.
            #[must_use]
            pub const fn event_type(&self) -> Option<EventType> {
                match self {
                    $(Self::$variant(_) => Some(EventType::$variant),)*
                    Self::Unknown(_) => None,
                }
            }

            /// Reads a payload of the class `name`. Never fails: what is not understood is kept.
            pub(crate) fn from_json(name: &str, json: &str) -> Self {
                let unknown = |reason| Self::Unknown(UnknownPayload {
                    type_name: name.to_owned(), json: json.to_owned(), reason,
                });
                match name {
                    $($name => match serde_json::from_str(json) {
                        Ok(payload) => Self::$variant(payload),
                        Err(error) => unknown(UnknownReason::Shape(error.to_string())),
                    },)*
                    _ => unknown(UnknownReason::Type),
                }
            }
        }

        impl Serialize for Payload {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(payload) => payload.serialize(serializer),)*
                    Self::Unknown(unknown) => {
                        let raw = serde_json::value::RawValue::from_string(unknown.json.clone())
                            .map_err(serde::ser::Error::custom)?;
                        raw.serialize(serializer)
                    }
                }
            }
        }

        $(impl From<$variant> for Payload {
            fn from(payload: $variant) -> Self { Self::$variant(payload) }
        })*
    };
}

vocabulary! {
    SessionCreated = "session.created";
    SessionUpdated = "session.updated";
    ThreadStarted = "thread.started";
    ThreadUpdated = "thread.updated";
    TurnSubmitted = "turn.submitted";
    TurnStarted = "turn.started";
    TurnCompleted = "turn.completed";
    TurnFailed = "turn.failed";
    TaskCreated = "task.created";
    TaskAccepted = "task.accepted";
    TaskQueued = "task.queued";
    TaskStarted = "task.started";
    TaskUpdated = "task.updated";
    TaskProgress = "task.progress";
    TaskWaiting = "task.waiting";
    TaskBlocked = "task.blocked";
    TaskPaused = "task.paused";
    TaskResumed = "task.resumed";
    TaskRetrying = "task.retrying";
    TaskCancelRequested = "task.cancel_requested";
    TaskCancelled = "task.cancelled";
    TaskTimedOut = "task.timed_out";
    TaskFailed = "task.failed";
    TaskLost = "task.lost";
    TaskCompleted = "task.completed";
    TaskArchived = "task.archived";
    RunStatus = "run.status";
    ModelRequested = "model.requested";
    ModelDelta = "model.delta";
    ModelCompleted = "model.completed";
    ModelFailed = "model.failed";
    ReasoningDelta = "reasoning.delta";
    ReasoningSummary = "reasoning.summary";
    ToolCatalogResolved = "tool.catalog.resolved";
    ToolIntent = "tool.intent";
    ToolValidation = "tool.validation";
    ToolArgs = "tool.args";
    ToolStarted = "tool.started" native "tool.invocation.started";
    ToolProgress = "tool.progress";
    ToolResult = "tool.result" native "tool.invocation.completed";
    ToolFailed = "tool.failed";
    ToolObservation = "tool.observation";
    ActionRequired = "action.required";
    ActionResolved = "action.resolved";
    QueueChanged = "queue.changed";
    ContextResolved = "context.resolved";
    ContextCompactionStarted = "context.compaction.started";
    ContextCompactionCompleted = "context.compaction.completed";
    ContextCompactionFailed = "context.compaction.failed";
    ArtifactChanged = "artifact.changed";
    EvidenceChanged = "evidence.changed";
    SubagentSpawned = "subagent.spawned";
    SubagentStatus = "subagent.status";
    SubagentInput = "subagent.input";
    SubagentCompleted = "subagent.completed";
    SubagentFailed = "subagent.failed";
    SubagentClosed = "subagent.closed";
    LimitChanged = "limit.changed";
    SnapshotUpdated = "snapshot.updated";
    RuntimeWarning = "runtime.warning";
    RuntimeError = "runtime.error";
    PermissionEvaluated = "permission.evaluated" native "tool.permission";
    PermissionRequested = "permission.requested";
    PermissionResolved = "permission.resolved";
    SandboxApplied = "sandbox.applied";
    SandboxViolation = "sandbox.violation";
    HookStarted = "hook.started";
    HookCompleted = "hook.completed";
    HookFailed = "hook.failed";
    PolicyChanged = "policy.changed";
    ProcessStarted = "process.started";
    ProcessOutput = "process.output";
    ProcessInput = "process.input";
    ProcessCompleted = "process.completed";
    ProcessFailed = "process.failed";
    ProcessTerminated = "process.terminated";
    TaskProfileResolved = "task.profile.resolved";
    RoutingCandidatesResolved = "routing.candidates.resolved";
    RoutingDecided = "routing.decided";
    RoutingFallbackApplied = "routing.fallback.applied";
    RoutingNotPossible = "routing.not_possible";
    RoutingSingleCandidate = "routing.single_candidate";
    TaskDelegated = "task.delegated";
    TaskDependencyUpdated = "task.dependency.updated";
    TaskAttemptStarted = "task.attempt.started";
    TaskAttemptCompleted = "task.attempt.completed";
    TaskAttemptFailed = "task.attempt.failed";
    CostEstimated = "cost.estimated";
    CostRecorded = "cost.recorded";
    RateLimitHit = "rate_limit.hit";
    QuotaLow = "quota.low";
    QuotaBlocked = "quota.blocked";
    ChannelConnected = "channel.connected";
    ChannelDisconnected = "channel.disconnected";
    ChannelResumed = "channel.resumed";
    ChannelMessage = "channel.message";
    ChannelPermissionForwarded = "channel.permission_forwarded";
    ChannelPermissionReturned = "channel.permission_returned";
    JobCreated = "job.created";
    JobStarted = "job.started";
    JobProgress = "job.progress";
    JobItemStarted = "job.item.started";
    JobItemCompleted = "job.item.completed";
    JobItemFailed = "job.item.failed";
    JobCompleted = "job.completed";
    JobFailed = "job.failed";
    JobCancelled = "job.cancelled";
    OutputSpilled = "output.spilled";
    OutputTruncated = "output.truncated";
    OutputRedacted = "output.redacted";
    OutputExpired = "output.expired";
    HistoryWindowLoaded = "history.window.loaded";
    HistoryReconstructed = "history.reconstructed";
    HistoryRollbackStarted = "history.rollback.started";
    HistoryRollbackCompleted = "history.rollback.completed";
    SnapshotRepaired = "snapshot.repaired";
}

impl Payload {
    /// The class as it stands in the log, also of an unknown one.
    #[must_use]
    pub fn type_name(&self) -> &str {
        match self {
            Self::Unknown(unknown) => &unknown.type_name,
            known => known.event_type().map_or("", EventType::as_str),
        }
    }

    /// The older name of the same fact. A failed call has one only if execution had begun.
    #[must_use]
    pub fn native_name(&self) -> Option<&'static str> {
        match self {
            Self::ToolFailed(failed) if failed.invocation_id.is_some() => {
                EventType::ToolResult.native_name()
            }
            other => other.event_type().and_then(EventType::native_name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vocabulary_is_closed() {
        assert_eq!(EventType::ALL.len(), 116);
        for class in EventType::ALL {
            assert_eq!(EventType::from_name(class.as_str()), Some(*class));
        }
    }

    #[test]
    fn a_newer_shape_is_kept_and_named() {
        let payload = Payload::from_json("task.accepted", r#"{"assignee":7}"#);
        let Payload::Unknown(unknown) = payload else {
            panic!("{payload:?}")
        };
        assert_eq!(unknown.json, r#"{"assignee":7}"#);
        assert!(matches!(unknown.reason, UnknownReason::Shape(_)));
    }
}

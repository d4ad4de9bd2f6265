//! What the gathered events say to each question of the card.

use agent_log::ArtifactStore;
use agent_protocol::id::ArtifactId;
use agent_protocol::payload::permission::Effect;
use agent_protocol::payload::tool::{CatalogEntry, CatalogPolicy, ToolFailed, ValidationLayer};
use agent_protocol::payload::{ArtifactRef, SideEffect};
use agent_protocol::{Code, is_before_execution};
use serde_json::Value;

use super::{Answer, Cards, Found};
use agent_history::describe::phrases::rule;

/// How much of a catalogue is read; ours have some ten kilobytes.
const CATALOG_LIMIT: u64 = 4 << 20;

impl Cards {
    /// The tool as the catalogue of that turn had it.
    fn entry(&self) -> Option<Found<&CatalogEntry>> {
        let intent = self.intent.as_ref()?;
        let catalog = self.catalog.as_ref()?;
        let tools = &catalog.what.tools;
        let what = tools
            .iter()
            .find(|tool| tool.tool_name == intent.what.tool_name)?;
        Some(Found {
            sequence: catalog.sequence,
            what,
        })
    }

    /// The failure of a call whose execution never began.
    fn never_started(&self) -> Option<&Found<ToolFailed>> {
        let failed = self.failed.as_ref();
        failed.filter(|failed| is_before_execution(failed.what.phase))
    }

    fn not_run(&self) -> Option<(String, Vec<u64>)> {
        let failed = self.never_started()?;
        let says = format!(
            "not applicable: it never ran ({} in phase {})",
            failed.what.code, failed.what.phase
        );
        Some((says, vec![failed.sequence]))
    }

    pub(super) fn exists(&self) -> Answer {
        let says = if let Some(validation) = &self.validation
            && validation.what.code == Some(Code::UnknownTool)
        {
            Some((
                "no: there is no tool of that name".into(),
                vec![validation.sequence],
            ))
        } else {
            self.entry().map(|entry| {
                (
                    format!(
                        "yes: version {}, {}, definition {}",
                        entry.what.version, entry.what.runtime_owner, entry.what.definition_hash
                    ),
                    vec![entry.sequence],
                )
            })
        };
        answer("exists", "Does this tool exist?", says)
    }

    pub(super) fn visible(&self) -> Answer {
        let hidden = self.validation.as_ref().filter(|validation| {
            !validation.what.ok && validation.what.layer == ValidationLayer::Visibility
        });
        let says = if let Some(validation) = hidden {
            Some((
                "no: it was hidden in this turn".into(),
                vec![validation.sequence],
            ))
        } else {
            self.entry().map(|entry| {
                let says = match entry.what.policy {
                    CatalogPolicy::Unavailable => "no: not sent to the model".to_owned(),
                    policy => format!("yes, as `{policy}`"),
                };
                (says, vec![entry.sequence])
            })
        };
        answer("visible", "Was it visible in this turn?", says)
    }

    pub(super) fn schema(&self, artifacts: Option<&ArtifactStore>) -> Answer {
        let says = self.validation.as_ref().map(|validation| {
            let mut events = vec![validation.sequence];
            let mut says = if validation.what.ok {
                format!("yes, checked as far as {}", validation.what.layer)
            } else {
                let errors = validation.what.errors.iter();
                let errors: Vec<String> = errors
                    .map(|error| {
                        format!("{} {}", error.path, error.message)
                            .trim()
                            .to_owned()
                    })
                    .collect();
                let code = validation.what.code.map_or("invalid", Code::as_str);
                format!("no ({code}): {}", errors.join("; "))
            };
            let definition = artifacts
                .zip(self.catalog.as_ref())
                .and_then(|(store, catalog)| {
                    let name = &self.intent.as_ref()?.what.tool_name;
                    let bytes = store.read(&catalog.what.reference, CATALOG_LIMIT).ok()?;
                    let fields = schema_fields(&bytes, name)?;
                    events.push(catalog.sequence);
                    Some(fields)
                });
            if let Some(fields) = definition {
                says.push_str(&format!("; the schema then: {fields}"));
            }
            (says, events)
        });
        answer("schema", "Does the input match the schema?", says)
    }

    pub(super) fn rules(&self) -> Answer {
        let says = self.evaluated.as_ref().map(|evaluated| {
            let mut events = vec![evaluated.sequence];
            let what = &evaluated.what;
            let rules: Vec<String> = what.matched.iter().map(rule).collect();
            let hit = if rules.is_empty() {
                "no rule matched".to_owned()
            } else {
                rules.join(", ")
            };
            let mut says = format!(
                "{hit}; {} by {}: {}",
                what.decision,
                what.decision_source.as_str().replace('_', " "),
                what.reason
            );
            if let Some(resolved) = &self.resolved {
                events.push(resolved.sequence);
                says.push_str(&format!(
                    "; then {} by {}",
                    resolved.what.decision, resolved.what.decision_source
                ));
            }
            (says, events)
        });
        let says = says.or_else(|| self.not_run());
        answer("rules", "Does it hit rules, and who decided?", says)
    }

    pub(super) fn concurrency(&self) -> Answer {
        let says = match &self.started {
            Some(started) => {
                let plan = &started.what.plan;
                let mut says = format!("{}, waited {} ms", plan.concurrency, plan.waited_ms);
                if let Some(key) = &plan.lock_key {
                    says.push_str(&format!(", lock {key}"));
                }
                if plan.background {
                    says.push_str(", in the background");
                }
                Some((says, vec![started.sequence]))
            }
            None => self.entry().map(|entry| {
                let says = format!("declared {}; it has not run", entry.what.concurrency);
                (says, vec![entry.sequence])
            }),
        };
        answer("concurrency", "Beside what may it run?", says)
    }

    pub(super) fn cwd(&self) -> Answer {
        let started = self.started.as_ref();
        let says = started
            .filter(|started| !started.what.cwd.is_empty())
            .map(|started| (started.what.cwd.clone(), vec![started.sequence]));
        answer(
            "cwd",
            "In which directory does it run?",
            says.or_else(|| self.not_run()),
        )
    }

    pub(super) fn sandbox(&self) -> Answer {
        let says = match (&self.sandbox, &self.started) {
            (Some(sandbox), _) => {
                let what = &sandbox.what;
                let mut events = vec![sandbox.sequence];
                let holds = what.layers.iter().filter(|layer| layer.holds).count();
                let mut says = format!(
                    "{}: profile {}, {}, network {}, {holds} of {} layers hold, may write {}",
                    what.status,
                    what.profile_id,
                    what.mechanism,
                    what.network,
                    what.layers.len(),
                    if what.write_roots.is_empty() {
                        "nothing".into()
                    } else {
                        what.write_roots.join(", ")
                    }
                );
                if !self.violations.is_empty() {
                    says.push_str(&format!("; {} violations noticed", self.violations.len()));
                    events.extend(&self.violations);
                }
                Some((says, events))
            }
            (None, Some(started)) if !started.what.sandboxed => Some((
                "none: it ran inside this program and started no command".into(),
                vec![started.sequence],
            )),
            (None, _) => self.not_run(),
        };
        answer("sandbox", "In which sandbox?", says)
    }

    pub(super) fn timeout(&self) -> Answer {
        let says = self.started.as_ref().map(|started| {
            let mut events = vec![started.sequence];
            let limit = match started.what.timeout_ms {
                Some(limit) => format!("limit {limit} ms"),
                None => "no limit of its own".into(),
            };
            let cancel = if started.what.plan.cancellable {
                "can be cancelled"
            } else {
                "cannot be cancelled"
            };
            let mut says = format!(
                "{limit}; {cancel}; new input would {} it",
                started.what.flags.interrupt_behavior
            );
            if let Some(terminated) = &self.terminated {
                events.push(terminated.sequence);
                says.push_str(&format!(
                    "; ended by {} with signal {}: {}",
                    terminated.what.by, terminated.what.signal, terminated.what.reason
                ));
            }
            (says, events)
        });
        let says = says.or_else(|| self.not_run());
        answer("timeout", "How is it ended or cancelled?", says)
    }

    pub(super) fn truncation(&self) -> Answer {
        let says = self.observation.as_ref().map(|observation| {
            let mut events = vec![observation.sequence];
            let says = if observation.what.truncated {
                let how = self.truncated.as_ref().map_or_else(String::new, |found| {
                    events.push(found.sequence);
                    format!(", keeping {}", found.what.strategy)
                });
                format!(
                    "yes: {} bytes omitted{how}; the whole is kept: {}",
                    observation.what.omitted_bytes,
                    artifacts_of(&observation.what.artifact_refs)
                )
            } else {
                "no".into()
            };
            (says, events)
        });
        answer("truncation", "Was the output truncated?", says)
    }

    pub(super) fn outcome(&self) -> Answer {
        let mut events = Vec::new();
        let mut parts = Vec::new();
        if let Some(completed) = &self.completed {
            events.push(completed.sequence);
            parts.push(match (completed.what.exit_code, completed.what.signal) {
                (Some(code), _) => format!("exit {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => "exit code unknown".into(),
            });
            parts.push(format!(
                "{} bytes stdout, {} bytes stderr",
                completed.what.stdout_bytes, completed.what.stderr_bytes
            ));
        }
        if let Some(result) = &self.result {
            events.push(result.sequence);
            parts.push(format!("code {}", result.what.code));
            if !result.what.artifact_refs.is_empty() {
                parts.push(artifacts_of(&result.what.artifact_refs));
            }
        }
        if let Some(failed) = &self.failed {
            events.push(failed.sequence);
            parts.push(format!(
                "code {} in phase {}: {}; action happened: {}",
                failed.what.code,
                failed.what.phase,
                failed.what.message,
                failed.what.action_happened
            ));
        }
        let says = (!parts.is_empty()).then(|| (parts.join("; "), events));
        answer(
            "outcome",
            "What came out (exit, stderr, diff, artifacts)?",
            says,
        )
    }

    pub(super) fn model_view(&self) -> Answer {
        let says = self.observation.as_ref().and_then(|observation| {
            let what = &observation.what;
            let says = match (&what.model_text, &what.model_text_ref) {
                (Some(text), _) => {
                    let first = text.lines().next().unwrap_or_default();
                    format!(
                        "{} characters, marked untrusted: {first}",
                        text.chars().count()
                    )
                }
                (None, Some(artifact)) => format!("the text in artifact {artifact}"),
                (None, None) => return None,
            };
            Some((says, vec![observation.sequence]))
        });
        answer("model_view", "What did the model see of it?", says)
    }

    pub(super) fn user_view(&self) -> Answer {
        let says = self.observation.as_ref().map(|observation| {
            let what = &observation.what;
            (
                format!("{}: {}", what.title, what.user_text),
                vec![observation.sequence],
            )
        });
        answer("user_view", "What did the screen show?", says)
    }

    pub(super) fn audit_view(&self) -> Answer {
        let says = (!self.events.is_empty()).then(|| {
            let first = self.events.first().map_or(0, |(sequence, _)| *sequence);
            let last = self.events.last().map_or(0, |(sequence, _)| *sequence);
            let classes: Vec<&str> = self
                .events
                .iter()
                .map(|(_, class)| class.as_str())
                .collect();
            (
                format!(
                    "{} events from {first} to {last}: {}",
                    self.events.len(),
                    classes.join(", ")
                ),
                vec![first, last],
            )
        });
        answer("audit_view", "What does the record hold?", says)
    }

    pub(super) fn replay_view(&self) -> Answer {
        let says = match (&self.observation, self.events.last()) {
            (Some(observation), _) => Some((
                format!(
                    "the observation of event {} is shown again; nothing is run",
                    observation.sequence
                ),
                vec![observation.sequence],
            )),
            (None, Some((last, _))) => Some((
                "its events are told; nothing is run, and no observation is recorded".into(),
                vec![*last],
            )),
            (None, None) => None,
        };
        answer("replay", "What does replay do with it?", says)
    }

    pub(super) fn proposer(&self) -> Answer {
        let says = self.intent.as_ref().and_then(|intent| {
            let request = self.asked_by.as_ref()?;
            let mut says = format!(
                "the model {}/{} in request {}",
                request.what.provider, request.what.model, request.what.request_no
            );
            if let Some(reason) = &intent.what.reason {
                says.push_str(&format!("; its reason: {reason}"));
            }
            Some((says, vec![request.sequence, intent.sequence]))
        });
        answer("proposed_by", "Who proposed it?", says)
    }

    pub(super) fn context(&self) -> Answer {
        let says = self.saw.as_ref().map(|context| {
            let mut events = vec![context.sequence];
            let parts: Vec<&str> = context
                .what
                .included
                .iter()
                .map(|item| item.source.as_str())
                .collect();
            let mut says = format!("{} parts: {}", parts.len(), parts.join(", "));
            if let Some(request) = &self.asked_by {
                events.push(request.sequence);
                match &request.what.input_ref {
                    Some(artifact) => says.push_str(&format!("; exact bytes: {artifact}")),
                    None => says.push_str("; the exact bytes were not kept"),
                }
            }
            (says, events)
        });
        answer("context", "What did the model see before?", says)
    }

    pub(super) fn confirmation(&self) -> Answer {
        let says = match (&self.answered, self.asked, &self.evaluated) {
            (Some(answered), _, _) if !self.state.awaits_answer() => Some((
                format!(
                    "asked; {} by {} after {} ms",
                    answered.what.decision.as_str().replace('_', " "),
                    answered.what.decided_by,
                    answered.what.latency_ms
                ),
                vec![answered.sequence],
            )),
            (_, Some(asked), _) => Some(("asked; not answered yet".into(), vec![asked])),
            (None, None, Some(evaluated)) if evaluated.what.decision != Effect::Ask => Some((
                format!("not asked: {} without a question", evaluated.what.decision),
                vec![evaluated.sequence],
            )),
            _ => self.never_started().map(|failed| {
                (
                    "not asked: it ended before that".to_owned(),
                    vec![failed.sequence],
                )
            }),
        };
        answer("confirmed", "Did the user confirm it?", says)
    }

    pub(super) fn ran(&self) -> Answer {
        let says = match (&self.command, &self.started) {
            (Some(command), _) => Some((command.what.clone(), vec![command.sequence])),
            (None, Some(started)) => Some((
                format!(
                    "{} with arguments {}",
                    started.what.executor, started.what.args_sha256
                ),
                vec![started.sequence],
            )),
            (None, None) => self
                .never_started()
                .map(|failed| ("nothing".to_owned(), vec![failed.sequence])),
        };
        answer("ran", "What actually ran?", says)
    }

    pub(super) fn changed(&self) -> Answer {
        let list = |effects: &[SideEffect]| {
            if effects.is_empty() {
                return "none recorded".to_owned();
            }
            let each = effects.iter().map(|effect| {
                let image = match (&effect.before_ref, &effect.no_image) {
                    (Some(_), _) => "can be taken back",
                    (None, Some(why)) => why,
                    (None, None) => "no image of before",
                };
                format!("{} {} ({image})", effect.kind, effect.path)
            });
            each.collect::<Vec<_>>().join(", ")
        };
        let says = match (&self.result, &self.failed) {
            (Some(result), _) => Some((list(&result.what.side_effects), vec![result.sequence])),
            (None, Some(failed)) => Some((list(&failed.what.side_effects), vec![failed.sequence])),
            (None, None) => None,
        };
        answer("changed", "Which files changed?", says)
    }

    pub(super) fn next(&self) -> Answer {
        let says = self.next_request.as_ref().map(|next| {
            (
                format!("model request {} carried the observation", next.what),
                vec![next.sequence],
            )
        });
        answer("next", "What came next?", says)
    }
}

fn answer(key: &'static str, question: &'static str, says: Option<(String, Vec<u64>)>) -> Answer {
    let (answer, events) = match says {
        Some((says, events)) => (Some(says), events),
        None => (None, Vec::new()),
    };
    Answer {
        key,
        question,
        answer,
        events,
    }
}

fn artifacts_of(artifacts: &[ArtifactRef]) -> String {
    let each = artifacts.iter().map(|artifact| {
        format!(
            "{} {} ({} bytes)",
            artifact.kind,
            short(&artifact.artifact_id),
            artifact.bytes
        )
    });
    each.collect::<Vec<_>>().join(", ")
}

fn short(artifact: &ArtifactId) -> String {
    let hex = artifact.hex();
    format!("sha256:{}…", hex.get(..12).unwrap_or(hex))
}

/// The fields a tool took then: `path (required), limit`.
fn schema_fields(catalog: &[u8], tool: &str) -> Option<String> {
    let catalog: Value = serde_json::from_slice(catalog).ok()?;
    let tools = catalog
        .as_array()
        .or_else(|| catalog.get("tools")?.as_array())?;
    let named = |entry: &&Value| {
        let name = entry.get("tool_name").or_else(|| entry.get("name"));
        name.and_then(Value::as_str) == Some(tool)
    };
    let schema = tools.iter().find(named)?.get("input_schema")?;
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let fields = schema.get("properties")?.as_object()?.keys().map(|name| {
        if required.contains(&name.as_str()) {
            format!("{name} (required)")
        } else {
            name.clone()
        }
    });
    Some(fields.collect::<Vec<_>>().join(", "))
}

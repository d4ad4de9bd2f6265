//! The authority of a session: the gate, the mode in force, and the approvals that are pending.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_policy::gate::{
    ApprovalKey, Bases, Denial, DiskFacts, Gate, GateRequest, Rule, RuleProblem, SandboxLevel,
    Setting, Trial, uses_network,
};
use agent_protocol::id::ActionId;
use agent_protocol::payload::permission::{
    ActionDecision, DecidedBy, DecisionSource, Effect, GrantScope, Layer, PermissionEvaluated,
    RuleOrigin, SESSION_EDITS,
};
use agent_protocol::payload::tool::{CatalogPolicy, RuntimeOwner};
use agent_protocol::status::Mode;
use agent_protocol::{Clock, Event, Payload};
use agent_tool_runtime::{
    Answer, Authority, Cancel, Decision, IntentOrigin, PendingCall, PermissionRequest, Question,
    Reveals, Subject, ToolDefinition, Tools, Workspace,
};

use serde_json::Value;

use crate::approvals::PendingApprovals;

/// Asks whether the project's git tree holds changes that are in no commit; `None` when unknown.
pub type TreeIsDirty = Box<dyn Fn() -> Option<bool> + Send + Sync>;

/// What does not change while a session runs.
pub struct Place {
    pub home: PathBuf,
    /// The project's root, which rules are relative to.
    pub project: PathBuf,
    pub sandbox: SandboxLevel,
    /// The tools that rules can name.
    pub tools: Tools,
    pub tree_is_dirty: TreeIsDirty,
    /// How long a question stays open.
    pub ask_timeout: Option<Duration>,
    pub command_timeout_ms: Option<u64>,
    pub output_limit: Option<u64>,
}

/// The authority of one session.
pub struct SessionAuthority {
    gate: Mutex<Gate>,
    mode: Mutex<Mode>,
    turn: Mutex<String>,
    /// Questions seen in the log, by what an answer to them would hold for, with the vouching for them.
    asked: Mutex<Vec<(ActionId, ApprovalKey, bool)>>,
    /// Held while what decides changes, so that changes take effect one after the other, each with the
    /// questions it settles, in the order they are recorded.
    changing: Mutex<()>,
    place: Place,
    approvals: Arc<PendingApprovals>,
    clock: Arc<dyn Clock>,
}

impl SessionAuthority {
    #[must_use]
    pub fn new(
        rules: Vec<Rule>,
        mode: Mode,
        place: Place,
        approvals: Arc<PendingApprovals>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            gate: Mutex::new(Gate {
                rules,
                ..Gate::default()
            }),
            mode: Mutex::new(mode),
            turn: Mutex::default(),
            asked: Mutex::default(),
            changing: Mutex::default(),
            place,
            approvals,
            clock,
        }
    }

    /// Takes a fact of an earlier run into account: grants and denials are in the log. What is not
    /// `own`, because it was written elsewhere, can deny and not grant. Returns false for an answer
    /// that allowed something and does not count.
    pub fn apply(&self, event: &Event, own: bool) -> bool {
        match &event.payload {
            Payload::TurnStarted(_) => {
                if let Some(turn) = &event.scope.turn_id {
                    *lock(&self.turn) = turn.to_string();
                }
            }
            Payload::ActionRequired(required) => {
                if let (Some(action), Some(key)) = (&event.scope.action_id, &required.approval_key)
                {
                    let key = ApprovalKey::from_log(key.as_str());
                    lock(&self.asked).push((action.clone(), key, own));
                }
            }
            Payload::ActionResolved(resolved) => {
                let Some(action) = &event.scope.action_id else {
                    return true;
                };
                let mut asked = lock(&self.asked);
                let Some(at) = asked.iter().position(|(known, ..)| known == action) else {
                    return true;
                };
                let (_, key, own_question) = asked.remove(at);
                drop(asked);
                let allows = matches!(
                    resolved.decision,
                    ActionDecision::AllowOnce | ActionDecision::AllowSession
                );
                if allows && !(own && own_question) {
                    return resolved.scope == GrantScope::Once
                        && resolved.decision == ActionDecision::AllowOnce;
                }
                let note = resolved
                    .payload
                    .as_ref()
                    .and_then(|answer| answer.note.clone());
                self.remember(key, resolved.decision, resolved.scope, note);
            }
            Payload::PolicyChanged(changed) => {
                if let Some(mode) = changed.changed.mode {
                    *lock(&self.mode) = mode;
                }
                let directories = changed.changed.directories_added.iter().flatten();
                let directories: Vec<PathBuf> = directories.map(PathBuf::from).collect();
                if !directories.is_empty() && changed.by == DecidedBy::User {
                    if !own {
                        return false;
                    }
                    for directory in directories {
                        // One that no rule can name is asked about as before.
                        let _ = self.add_directory(&directory);
                    }
                }
                let first = format!("allow {}", SESSION_EDITS[0]);
                if changed.scope == GrantScope::Session
                    && changed.by == DecidedBy::User
                    && changed.changed.rules_added.contains(&first)
                    && let Ok(rules) = self.session_edits()
                {
                    if !own {
                        return false;
                    }
                    lock(&self.gate).rules.extend(rules);
                }
            }
            _ => {}
        }
        true
    }

    /// What would be decided about a call in `mode`; nothing is asked, run or recorded. `None` when
    /// it is no call of a tool the gate knows.
    #[must_use]
    pub fn evaluate(
        &self,
        tool: &ToolDefinition,
        input: &Value,
        mode: Mode,
        workspace: &Workspace,
    ) -> Option<PermissionEvaluated> {
        let semantics = tool.semantics(input, workspace)?;
        let turn = lock(&self.turn).clone();
        let call = GateRequest {
            tool,
            input,
            semantics: &semantics,
        };
        let facts = DiskFacts {
            dirty: || (self.place.tree_is_dirty)(),
        };
        let setting = self.setting(workspace, mode, &turn);
        Some(lock(&self.gate).evaluate(&call, &setting, &facts).evaluated)
    }

    fn setting<'a>(&'a self, workspace: &'a Workspace, mode: Mode, turn: &'a str) -> Setting<'a> {
        Setting {
            workspace,
            home: &self.place.home,
            mode,
            sandbox: self.place.sandbox,
            turn,
            hooks: &[],
            timeout_ms: self.place.command_timeout_ms,
            output_limit: self.place.output_limit,
        }
    }

    /// Changes the ceiling once it is recorded, and has open questions judged by it.
    ///
    /// # Errors
    /// When it cannot be recorded; the mode is then as before.
    pub fn set_mode<E>(&self, mode: Mode, record: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let _one = lock(&self.changing);
        record()?;
        *lock(&self.mode) = mode;
        self.reconsider(&mode_is(mode));
        Ok(())
    }

    /// The rules for all edits in this project until the session ends.
    ///
    /// # Errors
    /// When the project's place cannot stand in a rule.
    pub fn session_edits(&self) -> Result<Vec<Rule>, RuleProblem> {
        let origin = RuleOrigin {
            layer: Layer::Session,
            ..RuleOrigin::default()
        };
        let bases = Bases {
            project: self.place.project.clone(),
            home: self.place.home.clone(),
        };
        let tools = &self.place.tools;
        let parse = |text: &&str| Rule::parse(Effect::Allow, text, origin.clone(), &bases, tools);
        SESSION_EDITS.iter().map(parse).collect()
    }

    /// Lets a directory outside the project be read until the session ends, also by commands; the caller records
    /// it. Secrets in it ask as they do in the project.
    ///
    /// # Errors
    /// When its path cannot stand in a rule.
    pub fn add_directory(&self, path: &Path) -> Result<(), RuleProblem> {
        let origin = RuleOrigin {
            layer: Layer::Session,
            ..RuleOrigin::default()
        };
        let bases = Bases {
            project: self.place.project.clone(),
            home: self.place.home.clone(),
        };
        let tools = &self.place.tools;
        let reads = |tool: &&ToolDefinition| {
            tool.subject == Subject::Read
                && tool.reveals == Reveals::Content
                && tool.owner == RuntimeOwner::Local
                && tool.takes_pattern()
        };
        let mut rules = Vec::new();
        for tool in tools.iter().filter(reads) {
            let text = format!("{}({})", tool.name, as_pattern(path)?);
            let origin = origin.clone();
            rules.push(Rule::parse(Effect::Allow, &text, origin, &bases, tools)?);
        }
        let _one = lock(&self.changing);
        let mut gate = lock(&self.gate);
        if !gate.directories.iter().any(|known| known == path) {
            gate.rules.extend(rules);
            gate.directories.push(path.to_owned());
        }
        drop(gate);
        self.reconsider(&format!("{} may be read now", path.display()));
        Ok(())
    }

    /// True if [`Self::add_directory`] can take it.
    ///
    /// # Errors
    /// When its path cannot stand in a rule.
    pub fn check_directory(path: &Path) -> Result<(), RuleProblem> {
        as_pattern(path).map(drop)
    }

    /// The directories outside the project that may be read.
    #[must_use]
    pub fn directories(&self) -> Vec<PathBuf> {
        lock(&self.gate).directories.clone()
    }

    /// Tries a rule on the call of an open question; see [`Trial`]. `None` when no such question is open.
    #[must_use]
    pub fn try_rule<T>(&self, action: &ActionId, with: impl FnOnce(Trial<'_>) -> T) -> Option<T> {
        let call = self.approvals.call(action)?;
        let turn = lock(&self.turn).clone();
        let request = GateRequest {
            tool: &call.tool,
            input: &call.input,
            semantics: &call.semantics,
        };
        let facts = DiskFacts {
            dirty: || (self.place.tree_is_dirty)(),
        };
        let gate = lock(&self.gate).clone();
        Some(with(Trial {
            gate: &gate,
            request: &request,
            setting: &self.setting(&call.workspace, self.mode(), &turn),
            facts: &facts,
        }))
    }

    /// Adds rules the user saved, and has open questions judged again; the caller records them and
    /// writes them to their file.
    pub fn add_rules(&self, rules: Vec<Rule>) {
        let texts: Vec<String> = rules.iter().map(|rule| format!("`{rule}`")).collect();
        let _one = lock(&self.changing);
        lock(&self.gate).rules.extend(rules);
        self.reconsider(&format!("there is a new rule {}", texts.join(" and ")));
    }

    fn reconsider(&self, change: &str) {
        let judge = |call: &PendingCall| self.decide(&call.request()).evaluated;
        self.approvals.reconsider(change, judge);
    }

    fn remember(
        &self,
        key: ApprovalKey,
        decision: ActionDecision,
        scope: GrantScope,
        note: Option<String>,
    ) {
        let mut gate = lock(&self.gate);
        match decision {
            ActionDecision::AllowSession => gate.grants.grant(key, GrantScope::Session),
            ActionDecision::AllowOnce => gate.grants.grant(key, scope),
            ActionDecision::Deny | ActionDecision::Abort => {
                let turn = lock(&self.turn).clone();
                gate.grants.deny(key, Denial { turn, note });
            }
            ActionDecision::Answer => {}
        }
    }
}

impl Authority for SessionAuthority {
    fn mode(&self) -> Mode {
        *lock(&self.mode)
    }

    fn reads_outside(&self, path: &Path) -> bool {
        self.mode() == Mode::Full || lock(&self.gate).opens_for_reading(path)
    }

    fn decide(&self, request: &PermissionRequest<'_>) -> Decision {
        let turn = lock(&self.turn).clone();
        let setting = self.setting(request.workspace, self.mode(), &turn);
        let call = GateRequest {
            tool: request.tool,
            input: request.input,
            semantics: request.semantics,
        };
        let facts = DiskFacts {
            dirty: || (self.place.tree_is_dirty)(),
        };
        let mut judgement = lock(&self.gate).evaluate(&call, &setting, &facts);
        let evaluated = &mut judgement.evaluated;
        // Having typed it is the answer to what a mode would ask.
        let typed = request.origin == IntentOrigin::User;
        if typed
            && evaluated.decision == Effect::Ask
            && matches!(
                evaluated.decision_source,
                DecisionSource::Mode | DecisionSource::Default
            )
        {
            evaluated.decision = Effect::Allow;
            evaluated.decision_source = DecisionSource::Human;
            evaluated.reason = "the user typed this command".to_owned();
        }
        // It would only fail: the question has a key that gives it the network.
        if typed
            && evaluated.decision == Effect::Allow
            && !request.semantics.network
            && self.place.sandbox != SandboxLevel::Off
            && uses_network(&evaluated.risk)
        {
            evaluated.decision = Effect::Ask;
            evaluated.decision_source = DecisionSource::Sandbox;
            evaluated.reason = "it needs the network, which the sandbox does not allow".to_owned();
        }
        Decision {
            evaluated: judgement.evaluated,
            confinement: match typed {
                true => judgement.allowed,
                false => judgement.confinement,
            },
            ask_timeout: self.place.ask_timeout,
            approval_key: Some(judgement.key.as_str().to_owned()),
        }
    }

    fn expect_answer(&self, action: &ActionId, call: PendingCall) {
        let asked_in = call.mode;
        self.approvals.register(action, Some(Arc::new(call)));
        // A change after the call was judged found no question to settle.
        let mode = self.mode();
        self.reconsider(&match mode == asked_in {
            true => "the rules have changed".to_owned(),
            false => mode_is(mode),
        });
    }

    fn withdraw(&self, action: &ActionId, reason: &str) {
        self.approvals.withdraw(action, reason);
    }

    fn ask(&self, question: &Question, cancel: &Cancel) -> Answer {
        let answer = self.approvals.ask(question, self.clock.now(), cancel);
        if let (
            Answer::Decided {
                decision,
                scope,
                note,
                ..
            },
            Some(key),
        ) = (&answer, &question.required.approval_key)
        {
            self.remember(
                ApprovalKey::from_log(key.as_str()),
                *decision,
                *scope,
                note.clone(),
            );
        }
        answer
    }

    /// A denial holds to a turn's end.
    fn turn_begins(&self, turn: &str) {
        turn.clone_into(&mut lock(&self.turn));
    }

    fn forecast(&self, definition: &ToolDefinition) -> CatalogPolicy {
        let gate = lock(&self.gate);
        let whole_tool = |effect: Effect| {
            let mut rules = gate.rules.iter();
            rules.any(|rule| rule.effect == effect && rule.is_about_all_of(definition))
        };
        if whole_tool(Effect::Deny) {
            return CatalogPolicy::Denied;
        }
        if definition.subject == Subject::Plan {
            return CatalogPolicy::Ask;
        }
        if definition.needs_sandbox {
            return match self.place.sandbox {
                SandboxLevel::Full => CatalogPolicy::Sandboxed,
                SandboxLevel::Partial | SandboxLevel::Off => CatalogPolicy::Ask,
                SandboxLevel::Unavailable => CatalogPolicy::Denied,
            };
        }
        let free = match (definition.owner, self.mode()) {
            (_, Mode::Full) => true,
            _ if definition.url_field.is_some() => whole_tool(Effect::Allow),
            (RuntimeOwner::Local, Mode::AcceptEdits | Mode::Auto) => true,
            (RuntimeOwner::Local, _) => definition.is_read_only,
            // What somebody else's code says of itself opens nothing.
            _ => whole_tool(Effect::Allow),
        };
        if free && !whole_tool(Effect::Ask) {
            CatalogPolicy::Allowed
        } else {
            CatalogPolicy::Ask
        }
    }
}

/// A directory and everything in it, as the pattern of a rule.
fn as_pattern(directory: &Path) -> Result<String, RuleProblem> {
    let path = directory.to_str().filter(|path| {
        let is_plain = |character: char| !"()*?[]{}!\\".contains(character);
        path.starts_with('/')
            && *path != "/"
            && path.chars().all(|c| is_plain(c) && !c.is_control())
    });
    path.map(str::to_owned).ok_or_else(|| RuleProblem {
        message: format!("no rule can name `{}`", directory.display()),
        suggestion: Some("use a directory without ()*?[]{}!\\ in its path".to_owned()),
    })
}

fn mode_is(mode: Mode) -> String {
    format!("the mode is {mode} now")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

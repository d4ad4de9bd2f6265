//! A question that waits for an answer, with everything the log says about it.

use agent_protocol::id::{ActionId, ArtifactId, ToolCallId};
use agent_protocol::payload::permission::{ActionDecision, ActionRequired, ActionType};
use serde_json::Value;

/// The gate's fact about a command without the network.
const NO_NETWORK: &str = "has no network";
/// How its fact about a program that connects ends.
const CONNECTS: &str = " uses the network";

/// An open question.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    pub action_id: ActionId,
    pub call_id: Option<ToolCallId>,
    pub kind: ActionType,
    pub title: String,
    pub prompt: String,
    pub tool: String,
    pub input: Option<Value>,
    pub diff_ref: Option<ArtifactId>,
    /// Why it asks: what the gate decided and from what.
    pub why: Option<String>,
    pub risk_facts: Vec<String>,
    /// The simple commands the parser found.
    pub parts: Vec<String>,
    /// The parser is sure of them; otherwise they are what the words look like.
    pub understood: bool,
    /// Where they read from and write to.
    pub redirects: Vec<String>,
    /// Why the command is not known to only read.
    pub unproven: Option<String>,
    /// No answer holds for longer than this once.
    pub every_time: bool,
    /// The question expires after this long.
    pub timeout_ms: Option<u64>,
    pub suggested_rule: Option<String>,
    /// The rule that an answer for the session adds, where that is more than this one call.
    pub session_rule: Option<String>,
    pub cwd: Option<String>,
    pub decisions: Vec<ActionDecision>,
}

/// What an approval is about, in the form it can be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Command(String),
    /// A change to a file, by its diff.
    Diff(ArtifactId),
    /// A change to a file, by what is replaced and what is put there.
    Replacements {
        path: String,
        pairs: Vec<(String, String)>,
    },
    /// A new content for a file.
    Content {
        path: String,
        content: String,
    },
    /// Anything else, as the input says it.
    Input(String),
    /// A plan, as Markdown.
    Plan(String),
    /// A question without a call.
    Words(String),
}

impl Pending {
    /// The question of an `action.required` event. `why` and `parts` come from the gate's own event.
    #[must_use]
    pub fn new(action_id: ActionId, call_id: Option<ToolCallId>, asked: &ActionRequired) -> Self {
        Self {
            action_id,
            call_id,
            kind: asked.action_type,
            title: asked.title.clone(),
            prompt: asked.prompt.clone(),
            tool: asked.tool_name.clone().unwrap_or_default(),
            input: asked.safe_args.clone(),
            diff_ref: asked.diff_ref.clone(),
            why: asked.policy.clone(),
            risk_facts: asked.risk_facts.clone(),
            parts: Vec::new(),
            understood: true,
            redirects: Vec::new(),
            unproven: None,
            every_time: false,
            timeout_ms: asked.timeout_ms,
            suggested_rule: asked.suggested_rule.clone(),
            session_rule: None,
            cwd: asked.cwd.clone(),
            decisions: asked.decisions.clone(),
        }
    }

    /// Whether a call asks for permission; otherwise somebody has a question in words.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        self.kind == ActionType::ToolPermission
    }

    /// The plan that is to be approved.
    #[must_use]
    pub fn plan(&self) -> Option<&str> {
        let input = self.input.as_ref();
        let plan = input.filter(|_| self.kind == ActionType::Plan)?;
        plan.get("plan")?.as_str()
    }

    /// The file the call is about.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.input.as_ref()?.get("path")?.as_str()
    }

    /// True if the call is about a page: an answer for the session then holds for its host.
    #[must_use]
    pub fn names_host(&self) -> bool {
        let input = self.input.as_ref();
        input.is_some_and(|input| input.get("url").is_some())
    }

    /// Whether it would run with the network.
    #[must_use]
    pub fn wants_network(&self) -> bool {
        let input = self.input.as_ref();
        input.and_then(|input| input.get("network")) == Some(&Value::Bool(true))
    }

    /// True for a command that would run without the network, and could be given it.
    #[must_use]
    pub fn lacks_network(&self) -> bool {
        let is_command = matches!(self.subject(), Subject::Command(_));
        is_command && !self.wants_network() && self.risk_facts.iter().any(|fact| fact == NO_NETWORK)
    }

    /// True for one of which it is known that it will miss it.
    #[must_use]
    pub fn misses_network(&self) -> bool {
        self.lacks_network() && self.risk_facts.iter().any(|fact| fact.ends_with(CONNECTS))
    }

    /// The input, with the network.
    #[must_use]
    pub fn with_network(&self) -> Option<Value> {
        let mut input = self.input.clone()?;
        input
            .as_object_mut()?
            .insert("network".to_owned(), Value::Bool(true));
        Some(input)
    }

    /// What the model says a command is for.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        let input = self.input.as_ref()?;
        input.get("command")?;
        let said = input.get("description")?.as_str()?.trim();
        (!said.is_empty()).then_some(said)
    }

    /// What is to be judged.
    #[must_use]
    pub fn subject(&self) -> Subject {
        if let Some(plan) = self.plan() {
            return Subject::Plan(plan.to_owned());
        }
        let field = |name: &str| self.input.as_ref()?.get(name)?.as_str().map(str::to_owned);
        if let Some(command) = field("command") {
            return Subject::Command(command);
        }
        if let Some(diff) = &self.diff_ref {
            return Subject::Diff(diff.clone());
        }
        if let Some(path) = field("path") {
            if let Some(content) = field("content") {
                return Subject::Content { path, content };
            }
            let pairs = self.replacements();
            if !pairs.is_empty() {
                return Subject::Replacements { path, pairs };
            }
        }
        match &self.input {
            Some(input) => Subject::Input(
                serde_json::to_string_pretty(input).unwrap_or_else(|_| input.to_string()),
            ),
            None => Subject::Words(self.prompt.clone()),
        }
    }

    fn replacements(&self) -> Vec<(String, String)> {
        let pair = |value: &Value| {
            Some((
                value.get("old_string")?.as_str()?.to_owned(),
                value.get("new_string")?.as_str()?.to_owned(),
            ))
        };
        let Some(input) = &self.input else {
            return Vec::new();
        };
        match input.get("edits").and_then(Value::as_array) {
            Some(edits) => edits.iter().filter_map(pair).collect(),
            None => pair(input).into_iter().collect(),
        }
    }

    /// The parts of the input the user may rewrite before agreeing, with their names.
    #[must_use]
    pub fn editable(&self) -> Vec<(String, String)> {
        let Some(input) = &self.input else {
            return Vec::new();
        };
        for name in ["command", "content", "plan"] {
            if let Some(text) = input.get(name).and_then(Value::as_str) {
                return vec![(name.to_owned(), to_edit(text))];
            }
        }
        let pairs = self.replacements();
        if !pairs.is_empty() {
            let count = pairs.len();
            return pairs
                .into_iter()
                .enumerate()
                .map(|(number, (_, new))| {
                    let name = match count {
                        1 => "replacement".to_owned(),
                        _ => format!("replacement {} of {count}", number + 1),
                    };
                    (name, to_edit(&new))
                })
                .collect();
        }
        let text = serde_json::to_string_pretty(input).unwrap_or_default();
        vec![("input".to_owned(), text)]
    }

    /// The input with its editable parts replaced by `texts`, or why that is not an input.
    ///
    /// # Errors
    /// When the user rewrote the input as JSON that is none.
    pub fn edited(&self, texts: &[String]) -> Result<Value, String> {
        let mut input = self.input.clone().unwrap_or(Value::Null);
        let Some(first) = texts.first() else {
            return Ok(input);
        };
        for name in ["command", "content", "plan"] {
            if let Some(value) = input.get_mut(name).filter(|value| value.is_string()) {
                put(value, first);
                return Ok(input);
            }
        }
        if let Some(edits) = input.get_mut("edits").and_then(Value::as_array_mut) {
            for (edit, text) in edits.iter_mut().zip(texts) {
                if let Some(value) = edit.get_mut("new_string") {
                    put(value, text);
                }
            }
            return Ok(input);
        }
        if let Some(value) = input.get_mut("new_string") {
            put(value, first);
            return Ok(input);
        }
        serde_json::from_str(first).map_err(|error| format!("this is not JSON: {error}"))
    }
}

/// Whether every line ends with carriage return and line feed.
fn has_crlf(text: &str) -> bool {
    text.contains("\r\n") && text.matches('\n').count() == text.matches("\r\n").count()
}

/// The text as it is edited: one character ends a line, whatever the file has.
fn to_edit(text: &str) -> String {
    if has_crlf(text) {
        text.replace("\r\n", "\n")
    } else {
        text.to_owned()
    }
}

/// Puts edited text in the place of `value`, with the line ends that one had.
fn put(value: &mut Value, text: &str) {
    let crlf = value.as_str().is_some_and(has_crlf);
    *value = Value::String(match crlf {
        true => text.replace("\r\n", "\n").replace('\n', "\r\n"),
        false => text.to_owned(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pending(input: Value) -> Pending {
        let asked = ActionRequired {
            safe_args: Some(input),
            ..ActionRequired::default()
        };
        Pending::new(ActionId::default(), None, &asked)
    }

    fn check(input: Value, new_texts: &[&str], expected: Value) {
        let pending = pending(input);
        assert_eq!(pending.editable().len(), new_texts.len());
        let texts: Vec<String> = new_texts.iter().map(ToString::to_string).collect();
        assert_eq!(pending.edited(&texts), Ok(expected));
    }

    #[test]
    fn an_edit_changes_only_what_was_shown() {
        check(
            json!({"command": "ls", "description": "d"}),
            &["ls -l"],
            json!({"command": "ls -l", "description": "d"}),
        );
        check(
            json!({"path": "a", "edits": [{"old_string": "1", "new_string": "2"}, {"old_string": "3", "new_string": "4"}]}),
            &["x", "y"],
            json!({"path": "a", "edits": [{"old_string": "1", "new_string": "x"}, {"old_string": "3", "new_string": "y"}]}),
        );
        check(
            json!({"path": "a", "old_string": "1", "new_string": "2"}),
            &["x"],
            json!({"path": "a", "old_string": "1", "new_string": "x"}),
        );
        check(
            json!({"path": "Makefile", "content": "all:\r\n\tcc\r\n"}),
            &["all:\n\tcc -g\n\tls\n"],
            json!({"path": "Makefile", "content": "all:\r\n\tcc -g\r\n\tls\r\n"}),
        );
        check(
            json!({"other": 1}),
            &[r#"{"other": 2}"#],
            json!({"other": 2}),
        );
        assert!(pending(json!({"other": 1})).edited(&["{".into()]).is_err());
    }
}

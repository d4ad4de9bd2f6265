//! A rule set tried on what really happened.

use std::collections::BTreeMap;

use agent_protocol::payload::permission::{Effect, Layer, RuleOrigin};
use serde_json::Value;

use super::evaluate::{Gate, GateRequest, Setting, analysed};
use super::facts::Facts;
use super::rule::{Bases, Rule};
use crate::{PermissionSemantics, ToolDefinition, Tools};

/// One call as the log has it.
#[derive(Debug, Clone)]
pub struct RecordedCall {
    pub tool_call_id: String,
    pub tool: String,
    pub input: Value,
    /// What the gate said then; nothing for a call that another program decided.
    pub decision: Option<Effect>,
    /// What a person answered, if one was asked.
    pub answer: Option<Effect>,
}

/// A question that came more than once, and the rule that would have answered it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeated {
    pub rule: String,
    pub questions: usize,
}

/// A call as it would be decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    pub tool_call_id: String,
    pub tool: String,
    pub decision: Effect,
    pub reason: String,
}

/// A call that would be decided differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub tool_call_id: String,
    pub before: Effect,
    pub after: Effect,
    pub reason: String,
    /// A person had said no to something that would now just run.
    pub against_a_person: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BacktestReport {
    pub before: Counts,
    pub after: Counts,
    /// Every call that could be judged, in order.
    pub judged: Vec<Judged>,
    pub changed: Vec<Changed>,
    /// The smallest rules that would remove the questions still repeated, best first.
    pub rules_to_add: Vec<Repeated>,
    /// Calls whose tool or input is not known here.
    pub skipped: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub allowed: usize,
    pub asked: usize,
    pub denied: usize,
}

impl Counts {
    fn add(&mut self, effect: Effect) {
        match effect {
            Effect::Allow => self.allowed += 1,
            Effect::Ask => self.asked += 1,
            Effect::Deny => self.denied += 1,
        }
    }
}

/// The calls of `tools` that would have been asked about, allowed and denied with `gate`'s rules.
pub fn backtest(
    calls: &[RecordedCall],
    tools: &Tools,
    gate: &Gate,
    setting: &Setting<'_>,
    facts: &dyn Facts,
) -> BacktestReport {
    let mut report = BacktestReport::default();
    let mut open: Vec<usize> = Vec::new();
    let mut offered: BTreeMap<String, usize> = BTreeMap::new();
    for (index, call) in calls.iter().enumerate() {
        let Some((tool, semantics)) = meaning(call, tools, setting) else {
            report.skipped += 1;
            continue;
        };
        let request = GateRequest {
            tool,
            input: &call.input,
            semantics: &semantics,
        };
        let evaluated = gate.evaluate(&request, setting, facts).evaluated;
        if let Some(before) = call.decision {
            report.before.add(before);
        }
        report.after.add(evaluated.decision);
        report.judged.push(Judged {
            tool_call_id: call.tool_call_id.clone(),
            tool: call.tool.clone(),
            decision: evaluated.decision,
            reason: evaluated.reason.clone(),
        });
        if let Some(before) = call.decision
            && evaluated.decision != before
        {
            report.changed.push(Changed {
                tool_call_id: call.tool_call_id.clone(),
                before,
                after: evaluated.decision,
                reason: evaluated.reason,
                against_a_person: call.answer == Some(Effect::Deny)
                    && evaluated.decision == Effect::Allow,
            });
        }
        // A refusal is no reason to add a rule.
        if evaluated.decision == Effect::Ask && call.answer != Some(Effect::Deny) {
            open.push(index);
            if let Some(rule) = evaluated.suggested_rule {
                *offered.entry(rule).or_default() += 1;
            }
        }
    }
    report.rules_to_add = smallest_rules(calls, tools, &open, &offered, gate, setting, facts);
    report
}

fn meaning<'a>(
    call: &RecordedCall,
    tools: &'a Tools,
    setting: &Setting<'_>,
) -> Option<(&'a ToolDefinition, PermissionSemantics)> {
    let tool = tools.find(&call.tool)?;
    Some((tool, tool.semantics(&call.input, setting.workspace)?))
}

/// Takes, one after the other, the rule that answers most of the questions still open, as long as it
/// answers at least two.
fn smallest_rules(
    calls: &[RecordedCall],
    tools: &Tools,
    open: &[usize],
    offered: &BTreeMap<String, usize>,
    gate: &Gate,
    setting: &Setting<'_>,
    facts: &dyn Facts,
) -> Vec<Repeated> {
    let bases = Bases {
        project: setting.workspace.root.clone(),
        home: setting.home.to_owned(),
    };
    let answers = |rule: &str, index: usize| {
        let origin = RuleOrigin {
            layer: Layer::Session,
            ..RuleOrigin::default()
        };
        let Some(call) = calls.get(index) else {
            return false;
        };
        let Some((tool, semantics)) = meaning(call, tools, setting) else {
            return false;
        };
        let Ok(rule) = Rule::parse(Effect::Allow, rule, origin, &bases, tools) else {
            return false;
        };
        let mut with_rule = gate.clone();
        with_rule.rules.push(rule);
        let request = GateRequest {
            tool,
            input: &call.input,
            semantics: &semantics,
        };
        with_rule
            .decide(
                &request,
                setting,
                facts,
                analysed(&request, setting, facts).as_deref(),
            )
            .evaluated
            .decision
            == Effect::Allow
    };
    let mut covered: BTreeMap<&str, Vec<usize>> = offered
        .keys()
        .map(|rule| {
            let answered = open
                .iter()
                .copied()
                .filter(|index| answers(rule, *index))
                .collect();
            (rule.as_str(), answered)
        })
        .collect();
    let mut chosen = Vec::new();
    loop {
        let best = covered
            .iter()
            .map(|(rule, answered)| (answered.len(), *rule))
            .max_by(|left, right| left.0.cmp(&right.0).then(right.1.cmp(left.1)));
        let Some((questions, rule)) = best.filter(|(questions, _)| *questions >= 2) else {
            return chosen;
        };
        let answered = covered.remove(rule).unwrap_or_default();
        for rest in covered.values_mut() {
            rest.retain(|index| !answered.contains(index));
        }
        chosen.push(Repeated {
            rule: rule.to_owned(),
            questions,
        });
    }
}

//! The permission gate: one place that says allow, ask or deny, and why.
//!
//! [`Gate::evaluate`] is a function over values. Tools say what a call would do
//! ([`PermissionSemantics`](crate::PermissionSemantics)); rules, mode, trust, grants and [`Facts`] about
//! files come in from outside; out comes the [`Judgement`], whose `evaluated` part is the fact in the log.
//!
//! Order: circuit breakers and deny rules, then whatever asks, then whatever allows. Deny beats ask beats
//! allow whatever the layer; modes are ceilings; the default is to ask. Nothing here runs, writes or waits.
//!
//! Start reading at [`Gate::evaluate`]; `command.rs` is the part about shell scripts.

mod backtest;
mod breakers;
mod command;
mod command_facts;
mod evaluate;
mod facts;
mod findings;
mod glob;
mod grants;
mod paths;
mod proof;
mod protected;
mod protected_names;
mod repository;
mod risk;
mod rule;
mod rule_file;
mod searches;
mod semantics;
mod suggest;
mod toolchain;
mod trust;
mod words;

pub use backtest::{BacktestReport, Changed, Counts, Judged, RecordedCall, Repeated, backtest};
pub use evaluate::{Gate, GateRequest, HookVerdict, Judgement, SandboxLevel, Setting};
pub use facts::{Below, DiskFacts, Facts, NamesOnly, is_plain_name};
pub use grants::{ApprovalKey, Denial, SessionGrants};
pub use protected::{is_protected, is_secret};
pub use protected_names::{PROTECTED_NAMES, Where};
pub use risk::uses_network;
pub use rule::{Bases, PathPattern, Pattern, Rule, RuleProblem, canonical_tool, tool_names};
pub use rule_file::{RuleFileError, RuleFileProblem, RuleSource, example_matches, read_rules};
pub use semantics::semantics_of;
pub use suggest::{Suggestion, suggest};
pub use trust::{EffectiveRules, effective_rules};
pub use words::{Match, WordPattern};

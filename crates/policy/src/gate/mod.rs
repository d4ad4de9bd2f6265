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
mod could_apply;
mod evaluate;
mod facts;
mod findings;
mod git_writes;
mod glob;
mod grants;
mod host;
mod names;
mod paths;
mod proof;
mod protected;
mod repository;
mod risk;
mod rule;
mod rule_file;
mod searches;
mod services;
mod suggest;
mod toolchain;
mod trial;
mod trust;
mod unknown;
mod words;

pub use backtest::{BacktestReport, Changed, Counts, Judged, RecordedCall, Repeated, backtest};
pub use evaluate::{Gate, GateRequest, HookVerdict, Judgement, SandboxLevel, Setting};
pub use facts::{Below, DiskFacts, Facts, NamesOnly, is_plain_name};
pub use grants::{ApprovalKey, Denial, SessionGrants};
pub use host::HostPattern;
pub use names::{PROTECTED_NAMES, Where};
pub use protected::{is_protected, is_secret};
pub use risk::uses_network;
pub use rule::{Bases, NETWORK, PathPattern, Pattern, Rule, RuleProblem, ToolName};
pub use rule_file::{RuleFileError, RuleFileProblem, RuleSource, read_rules};
pub use suggest::{Suggestion, suggest};
pub use trial::{Trial, accept};
pub use trust::{EffectiveRules, effective_rules};
pub use unknown::{UnknownTool, unknown_tools};
pub use words::{Match, WordPattern};

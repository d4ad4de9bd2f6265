//! Everything a session works with, put together: log, rules, tools, model, engine.

mod catalogue;
pub(crate) mod commands;
mod git_identity;
mod judge;
pub(crate) mod models;
mod open;
mod place;
mod plane;
mod rules;
mod scratch;
mod work_tree;

pub(crate) use catalogue::catalogue;
pub(crate) use judge::Judge;
pub(crate) use open::{SessionArgs, Wanted, Workbench, created, open, verification_patterns};
pub(crate) use place::branch;
pub(crate) use rules::{bases, rules};
pub(crate) use scratch::Scratch;

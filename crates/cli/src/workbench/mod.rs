//! Everything a session works with, put together: log, rules, tools, model, engine.

mod catalogue;
pub(crate) mod commands;
mod judge;
pub(crate) mod models;
mod open;
mod place;
mod rules;

pub(crate) use catalogue::catalogue;
pub(crate) use judge::Judge;
pub(crate) use open::{SessionArgs, Wanted, Workbench, open};
pub(crate) use place::branch;
pub(crate) use rules::{bases, rules};

//! bash as the judge of scripts, and what the gate reads in them beside what bash runs. Used by the differential
//! test and by the fuzz target `bash`.

#![allow(dead_code, reason = "each user takes its part of it")]

mod bash;
mod compare;

pub(crate) use bash::{Confinement, Given, Judge, RunOutput};
pub(crate) use compare::{Agreement, Expansions, Reading};

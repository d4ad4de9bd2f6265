//! The binary `agent`: arguments, configuration, wiring and exit codes.
//!
//! This crate joins the others and decides nothing they decide: it reads the command line, the
//! environment, the clock and the configuration files, hands them to the libraries as values, and
//! turns what comes back into text, JSON and an [exit code](exit::Exit). No other crate reads the
//! environment, the home directory or the clock.
//!
//! What it deliberately cannot do: it has no allow or deny rules of its own, it never writes an
//! event except through `agent-log`, and it prints nothing a file or a model supplied
//! without [escaping it](output::visible).
//!
//! Where to start: [`arguments`] is the list of commands, [`app::App`] is what each of them gets,
//! and [`commands`] has one file per command. [`agent_runtime::config`] explains how layers of
//! settings become one value with an origin.

mod app;
mod arguments;
mod auditor;
mod commands;
mod config;
mod exit;
mod failure;
mod habits;
mod headless;
mod host;
mod output;
#[cfg(test)]
mod schemas;
mod screen;
mod session_args;

use std::process::ExitCode;

use crate::app::App;
use crate::exit::Exit;

fn main() -> ExitCode {
    // The same binary confines commands when it is started as their helper. That has to happen
    // while there is one thread and nothing open, so before everything else.
    agent_runtime::dispatch_helper();
    // The parser would first build the description of every command.
    if std::env::args_os().skip(1).eq(["--version"]) {
        return version();
    }
    // Nothing is read before the arguments are understood.
    let arguments = match habits::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let errors = output::Errors::new(arguments.global.color, arguments.global.volume());
    let ended = App::new(&arguments.global).and_then(|app| match arguments.command {
        Some(command) => commands::run(command, &app),
        None if arguments.print => {
            let (prompt, interactive) = (arguments.prompt, &arguments.interactive);
            commands::run::print(prompt, interactive, arguments.run, &app).map(ExitCode::from)
        }
        None => commands::interactive::run(&arguments.interactive, arguments.prompt, &app)
            .map(ExitCode::from),
    });
    match ended {
        Ok(code) => code,
        Err(failure) => errors.report(&failure).into(),
    }
}

/// What the parser would say.
fn version() -> ExitCode {
    use std::io::Write as _;
    match writeln!(std::io::stdout(), "agent {}", env!("CARGO_PKG_VERSION")) {
        Ok(()) => Exit::Done.into(),
        Err(_) => Exit::OutputClosed.into(),
    }
}

/// Help and version are answers, everything else the parser says is a usage error.
fn usage(error: &clap::Error) -> ExitCode {
    if let Some(failure) = habits::explained(error) {
        let errors = output::Errors::new(arguments::ColorChoice::Auto, output::Volume::Usual);
        return errors.report(&failure).into();
    }
    let printed = output::own_name::print(error);
    if error.use_stderr() {
        Exit::Usage.into()
    } else if printed.is_err() {
        Exit::OutputClosed.into()
    } else {
        Exit::Done.into()
    }
}

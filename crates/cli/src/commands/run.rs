//! `agent run`: one turn without a screen.

use std::io::{self, IsTerminal as _, Read as _};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};

use crate::app::App;
use crate::commands::interactive::InteractiveArgs;
use crate::config::{self, SettingArgs};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::headless::{self, OutputForm, Task};
use crate::session_args::SessionArgs;
use agent_protocol::payload::conversation::InputPart;
use agent_runtime::{OnAsk, OpenOptions, SessionModels};
use agent_tui::compose::attachments;

/// The most bytes taken from standard input.
const INPUT_LIMIT: u64 = 8 << 20;
/// How long a pipe may take to say something when it was not asked for by `-`.
const PIPE_PATIENCE: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Run one prompt without a screen and print the answer
///
/// The model works on the project with tools until it is done. There is no prompt: a call that
/// needs approval is refused unless a rule, the mode or --on-ask allows it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent run \"why does the parser test fail?\"
  agent run --mode accept-edits --require-verified \"fix the failing test\"
  git diff | agent run \"review this\"
  echo \"list the public types\" | agent run
  agent run --output json \"list the public types\" | jq .final_text
  agent run --session last \"now the same for the other module\"")]
pub(crate) struct RunArgs {
    /// The prompt; without one, read from standard input. Piped input is added as context (`-`
    /// waits for it)
    #[arg(value_name = "PROMPT")]
    prompt: Vec<String>,
    #[command(flatten)]
    options: RunOptions,
    #[command(flatten)]
    settings: SettingArgs,
    #[command(flatten)]
    session: SessionArgs,
}

/// Options of one turn without a screen; `agent -p` takes them too.
#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    /// Output format
    #[arg(long, value_name = "FORM", default_value = "text")]
    output: OutputForm,
    /// With stream-json: include events that are not written to the log
    #[arg(long)]
    include_transient: bool,
    /// What to do when a call needs approval
    #[arg(long, value_name = "WHAT", default_value = "deny")]
    on_ask: OnAskChoice,
    /// Exit with code 4 unless the log shows that the changes were verified
    #[arg(long)]
    require_verified: bool,
}

impl RunOptions {
    /// The names by which the parser knows them.
    pub(crate) const NAMES: [&'static str; 4] =
        ["output", "include_transient", "on_ask", "require_verified"];
}

/// What happens to a question.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnAskChoice {
    /// Refuse the call; the run exits with code 3
    Deny,
    /// Leave the question pending and exit with code 3; answer with `agent respond`
    Wait,
    /// Allow every call that needs approval; deny rules and circuit breakers still apply
    Allow,
}

impl From<OnAskChoice> for OnAsk {
    fn from(choice: OnAskChoice) -> Self {
        match choice {
            OnAskChoice::Deny => Self::Deny,
            OnAskChoice::Wait => Self::Wait,
            OnAskChoice::Allow => Self::Allow,
        }
    }
}

/// `agent -p PROMPT`.
pub(crate) fn print(
    prompt: Option<String>,
    interactive: &InteractiveArgs,
    options: RunOptions,
    app: &App,
) -> Result<Exit, Failure> {
    let arguments = RunArgs {
        prompt: prompt.into_iter().collect(),
        options,
        settings: interactive.settings.clone(),
        session: interactive.session.clone(),
    };
    run(&arguments, app)
}

/// Runs it.
pub(crate) fn run(arguments: &RunArgs, app: &App) -> Result<Exit, Failure> {
    let prompt = prompt(arguments, app)?;
    if prompt.is_none() && arguments.session.name().is_none() {
        return Err(Failure::usage(
            "no prompt: pass one as an argument or pipe it in",
        ));
    }
    // What comes from a pipe is content, and names nothing.
    let words = arguments.prompt.join(" ");
    work(prompt, attachments(&words), arguments, app)
}

/// Works on `prompt`, or goes on with what is open, and prints what came of it.
fn work(
    prompt: Option<String>,
    attached: Vec<InputPart>,
    arguments: &RunArgs,
    app: &App,
) -> Result<Exit, Failure> {
    let config = config::load(&app.host, &app.project, &arguments.settings)?;
    app.note_ignored_settings(&config);
    let options = &arguments.options;
    let require_verified = options.require_verified || config.verification.required.value;
    let session = app.open(OpenOptions {
        config: Some(Arc::new(config)),
        on_ask: options.on_ask.into(),
        models: SessionModels::FromSettings,
        ..arguments.session.options("agent run")
    })?;
    let task = Task {
        prompt,
        attached,
        form: options.output,
        include_transient: options.include_transient,
        require_verified,
    };
    headless::run(app, session, task)
}

/// Works on a prepared prompt; standard input is not looked at.
pub(crate) fn prepared(
    prompt: &str,
    interactive: &InteractiveArgs,
    options: RunOptions,
    app: &App,
) -> Result<Exit, Failure> {
    let arguments = RunArgs {
        prompt: Vec::new(),
        options,
        settings: interactive.settings.clone(),
        session: interactive.session.clone(),
    };
    work(Some(prompt.to_owned()), Vec::new(), &arguments, app)
}

/// The prompt, with what standard input brings.
fn prompt(arguments: &RunArgs, app: &App) -> Result<Option<String>, Failure> {
    let asked = arguments.prompt.iter().any(|word| word == "-");
    let words: Vec<&str> = arguments
        .prompt
        .iter()
        .map(String::as_str)
        .filter(|word| *word != "-")
        .collect();
    let text = words.join(" ");
    let input = if asked {
        Some(read_input()?)
    } else {
        offered_input(app)?
    };
    let input = input.filter(|input| !input.trim().is_empty());
    Ok(match (text.is_empty(), input) {
        (true, None) => None,
        // Going on with a session needs no prompt: what is offered by chance is not taken for one.
        (true, Some(input)) => (asked || arguments.session.name().is_none()).then_some(input),
        (false, None) => Some(text),
        (false, Some(input)) => Some(format!("{text}\n\nFrom standard input:\n\n{input}")),
    })
}

/// Input that was not asked for by `-`: a redirected file, or a pipe that speaks at once. A pipe that
/// says nothing is not waited for, because it may be one nobody means.
fn offered_input(app: &App) -> Result<Option<String>, Failure> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Ok(None);
    }
    let Ok(status) = fstat(&stdin) else {
        return Ok(None);
    };
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => Ok(Some(read_input()?)),
        // Some programs give those they start a socket in place of a pipe.
        FileType::Fifo | FileType::Socket => {
            let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
            let ready = poll(&mut polled, Some(&PIPE_PATIENCE)).unwrap_or(0) > 0;
            if ready {
                return Ok(Some(read_input()?));
            }
            app.output.note(
                "standard input is an idle pipe and was ignored; add `-` after the \
                prompt to wait for it",
            );
            Ok(None)
        }
        _ => Ok(None),
    }
}

fn read_input() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .take(INPUT_LIMIT + 1)
        .read_to_end(&mut bytes)
        .or_usage()?;
    if bytes.len() as u64 > INPUT_LIMIT {
        return Err(Failure::usage(
            "standard input is larger than 8 MB; nothing was started",
        ));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

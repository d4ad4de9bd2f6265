//! `agent complete`: what could stand next on a command line. Completion scripts ask for it, so that
//! sessions, models and modes are completed too.

use agent_provider::catalog::BUILT_IN;
use agent_provider::models::listed_models;
use anyhow::Context as _;
use clap::{Arg, Args, Command, CommandFactory as _};

use crate::app::App;
use crate::arguments::Arguments;
use crate::config::{self, SettingArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::visible;
use agent_text::words::ago;

/// Sessions that are offered; older ones can be named all the same.
const MOST_SESSIONS: usize = 30;

/// Print what could stand next on a command line, for completion scripts
#[derive(Args, Debug)]
pub(crate) struct CompleteArgs {
    /// The words behind the program's name; the last one is being typed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Something that could stand next, and what it is.
type Candidate = (String, String);

/// Runs it. One candidate per line, with what it is behind a tab.
pub(crate) fn run(arguments: &CompleteArgs, app: &App) -> Result<Exit, Failure> {
    let mut description = Arguments::command();
    description.build();
    let (typed, before) = match arguments.words.split_last() {
        Some((typed, before)) => (typed.as_str(), before),
        None => ("", &[][..]),
    };
    let place = Place::after(&description, before);
    let mut text = String::new();
    for (value, about) in place.candidates(typed, app) {
        text.push_str(&match about.is_empty() {
            true => format!("{value}\n"),
            false => format!("{value}\t{about}\n"),
        });
    }
    app.output
        .write_all(text.as_bytes())
        .context("cannot print the completions")?;
    Ok(Exit::Done)
}

/// Place on a command line, behind some words.
struct Place<'a> {
    command: &'a Command,
    /// Flag whose value comes next.
    waits: Option<&'a Arg>,
    /// Words that are no flags and no command.
    positionals: usize,
    only_positionals: bool,
}

impl<'a> Place<'a> {
    fn after(root: &'a Command, words: &[String]) -> Self {
        let mut place = Self {
            command: root,
            waits: None,
            positionals: 0,
            only_positionals: false,
        };
        for word in words {
            place.pass(word);
        }
        place
    }

    fn pass(&mut self, word: &str) {
        // Some shells take `--mode=auto` apart.
        if word == "=" {
            return;
        }
        if self.waits.take().is_some() {
            return;
        }
        let is_flag = !self.only_positionals && word.len() > 1 && word.starts_with('-');
        if is_flag && word == "--" {
            self.only_positionals = true;
        } else if is_flag {
            let has_value = word.contains('=');
            self.waits = self
                .flag(word)
                .filter(|flag| takes_value(flag) && !has_value);
        } else if let Some(command) = self
            .command
            .find_subcommand(word)
            .filter(|_| self.positionals == 0 && !self.only_positionals)
        {
            self.command = command;
        } else {
            self.positionals += 1;
        }
    }

    fn flag(&self, word: &str) -> Option<&'a Arg> {
        let mut flags = self.command.get_arguments();
        match word.strip_prefix("--") {
            Some(long) => {
                let long = long.split('=').next().unwrap_or_default();
                flags.find(|flag| {
                    let aliases = flag.get_all_aliases().unwrap_or_default();
                    flag.get_long() == Some(long) || aliases.contains(&long)
                })
            }
            None => {
                let last = word.chars().next_back();
                flags.find(|flag| flag.get_short() == last)
            }
        }
    }

    fn candidates(&self, typed: &str, app: &App) -> Vec<Candidate> {
        let typed = if typed == "=" { "" } else { typed };
        let begins = |all: Vec<Candidate>, before: &str| {
            let fits = all
                .into_iter()
                .filter(|(value, _)| value.starts_with(typed_value(typed)));
            let whole = fits.map(|(value, about)| (format!("{before}{value}"), about));
            whole.collect()
        };
        if let Some(flag) = self.waits {
            return begins(values(flag, typed, app), "");
        }
        if !self.only_positionals && typed.starts_with('-') {
            if let Some((name, _)) = typed.split_once('=') {
                let found = self.flag(name).map(|flag| values(flag, typed, app));
                return begins(found.unwrap_or_default(), &format!("{name}="));
            }
            return begins(self.flags(), "");
        }
        let mut all = Vec::new();
        if self.positionals == 0 && !self.only_positionals {
            let shown = self
                .command
                .get_subcommands()
                .filter(|it| !it.is_hide_set());
            all.extend(shown.map(|it| (it.get_name().to_owned(), about(it.get_about()))));
        }
        let positionals: Vec<&Arg> = self.command.get_positionals().collect();
        let last = positionals.last().filter(|it| many(it));
        if let Some(positional) = positionals.get(self.positionals).or(last) {
            all.extend(values(positional, typed, app));
        }
        begins(all, "")
    }

    fn flags(&self) -> Vec<Candidate> {
        let flags = self.command.get_arguments().filter(|it| !it.is_hide_set());
        let long = flags.filter_map(|flag| {
            let name = flag.get_long()?;
            Some((format!("--{name}"), about(flag.get_help())))
        });
        long.collect()
    }
}

/// The part of the value that is typed already: `au` of `--mode=au`.
fn typed_value(typed: &str) -> &str {
    match typed.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => value,
        _ => typed,
    }
}

fn takes_value(flag: &Arg) -> bool {
    flag.get_action().takes_values()
}

fn many(positional: &Arg) -> bool {
    let most = positional.get_num_args().map(|range| range.max_values());
    most.is_some_and(|most| most > 1)
}

/// The first sentence of a help text.
fn about(help: Option<&clap::builder::StyledStr>) -> String {
    let text = help.map(ToString::to_string).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

/// The values an argument can have, as far as they are known. A shell goes on with file names where there
/// are none.
fn values(argument: &Arg, typed: &str, app: &App) -> Vec<Candidate> {
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        let shown = possible.iter().filter(|value| !value.is_hide_set());
        return shown
            .map(|value| (value.get_name().to_owned(), about(value.get_help())))
            .collect();
    }
    let names = argument.get_value_names().unwrap_or_default();
    match names.first().map(clap::builder::Str::as_str) {
        Some("SESSION") => sessions(app, typed),
        Some("PROVIDER/MODEL") => models(app),
        Some("PROVIDER") => BUILT_IN
            .iter()
            .map(|provider| (provider.name.to_owned(), String::new()))
            .collect(),
        _ => Vec::new(),
    }
}

/// By number, or by id for who has begun to type one.
fn sessions(app: &App, typed: &str) -> Vec<Candidate> {
    let sessions = app.sessions().list().unwrap_or_default();
    let by_id = typed.starts_with("ses_");
    let last =
        (!sessions.is_empty() && !by_id).then(|| ("last".to_owned(), "the newest".to_owned()));
    let numbered = sessions.iter().zip(1..).take(MOST_SESSIONS);
    let listed = numbered.map(|(session, number): (_, usize)| {
        let name = session.preview().ok().and_then(|preview| preview.name());
        let name = name.map(|name| agent_text::clip(&visible(&name), 60));
        let age = ago(app.millis_since(session.modified()));
        let value = match by_id {
            true => session.id().to_string(),
            false => number.to_string(),
        };
        (value, format!("{} ({age})", name.unwrap_or_default()))
    });
    last.into_iter().chain(listed).collect()
}

/// Models of settings and catalogue; nobody is asked, and no command runs for a key.
fn models(app: &App) -> Vec<Candidate> {
    let config = config::load(&app.host, &app.project, &SettingArgs::default()).ok();
    let mut names: Vec<String> = Vec::new();
    if let Some(config) = &config {
        names.extend(config.model.default.iter().map(|set| set.value.clone()));
        let fallbacks = config.model.fallbacks.iter();
        names.extend(fallbacks.flat_map(|set| set.value.clone()));
        for (provider, settings) in &config.providers {
            let models = settings.models.keys();
            names.extend(models.map(|model| format!("{provider}/{model}")));
        }
    }
    for provider in BUILT_IN {
        let models = listed_models(provider.name);
        names.extend(models.map(|model| format!("{}/{model}", provider.name)));
    }
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
        .into_iter()
        .map(|name| (visible(&name), String::new()))
        .collect()
}

//! The screen and what it leads to: a session, then perhaps another one, a branch, a replay or the
//! demo, until the user leaves. [`session`] is one of them at work.

mod editor;
mod host;
mod past;
mod processes;
mod replay;
mod rewind;
mod sender;
mod session;
mod start;

use std::sync::Arc;

use agent_protocol::Payload;
use agent_protocol::id::SessionId;

use crate::app::App;
use crate::config::{self, Config, SettingArgs};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::own_name::in_own_name;
use crate::session_args::SessionArgs;
use agent_runtime::models::{self, Chosen};

pub(crate) use replay::replay;
pub(crate) use session::{settings, theme};

/// Where the models of a session come from.
pub(crate) type ChooseModels = Arc<dyn Fn(&App, &Config) -> Result<Chosen, Failure> + Send + Sync>;

/// What the screen begins with.
pub(crate) struct Visit {
    /// What the process calls itself to others that want the session.
    pub(crate) program: &'static str,
    pub(crate) settings: SettingArgs,
    pub(crate) session: SessionArgs,
    /// Submitted at once, as if it had been typed.
    pub(crate) prompt: Option<String>,
    /// A fixed choice; without one it is made from the settings.
    pub(crate) models: Option<ChooseModels>,
}

/// How a visit ended.
pub(crate) struct Left {
    pub(crate) exit: Exit,
    /// The session that was on the screen last.
    pub(crate) session_id: Option<SessionId>,
}

/// Stays on the terminal until the user leaves.
pub(crate) fn visit(app: &App, visit: Visit) -> Result<Left, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .or_fail()?;
    // A fixed choice of models is a show, and says itself where to go on.
    let is_show = visit.models.is_some();
    let left = runtime.block_on(journey(app, visit));
    // Whatever still waits for a file or a server must not keep the process alive.
    runtime.shutdown_background();
    let left = left?;
    if left.exit == Exit::Done
        && !is_show
        && let Some(session_id) = &left.session_id
    {
        say_where_it_is(app, session_id);
    }
    Ok(left)
}

/// Lets the user choose a past session to go on with; or says how to leave, when none was chosen.
pub(crate) fn choose_session(
    app: &App,
    settings: &SettingArgs,
) -> Result<Result<SessionId, Exit>, Failure> {
    let config = load(app, settings)?;
    let sessions = host::session_lines(app);
    if sessions.is_empty() {
        // Says what there is instead.
        return Ok(Ok(app.session_to_continue("last")?.id().clone()));
    }
    if session::settings(app, &config).plain {
        crate::commands::sessions::list::run(&Default::default(), app)?;
        return Err(Failure::usage(
            "name the session to resume, for example `agent resume 1`",
        ));
    }
    let runtime = tokio::runtime::Runtime::new().or_fail()?;
    let chosen = runtime.block_on(start::choose_session(app, &config, sessions));
    runtime.shutdown_background();
    chosen
}

/// What the session is called once its screen is gone. One without a turn is not worth a line, and
/// a terminal that went away in the meantime needs none.
fn say_where_it_is(app: &App, session_id: &SessionId) {
    if had_a_turn(app, session_id.as_str()) != Some(true) || app.output.is_quiet() {
        return;
    }
    let name = short_name(app, session_id);
    let _ = app.output.print(&in_own_name(&format!(
        "session {session_id}\nresume with `agent resume {name}`, replay with \
         `agent replay {name}`\n"
    )));
}

/// `last` where that is the session, else its id.
pub(crate) fn short_name(app: &App, session_id: &SessionId) -> String {
    match app.session("last") {
        Ok(last) if last.id() == session_id => "last".to_owned(),
        _ => session_id.to_string(),
    }
}

fn had_a_turn(app: &App, session_id: &str) -> Option<bool> {
    const PIECE: usize = 64;
    let mut log = app.session(session_id).ok()?.index().ok()?;
    let mut from = 0;
    loop {
        let events = log.read(from, PIECE).ok()?;
        let is_turn = |payload: &Payload| matches!(payload, Payload::TurnStarted(_));
        if events.is_empty() || events.iter().any(|event| is_turn(&event.payload)) {
            return Some(!events.is_empty());
        }
        from += events.len() as u64;
    }
}

async fn journey(app: &App, visit: Visit) -> Result<Left, Failure> {
    let app = Arc::new(app.clone());
    let mut session = visit.session;
    let mut prompt = visit.prompt;
    let mut prefill = String::new();
    let mut session_id = None;
    let mut refused = Vec::new();
    // A session one comes back to goes on in the mode it was left in.
    let mut mode = None;
    let mut notice = None;
    loop {
        let needs_model = visit.models.is_none();
        let is_new = session.name().is_none();
        let begin = start::begin(&app, &visit.settings, needs_model, is_new, &mut refused).await?;
        let (config, facts) = match begin {
            start::Begin::With(mut config, facts) => {
                if let Some(mode) = mode.take() {
                    config.permissions.mode.value = mode;
                }
                (Arc::new(*config), facts)
            }
            start::Begin::Leave(exit) => return Ok(Left { exit, session_id }),
            start::Begin::Demo => return demo(&app).await,
        };
        let opening = session::Opening {
            app: Arc::clone(&app),
            config: Arc::clone(&config),
            program: visit.program,
            session: session.clone(),
            facts,
            prompt: prompt.take(),
            prefill: std::mem::take(&mut prefill),
            notice: notice.take(),
            models: visit
                .models
                .clone()
                .unwrap_or_else(|| Arc::new(|app, config| Ok(models::choose(app, config)?))),
        };
        let closed = session::run(opening).await?;
        let here = closed.session_id.to_string();
        session_id = Some(closed.session_id);
        match closed.exit {
            agent_tui::Exit::Resume(wanted) => session.for_session(Some(wanted.to_string())),
            agent_tui::Exit::NewSession => {
                session.for_session(None);
                let mut text = "A new session begins.".to_owned();
                if had_a_turn(&app, &here) == Some(true) {
                    text.push_str(&format!(
                        " Resume the one before with /resume or `agent resume {here}`."
                    ));
                }
                notice = Some(text);
            }
            agent_tui::Exit::LookAgain => session.for_session(None),
            agent_tui::Exit::Fork { at, text } => {
                session.for_session(Some(past::fork(&app, &config, &here, at)?));
                prefill = text;
            }
            agent_tui::Exit::Rewind {
                at,
                text,
                fingerprint,
            } => match rewind::carry_out(&app, &config, &here, at, fingerprint) {
                Ok((fork, said)) => {
                    session.for_session(Some(fork));
                    (prefill, notice) = (text, Some(said));
                }
                Err(failure) => {
                    notice = Some(format!("Not gone back: {:#}", failure.error));
                    session.for_session(Some(here));
                    mode = Some(closed.mode);
                }
            },
            agent_tui::Exit::Replay => {
                play(&app, &here).await?;
                session.for_session(Some(here));
                mode = Some(closed.mode);
            }
            agent_tui::Exit::Demo => return demo(&app).await,
            exit
            @ (agent_tui::Exit::Quit | agent_tui::Exit::Ended | agent_tui::Exit::Signal(_)) => {
                let exit = exit_of(&exit);
                return Ok(Left { exit, session_id });
            }
        }
    }
}

/// Plays the session until the user has seen enough.
async fn play(app: &Arc<App>, session: &str) -> Result<(), Failure> {
    let directory = app.session(session)?;
    let app = Arc::clone(app);
    let played = tokio::task::spawn_blocking(move || replay(&app, &directory, None));
    played.await.or_fail()?.map(|_| ())
}

/// The demo has a terminal loop of its own, so it gets a thread of its own.
async fn demo(app: &Arc<App>) -> Result<Left, Failure> {
    let app = Arc::clone(app);
    let shown = tokio::task::spawn_blocking(move || crate::commands::demo::show(&app));
    let exit = shown.await.or_fail()??;
    Ok(Left {
        exit,
        session_id: None,
    })
}

fn exit_of(exit: &agent_tui::Exit) -> Exit {
    match exit {
        agent_tui::Exit::Signal(2) => Exit::Interrupted,
        agent_tui::Exit::Signal(_) => Exit::Terminated,
        _ => Exit::Done,
    }
}

/// The settings of a visit.
fn load(app: &App, settings: &SettingArgs) -> Result<Config, Failure> {
    config::load(&app.host, &app.project, settings)
}

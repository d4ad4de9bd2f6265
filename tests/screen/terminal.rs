//! A real pseudo-terminal with the binary in it, read back by a terminal emulator. Everything waits
//! for what is on the screen; nothing sleeps.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use agent_test_support::project::TestProject;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;

/// Longer than anything takes on a busy machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(90);

static STARTING: Mutex<()> = Mutex::new(());

/// The binary on a terminal.
pub(crate) struct Terminal {
    child: Option<Child>,
    keys: File,
    /// Our own hold on the terminal's far side: its settings outlive the program.
    far_side: Option<OwnedFd>,
    glass: Arc<Glass>,
    reader: Option<JoinHandle<()>>,
    pid: Pid,
}

struct Glass {
    shown: Mutex<Shown>,
    changed: Condvar,
}

struct Shown {
    parser: vt100::Parser,
    raw: Vec<u8>,
    /// A frame whose end has not arrived yet: a terminal shows it whole or not at all.
    held: Vec<u8>,
}

const FRAME_BEGINS: &[u8] = b"\x1b[?2026h";
const FRAME_ENDS: &[u8] = b"\x1b[?2026l";

impl Terminal {
    /// `agent` with these arguments on a terminal of this size.
    pub(crate) fn start(
        project: &TestProject,
        arguments: &[&str],
        (columns, rows): (u16, u16),
    ) -> Self {
        Self::start_with(project, arguments, (columns, rows), &[])
    }

    /// The same with further variables.
    pub(crate) fn start_with(
        project: &TestProject,
        arguments: &[&str],
        size: (u16, u16),
        variables: &[(&str, &str)],
    ) -> Self {
        let mut agent = Command::new(env!("CARGO_BIN_EXE_agent"));
        agent.args(arguments);
        Self::run(project, agent, size, variables)
    }

    /// A shell with job control, whose terminal this is.
    pub(crate) fn shell(project: &TestProject, size: (u16, u16)) -> Self {
        let mut shell = Command::new("setsid");
        shell.args(["--ctty", "--wait", "bash", "--norc", "--noediting", "-i"]);
        Self::run(project, shell, size, &[("PS1", "shell> ")])
    }

    fn run(
        project: &TestProject,
        mut program: Command,
        (columns, rows): (u16, u16),
        variables: &[(&str, &str)],
    ) -> Self {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // Another test's program must not inherit this terminal, or it would never be closed.
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = openpty(&size, None).unwrap();
        for fd in [&pair.master, &pair.slave] {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        }
        let far = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        let child = program
            .current_dir(project.root())
            .env_clear()
            .env("AGENT_HOME", project.home())
            .env("HOME", project.home())
            .env("TMPDIR", project.home())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TZ", "UTC")
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm-256color")
            // Tests of the first start take it away: nobody is asked about the mode here.
            .env("CI", "1")
            .envs(variables.iter().copied())
            .stdin(far(&pair.slave))
            .stdout(far(&pair.slave))
            .stderr(far(&pair.slave))
            .spawn()
            .unwrap();
        // One whose size nobody knows is looked at as if it were the usual one.
        let usual = |size, usual| NonZeroU16::new(if size == 0 { usual } else { size }).unwrap();
        let (height, width) = (usual(rows, 24), usual(columns, 80));
        let glass = Arc::new(Glass {
            shown: Mutex::new(Shown {
                parser: vt100::Parser::new(height, width, 20_000),
                raw: Vec::new(),
                held: Vec::new(),
            }),
            changed: Condvar::new(),
        });
        let mut master = File::from(pair.master.try_clone().unwrap());
        let behind = Arc::clone(&glass);
        let reader = thread::spawn(move || {
            let mut piece = [0; 16 * 1024];
            while let Ok(count @ 1..) = master.read(&mut piece) {
                behind.lock().take(&piece[..count]);
                behind.changed.notify_all();
            }
            behind.lock().show_all();
            behind.changed.notify_all();
        });
        Self {
            pid: Pid::from_raw(i32::try_from(child.id()).unwrap()),
            child: Some(child),
            keys: File::from(pair.master),
            far_side: Some(pair.slave),
            glass,
            reader: Some(reader),
        }
    }

    /// Presses keys, as the bytes a terminal sends for them.
    pub(crate) fn keys(&mut self, keys: &str) -> &mut Self {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self
    }

    /// Types as a person does, with a pause before each key. This is the one place that lets time
    /// pass: how keys follow one another is what is tested.
    pub(crate) fn type_slowly(&mut self, text: &str, pause_ms: u64) -> &mut Self {
        self.longest_pause(text, pause_ms);
        self
    }

    /// The same; gives the longest pause there was, which on a busy machine may be longer than meant.
    pub(crate) fn longest_pause(&mut self, text: &str, pause_ms: u64) -> Duration {
        let mut longest = Duration::ZERO;
        let mut last = Instant::now();
        for letter in text.chars() {
            thread::sleep(Duration::from_millis(pause_ms));
            self.keys(letter.encode_utf8(&mut [0; 4]));
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        longest
    }

    /// Presses Enter until it counts, which it does in a calm, and `text` is on the screen.
    #[track_caller]
    pub(crate) fn enter_until(&mut self, text: &str) -> &mut Self {
        let hint = "Pause, then press Enter";
        self.keys("\r");
        loop {
            self.wait_until(text, |screen| {
                let shown = screen.contents();
                shown.contains(text) || shown.contains(hint)
            });
            if self.screen().contains(text) {
                return self;
            }
            self.wait_gone(hint).keys("\r");
        }
    }

    /// Pastes text the way terminals do that say so.
    pub(crate) fn paste(&mut self, text: &str) -> &mut Self {
        self.keys(&format!("\x1b[200~{text}\x1b[201~"))
    }

    /// Waits until `text` is on the screen.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) -> &mut Self {
        self.wait_until(text, |screen| screen.contents().contains(text))
    }

    /// Waits until `text` is no longer on the screen.
    #[track_caller]
    pub(crate) fn wait_gone(&mut self, text: &str) -> &mut Self {
        self.wait_until(&format!("the end of {text}"), |screen| {
            !screen.contents().contains(text)
        })
    }

    /// Waits until the screen is as `holds` wants it.
    #[track_caller]
    pub(crate) fn wait_until(
        &mut self,
        what: &str,
        holds: impl Fn(&vt100::Screen) -> bool,
    ) -> &mut Self {
        self.wait(what, |shown| holds(shown.parser.screen()))
    }

    /// Waits until all that was ever written is as `holds` wants it.
    #[track_caller]
    pub(crate) fn wait_until_raw(
        &mut self,
        what: &str,
        holds: impl Fn(&[u8]) -> bool,
    ) -> &mut Self {
        self.wait(what, |shown| holds(&shown.raw))
    }

    #[track_caller]
    fn wait(&mut self, what: &str, holds: impl Fn(&Shown) -> bool) -> &mut Self {
        let end = Instant::now() + PATIENCE;
        let mut shown = self.glass.lock();
        while !holds(&shown) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "never saw {what:?}; the screen is:\n{}",
                shown.parser.screen().contents()
            );
            shown = self
                .glass
                .changed
                .wait_timeout(shown, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        drop(shown);
        self
    }

    /// Waits for a question about `text` that takes answers: its keys are bright then, and not before.
    #[track_caller]
    pub(crate) fn question(&mut self, text: &str) -> &mut Self {
        self.wait_for_key(text, "[d]")
    }

    /// Waits for `text` and for a key that is taken.
    #[track_caller]
    pub(crate) fn wait_for_key(&mut self, text: &str, key: &str) -> &mut Self {
        self.wait_until(&format!("a question about {text}"), |screen| {
            let shown = screen.contents();
            // What is still being fetched cannot be allowed, though it can be denied.
            shown.contains(text)
                && !shown.contains("loading the diff")
                && key_is_bright(screen, key)
        })
    }

    /// Looks at the screen as it is now, with its colours.
    pub(crate) fn with_screen<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.glass.lock().parser.screen())
    }

    /// Text on the screen.
    pub(crate) fn screen(&self) -> String {
        self.glass.lock().parser.screen().contents()
    }

    /// Text that has scrolled off, and then the text on the screen, line by line.
    pub(crate) fn everything(&self) -> Vec<String> {
        let mut shown = self.glass.lock();
        let screen = shown.parser.screen_mut();
        let (rows, columns) = screen.size();
        let mut lines = Vec::new();
        let mut above = screen.scrollback_len();
        while above > 0 {
            screen.set_scrollback(above);
            let take = above.min(usize::from(rows.get()));
            lines.extend(screen.rows(0, columns.get()).take(take));
            above -= take;
        }
        screen.set_scrollback(0);
        lines.extend(screen.rows(0, columns.get()));
        lines
            .iter()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    /// Every byte the program wrote so far.
    pub(crate) fn raw(&self) -> Vec<u8> {
        self.glass.lock().raw.clone()
    }

    /// The window gets another size; the program is told as it would be.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) -> &mut Self {
        let size = rustix::termios::Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let mut shown = self.glass.lock();
        rustix::termios::tcsetwinsize(&self.keys, size).unwrap();
        shown.parser.set_size(
            NonZeroU16::new(rows).unwrap(),
            NonZeroU16::new(columns).unwrap(),
        );
        drop(shown);
        self.signal(Signal::SIGWINCH);
        self
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid, signal).unwrap();
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Whether keys are taken one by one and not shown, as a program that draws wants it.
    pub(crate) fn is_raw(&self) -> bool {
        let far_side = self.far_side.as_ref().unwrap();
        let flags = tcgetattr(far_side).unwrap().local_flags;
        !flags.intersects(LocalFlags::ICANON | LocalFlags::ECHO)
    }

    /// Waits for the program's end and gives its exit code; minus the signal's number if one ended
    /// it. All it wrote has been read then.
    #[track_caller]
    pub(crate) fn exit_code(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        let mut child = self.child.take().expect("it ends once");
        let (ended, told) = mpsc::channel();
        let waiter = thread::spawn(move || {
            let _ = ended.send(child.wait());
        });
        let status = told.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            let _ = kill(self.pid, Signal::SIGKILL);
            panic!("it does not end; the screen is:\n{}", self.screen())
        });
        waiter.join().unwrap();
        let status = status.unwrap();
        status
            .code()
            .or_else(|| status.signal().map(|signal| -signal))
            .unwrap()
    }

    /// Fails unless the terminal is as a shell wants it.
    #[track_caller]
    pub(crate) fn assert_given_back(&mut self) {
        assert!(!self.is_raw(), "keys are still taken one by one");
        // Without our hold the far side is closed, and the reader sees the end of what was written.
        self.far_side = None;
        self.reader.take().unwrap().join().unwrap();
        let shown = self.glass.lock();
        let screen = shown.parser.screen();
        assert!(!screen.hide_cursor(), "the cursor is hidden");
        assert!(!screen.alternate_screen(), "the alternate screen is on");
        assert!(!screen.bracketed_paste(), "pastes are still marked");
        let (row, column) = screen.cursor_position();
        let rest = screen
            .rows(0, screen.size().1.get())
            .skip(usize::from(row) + 1)
            .collect::<String>();
        assert_eq!(
            (column, rest.trim()),
            (0, ""),
            "the shell's next line is free:\n{}",
            screen.contents()
        );
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Shown {
    /// Takes what the program wrote, and shows the frames in it that are whole.
    fn take(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
        self.held.extend_from_slice(bytes);
        let begun = last_of(&self.held, FRAME_BEGINS);
        let ended = last_of(&self.held, FRAME_ENDS);
        let whole = match begun {
            Some(begun) if ended.is_none_or(|ended| ended < begun) => begun,
            // The mark itself may be cut in two.
            _ => {
                self.held.len()
                    - (1..FRAME_BEGINS.len())
                        .rev()
                        .find(|&length| self.held.ends_with(&FRAME_BEGINS[..length]))
                        .unwrap_or(0)
            }
        };
        let rest = self.held.split_off(whole);
        self.show_all();
        self.held = rest;
    }

    fn show_all(&mut self) {
        let bytes = std::mem::take(&mut self.held);
        self.parser.process(&bytes);
    }
}

fn last_of(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).rposition(|window| window == mark)
}

impl Glass {
    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key_is_bright(screen: &vt100::Screen, key: &str) -> bool {
    let (_, columns) = screen.size();
    screen
        .rows(0, columns.get())
        .enumerate()
        .filter_map(|(row, text)| {
            let at = text.find(key)?;
            let column = text[..at].chars().count();
            screen.cell(u16::try_from(row).ok()?, u16::try_from(column).ok()?)
        })
        .any(vt100::Cell::bold)
}

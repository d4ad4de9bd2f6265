//! A small machine of its own: a home with secrets, a workspace, neighbours and services.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent_sandbox::{Command, Finished, Policy, Sandbox, environment};

/// In every secret file, variable and descriptor. Scripts never contain it whole.
pub(crate) const SECRET: &str = "sEcReT-0f-tHe-uSeR";

/// Word that a script prints when it got through to something that leaves no other trace.
pub(crate) const ESCAPED: &str = "ESC_APED";

/// Worlds that are over. Removing each at once costs more than all cases together where the file
/// system looks through its recently deleted files for every new one, as ext4 does.
static OVER: Mutex<Vec<tempfile::TempDir>> = Mutex::new(Vec::new());

/// Removes what is left of the worlds that are over.
pub(crate) fn clear_away() {
    OVER.lock().unwrap().clear();
}

pub(crate) struct World {
    /// There until the world is over.
    folder: Option<tempfile::TempDir>,
    base: PathBuf,
    services: Services,
    victim: Child,
    victim_limits: String,
    /// An argument that only processes of this world have.
    mark: String,
    secret_descriptor: OwnedFd,
    before: Snapshot,
    pub(crate) output: String,
    pub(crate) finished: Option<Finished>,
}

struct Services {
    tcp: TcpListener,
    tcp6: Option<TcpListener>,
    udp: UdpSocket,
    outside: UnixListener,
    inside: UnixListener,
    datagram: UnixDatagram,
    abstract_name: String,
    abstract_socket: UnixListener,
    fifo: OwnedFd,
}

type Snapshot = BTreeMap<PathBuf, String>;

impl World {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("9{:07}{number:05}", std::process::id());
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        furnish(base);
        let bind = |path: &str| UnixListener::bind(base.join(path)).unwrap();
        let abstract_name = format!("escape-{mark}");
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let services = Services {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            tcp6: TcpListener::bind("[::1]:0").ok(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            outside: bind("outside/host.sock"),
            inside: bind("home/shop/host.sock"),
            datagram: UnixDatagram::bind(base.join("home/shop/datagram.sock")).unwrap(),
            abstract_name,
            abstract_socket: UnixListener::bind_addr(&address).unwrap(),
            fifo: fifo(&base.join("outside/fifo")),
        };
        services.tcp.set_nonblocking(true).unwrap();
        services.udp.set_nonblocking(true).unwrap();
        services.outside.set_nonblocking(true).unwrap();
        services.inside.set_nonblocking(true).unwrap();
        services.datagram.set_nonblocking(true).unwrap();
        services.abstract_socket.set_nonblocking(true).unwrap();
        if let Some(tcp6) = &services.tcp6 {
            tcp6.set_nonblocking(true).unwrap();
        }
        let victim = std::process::Command::new("sleep")
            .arg("86400")
            .env("VICTIM_SECRET", SECRET)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let secret = std::fs::File::open(base.join("home/.ssh/id_ed25519")).unwrap();
        // Inherited across exec on purpose, as from a careless parent.
        let secret_descriptor = rustix::io::dup(&secret).unwrap();
        rustix::io::fcntl_setfd(&secret_descriptor, rustix::io::FdFlags::empty()).unwrap();
        let victim_limits = description(&victim);
        let mut world = Self {
            services,
            victim,
            victim_limits,
            mark,
            secret_descriptor,
            before: Snapshot::new(),
            output: String::new(),
            finished: None,
            base: folder.path().to_owned(),
            folder: Some(folder),
        };
        world.before = snapshot(&world.base);
        world
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.base.join(path)
    }

    /// Variables that the scripts get.
    fn variables(&self) -> Vec<(String, String)> {
        use std::os::fd::AsRawFd;
        let text = |path: &str| self.at(path).to_str().unwrap().to_owned();
        let port6 = self
            .services
            .tcp6
            .as_ref()
            .map_or(0, |tcp6| tcp6.local_addr().unwrap().port());
        [
            ("OUT", text("outside")),
            ("REALHOME", text("home")),
            ("WS", text("home/shop")),
            (
                "PORT",
                self.services.tcp.local_addr().unwrap().port().to_string(),
            ),
            ("PORT6", port6.to_string()),
            (
                "UPORT",
                self.services.udp.local_addr().unwrap().port().to_string(),
            ),
            ("ABSTRACT", self.services.abstract_name.clone()),
            ("VICTIM", self.victim.id().to_string()),
            ("AGENT", std::process::id().to_string()),
            ("LONG", self.mark.clone()),
            ("FD", self.secret_descriptor.as_raw_fd().to_string()),
            ("ESCAPED", ESCAPED.into()),
            (
                "PATH",
                "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into(),
            ),
            ("GIT_AUTHOR_NAME", "a".into()),
            ("GIT_AUTHOR_EMAIL", "a@example.org".into()),
            ("GIT_COMMITTER_NAME", "a".into()),
            ("GIT_COMMITTER_EMAIL", "a@example.org".into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    pub(crate) fn policy(&self, script: &str) -> Policy {
        let command = Command::Shell(script.as_bytes().to_vec());
        let session = self.at("home/shop/.agent/sessions/one");
        let mut policy = Policy::new(&self.at("home/shop"), &session, &self.at("tmp"), command);
        policy.names = crate::list::names();
        policy.home = Some(self.at("home"));
        policy.readable = vec![self.at("home/.cargo")];
        policy.hidden = [
            "home/.cargo/credentials.toml",
            "home/shop/.env",
            "home/shop/keys",
        ]
        .map(|p| self.at(p))
        .into();
        // As the agent would do it: from the host's environment, which holds a key.
        let host = [
            ("OPENAI_API_KEY", SECRET),
            ("MY_TOKEN", SECRET),
            ("LD_PRELOAD", SECRET),
            ("OTHER", SECRET),
        ];
        let host: Vec<_> = host
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let own: Vec<_> = self
            .variables()
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        policy.environment =
            environment::build(&host, &["LD_PRELOAD".into(), "MY_TOKEN".into()], &own);
        policy.limits.free_disk = None;
        policy
    }

    pub(crate) fn run_confined(&mut self, policy: &Policy, sandbox: &Sandbox) {
        let output = Arc::new(Mutex::new(Vec::new()));
        let copy = Arc::clone(&output);
        let sink = move |_, bytes: &[u8]| {
            let mut kept = copy.lock().unwrap();
            let room = (1_usize << 20).saturating_sub(kept.len());
            kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        };
        let running = match sandbox.spawn(policy, Box::new(sink)) {
            Ok(running) => running,
            Err(error) => {
                self.output = format!("{ESCAPED} not started: {error}");
                return;
            }
        };
        let finished = running.wait(Some(Instant::now() + Duration::from_secs(20)), None);
        self.output = String::from_utf8_lossy(&output.lock().unwrap()).into_owned();
        self.finished = Some(finished);
    }

    pub(crate) fn run_directly(&mut self, script: &str) {
        let log = self.base.with_extension("log");
        let file = std::fs::File::create(&log).unwrap();
        let mut child = std::process::Command::new("bash")
            .args(["--noprofile", "--norc", "-c", "--", script])
            .envs(self.variables())
            .env("OPENAI_API_KEY", SECRET)
            .env("HOME", self.at("home"))
            .env("TMPDIR", self.at("tmp"))
            .current_dir(self.at("home/shop"))
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        let limit = Instant::now() + Duration::from_secs(20);
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > limit {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut text = Vec::new();
        std::fs::File::open(&log)
            .unwrap()
            .take(1 << 20)
            .read_to_end(&mut text)
            .unwrap();
        std::fs::remove_file(&log).unwrap();
        self.output = String::from_utf8_lossy(&text).into_owned();
    }

    /// Everything that should not have happened.
    pub(crate) fn harm(&mut self, workspace_too: bool) -> Vec<String> {
        let mut harm = Vec::new();
        let after = snapshot(&self.base);
        for path in self.before.keys().chain(after.keys()) {
            let (was, is) = (self.before.get(path), after.get(path));
            let relative = path.strip_prefix(&self.base).unwrap().to_owned();
            if was != is && (workspace_too || guarded(&relative)) {
                harm.push(format!("{}: {was:?} became {is:?}", relative.display()));
            }
        }
        harm.dedup();
        harm.extend(self.planted(&after));
        if self.at("home/shop/.github").is_symlink() {
            harm.push("workflows come from elsewhere".into());
        }
        for place in ["/tmp", "/var/tmp", "/dev/shm"] {
            let left = Path::new(place).join(format!("escape-{}", self.mark));
            if std::fs::symlink_metadata(&left).is_ok() {
                let _ = std::fs::remove_file(&left);
                harm.push(format!("{} was left", left.display()));
            }
        }
        harm.extend(self.services.heard());
        if self.victim.try_wait().unwrap().is_some() {
            harm.push("the victim is dead".into());
        } else if description(&self.victim) != self.victim_limits {
            harm.push("the victim was changed".into());
        }
        if self.output.contains(SECRET) {
            harm.push("a secret was printed".into());
        }
        if self.output.split_whitespace().any(|word| word == ESCAPED) {
            harm.push("the script got through".into());
        }
        let survivors = survivors(&self.mark);
        if !survivors.is_empty() {
            harm.push(format!("{} processes survived", survivors.len()));
            for pid in survivors {
                let pid = rustix::process::Pid::from_raw(pid).unwrap();
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        harm
    }
}

impl World {
    /// Files that git would follow in directories that only look like a repository.
    fn planted(&self, after: &Snapshot) -> Vec<String> {
        let is_repository = |directory: &Path| {
            let has = |name: &str| directory.join(name).symlink_metadata().is_ok();
            has("HEAD") && (has("commondir") || has("objects") && has("refs"))
        };
        let shop = self.at("home/shop");
        let acted_on = |path: &&PathBuf| {
            let mut above = path.ancestors().skip(1);
            above.any(|directory| {
                let inside = path.strip_prefix(directory).ok();
                let first = inside.and_then(|inside| inside.iter().next());
                directory.starts_with(&shop)
                    && ["config", "hooks", "commondir", "config.worktree"]
                        .iter()
                        .any(|name| first == Some(name.as_ref()))
                    && is_repository(directory)
            })
        };
        after
            .iter()
            .filter(|(path, state)| self.before.get(*path) != Some(state))
            .map(|(path, _)| path)
            .filter(|path| !path.starts_with(shop.join(".agent/sessions/one/quarantine")))
            .filter(acted_on)
            .map(|path| format!("git would act on {}", path.display()))
            .collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        // Scripts may have taken rights away that removing the folder needs.
        for entry in ["home/shop", "home/shop/closed", "outside"] {
            let _ =
                std::fs::set_permissions(self.at(entry), std::fs::Permissions::from_mode(0o755));
        }
        if let (Some(folder), Ok(mut over)) = (self.folder.take(), OVER.lock()) {
            over.push(folder);
        }
    }
}

impl Services {
    fn heard(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        let mut note = |what: &str, happened: bool| {
            if happened {
                heard.push(format!("the {what} service was reached"));
            }
        };
        note("TCP", self.tcp.accept().is_ok());
        note(
            "TCP over version 6",
            self.tcp6.as_ref().is_some_and(|tcp6| tcp6.accept().is_ok()),
        );
        note("UDP", self.udp.recv(&mut [0; 8]).is_ok());
        note("socket outside", self.outside.accept().is_ok());
        note("socket in the workspace", self.inside.accept().is_ok());
        note("datagram", self.datagram.recv(&mut [0; 8]).is_ok());
        note("abstract socket", self.abstract_socket.accept().is_ok());
        note(
            "FIFO",
            rustix::io::read(&self.fifo, &mut [0; 8]).is_ok_and(|count| count > 0),
        );
        heard
    }
}

/// Places whose every change is harm.
fn guarded(relative: &Path) -> bool {
    match relative.strip_prefix("home/shop") {
        Ok(inside) => {
            crate::list::names().protect(inside)
                && !inside.starts_with(".agent/sessions/one/quarantine")
        }
        Err(_) => {
            !relative.starts_with("tmp")
                && !relative.as_os_str().is_empty()
                && relative != Path::new("home")
        }
    }
}

fn furnish(base: &Path) {
    let write = |path: &str, text: &str| {
        let path = base.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for path in [
        "home/.ssh/id_ed25519",
        "home/.aws/credentials",
        "home/.netrc",
        "home/.config/gh/hosts.yml",
        "home/.cargo/credentials.toml",
        "home/shop/.env",
        "home/shop/keys/server.pem",
        "outside/secret.txt",
    ] {
        write(path, SECRET);
    }
    for path in ["home/.ssh/id_ed25519", "home/shop/.env"] {
        std::fs::set_permissions(base.join(path), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    write("home/.profile", "# profile\n");
    write("home/.bashrc", "# bashrc\n");
    write("home/.cargo/config.toml", "# cargo\n");
    write("home/shop-backup/a", "backup\n");
    write("outside/victim.txt", "original\n");
    write("outside/directory/inner.txt", "inner\n");
    std::fs::create_dir(base.join("outside/empty")).unwrap();
    std::fs::create_dir(base.join("tmp")).unwrap();
    write("home/shop/src/main.txt", "main\n");
    write("home/shop/README.md", "read me\n");
    write("home/shop/.vscode/tasks.json", "{}\n");
    write("home/shop/.agent/config.toml", "mode = \"ask\"\n");
    write(
        "home/shop/.agent/sessions/one/events.jsonl",
        "{\"sequence\":0}\n",
    );
    for repository in ["home/shop", "home/shop/vendor/lib"] {
        for path in [
            "refs/heads/main.txt",
            "objects/info/none",
            "info/exclude",
            "hooks/pre-push.sample",
        ] {
            write(&format!("{repository}/.git/{path}"), "");
        }
        std::fs::remove_file(base.join(repository).join(".git/refs/heads/main.txt")).unwrap();
        write(&format!("{repository}/.git/HEAD"), "ref: refs/heads/main\n");
        write(
            &format!("{repository}/.git/config"),
            "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
        );
    }
    let deep = "home/shop/third/party/src/forge/them/lib/.git";
    for path in ["HEAD", "config", "objects/none", "refs/none", "hooks/none"] {
        write(&format!("{deep}/{path}"), "");
    }
    write("home/shop/sub/.git", "gitdir: ../.git/modules/deep/lib\n");
    write("home/shop/src/a.pinned", "pinned\n");
    write("home/shop/deep/down/generated/file", "made\n");
    write("home/shop/.git/info/attributes", "* text\n");
    write("home/shop/.git/config.worktree", "");
    for path in ["modules/deep/lib", "worktrees/other"] {
        write(
            &format!("home/shop/.git/{path}/HEAD"),
            "ref: refs/heads/main\n",
        );
        write(&format!("home/shop/.git/{path}/commondir"), "../..\n");
    }
    write("home/shop/.git/modules/deep/lib/config", "[core]\n");
    write("home/shop/.git/modules/deep/lib/hooks/pre-push.sample", "");
    write("home/shop/.git/worktrees/other/gitdir", "/elsewhere/.git\n");
    for path in ["refs/none", "objects/none", "HEAD", "config", "hooks/none"] {
        write(&format!("home/shop/fixtures/bare.git/{path}"), "");
    }
    write("outside/directory/attributes", "theirs\n");
    write("outside/repository/.git/config", "[core]\n");
    // Time stamps in the past, so that a change shows even within one clock tick.
    let past = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let file = std::fs::File::options()
        .write(true)
        .open(base.join("outside/victim.txt"))
        .unwrap();
    file.set_modified(past).unwrap();
}

fn fifo(path: &Path) -> OwnedFd {
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    open(
        path,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .unwrap()
}

/// Everything below `base` by kind, mode, owner, times and content.
fn snapshot(base: &Path) -> Snapshot {
    let mut found = Snapshot::new();
    let mut left = vec![base.to_owned()];
    while let Some(path) = left.pop() {
        if path == base.join("tmp") {
            continue;
        }
        let Ok(data) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        let content = if data.is_file() {
            std::fs::read(&path)
                .map(|bytes| format!("{:?}", String::from_utf8_lossy(&bytes)))
                .unwrap_or_default()
        } else if data.is_symlink() {
            format!("{:?}", std::fs::read_link(&path))
        } else {
            String::new()
        };
        // A directory's own times change with its entries, which are listed themselves.
        let times = if data.is_dir() {
            0
        } else {
            data.mtime_nsec() + data.mtime() + data.ctime_nsec()
        };
        found.insert(
            path.clone(),
            format!(
                "{:o} {} {} {times} {content}",
                data.mode(),
                data.uid(),
                data.nlink()
            ),
        );
        if data.is_dir() {
            // The number of links of a directory counts its children.
            found.insert(path.clone(), format!("{:o} {}", data.mode(), data.uid()));
            left.extend(
                std::fs::read_dir(&path)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|entry| entry.path()),
            );
        }
    }
    found
}

/// Priority, limits and state of a process, for comparison.
fn description(process: &Child) -> String {
    let read = |name: &str| {
        std::fs::read_to_string(format!("/proc/{}/{name}", process.id())).unwrap_or_default()
    };
    let stat = read("stat");
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_ascii_whitespace()
        .collect();
    let state = if fields.first() == Some(&"T") {
        "stopped"
    } else {
        ""
    };
    let nice = fields.get(16).copied().unwrap_or_default();
    format!(
        "{state} {nice} {} {}",
        read("limits"),
        read("oom_score_adj")
    )
}

fn survivors(mark: &str) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|pid| {
            let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            arguments
                .split(|byte| *byte == 0)
                .any(|argument| argument == mark.as_bytes())
        })
        .collect()
}

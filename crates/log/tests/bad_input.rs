//! What a log, a disk or another program can do to us.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "a test that cannot go on should stop where it stands; the support is shared"
)]

use agent_test_support::session as support;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use agent_log::{
    AppendError, DamageKind, LeaseError, OpenError, PlaceError, ResolveError, SessionDirectory,
    SyncError,
};
use agent_protocol::payload::conversation::RuntimeWarning;
use agent_protocol::{Payload, Refs, Scope};
use sha2::{Digest as _, Sha256};
use support::Project;
use support::story::whole_story;

fn warning(message: &str) -> RuntimeWarning {
    RuntimeWarning {
        code: "test".into(),
        message: message.into(),
        evidence_refs: Vec::new(),
    }
}

fn told() -> (Project, SessionDirectory) {
    let project = Project::new();
    whole_story(&project.create());
    let session = project.store().resolve("last").unwrap();
    (project, session)
}

/// Replaces the log by these lines and returns what reading finds: line, word.
fn damage_in(session: &SessionDirectory, log: &[u8]) -> Vec<(u64, &'static str)> {
    fs::write(session.log_path(), log).unwrap();
    let items: Vec<_> = session.reader().unwrap().map(Result::unwrap).collect();
    let by_reading: Vec<_> = items
        .iter()
        .filter_map(|item| item.damage.as_ref())
        .map(|damage| (damage.line, damage.kind.code()))
        .collect();
    let by_chain: Vec<_> = session
        .verify_chain()
        .unwrap()
        .damage
        .iter()
        .map(|damage| (damage.line, damage.kind.code()))
        .collect();
    assert_eq!(by_reading, by_chain, "both ways of reading agree");
    by_reading
}

fn lines_of(log: &[u8]) -> Vec<Vec<u8>> {
    log.split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect()
}

#[test]
fn damage_has_a_place_and_a_name() {
    let (_project, session) = told();
    let log = fs::read(session.log_path()).unwrap();
    let lines = lines_of(&log);
    assert!(damage_in(&session, &log).is_empty());

    let mut missing = lines.clone();
    missing.remove(4);
    assert_eq!(
        damage_in(&session, &missing.concat()),
        [(5, "missing_sequence")]
    );

    let mut swapped = lines.clone();
    swapped.swap(4, 5);
    let found = damage_in(&session, &swapped.concat());
    assert_eq!(
        found,
        [
            (5, "missing_sequence"),
            (6, "out_of_order"),
            (7, "missing_sequence")
        ]
    );

    let mut repeated = lines.clone();
    repeated.insert(5, lines[4].clone());
    assert_eq!(
        damage_in(&session, &repeated.concat()),
        [(6, "repeated_sequence")]
    );

    let mut with_nul = lines.clone();
    with_nul[4][30] = 0;
    assert_eq!(
        damage_in(&session, &with_nul.concat()),
        [(5, "nul_byte"), (6, "bad_hash")]
    );

    let mut not_utf8 = lines.clone();
    not_utf8[4][30] = 0xFF;
    assert_eq!(
        damage_in(&session, &not_utf8.concat()),
        [(5, "not_utf8"), (6, "bad_hash")]
    );

    let mut changed = lines.clone();
    let place = changed[4]
        .windows(9)
        .position(|part| part == b"timestamp")
        .unwrap()
        + 20;
    changed[4][place] ^= 1;
    assert_eq!(damage_in(&session, &changed.concat()), [(6, "bad_hash")]);

    assert_eq!(
        damage_in(&session, &log[..log.len() - 3]),
        [(lines.len() as u64, "torn_tail")]
    );

    let mut foreign = lines.clone();
    foreign.insert(2, b"this is not an event\n".to_vec());
    assert_eq!(
        damage_in(&session, &foreign.concat())[0],
        (3, "not_an_event")
    );
}

#[test]
fn a_line_of_50_megabytes_is_passed_over_without_being_kept() {
    let (_project, session) = told();
    let log = fs::read(session.log_path()).unwrap();
    let lines = lines_of(&log);
    let mut file = fs::File::create(session.log_path()).unwrap();
    file.write_all(&lines[..5].concat()).unwrap();
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..50 {
        file.write_all(&chunk).unwrap();
    }
    file.write_all(b"\n").unwrap();
    file.write_all(&lines[5..].concat()).unwrap();
    drop(file);
    let before = peak_memory();
    let items: Vec<_> = session.reader().unwrap().map(Result::unwrap).collect();
    let grown = peak_memory() - before;
    let damage = items[5].damage.as_ref().unwrap();
    assert_eq!(damage.kind, DamageKind::Oversized { bytes: 50 << 20 });
    assert_eq!((damage.line, items.len()), (6, lines.len() + 1));
    assert!(grown < 32 << 20, "reading took {grown} bytes more");
}

fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1024
}

#[test]
fn a_torn_tail_is_cut_and_recorded() {
    let project = Project::new();
    let writer = project.create();
    writer
        .append(&Scope::default(), warning("kept"), Refs::default())
        .unwrap();
    drop(writer);
    let session = project.store().resolve("last").unwrap();
    let whole = fs::read(session.log_path()).unwrap();
    let mut torn = whole.clone();
    torn.extend_from_slice(br#"{"type":"runtime.warning","event_id":"ev_"#);
    fs::write(session.log_path(), &torn).unwrap();

    let opened = session.open_writer(project.session_env()).unwrap();
    assert_eq!(opened.repairs.cut_bytes, (torn.len() - whole.len()) as u64);
    opened
        .writer
        .append(&Scope::default(), warning("after"), Refs::default())
        .unwrap();
    let events: Vec<_> = session
        .reader()
        .unwrap()
        .map(|item| item.unwrap())
        .collect();
    assert!(events.iter().all(|item| item.damage.is_none()));
    let Payload::HistoryReconstructed(reconstructed) = &events[2].event.as_ref().unwrap().payload
    else {
        panic!("{:?}", events[2]);
    };
    assert_eq!(reconstructed.cut_bytes, Some(opened.repairs.cut_bytes));
    assert!(fs::read(session.log_path()).unwrap().starts_with(&whole));
}

#[test]
fn a_damaged_log_is_not_written_on() {
    let (project, session) = told();
    let mut log = fs::read(session.log_path()).unwrap();
    let middle = log.len() / 2;
    log[middle] ^= 1;
    fs::write(session.log_path(), &log).unwrap();
    let Err(error) = session.open_writer(project.session_env()) else {
        panic!("a damaged log was opened");
    };
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("line "), "{error}");
    assert_eq!(fs::read(session.log_path()).unwrap(), log);
}

#[test]
fn a_log_that_was_cut_off_is_not_written_on() {
    let (project, session) = told();
    let log = fs::read(session.log_path()).unwrap();
    let mut lines = lines_of(&log);
    lines.truncate(lines.len() - 1);
    fs::write(session.log_path(), lines.concat()).unwrap();
    let Err(error) = session.open_writer(project.session_env()) else {
        panic!("a shortened log was opened");
    };
    assert!(matches!(error, OpenError::CutOff { .. }), "{error}");
}

/// A log of lines from elsewhere, chained as ours are.
fn foreign_log(session: &SessionDirectory, lines: &[&str]) -> Vec<u8> {
    let mut log = Vec::new();
    let mut prev = hex(session.id().as_str().as_bytes());
    for (sequence, fields) in lines.iter().enumerate() {
        let line = format!(
            r#"{{{fields},"event_id":"ev_{sequence}","timestamp":"2031-01-01T00:00:00.000Z","sequence":{sequence},"runtime_id":"rt_x","session_id":"{}","refs":{{}},"prev":"sha256:{prev}"}}"#,
            session.id()
        );
        prev = hex(line.as_bytes());
        log.extend_from_slice(line.as_bytes());
        log.push(b'\n');
    }
    log
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[test]
fn what_a_newer_version_wrote_is_kept_and_named() {
    let project = Project::new();
    drop(project.create());
    let session = project.store().resolve("last").unwrap();
    let log = foreign_log(
        &session,
        &[
            r#""type":"session.created","schema_version":"1","payload":{"project_root_hash":"","agent_version":"9","mode":"ask","colour":"red"}"#,
            r#""type":"future.class","schema_version":"7","payload":{"x":[1]},"mood":"good""#,
            r#""type":"runtime.warning","schema_version":"7","payload":{"code":5}"#,
        ],
    );
    fs::write(session.log_path(), &log).unwrap();
    let mut reader = session.reader().unwrap().noting();
    let items: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert!(items.iter().all(|item| item.damage.is_none()), "{items:#?}");
    let notes = reader.notes();
    assert_eq!(
        notes.unknown_types.keys().collect::<Vec<_>>(),
        ["future.class"]
    );
    assert_eq!(
        notes.unknown_shapes.keys().collect::<Vec<_>>(),
        ["runtime.warning"]
    );
    assert_eq!(notes.other_versions["7"], 2);
    let fields: Vec<_> = notes.unknown_fields.keys().collect();
    assert_eq!(
        fields,
        ["future.class: mood", "session.created: payload.colour"]
    );

    // It can still be written on.
    let opened = session.open_writer(project.session_env()).unwrap();
    opened
        .writer
        .append(&Scope::default(), warning("after"), Refs::default())
        .unwrap();
    assert!(session.verify_chain().unwrap().damage.is_empty());
}

#[test]
fn links_in_our_place_are_refused_by_name() {
    for place in ["events.jsonl", "artifacts", "", "lease"] {
        let (project, session) = told();
        let path = if place.is_empty() {
            session.path().to_owned()
        } else {
            session.path().join(place)
        };
        let elsewhere = project.directory.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        let Err(error) = session.open_writer(project.session_env()) else {
            panic!("a link in place of `{place}` was followed");
        };
        let message = format!("{error}");
        assert!(message.contains("symbolic link"), "{place}: {message}");
        assert!(
            message.contains(path.to_str().unwrap()),
            "{place}: {message}"
        );
    }
    let project = Project::new();
    let elsewhere = project.directory.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, project.directory.path().join(".agent")).unwrap();
    let Err(error) = project
        .store()
        .create(support::created(), project.session_env())
    else {
        panic!("a link in place of `.agent` was followed");
    };
    assert!(
        matches!(error, OpenError::Place(PlaceError::Symlink { .. })),
        "{error}"
    );
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn a_pipe_in_place_of_the_log_holds_nobody() {
    let (_project, session) = told();
    fs::remove_file(session.log_path()).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(session.log_path())
        .status()
        .unwrap();
    assert!(made.success());
    assert!(matches!(
        session.reader(),
        Err(PlaceError::WrongKind { .. })
    ));
}

#[test]
fn a_session_that_is_deleted_under_us_is_noticed() {
    let project = Project::new();
    let writer = project.create();
    fs::remove_dir_all(writer.directory()).unwrap();
    let error = writer
        .append(&Scope::default(), warning("x"), Refs::default())
        .unwrap_err();
    assert!(matches!(error, AppendError::Gone { .. }), "{error}");

    let writer = project.create();
    writer
        .append(&Scope::default(), warning("x"), Refs::default())
        .unwrap();
    fs::remove_dir_all(writer.directory()).unwrap();
    assert!(matches!(writer.sync(), Err(SyncError::Gone { .. })));
}

#[test]
fn a_foreign_write_is_noticed() {
    let project = Project::new();
    let writer = project.create();
    let mut log = fs::OpenOptions::new()
        .append(true)
        .open(writer.log_path())
        .unwrap();
    log.write_all(b"hello\n").unwrap();
    let error = writer
        .append(&Scope::default(), warning("x"), Refs::default())
        .unwrap_err();
    assert!(matches!(error, AppendError::Foreign { .. }), "{error}");
}

#[test]
fn a_clock_that_goes_backwards_changes_nothing() {
    struct Backwards(std::sync::atomic::AtomicI64);
    impl agent_protocol::Clock for Backwards {
        fn now(&self) -> agent_protocol::Timestamp {
            let millis = self.0.fetch_sub(1000, std::sync::atomic::Ordering::Relaxed);
            agent_protocol::Timestamp::from_unix_millis(millis)
        }
    }
    let project = Project::new();
    let clock = std::sync::Arc::new(Backwards(1_794_799_680_000.into()));
    let mut env = project.session_env();
    env.mint = std::sync::Arc::new(agent_protocol::id::IdMint::new(clock.clone(), 1));
    env.clock = clock;
    let writer = project.store().create(support::created(), env).unwrap();
    whole_story(&writer);
    let session = project.store().resolve("last").unwrap();
    let report = agent_evidence::audit::audit(&session, Some(&project.anchors())).unwrap();
    assert!(report.is_ok(), "{:#?}", report.findings);
}

#[test]
fn the_second_writer_is_refused_and_told_who_is_first() {
    let project = Project::new();
    let writer = project.create();
    let session = project.store().resolve("last").unwrap();
    for _ in 0..2 {
        let Err(error) = session.open_writer(project.session_env()) else {
            panic!("two writers");
        };
        let OpenError::Lease(LeaseError::Held { holder, .. }) = &error else {
            panic!("{error}");
        };
        assert_eq!(
            (holder.pid, holder.program.as_str()),
            (std::process::id(), "a test")
        );
        assert!(error.to_string().contains("a test (pid "), "{error}");
        // Deleting the lease does not help.
        let _ = fs::remove_file(session.path().join("lease"));
        if fs::exists(session.path().join("lease")).unwrap() {
            continue;
        }
        let Err(error) = session.open_writer(project.session_env()) else {
            panic!("two writers without a lease");
        };
        assert!(
            matches!(error, OpenError::Lease(LeaseError::Held { .. })),
            "{error}"
        );
        break;
    }
    writer
        .append(&Scope::default(), warning("still"), Refs::default())
        .unwrap();
    drop(writer);
    assert!(session.holder().is_none());
    session.open_writer(project.session_env()).unwrap();
}

/// Runs `action` as a user who is not root, because root is never refused.
fn as_ordinary_user<T: Send>(action: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                // Only this thread changes, and it ends with the test.
                let nobody = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            action()
        });
        thread.join().unwrap()
    })
}

#[test]
fn a_read_only_directory_is_said_to_be_one() {
    let (project, session) = told();
    let root = project.directory.path();
    let set =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let agent = root.join(".agent");
    // Readable by anyone for the time of the test, writable by nobody.
    for path in [
        root,
        &agent,
        &agent.join("sessions"),
        session.path(),
        &session.path().join("artifacts"),
    ] {
        set(path, 0o555);
    }
    for name in ["events.jsonl", "lease"] {
        set(&session.path().join(name), 0o444);
    }
    as_ordinary_user(|| {
        let Err(error) = project
            .store()
            .create(support::created(), project.session_env())
        else {
            panic!("a session was made in a read-only directory");
        };
        assert!(error.to_string().contains("cannot create"), "{error}");
        assert!(error.hint().unwrap().contains("make it writable"));
        let Err(error) = session.open_writer(project.session_env()) else {
            panic!("a read-only log was opened for writing");
        };
        assert!(error.to_string().contains("lease"), "{error}");
        assert!(error.hint().unwrap().contains("make it writable"));
        let read = session.reader().unwrap().map(Result::unwrap);
        assert!(read.count() > 100, "reading still works");
        let report = agent_evidence::audit::audit(&session, None).unwrap();
        assert!(report.events > 100);
    });
    for path in [
        root,
        &agent,
        &agent.join("sessions"),
        session.path(),
        &session.path().join("artifacts"),
    ] {
        set(path, 0o755);
    }
}

#[test]
fn sessions_are_found_by_what_one_remembers_of_them() {
    let project = Project::new();
    assert!(matches!(
        project.store().resolve("last"),
        Err(ResolveError::Empty { .. })
    ));
    let mut env = project.session_env();
    env.anchors = None;
    let first = project
        .store()
        .create(support::created(), env.clone())
        .unwrap()
        .session_id()
        .clone();
    let second = project
        .store()
        .create(support::created(), env)
        .unwrap()
        .session_id()
        .clone();
    let store = project.store();
    assert_eq!(store.list().unwrap().len(), 2);
    assert_eq!(store.resolve("last").unwrap().id(), &second);
    assert_eq!(store.resolve(first.as_str()).unwrap().id(), &first);
    let bare = first.as_str().strip_prefix("ses_").unwrap();
    assert_eq!(store.resolve(bare).unwrap().id(), &first);
    let common = bare
        .chars()
        .zip(second.as_str()["ses_".len()..].chars())
        .take_while(|(a, b)| a == b)
        .count();
    assert_eq!(store.resolve(&bare[..=common]).unwrap().id(), &first);
    assert!(matches!(
        store.resolve(&bare[..common]),
        Err(ResolveError::Ambiguous { .. })
    ));
    for unknown in ["nothing", "", "../../etc"] {
        assert!(
            matches!(store.resolve(unknown), Err(ResolveError::NotFound { .. })),
            "{unknown}"
        );
    }
    let ignored = fs::read_to_string(store.directory().join(".gitignore")).unwrap();
    assert!(ignored.contains("/sessions/") && !ignored.lines().any(|line| line == "*"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let session = store.resolve("last").unwrap();
    assert_eq!(mode(session.path()), 0o700);
    assert_eq!(mode(&session.log_path()), 0o600);
}

//! What commands change in the project: found by looking, told with enough to undo it.

use std::time::Duration;

use agent_local_tools::ScanLimits;
use agent_local_tools::file::hash_bytes;
use agent_protocol::payload::{SideEffect, SideEffectKind};
use agent_protocol::{Code, Payload, RefTarget};
use agent_tool_runtime::Confinement;
use serde_json::{Value, json};

use crate::command::bash;
use crate::stage::{Setup, Stage};

/// The effects with what kind of thing they are about, in the order they are told.
pub(crate) fn told(effects: &[SideEffect]) -> Vec<String> {
    let told = effects.iter().map(|effect| {
        let what = effect.file_type.as_deref().unwrap_or("file");
        format!("{} {what} {}", effect.kind, effect.path)
    });
    told.collect()
}

/// What the sandbox takes away after the walk is not told as a change.
#[test]
fn a_planted_name_is_no_change_of_the_project() {
    let stage = Stage::new();
    stage.put("kept", "one\n");
    let ended = bash(
        &stage,
        "echo two > kept; mkdir sub; echo evil > sub/.envrc; echo evil > .npmrc",
    );
    assert_eq!(
        told(&ended.side_effects),
        ["modified file kept", "created directory sub"]
    );
}

#[test]
fn what_it_changes_is_found_and_can_be_undone() {
    let stage = Stage::new();
    stage.put("same.txt", "same\n");
    stage.put("edited.txt", "before\n");
    stage.put("removed.txt", "precious\n");
    stage.put("touched.txt", "touched\n");
    stage.put("script.sh", "echo\n");
    stage.put(".gitignore", "ignored/\n");
    let ended = bash(
        &stage,
        "echo after > edited.txt; rm removed.txt; echo new > created.txt; touch touched.txt; chmod +x script.sh; \
         mkdir ignored; echo x > ignored/x",
    );
    let mut effects: Vec<(SideEffectKind, &str)> = ended
        .side_effects
        .iter()
        .map(|effect| (effect.kind, effect.path.as_str()))
        .collect();
    effects.sort();
    assert_eq!(
        effects,
        [
            (SideEffectKind::Modified, "edited.txt"),
            (SideEffectKind::Created, "created.txt"),
            (SideEffectKind::Deleted, "removed.txt"),
            (SideEffectKind::ModeChanged, "script.sh"),
        ]
    );
    let image = |path: &str| {
        let effect = ended
            .side_effects
            .iter()
            .find(|effect| effect.path == path)
            .unwrap();
        stage.artifact(effect.before_ref.as_ref().unwrap())
    };
    assert_eq!(image("edited.txt"), b"before\n");
    assert_eq!(image("removed.txt"), b"precious\n");
    // A second change finds the version the first one left.
    let ended = bash(&stage, "echo third > edited.txt");
    assert_eq!(ended.side_effects.len(), 1);
    assert_eq!(
        stage.artifact(ended.side_effects[0].before_ref.as_ref().unwrap()),
        b"after\n"
    );
    stage.check_log().unwrap();
}

#[test]
fn links_and_directories_are_followed_too() {
    let stage = Stage::new();
    stage.put("keep/a", "a\n");
    stage.put("old/deep/b", "b\n");
    stage.put("becomes-link", "content\n");
    std::os::unix::fs::symlink("keep/a", stage.project().join("moved")).unwrap();
    std::os::unix::fs::symlink("keep/a", stage.project().join("gone")).unwrap();
    std::os::unix::fs::symlink("keep/a", stage.project().join("stays")).unwrap();
    let ended = bash(
        &stage,
        "ln -sfn old moved; rm gone; rm becomes-link; ln -s stays becomes-link; ln -s keep fresh; \
         rm -r old; mkdir -p new/empty; chmod 700 keep",
    );
    assert_eq!(ended.code, Code::Ok, "{ended:?}");
    assert_eq!(
        told(&ended.side_effects),
        [
            "deleted file old/deep/b",
            "deleted directory old/deep",
            "deleted directory old",
            "deleted symlink gone",
            "deleted file becomes-link",
            "created symlink becomes-link",
            "created symlink fresh",
            "mode_changed directory keep",
            "modified symlink moved",
            "created directory new",
            "created directory new/empty",
        ]
    );
    let image = |path: &str| {
        let effects = ended.side_effects.iter();
        let images = effects.filter(|effect| effect.path == path);
        let image = images
            .filter_map(|effect| effect.before_ref.as_ref())
            .next();
        stage.artifact(image.unwrap())
    };
    // The content of a link is where it points to.
    assert_eq!(image("moved"), b"keep/a");
    assert_eq!(image("gone"), b"keep/a");
    assert_eq!(image("becomes-link"), b"content\n");
    let moved = ended
        .side_effects
        .iter()
        .find(|effect| effect.path == "moved")
        .unwrap();
    assert_eq!(
        moved.sha256_after.as_deref(),
        Some(hash_bytes(b"old").as_str())
    );
    stage.check_log().unwrap();
}

#[test]
fn a_copy_there_was_no_time_for_is_missed_and_said_so() {
    let stage = Stage::with(Setup {
        scan: ScanLimits {
            copy_time: Duration::ZERO,
            ..ScanLimits::default()
        },
        ..Setup::default()
    });
    stage.put("a", "before\n");
    let ended = bash(&stage, "echo after > a");
    let [effect] = &*ended.side_effects else {
        panic!("{ended:?}")
    };
    assert_eq!(effect.no_image.as_deref(), Some("not_kept"));
    assert_eq!(effect.sha256_after, Some(hash_bytes(b"after\n")));
}

#[test]
fn many_changes_are_all_kept_in_an_artifact() {
    let stage = Stage::new();
    for number in 0..600 {
        stage.put(&format!("file-{number}"), format!("{number}\n"));
    }
    let ended = bash(&stage, "for file in file-*; do echo more >> $file; done");
    assert!(ended.ok, "{ended:?}");
    let result = stage
        .events()
        .into_iter()
        .find_map(|event| match &event.payload {
            Payload::ToolResult(_) => Some(event),
            _ => None,
        });
    let refs = result.unwrap().refs;
    let RefTarget::One(id) = &refs.0["side_effects"] else {
        panic!("{refs:?}")
    };
    let all = stage.artifact(&id.parse().unwrap());
    let all: Vec<Value> = serde_json::from_slice(&all).unwrap();
    assert_eq!(all.len(), 600);
    assert!(all.iter().all(|effect| effect["before_ref"].is_string()));
    stage.check_log().unwrap();
}

#[test]
fn a_file_a_command_changed_is_stale_for_an_edit() {
    let stage = Stage::new();
    stage.put("a.txt", "one\n");
    stage.call("read", &json!({"path": "a.txt"}));
    bash(&stage, "echo two > a.txt");
    let ended = stage.call(
        "edit",
        &json!({"path": "a.txt", "old_string": "two", "new_string": "2"}),
    );
    assert_eq!(ended.code, Code::StaleFileBaseline);
}

#[test]
fn what_is_too_much_to_look_at_is_said() {
    let stage = Stage::with(Setup {
        scan: ScanLimits {
            files: 5,
            image_bytes: 4,
            ..ScanLimits::default()
        },
        ..Setup::default()
    });
    stage.put("large.txt", "more than four bytes\n");
    let ended = bash(&stage, "echo x >> large.txt");
    assert_eq!(ended.side_effects[0].no_image.as_deref(), Some("too_large"));
    for number in 0..9 {
        stage.put(&format!("{number}.txt"), "");
    }
    let ended = bash(&stage, "echo x > 1.txt");
    assert!(ended.side_effects.is_empty());
    let text = stage.model_text(&ended);
    assert!(
        text.contains("were not looked for: the project has more than 5 files"),
        "{text}"
    );
}

#[test]
fn a_command_that_may_not_write_is_not_looked_after() {
    let stage = Stage::with(Setup {
        confinement: Confinement {
            profile: "read-only".into(),
            ..Confinement::default()
        },
        ..Setup::default()
    });
    let ended = bash(&stage, "pwd");
    assert_eq!(ended.code, Code::Ok);
    assert!(ended.side_effects.is_empty());
}

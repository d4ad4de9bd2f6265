//! Patches against a model of lines that shares no code with them, first in memory and then through
//! the whole pipeline.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use agent_local_tools::Encoding;
use agent_local_tools::apply_patch::{Action, parse, place};
use agent_protocol::Code;
use agent_protocol::payload::SideEffectKind;
use agent_protocol::payload::tool::ToolObservation;
use proptest::prelude::*;
use serde_json::json;

use crate::stage::Stage;

/// A hunk as signs and lines.
type Lines = Vec<(char, String)>;

/// What hunks make of a text: each stands once behind the one before it, or nothing happens.
fn model(text: &str, hunks: &[Lines]) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut from = 0;
    for hunk in hunks {
        let side = |sign: char| -> Vec<String> {
            let lines = hunk.iter().filter(|(kind, _)| *kind != sign);
            lines.map(|(_, line)| line.clone()).collect()
        };
        let (old, new) = (side('+'), side('-'));
        let at = if old.is_empty() {
            lines.len()
        } else {
            let is_here = |at: &usize| lines[*at..].starts_with(&old);
            let places: Vec<usize> = (from..lines.len()).filter(is_here).collect();
            let [only] = *places else { return None };
            only
        };
        lines.splice(at..at + old.len(), new.iter().cloned());
        from = at + new.len();
    }
    let is_open = !text.is_empty() && !text.ends_with('\n');
    let end = if is_open || lines.is_empty() {
        ""
    } else {
        "\n"
    };
    Some(format!("{}{end}", lines.join("\n")))
}

fn written(hunks: &[Lines]) -> String {
    let mut text = String::new();
    for hunk in hunks {
        text.push_str("@@\n");
        for (sign, line) in hunk {
            let _ = writeln!(text, "{sign}{line}");
        }
    }
    text
}

fn line() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "d", "e", "f", "g", "{", "}"]).prop_map(str::to_owned)
}

fn text() -> impl Strategy<Value = String> {
    (prop::collection::vec(line(), 0..14), any::<bool>()).prop_map(|(lines, is_open)| {
        let text = lines.join("\n");
        if is_open || text.is_empty() {
            text
        } else {
            text + "\n"
        }
    })
}

/// How a hunk is cut out of a text: lines to pass over, to keep, to remove, to keep; new lines; and
/// whether one of them is not as it is in the text.
type Cut = (usize, usize, usize, usize, Vec<String>, bool);

fn cuts() -> impl Strategy<Value = Vec<Cut>> {
    let new = prop::collection::vec(line(), 0..3);
    let cut = (
        0usize..4,
        0usize..4,
        0usize..3,
        0usize..4,
        new,
        prop::bool::weighted(0.1),
    );
    prop::collection::vec(cut, 1..4)
}

fn hunks_of(text: &str, cuts: &[Cut]) -> Vec<Lines> {
    let mut lines = text.lines();
    let mut hunks = Vec::new();
    for (pass, before, removed, after, new, is_wrong) in cuts {
        let mut hunk: Lines = Vec::new();
        for _ in 0..*pass {
            lines.next();
        }
        let mut take = |count: usize, sign: char, hunk: &mut Lines| {
            let part = lines.by_ref().take(count);
            hunk.extend(part.map(|line| (sign, line.to_owned())));
        };
        take(*before, ' ', &mut hunk);
        take(*removed, '-', &mut hunk);
        hunk.extend(new.iter().map(|line| ('+', line.clone())));
        take(*after, ' ', &mut hunk);
        if let Some((_, first)) = hunk.first_mut().filter(|_| *is_wrong) {
            first.push_str("???");
        }
        if !hunk.is_empty() {
            hunks.push(hunk);
        }
    }
    hunks
}

proptest! {
    /// Hunks are made exactly as the model has it, or the same patch is refused.
    #[test]
    fn hunks_equal_the_model(text in text(), cuts in cuts()) {
        let hunks = hunks_of(&text, &cuts);
        prop_assume!(!hunks.is_empty());
        let patch = format!("*** Begin Patch\n*** Update File: x\n{}*** End Patch", written(&hunks));
        let patch = parse(&patch).unwrap();
        let Action::Update { hunks: parsed, .. } = &patch.sections[0].action else {
            panic!("no update");
        };
        let found = place(text.as_bytes(), Encoding::Utf8, parsed);
        let found = found.ok().map(|placed| String::from_utf8(placed.after).unwrap());
        prop_assert_eq!(found, model(&text, &hunks), "{}", written(&hunks));
    }

    /// Whatever the text is, reading it ends, and what it places leaves the rest as it was.
    #[test]
    fn nothing_is_lost(text in text(), patch in "(\\*\\*\\* (Begin Patch|Update File: x|End of File|End Patch)\n|@@ ?[abc]?\n|[ +-]?[abc]?\n){0,12}") {
        let patch = format!("*** Begin Patch\n{patch}*** End Patch");
        let Ok(patch) = parse(&patch) else { return Ok(()) };
        for section in &patch.sections {
            let Action::Update { hunks, .. } = &section.action else { continue };
            let Ok(placed) = place(text.as_bytes(), Encoding::Utf8, hunks) else { continue };
            let (mut left, mut right) = (0, 0);
            for (before, after) in &placed.changes {
                prop_assert_eq!(&text.as_bytes()[left..before.start], &placed.after[right..after.start]);
                (left, right) = (before.end, after.end);
            }
            prop_assert_eq!(&text.as_bytes()[left..], &placed.after[right..]);
        }
    }
}

#[derive(Clone, Debug)]
enum Section {
    Add(usize, Vec<String>),
    Delete(usize),
    Update(usize, Vec<Cut>),
    Move(usize, usize),
}

const NAMES: [&str; 4] = ["a", "b", "d/c", "d/e/f"];

fn sections() -> impl Strategy<Value = Vec<Section>> {
    let section = prop_oneof![
        2 => (0usize..4, prop::collection::vec(line(), 0..4)).prop_map(|(file, lines)| Section::Add(file, lines)),
        1 => (0usize..4).prop_map(Section::Delete),
        4 => (0usize..4, cuts()).prop_map(|(file, cuts)| Section::Update(file, cuts)),
        1 => (0usize..4, 0usize..4).prop_map(|(from, to)| Section::Move(from, to)),
    ];
    prop::collection::vec(section, 1..4)
}

type Files = BTreeMap<String, String>;

/// The patch, up to the first section that cannot be made, and what it makes of the files.
fn patched(files: &Files, sections: &[Section]) -> (String, Option<Files>) {
    let mut now = files.clone();
    let mut text = "*** Begin Patch\n".to_owned();
    let mut touched: Vec<&str> = Vec::new();
    for section in sections {
        let is_made = match section {
            Section::Add(file, lines) => {
                let name = NAMES[*file];
                let _ = writeln!(text, "*** Add File: {name}");
                let content: String = lines.iter().map(|line| format!("{line}\n")).collect();
                text.extend(lines.iter().map(|line| format!("+{line}\n")));
                touched.push(name);
                now.insert(name.to_owned(), content).is_none()
            }
            Section::Delete(file) => {
                let _ = writeln!(text, "*** Delete File: {}", NAMES[*file]);
                touched.push(NAMES[*file]);
                now.remove(NAMES[*file]).is_some()
            }
            Section::Update(file, cuts) => {
                let name = NAMES[*file];
                let content = now.get(name).cloned();
                let hunks = hunks_of(content.as_deref().unwrap_or("a\n"), cuts);
                if hunks.is_empty() {
                    continue;
                }
                let _ = write!(text, "*** Update File: {name}\n{}", written(&hunks));
                // No file was read: lines without a place need one that is known.
                let is_sure = |hunk: &Lines| hunk.iter().any(|(sign, _)| *sign != '+');
                let is_known = touched.contains(&name) || hunks.iter().all(is_sure);
                touched.push(name);
                let after = content.and_then(|content| {
                    let after = model(&content, &hunks)?;
                    (is_known || content.is_empty()).then_some(after)
                });
                let is_made = after.is_some();
                now.extend(after.map(|after| (name.to_owned(), after)));
                is_made
            }
            Section::Move(from, to) => {
                let (from, to) = (NAMES[*from], NAMES[*to]);
                let _ = writeln!(text, "*** Update File: {from}\n*** Move to: {to}");
                touched.extend([from, to]);
                match now.get(from).cloned() {
                    Some(content) if !now.contains_key(to) => {
                        now.remove(from);
                        now.insert(to.to_owned(), content);
                        true
                    }
                    _ => false,
                }
            }
        };
        if !is_made {
            return (text + "*** End Patch\n", None);
        }
    }
    (text + "*** End Patch\n", Some(now))
}

fn on_disk(root: &Path) -> Files {
    let read = |name: &&str| {
        let text = std::fs::read_to_string(root.join(name)).ok()?;
        Some(((*name).to_owned(), text))
    };
    NAMES.iter().filter_map(read).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Through the whole pipeline: every file as the model has it, or every file as it was; and the
    /// log says exactly what became of each.
    #[test]
    fn a_patch_applies_whole_or_not_at_all(
        had in prop::collection::vec(prop::option::of(text()), 4),
        sections in sections(),
    ) {
        let stage = Stage::new();
        for (name, text) in NAMES.iter().zip(&had) {
            if let Some(text) = text {
                stage.put(name, text);
            }
        }
        let before = on_disk(stage.project());
        let (patch, expected) = patched(&before, &sections);
        let observed = stage.call("apply_patch", &json!({ "input": patch }));
        let found = on_disk(stage.project());
        match expected {
            Some(expected) if expected != before => {
                prop_assert!(observed.ok, "{patch}\n{}", observed.summary);
                prop_assert_eq!(&found, &expected, "{}", patch);
                let mut told = before;
                for effect in &observed.side_effects {
                    if effect.file_type.is_some() {
                        continue;
                    }
                    let image = effect.after_ref.as_ref().map(|id| stage.artifact(id));
                    match (effect.kind, image) {
                        (SideEffectKind::Deleted, None) => told.remove(&effect.path),
                        (_, Some(image)) => told.insert(effect.path.clone(), String::from_utf8(image).unwrap()),
                        other => panic!("{other:?}"),
                    };
                }
                prop_assert_eq!(told, expected);
            }
            _ => {
                prop_assert!(!observed.ok, "{patch}\n{}", observed.summary);
                prop_assert_eq!(found, before, "{}", patch);
                prop_assert!(observed.side_effects.is_empty());
            }
        }
        stage.check_log().map_err(TestCaseError::fail)?;
    }
}

fn check(stage: &Stage, patch: &str, code: Code, part: &str) -> ToolObservation {
    let observed = stage.call("apply_patch", &json!({ "input": patch }));
    let text = stage.model_text(&observed);
    assert_eq!(observed.code, code, "{patch}\n{text}");
    assert!(text.contains(part), "{text}");
    assert_eq!(
        text.contains("Nothing was changed."),
        code != Code::Ok,
        "{text}"
    );
    observed
}

#[test]
fn errors_name_the_hunk_the_line_and_the_nearest_text() {
    let stage = Stage::new();
    stage.put(
        "a.rs",
        "fn main() {\n    let answer = 41;\n    let answer = 42;\n}\n",
    );
    let update =
        |hunk: &str| format!("*** Begin Patch\n*** Update File: a.rs\n{hunk}\n*** End Patch");
    let nearest = "    let answer = 41;";
    check(
        &stage,
        &update("@@\n-    let anser = 41;\n+    x"),
        Code::TargetNotFound,
        nearest,
    );
    check(
        &stage,
        &update("@@\n-    let anser = 41;\n+    x"),
        Code::TargetNotFound,
        "hunk 1 (line 3 of the patch)",
    );
    check(
        &stage,
        &update(" fn main() {\n@@\n-fn main() {"),
        Code::TargetNotFound,
        "they do occur at line 1",
    );
    check(
        &stage,
        &update("-fn main() {\nfoo"),
        Code::SchemaInvalid,
        "line 4 of the patch: a line of a hunk begins",
    );
    check(
        &stage,
        "*** Begin Patch\n*** Delete File: b.rs\n*** End Patch",
        Code::FileNotFound,
        "`b.rs` (line 2 of the patch)",
    );
    check(
        &stage,
        "*** Begin Patch\n*** Add File: ../x\n+x\n*** End Patch",
        Code::OutsideWorkspace,
        "outside the workspace",
    );
    check(
        &stage,
        "*** Begin Patch\n*** Add File: a.rs\n+x\n*** End Patch",
        Code::RuntimePreconditionFailed,
        "exists already",
    );
    check(
        &stage,
        &update(" fn main() {"),
        Code::NoChange,
        "leaves every file as it is",
    );
    std::os::unix::fs::symlink("a.rs", stage.project().join("link")).unwrap();
    check(
        &stage,
        "*** Begin Patch\n*** Delete File: link\n*** End Patch",
        Code::RuntimePreconditionFailed,
        "symbolic link",
    );
    // Of two files, one that cannot be made keeps the other as it is.
    let both =
        "*** Begin Patch\n*** Add File: new\n+x\n*** Update File: a.rs\n-nope\n*** End Patch";
    check(
        &stage,
        both,
        Code::TargetNotFound,
        "`a.rs` (line 4 of the patch)",
    );
    assert!(!stage.project().join("new").exists());
}

#[test]
fn what_the_session_knows_of_a_file_counts() {
    let stage = Stage::new();
    stage.put("a", "one\ntwo\n");
    let text = |body: &str| format!("*** Begin Patch\n{body}\n*** End Patch");
    // Lines to be found by are proof enough; without them the file has to be read.
    check(
        &stage,
        &text("*** Update File: a\n+three"),
        Code::RuntimePreconditionFailed,
        "not been read",
    );
    check(
        &stage,
        &text("*** Update File: a\n-two\n+2"),
        Code::Ok,
        "modified `a`",
    );
    // Its own result counts as having seen it.
    check(&stage, &text("*** Update File: a\n+three"), Code::Ok, "");
    assert_eq!(stage.text("a"), "one\n2\nthree\n");
    let edit = json!({"path": "a", "old_string": "one", "new_string": "1"});
    assert!(stage.call("edit", &edit).ok);
    stage.put("a", "theirs\n");
    check(
        &stage,
        &text("*** Delete File: a"),
        Code::StaleFileBaseline,
        "changed on disk",
    );
    check(
        &stage,
        &text("*** Add File: a\n+x"),
        Code::StaleFileBaseline,
        "changed on disk",
    );
    check(
        &stage,
        &text("*** Update File: a\n+x"),
        Code::StaleFileBaseline,
        "changed on disk",
    );
    check(
        &stage,
        &text("*** Update File: a\n-theirs\n+ours"),
        Code::Ok,
        "modified `a`",
    );
    let moved = check(
        &stage,
        &text("*** Update File: a\n*** Move to: d/b\n-ours\n+moved"),
        Code::Ok,
        "created `d/b`",
    );
    let kinds: Vec<_> = moved
        .side_effects
        .iter()
        .map(|effect| (effect.kind, &*effect.path))
        .collect();
    let expected = [
        (SideEffectKind::Deleted, "a"),
        (SideEffectKind::Created, "d"),
        (SideEffectKind::Created, "d/b"),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(stage.text("d/b"), "moved\n");
    check(
        &stage,
        &text("*** Delete File: d/b"),
        Code::Ok,
        "deleted `d/b`",
    );
    stage.check_log().unwrap();
}

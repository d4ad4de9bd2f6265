//! All files of a patch, or none: everything is checked before the first is touched, and what was
//! done is put back when a later step fails.

use agent_fs::Stamp;

use crate::change::expected;
use crate::diff::Diff;
use crate::file::{Snapshot, hash_bytes};
use crate::path::{ProjectPath, Roots, open_file};
use crate::replace::{
    Expected, ReplaceProblem, Replaced, SetAside, check, create_like, remove_made, replace,
    set_aside,
};

/// What becomes of one file.
pub(crate) struct FileChange {
    pub(crate) path: ProjectPath,
    /// As the patch has it.
    pub(crate) given: String,
    /// The version it rests on; nothing for a new file.
    pub(crate) before: Option<Snapshot>,
    /// Nothing for a file that goes.
    pub(crate) after: Option<Vec<u8>>,
    pub(crate) diff: Diff,
    /// Where the content of a moved file comes from, by its place in the list.
    pub(crate) moved_from: Option<usize>,
}

/// A change that was made.
pub(crate) struct Made {
    /// Of the file as it is now.
    pub(crate) stamp: Option<Stamp>,
    pub(crate) other_names: u64,
    pub(crate) directories: usize,
}

/// Why a patch was not carried out.
#[derive(Debug)]
pub(crate) struct NotCarriedOut {
    pub(crate) problem: ReplaceProblem,
    /// Changes that were made and could not be put back; those of files that were written with how.
    pub(crate) stuck: Vec<(usize, Option<Replaced>)>,
}

/// A step that can be taken back.
enum Step {
    Written(Replaced),
    Aside(SetAside),
}

/// Makes all changes. `before_step` is called before each one.
pub(crate) fn carry_out(
    changes: &[FileChange],
    roots: &Roots,
    before_step: &mut dyn FnMut(usize),
) -> Result<Vec<Made>, NotCarriedOut> {
    for change in changes {
        let expected = expected(change.before.as_ref());
        check(roots, &change.path, expected).map_err(|problem| NotCarriedOut {
            problem,
            stuck: Vec::new(),
        })?;
    }
    let mut steps: Vec<(usize, Step)> = Vec::new();
    // What goes, goes last: a file that is only moved is never missing under both names.
    let goes = |index: &usize| changes[*index].after.is_none();
    let (last, first): (Vec<usize>, Vec<usize>) = (0..changes.len()).partition(goes);
    for (number, index) in first.into_iter().chain(last).enumerate() {
        before_step(number);
        match step(&changes[index], changes, roots) {
            Ok(step) => steps.push((index, step)),
            Err(problem) => {
                let stuck = put_back(steps, changes, roots);
                return Err(NotCarriedOut { problem, stuck });
            }
        }
    }
    let mut gone = Vec::new();
    for (index, step) in &steps {
        if let Step::Aside(aside) = step
            && let Err(problem) = aside.remove()
        {
            steps.retain(|(index, _)| !gone.contains(index));
            let mut stuck = put_back(steps, changes, roots);
            stuck.extend(gone.into_iter().map(|index| (index, None)));
            return Err(NotCarriedOut { problem, stuck });
        } else if matches!(step, Step::Aside(_)) {
            gone.push(*index);
        }
    }
    steps.sort_by_key(|(index, _)| *index);
    Ok(steps.into_iter().map(|(_, step)| made(step)).collect())
}

fn made(step: Step) -> Made {
    match step {
        Step::Written(replaced) => Made {
            stamp: Some(replaced.stamp),
            other_names: replaced.other_names,
            directories: replaced.directories,
        },
        Step::Aside(_) => Made {
            stamp: None,
            other_names: 0,
            directories: 0,
        },
    }
}

fn step(
    change: &FileChange,
    changes: &[FileChange],
    roots: &Roots,
) -> Result<Step, ReplaceProblem> {
    match (&change.before, &change.after) {
        (Some(before), None) => set_aside(roots, &change.path, &before.sha256).map(Step::Aside),
        (None, Some(after)) => {
            let source = change.moved_from.and_then(|index| changes.get(index));
            let like = source.and_then(|source| open_file(roots, &source.path).ok());
            create_like(roots, &change.path, after, like.as_ref()).map(Step::Written)
        }
        (before, after) => {
            let after = after.as_deref().unwrap_or_default();
            replace(roots, &change.path, expected(before.as_ref()), after).map(Step::Written)
        }
    }
}

/// Takes the steps back, the last one first. What somebody else has changed since is left alone.
fn put_back(
    steps: Vec<(usize, Step)>,
    changes: &[FileChange],
    roots: &Roots,
) -> Vec<(usize, Option<Replaced>)> {
    let mut stuck = Vec::new();
    for (index, step) in steps.into_iter().rev() {
        let change = &changes[index];
        match step {
            Step::Aside(aside) => {
                if aside.put_back().is_err() {
                    stuck.push((index, None));
                }
            }
            Step::Written(replaced) => {
                if unwrite(change, &replaced, roots).is_err() {
                    stuck.push((index, Some(replaced)));
                }
            }
        }
    }
    stuck
}

fn unwrite(change: &FileChange, replaced: &Replaced, roots: &Roots) -> Result<(), ReplaceProblem> {
    let after = change.after.as_deref().unwrap_or_default();
    let sha256 = hash_bytes(after);
    match &change.before {
        Some(before) => {
            let expected = Expected::Content {
                bytes: after,
                sha256: &sha256,
            };
            replace(roots, &change.path, expected, &before.content)?;
        }
        None => {
            set_aside(roots, &change.path, &sha256)?.remove()?;
            remove_made(&change.path, replaced.directories);
        }
    }
    Ok(())
}

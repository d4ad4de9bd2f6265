//! The prepared prompts: what `init` and `review` ask the model for, on the screen and without one. Each is a
//! turn like any other: the model gets these words and nothing more may happen than the mode allows.

use crate::changes::{Changes, Subject};

/// The most changed files that are named.
const MOST_FILES: usize = 200;

/// Form in which a review ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewForm {
    /// A list that people read.
    Text,
    /// One object that programs read.
    Json,
}

/// Asks for the project's AGENTS.md.
pub const INIT: &str = "\
Write `AGENTS.md` in the root of this project: what a coding agent, or a new colleague, has to know to work here.

First look around: README and other documents, build and package files, the configuration of CI, the layout, a few \
representative sources and tests, and instructions that are there already (`AGENTS.md`, `CLAUDE.md`, `.cursorrules`, \
`.github/copilot-instructions.md`).

Then write it, short and true. Only what you saw in the project, and nothing that holds for every project:
- what it is, in two sentences, and where things are;
- the commands to build, to run, to test (everything, and a single test), to lint and to format;
- conventions one would not guess: names, errors, layout of tests, commit messages;
- what is generated, what must not be touched, what commonly goes wrong.
At most 150 lines, Markdown, no secrets.

If `AGENTS.md` exists, do not start over: correct what is wrong in it, add what is missing, and leave the rest as it is. \
Change no other file. At the end say in a few lines what you wrote, and what you were not sure of.";

/// The title of a session that reviews `changes`.
#[must_use]
pub fn review_title(changes: &Changes) -> String {
    match &changes.subject {
        Subject::Uncommitted => "Review of uncommitted changes".to_owned(),
        Subject::Since(branch) => format!("Review of changes since {branch}"),
        Subject::Commit(name) => format!("Review of commit {name}"),
    }
}

/// Asks for a review of `changes`.
#[must_use]
pub fn review(changes: &Changes, form: ReviewForm) -> String {
    let commit = changes.commit.as_deref().unwrap_or_default();
    let (what, command) = match &changes.subject {
        Subject::Uncommitted if commit.is_empty() => (
            "all files of this project, which has no commit yet".to_owned(),
            String::new(),
        ),
        Subject::Uncommitted => (
            "the changes in this project that are in no commit yet".to_owned(),
            "git diff HEAD".to_owned(),
        ),
        Subject::Since(branch) => (
            format!("the changes in this project since `{branch}`"),
            format!("git diff {commit}"),
        ),
        Subject::Commit(_) => (format!("the commit {commit}"), format!("git show {commit}")),
    };
    let look = match command.is_empty() {
        true => "Read the files below.".to_owned(),
        false => {
            format!("Look at the changes with `{command}`; read new files that git does not know.")
        }
    };
    let files = files(changes);
    let end = match form {
        ReviewForm::Text => TEXT_END,
        ReviewForm::Json => JSON_END,
    };
    format!(
        "Review {what}. Only look: change nothing.\n\n\
         1. {look}\n\
         2. Read the code around them until you are sure: callers, types, tests, documents.\n\
         3. Report what the author would want to fix before this is merged: wrong behaviour, lost data, security, \
         races, errors that are swallowed or mislead, a promise of the documents that no longer holds, a risky path \
         without a test. Not style, not wishes, and nothing that was there before and did not get worse. Name the \
         case in which it goes wrong. What you cannot point at, check or leave out.\n\n\
         Changed files:\n{files}\n{end}"
    )
}

fn files(changes: &Changes) -> String {
    let mut text = String::new();
    for file in changes.files.iter().take(MOST_FILES) {
        let path = agent_text::visible_line(&file.path);
        let what = match file.untracked {
            true => "new, unknown to git".to_owned(),
            false => format!("+{} -{}", file.added, file.removed),
        };
        text.push_str(&format!("- {path} ({what})\n"));
    }
    if changes.files.len() > MOST_FILES {
        let more = changes.files.len() - MOST_FILES;
        text.push_str(&format!("- and {more} more\n"));
    }
    text
}

const TEXT_END: &str = "\
End with the findings, the worst first. Each begins with a line `severity` `file:line` title (severity is critical, high, \
medium or low), then says why it is wrong and how to fix it. If there is nothing to fix, say so plainly.";

const JSON_END: &str = "\
End with one JSON object in a ```json block, and nothing after it:
{\"summary\": \"two sentences about the changes as a whole\", \"findings\": [{\"file\": \"path from the project's root\", \
\"line\": 12, \"end_line\": 14, \"severity\": \"critical, high, medium or low\", \"title\": \"one line\", \"body\": \"why it is \
wrong, when it happens, and how to fix it\"}]}
`line` is the number of a line in the file after the changes. If there is nothing to fix, `findings` is empty.";

//! What Claude Code's record says of how a call ended: its code, and the files it changed.

use agent_protocol::Code;
use serde_json::Value;

use super::change::{FileChange, Side, agrees, replaced, unified};
use super::place::Root;
use super::{CallEnd, Part, content_text, text_at};

/// Reads a `tool_result` block. `facts` is what the program keeps beside it.
pub(super) fn result(block: &Value, facts: Option<&Value>, root: &Root) -> CallEnd {
    let content = block.get("content").unwrap_or(&Value::Null);
    let text = content_text(content);
    let is_error = block.get("is_error") == Some(&Value::Bool(true));
    let exit_code = is_error.then(|| exit_code(&text)).flatten();
    let code = match (is_error, exit_code) {
        (false, _) => Code::Ok,
        (true, Some(_)) => Code::ExitNonzero,
        (true, None) => failure(&text),
    };
    let facts = facts.filter(|_| !is_error);
    let changes: Vec<FileChange> = facts
        .and_then(|facts| change(facts, root))
        .into_iter()
        .collect();
    let diff = facts.zip(changes.first()).and_then(|(facts, change)| {
        change
            .diff()
            .or_else(|| unified(&change.path, facts.get("structuredPatch")?))
    });
    CallEnd {
        id: text_at(block, &["tool_use_id"])
            .unwrap_or_default()
            .to_owned(),
        text,
        code,
        exit_code,
        parts: content.as_array().map_or_else(Vec::new, |blocks| {
            blocks.iter().filter_map(Part::of).collect()
        }),
        changes,
        diff,
    }
}

/// `Exit code 2` at the beginning of a failed command's text.
fn exit_code(text: &str) -> Option<i32> {
    let after = text
        .strip_prefix("Error: ")
        .unwrap_or(text)
        .strip_prefix("Exit code ")?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// The code for what the program says of a failure.
fn failure(text: &str) -> Code {
    let has = |words: &str| text.contains(words);
    let found = [
        ("doesn't want to proceed", Code::UserDenied),
        ("doesn't want to take this action", Code::UserDenied),
        ("tool use was rejected", Code::UserDenied),
        ("[Request interrupted by user", Code::Cancelled),
        ("Sibling tool call errored", Code::Cancelled),
        ("parallel tool call", Code::Cancelled),
        ("has been denied", Code::PolicyDenied),
        ("haven't granted it", Code::ApprovalUnavailable),
        ("permission to use", Code::UserDenied),
        ("String to replace not found", Code::TargetNotFound),
        ("String not found in file", Code::TargetNotFound),
        ("has not been read yet", Code::RuntimePreconditionFailed),
        ("matches of the string to replace", Code::AmbiguousTarget),
        ("modified since read", Code::StaleFileBaseline),
        ("unexpectedly modified", Code::StaleFileBaseline),
        ("exactly the same", Code::NoChange),
        ("does not exist", Code::FileNotFound),
        ("ENOENT", Code::FileNotFound),
        ("InputValidationError", Code::SchemaInvalid),
        ("No such tool available", Code::UnknownTool),
        ("EISDIR", Code::NotAFile),
        ("EACCES", Code::PermissionDenied),
        ("exceeds maximum allowed", Code::TooLarge),
        ("timed out", Code::Timeout),
    ];
    let found = found.iter().find(|(words, _)| has(words));
    found.map_or(Code::InternalError, |(_, code)| *code)
}

/// The file a call changed, if it changed one.
fn change(facts: &Value, root: &Root) -> Option<FileChange> {
    let path = text_at(facts, &["filePath"]).or_else(|| text_at(facts, &["notebook_path"]))?;
    let patch = facts.get("structuredPatch");
    let is_new = text_at(facts, &["type"]) == Some("create");
    let rewritten = text_at(facts, &["updated_file"]);
    if patch.is_none() && rewritten.is_none() && !is_new {
        return None;
    }
    let original = ["originalFile", "originalFileContents", "original_file"]
        .iter()
        .find_map(|name| text_at(facts, &[name]));
    let before = match original {
        _ if is_new => Side::Missing,
        Some(text) => Side::Text(text.to_owned()),
        None => Side::Unknown,
    };
    let content = text_at(facts, &["content"]).or(rewritten);
    let after = match (content, original) {
        (Some(content), _) => Some(content.to_owned()),
        (None, Some(original)) => edited(facts, original),
        (None, None) => None,
    };
    // Two accounts of one change: where they differ, neither is taken for the truth.
    let after = after.filter(|after| patch.is_none_or(|patch| agrees(patch, after)));
    let after = after.map_or(Side::Unknown, Side::Text);
    if before == after && before != Side::Unknown {
        return None;
    }
    Some(FileChange {
        path: root.relative(path, None),
        before,
        after,
    })
}

/// `original` after the replacements that were made in it.
fn edited(facts: &Value, original: &str) -> Option<String> {
    if let Some(edits) = facts.get("edits").and_then(Value::as_array) {
        let mut text = original.to_owned();
        for edit in edits {
            let field = |name: &str| text_at(edit, &[name]);
            let all = edit.get("replace_all") == Some(&Value::Bool(true));
            text = replaced(&text, field("old_string")?, field("new_string")?, all)?;
        }
        return Some(text);
    }
    let old = text_at(facts, &["oldString"])?;
    let new = text_at(facts, &["newString"])?;
    let all = facts.get("replaceAll") == Some(&Value::Bool(true));
    replaced(original, old, new, all)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn changed(facts: Value) -> Option<(String, Side, Side)> {
        let root = Root::of(Path::new("/p"), Some("/srv/shop"));
        let change = change(&facts, &root)?;
        Some((change.path, change.before, change.after))
    }

    #[test]
    fn both_sides_of_a_change_are_exact_or_unknown() {
        let text = |text: &str| Side::Text(text.to_owned());
        let path = || "a".to_owned();
        let file = "/srv/shop/a";
        assert_eq!(
            changed(json!({"type": "create", "filePath": file, "content": "x\n"})),
            Some((path(), Side::Missing, text("x\n")))
        );
        assert_eq!(
            changed(
                json!({"type": "update", "filePath": file, "content": "x\n", "structuredPatch": []})
            ),
            Some((path(), Side::Unknown, text("x\n")))
        );
        let edits = json!([
            {"old_string": "a", "new_string": "b"},
            {"old_string": "b", "new_string": "c", "replace_all": true},
        ]);
        assert_eq!(
            changed(
                json!({"filePath": file, "originalFileContents": "a b\n", "edits": edits, "structuredPatch": []})
            ),
            Some((path(), text("a b\n"), text("c c\n")))
        );
        assert_eq!(
            changed(
                json!({"filePath": file, "originalFile": "a\n", "oldString": "x", "newString": "y", "structuredPatch": []})
            ),
            Some((path(), text("a\n"), Side::Unknown))
        );
        assert_eq!(changed(json!({"filePath": file, "numLines": 3})), None);
    }
}

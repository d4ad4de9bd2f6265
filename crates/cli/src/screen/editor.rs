//! The user's own editor for what is being written.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use agent_protocol::id::RunId;
use agent_tui::ExternalEditor;

use crate::app::App;

/// What opens the editor named by `VISUAL` or `EDITOR`, or `vi`.
pub(super) fn external(app: &App) -> ExternalEditor {
    let named = ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| app.host.environment.get(name).map(ToOwned::to_owned));
    let editor = named.unwrap_or_else(|| OsString::from("vi"));
    let file = app
        .host
        .temporary
        .join(format!("agent-{}.md", app.host.ids.mint::<RunId>()));
    Arc::new(move |text: &str| {
        let edited = edit(&editor, &file, text);
        let _ = fs::remove_file(&file);
        edited
    })
}

fn edit(editor: &OsString, file: &Path, text: &str) -> Result<String, String> {
    let shown = editor.to_string_lossy();
    let mut draft = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .map_err(|error| format!("cannot write a file for the editor: {error}"))?;
    draft
        .write_all(text.as_bytes())
        .map_err(|error| format!("cannot write a file for the editor: {error}"))?;
    drop(draft);
    // The variable may hold arguments, and shells are who splits them.
    let status = Command::new("sh")
        .arg("-c")
        .arg("exec $0 \"$1\"")
        .arg(editor)
        .arg(file)
        .status()
        .map_err(|error| format!("cannot start the editor `{shown}`: {error}"))?;
    if !status.success() {
        return Err(format!(
            "the editor `{shown}` failed ({status}); the text is unchanged"
        ));
    }
    fs::read_to_string(file).map_err(|error| format!("cannot read what the editor saved: {error}"))
}

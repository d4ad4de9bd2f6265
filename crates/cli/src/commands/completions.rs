//! `agent completions`: scripts that complete command lines, from the same definition the parser uses.

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::app::App;
use crate::arguments::Arguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::host;

/// Print shell completions
///
/// In bash, zsh and fish, sessions, models and modes are completed too.
/// For bash: `agent completions bash > ~/.local/share/bash-completion/completions/agent`
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Shell to generate completions for
    shell: Shell,
}

/// Words between the program's name and the word being typed go to `agent complete`, whose lines are
/// what could stand there; where there is none, the shell goes on with file names.
const BASH: &str = r#"_NAME_complete() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("${line%%$'\t'*}")
    done < <(NAME complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -o bashdefault -F _NAME_complete NAME
"#;

const ZSH: &str = r#"#compdef NAME
_NAME() {
    local -a values shown
    local line
    while IFS= read -r line; do
        values+=("${line%%$'\t'*}")
        shown+=("${line//$'\t'/  -- }")
    done < <(NAME complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#values} )); then
        compadd -l -d shown -a values
    else
        _files
    fi
}
if [ "$funcstack[1]" = "_NAME" ]; then
    _NAME "$@"
else
    compdef _NAME NAME
fi
"#;

const FISH: &str = r#"complete -c NAME -a '(NAME complete -- (commandline -opc)[2..] "$(commandline -ct)" 2>/dev/null)'
"#;

pub(crate) fn run(arguments: &CompletionsArgs, app: &App) -> Result<Exit, Failure> {
    let name = host::called_as();
    let script = match arguments.shell {
        Shell::Bash => BASH.replace("NAME", name).into_bytes(),
        Shell::Zsh => ZSH.replace("NAME", name).into_bytes(),
        Shell::Fish => FISH.replace("NAME", name).into_bytes(),
        // These know the commands and flags alone.
        other => {
            // The generator panics when it cannot write, so it writes to memory.
            let mut script = Vec::new();
            clap_complete::generate(other, &mut Arguments::command(), name, &mut script);
            script
        }
    };
    app.output
        .write_all(&script)
        .context("cannot print the completions")?;
    Ok(Exit::Done)
}

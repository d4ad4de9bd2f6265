//! A second, independent reading of scripts the gate let through: its own splitter and bash's own
//! parser. Used by the properties and by the fuzz targets `gate` and `shell`.

use std::process::Command;

use agent_tool_runtime::shell::prove::program_names;

/// A reading of its own: quotes, separators and words of a plain script, or `None`.
pub(crate) fn split(script: &str) -> Option<Vec<Vec<String>>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut characters = script.chars().peekable();
    let mut skip_target = false;
    // Whether the word has only characters that stand for themselves.
    let mut bare = true;
    while let Some(character) = characters.next() {
        let is_end = matches!(character, ' ' | '\t' | '\n' | ';' | '|' | '&' | '<' | '>');
        if is_end && let Some(finished) = word.take() {
            // The number in front of a redirect and the word behind it are not arguments.
            let is_descriptor = matches!(character, '<' | '>')
                && bare
                && finished.bytes().all(|b| b.is_ascii_digit());
            if skip_target {
                skip_target = false;
            } else if !is_descriptor {
                commands.last_mut()?.push(finished);
            }
        }
        bare = if is_end {
            true
        } else {
            bare && !matches!(character, '\'' | '"' | '\\')
        };
        match character {
            ' ' | '\t' => {}
            '&' if characters.peek() == Some(&'>') => {
                while characters.next_if(|next| *next == '>').is_some() {}
                skip_target = true;
            }
            '&' if characters.peek() != Some(&'&') => return None,
            '\n' | ';' | '|' | '&' => {
                characters.next_if(|next| matches!(next, '|' | '&'));
                commands.push(Vec::new());
            }
            '<' | '>' => {
                while characters
                    .next_if(|next| matches!(next, '<' | '>' | '&' | '|'))
                    .is_some()
                {}
                skip_target = true;
            }
            '#' if word.is_none() => while characters.next_if(|next| *next != '\n').is_some() {},
            '\'' => {
                let text = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '\'' => break,
                        other => text.push(other),
                    }
                }
            }
            // ANSI quotes: what an escape stands for does not matter here, where it ends does.
            '$' if characters.peek() == Some(&'\'') => {
                characters.next();
                let text = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '\'' => break,
                        '\\' => text.extend(characters.next()),
                        other => text.push(other),
                    }
                }
            }
            '"' => {
                let text = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '"' => break,
                        '\\' if characters.peek() == Some(&'\n') => drop(characters.next()),
                        '\\' if matches!(characters.peek(), Some('"' | '\\' | '$' | '`')) => {
                            text.extend(characters.next());
                        }
                        other => text.push(other),
                    }
                }
            }
            '\\' => match characters.next()? {
                '\n' => {}
                other => word.get_or_insert_default().push(other),
            },
            other => word.get_or_insert_default().push(other),
        }
    }
    if let Some(finished) = word
        && !skip_target
    {
        commands.last_mut()?.push(finished);
    }
    commands.retain(|words| !words.is_empty());
    Some(commands)
}

/// Wrappers and keywords that may stand in front of a program of the table.
const IN_FRONT: &[&str] = &[
    "!", "if", "then", "elif", "else", "fi", "for", "while", "do", "done", "set", "export", "time",
    "timeout", "nice", "env", "command", "builtin", "stdbuf", "ionice", "xargs", "cd",
];

/// Checks a script that was allowed by proof: bash can parse it, and every simple command the
/// splitter finds is of a program in the table, or of a wrapper around one.
pub(crate) fn confirm(script: &str) -> Result<(), String> {
    let checked = Command::new("bash")
        .args(["-n", "-c", script])
        .output()
        .map_err(|error| format!("bash cannot be asked: {error}"))?;
    if !checked.status.success() {
        return Err(format!("bash -n refuses what was allowed: {script:?}"));
    }
    // The splitter knows no documents; the words of such a script are compared with bash's elsewhere.
    if script.contains("<<") {
        return Ok(());
    }
    let names: Vec<&str> = program_names().collect();
    let commands = split(script).ok_or_else(|| format!("the splitter gives up on {script:?}"))?;
    for words in commands {
        let Some(name) = words
            .iter()
            .map(|word| word.trim_matches(['(', ')']))
            .find(|word| !word.contains('=') || word.starts_with('='))
        else {
            continue;
        };
        if !names.contains(&name) && !IN_FRONT.contains(&name) {
            return Err(format!("`{name}` was allowed in {script:?}"));
        }
    }
    Ok(())
}

//! Programs of jq and yq that look at their input and at nothing else.

/// Names that read other files, modules or the environment, run something, or evaluate text.
const FORBIDDEN: &[&str] = &[
    "import",
    "include",
    "modulemeta",
    "env",
    "strenv",
    "envsubst",
    "ENV",
];
/// yq has a family of operators for reading files, and may get more of these.
const FORBIDDEN_PARTS: &[&str] = &["load", "eval", "system", "exec"];

/// True if the program uses nothing but its input. Fields and texts may have any name.
pub(super) fn looks_at_its_input_only(program: &str) -> bool {
    let mut characters = program.chars().peekable();
    // Open parentheses in the code at hand, and in the code around each open text.
    let mut depth = 0usize;
    let mut around = Vec::new();
    let mut in_text = false;
    let mut previous = ' ';
    while let Some(character) = characters.next() {
        if in_text {
            match character {
                '"' => in_text = false,
                '\\' if characters.next() == Some('(') => {
                    around.push(std::mem::take(&mut depth));
                    in_text = false;
                }
                _ => {}
            }
            previous = ' ';
            continue;
        }
        match character {
            '"' => in_text = true,
            '#' => while characters.next_if(|next| *next != '\n').is_some() {},
            '(' => depth += 1,
            ')' => match (depth.checked_sub(1), around.pop()) {
                (Some(outer), popped) => {
                    depth = outer;
                    around.extend(popped);
                }
                (None, Some(outer)) => {
                    depth = outer;
                    in_text = true;
                }
                (None, None) => return false,
            },
            'a'..='z' | 'A'..='Z' | '_' => {
                let mut name = String::from(character);
                while let Some(next) =
                    characters.next_if(|next| next.is_ascii_alphanumeric() || *next == '_')
                {
                    name.push(next);
                }
                let is_field = previous == '.';
                if !is_field
                    && (FORBIDDEN.contains(&name.as_str())
                        || FORBIDDEN_PARTS.iter().any(|part| name.contains(part)))
                {
                    return false;
                }
            }
            _ => {}
        }
        previous = character;
    }
    !in_text && around.is_empty()
}

#[cfg(test)]
mod tests {
    use super::looks_at_its_input_only;

    #[test]
    fn fields_and_texts_may_have_any_name() {
        for program in [
            ".",
            ".scripts | keys",
            ".compilerOptions.include",
            "has(\"include\")",
            ".env",
            ".a.env.load",
            ".[] | select(.x == \"env\") | \"\\(.key)@\\(.value)\"",
            "map(.name) | length",
            "# env\n.a",
            "\"\\(.a | (.b))\"",
        ] {
            assert!(looks_at_its_input_only(program), "{program}");
        }
        for program in [
            "env",
            "$ENV.HOME",
            "import \"x\" as x; .",
            "include \"x\"; .",
            "\"\\(env)\"",
            "\"a\\((env))b\"",
            "load(\".env\")",
            "load_str(\"x\")",
            ".a = strload(\"x\")",
            "eval(\"lo\" + \"ad(1)\")",
            "env(HOME)",
            "strenv(X)",
            "\"$X\" | envsubst",
            ". env",
            "\"open",
            ")",
        ] {
            assert!(!looks_at_its_input_only(program), "{program}");
        }
    }
}

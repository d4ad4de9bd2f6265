//! The last resort of detection: the text of a script that could not be parsed.

/// The script with quotes, backslashes and line continuations removed, cut into words at blanks and into
/// segments at everything that could separate commands. Never fails, linear, and only ever finds more
/// "commands" than there are.
pub fn segments(script: &str) -> Vec<Vec<String>> {
    let mut segments = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut characters = script.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\'' | '"' => {}
            '\\' => {
                if characters.peek() == Some(&'\n') {
                    characters.next();
                }
            }
            ';' | '&' | '|' | '\n' | '(' | ')' | '`' | '{' | '}' | '<' | '>' => {
                push_word(&mut words, &mut word);
                if !words.is_empty() {
                    segments.push(std::mem::take(&mut words));
                }
            }
            character if character.is_whitespace() => push_word(&mut words, &mut word),
            character if super::is_deceptive(character) => {}
            other => word.push(other),
        }
    }
    push_word(&mut words, &mut word);
    if !words.is_empty() {
        segments.push(words);
    }
    segments
}

fn push_word(words: &mut Vec<String>, word: &mut String) {
    if !word.is_empty() {
        words.push(std::mem::take(word));
    }
}

#[cfg(test)]
mod tests {
    use super::segments;

    #[test]
    fn the_words_survive_quoting_and_broken_syntax() {
        assert_eq!(
            segments("echo 'open\nte\"rra\"fo\\\nrm  ap\\ply | x"),
            vec![vec!["echo", "open"], vec!["terraform", "apply"], vec!["x"]]
        );
    }
}

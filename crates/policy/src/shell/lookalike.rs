//! Letters and signs that a person takes for others.
//!
//! `сat` with a Cyrillic с is another program than `cat`, and `a；b` is one word. Text in any language is
//! fine: what is looked for is a sign of one alphabet where it can only be meant to be read as another.

/// The first character that looks like a plain one and is none. One pass.
pub(super) fn look_alike(script: &str) -> Option<char> {
    if script.is_ascii() {
        return None;
    }
    let mut before = None;
    let mut rest = script.chars();
    // The run of letters at hand: the first foreign one, whether it is alone, and plain ones.
    let mut foreign = None;
    let mut letters = 0usize;
    let mut has_plain = false;
    while let Some(character) = rest.next() {
        let after = rest.clone().next();
        if character.is_alphabetic() {
            letters += 1;
            has_plain |= character.is_ascii();
            if is_look_alike_letter(character) {
                foreign.get_or_insert(character);
            }
        }
        let run_ends = !after.is_some_and(char::is_alphabetic);
        if run_ends {
            if let Some(found) = foreign.filter(|_| has_plain || letters == 1) {
                return Some(found);
            }
            (foreign, letters, has_plain) = (None, 0, false);
        }
        if deceives(character, before, after) {
            return Some(character);
        }
        before = Some(character);
    }
    None
}

fn deceives(character: char, before: Option<char>, after: Option<char>) -> bool {
    match character {
        character if character.is_ascii() => false,
        // Plain letters and digits in another shape, never needed in a command.
        '\u{FF10}'..='\u{FF19}'
        | '\u{FF21}'..='\u{FF3A}'
        | '\u{FF41}'..='\u{FF5A}'
        | '\u{1D400}'..='\u{1D7FF}'
        | '\u{2160}'..='\u{217F}' => true,
        // Signs of the shell in another shape, unless they stand between letters of their own kind.
        '\u{FF01}'..='\u{FF0F}'
        | '\u{FF1A}'..='\u{FF20}'
        | '\u{FF3B}'..='\u{FF40}'
        | '\u{FF5B}'..='\u{FF5E}'
        | '\u{037E}'
        | '\u{2044}'
        | '\u{2215}'
        | '\u{2223}'
        | '\u{29F8}'
        | '\u{01C0}'
        | '\u{A789}' => is_plain(before) || is_plain(after),
        // A dash that would begin a flag.
        '\u{2010}'..='\u{2015}' | '\u{2212}' => {
            before.is_none_or(char::is_whitespace)
                && after.is_some_and(|after| after.is_ascii_alphabetic())
        }
        _ => false,
    }
}

fn is_plain(character: Option<char>) -> bool {
    character.is_some_and(|character| character.is_ascii_graphic())
}

/// Letters of other alphabets with the shape of a Latin one.
fn is_look_alike_letter(character: char) -> bool {
    matches!(character,
        '\u{0400}'..='\u{052F}' // Cyrillic
        | '\u{0531}'..='\u{0587}' // Armenian
        | '\u{13A0}'..='\u{13F4}' // Cherokee
        | '\u{A4D0}'..='\u{A4F7}' // Lisu
        | '\u{0131}' | '\u{0251}' | '\u{0261}' | '\u{017F}' // dotless i, script a and g, long s
        | 'Α' | 'Β' | 'Ε' | 'Ζ' | 'Η' | 'Ι' | 'Κ' | 'Μ' | 'Ν' | 'Ο' | 'Ρ' | 'Τ' | 'Υ' | 'Χ'
        | 'α' | 'ι' | 'κ' | 'ν' | 'ο' | 'ρ' | 'υ' | 'χ'
    )
}

#[cfg(test)]
mod tests {
    use super::look_alike;

    #[test]
    fn text_in_any_language_is_no_disguise() {
        for script in [
            "ls -la",
            "grep -n 'über' docs/über.md",
            "rg 'ошибка' src",
            "rg 'μs|λx|Δt' src",
            "rg '你好，世界' docs",
            "git log --grep='naïve café'",
            "echo 'a — b'",
            "rg '→'",
        ] {
            assert_eq!(look_alike(script), None, "{script}");
        }
    }

    #[test]
    fn another_alphabet_inside_a_word_is() {
        for (script, character) in [
            ("сat a", 'с'),
            ("cat .еnv", 'е'),
            ("gіt status", 'і'),
            ("lѕ", 'ѕ'),
            ("ｌｓ", 'ｌ'),
            ("ls；rm x", '；'),
            ("ⅼs", 'ⅼ'),
            ("ls –la", '–'),
            ("cat src∕a.rs", '∕'),
            ("head -с 5 a", 'с'),
            ("𝗅𝗌", '𝗅'),
            ("cat Αbc", 'Α'),
        ] {
            assert_eq!(look_alike(script), Some(character), "{script}");
        }
    }
}

//! One word of the small language.

use super::reader::{Reader, ends_word};
use super::{Outside, Part, Text};
use crate::shell::is_deceptive;

/// Signs before which a dollar in double quotes is just a dollar.
const AFTER_A_LONE_DOLLAR: &str = "\" |)\\/.,:;%&^+=~]}<>\n";

impl Reader<'_> {
    /// A word, perhaps empty where nothing of it stands here.
    pub(super) fn word(&mut self) -> Result<Text, Outside> {
        let start = self.at;
        let mut parts: Vec<Part> = Vec::new();
        while let Some(next) = self.peek() {
            if ends_word(next) {
                break;
            }
            match next {
                '\'' => self.single_quotes(&mut parts)?,
                '"' => self.double_quotes(&mut parts)?,
                '\\' => {
                    let escaped = self.rest().chars().nth(1);
                    match escaped {
                        None | Some('\n') => {
                            return Err(self.outside("a backslash at the end of a line"));
                        }
                        Some(escaped) => {
                            self.skip(1 + escaped.len_utf8());
                            push_quoted(&mut parts, escaped);
                        }
                    }
                }
                '$' => self.dollar(&mut parts, false)?,
                '`' => return Err(self.outside("backticks")),
                '*' => {
                    self.skip(1);
                    parts.push(Part::Star);
                }
                '?' => {
                    self.skip(1);
                    parts.push(Part::Question);
                }
                '[' => {
                    let is_program =
                        self.at == start && self.rest().chars().nth(1).is_none_or(ends_word);
                    if !is_program {
                        return Err(self.outside("a pattern or subscript in brackets"));
                    }
                    self.skip(1);
                    push_plain(&mut parts, '[');
                }
                '~' => self.tilde(start, &mut parts)?,
                other if other.is_control() || is_deceptive(other) => {
                    return Err(self.outside("an invisible character"));
                }
                other => {
                    self.skip(other.len_utf8());
                    push_plain(&mut parts, other);
                }
            }
        }
        let source = self.text.get(start..self.at).unwrap_or_default();
        self.check_braces(start, source, &parts)?;
        Ok(Text {
            source: source.to_owned(),
            parts,
        })
    }

    /// Braces without quotes stand for themselves only as one pair without a comma or two dots in it.
    fn check_braces(&self, start: usize, source: &str, parts: &[Part]) -> Result<(), Outside> {
        let has_open = parts
            .iter()
            .any(|part| matches!(part, Part::Plain(text) if text.contains('{')));
        if !has_open {
            return Ok(());
        }
        let literal = source
            .split_once('{')
            .and_then(|(_, rest)| rest.split_once('}'))
            .is_some_and(|(inside, behind)| {
                inside
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
                    && !behind.contains(['{', '}'])
            });
        if literal {
            return Ok(());
        }
        Err(Outside {
            construct: "an unquoted `{`",
            at: start,
        })
    }

    fn tilde(&mut self, start: usize, parts: &mut Vec<Part>) -> Result<(), Outside> {
        let next = self.rest().chars().nth(1);
        if self.at == start || parts.is_empty() {
            if !next.is_none_or(|next| next == '/' || ends_word(next)) {
                return Err(self.outside("another user's home directory"));
            }
            self.skip(1);
            parts.push(Part::Home);
            return Ok(());
        }
        // `a=~` and `a:~` may be expanded.
        let before = self
            .text
            .get(..self.at)
            .and_then(|text| text.chars().last());
        if before.is_some_and(|c| matches!(c, '=' | ':' | '\'' | '"' | '\\' | '}')) {
            return Err(self.outside("a tilde inside a word"));
        }
        self.skip(1);
        push_plain(parts, '~');
        Ok(())
    }

    fn single_quotes(&mut self, parts: &mut Vec<Part>) -> Result<(), Outside> {
        let inside = self.rest().get(1..).unwrap_or_default();
        let Some(length) = inside.find('\'') else {
            return Err(self.outside("an unclosed quote"));
        };
        let text = inside.get(..length).unwrap_or_default().to_owned();
        self.check_newlines(&text)?;
        self.skip(length + 2);
        push_text(parts, &text);
        Ok(())
    }

    fn check_newlines(&self, quoted: &str) -> Result<(), Outside> {
        if quoted.contains('\n') {
            self.no_pending()?;
        }
        Ok(())
    }

    fn double_quotes(&mut self, parts: &mut Vec<Part>) -> Result<(), Outside> {
        self.skip(1);
        push_text(parts, "");
        loop {
            let Some(next) = self.peek() else {
                return Err(self.outside("an unclosed quote"));
            };
            match next {
                '"' => {
                    self.skip(1);
                    return Ok(());
                }
                '\\' => match self.rest().chars().nth(1) {
                    None | Some('\n') => {
                        return Err(self.outside("a backslash at the end of a line"));
                    }
                    Some(escaped @ ('$' | '`' | '"' | '\\')) => {
                        self.skip(2);
                        push_quoted(parts, escaped);
                    }
                    Some(_) => {
                        self.skip(1);
                        push_quoted(parts, '\\');
                    }
                },
                '`' => return Err(self.outside("backticks")),
                '$' => self.dollar(parts, true)?,
                other => {
                    if other == '\n' {
                        self.no_pending()?;
                    }
                    self.skip(other.len_utf8());
                    push_quoted(parts, other);
                }
            }
        }
    }

    fn dollar(&mut self, parts: &mut Vec<Part>, quoted: bool) -> Result<(), Outside> {
        let next = self.rest().chars().nth(1);
        match next {
            Some('(') if self.looking_at("$((") => Err(self.outside("arithmetic")),
            Some('(') => {
                self.no_pending()?;
                self.skip(2);
                let documents = self.documents.len();
                self.outputs += 1;
                let list = self.deeper(|reader| reader.list(&[], true))?;
                self.close()?;
                self.outputs -= 1;
                // bash writes the text of a substitution anew, and not always the same with a document in it.
                let has_document = self.documents.len() > documents;
                if has_document && !(self.outputs == 0 && list.document().is_some()) {
                    return Err(self.outside("a here-document inside a substitution"));
                }
                parts.push(Part::Output { list, quoted });
                Ok(())
            }
            Some('{') => {
                let start = self.at;
                self.skip(2);
                let name = self.name();
                if name.is_empty() || self.peek() != Some('}') {
                    self.at = start;
                    return Err(self.outside("an expansion with an operator"));
                }
                self.skip(1);
                parts.push(Part::Variable { name, quoted });
                Ok(())
            }
            Some('?') => {
                self.skip(2);
                parts.push(Part::ExitCode);
                Ok(())
            }
            Some(first) if first.is_ascii_alphabetic() || first == '_' => {
                self.skip(1);
                let name = self.name();
                parts.push(Part::Variable { name, quoted });
                Ok(())
            }
            Some('\'') if !quoted => Err(self.outside("`$'…'`")),
            Some('"') if !quoted => Err(self.outside("`$\"…\"`")),
            Some(other) if quoted && AFTER_A_LONE_DOLLAR.contains(other) => {
                self.skip(1);
                push_quoted(parts, '$');
                Ok(())
            }
            None if !quoted => {
                self.skip(1);
                push_quoted(parts, '$');
                Ok(())
            }
            Some(other) if !quoted && ends_word(other) => {
                self.skip(1);
                push_quoted(parts, '$');
                Ok(())
            }
            _ => Err(self.outside("an unsupported expansion")),
        }
    }
}

fn push_plain(parts: &mut Vec<Part>, character: char) {
    match parts.last_mut() {
        Some(Part::Plain(text)) => text.push(character),
        _ => parts.push(Part::Plain(character.to_string())),
    }
}

fn push_quoted(parts: &mut Vec<Part>, character: char) {
    match parts.last_mut() {
        Some(Part::Quoted(text)) => text.push(character),
        _ => parts.push(Part::Quoted(character.to_string())),
    }
}

fn push_text(parts: &mut Vec<Part>, characters: &str) {
    match parts.last_mut() {
        Some(Part::Quoted(text)) => text.push_str(characters),
        _ => parts.push(Part::Quoted(characters.to_owned())),
    }
}

//! From text to a script of the small language, or to the first thing that is not in it.

use super::{
    Chain, Kind, Link, List, Node, Outside, Pipeline, Reading, Redirection, Script, Target,
};

/// Deeper structures are not read.
const MAX_DEPTH: usize = 8;

/// Words that mean something where a command begins.
const RESERVED: &[&str] = &[
    "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for",
    "select", "function", "coproc", "time", "in", "!", "{", "}", "[[", "]]",
];

/// Reads a whole script.
pub fn read(script: &str) -> Result<Reading, Outside> {
    let mut reader = Reader {
        text: script,
        at: 0,
        depth: 0,
        pending: Vec::new(),
        documents: Vec::new(),
        outputs: 0,
    };
    let list = reader.list(&[], false)?;
    if reader.peek().is_some() {
        return Err(reader.outside("an unexpected character"));
    }
    if !reader.pending.is_empty() {
        return Err(reader.outside("an unterminated here-document"));
    }
    Ok(Reading {
        script: Script(list),
        documents: reader.documents,
    })
}

pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) depth: usize,
    /// Documents whose bodies begin behind the next newline.
    pub(super) pending: Vec<Pending>,
    pub(super) documents: Vec<String>,
    /// Substitutions around the place at hand.
    pub(super) outputs: usize,
}

pub(super) struct Pending {
    index: usize,
    name: String,
    quoted: bool,
}

impl Reader<'_> {
    pub(super) fn outside(&self, construct: &'static str) -> Outside {
        Outside {
            construct,
            at: self.at,
        }
    }

    pub(super) fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn looking_at(&self, text: &str) -> bool {
        self.rest().starts_with(text)
    }

    pub(super) fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    pub(super) fn blanks(&mut self) {
        while let Some(' ' | '\t') = self.peek() {
            self.at += 1;
        }
    }

    /// A comment, where a word could begin.
    fn comment(&mut self) {
        if self.peek() == Some('#') {
            let length = self.rest().find('\n').unwrap_or(self.rest().len());
            self.skip(length);
        }
    }

    /// Blanks, comments and newlines.
    fn lines(&mut self) -> Result<(), Outside> {
        loop {
            self.blanks();
            self.comment();
            if self.peek() != Some('\n') {
                return Ok(());
            }
            self.newline()?;
        }
    }

    /// A newline, behind which the documents begin that were named before it.
    fn newline(&mut self) -> Result<(), Outside> {
        self.skip(1);
        for pending in std::mem::take(&mut self.pending) {
            let mut body = String::new();
            loop {
                if self.rest().is_empty() {
                    return Err(self.outside("an unterminated here-document"));
                }
                let rest = self.rest();
                let length = rest.find('\n').unwrap_or(rest.len());
                let line = rest.get(..length).unwrap_or_default().to_owned();
                let has_end = length < rest.len();
                if line == pending.name {
                    self.skip(length);
                    // The newline behind the name belongs to the document.
                    if has_end {
                        self.skip(1);
                    }
                    break;
                }
                // In a substitution bash takes `E)` for the end of the document and of the substitution.
                if self.outputs > 0 && line.starts_with(&pending.name) {
                    return Err(self.outside("a here-document whose end is unclear"));
                }
                if !pending.quoted && line.contains(['$', '`', '\\']) {
                    return Err(self.outside("an expansion in a here-document"));
                }
                if !has_end {
                    return Err(self.outside("an unterminated here-document"));
                }
                body.push_str(&line);
                body.push('\n');
                self.skip(length + 1);
            }
            if let Some(document) = self.documents.get_mut(pending.index) {
                *document = body;
            }
        }
        Ok(())
    }

    /// The reserved word that stands here as a whole word.
    fn reserved(&self) -> Option<&'static str> {
        RESERVED.iter().copied().find(|word| {
            self.rest()
                .strip_prefix(word)
                .is_some_and(|rest| rest.chars().next().is_none_or(ends_word))
        })
    }

    fn expect(&mut self, word: &str) -> Result<(), Outside> {
        if self.reserved() == Some(word) {
            self.skip(word.len());
            Ok(())
        } else {
            Err(self.outside("an unfinished compound command"))
        }
    }

    /// Deeper by one level.
    pub(super) fn deeper<T>(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<T, Outside>,
    ) -> Result<T, Outside> {
        self.depth += 1;
        let result = if self.depth > MAX_DEPTH {
            Err(self.outside("too many nested levels"))
        } else {
            body(self)
        };
        self.depth -= 1;
        result
    }

    /// Chains up to one of the reserved words in `ends`, to `)` if `closes`, or to the end.
    pub(super) fn list(&mut self, ends: &[&str], closes: bool) -> Result<List, Outside> {
        let mut chains = Vec::new();
        loop {
            self.lines()?;
            let is_end = match self.peek() {
                None => true,
                Some(')') => closes,
                Some(_) => self.reserved().is_some_and(|word| ends.contains(&word)),
            };
            if is_end {
                break;
            }
            chains.push(self.chain()?);
            self.blanks();
            self.comment();
            match self.peek() {
                // One sign to bash, also before a redirection: `;&>`.
                Some(';') if self.looking_at(";;") || self.looking_at(";&") => {
                    return Err(self.outside("`;;` or `;&`"));
                }
                Some(';') => self.skip(1),
                Some('\n') | None => {}
                Some(')') if closes => {}
                Some('&') => return Err(self.outside("a background command")),
                Some(_) => return Err(self.outside("an unexpected character")),
            }
        }
        if chains.is_empty() {
            return Err(self.outside("a missing command"));
        }
        Ok(List(chains))
    }

    fn chain(&mut self) -> Result<Chain, Outside> {
        let first = self.pipeline()?;
        let mut rest = Vec::new();
        loop {
            self.blanks();
            let link = if self.looking_at("&&") {
                Link::And
            } else if self.looking_at("||") {
                Link::Or
            } else {
                return Ok(Chain { first, rest });
            };
            self.skip(2);
            self.lines()?;
            rest.push((link, self.pipeline()?));
        }
    }

    fn pipeline(&mut self) -> Result<Pipeline, Outside> {
        if self.reserved() == Some("time") {
            self.skip("time".len());
            self.blanks();
            if self
                .peek()
                .is_none_or(|next| next == '-' || ends_word(next))
            {
                return Err(self.outside("`time` with flags or without a command"));
            }
        }
        let negated = self.reserved() == Some("!");
        if negated {
            self.skip(1);
            self.blanks();
        }
        let mut nodes = vec![self.node()?];
        loop {
            self.blanks();
            if !self.looking_at("|") || self.looking_at("||") {
                return Ok(Pipeline { negated, nodes });
            }
            if self.looking_at("|&") {
                return Err(self.outside("`|&`"));
            }
            self.skip(1);
            self.lines()?;
            nodes.push(self.node()?);
        }
    }

    fn node(&mut self) -> Result<Node, Outside> {
        let kind = match self.reserved() {
            Some("for") => self.deeper(Self::for_loop)?,
            Some("while") => self.deeper(Self::while_loop)?,
            Some("if") => self.deeper(Self::if_clause)?,
            Some(_) => return Err(self.outside("a reserved word of the shell")),
            None if self.looking_at("((") => return Err(self.outside("arithmetic")),
            None if self.peek() == Some('(') => self.deeper(Self::subshell)?,
            None => return self.simple(),
        };
        let mut redirections = Vec::new();
        loop {
            self.blanks();
            match self.redirection()? {
                Some(redirection) => redirections.push(redirection),
                None => return Ok(Node { kind, redirections }),
            }
        }
    }

    fn subshell(&mut self) -> Result<Kind, Outside> {
        self.no_pending()?;
        self.skip(1);
        let list = self.list(&[], true)?;
        self.close()?;
        Ok(Kind::Subshell(list))
    }

    /// The `)` of a subshell or substitution.
    pub(super) fn close(&mut self) -> Result<(), Outside> {
        self.no_pending()?;
        if self.peek() != Some(')') {
            return Err(self.outside("an unclosed parenthesis"));
        }
        self.skip(1);
        Ok(())
    }

    /// A document whose body has not begun may not reach over another construct.
    pub(super) fn no_pending(&self) -> Result<(), Outside> {
        if self.pending.is_empty() {
            Ok(())
        } else {
            Err(self.outside("a here-document inside another construct"))
        }
    }

    fn for_loop(&mut self) -> Result<Kind, Outside> {
        self.expect("for")?;
        self.blanks();
        let name = self.name();
        if name.is_empty() {
            return Err(self.outside("a loop over arithmetic"));
        }
        self.blanks();
        self.expect("in")?;
        let mut values = Vec::new();
        loop {
            self.blanks();
            match self.peek() {
                Some(';' | '\n') => break,
                Some(next) if !ends_word(next) && next != '#' => values.push(self.word()?),
                _ => return Err(self.outside("an unfinished loop")),
            }
        }
        if self.peek() == Some(';') {
            self.skip(1);
        }
        self.lines()?;
        self.expect("do")?;
        let body = self.list(&["done"], false)?;
        self.expect("done")?;
        Ok(Kind::For { name, values, body })
    }

    fn while_loop(&mut self) -> Result<Kind, Outside> {
        self.expect("while")?;
        let condition = self.list(&["do"], false)?;
        self.expect("do")?;
        let body = self.list(&["done"], false)?;
        self.expect("done")?;
        Ok(Kind::While { condition, body })
    }

    fn if_clause(&mut self) -> Result<Kind, Outside> {
        self.expect("if")?;
        let mut branches = Vec::new();
        loop {
            let condition = self.list(&["then"], false)?;
            self.expect("then")?;
            let body = self.list(&["elif", "else", "fi"], false)?;
            branches.push((condition, body));
            if self.reserved() != Some("elif") {
                break;
            }
            self.expect("elif")?;
        }
        let otherwise = if self.reserved() == Some("else") {
            self.expect("else")?;
            Some(self.list(&["fi"], false)?)
        } else {
            None
        };
        self.expect("fi")?;
        Ok(Kind::If {
            branches,
            otherwise,
        })
    }

    fn simple(&mut self) -> Result<Node, Outside> {
        let mut assignments = Vec::new();
        let mut words = Vec::new();
        let mut redirections = Vec::new();
        loop {
            self.blanks();
            if let Some(redirection) = self.redirection()? {
                redirections.push(redirection);
                continue;
            }
            match self.peek() {
                None | Some(';' | '\n' | '|' | '&' | ')') => break,
                Some('(') => return Err(self.outside("a parenthesis after a word")),
                Some('#') => break,
                Some(_) => {}
            }
            if words.is_empty()
                && let Some(assignment) = self.assignment()?
            {
                assignments.push(assignment);
                continue;
            }
            words.push(self.word_alone()?);
        }
        if assignments.is_empty() && words.is_empty() {
            return Err(self.outside("a missing command"));
        }
        Ok(Node {
            kind: Kind::Simple { assignments, words },
            redirections,
        })
    }

    /// A word that is not the descriptor of a redirection behind it: `{fd}>file` opens one and names it, and the `2` of
    /// `<2>file` is one.
    fn word_alone(&mut self) -> Result<super::Text, Outside> {
        let word = self.word()?;
        let is_descriptor =
            word.source.starts_with('{') || word.source.bytes().all(|byte| byte.is_ascii_digit());
        if is_descriptor && matches!(self.peek(), Some('<' | '>')) {
            return Err(self.outside("a named file descriptor"));
        }
        Ok(word)
    }

    fn assignment(&mut self) -> Result<Option<(String, super::Text)>, Outside> {
        let start = self.at;
        let name = self.name();
        if name.is_empty() || !self.looking_at("=") {
            let is_other = !name.is_empty() && (self.looking_at("[") || self.looking_at("+="));
            if is_other {
                return Err(self.outside("an assignment with a subscript or `+=`"));
            }
            self.at = start;
            return Ok(None);
        }
        self.skip(1);
        let value = self.word()?;
        Ok(Some((name, value)))
    }

    /// A name of a variable, perhaps empty.
    pub(super) fn name(&mut self) -> String {
        let rest = self.rest();
        let length = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        let name = rest.get(..length).unwrap_or_default();
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            return String::new();
        }
        let name = name.to_owned();
        self.skip(length);
        name
    }

    fn redirection(&mut self) -> Result<Option<Redirection>, Outside> {
        let rest = self.rest();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let sign = rest.get(digits..).unwrap_or_default();
        let both = digits == 0 && rest.starts_with("&>");
        if !both && !sign.starts_with(['<', '>']) {
            return Ok(None);
        }
        let number = rest.get(..digits).unwrap_or_default();
        let is_output = matches!(number, "" | "1" | "2");
        let target = if both {
            let length = if rest.starts_with("&>>") { 3 } else { 2 };
            self.skip(length);
            Target::Write(self.target()?)
        } else if sign.starts_with(">&") && is_output {
            let next = sign.get(2..).unwrap_or_default();
            let to = next.bytes().next().filter(|to| matches!(to, b'1' | b'2'));
            let ends = next.chars().nth(1).is_none_or(ends_word);
            let Some(to) = to.filter(|_| ends) else {
                return Err(self.outside("a redirection to another descriptor"));
            };
            self.skip(digits + 3);
            Target::Duplicate(to - b'0')
        } else if sign.starts_with(">>") && is_output {
            self.skip(digits + 2);
            Target::Write(self.target()?)
        } else if sign.starts_with('>')
            && is_output
            && !sign.starts_with(">|")
            && !sign.starts_with(">(")
        {
            self.skip(digits + 1);
            Target::Write(self.target()?)
        } else if sign.starts_with("<<<") && number.is_empty() {
            self.skip(3);
            Target::HereString(self.target()?)
        } else if sign.starts_with("<<-") {
            return Err(self.outside("a here-document with `<<-`"));
        } else if sign.starts_with("<<") && number.is_empty() {
            self.skip(2);
            Target::Document(self.document()?)
        } else if sign.starts_with('<')
            && number.is_empty()
            && !["<&", "<>", "<(", "<<"]
                .iter()
                .any(|other| sign.starts_with(other))
        {
            self.skip(1);
            Target::Read(self.target()?)
        } else {
            return Err(self.outside("an unsupported redirection"));
        };
        Ok(Some(Redirection { target }))
    }

    fn target(&mut self) -> Result<super::Text, Outside> {
        self.blanks();
        match self.peek() {
            Some(next) if !ends_word(next) && next != '#' => self.word_alone(),
            _ => Err(self.outside("a redirection without a target")),
        }
    }

    /// The name of a here-document, whose body comes later.
    fn document(&mut self) -> Result<usize, Outside> {
        self.blanks();
        let quote = self.peek().filter(|c| matches!(c, '\'' | '"'));
        if quote.is_some() {
            self.skip(1);
        }
        let name = self.name();
        if name.is_empty() {
            return Err(self.outside("a here-document with an unusual name"));
        }
        if let Some(quote) = quote {
            if self.peek() != Some(quote) {
                return Err(self.outside("a here-document with an unusual name"));
            }
            self.skip(1);
        }
        if !self.peek().is_none_or(ends_word) {
            return Err(self.outside("a here-document with an unusual name"));
        }
        let index = self.documents.len();
        self.documents.push(String::new());
        self.pending.push(Pending {
            index,
            name,
            quoted: quote.is_some(),
        });
        Ok(index)
    }
}

/// Signs behind which a word is over.
pub(super) fn ends_word(character: char) -> bool {
    matches!(
        character,
        ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')'
    )
}

//! awk programs that print and compute, and nothing else: no file but the operands, nothing run.
//!
//! A small lexer, because where a string or a regular expression begins decides what the rest means.
//! What awks read differently is refused.

use super::sed::brackets_are_closed;

/// Functions without effects.
const FUNCTIONS: &[&str] = &[
    "length", "substr", "toupper", "tolower", "index", "int", "sub", "gsub", "gensub", "split",
    "sprintf", "match", "sqrt", "exp", "log", "sin", "cos", "atan2", "rand", "srand", "strftime",
    "systime", "mktime", "asort", "asorti", "and", "or", "xor", "lshift", "rshift", "strtonum",
];

/// Words after which an operand may begin, and which a parenthesis may follow.
const KEYWORDS: &[&str] = &[
    "print", "printf", "if", "while", "for", "do", "else", "in", "delete", "exit", "next",
    "nextfile", "break", "continue", "case", "switch", "default",
];

/// Names that reach a file, a program, the environment or other code.
const FORBIDDEN: &[&str] = &[
    "system", "getline", "close", "fflush", "function", "func", "return", "ARGV", "ARGC", "ARGIND",
    "ENVIRON", "PROCINFO", "SYMTAB", "FUNCTAB", "include", "load", "eval",
];

/// Preceding token, as far as it decides what a slash or a sign means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// An operand is expected, so a slash begins a regular expression.
    Operator,
    /// A value has ended, so a slash divides.
    Value,
    /// Awks disagree on a slash here.
    Unsure,
}

struct Lexer<'a> {
    rest: &'a str,
    before: Before,
    braces: usize,
    /// Open parentheses, and whether each one holds the condition of a statement.
    parentheses: Vec<bool>,
    /// The statement began with `print` or `printf`, so `>` would open a file.
    prints: bool,
    /// A parenthesis now would hold the condition of a statement.
    condition_follows: bool,
}

/// True if the program only prints.
pub(in crate::shell) fn only_prints(program: &str) -> bool {
    let mut lexer = Lexer {
        rest: program,
        before: Before::Operator,
        braces: 0,
        parentheses: Vec::new(),
        prints: false,
        condition_follows: false,
    };
    while !lexer.rest.is_empty() {
        if lexer.step().is_none() {
            return false;
        }
    }
    lexer.braces == 0 && lexer.parentheses.is_empty() && !program.trim().is_empty()
}

impl<'a> Lexer<'a> {
    /// Takes one token; `None` refuses the program.
    fn step(&mut self) -> Option<()> {
        let first = self.rest.chars().next()?;
        match first {
            ' ' | '\t' => self.skip(1),
            '\\' if self.rest.starts_with("\\\n") => self.skip(2),
            '#' => self.skip(self.rest.find('\n').unwrap_or(self.rest.len())),
            '\n' | ';' => {
                self.skip(1)?;
                self.statement_ends()
            }
            '"' => {
                let end = closing(self.rest.get(1..)?, '"')?;
                self.skip(end + 2)?;
                self.value()
            }
            '/' => self.slash(),
            '{' => {
                self.skip(1)?;
                self.braces += 1;
                self.statement_ends()
            }
            '}' => {
                self.skip(1)?;
                self.braces = self.braces.checked_sub(1)?;
                self.statement_ends()
            }
            '(' => {
                self.skip(1)?;
                self.parentheses
                    .push(std::mem::take(&mut self.condition_follows));
                self.before = Before::Operator;
                Some(())
            }
            ')' => {
                self.skip(1)?;
                let was_condition = self.parentheses.pop()?;
                self.before = if was_condition {
                    Before::Operator
                } else {
                    Before::Value
                };
                Some(())
            }
            ']' => {
                self.skip(1)?;
                self.value()
            }
            '0'..='9' | '.' => {
                let is_number =
                    |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | 'x' | 'X');
                self.take(is_number);
                self.value()
            }
            'a'..='z' | 'A'..='Z' | '_' => self.name(),
            _ => self.operator(first),
        }
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.rest = self.rest.get(bytes..)?;
        Some(())
    }

    fn take(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn value(&mut self) -> Option<()> {
        self.before = Before::Value;
        self.condition_follows = false;
        Some(())
    }

    fn statement_ends(&mut self) -> Option<()> {
        // Inside parentheses a semicolon only parts the three expressions of `for`.
        if self.parentheses.is_empty() {
            self.prints = false;
        }
        self.condition_follows = false;
        self.before = Before::Operator;
        Some(())
    }

    fn slash(&mut self) -> Option<()> {
        match self.before {
            Before::Unsure => None,
            Before::Value => {
                self.skip(1)?;
                self.before = Before::Operator;
                Some(())
            }
            Before::Operator => {
                let body = self.rest.get(1..)?;
                let end = closing(body, '/')?;
                if !brackets_are_closed(body.get(..end)?) {
                    return None;
                }
                self.skip(end + 2)?;
                self.value()
            }
        }
    }

    fn name(&mut self) -> Option<()> {
        let name = self.take(|c| c.is_ascii_alphanumeric() || c == '_');
        if FORBIDDEN.contains(&name) {
            return None;
        }
        let is_keyword = KEYWORDS.contains(&name);
        let is_call = self.rest.trim_start_matches(' ').starts_with('(');
        // A variable before a parenthesis is a concatenation; with nothing between, a call.
        if self.rest.starts_with('(') && !is_keyword && !FUNCTIONS.contains(&name) {
            return None;
        }
        // In parentheses, as of `for`, a `>` behind it may be a file to one awk and none to another.
        let prints = matches!(name, "print" | "printf");
        if prints && !self.parentheses.is_empty() {
            return None;
        }
        self.prints |= prints;
        self.condition_follows = matches!(name, "if" | "while" | "for" | "switch");
        self.before = if is_keyword {
            Before::Operator
        } else if name == "length" && !is_call {
            Before::Unsure
        } else {
            Before::Value
        };
        Some(())
    }

    fn operator(&mut self, first: char) -> Option<()> {
        const TWO: &[&str] = &[
            "&&", "||", "==", "!=", "<=", ">=", "+=", "-=", "*=", "%=", "^=", "!~", "**",
        ];
        self.condition_follows = false;
        if self.rest.starts_with("++") || self.rest.starts_with("--") {
            self.skip(2)?;
            self.before = match self.before {
                Before::Value => Before::Unsure,
                other => other,
            };
            return Some(());
        }
        if self.rest.starts_with(">>") || self.rest.starts_with("|&") {
            return None;
        }
        self.before = Before::Operator;
        if TWO.iter().any(|two| self.rest.starts_with(two)) {
            return self.skip(2);
        }
        match first {
            // A file, unless it can only compare: in a pattern, in parentheses, in a statement that
            // prints nothing.
            '>' if self.prints && self.parentheses.is_empty() => None,
            '>' | '<' | '+' | '-' | '*' | '%' | '^' | '!' | '~' | '?' | ':' | ',' | '=' | '$'
            | '[' => self.skip(1),
            _ => None,
        }
    }
}

/// Position of the first `end` that no backslash stands before, on the same line.
fn closing(text: &str, end: char) -> Option<usize> {
    let mut escaped = false;
    for (offset, character) in text.char_indices() {
        match character {
            '\n' => return None,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == end => return Some(offset),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::only_prints;

    #[test]
    fn what_prints_and_computes() {
        for program in [
            "{print $1}",
            "NR==5",
            "NR>3 && NR<9 {print $2, $NF}",
            "/fn/ {print $1}",
            "/a|b/ {print \"x\" $1}",
            "{sum += $1} END {print sum/NR}",
            "{print length($0)}",
            "{print length}",
            "length > 80",
            "{printf \"%s\\n\", $1}",
            "END{print NR}",
            "!seen[$0]++",
            "BEGIN{FS=\",\"} {print $2}",
            "{if ($1 > 5) print $2; else print $3}",
            "{max = $1 > max ? $1 : max} END {print max}",
            "{gsub(/a\\/b/, \"x\"); print}",
            "{a[NR]=$0} END {for (i=NR;i>0;i--) print a[i]}",
            "{ total += $5 } END { print total/1024/1024 \" MB\" }",
            "/^## /{p=0} /^## Usage/{p=1} p",
            "$1 ~ /foo/ {print $2}",
            "/\"version\"/ {print $4}",
            "{print ($1 > 5)}",
            "NR > 1 { # the rest\n print }",
            "{ while (i < 3) { print i; i++ } }",
        ] {
            assert!(only_prints(program), "{program}");
        }
    }

    #[test]
    fn what_writes_runs_or_is_read_differently() {
        for program in [
            "",
            "BEGIN{system(\"id\")}",
            "{print > \"x\"}",
            "{print>>\"x\"}",
            "{print | \"sh\"}",
            "{print |& \"sh\"}",
            "BEGIN{\"id\" | getline x}",
            "/\"/ {print > \"x\"}",
            "{print $1 > $2}",
            "{printf(\"%s\", $1) > $2}",
            "{print(1)>f}",
            "{if (1) print > f}",
            "{if (1) { x } print > f}",
            "@load \"x\"",
            "function f(){}",
            "{ \"date\" | getline }",
            "/}/ {print > f}",
            "/{}/ {print > f}",
            "{ if (/}/) print > f; if (/{/) x=1 }",
            "{ print /}/ > f; y=/{/ }",
            "{ print \"}\" > f; y=\"{\" }",
            "{ if (1) /a}/ ; print > f ; /{b/ }",
            "BEGIN { f = \"system\"; @f(\"id\") }",
            "{print \"open}",
            "BEGIN{ARGV[1]=\"x\";ARGC=2}{print}",
            "{ system (\"id\") }",
            "{ print ENVIRON[\"X\"] }",
            "{ # }\nprint > f # {\n}",
            "{ length /}/; print > f; length /{/ }",
            "{ x++ /}/; print > f; x++ /{/ }",
            "{ print /[/]/ > f } # ]/",
            "{ x = /[\\]/; print > f; y = /]/ }",
            "{ x = /[[:alpha:]/; print > f; y = /]/ }",
            "{ unknown(1) }",
            "{ print `id` }",
            "{print $1",
            "print }",
        ] {
            assert!(!only_prints(program), "{program}");
        }
    }
}
